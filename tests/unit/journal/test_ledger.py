"""Uses of quota become intervals: nothing twice, nothing overlapping, no invented ends."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from queues.journal.entries import Amount, UsageEnded, UsageEntry, UsageStarted
from queues.journal.ledger import LARGEST, Interval, Snapshot, settle
from tests.unit.journal.rows import GPU, started


def interval(uid: str, start: float, end: float | None = None, amount: int = 8, row: int | None = None) -> Interval:
    return Interval(uid, "ns", uid, "cq", "lq", "h100", GPU, amount, start, end, row)


@dataclass(frozen=True)
class Case:
    id: str
    told: tuple[UsageEntry | Snapshot, ...]
    want_inserts: tuple[Interval, ...] = ()
    want_ends: tuple[tuple[int, float], ...] = ()
    open: tuple[Interval, ...] = ()
    last_end: float | None = None


CASES = [
    Case("a use begins", (started("a", 10),), want_inserts=(interval("a", 10),)),
    Case("a use begins and ends", (started("a", 10), UsageEnded(30, "a")), want_inserts=(interval("a", 10, 30),)),
    Case("what is open ends", (UsageEnded(30, "a"),), open=(interval("a", 10, row=1),), want_ends=((1, 30),)),
    Case("telling the same again changes nothing", (started("a", 10),), open=(interval("a", 10, row=1),)),
    Case("an end that is told again changes nothing", (UsageEnded(30, "a"), UsageEnded(31, "a"))),
    Case(
        "a smaller gang goes on with less",
        (started("a", 20, 6),),
        open=(interval("a", 10, row=1),),
        want_ends=((1, 20),),
        want_inserts=(interval("a", 20, amount=6),),
    ),
    Case("a use without length leaves no row", (started("a", 10), UsageEnded(10, "a"))),
    Case(
        "an end before the beginning counts as the beginning",
        (UsageEnded(5, "a"),),
        open=(interval("a", 10, row=1),),
        want_ends=((1, 10),),
    ),
    Case(
        "a late beginning does not overlap what ended",
        (started("a", 10),),
        last_end=20.0,
        want_inserts=(interval("a", 20),),
    ),
    Case(
        "evicted and admitted again",
        (started("a", 10), UsageEnded(20, "a"), started("a", 50)),
        want_inserts=(interval("a", 10, 20), interval("a", 50)),
    ),
    Case(
        "after a restart, what vanished ends and what is still there stays",
        (Snapshot(90, (started("b", 10),)),),
        open=(interval("a", 10, row=1), interval("b", 10, row=2)),
        want_ends=((1, 90),),
    ),
    Case(
        "after a restart, amounts that changed unseen change then",
        (Snapshot(90, (started("b", 10, 4),)),),
        open=(interval("b", 10, row=2),),
        want_ends=((2, 90),),
        want_inserts=(interval("b", 90, amount=4),),
    ),
    Case(
        "after a restart, an unseen beginning counts from when it was",
        (Snapshot(90, (started("b", 40),)),),
        want_inserts=(interval("b", 40),),
    ),
    Case(
        "an end known from the cluster comes before the restart's closing",
        (UsageEnded(60, "a"), Snapshot(90, ())),
        open=(interval("a", 10, row=1),),
        want_ends=((1, 60),),
    ),
    Case(
        "an unlimited amount fits the column",
        (started("a", 10, 2**70),),
        want_inserts=(interval("a", 10, amount=LARGEST),),
    ),
    Case("nothing is held of nothing", (started("a", 10, 0),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.id)
def test_uses_become_intervals(case: Case) -> None:
    last = {} if case.last_end is None else {"a": case.last_end}
    got = settle(case.told, case.open, last)
    assert tuple(got.inserts) == case.want_inserts
    assert tuple(got.ends.items()) == case.want_ends


def test_another_queue_is_another_interval() -> None:
    moved = started("a", 20, cluster_queue="other")
    got = settle([moved], [interval("a", 10, row=1)], {})
    assert got.ends == {1: 20}
    assert list(got.inserts) == [replace(interval("a", 20), cluster_queue="other")]


def test_each_resource_goes_its_own_way() -> None:
    def both(at: float, cpu: int) -> UsageStarted:
        return structs.replace(started("a", at), amounts=(Amount("h100", GPU, 8), Amount("h100", "cpu", cpu)))

    got = settle([both(10, 4000), both(20, 2000), UsageEnded(30, "a")], [], {})
    assert sorted((i.resource, i.amount, i.started_at, i.ended_at) for i in got.inserts) == [
        ("cpu", 2000, 20, 30),
        ("cpu", 4000, 10, 20),
        (GPU, 8, 10, 30),
    ]
