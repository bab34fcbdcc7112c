"""Chooses domains: first the level and its domains, then from level to level down to the lowest.

It works on counts alone (how many pods and slices each domain of each level takes) and on the shape of the tree. The
order is Kueue's: largest first and the last one tightest (BestFit), or smallest first (LeastFreeCapacity); or evenly
(`spread`), where the flavor says so. It never looks at nodes, resources or names.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np

from queues.core.topology.balance import balanced
from queues.core.topology.capacity import Ints
from queues.core.topology.spread import shared_evenly, spread
from queues.core.topology.tree import Tree

#: Keys up to this are sorted by counting, which is many times faster than comparing.
_SHORT: Final = 2**15


class Algorithm(Enum):
    """`SPREAD` is Muster's own; pods with a leader, or whose preferences count, are placed by `BEST_FIT` instead."""

    BEST_FIT = "BestFit"
    LEAST_FREE_CAPACITY = "LeastFreeCapacity"
    SPREAD = "Spread"


@dataclass(frozen=True, slots=True)
class Wish:
    """`count` pods in slices of `slice_size`, a slice within one domain of `slice_level`.

    `inner` divides slices further: (level, size) from the outside in, each level lower and each size a divisor of the
    one before. The search starts at `level`; `required` forbids to leave it or to use two of its domains, `can_go_up`
    allows to try the levels above it, `is_balanced` to share the pods out evenly first.
    """

    count: int
    level: int
    slice_level: int
    slice_size: int = 1
    inner: tuple[tuple[int, int], ...] = ()
    required: bool = False
    can_go_up: bool = False
    is_balanced: bool = False
    algorithm: Algorithm = Algorithm.BEST_FIT

    @property
    def slices(self) -> int:
        return self.count // self.slice_size

    def unit(self, level: int) -> int:
        """How many pods a domain of this level takes at least: a share is a multiple of it."""
        if level <= self.slice_level:
            return self.slice_size
        return next((size for inner_level, size in self.inner if level <= inner_level), 1)


@dataclass(frozen=True, slots=True)
class Shortfall:
    """There is no place: only so many slices of those wanted fit."""

    slices: int


@dataclass(frozen=True, slots=True)
class Counts:
    """For each level the pods, and the whole units (`Wish.unit`) of them, that each of its domains takes."""

    pods: tuple[Ints, ...]
    units: tuple[Ints, ...]


