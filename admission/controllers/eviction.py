"""The first half of an eviction: marking a Workload, with its checks asked anew and its gates closed.

Marking keeps the admission, so that the quota stays occupied while pods end (`admission.jobs.eviction` is the second
half). It must never decide whether a Workload has to go.
"""

from __future__ import annotations

import msgspec

from admission.api import meta, names
from admission.api.kueue import AdmissionCheckState, SchedulingStats, SchedulingStatsEviction, Workload
from admission.controllers import conditions

_MOST_STATS = 256


def evicted(workload: Workload, reason: str, message: str, now: float, *, cause: str = "") -> Workload:
    """The Workload on its way out, and the eviction counted.

    A cause of a deactivation is part of the condition's reason; evictions are counted by the two apart.
    """
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
        scheduling_stats=_counted(status.scheduling_stats, _plain(reason), cause),
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


def _plain(reason: str) -> str:
    by_cause = reason.startswith(names.EVICTED_BY_DEACTIVATION_PREFIX)
    return names.EVICTED_BY_DEACTIVATION if by_cause else reason


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
