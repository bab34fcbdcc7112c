"""What a stopped, ending or missing queue means for the quota that a Workload holds.

`Hold` lets running work end and takes a mere reservation back; `HoldAndDrain` evicts running work too. It must never
touch a Workload that is on its way out already.
"""

from __future__ import annotations

from collections.abc import Iterator

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import conditions
from admission.controllers.eviction import evicted
from admission.controllers.rules import Facts, Step, event
from admission.jobs.eviction import without_reservation

_DRAIN = "HoldAndDrain"
_STOPPED = frozenset({"Hold", _DRAIN})


def obey(workload: Workload, facts: Facts, now: float) -> Step:
    """What is stopped first: the LocalQueue, then the ClusterQueue."""
    if not conditions.holds_quota(workload) or conditions.is_evicted(workload):
        return Step(workload)
    for policy, reason, message in _stops(facts):
        if not conditions.is_admitted(workload):
            return Step(without_reservation(workload, names.REASON_SUSPENDED, message, now))
        if policy == _DRAIN:
            tell = event(workload, names.EVENT_EVICTED_PREFIX + reason, message)
            return Step(evicted(workload, reason, message, now), tells=(tell,))
    return Step(workload if conditions.is_admitted(workload) else _without_queue(workload, facts, now))


def _stops(facts: Facts) -> Iterator[tuple[str, str, str]]:
    """Policy, reason of an eviction and message of each queue that is stopped."""
    local, queue = facts.local_queue, facts.cluster_queue
    if local is not None and local.spec.stop_policy in _STOPPED:
        yield (
            local.spec.stop_policy,
            names.EVICTED_BY_LOCAL_QUEUE_STOPPED,
            f"LocalQueue {local.metadata.name} is stopped",
        )
    if queue is not None and queue.spec.stop_policy in _STOPPED:
        yield (
            queue.spec.stop_policy,
            names.EVICTED_BY_CLUSTER_QUEUE_STOPPED,
            f"ClusterQueue {queue.metadata.name} is stopped",
        )


def _without_queue(workload: Workload, facts: Facts, now: float) -> Workload:
    """A mere reservation must not outlive its ClusterQueue, nor keep it from going."""
    admission, queue = workload.status.admission, facts.cluster_queue
    if queue is None and admission is not None:
        message = f"ClusterQueue {admission.cluster_queue} does not exist"
        return without_reservation(workload, names.REASON_MISCONFIGURED, message, now)
    if queue is not None and queue.metadata.is_deleting:
        message = f"ClusterQueue {queue.metadata.name} is being deleted"
        return without_reservation(workload, names.REASON_SUSPENDED, message, now)
    return workload
