"""A gang that serves: the pods that a StatefulSet, or one group of a LeaderWorkerSet, wants to have for good.

It decides from the owner (what is wanted), its pods and its Workload. The Workload is made from the owner, before there
are any pods; it never ends, gives nothing back while it runs, and no pod of it is let go beyond what was admitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from admission.api import names
from admission.api.core import Pod, PodTemplateSpec
from admission.api.decoding import convert, plain
from admission.api.kueue import PodSet, Workload
from admission.api.meta import FALSE, Condition, OwnerReference
from admission.jobs import ancestors, composing, pod_states
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Delete, Effect, Patch, Ref, Severity, Tell
from admission.jobs.eviction import released, without_reservation
from admission.jobs.gang import Verdict
from admission.jobs.interface import Context, Member, Outcome
from admission.jobs.pod_groups import PodGroupGang
from admission.jobs.pod_sets import pod_spec
from admission.jobs.priority import ClassMissing, resolve
from admission.jobs.reconcile import queue_problem, reconcile
from admission.jobs.requests import Misconfigured
from admission.jobs.roles import scheduling_shape
from admission.jobs.statuses import (
    condition,
    holds_quota,
    is_evicted,
    is_finished,
    is_on_hold,
    status_patch,
    taken_off_hold,
    with_condition,
    without_finalizer,
    workload_ref,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the owner wants of one gang. `index` is the gang's place among several of one owner."""

    owner: Member
    kind: str
    group: str
    workload_name: str
    pod_sets: tuple[PodSet, ...]
    index: int | None = None

    @property
    def ref(self) -> Ref:
        meta = self.owner.metadata
        return Ref(self.kind, meta.namespace, meta.name, meta.uid)

    @property
    def reference(self) -> OwnerReference:
        meta = self.owner.metadata
        return OwnerReference(f"{self.group}/v1", self.kind, meta.name, meta.uid, True, True)

    @property
    def count(self) -> int:
        return sum(pod_set.count for pod_set in self.pod_sets)


