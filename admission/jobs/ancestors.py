"""Whether a job is part of a larger one that is queued itself, found by following controller references upwards.

It follows kinds that are known and objects that exist with the uid that the reference names. It never loops: of a chain
longer than ten it says so, as no job controller nests that deep.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.api.names import QUEUE_LABEL
from admission.jobs import statuses
from admission.jobs.composing import prebuilt_name, workload_name
from admission.jobs.interface import Context, Member

_DEEPEST = 10


@dataclass(frozen=True, slots=True)
class Ancestor:
    """The topmost managed owner, and whether its Workload lets it run. Beyond ten owners that cannot be told."""

    kind: str
    name: str
    is_admitted: bool
    is_too_deep: bool = False

    @property
    def message(self) -> str:
        return f'{self.kind} "{self.name}", which this is a part of, is not admitted'


def find(member: Member, context: Context) -> Ancestor | None:
    """The topmost owner that has a queue name, or any known one where jobs without a queue name are managed."""
    found: Ancestor | None = None
    namespace = member.metadata.namespace
    for depth in range(_DEEPEST + 1):
        reference = member.metadata.controller
        owner = None if reference is None else context.owner(namespace, reference)
        if reference is None or owner is None:
            break
        if depth == _DEEPEST:
            return Ancestor(reference.kind, owner.metadata.name, is_admitted=False, is_too_deep=True)
        meta = owner.metadata
        if meta.labels.get(QUEUE_LABEL) or context.settings.manage_jobs_without_queue_name:
            group, _, _ = reference.api_version.rpartition("/")
            short = context.settings.gate("ShortWorkloadNames")
            name = prebuilt_name(meta.labels, meta.annotations) or workload_name(
                reference.kind, group, meta.name, meta.uid, short=short
            )
            workload = context.workload(namespace, name)
            admitted = workload is not None and statuses.is_admitted(workload)
            found = Ancestor(reference.kind, meta.name, admitted)
        member = owner
    return found
