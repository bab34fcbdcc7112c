"""What is counted of Workloads and read of queues: names, labels, values, and series that go."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from prometheus_client.exposition import generate_latest

from admission.api import core, kueue, names
from admission.api.meta import ObjectMeta
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Observed
from admission.controllers.metrics import Health, Metrics
from admission.controllers.reporting import Reporting
from admission.controllers.store import Key
from admission.jobs.registry import adapters
from admission.kube.informers import Deleted, Upserted
from admission.settings import LabelSelector, Settings
from admission.settings.configuration import CustomLabel, FairSharing, LocalQueueMetrics, PreemptionStrategy
from admission.settings.configuration import Metrics as MetricsOptions
from queues.core.reasons import Reason
from tests.unit.controllers.builders import (
    NAMESPACE,
    NOW,
    WorkloadBuilder,
    cluster_queue,
    local_queue,
    settings,
    stamp,
    workload,
)

EVERYTHING = MetricsOptions(enable_cluster_queue_resources=True, local_queue_metrics=LocalQueueMetrics(enable=True))
FAIR = FairSharing(preemption_strategies=(PreemptionStrategy.LESS_THAN_INITIAL_SHARE,))
CLASSED = {"cluster_queue": "cq", "priority_class": ""}
LOCAL = {"name": "lq", "namespace": NAMESPACE}
UNIT = {"flavor": "default", "resource": "cpu"}
QUOTA = {"cohort": "", "cluster_queue": "cq", **UNIT}


class World:
    """A cluster of one ClusterQueue with its LocalQueue, whose Workloads are reported and counted."""

    def __init__(self, given: Settings | None = None) -> None:
        chosen = given if given is not None else settings(metrics=EVERYTHING)
        self.cluster = Cluster(chosen, adapters(chosen), lambda: NOW)
        self.metrics = Metrics(chosen)
        self.reporting = Reporting(self.cluster, self.metrics, None)
        self.version = 10
        self.put(kueue.ResourceFlavor(metadata=ObjectMeta(name="default", uid="f", resource_version="1")))
        self.put(cluster_queue())
        self.put(local_queue())
        self.reporting.reset(NOW)

    def put(self, obj: Any) -> Any:
        self.version += 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        obj = msgspec.structs.replace(obj, metadata=metadata)
        self.cluster.take(Observed(obj.kind, Upserted(obj)))
        return obj

    def drop(self, obj: Any) -> None:
        self.cluster.take(Observed(obj.kind, Deleted(obj)))

    def see(self, *builders: WorkloadBuilder, reason: Reason | None = None) -> None:
        """Each Workload is observed like this, one after the other."""
        for builder in builders:
            obj = self.put(builder.obj)
            self.cluster.tell(obj)
            self.reporting.workload(Key(NAMESPACE, obj.metadata.name), obj, NOW, reason)

    def lose(self, name: str = "w") -> None:
        obj = self.cluster.tables.workloads.get(NAMESPACE, name)
        assert obj is not None
        self.drop(obj)
        self.reporting.workload(Key(NAMESPACE, name), None, NOW)

    def value(self, name: str, /, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {**labels, "replica_role": "leader"})

    def names(self) -> set[str]:
        return {sample.name for family in self.metrics.registry.collect() for sample in family.samples}


@pytest.fixture
def world() -> World:
    return World()


RESERVED = workload().reserved(at=-60)
ADMITTED = workload().admitted(at=-60)
READY = ADMITTED.cond(names.PODS_READY, at=-40)
CHECKED = workload().check("c", "Ready").reserved(at=-70).cond(names.ADMITTED, at=-60)


def stats(reason: str, cause: str = "", count: int = 1) -> kueue.SchedulingStats:
    return kueue.SchedulingStats(evictions=(kueue.SchedulingStatsEviction(reason, cause, count),))


@dataclass(frozen=True)
class Case:
    id: str
    life: tuple[WorkloadBuilder, ...]
    want: dict[str, float]
    labels: dict[str, str] = field(default_factory=lambda: CLASSED)


TIMEOUT = READY.status(scheduling_stats=stats("PodsReadyTimeout", "WaitForRecovery"))
EVICTION = {"cluster_queue": "cq", "reason": "PodsReadyTimeout", "underlying_cause": "WaitForRecovery"}
CASES = [
    Case(
        "a reservation, and how long it took since the creation",
        (workload(), RESERVED),
        {
            "kueue_quota_reserved_workloads_total": 1,
            "kueue_quota_reserved_wait_time_seconds_sum": 40,
            "kueue_quota_reserved_wait_time_seconds_count": 1,
        },
    ),
    Case(
        "the wait begins anew with a requeue",
        (workload().cond(names.REQUEUED, at=-70), ADMITTED.cond(names.REQUEUED, at=-70)),
        {"kueue_quota_reserved_wait_time_seconds_sum": 10, "kueue_admission_wait_time_seconds_sum": 10},
    ),
    Case(
        "an admission, by the class of its priority",
        (workload(), ADMITTED.spec(priority_class_ref=kueue.PriorityClassRef("g", "k", "high"))),
        {"kueue_admitted_workloads_total": 1, "kueue_admission_wait_time_seconds_sum": 40},
        {"cluster_queue": "cq", "priority_class": "high"},
    ),
    Case(
        "the time that checks took, where there are any",
        (workload(), CHECKED),
        {"kueue_admission_checks_wait_time_seconds_sum": 10, "kueue_admission_checks_wait_time_seconds_count": 1},
    ),
    Case(
        "the pods are ready",
        (workload(), ADMITTED, READY),
        {"kueue_ready_wait_time_seconds_sum": 60, "kueue_admitted_until_ready_wait_time_seconds_sum": 20},
    ),
    Case(
        "the end, and how long it ran",
        (workload(), ADMITTED, ADMITTED.cond(names.FINISHED, reason="Succeeded", at=-10)),
        {"kueue_finished_workloads_total": 1, "kueue_execution_time_seconds_sum": 50},
    ),
    Case(
        "an eviction, with the cause that the Workload's statistics have",
        (READY, TIMEOUT.evicted("PodsReadyTimeout", at=-30)),
        {"kueue_evicted_workloads_total": 1, "kueue_evicted_workloads_once_total": 1},
        {**EVICTION, "priority_class": ""},
    ),
    Case(
        "the time that its pods had been ready",
        (READY, TIMEOUT.evicted("PodsReadyTimeout", at=-30)),
        {"kueue_pods_ready_to_evicted_time_seconds_sum": 10},
        EVICTION,
    ),
    Case(
        "a deactivation, with the cause in its reason",
        (ADMITTED, ADMITTED.evicted("DeactivatedDueToAdmissionCheck")),
        {"kueue_evicted_workloads_total": 1},
        {**CLASSED, "reason": "Deactivated", "underlying_cause": "AdmissionCheck"},
    ),
    Case(
        "how long pods took to go",
        (ADMITTED.evicted("Preempted", at=-30), workload().evicted("Preempted", at=-30)),
        {"kueue_workload_eviction_latency_seconds_sum": 30},
        {"cluster_queue": "cq", "reason": "Preempted"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_steps_are_counted(world: World, case: Case) -> None:
    world.see(*case.life)
    assert {name: world.value(name, **case.labels) for name in case.want} == case.want


def test_a_local_queue_counts_the_same_where_it_is_asked_for(world: World) -> None:
    world.see(workload(), ADMITTED, READY, READY.cond(names.FINISHED, at=-10))
    labels = {**LOCAL, "priority_class": ""}
    for name in (
        "quota_reserved_workloads_total",
        "admitted_workloads_total",
        "finished_workloads_total",
        "quota_reserved_wait_time_seconds_count",
        "admission_wait_time_seconds_count",
        "ready_wait_time_seconds_count",
        "admitted_until_ready_wait_time_seconds_count",
        "execution_time_seconds_count",
    ):
        assert world.value(f"kueue_local_queue_{name}", **labels) == 1, name


def test_an_eviction_is_a_first_one_once(world: World) -> None:
    again = ADMITTED.status(scheduling_stats=stats("Preempted", count=1))
    twice = ADMITTED.status(scheduling_stats=stats("Preempted", count=2))
    world.see(again, twice.evicted("Preempted"))
    labels = {**CLASSED, "reason": "Preempted", "underlying_cause": ""}
    assert world.value("kueue_evicted_workloads_total", **labels) == 1
    assert world.value("kueue_evicted_workloads_once_total", **labels) is None


def test_pods_that_recovered_were_ready_before(world: World) -> None:
    world.see(ADMITTED, ADMITTED.cond(names.PODS_READY, reason="Recovered", at=-10))
    assert world.value("kueue_ready_wait_time_seconds_count", **CLASSED) is None


def test_admissions_count_in_every_cohort_above(world: World) -> None:
    world.put(kueue.Cohort(metadata=ObjectMeta(name="team", uid="c"), spec=kueue.CohortSpec(parent_name="org")))
    world.put(cluster_queue(cohort="team"))
    world.see(workload(), ADMITTED)
    for cohort in ("team", "org"):
        assert world.value("kueue_cohort_subtree_admitted_workloads_total", cohort=cohort, priority_class="") == 1
        assert world.value("kueue_cohort_subtree_admitted_active_workloads", cohort=cohort) == 1
        assert world.value("kueue_cohort_subtree_resource_reservations", cohort=cohort, **UNIT) == 2
        assert world.value("kueue_cohort_subtree_quota", cohort=cohort, **UNIT) == 10
    info = {"parent_cohort": "org", "root_cohort": "org"}
    assert world.value("kueue_cohort_info", cohort="team", **info) == 1
    assert world.value("kueue_cohort_info", cohort="org", parent_cohort="", root_cohort="org") == 1
    assert world.value("kueue_cluster_queue_info", cluster_queue="cq", parent_cohort="team", root_cohort="org") == 1
    world.put(cluster_queue())
    team = world.cluster.tables.cohorts.get("", "team")
    world.drop(team)
    world.reporting.health(NOW)
    assert "kueue_cohort_subtree_admitted_workloads_total" not in world.names()


def test_the_gauges_of_a_queue(world: World) -> None:
    world.see(ADMITTED, workload("r").reserved(), workload("p"))
    assert world.value("kueue_pending_workloads", cluster_queue="cq", status="active") == 1
    assert world.value("kueue_pending_workloads", cluster_queue="cq", status="inadmissible") == 0
    assert world.value("kueue_pending_scheduling_hashes", cluster_queue="cq", status="active") == 1
    assert world.value("kueue_reserving_active_workloads", cluster_queue="cq") == 2
    assert world.value("kueue_admitted_active_workloads", cluster_queue="cq") == 1
    assert world.value("kueue_cluster_queue_resource_reservation", **QUOTA) == 4
    assert world.value("kueue_cluster_queue_resource_usage", **QUOTA) == 2
    assert world.value("kueue_cluster_queue_resource_pending", cluster_queue="cq", resource="cpu") == 2
    assert world.value("kueue_cluster_queue_nominal_quota", **QUOTA) == 10
    assert world.value("kueue_cluster_queue_borrowing_limit", **QUOTA) == math.inf
    assert world.value("kueue_cluster_queue_lending_limit", **QUOTA) == math.inf
    assert world.value("kueue_local_queue_pending_workloads", **LOCAL, status="active") == 1
    assert world.value("kueue_local_queue_reserving_active_workloads", **LOCAL) == 2
    assert world.value("kueue_local_queue_admitted_active_workloads", **LOCAL) == 1
    assert world.value("kueue_local_queue_resource_reservation", **LOCAL, **UNIT) == 4
    assert world.value("kueue_local_queue_resource_usage", **LOCAL, **UNIT) == 2
    assert world.value("kueue_local_queue_status", **LOCAL, active="True") == 1
    assert world.value("kueue_local_queue_status", **LOCAL, active="False") == 0


def test_one_of_three_states_is_1(world: World) -> None:
    def states() -> dict[str, float | None]:
        return {
            each: world.value("kueue_cluster_queue_status", cluster_queue="cq", status=each)
            for each in ("pending", "active", "terminating")
        }

    assert states() == {"pending": 0, "active": 1, "terminating": 0}
    world.put(cluster_queue(stop_policy="Hold"))
    assert states() == {"pending": 1, "active": 0, "terminating": 0}


def test_who_is_not_admitted_is_counted_by_why(world: World) -> None:
    def number(reason: str, cause: str) -> tuple[float | None, float | None]:
        labels = {"cluster_queue": "cq", "reason": reason, "underlying_cause": cause}
        return (
            world.value("kueue_unadmitted_workloads", **labels),
            world.value("kueue_local_queue_unadmitted_workloads", **LOCAL, **labels),
        )

    world.see(workload(), workload("x").cond(names.QUOTA_RESERVED, "False", "WaitingForQuota"))
    assert number("NoReservation", "PendingEvaluation") == (1, 1)
    assert number("NoReservation", "WaitingForQuota") == (1, 1)
    world.see(RESERVED)
    assert number("NoReservation", "PendingEvaluation") == (None, None)
    assert number("UnsatisfiedAdmissionChecks", "ChecksNotReady") == (1, 1)
    world.see(ADMITTED)
    world.lose("x")
    assert "kueue_unadmitted_workloads" not in world.names()


def test_finished_workloads_count_while_they_are_there(world: World) -> None:
    done = ADMITTED.cond(names.FINISHED, at=-10)
    world.see(ADMITTED, done, done)
    assert world.value("kueue_finished_workloads", cluster_queue="cq") == 1
    assert world.value("kueue_local_queue_finished_workloads", **LOCAL) == 1
    world.lose()
    assert world.value("kueue_finished_workloads", cluster_queue="cq") == 0


def test_series_of_a_queue_go_with_it(world: World) -> None:
    world.see(workload(), ADMITTED, ADMITTED.cond(names.FINISHED, at=-10))
    world.metrics.workloads.preemption("cq", "InClusterQueue")
    for queue in (
        world.cluster.tables.cluster_queues.get("", "cq"),
        world.cluster.tables.local_queues.get(NAMESPACE, "lq"),
    ):
        world.drop(queue)
    world.reporting.cluster_queue("cq")
    world.reporting.local_queue(Key(NAMESPACE, "lq"))
    text = generate_latest(world.metrics.registry).decode()
    assert 'cluster_queue="cq"' not in text
    assert 'name="lq"' not in text


def test_a_flavor_that_a_queue_no_longer_has_has_no_series(world: World) -> None:
    other = kueue.ResourceGroup(
        covered_resources=("cpu",),
        flavors=(kueue.FlavorQuotas(name="other", resources=(kueue.ResourceQuota(name="cpu", nominal_quota="1"),)),),
    )
    queue = cluster_queue()
    world.put(msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, resource_groups=(other,))))
    assert world.value("kueue_cluster_queue_nominal_quota", **QUOTA) is None
    assert world.value("kueue_cluster_queue_nominal_quota", **{**QUOTA, "flavor": "other"}) == 1


def test_shares_are_told_with_fair_sharing_only() -> None:
    assert "kueue_cluster_queue_weighted_share" not in World().names()
    world = World(settings(metrics=EVERYTHING, fair_sharing=FAIR))
    world.put(cluster_queue(cohort="pool", nominal="1"))
    world.put(cluster_queue("lender", cohort="pool", nominal="9"))
    world.see(ADMITTED)
    assert world.value("kueue_cluster_queue_weighted_share", cluster_queue="cq", cohort="pool") == 100
    assert world.value("kueue_cluster_queue_weighted_share", cluster_queue="lender", cohort="pool") == 0
    assert world.value("kueue_cohort_weighted_share", cohort="pool") == 0
    zero = cluster_queue(cohort="pool", nominal="1", fair_sharing=kueue.FairSharing(weight="0"))
    world.put(zero)
    share = world.value("kueue_cluster_queue_weighted_share", cluster_queue="cq", cohort="pool")
    assert share is not None
    assert math.isnan(share)


@dataclass(frozen=True)
class Option:
    id: str
    settings: Settings
    absent: str


OPTIONS = [
    Option("quota is told where asked for", settings(), "kueue_cluster_queue_nominal_quota"),
    Option("local queues are told where asked for", settings(), "kueue_local_queue_status"),
    Option(
        "only selected local queues are told",
        settings(
            metrics=MetricsOptions(
                local_queue_metrics=LocalQueueMetrics(
                    enable=True, local_queue_selector=LabelSelector(match_labels={"told": "yes"})
                )
            )
        ),
        "kueue_local_queue_status",
    ),
    Option(
        "without the gate there are no local queues",
        settings(metrics=EVERYTHING, feature_gates={"LocalQueueMetrics": False}),
        "kueue_local_queue_status",
    ),
    Option(
        "without the gate there are no cohorts",
        settings(feature_gates={"MetricsForCohorts": False}),
        "kueue_cluster_queue_info",
    ),
    Option(
        "without the gate there are no hashes",
        settings(feature_gates={"SchedulingEquivalenceHashing": False}),
        "kueue_pending_scheduling_hashes",
    ),
]


@pytest.mark.parametrize("case", OPTIONS, ids=lambda case: case.id)
def test_what_is_not_asked_for_is_not_there(case: Option) -> None:
    world = World(case.settings)
    world.see(workload(), ADMITTED)
    assert case.absent not in world.names()
    assert not any(name.startswith("kueue_local_queue_admitted") for name in world.names())


def test_the_time_from_a_job_to_its_workload(world: World) -> None:
    job = {"metadata": {"name": "j", "namespace": NAMESPACE, "uid": "uid-of-j", "creationTimestamp": stamp(-102)}}
    kind = world.cluster.tables.of("Job")
    from admission.api.batch import Job

    kind.upsert(msgspec.convert(job, Job))
    world.see(workload().owned())
    assert world.value("kueue_workload_creation_latency_seconds_sum", job_kind="Job") == 2


def test_the_time_from_the_admission_until_the_gate_came_off(world: World) -> None:
    def pod(gated: bool) -> core.Pod:
        gates = (core.PodSchedulingGate(names.ADMISSION_GATE), core.PodSchedulingGate("example.com/other"))
        metadata = ObjectMeta(
            name="p", namespace=NAMESPACE, uid="p", annotations={names.WORKLOAD_ANNOTATION: "w"},
            labels={names.POD_GROUP_NAME: "w"},
        )  # fmt: skip
        return core.Pod(metadata=metadata, spec=core.PodSpec(scheduling_gates=gates if gated else ()))

    world.see(ADMITTED)
    world.put(pod(gated=True))
    world.put(pod(gated=False))
    world.reporting.ungated()
    labels = {"name": names.ADMISSION_GATE, "cluster_queue": "cq", "is_group": "true"}
    assert world.value("kueue_pod_scheduling_gate_removal_seconds_sum", **labels) == 60
    assert world.value("kueue_pod_scheduling_gate_removal_seconds_count", **labels) == 1


def test_the_controllers_own(world: World) -> None:
    world.metrics.attempt(0.2, success=True)
    world.metrics.decided(0.1)
    world.metrics.wrote("patch", "Workload", "done")
    world.metrics.swept("Gang")
    world.metrics.health_at_scrape(lambda: Health(2, 3, 1.5, {"Pod": 4.0}))
    assert world.value("kueue_admission_attempts_total", result="success") == 1
    assert world.value("kueue_admission_attempt_duration_seconds_sum", result="success") == 0.2
    assert world.value("muster_decision_duration_seconds_sum") == 0.1
    assert world.value("muster_writes_total", verb="patch", kind="Workload", result="done") == 1
    assert world.value("muster_sweep_found_total", kind="Gang") == 1
    assert world.value("muster_events_dropped_total") == 2
    assert world.value("muster_journal_dropped_entries_total") == 3
    assert world.value("muster_journal_lag_seconds") == 1.5
    assert world.value("muster_informer_silence_seconds", kind="Pod") == 4
    assert b"kueue_build_info{" in generate_latest(world.metrics.registry)


def test_labels_of_ones_own_are_those_of_the_queue_at_the_moment() -> None:
    labels = (
        CustomLabel(name="team"),
        CustomLabel(name="cost", source_kind="LocalQueue", source_annotation_key="example.com/cost"),
    )
    options = MetricsOptions(custom_labels=labels, local_queue_metrics=LocalQueueMetrics(enable=True))
    world = World(settings(metrics=options, feature_gates={"CustomMetricLabels": True}))
    queue = world.cluster.tables.cluster_queues.get("", "cq")
    local = world.cluster.tables.local_queues.get(NAMESPACE, "lq")
    assert queue is not None
    assert local is not None
    world.see(workload(), RESERVED)
    assert world.value("kueue_pending_workloads", cluster_queue="cq", status="active", custom_team="") == 0
    metadata = msgspec.structs.replace(queue.metadata, labels={"team": "red"})
    world.put(msgspec.structs.replace(queue, metadata=metadata))
    metadata = msgspec.structs.replace(local.metadata, annotations={"example.com/cost": "42"})
    world.put(msgspec.structs.replace(local, metadata=metadata))
    assert world.value("kueue_pending_workloads", cluster_queue="cq", status="active", custom_team="red") == 0
    counted = {**CLASSED, "custom_team": "red"}
    assert world.value("kueue_quota_reserved_workloads_total", **counted) == 1, "no count is lost"
    assert world.value("kueue_quota_reserved_wait_time_seconds_bucket", **counted, le="+Inf") == 1
    own = {"name": "lq", "namespace": NAMESPACE, "custom_cost": "42"}
    assert world.value("kueue_local_queue_reserving_active_workloads", **own) == 1
    assert world.value("kueue_admission_attempts_total", result="success") is None


def test_labels_of_ones_own_wait_for_their_gate() -> None:
    world = World(settings(metrics=MetricsOptions(custom_labels=(CustomLabel(name="team"),))))
    assert world.value("kueue_pending_workloads", cluster_queue="cq", status="active") == 0


def test_nobody_is_skipped_for_preemptions() -> None:
    assert World().value("kueue_admission_cycle_preemption_skips", cluster_queue="cq") == 0