@dataclass(frozen=True, slots=True)
class ServingGang(PodGroupGang):
    """One such gang at one time, whose owner is there to stay."""

    wanted: Wanted = field(kw_only=True)

    # ------------------------------------------------------------------ who it is

    @property
    def kind(self) -> str:
        return self.wanted.kind

    @property
    def members(self) -> tuple[Any, ...]:
        return (self.wanted.owner, *self.facts.pods)

    @property
    def waiting(self) -> tuple[Ref, ...]:
        gated = (pod_states.ref(pod) for pod in self.facts.pods if pod_states.is_waiting(pod))
        return (self.wanted.ref, *gated)

    @property
    def namespace(self) -> str:
        return self.wanted.owner.metadata.namespace

    @property
    def queue_name(self) -> str:
        return self.wanted.owner.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str:
        return self.wanted.owner.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        return composing.admission_gates(self.wanted.owner.metadata.annotations)

    def ancestor(self, context: Context) -> Ancestor | None:
        return ancestors.find(self.wanted.owner, context)

    # ------------------------------------------------------------------ how it is

    @property
    def is_over(self) -> bool:
        return False

    @property
    def verdict(self) -> Verdict | None:
        return None

    def with_conditions(self, workload: Workload, now: float) -> Workload:
        return taken_off_hold(workload, f"The {self.kind} wants pods again", now)

    # ------------------------------------------------------------------ to a Workload

    @property
    def _limit(self) -> int | None:
        return composing.maximum_execution_time(self.wanted.owner.metadata.labels)

    def says_the_same(self, workload: Workload) -> bool:
        mine, theirs = self.wanted.pod_sets, workload.spec.pod_sets
        return len(mine) == len(theirs) and all(
            (one.name, one.count, one.topology_request) == (other.name, other.count, other.topology_request)
            and shape(one) == shape(other)
            for one, other in zip(mine, theirs, strict=True)
        )

    def matches(self, workload: Workload) -> bool:
        """While quota is held, it is what counts, for pods of this shape: whatever is more than that stays gated."""
        if not self.wanted.count:
            return True
        if holds_quota(workload):
            return has_shapes_of(workload, self.wanted)
        return workload.spec.maximum_execution_time_seconds == self._limit and self.says_the_same(workload)

    def update(self, workload: Workload) -> tuple[Effect, ...]:
        body = {
            "spec": {"podSets": plain(self.wanted.pod_sets), "maximumExecutionTimeSeconds": self._limit},
        }
        return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)

    def compose(self, context: Context) -> Outcome:
        if not self.wanted.count:
            return Outcome()
        if not self.queue_name:
            return Outcome(queue_problem(self, context))
        classes = (_priority_class(pod_set) for pod_set in self.wanted.pod_sets)
        priority = resolve(self.priority_class, classes, context, self.namespace)
        if isinstance(priority, ClassMissing):
            reason = names.EVENT_PRIORITY_CLASS_NOT_FOUND
            return Outcome(tuple(Tell(ref, reason, priority.message, Severity.WARNING) for ref in self.waiting))
        meta = self.wanted.owner.metadata
        annotations = {
            **composing.copied_annotations(meta.annotations),
            names.JOB_OWNER_GVK: gvk(self.wanted.group, self.kind),
            names.JOB_OWNER_NAME: meta.name,
        }
        if self.wanted.index is not None:
            annotations[names.COMPONENT_WORKLOAD_INDEX] = str(self.wanted.index)
        parts = composing.Composition(
            namespace=meta.namespace,
            name=self.wanted.workload_name,
            queue=self.queue_name,
            pod_sets=self.wanted.pod_sets,
            priority=priority,
            owners=(self.wanted.reference,),
            job_uid=meta.uid,
            maximum_execution_time_seconds=self._limit,
            labels=composing.copied_labels(meta.labels, context.settings.integrations.label_keys_to_copy),
            annotations=annotations,
        )
        return Outcome((composing.create(parts), *queue_problem(self, context)))

    # ------------------------------------------------------------------ order among its pods

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:
        """Pods get the labels of their owner while they wait; those that cannot be let go are told why."""
        facts = self.facts
        effects: list[Effect] = []
        for pod in facts.pods:
            effects += self._dressed(pod)
        effects += pod_states.let_go(facts.departing)
        if workload is not None:
            effects += self._misfits(workload)
        times = [left for pod in facts.pods if (left := pod_states.grace_left(pod, context.now)) > 0]
        return Outcome(tuple(effects), min(times, default=None))

    def _misfits(self, workload: Workload) -> list[Tell]:
        name = self.wanted.owner.metadata.name
        why = {
            pod.metadata.uid: f"The pod is none of the {self.kind} {name}, or asks for more devices than that one says"
            for pod in self.facts.outsiders
        }
        if holds_quota(workload):
            beyond = f"Only {self.facts.total} pods were admitted. Scale to 0 first, then to the number of pods wanted"
            why |= {pod.metadata.uid: beyond for pod in self.facts.excess}
        return [
            Tell(pod_states.ref(pod), names.EVENT_COMPOSE_FAILED, why[pod.metadata.uid], Severity.WARNING)
            for pod in self.facts.pods
            if pod.metadata.uid in why and pod_states.is_waiting(pod)
        ]

    def _dressed(self, pod: Pod) -> tuple[Patch, ...]:
        if not pod_states.is_waiting(pod):
            return ()
        wanted = {names.QUEUE_LABEL: self.queue_name, names.PRIORITY_CLASS_LABEL: self.priority_class}
        labels = {key: value for key, value in wanted.items() if value and pod.metadata.labels.get(key) != value}
        return (Patch(pod_states.ref(pod), {"metadata": {"labels": labels}}),) if labels else ()


# ------------------------------------------------------------------ leading it


def serve(gang: ServingGang, own: tuple[Workload, ...], context: Context) -> Outcome:
    """The way of every gang; before it what only these have: on hold without pods, and another size."""
    workload = gang.facts.workload
    if workload is None or is_finished(workload) or workload.metadata.is_deleting:
        return reconcile(gang, own, context)
    is_busy = gang.runs or gang.is_active
    if not gang.wanted.count and workload.spec.active is not False:
        if is_busy or (is_on_hold(workload) and not holds_quota(workload)):
            return Outcome((), gang.tidy(workload, context).requeue_after)
        message = f"The {gang.kind} is scaled to zero"
        return Outcome(status_patch(workload, _without_quota(workload, names.REASON_ON_HOLD, message, context.now)))
    resized = [pod_set.count for pod_set in gang.wanted.pod_sets] != [each.count for each in workload.spec.pod_sets]
    if resized and holds_quota(workload) and not is_busy and not is_evicted(workload):
        message = f"The {gang.kind} has another size than what was admitted"
        changed = _without_quota(workload, names.REASON_PENDING_EVALUATION, message, context.now)
        return Outcome(status_patch(workload, changed))
    return reconcile(gang, own, context)


