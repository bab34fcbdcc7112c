"""How long the pods of an admitted Workload may take to be ready, or to be ready again, and what follows.

Decided from the PodsReady condition and the `waitForPodsReady` settings: eviction with a growing back-off, and
deactivation once the retries are used up. It must never act before the whole time has passed.
"""

from __future__ import annotations

import zlib

from admission.api import meta, names
from admission.api.kueue import RequeueState, Workload
from admission.controllers import conditions
from admission.controllers.eviction import evicted
from admission.controllers.rules import Facts, Step, deactivation_wanted, event, is_going_out
from admission.settings import WaitForPodsReady

#: Conditions carry whole seconds, cut off: the true time is up to this much later.
_CUT_OFF = 1.0
_JITTER = 0.0001


def time_out(workload: Workload, facts: Facts, now: float) -> Step:
    waiting = facts.settings.wait_for_pods_ready
    if waiting is None or not conditions.is_admitted(workload) or is_going_out(workload):
        return Step(workload)
    deadline, cause = _deadline(workload, waiting)
    if deadline is None:
        return Step(workload)
    if now < deadline:
        return Step(workload, wake_at=deadline)
    message = f"Pods were not ready in time ({cause})"
    strategy = waiting.requeuing_strategy
    before = workload.status.requeue_state
    count = (0 if before is None or before.count is None else before.count) + 1
    if strategy.backoff_limit_count is not None and count > strategy.backoff_limit_count:
        return Step(
            deactivation_wanted(
                workload,
                names.REASON_REQUEUING_LIMIT_EXCEEDED,
                f"Requeued {strategy.backoff_limit_count} times without all pods getting ready",
                now,
            )
        )
    state = RequeueState(count=count, requeue_at=meta.rfc3339(now + back_off(waiting, count, workload.metadata.uid)))
    changed = conditions.with_status(workload, requeue_state=state)
    reason = names.EVICTED_BY_PODS_READY_TIMEOUT
    return Step(
        evicted(changed, reason, message, now, cause=cause),
        tells=(event(workload, names.EVENT_EVICTED_PREFIX + reason, message),),
    )


def back_off(waiting: WaitForPodsReady, count: int, uid: str) -> float:
    """Seconds before the `count`-th retry: doubling from the base, up to the maximum, and a trace more.

    By that trace, up to one in ten thousand, Workloads that failed together do not come back in the same moment. It
    goes by the Workload and the retry, so that the same observation always gives the same time.
    """
    strategy = waiting.requeuing_strategy
    doublings = min(count - 1, 62)
    seconds = min(strategy.backoff_base_seconds * 2**doublings, strategy.backoff_max_seconds)
    return float(seconds * (1 + _JITTER * zlib.crc32(f"{uid}/{count}".encode()) / 2**32))


def _deadline(workload: Workload, waiting: WaitForPodsReady) -> tuple[float | None, str]:
    ready = conditions.condition(workload, names.PODS_READY)
    if ready is not None and ready.status == "True":
        return None, ""
    if ready is not None and ready.reason == names.REASON_WAIT_FOR_RECOVERY:
        began, limit, cause = conditions.since(workload, names.PODS_READY), waiting.recovery, ready.reason
    else:
        began, limit, cause = conditions.since(workload, names.ADMITTED), waiting.timeout, names.REASON_WAIT_FOR_START
    return (None if began is None else began + _CUT_OFF + limit), cause
