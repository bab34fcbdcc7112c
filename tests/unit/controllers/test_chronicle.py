"""What the journal is told about a Workload, from its arrival to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from admission.api import kueue, names
from admission.api.meta import ObjectMeta
from admission.controllers import chronicle
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Observed
from admission.controllers.metrics import Metrics
from admission.controllers.reporting import Reporting
from admission.controllers.store import Key
from admission.jobs.registry import adapters
from admission.kube.informers import Upserted
from queues.core.cycle import decide
from queues.core.policy import Policy
from queues.core.reasons import Code, Reason, Shortage
from queues.journal import entries
from queues.journal.entries import Kind, WorkloadState
from queues.journal.writer import Health
from tests.unit.controllers.builders import (
    NAMESPACE,
    NOW,
    WorkloadBuilder,
    cluster_queue,
    local_queue,
    settings,
    workload,
)

W = Key(NAMESPACE, "w")
WAITS = Reason(Code.WAITING_FOR_QUOTA, "1 cpu is missing", (Shortage("default", "cpu", 2000, 1000, 4000),), "less")


class Listing:
    """A journal that keeps everything in a list."""

    def __init__(self, *, reset_wanted: bool = False) -> None:
        self.entries: list[entries.Entry] = []
        self.reset_wanted = reset_wanted

    def put(self, *told: entries.Entry) -> None:
        self.entries.extend(told)

    def health(self) -> Health:
        return Health(0, 3, 1.5, 0, 0, "", 0.0, self.reset_wanted)

    def take(self) -> list[entries.Entry]:
        taken, self.entries = self.entries, []
        return taken


class World:
    """A cluster whose changes are reported to a list."""

    def __init__(self, journal: Listing) -> None:
        self.journal = journal
        self.cluster = Cluster(settings(), adapters(settings()), lambda: NOW)
        self.metrics = Metrics(settings())
        self.reporting = Reporting(self.cluster, self.metrics, journal)
        flavor = kueue.ResourceFlavor(metadata=ObjectMeta(name="default", uid="f", resource_version="1"))
        for obj in (flavor, cluster_queue(), local_queue()):
            self.cluster.take(Observed(obj.kind, Upserted(obj)))
        self.version = 10

    def start(self) -> None:
        self.reporting.reset(NOW)
        self.journal.take()

    def see(self, builder: WorkloadBuilder | None, reason: Reason | None = None) -> list[entries.Entry]:
        """What is told when the Workload is observed like this."""
        if builder is None:
            self.reporting.workload(W, None, NOW)
            return self.journal.take()
        self.version += 1
        metadata = msgspec.structs.replace(builder.obj.metadata, resource_version=str(self.version))
        obj = msgspec.structs.replace(builder.obj, metadata=metadata)
        self.cluster.take(Observed("Workload", Upserted(obj)))
        self.cluster.tell(obj)
        self.reporting.workload(W, obj, NOW, reason)
        return self.journal.take()

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {**labels, "replica_role": "leader"})


@pytest.fixture
def world() -> World:
    made = World(Listing())
    made.start()
    return made


def kinds(told: list[entries.Entry]) -> list[Any]:
    return [each.kind if isinstance(each, entries.Decision) else type(each).__name__ for each in told]


def test_a_life(world: World) -> None:
    assert kinds(world.see(workload())) == [Kind.CREATED, "WorkloadRow"]
    assert kinds(world.see(workload().admitted())) == [Kind.RESERVED, Kind.ADMITTED, "WorkloadRow", "UsageStarted"]
    assert kinds(world.see(workload().admitted().evicted("Preempted"))) == [Kind.PREEMPTED, "WorkloadRow"]
    released = workload().evicted("Preempted").cond(names.REQUEUED, reason="Preempted", at=-20)
    assert kinds(world.see(released)) == [Kind.REQUEUED, Kind.RELEASED, "WorkloadRow", "UsageEnded"]
    again = workload().admitted(at=-5)
    assert kinds(world.see(again)) == [Kind.RESERVED, Kind.ADMITTED, "WorkloadRow", "UsageStarted"]
    done = again.cond(names.FINISHED, reason="Succeeded", at=-1)
    assert kinds(world.see(done)) == [Kind.FINISHED, "UsageEnded", "WorkloadRemoved"]
    assert world.see(None) == [], "its end was told already"


def test_the_same_object_again_is_no_news(world: World) -> None:
    world.see(workload())
    obj = world.cluster.tables.workloads.get(*W)
    world.reporting.workload(W, obj, NOW)
    assert world.journal.take() == []


def test_a_deleted_workload_is_removed_and_gives_back(world: World) -> None:
    world.see(workload().admitted())
    assert kinds(world.see(None)) == [Kind.REMOVED, "UsageEnded", "WorkloadRemoved"]


def test_what_began_and_ended_between_two_looks_is_told_whole(world: World) -> None:
    world.see(workload())
    told = world.see(workload().admitted(at=-2).cond(names.FINISHED, reason="Succeeded", at=-1))
    assert kinds(told) == [Kind.RESERVED, Kind.ADMITTED, Kind.FINISHED, "WorkloadRemoved"]
    assert {each.cluster_queue for each in told if isinstance(each, entries.Decision)} == {"cq"}
    counted = {"cluster_queue": "cq", "priority_class": ""}
    for name in ("quota_reserved", "admitted", "finished"):
        assert world.value(f"kueue_{name}_workloads_total", **counted) == 1.0


def test_what_ended_before_the_start_is_not_told(world: World) -> None:
    assert world.see(workload().cond(names.FINISHED)) == []


def test_the_row_of_one_that_waits(world: World) -> None:
    (row,) = [each for each in world.see(workload(), WAITS) if isinstance(each, entries.WorkloadRow)]
    assert row == entries.WorkloadRow(
        uid="uid-w",
        namespace=NAMESPACE,
        name="w",
        local_queue="lq",
        cluster_queue="cq",
        state=WorkloadState.PENDING,
        created_at=NOW - 100,
        queued_at=NOW - 100,
        state_since=NOW - 100,
        pods=2,
        requests={"cpu": 2000},
        code="WaitingForQuota",
        message="1 cpu is missing",
        remedy="less",
        shortages=tuple(entries.shortages(WAITS)),
        pod_sets=(entries.PodSetRow("main", 2, {"cpu": 1000}),),
    )


@pytest.mark.parametrize(
    ("message", "want"),
    [
        (
            "Preempted to accommodate a workload (UID: u-9, JobUID: j-1) due to prioritization in the ClusterQueue",
            "u-9",
        ),
        ("Preempted to accommodate a workload (UID: UNKNOWN, JobUID: UNKNOWN) due to reclamation", ""),
        ("somebody else's words", ""),
    ],
)
def test_a_preemption_names_who_it_was_for(world: World, message: str, want: str) -> None:
    world.see(workload().admitted())
    gone = workload().admitted().cond(names.EVICTED, reason=names.EVICTED_BY_PREEMPTION, message=message)
    (told,) = [each for each in world.see(gone) if isinstance(each, entries.Decision)]
    assert (told.kind, told.cause) == (Kind.PREEMPTED, want)


def test_the_use_of_quota_begins_with_the_reservation(world: World) -> None:
    told = world.see(workload().reserved(at=-60))
    (started,) = [each for each in told if isinstance(each, entries.UsageStarted)]
    assert (started.at, started.amounts) == (NOW - 60, (entries.Amount("default", "cpu", 2000),))


def test_a_hold_carries_its_numbers(world: World) -> None:
    world.see(workload())
    obj = world.cluster.tables.workloads.get(*W)
    assert obj is not None
    world.reporting.held(obj, WAITS, NOW)
    decision, row = world.journal.take()
    assert isinstance(decision, entries.Decision)
    assert (decision.kind, decision.code, decision.remedy) == (Kind.HELD, "WaitingForQuota", "less")
    assert decision.facts == {"shortages": entries.shortages(WAITS)}
    assert isinstance(row, entries.WorkloadRow)


def test_the_start_tells_the_whole_truth() -> None:
    world = World(Listing())
    world.see(workload().admitted())
    assert world.journal.take() == [], "nothing before that"
    world.reporting.reset(NOW)
    (reset,) = world.journal.take()
    assert isinstance(reset, entries.Reset)
    assert [row.state for row in reset.workloads] == [WorkloadState.ADMITTED]
    assert [row.name for row in reset.queues] == ["cq"]
    assert [row.name for row in reset.local_queues] == ["lq"]
    assert [use.at for use in reset.usage] == [NOW - 60]


def test_a_journal_that_lost_something_is_told_everything_again() -> None:
    world = World(Listing(reset_wanted=True))
    world.reporting.health(NOW)
    assert kinds(world.journal.take()) == ["Reset"]
    assert world.reporting.journal_health() == (3, 1.5)


@dataclass(frozen=True)
class KeptOut:
    id: str
    workload: WorkloadBuilder
    want: str


KEPT_OUT = [
    KeptOut("a deactivated one", workload().spec(active=False), "Deactivated"),
    KeptOut("one that is about to be", workload().cond(names.DEACTIVATION_TARGET), "Deactivated"),
    KeptOut("one on hold", workload().cond(names.QUOTA_RESERVED, "False", "OnHold"), "OnHold"),
    KeptOut("a gated one", workload().annotated(names.ADMISSION_GATED_BY, "example.com/x"), "AdmissionGated"),
    KeptOut("one that misses pods", workload().cond(names.WAITING_FOR_REPLACEMENT_PODS), "WaitingForReplacementPods"),
    KeptOut("one whose check failed", workload().check("c", "Retry"), "PendingEvaluation"),
]


@pytest.mark.parametrize("case", KEPT_OUT, ids=lambda case: case.id)
def test_the_row_says_in_one_word_what_keeps_it_out(world: World, case: KeptOut) -> None:
    (row,) = [each for each in world.see(case.workload) if isinstance(each, entries.WorkloadRow)]
    assert (row.state, row.code) == (WorkloadState.HELD, case.want)
    assert row.message


def test_who_waits_for_victims_stands_first(world: World) -> None:
    queue = cluster_queue(
        "p", nominal="2", preemption=kueue.ClusterQueuePreemption(within_cluster_queue="LowerPriority")
    )
    for obj in (queue, local_queue("lq-p", "p")):
        world.cluster.take(Observed(obj.kind, Upserted(obj)))
    low = workload("low", queue="lq-p").admitted(queue="p")
    high = workload("high", queue="lq-p").spec(priority=9)
    for builder in (low, high):
        world.cluster.take(Observed("Workload", Upserted(builder.obj)))
        world.cluster.tell(builder.obj)
    decide(world.cluster.state, NOW, Policy())
    present = world.reporting.present(high.obj, None)
    assert present is not None
    assert chronicle.row(present).sticky