def left_behind(workloads: Iterable[Workload], pods: Iterable[Pod], context: Context) -> Outcome:
    """What nobody wants any more keeps its quota until its pods are gone, and then goes."""
    at_once = context.settings.gate("FastQuotaReleaseInPodIntegration")
    there, several = list(pods), list(workloads)
    busy = [
        pod
        for pod in there
        if pod_states.runs(pod) or pod_states.is_active(pod, context.now, gives_back_at_once=at_once)
    ]
    if busy:
        times = [left for pod in busy if (left := pod_states.grace_left(pod, context.now)) > 0]
        evicted = next(
            (found for each in several if is_evicted(each) and (found := condition(each, names.EVICTED))), None
        )
        running = [pod for pod in busy if pod_states.runs(pod)]
        stopping = () if evicted is None else pod_states.terminated(running, evicted.message, context.now)
        return Outcome(stopping, min(times, default=None))
    effects: list[Effect] = list(pod_states.let_go(there))
    for workload in several:
        ref, finalizers = workload_ref(workload), workload.metadata.finalizers
        if workload.metadata.is_deleting:
            effects += without_finalizer(ref, finalizers, names.RESOURCE_IN_USE_FINALIZER)
        else:
            # Whoever deletes an owner and not its pods takes the owner off the Workload: then it is to stay.
            effects.append(Delete(ref, resource_version=workload.metadata.resource_version))
    return Outcome(tuple(effects))


def joined(outcomes: Iterable[Outcome]) -> Outcome:
    """All effects, and the soonest time to look again."""
    every = list(outcomes)
    times = [each.requeue_after for each in every if each.requeue_after is not None]
    return Outcome(tuple(effect for each in every for effect in each.effects), min(times, default=None))


def main_workload(workloads: Iterable[Workload]) -> Workload | None:
    """The one to lead by: what holds quota, then what lives."""
    ordered = sorted(
        workloads,
        key=lambda each: (
            not holds_quota(each),
            is_finished(each),
            each.metadata.is_deleting,
            each.metadata.creation_timestamp or "",
            each.metadata.name,
        ),
    )
    return ordered[0] if ordered else None


def is_parent(template: Mapping[str, Any], framework: str) -> bool:
    """Whether the webhook has seen to it that the pods of this template wait for their owner's Workload."""
    try:
        annotations = convert(template, PodTemplateSpec).metadata.annotations
    except msgspec.ValidationError:  # from before the webhook, or a CRD that takes anything
        return False
    return annotations.get(names.POD_SUSPENDING_PARENT) == framework


def gvk(group: str, kind: str) -> str:
    """The kind of an owner, as it stands in an annotation."""
    return f"{group}/v1, Kind={kind}"


def has_shapes_of(workload: Workload, wanted: Wanted) -> bool:
    """Whether the Workload is for such pods, however many, and whatever its pod sets are called."""
    return [shape(each) for each in workload.spec.pod_sets] == [shape(each) for each in wanted.pod_sets]


def shape(pod_set: PodSet) -> dict[str, Any]:
    """What decides where its pods can run and what they take; whole, as the short hash of a role can be met."""
    return scheduling_shape(pod_set.template.get("spec") or {})


def _without_quota(workload: Workload, reason: str, message: str, now: float) -> Workload:
    if not holds_quota(workload):
        return with_condition(workload, Condition(names.QUOTA_RESERVED, FALSE, reason, message), now)
    if is_evicted(workload):
        workload = released(workload, now)
    return without_reservation(workload, reason, message, now)


def _priority_class(pod_set: PodSet) -> str:
    spec = pod_spec(pod_set)
    return "" if isinstance(spec, Misconfigured) else spec.priority_class_name
