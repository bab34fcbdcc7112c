"""Keeps what assignments take of domains that are not hosts, and decides how many pods a domain surely still takes.

Which node of a rack a pod lands on is the scheduler's choice, so what is left is counted for its worst choice: each pod
that is charged takes from one node, and costs there at most as many pods of the new shape as its largest resource is
worth. It never assumes a node for a pod; what it promises holds wherever the pods went.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from queues.core.model import POD_UNITS, FlavorName, ResourceName
from queues.core.topology.capacity import Amounts, Capacity, Ints
from queues.core.topology.counts import NodeCounts, Shape
from queues.core.topology.tree import Path, Tree

_Requests = tuple[tuple[ResourceName, int], ...]

#: Above every possible number of pods of a domain.
_EVERYTHING: Final = 2**60


@dataclass(frozen=True, slots=True)
class Charge:
    """So many pods with these requests run somewhere in this lowest domain."""

    requests: _Requests
    leaf: int
    pods: int

    def cost_for(self, shape: Shape) -> int:
        """How many pods of the shape one of these displaces at most, the node's `pods` aside."""
        wanted = dict(shape.requests)
        costs = [-(-amount // wanted[name]) for name, amount in self.requests if name in wanted and name != POD_UNITS]
        return max(costs, default=0)


class Charges:
    """How many pods of which requests are charged to which domain, exactly, by flavor and levels."""

    def __init__(self) -> None:
        self._pods: dict[tuple[FlavorName, tuple[str, ...]], dict[_Requests, dict[Path, int]]] = {}

    def take(self, flavor: FlavorName, levels: tuple[str, ...], path: Path, requests: Amounts, pods: int) -> None:
        """Charge so many pods to the domain; a negative number gives back."""
        by_requests = self._pods.setdefault((flavor, levels), {})
        shape = tuple(sorted(requests.items()))
        by_path = by_requests.setdefault(shape, {})
        total = by_path.get(path, 0) + pods
        if total < 0:
            raise ValueError(f"more pods are given back in {path} than were taken")
        if total:
            by_path[path] = total
            return
        by_path.pop(path, None)
        if not by_path:
            del by_requests[shape]
        if not by_requests:
            del self._pods[flavor, levels]

    def of(self, tree: Tree, flavors: Iterable[FlavorName]) -> Iterator[Charge]:
        """What these flavors hold of the tree's lowest domains."""
        for flavor in flavors:
            for requests, by_path in self._pods.get((flavor, tree.key.levels), {}).items():
                for path, pods in by_path.items():
                    leaf = tree.leaf_of.get(path)
                    if leaf is not None:
                        yield Charge(requests, leaf, pods)


def left(capacity: Capacity, tree: Tree, counts: NodeCounts, charges: Iterable[Charge]) -> Ints:
    """For each lowest domain of the tree the pods that fit beside what is charged, wherever that runs.

    Cost: the nodes of the tree and the charges.
    """
    fits = tree.rolled_up(-1, counts.pods).copy()
    column = capacity.columns.get(POD_UNITS)
    if column is None:
        return fits
    # A pod also takes one of a node's `pods`. That costs nothing while no node of the domain can run short of them.
    spare = capacity.emptied[column].take(tree.slots) - counts.pods
    spare[counts.pods == 0] = _EVERYTHING
    charged = [0] * len(fits)
    lost = [0] * len(fits)
    lost_if_crowded = [0] * len(fits)
    for charge in charges:
        each = charge.cost_for(counts.shape)
        charged[charge.leaf] += charge.pods
        lost[charge.leaf] += charge.pods * each
        lost_if_crowded[charge.leaf] += charge.pods * max(each, 1)
    least_spare = np.minimum.reduceat(spare, tree.starts[-1]).tolist() if len(spare) else []
    for leaf, pods in enumerate(charged):
        if pods:
            loss = lost[leaf] if pods <= least_spare[leaf] else lost_if_crowded[leaf]
            fits[leaf] = max(0, int(fits[leaf]) - loss)
    return fits
