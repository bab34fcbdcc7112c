"""When a Workload that has ended, or that nobody owns any more, goes away.

Decided from the retention settings, the owner references and the times of the conditions. It must never delete a
Workload that still holds quota, nor write to a finished one that is to be kept.
"""

from __future__ import annotations

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import conditions
from admission.controllers.changes import ref
from admission.controllers.rules import Facts, Ownership, Step, event, without_finalizer
from admission.jobs.effects import Delete, Ref, Tell


def orphans(workload: Workload, facts: Facts, now: float) -> Step:
    """One without owners that is deleted is let go; one whose job is known to be lost is finished and let go."""
    if facts.ownership is not Ownership.NONE:
        return Step(workload)
    kept = names.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers
    if workload.metadata.is_deleting:
        return Step(without_finalizer(workload) if kept else workload)
    if names.JOB_UID_LABEL not in workload.metadata.labels or not facts.settings.gate("FinishOrphanedWorkloads"):
        return Step(workload)
    if not conditions.is_finished(workload):
        message = "The job of this workload does not exist any more"
        return Step(
            conditions.with_condition(
                workload, names.FINISHED, true=True, reason=names.REASON_OWNER_NOT_FOUND, message=message, now=now
            )
        )
    return Step(without_finalizer(workload) if kept else workload)


def finished(workload: Workload, facts: Facts, now: float) -> Step:
    """A finished Workload is deleted after `afterFinished`, its finalizer first."""
    policies = facts.settings.object_retention_policies
    delay = None if policies is None else policies.workloads.after_finished
    ended = conditions.since(workload, names.FINISHED)
    if delay is None or ended is None or workload.metadata.is_deleting:
        return Step(workload)
    if now < ended + delay:
        return Step(workload, wake_at=ended + delay)
    if names.RESOURCE_IN_USE_FINALIZER in workload.metadata.finalizers:
        return Step(without_finalizer(workload))
    return Step(
        workload,
        tells=(event(workload, names.EVENT_DELETED, "Deleted because it has been finished for long enough"),),
        deletes=(Delete(ref("Workload", workload)),),
    )


def deactivated(workload: Workload, facts: Facts, now: float) -> Step:
    """The job of a Workload that was deactivated by the system is deleted after `afterDeactivatedByKueue`."""
    policies = facts.settings.object_retention_policies
    delay = None if policies is None else policies.workloads.after_deactivated_by_kueue
    going = conditions.condition(workload, names.EVICTED)
    since = conditions.since(workload, names.EVICTED)
    if delay is None or going is None or since is None or conditions.is_active(workload):
        return Step(workload)
    if going.status != "True" or not going.reason.startswith(names.EVICTED_BY_DEACTIVATION_PREFIX):
        return Step(workload)
    if now < since + delay:
        return Step(workload, wake_at=since + delay)
    if facts.ownership is not Ownership.JOB:
        return Step(workload)
    namespace = workload.metadata.namespace
    jobs = [Ref(owner.kind, namespace, owner.name, owner.uid) for owner in workload.metadata.owner_references]
    message = "Deleted because its workload has been deactivated for long enough"
    return Step(
        workload,
        tells=tuple(Tell(job, names.EVENT_DELETED, message) for job in jobs),
        deletes=tuple(Delete(job) for job in jobs),
    )
