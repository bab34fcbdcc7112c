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
from admission.api.job_kinds import CustomJob
from admission.api.kueue import PodSet, PodSetTopologyRequest, Workload
from admission.jobs import composing
from admission.jobs.described import Change, Description, Role, Seen, Write, text, within
from admission.jobs.effects import Effect, Patch, Tell
from admission.jobs.eviction import without_reservation
from admission.jobs.gang import Verdict
from admission.jobs.injection import CannotStart, Directives, Injection, cleaned, injected
from admission.jobs.interface import Context, Outcome, Unit, UnitKey, units_of_controller
from admission.jobs.reconcile import abandoned
from admission.jobs.shapes import runs_the_same, shape
from admission.jobs.single_jobs import SingleJob, lead
from admission.jobs.statuses import holds_quota, is_finished, merge_patch, status_patch, taken_off_hold
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
        return next(iter(self._named_by(member)), None)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        return self._named_by(workload)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        kind = self.description.kind.kind
        job = next((member for member in unit.members if member.kind == kind), None)
        if job is None:
            return Outcome(abandoned(kind, unit.workloads))
        uid = job.metadata.uid
        parts = tuple(each for each in unit.members if each.kind != kind and each.metadata.controller_uid == uid)
        return lead(DescribedGang(self.description, Seen(job, parts)), unit.workloads, context)

    def _named_by(self, obj: CustomJob | Workload) -> tuple[UnitKey, ...]:
        kind = self.description.kind
        return units_of_controller(self.name, obj, kind.group, kind.kind)


@dataclass(frozen=True, slots=True)
class DescribedGang(SingleJob):
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
    def api_version(self) -> str:
        return self.description.kind.api_version

    @property
    def members(self) -> tuple[CustomJob, ...]:
        return (self.job,)

    @property
    def pod_priority_class(self) -> str:
        return self.description.priority_class(self.seen)

    @property
    def prebuilt(self) -> str:
        if not self.description.kind.takes_prebuilt:
            return ""
        return composing.prebuilt_name(self.metadata.labels, self.metadata.annotations)

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

    # ------------------------------------------------------------------ on hold

    def on_hold(self, own: tuple[Workload, ...], context: Context) -> Outcome | None:
        """Its quota goes to others until its operator would run it: an edit that mends it must not start it."""
        if self.is_over or not self.description.on_hold(self.seen):
            return None
        live = next((each for each in own if not is_finished(each) and not each.metadata.is_deleting), None)
        if live is None:
            return Outcome()
        message = f"The {self.kind} is not run by its operator as it stands"
        stopping = self.stop(live, names.REASON_ON_HOLD, message)
        held = without_reservation(live, names.REASON_ON_HOLD, message, context.now)
        return Outcome(stopping or status_patch(live, held))

    def with_conditions(self, workload: Workload, now: float) -> Workload:
        return taken_off_hold(workload, f"The {self.kind} can run again", now)

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
        told = self.started(workload)
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
