"""Whether a Workload takes part at all: deactivation, reactivation, the end of a back-off, restarted queues.

Decided from `spec.active` and the conditions DeactivationTarget and Requeued. It must never put a Workload back before
the time that was written down for it.
"""

from __future__ import annotations

import msgspec

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import conditions
from admission.controllers.eviction import evicted
from admission.controllers.rules import Facts, Step, event, with_active
from admission.jobs import composing
from admission.jobs.effects import Tell

_BACK_OFF_REASONS = frozenset({names.EVICTED_BY_PODS_READY_TIMEOUT, names.EVICTED_BY_ADMISSION_CHECK})
_RUNNING = "None"


def deactivate(workload: Workload, facts: Facts, now: float) -> Step:
    """What is marked for it loses `spec.active`; what is inactive is evicted and forgets its retries."""
    del facts
    marked = conditions.condition(workload, names.DEACTIVATION_TARGET)
    if conditions.is_active(workload):
        if marked is not None and marked.status == "True":
            return Step(with_active(workload, active=False))
        return Step(workload)
    changed = workload
    tells: tuple[Tell, ...] = ()
    going = conditions.condition(workload, names.EVICTED)
    if marked is not None or going is None or not _by_deactivation(going.status, going.reason):
        cause = "" if marked is None else marked.reason
        reason = names.EVICTED_BY_DEACTIVATION_PREFIX + cause if cause else names.EVICTED_BY_DEACTIVATION
        message = "The workload is deactivated" + (f" due to: {marked.message}" if marked is not None else "")
        changed = evicted(changed, reason, message, now, cause=cause)
        tells = (event(workload, names.EVENT_EVICTED_PREFIX + reason, message),)
    changed = conditions.without_condition(changed, names.DEACTIVATION_TARGET)
    changed = conditions.with_status(changed, requeue_state=None)
    if not conditions.holds_quota(changed):
        changed = _out(changed, now)
    return Step(changed, tells=tells)


def _by_deactivation(status: str, reason: str) -> bool:
    return status == "True" and reason.startswith(names.EVICTED_BY_DEACTIVATION)


def _out(workload: Workload, now: float) -> Workload:
    """There is no quota to give back: it is out of the queue at once."""
    going = conditions.condition(workload, names.EVICTED)
    if going is None:
        return workload
    workload = conditions.with_condition(
        workload, names.REQUEUED, true=False, reason=going.reason, message=going.message, now=now
    )
    return conditions.with_condition(
        workload,
        names.QUOTA_RESERVED,
        true=False,
        reason=names.REASON_DEACTIVATED,
        message=going.message,
        now=now,
    )


def gate(workload: Workload, facts: Facts, now: float) -> Step:
    """What others hold back by the gates that it names says so, once it could be queued otherwise."""
    del facts
    gates = admission_gates(workload)
    found = conditions.condition(workload, names.QUOTA_RESERVED)
    said = found is not None and found.reason == names.REASON_ADMISSION_GATED
    if conditions.holds_quota(workload) or not conditions.is_active(workload):
        return Step(workload)
    if gates and not said and not conditions.is_on_hold(workload):
        message = f"The workload is gated by {', '.join(gates)}"
        changed = conditions.with_condition(
            workload, names.QUOTA_RESERVED, true=False, reason=names.REASON_ADMISSION_GATED, message=message, now=now
        )
        return Step(changed, tells=(event(workload, names.EVENT_ADMISSION_GATED, message),))
    if said and not gates:
        message = "The workload is not gated any more"
        changed = conditions.with_condition(
            workload, names.QUOTA_RESERVED, true=False, reason=names.REASON_PENDING_EVALUATION, message=message, now=now
        )
        return Step(changed, tells=(event(workload, names.EVENT_ADMISSION_GATE_CLEARED, message),))
    return Step(workload)


def admission_gates(workload: Workload) -> tuple[str, ...]:
    """The gates that it still names, in their order."""
    return composing.admission_gates(workload.metadata.annotations)


def put_back(workload: Workload, facts: Facts, now: float) -> Step:
    """Requeued again: after reactivation, at the end of a back-off, when a stopped queue goes on."""
    out = conditions.condition(workload, names.REQUEUED)
    if not conditions.is_active(workload) or conditions.holds_quota(workload):
        return Step(workload)
    if out is None or out.status == "True":
        return _time_passed(workload, now)
    if out.reason in _BACK_OFF_REASONS:
        until = conditions.requeue_at(workload)
        if until is not None and until > now:
            return Step(workload, wake_at=until)
        changed = _without_time(workload)
        return Step(_requeued(changed, names.REASON_BACKOFF_FINISHED, "The back-off is over", now))
    reason, message = _restart(out.reason, facts)
    return Step(_requeued(workload, reason, message, now) if reason else workload)


def _restart(left_for: str, facts: Facts) -> tuple[str, str]:
    """Why what left the queue for this reason may come back; empty while it may not."""
    if left_for.startswith(names.EVICTED_BY_DEACTIVATION):
        return names.REASON_REACTIVATED, "The workload was activated again"
    local, queue = facts.local_queue, facts.cluster_queue
    if left_for == names.EVICTED_BY_LOCAL_QUEUE_STOPPED and local is not None and local.spec.stop_policy == _RUNNING:
        return names.REASON_LOCAL_QUEUE_RESTARTED, "The LocalQueue is not stopped any more"
    if left_for == names.EVICTED_BY_CLUSTER_QUEUE_STOPPED and queue is not None and queue.spec.stop_policy == _RUNNING:
        return names.REASON_CLUSTER_QUEUE_RESTARTED, "The ClusterQueue is not stopped any more"
    return "", ""


def _time_passed(workload: Workload, now: float) -> Step:
    until = conditions.requeue_at(workload)
    if until is None:
        return Step(workload)
    if until > now:
        return Step(workload, wake_at=until)
    return Step(_without_time(workload))


def _without_time(workload: Workload) -> Workload:
    state = workload.status.requeue_state
    if state is None or state.requeue_at is None:
        return workload
    return conditions.with_status(workload, requeue_state=msgspec.structs.replace(state, requeue_at=None))


def _requeued(workload: Workload, reason: str, message: str, now: float) -> Workload:
    return conditions.with_condition(workload, names.REQUEUED, true=True, reason=reason, message=message, now=now)
