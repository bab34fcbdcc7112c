"""What a running gang reports into its Workload's status: PodsReady and the pods whose quota can be given back.

Both are worked out from the gang as observed and change the status only where they differ from it. They must never cost
a write for a Workload of which nothing is known yet: a missing PodsReady means the same as a False one.
"""

from __future__ import annotations

from collections.abc import Mapping

from admission.api import names
from admission.api.kueue import ReclaimablePod, Workload
from admission.api.meta import FALSE, TRUE, Condition
from admission.jobs.statuses import condition, holds_quota, is_admitted, with_condition, with_status

_RECOVERY = frozenset({names.REASON_WAIT_FOR_RECOVERY, names.REASON_RECOVERED})


def with_readiness(workload: Workload, now: float, *, ready: bool) -> Workload:
    """PodsReady by Kueue's rules: waiting for the start, started, waiting for recovery, recovered."""
    old = condition(workload, names.PODS_READY)
    was_ready = old is not None and old.status == TRUE
    if is_admitted(workload) and ready:
        recovered = old is not None and old.reason in _RECOVERY
        reason = names.REASON_RECOVERED if recovered else names.REASON_STARTED
        return _with(workload, TRUE, reason, "All pods reached readiness and the workload is running", now)
    if not was_ready:
        return workload
    if is_admitted(workload):
        return _with(workload, FALSE, names.REASON_WAIT_FOR_RECOVERY, "At least one pod is not ready any more", now)
    if holds_quota(workload):  # evicted: the release, which is to come, says so in one write
        return workload
    return _with(workload, FALSE, names.REASON_WAIT_FOR_START, "Not all pods are ready or succeeded", now)


def _with(workload: Workload, status: str, reason: str, message: str, now: float) -> Workload:
    old = condition(workload, names.PODS_READY)
    if old is not None and (old.status, old.reason) == (status, reason):
        return workload
    return with_condition(workload, Condition(names.PODS_READY, status, reason, message), now)


def with_reclaimable(workload: Workload, counts: Mapping[str, int]) -> Workload:
    """The pods given back, at most as many as there are; while quota is held never fewer than before."""
    before = {entry.name: entry.count for entry in workload.status.reclaimable_pods}
    least = before if holds_quota(workload) else {}
    after = {}
    for pod_set in workload.spec.pod_sets:
        count = min(pod_set.count, max(counts.get(pod_set.name, 0), least.get(pod_set.name, 0)))
        if count > 0:
            after[pod_set.name] = count
    if after == before:
        return workload
    return with_status(workload, reclaimable_pods=tuple(ReclaimablePod(name, count) for name, count in after.items()))
