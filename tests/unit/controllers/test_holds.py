"""When the reason for waiting is written: soon while it is quiet, seldom for words alone, never twice or in a burst."""

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


def waiting(*uids: str, pace: Pace = QUIET) -> Holds:
    """Holds of those that have waited a moment by `NOW`."""
    made = Holds(pace)
    for uid in uids:
        made.put(uid, WAITS, NOW - pace.patience)
    return made


def turns(holds: Holds, now: float, *, crowded: bool = False) -> list[str]:
    return list(holds.turns(now, crowded=crowded))


def test_a_first_reason_is_written_once_the_workload_has_waited_a_moment() -> None:
    made = Holds(QUIET)
    made.put("u", WAITS, NOW)
    made.put("u", LESS, NOW + 0.5)
    assert made.next() == NOW + 1
    assert turns(made, NOW + 0.9) == []
    assert turns(made, NOW + 1) == ["u"]
    assert made.when("u", WL, NOW + 1) == NOW + 1
    assert made.next() is None


def test_who_waited_longest_is_told_first() -> None:
    made = Holds(QUIET)
    made.put("late", WAITS, NOW - 2)
    made.put("early", WAITS, NOW - 3)
    assert turns(made, NOW) == ["early", "late"]


def test_what_the_workload_says_already_is_not_written() -> None:
    told = decisions.hold(WL, WAITS, NOW)
    assert waiting("u").when("u", told, NOW) is None


def test_who_is_not_known_to_wait_is_not_written_to() -> None:
    assert waiting("u").when("other", WL, NOW) is None


def test_who_waits_no_longer_has_no_turn() -> None:
    made = waiting("u", "other")
    made.forget("u")
    assert turns(made, NOW) == ["other"]


def test_new_words_for_the_same_reason_wait() -> None:
    told = decisions.hold(WL, WAITS, NOW)
    made = waiting("u")
    made.written("u", NOW)
    made.put("u", LESS, NOW)
    assert made.when("u", told, NOW + 1) == NOW + 30
    assert made.when("u", told, NOW + 30) == NOW + 30


def test_another_reason_does_not_wait() -> None:
    told = decisions.hold(WL, WAITS, NOW)
    made = waiting("u")
    made.written("u", NOW)
    made.put("u", NEVER, NOW)
    assert made.when("u", told, NOW + 1) == NOW + 1


def test_in_a_crowd_everybody_waits() -> None:
    made = waiting("u")
    assert turns(made, NOW, crowded=True) == []
    assert made.next() == NOW + 1
    assert turns(made, NOW + 1) == ["u"]


def test_a_burst_of_reasons_is_spread() -> None:
    made = waiting("a", "b", "c", pace=Pace(rate=2, burst=2))
    told = []
    for uid in made.turns(NOW, crowded=False):
        made.written(uid, NOW)
        told.append(uid)
    assert told == ["a", "b"]
    assert made.next() == NOW + 0.5
    assert turns(made, NOW + 0.5) == ["c"]


def test_while_many_begin_to_wait_nobody_is_told_why() -> None:
    made = waiting("u")
    for index in range(20):
        made.put(f"other-{index}", WAITS, NOW)
    assert turns(made, NOW) == []


def test_while_decisions_are_written_reasons_are_not() -> None:
    made = waiting("u")
    for _ in range(1000):
        made.stirred(NOW)
    assert made.is_busy(NOW + 2)
    assert turns(made, NOW + 2) == []
    assert not made.is_busy(NOW + 4)
    assert turns(made, NOW + 4) == ["u"]


def test_a_few_decisions_keep_nobody_waiting() -> None:
    made = waiting("u")
    for _ in range(5):
        made.stirred(NOW)
    assert turns(made, NOW) == ["u"]


def test_in_a_burst_without_end_everybody_is_told_at_last() -> None:
    made = waiting("u")
    for second in range(301):
        for _ in range(20):
            made.stirred(NOW + second)
        told = turns(made, NOW + second)
        assert told == (["u"] if second == 299 else [])


def test_in_a_burst_those_who_start_do_not_stand_in_the_line_until_it_is_over() -> None:
    made = waiting("first")
    for number in range(10_000):
        made.put(f"u{number}", WAITS, NOW)
        made.forget(f"u{number}")
    assert turns(made, NOW) == [], "it is a burst"
    assert len(made._line) < 3_000
    assert turns(made, NOW + QUIET.busy_patience) == ["first"]
