"""The two phases of taking quota back: marking a Workload as evicted, and releasing what it holds.

Marking keeps the admission, so that the quota stays occupied while pods end; releasing gives it up. Both are new values
of the Workload. It must never decide whether a Workload has to go.
"""

from __future__ import annotations

import msgspec

from admission.api import meta, names
from admission.api.kueue import AdmissionCheckState, SchedulingStats, SchedulingStatsEviction, Workload
from admission.controllers import conditions

_MOST_STATS = 256


def evicted(workload: Workload, reason: str, message: str, now: float, *, cause: str = "") -> Workload:
    """Phase A: marked, with its checks asked anew, its gates closed and the eviction counted."""
    changed = conditions.with_condition(workload, names.EVICTED, true=True, reason=reason, message=message, now=now)
    if conditions.is_true(changed, names.BLOCKED_ON_PREEMPTION_GATES):
        changed = conditions.with_condition(
            changed, names.BLOCKED_ON_PREEMPTION_GATES, true=False, reason=reason, message=message, now=now
        )
    status = changed.status
    return conditions.with_status(
        changed,
        admission_checks=tuple(asked_again(check, now) for check in status.admission_checks),
        cluster_name=None,
        nominated_cluster_names=(),
        unhealthy_nodes=(),
        preemption_gates=tuple(
            gate
            if gate.position == names.GATE_CLOSED
            else msgspec.structs.replace(gate, position=names.GATE_CLOSED, last_transition_time=meta.rfc3339(now))
            for gate in status.preemption_gates
        ),
        scheduling_stats=_counted(status.scheduling_stats, reason, cause),
    )


def asked_again(check: AdmissionCheckState, now: float) -> AdmissionCheckState:
    """A check set back to Pending; only after Retry does its count go on."""
    if check.state == names.CHECK_PENDING:
        return check
    retries = (check.retry_count or 0) + 1 if check.state == names.CHECK_RETRY else None
    return msgspec.structs.replace(
        check,
        state=names.CHECK_PENDING,
        message=f"Reset to Pending after eviction. Previously: {check.state}",
        last_transition_time=meta.rfc3339(now),
        retry_count=retries,
        pod_set_updates=(),
    )


def released(workload: Workload, now: float) -> Workload:
    """Phase B: nothing is held any more. Only a preempted workload and one that lost its node may come back at once."""
    going = conditions.condition(workload, names.EVICTED)
    reason = going.reason if going is not None else names.REASON_PENDING
    message = going.message if going is not None else "The quota was given back"
    at_once = reason in {names.EVICTED_BY_PREEMPTION, names.EVICTED_BY_NODE_FAILURES}
    changed = conditions.with_condition(workload, names.REQUEUED, true=at_once, reason=reason, message=message, now=now)
    return unreserved(changed, names.REASON_PENDING_EVALUATION, message, now)


def unreserved(workload: Workload, reason: str, message: str, now: float) -> Workload:
    """Without quota and not admitted; execution time so far is put on the account."""
    changed = workload
    if conditions.is_admitted(workload):
        began = conditions.since(workload, names.ADMITTED)
        if began is not None:
            spent = (workload.status.accumulated_past_execution_time_seconds or 0) + max(0, int(now - began))
            changed = conditions.with_status(changed, accumulated_past_execution_time_seconds=spent)
    changed = conditions.with_condition(
        changed, names.QUOTA_RESERVED, true=False, reason=reason, message=message, now=now
    )
    if conditions.condition(changed, names.ADMITTED) is not None:
        changed = conditions.with_condition(
            changed,
            names.ADMITTED,
            true=False,
            reason=names.REASON_NO_RESERVATION,
            message="The workload has no reservation",
            now=now,
        )
    return conditions.with_status(changed, admission=None)


def _counted(stats: SchedulingStats | None, reason: str, cause: str) -> SchedulingStats:
    evictions = () if stats is None else stats.evictions
    counted = []
    found = False
    for each in evictions:
        if (each.reason, each.underlying_cause) == (reason, cause):
            found = True
            counted.append(msgspec.structs.replace(each, count=each.count + 1))
        else:
            counted.append(each)
    if not found and len(counted) < _MOST_STATS:
        counted.append(SchedulingStatsEviction(reason=reason, underlying_cause=cause, count=1))
    return SchedulingStats(evictions=tuple(counted))
