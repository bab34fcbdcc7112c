"""When the reason for waiting is written: soon while it is quiet, seldom for words alone, and never twice."""

from __future__ import annotations

from admission.controllers import decisions
from admission.controllers.holds import Holds, Pace
from queues.core.reasons import Code, Reason
from tests.unit.controllers.builders import NOW, workload

WAITS = Reason(Code.WAITING_FOR_QUOTA, "1 cpu is missing")
LESS = Reason(Code.WAITING_FOR_QUOTA, "2 cpu are missing")
NEVER = Reason(Code.EXCEEDS_MAX_QUOTA, "too large")
WL = workload().obj
QUIET = Pace()


def holds(pace: Pace = QUIET) -> Holds:
    made = Holds(pace)
    made.put("u", WAITS, NOW - pace.patience)
    return made


def test_a_first_reason_is_written_once_the_workload_has_waited_a_moment() -> None:
    made = Holds(QUIET)
    made.put("u", WAITS, NOW)
    assert made.when("u", WL, NOW, crowded=False) == NOW + 1
    made.put("u", LESS, NOW + 0.5)
    assert made.when("u", WL, NOW + 0.5, crowded=False) == NOW + 1
    assert made.when("u", WL, NOW + 1, crowded=False) == NOW + 1


def test_what_the_workload_says_already_is_not_written() -> None:
    told = decisions.hold(WL, WAITS, NOW)
    assert holds().when("u", told, NOW, crowded=False) is None


def test_who_is_not_known_to_wait_is_not_written_to() -> None:
    assert holds().when("other", WL, NOW, crowded=False) is None


def test_new_words_for_the_same_reason_wait() -> None:
    told = decisions.hold(WL, WAITS, NOW)
    made = holds()
    made.written("u", NOW)
    made.put("u", LESS, NOW)
    assert made.when("u", told, NOW + 1, crowded=False) == NOW + 30
    assert made.when("u", told, NOW + 30, crowded=False) == NOW + 30


def test_another_reason_does_not_wait() -> None:
    told = decisions.hold(WL, WAITS, NOW)
    made = holds()
    made.written("u", NOW)
    made.put("u", NEVER, NOW)
    assert made.when("u", told, NOW + 1, crowded=False) == NOW + 1


def test_in_a_crowd_it_waits() -> None:
    assert holds().when("u", WL, NOW, crowded=True) == NOW + 1


def test_a_burst_is_spread() -> None:
    made = holds(pace=Pace(rate=2, burst=2))
    for _ in range(2):
        assert made.when("u", WL, NOW, crowded=False) == NOW
        made.written("u", NOW)
    later = made.when("u", WL, NOW, crowded=False)
    assert later == NOW + 0.5
    assert made.when("u", WL, later, crowded=False) == later
