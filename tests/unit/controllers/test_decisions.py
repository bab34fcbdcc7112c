"""Decisions as writes: what the whole status says afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from admission.api import kueue, names
from admission.controllers import conditions, decisions
from admission.controllers.changes import workload_patches
from admission.controllers.rules import Ownership
from admission.jobs.effects import Patch
from queues.core import model
from queues.core.plan import Admit, Evict
from queues.core.reasons import Code, Preempted, Reason
from tests.unit.controllers.builders import NOW, WorkloadBuilder, admission, stamp, workload

CPU = model.ResourceName("cpu")
UID = model.Uid("uid-w")
DECIDED = model.Admission(
    cluster_queue=model.ClusterQueueName("cq"),
    pod_sets=(model.PodSetAssignment("main", 2, {CPU: model.FlavorName("default")}, {CPU: 2000}),),
    reserved_at=NOW,
    admitted=True,
)


def status_of(wl: kueue.Workload) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in wl.status.conditions}


@dataclass(frozen=True)
class Case:
    wl: WorkloadBuilder
    checks: tuple[model.CheckName, ...] = ()
    want: dict[str, tuple[str, str]] = field(default_factory=dict)
    want_checks: tuple[tuple[str, str], ...] = ()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            Case(
                workload(),
                want={names.QUOTA_RESERVED: ("True", "QuotaReserved"), names.ADMITTED: ("True", "Admitted")},
            ),
            id="without checks it is admitted at once",
        ),
        pytest.param(
            Case(
                workload(),
                (model.CheckName("b"), model.CheckName("a")),
                want={
                    names.QUOTA_RESERVED: ("True", "QuotaReserved"),
                    names.ADMITTED: ("False", "UnsatisfiedAdmissionChecks"),
                },
                want_checks=(("a", "Pending"), ("b", "Pending")),
            ),
            id="checks are listed by name, and waited for",
        ),
        pytest.param(
            Case(
                workload().check("a", "Ready"),
                (model.CheckName("a"),),
                want={names.QUOTA_RESERVED: ("True", "QuotaReserved"), names.ADMITTED: ("True", "Admitted")},
                want_checks=(("a", "Ready"),),
            ),
            id="a check that is ready before counts",
        ),
        pytest.param(
            Case(
                workload()
                .evicted("Preempted")
                .cond(names.PREEMPTED, reason="InClusterQueue")
                .cond(names.REQUEUED, reason="Preempted")
                .cond(names.QUOTA_RESERVED, "False", "WaitingForQuota"),
                want={
                    names.EVICTED: ("False", "QuotaReserved"),
                    names.PREEMPTED: ("False", "QuotaReserved"),
                    names.REQUEUED: ("True", "Preempted"),
                    names.QUOTA_RESERVED: ("True", "QuotaReserved"),
                    names.ADMITTED: ("True", "Admitted"),
                },
            ),
            id="what ended an earlier admission is over",
        ),
    ],
)
def test_admit(case: Case) -> None:
    before = case.wl.status(resource_requests=(kueue.PodSetRequest(name="main"),)).obj
    after = decisions.admit(before, Admit(UID, DECIDED, case.checks), NOW)
    assert status_of(after) == case.want
    assert after.status.admission == admission()
    assert after.status.resource_requests == ()
    assert tuple((check.name, check.state) for check in after.status.admission_checks) == case.want_checks


def test_the_message_of_an_ended_eviction_says_what_it_was() -> None:
    after = decisions.admit(workload().evicted("Preempted").obj, Admit(UID, DECIDED), NOW)
    found = conditions.condition(after, names.EVICTED)
    assert found is not None
    assert found.message == "Previously: because of Preempted"


@pytest.mark.parametrize(
    "before",
    [
        pytest.param(workload(), id="never started"),
        pytest.param(workload().cond(names.PODS_READY, "False", "WaitForRecovery", at=-900), id="failed to recover"),
    ],
)
def test_the_wait_for_ready_pods_begins_with_the_admission(before: WorkloadBuilder) -> None:
    after = decisions.admit(before.obj, Admit(UID, DECIDED), NOW, reports_readiness=True)
    assert status_of(after)[names.PODS_READY] == ("False", "WaitForStart")


def test_what_waits_at_its_preemption_gates_says_so_until_quota_is_reserved() -> None:
    gated = Reason(Code.WAITING_FOR_QUOTA, "The gate g is closed", is_preemption_gated=True)
    told = workload().cond(names.QUOTA_RESERVED, "False", "WaitingForQuota")
    assert not decisions.says_the_same(told.obj, gated)
    waiting = decisions.hold(told.obj, gated, NOW)
    assert status_of(waiting)[names.BLOCKED_ON_PREEMPTION_GATES] == ("True", "PreemptionGated")
    assert decisions.says_the_same(waiting, gated)
    admitted = decisions.admit(waiting, Admit(UID, DECIDED), NOW)
    assert status_of(admitted)[names.BLOCKED_ON_PREEMPTION_GATES] == ("False", "QuotaReserved")


def test_admission_is_one_guarded_patch_with_all_conditions() -> None:
    before = workload().cond("Custom").obj
    patches = workload_patches(before, decisions.admit(before, Admit(UID, DECIDED), NOW))
    assert len(patches) == 1
    (patch,) = patches
    assert isinstance(patch, Patch)
    assert (patch.subresource, patch.resource_version) == ("status", "7")
    assert isinstance(patch.body, dict)
    assert [each["type"] for each in patch.body["status"]["conditions"]] == ["Custom", "QuotaReserved", "Admitted"]


EVICT = Evict(
    UID,
    model.Uid("uid-p"),
    model.ClusterQueueName("cq"),
    Preempted.IN_CLUSTER_QUEUE,
    "Preempted to accommodate a workload",
)


@pytest.mark.parametrize(
    ("ownership", "want_reserved"),
    [
        pytest.param(Ownership.JOB, "True", id="with a job the quota stays until it has stopped"),
        pytest.param(Ownership.FOREIGN, "True", id="with somebody else's job as well"),
        pytest.param(Ownership.NONE, "False", id="without a job it goes in the same write"),
    ],
)
def test_preempt(ownership: Ownership, want_reserved: str) -> None:
    after = decisions.preempt(workload().admitted().obj, EVICT, ownership, NOW)
    found = status_of(after)
    assert found[names.EVICTED] == ("True", "Preempted")
    assert found[names.PREEMPTED] == ("True", "InClusterQueue")
    assert found[names.QUOTA_RESERVED][0] == want_reserved
    stats = after.status.scheduling_stats
    assert stats is not None
    assert [(each.reason, each.count) for each in stats.evictions] == [("Preempted", 1)]


def test_an_eviction_asks_the_checks_anew_and_closes_the_gates() -> None:
    before = workload().admitted().check("a", "Ready", retry_count=4)
    before = before.status(
        preemption_gates=(kueue.PreemptionGateState(name="g", position="Open", last_transition_time=stamp(-50)),),
        cluster_name="far",
        unhealthy_nodes=(kueue.UnhealthyNode(name="n"),),
    )
    after = decisions.preempt(before.obj, EVICT, Ownership.JOB, NOW).status
    (check,) = after.admission_checks
    assert (check.state, check.retry_count) == ("Pending", None)
    assert after.preemption_gates[0].position == "Closed"
    assert (after.cluster_name, after.unhealthy_nodes) == (None, ())


def test_who_is_going_already_is_not_marked_twice() -> None:
    going = workload().admitted().evicted("PodsReadyTimeout").obj
    assert decisions.preempt(going, EVICT, Ownership.JOB, NOW) is going


WAITS = Reason(Code.WAITING_FOR_QUOTA, "1 cpu is missing", remedy="Ask for 1 cpu less")


def test_hold_says_the_reason_and_what_would_help() -> None:
    found = conditions.condition(decisions.hold(workload().obj, WAITS, NOW), names.QUOTA_RESERVED)
    assert found is not None
    assert (found.status, found.reason) == ("False", "WaitingForQuota")
    assert found.message == "1 cpu is missing. Ask for 1 cpu less"


def test_hold_changes_nothing_when_it_is_said_already() -> None:
    told = decisions.hold(workload().obj, WAITS, NOW)
    assert decisions.hold(told, WAITS, NOW + 60) is told


@pytest.mark.parametrize(
    ("wl", "want"),
    [
        pytest.param(workload(), True, id="waits"),
        pytest.param(workload().spec(active=False), False, id="deactivated meanwhile"),
        pytest.param(workload().deleting(), False, id="deleted meanwhile"),
        pytest.param(workload().reserved(), False, id="somebody gave it quota"),
        pytest.param(workload().cond(names.FINISHED), False, id="finished meanwhile"),
    ],
)
def test_is_current(wl: WorkloadBuilder, want: bool) -> None:
    assert decisions.is_current(wl.obj) is want


def test_what_waits_says_what_it_would_take() -> None:
    """Totals of each pod set as quota counts them: fewer pods once some have succeeded, and shared claims once."""
    gpu = model.ResourceName("nvidia.com/gpu")
    value = core_workload(
        model.PodSet("main", 4, {CPU: 1500, gpu: 2}, reclaimable=1, shared={gpu: 8}), model.PodSet("idle", 0, {CPU: 1})
    )
    told = decisions.hold(workload().obj, WAITS, NOW, value)
    assert told.status.resource_requests == (
        kueue.PodSetRequest(name="main", resources={"cpu": "4500m", "nvidia.com/gpu": "14"}),
        kueue.PodSetRequest(name="idle", resources={"cpu": "0"}),
    )
    admitted = decisions.admit(told, Admit(UID, DECIDED), NOW)
    assert admitted.status.resource_requests == ()


def core_workload(*pod_sets: model.PodSet) -> model.Workload:
    key = model.ObjectKey("team", "w")
    return model.Workload(uid=UID, key=key, queue=key, pod_sets=pod_sets, created_at=NOW, queued_at=NOW)
