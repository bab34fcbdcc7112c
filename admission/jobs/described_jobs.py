"""The adapter of every kind of job that its operator suspends and starts by a field of the spec.

It reads a kind's `Description` and decides from the job and its Workload alone. Templates are changed in the same write
that suspends or starts the job, wherever the operator takes that, and always on the version that was looked at.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import msgspec

from admission.api import names
from admission.api.decoding import plain
from admission.api.job_kinds import CustomJob
from admission.api.kueue import PodSet, PodSetTopologyRequest, Workload
from admission.api.meta import FALSE, Condition, OwnerReference
from admission.jobs import ancestors, composing
from admission.jobs.ancestors import Ancestor
from admission.jobs.described import Change, Description, Role, Seen, Write, text, within
from admission.jobs.effects import Effect, Patch, Ref, Severity, Tell
from admission.jobs.eviction import without_reservation
from admission.jobs.gang import Verdict
from admission.jobs.injection import CannotStart, Directives, Injection, cleaned, injected
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.prebuilt import take
from admission.jobs.priority import ClassMissing, resolve
from admission.jobs.reconcile import abandoned, queue_problem, reconcile
from admission.jobs.shapes import runs_the_same, shape
from admission.jobs.statuses import (
    condition,
    holds_quota,
    is_finished,
    merge_patch,
    status_patch,
    with_condition,
    workload_ref,
)
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings


@dataclass(frozen=True, slots=True)
class DescribedJobs:
    """The adapter of one kind. Every job is a unit, together with the parts that its operator made for it."""

    description: Description

    @property
    def name(self) -> str:
        return self.framework

    @property
    def framework(self) -> str:
        return self.description.kind.framework

    @property
    def kinds(self) -> frozenset[str]:
        part = self.description.part
        return frozenset({self.description.kind.kind} if part is None else {self.description.kind.kind, part.kind})

    def unit_of(self, member: CustomJob, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam's signature
        namespace = member.metadata.namespace
        if member.kind == self.description.kind.kind:
            ignored = self.description.ignored(Seen(member))
            return None if ignored else UnitKey(self.name, namespace, member.metadata.name)
        owner = member.metadata.controller
        return None if owner is None or not self._is_ours(owner) else UnitKey(self.name, namespace, owner.name)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        owner = workload.metadata.controller
        if owner is None or not self._is_ours(owner):
            return ()
        return (UnitKey(self.name, workload.metadata.namespace, owner.name),)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        kind = self.description.kind.kind
        job = next((member for member in unit.members if member.kind == kind), None)
        if job is None:
            return Outcome(abandoned(kind, unit.workloads))
        parts = tuple(member for member in unit.members if member.kind != kind and _owner_uid(member) == _uid(job))
        gang = DescribedGang(self.description, Seen(job, parts))
        own = tuple(workload for workload in unit.workloads if _owner_uid(workload) == _uid(job))
        of_namesakes = tuple(workload for workload in unit.workloads if workload not in own)
        outcome = _reconcile(gang, own, context)
        return Outcome((*abandoned(kind, of_namesakes), *outcome.effects), outcome.requeue_after)

    def _is_ours(self, owner: OwnerReference) -> bool:
        kind = self.description.kind
        return owner.kind == kind.kind and owner.api_version.startswith(f"{kind.group}/")


def _reconcile(gang: DescribedGang, own: tuple[Workload, ...], context: Context) -> Outcome:
    is_managed = gang.queue_name or gang.prebuilt or context.settings.manage_jobs_without_queue_name
    if not is_managed:
        if not own:
            return Outcome()
        if not gang.runs and not any(holds_quota(workload) for workload in own):
            return Outcome(abandoned(gang.kind, own))  # it has left its queue
    if gang.prebuilt and not gang.is_over:
        taken = take(gang.prebuilt, gang.ref, gang.owner, context, gang.says_the_same)
        if isinstance(taken, Outcome):
            return taken
        own = (taken,)
    if gang.description.on_hold(gang.seen) and not gang.is_over:
        live = next((each for each in own if not is_finished(each) and not each.metadata.is_deleting), None)
        return Outcome(() if live is None else _put_on_hold(gang, live, context.now))
    return reconcile(gang, own, context)


def _put_on_hold(gang: DescribedGang, workload: Workload, now: float) -> tuple[Effect, ...]:
    """Its quota goes to others until its operator would run it: an edit that mends it must not start it."""
    message = f"The {gang.kind} is not run by its operator as it stands"
    stopping = gang.stop(workload, names.REASON_ON_HOLD, message)
    return stopping or status_patch(workload, without_reservation(workload, names.REASON_ON_HOLD, message, now))


def _uid(job: CustomJob) -> str:
    return job.metadata.uid


def _owner_uid(member: CustomJob | Workload) -> str:
    owner = member.metadata.controller
    return "" if owner is None else owner.uid


@dataclass(frozen=True, slots=True)
class DescribedGang:
    """One job."""

    description: Description
    seen: Seen

    # ------------------------------------------------------------------ who it is

    @property
    def job(self) -> CustomJob:
        return self.seen.job

    @property
    def kind(self) -> str:
        return self.description.kind.kind

    @property
    def members(self) -> tuple[CustomJob, ...]:
        return (self.job,)

    @property
    def ref(self) -> Ref:
        meta = self.job.metadata
        return Ref(self.kind, meta.namespace, meta.name, meta.uid)

    @property
    def owner(self) -> OwnerReference:
        meta = self.job.metadata
        return OwnerReference(self.description.kind.api_version, self.kind, meta.name, meta.uid, True, True)

    @property
    def waiting(self) -> tuple[Ref, ...]:
        return (self.ref,)

    @property
    def namespace(self) -> str:
        return self.job.metadata.namespace

    @property
    def queue_name(self) -> str:
        return self.job.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str:
        return self.job.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")

    @property
    def prebuilt(self) -> str:
        if not self.description.kind.takes_prebuilt:
            return ""
        return composing.prebuilt_name(self.job.metadata.labels, self.job.metadata.annotations)

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        return None if self.prebuilt else composing.admission_gates(self.job.metadata.annotations)

    def ancestor(self, context: Context) -> Ancestor | None:
        return ancestors.find(self.job, context)

    # ------------------------------------------------------------------ how it is

    @property
    def is_over(self) -> bool:
        """Pods of a job that is being deleted still occupy their nodes until its operator says otherwise."""
        return self.job.metadata.is_deleting and not self.is_active

    @property
    def runs(self) -> bool:
        return not self.job.is_suspended

    @property
    def is_active(self) -> bool:
        return self.description.active(self.seen)

    @property
    def verdict(self) -> Verdict | None:
        return self.description.verdict(self.seen)

    def is_ready(self, workload: Workload) -> bool:  # noqa: ARG002  # the operator counts what it was told to start
        return self.runs and self.description.ready(self.seen)

    def reclaimable(self, workload: Workload) -> dict[str, int]:  # noqa: ARG002
        return self.description.reclaimable(self.seen)

    # ------------------------------------------------------------------ to a Workload

    def pod_sets(self) -> tuple[PodSet, ...] | None:
        """None while the operator has not said which pods there are."""
        roles = self.description.roles(self.seen)
        return None if roles is None else tuple(_pod_set(role) for role in roles)

    def says_the_same(self, workload: Workload) -> bool:
        """Whether the Workload's pod sets are the job's.

        Once started, the directives in its templates are changed. While it waits, all that a user can still edit has
        to be in the Workload.
        """
        mine, theirs = self.pod_sets(), workload.spec.pod_sets
        if mine is None:
            return True
        if [(each.name, each.count) for each in mine] != [(each.name, each.count) for each in theirs]:
            return False
        if self.runs or holds_quota(workload):
            return all(runs_the_same(own.template, other.template) for own, other in zip(mine, theirs, strict=True))
        return all(shape(own.template) == shape(other.template) for own, other in zip(mine, theirs, strict=True))

    def matches(self, workload: Workload) -> bool:
        if self.prebuilt:
            return True
        limit = composing.maximum_execution_time(self.job.metadata.labels)
        return workload.spec.maximum_execution_time_seconds == limit and self.says_the_same(workload)

    def update(self, workload: Workload) -> tuple[Effect, ...]:
        pod_sets = self.pod_sets()
        if pod_sets is None:
            return ()
        body = {
            "spec": {
                "podSets": plain(pod_sets),
                "maximumExecutionTimeSeconds": composing.maximum_execution_time(self.job.metadata.labels),
            }
        }
        return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)

    def compose(self, context: Context) -> Outcome:
        meta, kind, settings = self.job.metadata, self.description.kind, context.settings
        if not self.queue_name:
            return Outcome(queue_problem(self, context))
        pod_sets = self.pod_sets()
        if not pod_sets:
            return Outcome()
        classes = (
            self.description.priority_class(self.seen),
            *(shape(each.template).spec.priority_class_name for each in pod_sets),
        )
        priority = resolve(self.priority_class, classes, context, meta.namespace)
        if isinstance(priority, ClassMissing):
            reason = names.EVENT_PRIORITY_CLASS_NOT_FOUND
            return Outcome((Tell(self.ref, reason, priority.message, Severity.WARNING),))
        parts = composing.Composition(
            namespace=meta.namespace,
            name=composing.workload_name(
                kind.kind, kind.group, meta.name, meta.uid, short=settings.gate("ShortWorkloadNames")
            ),
            queue=self.queue_name,
            pod_sets=pod_sets,
            priority=priority,
            owners=(self.owner,),
            job_uid=meta.uid,
            maximum_execution_time_seconds=composing.maximum_execution_time(meta.labels),
            labels=composing.copied_labels(meta.labels, settings.integrations.label_keys_to_copy),
            annotations=composing.copied_annotations(meta.annotations),
        )
        return Outcome((composing.create(parts), *queue_problem(self, context)))

    # ------------------------------------------------------------------ nothing of its own

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:  # noqa: ARG002
        return Outcome()

    def with_conditions(self, workload: Workload, now: float) -> Workload:
        """What was on hold waits again."""
        held = condition(workload, names.QUOTA_RESERVED)
        if held is None or held.reason != names.REASON_ON_HOLD:
            return workload
        message = f"The {self.kind} can run again"
        again = Condition(names.QUOTA_RESERVED, FALSE, names.REASON_PENDING_EVALUATION, message)
        return with_condition(workload, again, now)

    def finalize(self) -> tuple[Effect, ...]:
        return ()

    # ------------------------------------------------------------------ and back

    def start(self, workload: Workload, injected_sets: tuple[Injection, ...]) -> tuple[Effect, ...] | CannotStart:
        is_elsewhere = text(self.job.spec, *self.description.managed_by) == names.MULTIKUEUE_CONTROLLER
        if self.runs or self.is_active or is_elsewhere:
            return ()
        roles = {role.name: role for role in self.description.roles(self.seen) or ()}
        changes: list[Change] = []
        for pod_set, injection in zip(workload.spec.pod_sets, injected_sets, strict=True):
            wanted = injected(pod_set.template, injection)
            if isinstance(wanted, CannotStart):
                return wanted
            role = roles.get(pod_set.name) or Role(pod_set.name, pod_set.count, pod_set.template, None)
            changes.append((role, Directives.of(pod_set.template), wanted))
        queue = workload.status.admission.cluster_queue if workload.status.admission else ""
        told = Tell(self.ref, names.EVENT_STARTED, f"Admitted by clusterQueue {queue}")
        if not self.description.injects_first:
            return (self._patch(self.description.write, changes, suspend=False), told)
        injecting = self._patch(self.description.write, changes)
        if injecting.body:
            return (injecting,)  # what was injected is looked at once more, with the job as it is then
        return (Patch(self.ref, self._suspend(False), resource_version=self.job.metadata.resource_version), told)

    def stop(self, workload: Workload | None, reason: str, message: str) -> tuple[Effect, ...]:  # noqa: ARG002
        """Suspend, and in the same write take out of the templates what the start put in."""
        if not self.runs or self.verdict is not None:
            return ()
        told = Tell(self.ref, names.EVENT_STOPPED, message)
        if workload is None or self.description.restores_last:
            return (Patch(self.ref, self._suspend(True)), told)
        return (self._patch(self.description.restore, self._back(workload), suspend=True), told)

    def restore(self, workload: Workload) -> tuple[Effect, ...]:
        """What is left of a start in a job that was suspended by somebody else, or that cannot be restored before.

        A job that was not started has nothing to restore: what differs there is the user's edit.
        """
        if self.runs or self.is_active or self.verdict is not None:
            return ()
        if not (holds_quota(workload) or self.description.restores_last or self._is_injected()):
            return ()
        patch = self._patch(self.description.restore, self._back(workload))
        return (patch,) if patch.body else ()

    def _is_injected(self) -> bool:
        roles = self.description.roles(self.seen) or ()
        return any(names.PODSET_LABEL in Directives.of(role.template).labels for role in roles)

    def _back(self, workload: Workload) -> list[Change]:
        """To what the Workload says, role by role; what it does not know stays as it is."""
        said = {each.name: Directives.of(each.template) for each in workload.spec.pod_sets}
        roles = self.description.roles(self.seen) or ()
        return [(role, Directives.of(role.template), said[role.name]) for role in roles if role.name in said]

    def _patch(self, write: Write, changes: list[Change], *, suspend: bool | None = None) -> Patch:
        """One write from the spec as it is; lists are replaced whole, so only on the version that was looked at."""
        spec = copy.deepcopy(self.job.spec)
        write(spec, changes)
        body: dict[str, Any] = merge_patch({"spec": self.job.spec}, {"spec": spec})
        if suspend is not None:
            path = self.description.kind.suspend
            target = body.setdefault("spec", {})
            for part in path[:-1]:
                target = within(target, part)
            target[path[-1]] = suspend
        return Patch(self.ref, body, resource_version=self.job.metadata.resource_version)

    def _suspend(self, value: bool) -> dict[str, Any]:  # it is the field's value
        body: Any = value
        for part in reversed(self.description.kind.suspend):
            body = {part: body}
        return {"spec": body}


def _pod_set(role: Role) -> PodSet:
    template = cleaned(role.template)
    request = topology_request(Directives.of(template).annotations, role.index_label)
    return PodSet(name=role.name, count=role.count, template=template, topology_request=_with_groups(request, role))


def _with_groups(request: PodSetTopologyRequest | None, role: Role) -> PodSetTopologyRequest | None:
    """How the pods are numbered: not at all, one after the other, or within each of several groups."""
    if request is None:
        return None
    return msgspec.structs.replace(
        request,
        pod_index_label=role.index_label or None,
        sub_group_index_label=role.group_label or None,
        sub_group_count=role.groups,
    )
