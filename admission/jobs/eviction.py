"""The second half of an eviction: giving the quota back once the pods are gone, as one change of the status.

The first half (the mark) keeps the quota occupied; this one follows when the job is stopped and nothing of it runs. It
must never be applied earlier, or two gangs would run on the same quota.
"""

from __future__ import annotations

from admission.api import meta, names
from admission.api.kueue import Workload
from admission.api.meta import FALSE, TRUE, Condition
from admission.jobs.statuses import condition, holds_quota, with_condition, with_status

#: Whoever was evicted for these reasons may start again at once; every other cause has to be over first.
REQUEUED_AT_ONCE = frozenset({names.EVICTED_BY_PREEMPTION, names.EVICTED_BY_NODE_FAILURES})


def released(workload: Workload, now: float) -> Workload:
    """The evicted Workload without its quota; the same one where it holds none."""
    evicted = condition(workload, names.EVICTED)
    if evicted is None or not holds_quota(workload):
        return workload
    requeued = TRUE if evicted.reason in REQUEUED_AT_ONCE and not _is_of_one_pod(workload) else FALSE
    workload = with_condition(
        workload,
        Condition(type=names.REQUEUED, status=requeued, reason=evicted.reason, message=evicted.message),
        now,
    )
    reason = names.REASON_PENDING_EVALUATION if workload.spec.active else names.REASON_DEACTIVATED
    return without_reservation(workload, reason, evicted.message, now)


def _is_of_one_pod(workload: Workload) -> bool:
    """A pod that was stopped never starts again, so its Workload must not take quota anew before it goes as well."""
    controller = workload.metadata.controller
    return controller is not None and controller.kind == "Pod"


def without_reservation(workload: Workload, reason: str, message: str, now: float) -> Workload:
    """The Workload waiting again: no admission, neither QuotaReserved nor Admitted, its time so far added up."""
    admitted = condition(workload, names.ADMITTED)
    if admitted is not None and admitted.status == TRUE:
        past = workload.status.accumulated_past_execution_time_seconds or 0
        elapsed = max(0, int(now - meta.epoch(admitted.last_transition_time)))
        workload = with_status(workload, accumulated_past_execution_time_seconds=past + elapsed)
    for new in (
        Condition(type=names.QUOTA_RESERVED, status=FALSE, reason=reason, message=message),
        Condition(
            type=names.ADMITTED,
            status=FALSE,
            reason=names.REASON_NO_RESERVATION,
            message="The workload has no reservation",
        ),
    ):
        workload = with_condition(workload, new, now)
    ready = condition(workload, names.PODS_READY)
    if ready is not None and ready.reason != names.REASON_WAIT_FOR_START:
        waiting = Condition(
            type=names.PODS_READY,
            status=FALSE,
            reason=names.REASON_WAIT_FOR_START,
            message="Not all pods are ready or succeeded",
        )
        workload = with_condition(workload, waiting, now)
    return with_status(workload, admission=None)