@dataclass(frozen=True, slots=True)
class Levels:
    """What the domains of each level take.

    `led` is the same beside a leader, -1 for domains that cannot take the leader at all; None without one. `scores`
    are what the pods' preferences say for each domain; None where they say nothing.
    """

    alone: Counts
    led: Counts | None = None
    scores: tuple[Ints, ...] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Pods by lowest domain (its index, ascending), and where the leader goes."""

    pods: dict[int, int]
    leader: int | None = None


@dataclass(slots=True)
class _Chosen:
    """Domains of one level with the units that each takes; `leader` is the position of the one with the leader.

    `is_shared_out`: each domain keeps its share on the way down, though slices are kept together further below only.
    """

    domains: Ints
    units: Ints
    leader: int | None = None
    is_shared_out: bool = False


#: What the counts of the same lowest domains add up to, by what of a wish matters for that.
Sums = dict[tuple[int, int, tuple[tuple[int, int], ...]], Counts]


def counted(
    tree: Tree,
    leaves: Ints,
    wish: Wish,
    led: Ints | None = None,
    scores: Ints | None = None,
    *,
    known: Sums | None = None,
) -> Levels:
    """Phase 1: the counts of the lowest domains, added up level by level. Cost: a few `reduceat` a level.

    `led` are the pods that each lowest domain takes beside the leader, -1 where it cannot take that. `known` is what
    was added up before of these very leaves.
    """
    key = wish.slice_level, wish.slice_size, wish.inner
    found = None if known is None else known.get(key)
    alone = _added_up(tree, leaves, wish) if found is None else found
    if known is not None:
        known[key] = alone
    return Levels(
        alone,
        None if led is None else _added_up_with_leader(tree, led, alone, wish),
        None if scores is None else _summed(tree, scores),
    )


def _added_up(tree: Tree, leaves: Ints, wish: Wish) -> Counts:
    lowest = len(tree.paths) - 1
    sizes = dict(wish.inner)
    pods: list[Ints] = []
    units: list[Ints] = []
    for level in range(lowest, -1, -1):
        is_alike = level < lowest and level < wish.slice_level and units[-1] is pods[-1]
        here = leaves if level == lowest else tree.rolled_up(level, pods[-1])
        if level in sizes:
            here, is_alike = here // sizes[level] * sizes[level], False
        pods.append(here)
        if level >= wish.slice_level:
            unit = wish.unit(level)
            units.append(here if unit == 1 else here // unit)
        else:
            units.append(here if is_alike else tree.rolled_up(level, units[-1]))
    return Counts(tuple(reversed(pods)), tuple(reversed(units)))


def _added_up_with_leader(tree: Tree, leaves: Ints, alone: Counts, wish: Wish) -> Counts:
    """A domain loses by the leader what the one of its children loses that loses least."""
    lowest = len(tree.paths) - 1
    sizes = dict(wish.inner)
    pods: list[Ints] = []
    units: list[Ints] = []
    for level in range(lowest, -1, -1):
        here = leaves if level == lowest else tree.least_loss(level, alone.pods[level + 1], pods[-1])
        if level in sizes:
            here = np.where(here < 0, -1, here // sizes[level] * sizes[level])
        pods.append(here)
        if level >= wish.slice_level:
            units.append(np.where(here < 0, -1, here // wish.unit(level)))
        else:
            units.append(tree.least_loss(level, alone.units[level + 1], units[-1]))
    return Counts(tuple(reversed(pods)), tuple(reversed(units)))


def _summed(tree: Tree, leaves: Ints) -> tuple[Ints, ...]:
    found = [leaves]
    for level in range(len(tree.paths) - 2, -1, -1):
        found.append(tree.rolled_up(level, found[-1]))
    return tuple(reversed(found))


def searched(tree: Tree, levels: Levels, wish: Wish) -> Found | Shortfall:
    """Phases 2a and 2b: where the pods go, or how much would have fitted."""
    if wish.algorithm is Algorithm.SPREAD and levels.led is None and levels.scores is None:
        return _spread(tree, levels, wish)
    started = _starting_domains(tree, levels, wish)
    if isinstance(started, Shortfall):
        return started
    level, chosen = started
    while level < wish.slice_level and not chosen.is_shared_out:
        pool = np.concatenate(tree.children(level, np.sort(chosen.domains)))
        level += 1
        is_led = chosen.leader is not None
        chosen = _filled(levels, level, pool, int(chosen.units.sum()), wish.algorithm, is_led=is_led)
    while level < len(tree.paths) - 1:
        chosen = _descended(tree, levels, level, chosen, wish)
        level += 1
    amounts = (chosen.units * wish.unit(level)).tolist()
    leader = None if chosen.leader is None else int(chosen.domains[chosen.leader])
    pods = {domain: amount for domain, amount in sorted(zip(chosen.domains.tolist(), amounts, strict=True)) if amount}
    return Found(pods, leader)


def _spread(tree: Tree, levels: Levels, wish: Wish) -> Found | Shortfall:
    """The roomiest domain that takes everything, at the wished level or above, else all of them; evenly inside."""
    units, need = levels.alone.units, wish.slices
    is_close = wish.required or wish.can_go_up
    level = wish.level if is_close else 0
    while wish.can_go_up and level and units[level].max(initial=0) < need:
        level -= 1
    room = units[level]
    if is_close and room.max(initial=0) >= need:
        domains, shares = np.array([int(np.argmax(room))]), np.array([need], np.int64)
    elif wish.required or int(room.sum()) < need:
        return Shortfall(int(room.max(initial=0) if wish.required else room.sum()))
    else:
        domains, shares = np.arange(len(room)), shared_evenly(room, need)
    sizes = [wish.unit(each) for each in range(len(units))]
    domains, shares = spread(tree, units, sizes, level, domains, shares)
    amounts = (shares * sizes[-1]).tolist()
    return Found({domain: amount for domain, amount in sorted(zip(domains.tolist(), amounts, strict=True)) if amount})


def _descended(tree: Tree, levels: Levels, level: int, chosen: _Chosen, wish: Wish) -> _Chosen:
    """Each domain's share goes to its own children, in the units of their level."""
    shares = (chosen.units * wish.unit(level) // wish.unit(level + 1)).tolist()
    domains: list[Ints] = []
    units: list[Ints] = []
    leader, length = None, 0
    for position, (children, share) in enumerate(zip(tree.children(level, chosen.domains), shares, strict=True)):
        is_led = position == chosen.leader
        part = _filled(levels, level + 1, children, share, wish.algorithm, is_led=is_led)
        if is_led and part.leader is not None:
            leader = length + part.leader
        length += len(part.domains)
        domains.append(part.domains)
        units.append(part.units)
    return _Chosen(np.concatenate(domains), np.concatenate(units), leader)


def _starting_domains(tree: Tree, levels: Levels, wish: Wish) -> tuple[int, _Chosen] | Shortfall:
    """Phase 2a: one domain that takes everything, at the wished level or above, else several where that is allowed."""
    level, need = wish.level, wish.slices
    is_led = levels.led is not None
    if wish.is_balanced and not is_led:
        shared = balanced(tree, level, levels.alone.units[level], need)
        if shared is not None:
            return level, _Chosen(*shared, is_shared_out=True)
    counts = levels.alone if levels.led is None else levels.led
    while True:
        units = counts.units[level]
        every = np.arange(len(units))
        alone = _tightest(levels, level, every, need, is_led=is_led)
        if alone is not None:
            return level, _Chosen(np.array([alone], np.int64), np.array([need], np.int64), 0 if is_led else None)
        if wish.required:
            return Shortfall(max(0, int(units.max(initial=0))))
        if level == 0 or not wish.can_go_up:
            break
        level -= 1
    total = _total(levels, level)
    if total < need or (is_led and not (units >= 0).any()):
        return Shortfall(total)
    return level, _filled(levels, level, every, need, wish.algorithm, is_led=is_led)


def _total(levels: Levels, level: int) -> int:
    """What all domains of the level take together; beside a leader, in the one that then loses least."""
    units = levels.alone.units[level]
    total = int(units.sum())
    if levels.led is None:
        return total
    led = levels.led.units[level]
    able = led >= 0
    return total - int((units - led)[able].min()) if able.any() else 0


def _tightest(levels: Levels, level: int, domains: Ints, need: int, *, is_led: bool = False) -> int | None:
    """Of the domains that take everything the one with the fewest slices, then the fewest pods, then the first.

    Those that the pods prefer come before all others.
    """
    counts = levels.led if is_led else levels.alone
    assert counts is not None  # noqa: S101
    units = counts.units[level][domains]
    fitting = np.flatnonzero(units >= need)
    if not len(fitting):
        return None
    if levels.scores is not None:
        scores = levels.scores[level][domains[fitting]]
        fitting = fitting[scores == scores.max()]
    fitting = fitting[units[fitting] == units[fitting].min()]
    pods = counts.pods[level][domains[fitting]]
    return int(domains[fitting[int(np.argmin(pods))]])


def _filled(
    levels: Levels, level: int, domains: Ints, need: int, algorithm: Algorithm, *, is_led: bool = False
) -> _Chosen:
    """Take whole domains in order while they are too small for the rest, then the tightest that takes the rest.

    `domains` are in the order of their names and together take `need`, beside the leader if that is one of them.
    """
    if is_led:
        return _filled_with_leader(levels, level, domains, need, algorithm)
    if not need:
        return _Chosen(np.zeros(0, np.int64), np.zeros(0, np.int64))
    units = levels.alone.units[level][domains]
    domains = domains[units > 0]
    units = units[units > 0]
    order = _in_order(levels, level, domains, levels.alone, algorithm)
    domains, units = domains[order], units[order]
    whole = int(np.searchsorted(np.cumsum(units), need))
    rest = need - int(units[:whole].sum())
    last = _tightest(levels, level, domains[whole:], rest)
    if last is None:
        raise ValueError("these domains do not take so many slices")
    return _Chosen(np.append(domains[:whole], last), np.append(units[:whole], rest))


def _filled_with_leader(levels: Levels, level: int, domains: Ints, need: int, algorithm: Algorithm) -> _Chosen:
    """The leader's domain first: one that loses no more by it than there is to spare. The others take the rest."""
    assert levels.led is not None  # noqa: S101
    units, led = levels.alone.units[level][domains], levels.led.units[level][domains]
    spare = int(units.sum()) - need
    able = domains[(led >= 0) & (units - led <= spare)]
    if not len(able):
        raise ValueError("no domain takes the leader")
    home = _tightest(levels, level, able, need, is_led=True)
    if home is None:
        home = int(able[_in_order(levels, level, able, levels.led, algorithm)[0]])
    share = min(need, int(levels.led.units[level][home]))
    rest = _filled(levels, level, domains[domains != home], need - share, algorithm)
    return _Chosen(np.append(home, rest.domains), np.append(share, rest.units), 0)


def _in_order(levels: Levels, level: int, domains: Ints, counts: Counts, algorithm: Algorithm) -> Ints:
    """Preferred ones first, then by slices, then those with the fewest pods, then by name."""
    units, pods = counts.units[level][domains], counts.pods[level][domains]
    rising = algorithm is Algorithm.LEAST_FREE_CAPACITY
    if levels.scores is not None:
        return np.lexsort((pods, units if rising else -units, -levels.scores[level][domains]))
    if not len(domains) or int(pods.max()) >= _SHORT:
        return np.lexsort((pods, units if rising else -units))
    if counts.units[level] is counts.pods[level]:
        alike = units.astype(np.int16)
        return np.argsort(alike if rising else -alike, kind="stable")
    by_pods = np.argsort(pods.astype(np.int16), kind="stable")
    short = units[by_pods].astype(np.int16)
    return by_pods[np.argsort(short if rising else -short, kind="stable")]
