"""Finds out in few trials whom of many victims a workload really needs gone.

Both searches rest on one fact: with more victims gone it never fits worse. They end with exactly those taken out that
they give back, and that it fits with these was tried. They never judge anything themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

Move = Callable[[T], None]


def shortest(victims: Sequence[T], known: int, put_back: Move[T], take_out: Move[T], fits: Callable[[], bool]) -> int:
    """How many of the victims, from the first on, are enough.

    All are taken out, and it fits; with only the first `known` of them it does not. Cost: the logarithm of the others
    in trials.
    """
    low, high, out = known + 1, len(victims), len(victims)
    while low < high:
        middle = (low + high) // 2
        out = _moved(victims, out, middle, put_back, take_out)
        if fits():
            high = middle
        else:
            low = middle + 1
    _moved(victims, out, low, put_back, take_out)
    return low


def _moved(victims: Sequence[T], out: int, to: int, put_back: Move[T], take_out: Move[T]) -> int:
    """Have the first `to` taken out instead of the first `out`."""
    for victim in reversed(victims[to:out]):
        put_back(victim)
    for victim in victims[out:to]:
        take_out(victim)
    return to


def needed(victims: Sequence[T], put_back: Move[T], take_out: Move[T], fits: Callable[[], bool]) -> list[T]:
    """Those of the victims who have to go, in their order; the others are put back.

    All are taken out, it fits, and without the last it does not. The others are spared from the last to the first
    where it fits without them: whole runs at once, twice as long each time, until one of the run turns out to be
    needed. Cost: those needed times the logarithm of all, in trials.
    """
    kept = [victims[-1]]
    last, length = len(victims) - 2, 1
    while last >= 0:
        first = max(0, last - length + 1)
        run = victims[first : last + 1]
        for victim in reversed(run):
            put_back(victim)
        if fits():
            last, length = first - 1, length * 2
            continue
        # As `shortest` has it, seen from the end: of the run the fewest that have to stay out, first ones first.
        for victim in run:
            take_out(victim)
        index = shortest(run, 0, put_back, take_out, fits) - 1
        kept.append(run[index])
        last, length = first + index - 1, 1
    return kept[::-1]
