"""Decides how many pods of one shape each node of a tree can take, and if none, why.

It works from the capacity columns and the nodes' conditions and labels; a result is kept and later mended only for the
nodes that changed since. It never adds up over domains and never chooses.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from queues.core.model import Expression, ResourceName
from queues.core.topology import devices
from queues.core.topology.capacity import CEILING, Capacity, Ints
from queues.core.topology.search import Sums
from queues.core.topology.states import States
from queues.core.topology.suitability import AFFINITY, NODE_SELECTOR, NodeDemand, why_closed
from queues.core.topology.tree import Tree

Causes = npt.NDArray[np.int32]

#: More pods than any node runs: keeps sums over a million nodes far inside 64 bits.
_MOST_PODS: Final = 2**31

#: Shapes whose results are kept for each tree; a result takes 16 bytes a node.
_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """One pod as nodes see it: `requests` (sorted, without zeros, `pods` included) and which nodes it may use.

    `emptied` asks what would fit if no topology assignment held anything.
    """

    requests: tuple[tuple[ResourceName, int], ...]
    demand: NodeDemand
    emptied: bool = False


class NodeCounts:
    """`pods` and `causes` by position in the tree; a cause is an index into `names`, 0 where at least one pod fits."""

    def __init__(self, shape: Shape, capacity: Capacity, tree: Tree) -> None:
        self.shape = shape
        self.names: list[str] = [""]
        self._index: dict[str, int] = {"": 0}
        self._by_condition: list[int] = []
        self.pods: Ints
        self.causes: Causes
        #: Of `pods` by domain, for whoever adds them up again.
        self.sums: Sums = {}
        self.pods, self.causes = self._evaluate(capacity, tree.slots)
        self.version = capacity.version

    def catch_up(self, capacity: Capacity, tree: Tree) -> None:
        """Compute anew what changed. Cost: the changed nodes, at most all of the tree."""
        if self.version == capacity.version:
            return
        changed = capacity.changed_since(self.version)
        self.version = capacity.version
        if changed is None:
            self.sums = {}
            self.pods, self.causes = self._evaluate(capacity, tree.slots)
            return
        positions = tree.positions_of(changed)
        if len(positions):
            self.sums = {}
            self.pods[positions], self.causes[positions] = self._evaluate(capacity, tree.slots[positions])

    def excluded(self) -> dict[str, int]:
        """How many nodes cannot take a single pod, by cause."""
        found = {}
        if self.causes.any():
            for index, name in enumerate(self.names):
                count = int(np.count_nonzero(self.causes == index)) if index else 0
                if count:
                    found[name] = count
        return found

    def _evaluate(self, capacity: Capacity, slots: Ints) -> tuple[Ints, Causes]:
        pods, causes = self._by_columns(capacity, slots)
        for resource, amount in self.shape.requests:
            view = capacity.devices.of(resource, slots, emptied=self.shape.emptied)
            if view is not None:
                free, part = view
                fits = np.where(part > 0, devices.fits(free, part, amount), pods)
                causes[(fits < 1) & (pods > 0)] = self._cause(f'resource "{resource}" on one device')
                np.minimum(pods, fits, out=pods)
        return pods, causes

    def _by_columns(self, capacity: Capacity, slots: Ints) -> tuple[Ints, Causes]:
        states = capacity.emptied_states if self.shape.emptied else capacity.states
        if len(slots) * 2 > len(capacity.nodes) and states.catch_up(capacity):
            return self._by_state(capacity, states, slots)
        table = capacity.emptied if self.shape.emptied else capacity.free
        causes = self._by_conditions(capacity, capacity.conditions.take(slots, mode="clip"))
        self._leave_out_unwanted(capacity, slots, causes)
        return self._fitting(capacity, table.take(slots, axis=1, mode="clip"), causes), causes

    def _by_state(self, capacity: Capacity, states: States, slots: Ints) -> tuple[Ints, Causes]:
        """The same, judged once for each state. What pods do not want is judged by node, and named before resources."""
        rows = states.rows[:, : states.count]
        of = states.of_slots(slots)
        closed = self._by_conditions(capacity, rows[-1])
        causes = closed.copy()
        pods = self._fitting(capacity, rows, causes).take(of, mode="clip")
        found = causes.take(of, mode="clip") if causes.any() else np.zeros(len(slots), np.int32)
        demand = self.shape.demand
        if demand.node_selector or demand.affinity:
            unwanted = closed.take(of, mode="clip")
            is_open = unwanted == 0
            self._leave_out_unwanted(capacity, slots, unwanted)
            changed = is_open & (unwanted != 0)
            found[changed] = unwanted[changed]
            pods[changed] = 0
        return pods, found

    def _fitting(self, capacity: Capacity, free: Ints, causes: Causes) -> Ints:
        """The pods that fit into what is free (rows are resources); what keeps them out is added to the causes."""
        pods = np.full(free.shape[1], _MOST_PODS, np.int64)
        for resource, amount in self.shape.requests:
            column = capacity.columns.get(resource)
            if column is None or amount > CEILING:
                fits = np.zeros(len(pods), np.int64)
            else:
                fits = free[column] if amount == 1 else free[column] // amount
            if len(fits) and fits.min() <= 0:
                short = (fits <= 0) & (causes == 0)
                causes[short] = self._cause(f'resource "{resource}"')
            np.minimum(pods, fits, out=pods)
        if causes.any():
            pods[causes != 0] = 0
        return pods

    def _by_conditions(self, capacity: Capacity, conditions: Ints | Causes) -> Causes:
        tolerations = self.shape.demand.tolerations
        for condition in capacity.known_conditions[len(self._by_condition) :]:
            self._by_condition.append(self._cause(why_closed(condition, tolerations) or ""))
        if any(self._by_condition):
            return np.array(self._by_condition, np.int32).take(conditions, mode="clip")
        return np.zeros(len(conditions), np.int32)

    def _leave_out_unwanted(self, capacity: Capacity, slots: Ints, causes: Causes) -> None:
        """Add to the causes which nodes the pods do not want."""
        demand = self.shape.demand
        if demand.node_selector:
            selected = capacity.labels.selected(demand.node_selector, capacity.nodes, slots)
            causes[(causes == 0) & ~selected] = self._cause(NODE_SELECTOR)
        if demand.affinity:
            wanted = np.zeros(len(slots), np.bool_)
            for term in demand.affinity:
                wanted |= capacity.labels.matched(term, capacity.nodes, slots)
            causes[(causes == 0) & ~wanted] = self._cause(AFFINITY)

    def _cause(self, name: str) -> int:
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = len(self.names)
            self.names.append(name)
        return index


class CountsByShape:
    """The results for the shapes that were asked for last, for one tree."""

    def __init__(self, capacity: Capacity, tree: Tree) -> None:
        self._capacity = capacity
        self._tree = tree
        self._kept: OrderedDict[Shape, NodeCounts] = OrderedDict()

    def of(self, shape: Shape) -> NodeCounts:
        counts = self._kept.pop(shape, None)
        if counts is None:
            counts = NodeCounts(shape, self._capacity, self._tree)
            if len(self._kept) >= _KEPT:
                self._kept.popitem(last=False)
        else:
            counts.catch_up(self._capacity, self._tree)
        self._kept[shape] = counts
        return counts


def shape_of(requests: Mapping[ResourceName, int], demand: NodeDemand, *, emptied: bool) -> Shape:
    return Shape(tuple(sorted(requests.items())), demand, emptied)


def beside(capacity: Capacity, tree: Tree, workers: NodeCounts, leader: NodeCounts) -> Ints:
    """How many workers each node takes beside the leader, by position; -1 where it cannot take the leader."""
    table = capacity.emptied if workers.shape.emptied else capacity.free
    taken = dict(leader.shape.requests)
    pods = np.full(len(tree.slots), _MOST_PODS, np.int64)
    for resource, amount in workers.shape.requests:
        column = capacity.columns.get(resource)
        if column is None or amount > CEILING:
            pods[:] = 0
        else:
            left = table[column].take(tree.slots) - min(taken.get(resource, 0), CEILING)
            np.minimum(pods, left // amount, out=pods)
        view = capacity.devices.of(resource, tree.slots, emptied=workers.shape.emptied)
        if view is not None:
            free, part = view
            if resource in taken:
                free = devices.without(free, part, taken[resource])
            np.minimum(pods, devices.fits(free, part, amount), out=pods, where=part > 0)
    np.maximum(pods, 0, out=pods)
    pods[workers.causes != 0] = 0
    pods[leader.pods < 1] = -1
    return pods


def scores(
    capacity: Capacity, tree: Tree, counts: NodeCounts, preferences: tuple[tuple[int, tuple[Expression, ...]], ...]
) -> Ints:
    """What the pods' preferences say for each node that takes at least one: the weights of the terms that it meets."""
    found = np.zeros(len(tree.slots), np.int64)
    for weight, term in preferences:
        found += weight * capacity.labels.matched(term, capacity.nodes, tree.slots)
    found[counts.pods == 0] = 0
    return found
