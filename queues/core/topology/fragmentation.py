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

#: Places are counted in parts: what is left beyond the last whole place is worth something to other sizes.
PARTS: Final = 64

#: Prices are whole numbers: so much for all places of a size that comes always. Sums of them fit into 64 bits.
_DEAREST: Final = 2**50

#: More places than any node has, and more of a resource than is ever counted in parts.
_MOST_PLACES: Final = 2**20
_MOST: Final = 2**55


class Rooms:
    """What is free on some nodes, or on kinds of nodes: columns are resources, devices by resource beside them."""

    def __init__(self, free: Ints, columns: dict[ResourceName, int]) -> None:
        self.free = free
        self.columns = columns
        self.devices: dict[ResourceName, tuple[Ints, Ints]] = {}
        self._known: dict[tuple[ResourceName, int, int], Ints] = {}

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

    def places(self, requests: Sequence[tuple[ResourceName, int]], parts: int = 1) -> Ints:
        """How many such pods each takes, in parts of a place; where it takes not even one, nothing."""
        found = np.full(self.free.shape[1], _MOST_PLACES, np.int64)
        for resource, amount in requests:
            np.minimum(found, self._by_one(resource, amount, parts), out=found)
        found[found < parts] = 0
        return found

    def _by_one(self, resource: ResourceName, amount: int, parts: int) -> Ints:
        """The same by one resource alone; sizes often ask for the same of it."""
        known = self._known.get((resource, amount, parts))
        if known is not None:
            return known
        column = self.columns.get(resource)
        if column is None or amount > CEILING:
            found = np.zeros(self.free.shape[1], np.int64)
        else:
            free = self.free[column]
            found = free // amount if parts == 1 else np.minimum(free, _MOST) * parts // amount
        view = self.devices.get(resource)
        if view is not None:
            on_device, part = view
            np.minimum(found, devices.fits(on_device, part, amount, parts), out=found, where=part > 0)
        self._known[resource, amount, parts] = found
        return found


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
    resources = {*requests, *[resource for size, _ in sizes for resource, _ in size.requests]}
    kinds = _kinds(capacity, tree, positions, resources, emptied=emptied)
    after = kinds.rooms.without(requests, pods)
    by_kind = np.zeros(kinds.rooms.free.shape[1], np.int64)
    harms = np.zeros(len(leaves), np.int64)
    comes = sum(weight for _, weight in sizes)
    for size, weight in sizes:
        is_gang = size.pods > 1 and size.level in tree.key.levels
        parts = 1 if is_gang else PARTS
        lost = kinds.rooms.places(size.requests, parts) - after.places(size.requests, parts)
        lost[kinds.closed(capacity, size)] = 0
        if not lost.any():
            continue
        demand = NodeDemand(size.node_selector, size.affinity, size.tolerations)
        counts = known.of(shape_of(dict(size.requests), demand, emptied=emptied))
        share = weight * _DEAREST // comes
        if not (is_gang or size.node_selector or size.affinity):
            by_kind += lost * price(share, int(counts.pods.sum()))
            continue
        at_hosts = np.where(counts.pods[positions] > 0, lost[kinds.of], 0)
        if is_gang:
            harms += _harm_to_gangs(tree, counts, size, leaves, at_hosts, share)
        else:
            harms += at_hosts * price(share, int(counts.pods.sum()))
    return harms + by_kind[kinds.of]


def price(share: int, places: int) -> int:
    """What a part of a place counts of a size that has so many places in all."""
    return share // PARTS // max(1, places)


def _harm_to_gangs(tree: Tree, counts: NodeCounts, size: Size, leaves: Ints, lost: Ints, share: int) -> Ints:
    """The same for a gang: its places are whole domains of its level, `lost` are places of its single pods."""
    room, domain = tree.rolled_up(-1, counts.pods), leaves
    for level in range(len(tree.paths) - 2, tree.key.levels.index(size.level or "") - 1, -1):
        room = tree.rolled_up(level, room)
        domain = tree.parents(level)[domain]
    before = room[domain]
    return (_gangs(before, size.pods) - _gangs(before - lost, size.pods)) * price(share, int((room // size.pods).sum()))


def _gangs(room: Ints, pods: int) -> Ints:
    found: Ints = np.where(room >= pods, room * PARTS // pods, 0)
    return found


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
    rows = states.rows[:, np.flatnonzero(is_used)]
    return _Kinds((np.cumsum(is_used) - 1)[of], Rooms(rows[:-1], capacity.columns), rows[-1])
