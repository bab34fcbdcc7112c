"""What becomes of a Workload: one round of all rules, as the conditions, the writes and the time to look again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from admission.api import kueue, names
from admission.controllers.lifecycle import reconcile
from admission.controllers.rules import Facts, Ownership
from admission.jobs.effects import Patch, Tell
from tests.unit.controllers.builders import (
    NOW,
    RETAINED,
    WAITING,
    WorkloadBuilder,
    applied,
    cluster_queue,
    facts,
    local_queue,
    stamp,
    workload,
)

CHECKED = cluster_queue(checks=("ac",))


@dataclass(frozen=True)
class Case:
    """`want` maps a condition to its status and reason (None: not there) after the round; `writes` counts patches."""

    wl: WorkloadBuilder
    facts: Facts = field(default_factory=facts)
    want: dict[str, tuple[str, str] | None] = field(default_factory=dict)
    want_status: dict[str, Any] = field(default_factory=dict)
    want_spec: dict[str, Any] = field(default_factory=dict)
    writes: int = 1
    wake: float | None = None
    told: tuple[str, ...] = ()


CASES = [
    # ------------------------------------------------------------ nothing to do
    pytest.param(Case(workload(), writes=0), id="what waits is left alone"),
    pytest.param(Case(workload().admitted().owned(), writes=0), id="what runs is left alone"),
    pytest.param(
        Case(workload().admitted().cond(names.FINISHED).owned(), writes=0), id="what is finished is never written to"
    ),
    # ------------------------------------------------------------ activity
    pytest.param(
        Case(
            workload().admitted().spec(active=False),
            want={names.EVICTED: ("True", "Deactivated"), names.QUOTA_RESERVED: ("True", "QuotaReserved")},
            told=("EvictedDueToDeactivated",),
        ),
        id="deactivated with a job: evicted, and the quota is kept until the job has stopped",
    ),
    pytest.param(
        Case(
            workload().admitted().spec(active=False),
            facts(ownership=Ownership.NONE),
            want={
                names.EVICTED: ("True", "Deactivated"),
                names.QUOTA_RESERVED: ("False", "Deactivated"),
                names.ADMITTED: ("False", "NoReservation"),
                names.REQUEUED: ("False", "Deactivated"),
            },
            want_status={"admission": None},
            told=("EvictedDueToDeactivated",),
        ),
        id="deactivated without a job: evicted and released in the same write",
    ),
    pytest.param(
        Case(
            workload().spec(active=False).requeue(at=100, count=3),
            want={names.EVICTED: ("True", "Deactivated"), names.REQUEUED: ("False", "Deactivated")},
            want_status={"requeue_state": None},
            told=("EvictedDueToDeactivated",),
        ),
        id="deactivated while it waits: out of the queue, with a fresh budget",
    ),
    pytest.param(
        Case(
            workload().admitted().cond(names.DEACTIVATION_TARGET, reason="RequeuingLimitExceeded"),
            want_spec={"active": False},
        ),
        id="marked for deactivation: the spec comes first",
    ),
    pytest.param(
        Case(
            workload().admitted().spec(active=False).cond(names.DEACTIVATION_TARGET, reason="RequeuingLimitExceeded"),
            want={
                names.EVICTED: ("True", "DeactivatedDueToRequeuingLimitExceeded"),
                names.DEACTIVATION_TARGET: None,
            },
            told=("EvictedDueToDeactivatedDueToRequeuingLimitExceeded",),
        ),
        id="deactivated by the system: the eviction names the cause",
    ),
    pytest.param(
        Case(
            workload()
            .cond(names.REQUEUED, "False", "DeactivatedDueToAdmissionCheck")
            .evicted("DeactivatedDueToAdmissionCheck"),
            want={names.REQUEUED: ("True", "Reactivated")},
        ),
        id="activated again, whatever it was deactivated for",
    ),
    pytest.param(
        Case(workload().cond(names.REQUEUED, "False", "PodsReadyTimeout").requeue(at=20, count=1), writes=0, wake=20),
        id="in its back-off it waits for the time to come",
    ),
    pytest.param(
        Case(
            workload().cond(names.REQUEUED, "False", "PodsReadyTimeout").requeue(at=-1, count=1),
            want={names.REQUEUED: ("True", "BackoffFinished")},
            want_status={"requeue_state": kueue.RequeueState(count=1)},
        ),
        id="after its back-off it is put back, and its retries stay counted",
    ),
    pytest.param(
        Case(
            workload().cond(names.REQUEUED, "False", "ClusterQueueStopped"),
            want={names.REQUEUED: ("True", "ClusterQueueRestarted")},
        ),
        id="the ClusterQueue goes on",
    ),
    pytest.param(
        Case(
            workload().cond(names.REQUEUED, "False", "LocalQueueStopped"),
            facts(local=local_queue(stop_policy="Hold")),
            writes=0,
        ),
        id="the LocalQueue is still stopped",
    ),
    pytest.param(
        Case(
            workload().annotated(names.ADMISSION_GATED_BY, "a.example/gate"),
            want={names.QUOTA_RESERVED: ("False", "AdmissionGated")},
            told=("AdmissionGated",),
        ),
        id="gated by others",
    ),
    pytest.param(
        Case(
            workload().cond(names.QUOTA_RESERVED, "False", "AdmissionGated"),
            want={names.QUOTA_RESERVED: ("False", "PendingEvaluation")},
            told=("AdmissionGateCleared",),
        ),
        id="not gated any more",
    ),
    pytest.param(
        Case(
            workload().spec(priority=1, priority_class_ref=kueue.PriorityClassRef("g", "k", "n")),
            facts(value=5),
            want_spec={"priority": 5},
        ),
        id="the priority follows its class",
    ),
    # ------------------------------------------------------------ checks
    pytest.param(
        Case(
            workload().reserved().owned(),
            facts(queue=CHECKED),
            want_status={
                "admission_checks": (
                    kueue.AdmissionCheckState(name="ac", state="Pending", last_transition_time=stamp(), message=""),
                )
            },
        ),
        id="a check of the queue is listed once quota is reserved",
    ),
    pytest.param(
        Case(
            workload().check("old", "Ready").reserved(), want={names.ADMITTED: ("True", "Admitted")}, told=("Admitted",)
        ),
        id="the queue has no check any more: admitted",
    ),
    pytest.param(
        Case(
            workload().reserved().check("ac", "Ready"),
            facts(queue=CHECKED),
            want={names.ADMITTED: ("True", "Admitted")},
            told=("Admitted",),
        ),
        id="all checks are ready",
    ),
    pytest.param(
        Case(workload().admitted().check("ac", "Pending"), facts(queue=CHECKED), writes=0),
        id="a check that is not ready any more does not end what runs",
    ),
    pytest.param(
        Case(
            workload().admitted().check("ac", "Retry", retry_count=1),
            facts(queue=CHECKED),
            want={names.EVICTED: ("True", "AdmissionCheck"), names.QUOTA_RESERVED: ("True", "QuotaReserved")},
            told=("EvictedDueToAdmissionCheck",),
        ),
        id="Retry evicts",
    ),
    pytest.param(
        Case(
            workload().admitted().evicted("AdmissionCheck").check("ac", "Retry", retry_count=1),
            facts(queue=CHECKED),
            want={names.EVICTED: ("True", "AdmissionCheck")},
            want_status={
                "admission_checks": (
                    kueue.AdmissionCheckState(
                        name="ac",
                        state="Pending",
                        last_transition_time=stamp(),
                        message="Reset to Pending after eviction. Previously: Retry",
                        retry_count=2,
                    ),
                )
            },
        ),
        id="Retry during an eviction is asked again as well",
    ),
    pytest.param(
        Case(
            workload().admitted().check("ac", "Retry", at=-10, requeue_after_seconds=70),
            facts(queue=CHECKED),
            want={names.EVICTED: ("True", "AdmissionCheck")},
            want_status={"requeue_state": kueue.RequeueState(requeue_at=stamp(60))},
            told=("EvictedDueToAdmissionCheck",),
        ),
        id="a check that wants to be asked later moves the requeue time",
    ),
    pytest.param(
        Case(
            workload().admitted().check("ac", "Retry").check("other", "Rejected"),
            facts(queue=cluster_queue(checks=("ac", "other"))),
            want={names.DEACTIVATION_TARGET: ("True", "AdmissionCheck"), names.EVICTED: None},
            told=("AdmissionCheckRejected",),
        ),
        id="Rejected beats Retry",
    ),
    pytest.param(
        Case(
            workload().admitted().evicted("AdmissionCheck").check("ac", "Rejected"),
            facts(queue=CHECKED),
            want={names.DEACTIVATION_TARGET: ("True", "AdmissionCheck")},
            told=("AdmissionCheckRejected",),
        ),
        id="Rejected counts during an eviction",
    ),
    # ------------------------------------------------------------ stop policies
    pytest.param(
        Case(workload().admitted(), facts(queue=cluster_queue(stop_policy="Hold")), writes=0),
        id="Hold lets running work end",
    ),
    pytest.param(
        Case(
            workload().reserved().check("ac", "Pending"),
            facts(queue=cluster_queue(checks=("ac",), stop_policy="Hold")),
            want={names.QUOTA_RESERVED: ("False", "Suspended"), names.EVICTED: None},
            want_status={"admission": None},
        ),
        id="Hold takes a mere reservation back",
    ),
    pytest.param(
        Case(
            workload().admitted(),
            facts(queue=cluster_queue(stop_policy="HoldAndDrain")),
            want={names.EVICTED: ("True", "ClusterQueueStopped")},
            told=("EvictedDueToClusterQueueStopped",),
        ),
        id="HoldAndDrain evicts running work",
    ),
    pytest.param(
        Case(
            workload().admitted(),
            facts(local=local_queue(stop_policy="HoldAndDrain"), queue=cluster_queue(stop_policy="HoldAndDrain")),
            want={names.EVICTED: ("True", "LocalQueueStopped")},
            told=("EvictedDueToLocalQueueStopped",),
        ),
        id="the LocalQueue is asked first",
    ),
    pytest.param(
        Case(
            workload().admitted().evicted("Preempted"), facts(queue=cluster_queue(stop_policy="HoldAndDrain")), writes=0
        ),
        id="what is on its way out is not evicted twice",
    ),
    # ------------------------------------------------------------ pods ready
    pytest.param(
        Case(workload().admitted(at=-10), facts(waiting=WAITING), writes=0, wake=51),
        id="pods may take their time, and the cut-off second of the condition",
    ),
    pytest.param(
        Case(
            workload().admitted(at=-61),
            facts(waiting=WAITING),
            want={names.EVICTED: ("True", "PodsReadyTimeout")},
            want_status={"requeue_state": kueue.RequeueState(count=1, requeue_at=stamp(10))},
            told=("EvictedDueToPodsReadyTimeout",),
        ),
        id="pods that never got ready",
    ),
    pytest.param(
        Case(
            workload().admitted(at=-61).requeue(count=1),
            facts(waiting=WAITING),
            want={names.EVICTED: ("True", "PodsReadyTimeout")},
            want_status={"requeue_state": kueue.RequeueState(count=2, requeue_at=stamp(15))},
            told=("EvictedDueToPodsReadyTimeout",),
        ),
        id="the back-off doubles up to its maximum",
    ),
    pytest.param(
        Case(
            workload().admitted(at=-61).requeue(count=2),
            facts(waiting=WAITING),
            want={names.DEACTIVATION_TARGET: ("True", "RequeuingLimitExceeded"), names.EVICTED: None},
        ),
        id="after the last retry it is deactivated at once",
    ),
    pytest.param(
        Case(workload().admitted(at=-900).cond(names.PODS_READY, "True", "Started"), facts(waiting=WAITING), writes=0),
        id="ready pods have no deadline",
    ),
    pytest.param(
        Case(
            workload().admitted(at=-900).cond(names.PODS_READY, "False", "WaitForRecovery", at=-20),
            facts(waiting=WAITING),
            writes=0,
            wake=11,
        ),
        id="lost pods have the recovery time from when they were lost",
    ),
    # ------------------------------------------------------------ execution time
    pytest.param(
        Case(
            workload()
            .admitted(at=-50)
            .spec(maximum_execution_time_seconds=100)
            .status(accumulated_past_execution_time_seconds=20),
            writes=0,
            wake=30,
        ),
        id="earlier executions count",
    ),
    pytest.param(
        Case(
            workload()
            .admitted(at=-80)
            .spec(maximum_execution_time_seconds=100)
            .status(accumulated_past_execution_time_seconds=20),
            want={names.DEACTIVATION_TARGET: ("True", "MaximumExecutionTimeExceeded")},
            want_status={"accumulated_past_execution_time_seconds": None},
            told=("MaximumExecutionTimeExceeded",),
        ),
        id="the time is over",
    ),
    # ------------------------------------------------------------ release
    pytest.param(
        Case(
            workload().admitted(at=-60).evicted("Preempted"),
            facts(ownership=Ownership.NONE),
            want={
                names.QUOTA_RESERVED: ("False", "PendingEvaluation"),
                names.ADMITTED: ("False", "NoReservation"),
                names.REQUEUED: ("True", "Preempted"),
            },
            want_status={"admission": None, "accumulated_past_execution_time_seconds": 60},
        ),
        id="evicted without a job: nobody has to stop, the quota is given back",
    ),
    pytest.param(
        Case(
            workload().admitted().evicted("PodsReadyTimeout").cond(names.PODS_READY, "False", "WaitForRecovery"),
            facts(ownership=Ownership.NONE),
            want={names.PODS_READY: ("False", "WaitForStart"), names.REQUEUED: ("False", "PodsReadyTimeout")},
        ),
        id="a wait for recovery ends with the admission, or the next one would time out at once",
    ),
    pytest.param(
        Case(workload().admitted().evicted("Preempted"), facts(ownership=Ownership.FOREIGN), writes=0),
        id="evicted with somebody else's job: that one's controller gives it back",
    ),
    # ------------------------------------------------------------ retention and orphans
    pytest.param(
        Case(
            workload().cond(names.FINISHED, at=-40),
            facts(object_retention_policies=RETAINED),
            writes=0,
            wake=60,
        ),
        id="finished work is kept for its time",
    ),
    pytest.param(
        Case(
            workload().labels(**{names.JOB_UID_LABEL: "x"}).finalized(),
            facts(ownership=Ownership.NONE),
            want={names.FINISHED: ("True", "OwnerNotFound")},
        ),
        id="the job is lost: finished first",
    ),
]


@pytest.mark.parametrize("case", CASES)
def test_reconcile(case: Case) -> None:
    before = case.wl.obj
    verdict = reconcile(before, case.facts, NOW)
    patches = [effect for effect in verdict.effects if isinstance(effect, Patch)]
    assert len(patches) == case.writes
    assert tuple(effect.reason for effect in verdict.effects if isinstance(effect, Tell)) == case.told
    assert verdict.wake_at == (None if case.wake is None else NOW + case.wake)
    after = applied(before, patches[0]) if patches else before
    found = {each.type: (each.status, each.reason) for each in after.status.conditions}
    assert {type_: found.get(type_) for type_ in case.want} == case.want
    assert {name: getattr(after.status, name) for name in case.want_status} == case.want_status
    assert {name: getattr(after.spec, name) for name in case.want_spec} == case.want_spec


@pytest.mark.parametrize("case", [case for case in CASES if case.values[0].writes])
def test_a_round_that_was_written_wants_nothing_more(case: Case) -> None:
    """Following the writes leads to rest, in a handful of rounds."""
    current = case.wl.obj
    for version in range(6):
        patches = [each for each in reconcile(current, case.facts, NOW).effects if isinstance(each, Patch)]
        if not patches:
            return
        current = applied(current, patches[0])
        metadata = msgspec.structs.replace(current.metadata, resource_version=str(100 + version))
        current = msgspec.structs.replace(current, metadata=metadata)
    raise AssertionError(f"no rest: {patches}")


@pytest.mark.parametrize(
    ("wl", "gate", "want"),
    [
        pytest.param(workload(), True, ("False", "PendingEvaluation"), id="a new one says that it waits"),
        pytest.param(workload(), False, None, id="by default it says nothing"),
        pytest.param(workload().reserved(), True, ("True", "QuotaReserved"), id="what holds quota says so already"),
        pytest.param(
            workload().cond(names.QUOTA_RESERVED, "False", "WaitingForQuota"),
            True,
            ("False", "WaitingForQuota"),
            id="a reason that is there stays",
        ),
    ],
)
def test_what_waits_says_so_at_once_where_the_gate_wants_it(
    wl: WorkloadBuilder, gate: bool, want: tuple[str, str] | None
) -> None:
    verdict = reconcile(wl.obj, facts(feature_gates={"UnadmittedWorkloadsExplicitStatus": gate}), NOW)
    conditions = [
        (each["status"], each["reason"])
        for effect in verdict.effects
        if isinstance(effect, Patch)
        for each in effect.body.get("status", {}).get("conditions", [])  # type: ignore[union-attr]
        if each["type"] == names.QUOTA_RESERVED
    ]
    before = [(each.status, each.reason) for each in wl.obj.status.conditions if each.type == names.QUOTA_RESERVED]
    assert (conditions or before or [None])[-1] == want
