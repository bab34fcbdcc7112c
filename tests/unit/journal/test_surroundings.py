"""Cohorts, flavors and nodes in the read model: as told last, and gone when told so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, insert, select

from queues.journal import migrate, read, surroundings
from queues.journal.database import open_database
from queues.journal.entries import (
    CohortRemoved,
    CohortRow,
    Entry,
    FlavorRemoved,
    FlavorRow,
    Kind,
    NodeRemoved,
    NodeRow,
    NodeState,
    PodSetRow,
    QuotaRow,
    Reset,
    WorkloadState,
)
from queues.journal.models import DecisionRecord, NodeRecord, QueueRecord
from tests.unit.journal.rows import GPU, decision, workload
from tests.unit.journal.test_read import remember

RESEARCH = CohortRow("research", "all", (QuotaRow("h100", GPU, 32, None, 16),))
H100 = FlavorRow("h100", {"pool": "h100"}, "racks", ("cloud/rack", "kubernetes.io/hostname"))
N1 = NodeRow("n1", NodeState.READY, {"cloud/rack": "r1"}, {GPU: 8, "cpu": 64_000}, {GPU: -1, "cpu": 4_000})
N2 = NodeRow("n2", NodeState.CORDONED, {}, {GPU: 8}, {GPU: 8})
PLACES = PodSetRow(
    "main", 2, {GPU: 8}, "required", "cloud/rack", {GPU: "h100"}, ("kubernetes.io/hostname",), ((("n1",), 2),)
)


@pytest.fixture
def tell(migrated: str) -> Callable[..., None]:
    return lambda *entries: remember(migrated, *entries)


@contextmanager
def reading(url: str) -> Iterator[Connection]:
    engine = open_database(url)
    with engine.connect() as connection:
        yield connection
    engine.dispose()


def test_what_is_told_is_read(migrated: str, tell: Callable[..., None]) -> None:
    tell(RESEARCH, H100, N1, N2)
    with reading(migrated) as connection:
        assert surroundings.cohorts(connection) == [RESEARCH]
        assert surroundings.flavors(connection) == [H100]
        assert list(surroundings.nodes(connection)) == [N1, N2]


@pytest.mark.parametrize(
    "end",
    [(CohortRemoved("research"), FlavorRemoved("h100"), NodeRemoved("n1")), (Reset(at=1.0, surroundings=(N2,)),)],
    ids=["removed one by one", "not part of the whole truth"],
)
def test_what_is_gone_is_gone(migrated: str, tell: Callable[..., None], end: tuple[Entry, ...]) -> None:
    tell(RESEARCH, H100, N1, N2)
    tell(*end)
    with reading(migrated) as connection:
        assert (surroundings.cohorts(connection), surroundings.flavors(connection)) == ([], [])
        assert list(surroundings.nodes(connection)) == [N2]


def test_pod_sets_and_their_places(migrated: str, tell: Callable[..., None]) -> None:
    holds = workload("w1", state=WorkloadState.ADMITTED, effective_priority=0, pod_sets=(PLACES, PodSetRow("rest", 1)))
    tell(holds, workload("w2", pod_sets=(PodSetRow("main", 4, {GPU: 1}),)))
    with reading(migrated) as connection:
        assert read.workload(connection, "ns", "w1") == holds
        assert list(surroundings.placed(connection)) == [("ns", "w1", PLACES)]
        assert list(surroundings.placed(connection, ["elsewhere"])) == []


def test_decisions_by_their_cause(migrated: str, tell: Callable[..., None]) -> None:
    tell(decision("victim", kind=Kind.PREEMPTED, cause="w1"), decision("other", kind=Kind.PREEMPTED, cause="w2"))
    with reading(migrated) as connection:
        found = read.decisions(connection, read.DecisionFilter(cause="w1"), limit=10)
    assert [each.decision.workload for each in found] == ["victim"]


def test_workloads_are_found_by_the_beginning_of_a_name(migrated: str, tell: Callable[..., None]) -> None:
    tell(*(workload(f"w{n}", name=f"train-{n}", queued_at=100.0 + n) for n in range(3)), workload("x", name="100%"))
    with reading(migrated) as connection:
        found, total = read.workloads(connection, namespace="ns", beginning="train", limit=2)
        assert ([row.name for row in found], total) == (["train-2", "train-1"], 3)
        assert read.workloads(connection, beginning="%", limit=9) == ([], 0)
        assert read.workloads(connection, beginning="100%", limit=9)[1] == 1
        assert read.workloads(connection, state=WorkloadState.ADMITTED, limit=9)[1] == 0


def test_a_revision_back_and_forth_keeps_the_rest(url: str) -> None:
    migrate.upgrade(url, "0002")
    engine = open_database(url, write=True)
    queue = {"name": "q", "cohort": "", "strategy": "", "stop_policy": "", "active": True, "reason": "", "message": ""}
    with engine.begin() as connection:
        connection.execute(insert(QueueRecord).values(quotas=[], **queue))
    migrate.upgrade(url)
    remember(url, workload("w", pod_sets=(PLACES,)), N1, decision("w", cause="x"))
    migrate.downgrade(url, "0002")
    with engine.connect() as connection:
        assert connection.scalars(select(QueueRecord.name)).all() == ["q"]
        assert connection.scalars(select(DecisionRecord.cause)).all() == ["x"]
    migrate.upgrade(url)
    with engine.connect() as connection:
        found = read.workload(connection, "ns", "w")
        assert found is not None
        assert found.pod_sets == (), "the pod sets are told again at the next start"
        assert connection.scalars(select(NodeRecord.name)).all() == []
    engine.dispose()
