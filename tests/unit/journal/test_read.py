"""What the read model answers: order and positions, counts, one workload, history, use of quota over time."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection

from queues.journal import read
from queues.journal.database import open_database
from queues.journal.entries import (
    Amount,
    Decision,
    Entry,
    Kind,
    LocalQueueRow,
    Owner,
    UsageEnded,
    UsageStarted,
    WorkloadRow,
    WorkloadState,
)
from queues.journal.usage import By, usage
from queues.journal.writer import Journal, Timing
from tests.unit.journal.rows import GPU, decision, local_queue, queue, started, workload


def remember(url: str, *entries: Entry) -> None:
    journal = Journal(url, timing=Timing(gather=0), clock=lambda: 1000.0, batch_size=5000)
    journal.put(*entries)
    journal.start()
    assert journal.close(20)


@pytest.fixture
def connection(migrated: str, entries: tuple[Entry, ...]) -> Iterator[Connection]:
    remember(migrated, *entries)
    engine = open_database(migrated)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def told(*entries: Entry) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entries", [entries], ids=["told"])


@told(
    workload("d-late", queued_at=300.0),
    workload("c-early", queued_at=100.0),
    workload("b-boosted", priority=1, effective_priority=9, queued_at=400.0),
    workload("a-high", priority=5, queued_at=500.0),
    workload("e-sticky", priority=-1, sticky=True, queued_at=900.0),
    workload("f-same-time", queued_at=300.0, local_queue="other"),
    workload("g-other-queue", cluster_queue="elsewhere"),
    workload("h-admitted", state=WorkloadState.ADMITTED, priority=99),
    workload("i-held", state=WorkloadState.HELD, priority=99),
)
def test_order_is_sticky_then_priority_then_time_then_uid(connection: Connection) -> None:
    got = read.pending(connection, "cq", limit=100)
    assert [(p.workload.uid, p.in_cluster_queue, p.in_local_queue) for p in got] == [
        ("e-sticky", 0, 0),
        ("b-boosted", 1, 1),
        ("a-high", 2, 2),
        ("c-early", 3, 3),
        ("d-late", 4, 4),
        ("f-same-time", 5, 0),
    ]
    page = read.pending(connection, "cq", limit=2, offset=3)
    assert [(p.workload.uid, p.in_cluster_queue) for p in page] == [("c-early", 3), ("d-late", 4)]
    other = read.pending(connection, "cq", namespace="ns", local_queue="other", limit=5)
    assert [(p.workload.uid, p.in_cluster_queue, p.in_local_queue) for p in other] == [("f-same-time", 5, 0)]
    assert read.pending(connection, "cq", namespace="ns", local_queue="other", limit=5, offset=1) == []
    assert read.pending(connection, "nothing", limit=5) == []
    assert read.count_pending(connection, "cq") == 6
    assert read.count_pending(connection, "cq", namespace="else") == 0


def past(name: str, use: float | None, cluster_queue: str = "cq") -> LocalQueueRow:
    return replace(local_queue(name, cluster_queue=cluster_queue), past_use=use)


@told(
    past("much", 8.5),
    past("little", 0.25),
    past("last", 1e300),
    past("elsewhere", None, "other"),
    workload("a-much", priority=9, sticky=True, local_queue="much"),
    workload("b-last", priority=9, local_queue="last"),
    workload("c-little", queued_at=300.0, local_queue="little"),
    workload("d-little", queued_at=200.0, local_queue="little"),
    workload("e-unknown", queued_at=900.0, local_queue="unknown"),
    workload("f-other", cluster_queue="other", local_queue="elsewhere"),
    workload("g-other", cluster_queue="other", local_queue="much", priority=1),
)
def test_past_use_comes_before_everything_where_it_counts(connection: Connection) -> None:
    found = read.pending(connection, "cq", limit=10)
    assert [(each.workload.uid, each.in_local_queue) for each in found] == [
        ("e-unknown", 0),
        ("d-little", 0),
        ("c-little", 1),
        ("a-much", 0),
        ("b-last", 0),
    ]
    assert [each.workload.uid for each in read.pending(connection, "other", limit=10)] == ["g-other", "f-other"]


UIDS = ("0a", "0-b", "0B", "0b", "A0", "a-0", "a0", "_x", "é")


@told(*(workload(uid) for uid in UIDS))
def test_ties_are_in_byte_order_on_every_database(connection: Connection) -> None:
    assert [p.workload.uid for p in read.pending(connection, "cq", limit=99)] == sorted(UIDS)


def reservation(uid: str, at: float, **facts: int) -> Decision:
    return decision(uid, at=at, kind=Kind.RESERVED, facts=facts)


@told(
    reservation("first", 10.0, size=1),
    decision("not-a-start", at=20.0, facts={"size": 2}),
    reservation("without", 30.0),
    reservation("second", 40.0, size=3),
    reservation("first", 50.0, size=4),
    reservation("too-late", 60.0, size=5),
)
def test_starts_are_the_reservations_with_facts_before_a_time(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = read.starts(connection, until=60.0)
    assert [(each.workload, each.facts) for each in found] == [
        ("first", {"size": 1}),
        ("second", {"size": 3}),
        ("first", {"size": 4}),
    ]
    monkeypatch.setattr(read, "REMEMBERED", 2)
    assert [each.at for each in read.starts(connection, until=60.0)] == [40.0, 50.0]
    monkeypatch.setattr(read, "LOOKED_AT", 2)
    assert [each.at for each in read.starts(connection, until=60.0)] == [50.0]


def test_positions_agree_with_a_plain_sort(migrated: str) -> None:
    dice = random.Random(7)
    waiting = [
        workload(
            f"u{n}",
            priority=dice.randrange(3),
            sticky=n == 17,
            queued_at=float(dice.randrange(5)),
            local_queue=dice.choice(["a", "b"]),
            namespace=dice.choice(["x", "y"]),
        )
        for n in range(300)
    ]
    remember(migrated, *waiting)
    ordered = sorted(waiting, key=lambda w: (not w.sticky, -w.priority, w.queued_at, w.uid))
    seen: dict[tuple[str, str], int] = {}
    want = []
    for position, w in enumerate(ordered):
        local = seen[w.namespace, w.local_queue] = seen.get((w.namespace, w.local_queue), -1) + 1
        want.append((w.uid, position, local))
    engine = open_database(migrated)
    with engine.connect() as connection:
        got = read.pending(connection, "cq", limit=1000)
        assert [(p.workload.uid, p.in_cluster_queue, p.in_local_queue) for p in got] == want
        place = read.place(connection, ordered[123])
        assert place is not None
        assert (place.in_cluster_queue, place.in_local_queue) == want[123][1:]
    engine.dispose()


@told(
    queue("cq"),
    queue("empty", quotas=(), active=False, reason="FlavorNotFound"),
    workload("a", code="WaitingForQuota", state_since=50.0),
    workload("b", code="WaitingForQuota", state_since=40.0),
    workload("c", code="ExceedsMaxQuota", namespace="other"),
    workload("d", code="Deactivated", state=WorkloadState.HELD, state_since=1.0),
    workload("e", state=WorkloadState.ADMITTED),
    workload("f", state=WorkloadState.RESERVING),
)
def test_queues_with_their_counts(connection: Connection) -> None:
    full, empty = read.queues(connection)
    assert full.queue == queue("cq")
    assert list(full.pending_by_reason.items()) == [("WaitingForQuota", 2), ("ExceedsMaxQuota", 1)]
    assert {state.value: n for state, n in full.counts.items()} == {
        "pending": 3,
        "held": 1,
        "reserving": 1,
        "admitted": 1,
    }
    assert full.oldest_pending == 40.0
    assert (empty.queue.active, empty.oldest_pending, sum(empty.counts.values())) == (False, None, 0)
    assert [q.queue.name for q in read.queues(connection, ["empty", "none"])] == ["empty"]
    (only,) = read.queues(connection, ["cq"], namespace="other")
    assert only.pending_by_reason == {"ExceedsMaxQuota": 1}
    assert read.has_queue(connection, "cq")
    assert not read.has_queue(connection, "none")


@told(local_queue("b"), local_queue("a"), local_queue("a", namespace="other", cluster_queue="x"))
def test_local_queues(connection: Connection) -> None:
    assert read.local_queues(connection, namespace="ns") == [local_queue("a"), local_queue("b")]
    assert read.local_queues(connection, namespace="other", name="a") == [
        local_queue("a", namespace="other", cluster_queue="x")
    ]
    assert len(read.local_queues(connection)) == 3


JOB = Owner("batch/v1", "Job", "train", "j1")
WHOLE: WorkloadRow = workload(
    "u1",
    name="job-train-1",
    owners=(JOB, Owner("v1", "Pod", "x", "p1")),
    flavors={GPU: "h100"},
    code="WaitingForQuota",
    message="needs 8",
    remedy="free 3",
    shortages=({"flavor": "h100", "resource": GPU, "needed": 8, "free": 5},),
    facts={"big": 2**70},
    effective_priority=0,
)


@told(WHOLE, replace(WHOLE, uid="u0", created_at=1.0))
def test_a_workload_comes_back_as_it_was_told(connection: Connection) -> None:
    assert read.workload(connection, "ns", "job-train-1") == WHOLE
    assert read.workload(connection, "ns", "train") == WHOLE, "by the name of the Job"
    assert read.workload(connection, "ns", "x") is None
    assert read.workload(connection, "other", "train") is None


@told(
    decision("a", 10, Kind.CREATED),
    decision("a", 20, Kind.HELD, facts={"n": 1}),
    decision("b", 30, Kind.EVICTED, cause="a", cluster_queue="x"),
    decision("a", 40, Kind.ADMITTED),
)
def test_history_is_newest_first_and_can_be_paged(connection: Connection) -> None:
    def kinds(**wanted: object) -> list[str]:
        found = read.decisions(connection, read.DecisionFilter(**wanted), limit=10)  # type: ignore[arg-type]
        return [r.decision.kind.value for r in found]

    assert kinds(workload="a") == ["admitted", "held", "created"]
    assert kinds(namespace="ns", name="b") == kinds(cluster_queue="x") == kinds(kind=Kind.EVICTED) == ["evicted"]
    assert kinds(since=20, until=40) == ["evicted", "held"]
    assert kinds(namespace="none") == []
    first, second = read.decisions(connection, read.DecisionFilter(), limit=2)
    assert first.decision == decision("a", 40, Kind.ADMITTED)
    assert [r.decision.at for r in read.decisions(connection, read.DecisionFilter(before=second.id), limit=9)] == [
        20,
        10,
    ]
    assert read.names(connection, ["a", "none"]) == {"a": ("ns", "a")}


@told(
    started("a", 0),
    UsageEnded(100, "a"),
    started("b", 50, 4, namespace="other"),
    started("c", 10, 1, cluster_queue="x"),
    UsageEnded(20, "c"),
    UsageStarted(0, "d", "ns", "d", "cq", "lq", (Amount("h100", "cpu", 1500),)),
    UsageEnded(60, "d"),
)
def test_use_is_clipped_to_the_asked_time(connection: Connection) -> None:
    def totals(since: float, until: float, now: float = 1000, **more: object) -> list[tuple[str, str, float, int]]:
        found = usage(connection, since, until, now=now, **more)  # type: ignore[arg-type]
        return [(u.key, u.resource, u.amount_seconds, u.workloads) for u in found]

    assert totals(0, 200) == [("cq", "cpu", 90_000, 1), ("cq", GPU, 800 + 4 * 150, 2), ("x", GPU, 10, 1)]
    assert totals(90, 110) == [("cq", GPU, 8 * 10 + 4 * 20, 2)]
    assert totals(0, 200, by=By.NAMESPACE) == [("ns", "cpu", 90_000, 1), ("ns", GPU, 810, 2), ("other", GPU, 600, 1)]
    assert totals(100, 200, now=150) == [("cq", GPU, 4 * 50, 1)], "what is still held counts up to now"
    assert totals(0, 200, namespace="other") == [("cq", GPU, 600, 1)]
    assert totals(0, 200, cluster_queues=["x"]) == [("x", GPU, 10, 1)]
    assert totals(2000, 3000) == [], "nothing is used in the future"
    assert totals(0, 0) == []


@pytest.mark.parametrize("entries", [()], ids=["nothing told"])
def test_freshness(connection: Connection) -> None:
    assert read.freshness(connection) == read.Freshness(written_at=1000.0, dropped=0)
