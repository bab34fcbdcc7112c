"""Ranks what a flavor offers, and decides whether the search goes on to the next flavor.

It works from the mode (fits, fits after preemption, does not fit), from how far up the cohorts quota would be borrowed,
and from the ClusterQueue's fungibility. It never computes either.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from queues.core.model import Fungibility, FungibilityPolicy, FungibilityPreference


class Mode(IntEnum):
    """What one flavor offers, from worst to best."""

    NO_FIT = 0
    #: Preemption would be needed and has no candidates.
    NO_CANDIDATES = 1
    #: Preemption would be needed, of workloads of the own ClusterQueue too.
    PREEMPT = 2
    #: Preemption would be needed, of borrowers in other ClusterQueues only.
    RECLAIM = 3
    FIT = 4


class Grade(NamedTuple):
    """`level`: the height of the smallest subtree that has the quota; 0 when nothing is borrowed."""

    mode: Mode
    level: int


#: Bound once, for these are asked for at every turn: in Python 3.11 each access to a member costs as much as six calls.
NO_FIT, NO_CANDIDATES, PREEMPT, RECLAIM, FIT = Mode
_TRY_NEXT_FLAVOR = FungibilityPolicy.TRY_NEXT_FLAVOR
_BORROWING_OVER_PREEMPTION = FungibilityPreference.BORROWING_OVER_PREEMPTION

WORST = Grade(NO_FIT, 0)
BEST = Grade(FIT, 0)


def is_preferred(one: Grade, other: Grade, preference: FungibilityPreference) -> bool:
    """Whether the first is better. A mode without candidates loses against any other, whatever the preference."""
    if one.mode is NO_FIT:
        return False
    if other.mode is NO_FIT:
        return True
    if (one.mode is NO_CANDIDATES) is not (other.mode is NO_CANDIDATES):
        return other.mode is NO_CANDIDATES
    if preference is _BORROWING_OVER_PREEMPTION:
        return (one.mode, -one.level) > (other.mode, -other.level)
    return (-one.level, one.mode) > (-other.level, other.mode)


def goes_on(grade: Grade, fungibility: Fungibility) -> bool:
    """Whether the next flavor is to be looked at as well."""
    if grade.mode is NO_FIT or grade.mode is NO_CANDIDATES:
        return True
    if grade.mode is not FIT and fungibility.when_can_preempt is _TRY_NEXT_FLAVOR:
        return True
    return grade.level > 0 and fungibility.when_can_borrow is _TRY_NEXT_FLAVOR
