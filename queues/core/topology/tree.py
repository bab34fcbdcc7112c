"""The tree of one flavor's domains: its nodes sorted by domain, so that a level is one `reduceat` over the one below.

It is made from the nodes that carry the flavor's labels and every level label of its topology, and made anew only when
that set or a label changes; capacity, readiness and taints change nothing here. It never looks at what is free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from queues.core.model import HOSTNAME_LABEL, Node
from queues.core.topology.capacity import Ints

Path = tuple[str, ...]

#: What having the leader costs a part that cannot have it: more than any sum of pods.
_IMPOSSIBLE: Final = 2**60


@dataclass(frozen=True, slots=True)
class TreeKey:
    """What decides the tree: flavors that agree in it share one, and with it what assignments take."""

    node_labels: tuple[tuple[str, str], ...]
    levels: tuple[str, ...]

    @property
    def assigned_levels(self) -> tuple[str, ...]:
        """The levels that an assignment names."""
        return self.levels[-1:] if self.ends_at_host else self.levels

    @property
    def ends_at_host(self) -> bool:
        """Whether an assignment names hosts, so that what it takes is known node by node."""
        return self.levels[-1] == HOSTNAME_LABEL

    def path_of(self, node: Node) -> Path | None:
        """The node's domain at every level, or None when it is not part of this tree."""
        labels = node.labels
        for key, value in self.node_labels:
            if labels.get(key) != value:
                return None
        try:
            return tuple([labels[level] for level in self.levels])
        except KeyError:
            return None


class Tree:
    """Domains of a level are numbered in the lexicographic order of their paths; level 0 is the root's.

    `slots` are the nodes' slots in the order of their paths. `starts[level]` holds, for each domain of the level, where
    its children begin among the domains of the next level (at the lowest level: among `slots`). A level's value for all
    domains is therefore `np.add.reduceat(values of the next level, starts[level])`. `leaf_of` finds a lowest domain by
    its `values`.
    """

    def __init__(self, key: TreeKey, nodes: Iterable[tuple[int, Node]]) -> None:
        """Cost: one sort of the nodes."""
        self.key = key
        members = sorted(_members(key, nodes))
        self.slots: Ints = np.array([slot for _, _, slot in members], np.int64)
        depth = len(key.levels)
        self.paths: list[list[Path]] = [[] for _ in range(depth)]
        starts: list[list[int]] = [[] for _ in range(depth)]
        previous: Path = ()
        for position, (path, _, _) in enumerate(members):
            shared = _shared_length(previous, path)
            for level in range(shared, depth):
                self.paths[level].append(path[: level + 1])
                starts[level].append(len(self.paths[level + 1]) if level + 1 < depth else position)
            previous = path
        self.starts: list[Ints] = [np.array(level, np.int64) for level in starts]
        #: How an assignment names the lowest domains: a host by its hostname alone, others by all their levels.
        self.names: list[Path] = [path[-1:] for path in self.paths[-1]] if key.ends_at_host else self.paths[-1]
        self.leaf_of: dict[Path, int] = {name: index for index, name in enumerate(self.names)}
        self.positions: Ints = np.full(int(self.slots.max(initial=-1)) + 1, -1, np.int64)
        self.positions[self.slots] = np.arange(len(self.slots))
        self._parents: dict[int, Ints] = {}

    def values(self, leaf: int) -> Path:
        """How an assignment names a lowest domain."""
        return self.names[leaf]

    def children(self, level: int, domains: Ints) -> list[Ints]:
        """For each of these domains of a level the domains of the next level in it."""
        starts = self.starts[level]
        ends = np.append(starts[1:], len(self.paths[level + 1]))
        return [np.arange(starts[domain], ends[domain]) for domain in domains.tolist()]

    def parents(self, level: int) -> Ints:
        """For each domain of the next level the one of this level that it is in. Kept once it was asked for."""
        found = self._parents.get(level)
        if found is None:
            sizes = np.diff(np.append(self.starts[level], len(self.paths[level + 1])))
            found = self._parents[level] = np.repeat(np.arange(len(sizes)), sizes)
        return found

    def domain_of(self, path: Path) -> int | None:
        """The domain with this path; None when there is none. Cost: the logarithm of its level's domains."""
        paths = self.paths[len(path) - 1]
        index = bisect_left(paths, path)
        return index if index < len(paths) and paths[index] == path else None

    def leaves_in(self, path: Path) -> tuple[int, int]:
        """The lowest domains in the domain with this path, from the first up to the second number."""
        if not path:
            return 0, len(self.paths[-1])
        found = self.domain_of(path)
        if found is None:
            return 0, 0
        first, after = found, found + 1
        for level in range(len(path) - 1, len(self.paths) - 1):
            starts = self.starts[level]
            first = int(starts[first])
            after = int(starts[after]) if after < len(starts) else len(self.paths[level + 1])
        return first, after

    def rolled_up(self, level: int, values: Ints) -> Ints:
        """The sums over each domain of the level, from the values of the next one (or of the nodes).

        Where each has a single part these are the very values, not a copy.
        """
        if not len(values):
            return np.zeros(0, np.int64)
        starts = self.starts[level]
        return values if len(starts) == len(values) else np.add.reduceat(values, starts)

    def least_loss(self, level: int, alone: Ints, led: Ints) -> Ints:
        """Beside a leader a domain takes the sum of its parts, less what the one of them loses that loses least.

        `alone` and `led` are what the parts (domains of the next level, or nodes) take without and beside the leader;
        -1 marks those that cannot have it, and so it does in the result.
        """
        if not len(alone):
            return np.zeros(0, np.int64)
        losses = np.where(led < 0, _IMPOSSIBLE, alone - led)
        least = np.minimum.reduceat(losses, self.starts[level])
        return np.where(least >= _IMPOSSIBLE, -1, self.rolled_up(level, alone) - least)

    def positions_of(self, slots: Ints) -> Ints:
        """Where these slots stand in `slots`; those that are not part of the tree are left out."""
        known = self.positions[slots[slots < len(self.positions)]]
        return known[known >= 0]


def _members(key: TreeKey, nodes: Iterable[tuple[int, Node]]) -> Iterator[tuple[Path, str, int]]:
    found = [(path, node.name, slot) for slot, node in nodes if (path := key.path_of(node)) is not None]
    if not key.ends_at_host:
        yield from found
        return
    # An assignment names a host by its hostname alone. One hostname in two places cannot be aimed at.
    first_seen: dict[str, Path] = {}
    torn = {path[-1] for path, _, _ in found if first_seen.setdefault(path[-1], path) != path}
    yield from (member for member in found if member[0][-1] not in torn)


def _shared_length(one: Sequence[str], other: Sequence[str]) -> int:
    length = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        length += 1
    return length
