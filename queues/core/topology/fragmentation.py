"""Decides on which node a few pods do the least harm to what is known to come.

Every size that may come has a number of places left, on each node and (a gang that stays together) in each domain. Pods
that go to a node take some of these away; what a lost place counts is how often its size comes, and the more the fewer
places it has left in all. It never says no: which nodes take the pods is not judged here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from queues.core.model import ResourceName, Size
from queues.core.topology import devices
from queues.core.topology.capacity import CEILING, Amounts, Capacity, Ints
from queues.core.topology.counts import CountsByShape, NodeCounts, shape_of
from queues.core.topology.suitability import NodeDemand, why_closed
from queues.core.topology.tree import Tree

Counted = Sequence[tuple[Size, int]]

Flags = npt.NDArray[np.bool_]

#: Prices are whole numbers: so much for all places together of a size that comes always. Sums of them fit into 64 bits.
_DEAREST: Final = 2**50

#: More places than any node has.
_MOST_PLACES: Final = 2**20


class Rooms:
    """What is free on some nodes, or on kinds of nodes: columns are resources, devices by resource beside them."""

    def __init__(self, free: Ints, columns: dict[ResourceName, int]) -> None:
        self.free = free
        self.columns = columns
        self.devices: dict[ResourceName, tuple[Ints, Ints]] = {}

    def without(self, requests: Amounts, pods: int) -> Rooms:
        """The same with so many pods on each."""
        left = self.free.copy()
        for resource, amount in requests.items():
            column = self.columns.get(resource)
            if column is not None:
                left[column] -= min(amount * pods, CEILING)
        rooms = Rooms(left, self.columns)
        for resource, (free, part) in self.devices.items():
            amount = requests.get(resource, 0)
            rooms.devices[resource] = (devices.without(free, part, amount, pods) if amount else free, part)
        return rooms

    def places(self, requests: Sequence[tuple[ResourceName, int]]) -> Ints:
        """How many such pods each takes."""
        found = np.full(self.free.shape[1], _MOST_PLACES, np.int64)
        for resource, amount in requests:
            column = self.columns.get(resource)
            if column is None:
                found[:] = 0
                continue
            np.minimum(found, self.free[column] // amount, out=found)
            view = self.devices.get(resource)
            if view is not None:
                free, part = view
                np.minimum(found, devices.fits(free, part, amount), out=found, where=part > 0)
        return np.maximum(found, 0, out=found)


def harm(
    capacity: Capacity,
    tree: Tree,
    known: CountsByShape,
    sizes: Counted,
    leaves: Ints,
    requests: Amounts,
    pods: int,
    *,
    emptied: bool = False,
) -> Ints:
    """What it costs to put `pods` pods of these requests on the one node of each of these lowest domains.

    Cost: the sizes times the states that the nodes are in, and for gangs that stay together times the domains.
    """
    positions = tree.starts[-1][leaves]
    needed = {*requests, *[resource for size, _ in sizes for resource, _ in size.requests]}
    kinds = _kinds(capacity, tree, positions, needed, emptied=emptied)
    after = kinds.rooms.without(requests, pods)
    by_kind = np.zeros(kinds.rooms.free.shape[1], np.int64)
    harms = np.zeros(len(leaves), np.int64)
    comes = sum(weight for _, weight in sizes)
    for size, weight in sizes:
        demand = NodeDemand(size.node_selector, size.affinity, size.tolerations)
        counts = known.of(shape_of(dict(size.requests), demand, emptied=emptied))
        lost = kinds.rooms.places(size.requests) - after.places(size.requests)
        lost[kinds.closed(capacity, size)] = 0
        if not lost.any():
            continue
        share = weight * _DEAREST // comes
        if size.level is not None and size.level in tree.key.levels:
            harms += _gangs_lost(
                tree, counts, size, leaves, np.where(counts.pods[positions] > 0, lost[kinds.of], 0), share
            )
            continue
        price = share // max(1, int(counts.pods.sum()))
        if size.node_selector or size.affinity:
            harms += np.where(counts.pods[positions] > 0, lost[kinds.of], 0) * price
        else:
            by_kind += lost * price
    return harms + by_kind[kinds.of]


def _gangs_lost(tree: Tree, counts: NodeCounts, size: Size, leaves: Ints, lost: Ints, share: int) -> Ints:
    """The same for a gang: what counts are whole gangs that find a place inside one domain of its level."""
    room, domain = tree.rolled_up(-1, counts.pods), leaves
    for level in range(len(tree.paths) - 2, tree.key.levels.index(size.level or "") - 1, -1):
        room = tree.rolled_up(level, room)
        domain = tree.parents(level)[domain]
    gangs = room // size.pods
    return (gangs[domain] - (room[domain] - lost) // size.pods) * (share // max(1, int(gangs.sum())))


class _Kinds:
    """Nodes that are alike are judged once: `of` is the kind of each node, `rooms` has a column for each kind."""

    def __init__(self, of: Ints, rooms: Rooms, conditions: Ints) -> None:
        self.of = of
        self.rooms = rooms
        self._conditions = conditions

    def closed(self, capacity: Capacity, size: Size) -> Flags:
        """Which kinds take no such pod whatever is free there."""
        verdicts = [why_closed(each, size.tolerations) is not None for each in capacity.known_conditions]
        return np.array(verdicts, np.bool_)[self._conditions]


def _kinds(
    capacity: Capacity, tree: Tree, positions: Ints, resources: Iterable[ResourceName], *, emptied: bool
) -> _Kinds:
    slots = tree.slots[positions]
    over_devices = [resource for resource in resources if resource in capacity.devices.resources]
    states = capacity.emptied_states if emptied else capacity.states
    if over_devices or not states.catch_up(capacity):
        table = capacity.emptied if emptied else capacity.free
        rooms = Rooms(table[:, slots], capacity.columns)
        for resource in over_devices:
            view = capacity.devices.of(resource, slots, emptied=emptied)
            if view is not None:
                rooms.devices[resource] = view
        return _Kinds(np.arange(len(slots)), rooms, capacity.conditions[slots].astype(np.int64))
    of = states.of_slots(tree.slots)[positions]
    is_used = np.zeros(states.count, np.bool_)
    is_used[of] = True
    used = np.flatnonzero(is_used)
    rows = states.rows[:, used]
    return _Kinds((np.cumsum(is_used) - 1)[of], Rooms(rows[:-1], capacity.columns), rows[-1])
