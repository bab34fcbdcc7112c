"""A Workload that the user made beforehand and a job names as its own: waited for, taken over, or found not to fit.

It decides from the job and the named Workload. It must never take a Workload over that belongs to another job.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.api import names
from admission.api.decoding import plain
from admission.api.kueue import Workload
from admission.api.meta import TRUE, Condition, OwnerReference
from admission.jobs.effects import Patch, Ref, Severity, Tell
from admission.jobs.interface import Context, Outcome
from admission.jobs.statuses import is_finished, status_patch, with_condition, workload_ref

#: A Workload that nobody owns yet does not say whose unit to look at when it appears.
_LOOK_AGAIN = 5.0


def take(
    name: str, job: Ref, owner: OwnerReference, context: Context, says_the_same: Callable[[Workload], bool]
) -> Workload | Outcome:
    """The Workload, owned by the job and equal to it; otherwise what is to be done, or waited for."""
    workload = context.workload(job.namespace, name)
    if workload is None:
        tell = Tell(job, names.EVENT_COMPOSE_FAILED, f"The prebuilt workload {name} does not exist", Severity.WARNING)
        return Outcome((tell,), _LOOK_AGAIN)
    controller = workload.metadata.controller
    if controller is not None and controller.uid != owner.uid:
        message = f"The prebuilt workload {name} belongs to {controller.kind} {controller.name}"
        return Outcome((Tell(job, names.EVENT_WORKLOAD_NAME_CONFLICT, message, Severity.WARNING),))
    if is_finished(workload) or workload.metadata.is_deleting:
        return workload
    if not says_the_same(workload):
        message = "The prebuilt workload is out of sync with its user job"
        done = Condition(type=names.FINISHED, status=TRUE, reason=names.REASON_OUT_OF_SYNC, message=message)
        return Outcome(status_patch(workload, with_condition(workload, done, context.now)))
    if controller is None:
        owners = [*plain(workload.metadata.owner_references), plain(owner)]
        body = {"metadata": {"ownerReferences": owners}}
        return Outcome((Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),))
    return workload
