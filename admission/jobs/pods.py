"""A single pod: gated while it waits, let go with the directives of its admission, deleted when it has to stop.

It decides from the pod and its Workload. A pod that was stopped is over, as nothing replaces it; it must never be held
by Muster's finalizer longer than it runs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from admission.api import names
from admission.api.core import POD_SUCCEEDED, LimitRange, Pod, is_terminal
from admission.api.kueue import PodSet, Workload
from admission.jobs import composing, pod_states
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Effect, Ref, Severity, Tell
from admission.jobs.gang import Verdict
from admission.jobs.injection import CannotStart, Injection
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.placement import place
from admission.jobs.prebuilt import take
from admission.jobs.priority import ClassMissing, resolve
from admission.jobs.reconcile import abandoned, queue_problem, reconcile
from admission.jobs.shapes import asks_for_more, shape
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings


class SinglePods:
    """The adapter of managed pods that name no group."""

    name = "pod"
    framework = names.POD_INTEGRATION
    kinds = frozenset({pod_states.KIND})

    def unit_of(self, member: Pod, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam's signature
        if not pod_states.is_managed(member) or pod_states.group_name(member) or pod_states.was_one_of_many(member):
            return None
        return UnitKey(self.name, member.metadata.namespace, member.metadata.name)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        owner = workload.metadata.controller
        if owner is None or owner.kind != pod_states.KIND:
            return ()
        return (UnitKey(self.name, workload.metadata.namespace, owner.name),)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        if not unit.members:
            return Outcome(abandoned(pod_states.KIND, unit.workloads))
        pod: Pod = unit.members[0]
        gang = PodGang(pod, context.now, context.settings.gate("FastQuotaReleaseInPodIntegration"))
        own = tuple(workload for workload in unit.workloads if gang.owns(workload))
        of_namesakes = tuple(workload for workload in unit.workloads if workload not in own)
        outcome = self._reconcile(gang, own, context)
        return Outcome((*abandoned(pod_states.KIND, of_namesakes), *outcome.effects), outcome.requeue_after)

    def _reconcile(self, gang: PodGang, own: tuple[Workload, ...], context: Context) -> Outcome:
        prebuilt = composing.prebuilt_name(gang.pod.metadata.labels, gang.pod.metadata.annotations)
        if prebuilt and not gang.is_over:
            owner = pod_states.owner(gang.pod, controller=True)
            ranges = tuple(context.limit_ranges(gang.namespace))
            taken = take(prebuilt, pod_states.ref(gang.pod), owner, context, partial(gang.fits, ranges))
            if isinstance(taken, Outcome):
                return taken
            own = (taken,)
        return reconcile(gang, own, context)


@dataclass(frozen=True, slots=True)
class PodGang:
    """One pod at one time."""

    pod: Pod
    now: float
    gives_back_at_once: bool = False

    @property
    def kind(self) -> str:
        return pod_states.KIND

    @property
    def members(self) -> tuple[Pod, ...]:
        return (self.pod,)

    @property
    def waiting(self) -> tuple[Ref, ...]:
        return (pod_states.ref(self.pod),) if pod_states.is_waiting(self.pod) else ()

    @property
    def namespace(self) -> str:
        return self.pod.metadata.namespace

    @property
    def queue_name(self) -> str:
        return self.pod.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str:
        return self.pod.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        meta = self.pod.metadata
        is_prebuilt = composing.prebuilt_name(meta.labels, meta.annotations)
        return None if is_prebuilt else composing.admission_gates(meta.annotations)

    def fits(self, limit_ranges: tuple[LimitRange, ...], workload: Workload) -> bool:
        """Whether a Workload that somebody made beforehand is for such a pod. One that runs was let go with it."""
        if not pod_states.is_waiting(self.pod):
            return True
        pod_sets = workload.spec.pod_sets
        return len(pod_sets) == 1 and not asks_for_more(self.pod.spec, shape(pod_sets[0].template).spec, limit_ranges)

    def owns(self, workload: Workload) -> bool:
        owner = workload.metadata.controller
        return owner is not None and owner.uid == self.pod.metadata.uid

    def ancestor(self, context: Context) -> Ancestor | None:  # noqa: ARG002  # the webhook gates only topmost pods
        return None

    @property
    def is_over(self) -> bool:
        return pod_states.is_leaving(self.pod)

    @property
    def runs(self) -> bool:
        return pod_states.runs(self.pod)

    @property
    def is_active(self) -> bool:
        return pod_states.is_active(self.pod, self.now, gives_back_at_once=self.gives_back_at_once)

    @property
    def verdict(self) -> Verdict | None:
        if not is_terminal(self.pod):
            return None
        success = self.pod.status.phase == POD_SUCCEEDED
        return Verdict(success, self.pod.status.message or f"The pod has {self.pod.status.phase.lower()}")

    def is_ready(self, workload: Workload) -> bool:  # noqa: ARG002
        return pod_states.is_ready(self.pod)

    def reclaimable(self, workload: Workload) -> dict[str, int]:  # noqa: ARG002
        return {}

    def matches(self, workload: Workload) -> bool:
        meta = self.pod.metadata
        limit = composing.maximum_execution_time(meta.labels)
        is_like_it = bool(composing.prebuilt_name(meta.labels, meta.annotations)) or self.fits((), workload)
        return is_like_it and workload.spec.maximum_execution_time_seconds == limit

    def update(self, workload: Workload) -> tuple[Effect, ...]:  # noqa: ARG002  # made anew instead
        return ()

    def compose(self, context: Context) -> Outcome:
        meta = self.pod.metadata
        if not self.queue_name:
            return Outcome(queue_problem(self, context))
        priority = resolve(self.priority_class, (self.pod.spec.priority_class_name,), context, meta.namespace)
        if isinstance(priority, ClassMissing):
            reason = names.EVENT_PRIORITY_CLASS_NOT_FOUND
            return Outcome((Tell(pod_states.ref(self.pod), reason, priority.message, Severity.WARNING),))
        pod_set = PodSet(
            name=names.DEFAULT_POD_SET,
            template=pod_states.template(self.pod),
            count=1,
            topology_request=topology_request(meta.annotations, names.POD_GROUP_POD_INDEX),
        )
        parts = composing.Composition(
            namespace=meta.namespace,
            name=composing.workload_name(
                pod_states.KIND, "", meta.name, meta.uid, short=context.settings.gate("ShortWorkloadNames")
            ),
            queue=self.queue_name,
            pod_sets=(pod_set,),
            priority=priority,
            owners=(pod_states.owner(self.pod, controller=True),),
            job_uid=meta.uid,
            maximum_execution_time_seconds=composing.maximum_execution_time(meta.labels),
            labels=composing.copied_labels(meta.labels, context.settings.integrations.label_keys_to_copy),
            annotations=composing.copied_annotations(meta.annotations),
        )
        return Outcome((composing.create(parts), *queue_problem(self, context)))

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:  # noqa: ARG002
        left = pod_states.grace_left(self.pod, self.now)
        return Outcome(requeue_after=left or None)

    def with_conditions(self, workload: Workload, now: float) -> Workload:  # noqa: ARG002
        return workload

    def start(self, workload: Workload, injected: tuple[Injection, ...]) -> tuple[Effect, ...] | CannotStart:
        if not pod_states.is_waiting(self.pod):
            return ()
        injection = injected[0]
        domain = {}
        if injection.topology is not None:
            placed = place((self.pod,), (), injection.topology, workload.spec.pod_sets[0])
            domain = dict(placed.get(self.pod.metadata.uid, {}))
        patch = pod_states.ungated(self.pod, injection, domain)
        return patch if isinstance(patch, CannotStart) else (patch,)

    def stop(self, workload: Workload | None, reason: str, message: str) -> tuple[Effect, ...]:  # noqa: ARG002
        return pod_states.terminated((self.pod,), message, self.now) if self.runs else ()

    def restore(self, workload: Workload) -> tuple[Effect, ...]:  # noqa: ARG002  # a stopped pod is over
        return ()

    def finalize(self) -> tuple[Effect, ...]:
        return pod_states.let_go((self.pod,))
