"""Chooses sibling domains that share the slices of a gang as evenly as may be (Kueue's balanced placement).

It works on how many slices each domain of one level takes and on which domains are siblings. It never goes up or down
a level, and None means that the ordinary search has to do.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from queues.core.topology.capacity import Ints
from queues.core.topology.tree import Tree

#: Cells of the table of sums that are filled at most; a larger question is left to the ordinary search.
_MOST_CELLS: Final = 4_000_000

#: More than the squares of any set of domains add up to.
_WORST: Final = 2**62


def balanced(tree: Tree, level: int, slices: Ints, need: int) -> tuple[Ints, Ints] | None:
    """Domains of this level below one parent, and the slices for each.

    The parent is the one where the smallest share can be largest, for the fewest of its domains that take everything;
    of equals the first. Cost: a sort of each parent's domains and, for one parent, domains times shares times slices.
    """
    if need < 1 or not len(slices):
        return None
    starts = np.array([0], np.int64) if level == 0 else tree.starts[level - 1]
    ends = np.append(starts[1:], len(slices))
    totals = np.add.reduceat(slices, starts)
    best: tuple[int, Ints] | None = None
    for parent in np.flatnonzero(totals >= need).tolist():
        siblings = np.arange(starts[parent], ends[parent])
        threshold = _largest_threshold(slices[siblings], need)
        if best is None or threshold > best[0]:
            best = (threshold, siblings)
    if best is None or best[0] < 1:
        return None
    threshold, siblings = best
    siblings = siblings[slices[siblings] >= threshold]
    chosen = _tightest_set(slices[siblings], need)
    if chosen is None:
        return None
    domains = siblings[chosen]
    return domains, _shared_out(slices[domains], need, threshold)


def _largest_threshold(slices: Ints, need: int) -> int:
    """The smallest share when the fewest domains take everything as evenly as they can."""
    falling = np.sort(slices)[::-1]
    fewest = int(np.searchsorted(np.cumsum(falling), need)) + 1
    return min(int(falling[fewest - 1]), need // fewest)


def _tightest_set(slices: Ints, need: int) -> Ints | None:
    """The fewest domains that take `need` slices together; of these sets one with the fewest slices to spare.

    Among equals the most even one: by the sum of squares, which orders like an entropy and stays an integer. Then the
    first. Positions, ascending; None where there is none or it would take too long.
    """
    falling = np.sort(slices)[::-1]
    fewest = int(np.searchsorted(np.cumsum(falling), need)) + 1
    if fewest > len(slices):
        return None
    highest = need + int(falling[0])
    if fewest * len(slices) * highest > _MOST_CELLS or int(falling[0]) >= 2**24:
        return None
    # squares[k][s]: the least sum of squares of k of the domains seen so far that take s slices together.
    squares = np.full((fewest + 1, highest + 1), _WORST, np.int64)
    squares[0, 0] = 0
    taken = np.zeros((len(slices), fewest + 1, highest + 1), np.bool_)
    for position in range(
        len(slices) - 1, -1, -1
    ):  # backwards, so that the first of equals is found when read forwards
        size = int(slices[position])
        with_it = np.full_like(squares, _WORST)
        before = squares[:-1, : highest + 1 - size]
        with_it[1:, size:] = np.where(before < _WORST, before + size * size, _WORST)
        taken[position] = (with_it <= squares) & (with_it < _WORST)
        squares = np.minimum(squares, with_it)
    sums = np.flatnonzero(squares[fewest, need:] < _WORST)
    if not len(sums):
        return None
    left, total = fewest, need + int(sums[0])
    chosen = []
    for position in range(len(slices)):
        if left and taken[position, left, total]:
            chosen.append(position)
            left -= 1
            total -= int(slices[position])
    return np.array(chosen, np.int64)


def _shared_out(slices: Ints, need: int, threshold: int) -> Ints:
    """`threshold` for each, and what is left for those that take most of it, in that order."""
    shares = np.full(len(slices), threshold, np.int64)
    rest = need - int(shares.sum())
    for position in np.argsort(-slices, kind="stable").tolist():
        more = min(rest, int(slices[position]) - threshold)
        shares[position] += more
        rest -= more
    return shares
