"""Chooses domains: first the level and its domains, then from level to level down to the lowest.

It works on counts alone (how many pods and slices each domain of each level takes) and on the shape of the tree. The
order is Kueue's: largest first and the last one tightest (BestFit), or smallest first (LeastFreeCapacity). It never
looks at nodes, resources or names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from queues.core.topology.capacity import Ints
from queues.core.topology.tree import Tree


class Algorithm(Enum):
    BEST_FIT = "BestFit"
    LEAST_FREE_CAPACITY = "LeastFreeCapacity"


@dataclass(frozen=True, slots=True)
class Wish:
    """`count` pods in slices of `slice_size`, a slice within one domain of `slice_level`.

    The search starts at `level`; `required` forbids to leave it or to use two of its domains, `can_go_up` allows to try
    the levels above it.
    """

    count: int
    level: int
    slice_level: int
    slice_size: int = 1
    required: bool = False
    can_go_up: bool = False
    algorithm: Algorithm = Algorithm.BEST_FIT

    @property
    def slices(self) -> int:
        return self.count // self.slice_size


@dataclass(frozen=True, slots=True)
class Shortfall:
    """There is no place: only so many slices of those wanted fit."""

    slices: int


@dataclass(frozen=True, slots=True)
class Levels:
    """For each level the pods and the whole slices that each of its domains takes.

    Below the slice level there are no slices to keep together, so a pod counts as one.
    """

    pods: tuple[Ints, ...]
    slices: tuple[Ints, ...]


def counted(tree: Tree, leaves: Ints, wish: Wish) -> Levels:
    """Phase 1: the counts of the lowest domains, added up level by level. Cost: one `reduceat` a level."""
    pods: list[Ints] = [leaves]
    slices: list[Ints] = []
    for level in range(len(tree.paths) - 1, -1, -1):
        if level < len(tree.paths) - 1:
            pods.append(tree.rolled_up(level, pods[-1]))
        if level > wish.slice_level:
            slices.append(pods[-1])
        elif level == wish.slice_level:
            slices.append(pods[-1] // wish.slice_size)
        else:
            slices.append(tree.rolled_up(level, slices[-1]))
    return Levels(tuple(reversed(pods)), tuple(reversed(slices)))


def searched(tree: Tree, levels: Levels, wish: Wish) -> dict[int, int] | Shortfall:
    """Phases 2a and 2b: pods by lowest domain (its index, ascending), or how much would have fitted."""
    found = _starting_domains(levels, wish)
    if isinstance(found, Shortfall):
        return found
    level, domains, amounts = found
    while level < wish.slice_level:
        pool = np.concatenate(tree.children(level, domains))
        level += 1
        domains, amounts = _filled(levels, level, pool, int(amounts.sum()), wish.algorithm)
    amounts = amounts * wish.slice_size
    while level < len(tree.paths) - 1:
        level += 1
        parts = [
            _filled(levels, level, children, amount, wish.algorithm)
            for children, amount in zip(tree.children(level - 1, domains), amounts.tolist(), strict=True)
        ]
        domains = np.concatenate([part[0] for part in parts])
        amounts = np.concatenate([part[1] for part in parts])
    return dict(sorted(zip(domains.tolist(), amounts.tolist(), strict=True)))


def _starting_domains(levels: Levels, wish: Wish) -> tuple[int, Ints, Ints] | Shortfall:
    """Phase 2a: one domain that takes everything, at the wished level or above, else several where that is allowed."""
    level = wish.level
    need = wish.slices
    while True:
        slices = levels.slices[level]
        every = np.arange(len(slices))
        alone = _tightest(levels, level, every, need)
        if alone is not None:
            return level, np.array([alone], np.int64), np.array([need], np.int64)
        if wish.required:
            return Shortfall(int(slices.max(initial=0)))
        if level == 0 or not wish.can_go_up:
            break
        level -= 1
    total = int(slices.sum())
    if total < need:
        return Shortfall(total)
    return (level, *_filled(levels, level, every, need, wish.algorithm))


def _tightest(levels: Levels, level: int, domains: Ints, need: int) -> int | None:
    """Of the domains that take everything the one with the fewest slices, then the fewest pods, then the first."""
    slices = levels.slices[level][domains]
    fitting = np.flatnonzero(slices >= need)
    if not len(fitting):
        return None
    fitting = fitting[slices[fitting] == slices[fitting].min()]
    pods = levels.pods[level][domains[fitting]]
    return int(domains[fitting[int(np.argmin(pods))]])


def _filled(levels: Levels, level: int, domains: Ints, need: int, algorithm: Algorithm) -> tuple[Ints, Ints]:
    """Take whole domains in order while they are too small for the rest, then the tightest that takes the rest.

    `domains` are in the order of their names and together take `need`.
    """
    slices = levels.slices[level][domains]
    domains = domains[slices > 0]
    slices = slices[slices > 0]
    pods = levels.pods[level][domains]
    order = np.lexsort((pods, slices if algorithm is Algorithm.LEAST_FREE_CAPACITY else -slices))
    domains, slices = domains[order], slices[order]
    whole = int(np.searchsorted(np.cumsum(slices), need))
    rest = need - int(slices[:whole].sum())
    last = _tightest(levels, level, domains[whole:], rest)
    if last is None:
        raise ValueError("these domains do not take so many slices")
    return np.append(domains[:whole], last), np.append(slices[:whole], rest)
