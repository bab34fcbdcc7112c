"""A single pod: gated while it waits, let go with the directives of its admission, deleted when it has to stop.

It decides from the pod and its Workload. A pod that was stopped is over, as nothing replaces it; it must never be held
by Muster's finalizer longer than it runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from admission.api import names
from admission.api.core import POD_SUCCEEDED, LimitRange, Pod, is_terminal
from admission.api.kueue import PodSet, Workload
from admission.jobs import pod_states
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Effect, Ref
from admission.jobs.gang import Verdict
from admission.jobs.injection import CannotStart, Injection
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.placement import place
from admission.jobs.reconcile import abandoned
from admission.jobs.shapes import asks_for_more, shape
from admission.jobs.single_jobs import SingleJob, lead
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
        gang = PodGang(unit.members[0], context.now, context.settings.gate("FastQuotaReleaseInPodIntegration"))
        return lead(gang, unit.workloads, context)


@dataclass(frozen=True, slots=True)
class PodGang(SingleJob):
    """One pod at one time."""

    pod: Pod
    now: float
    gives_back_at_once: bool = False

    @property
    def kind(self) -> str:
        return pod_states.KIND

    @property
    def api_version(self) -> str:
        return "v1"

    @property
    def members(self) -> tuple[Pod, ...]:
        return (self.pod,)

    @property
    def waiting(self) -> tuple[Ref, ...]:
        return (self.ref,) if pod_states.is_waiting(self.pod) else ()

    def ancestor(self, context: Context) -> Ancestor | None:  # noqa: ARG002  # the webhook gates only topmost pods
        return None

    def is_managed(self, settings: Settings) -> bool:  # noqa: ARG002  # the webhook has taken it in
        return True

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

    def pod_sets(self) -> tuple[PodSet, ...]:
        pod_set = PodSet(
            name=names.DEFAULT_POD_SET,
            template=pod_states.template(self.pod),
            count=1,
            topology_request=topology_request(self.metadata.annotations, names.POD_GROUP_POD_INDEX),
        )
        return (pod_set,)

    def says_the_same(self, workload: Workload, limit_ranges: Iterable[LimitRange] = ()) -> bool:
        """One that runs was let go with its Workload."""
        if not pod_states.is_waiting(self.pod):
            return True
        pod_sets = workload.spec.pod_sets
        return len(pod_sets) == 1 and not asks_for_more(self.pod.spec, shape(pod_sets[0].template).spec, limit_ranges)

    def fits(self, context: Context, workload: Workload) -> bool:
        return self.says_the_same(workload, context.limit_ranges(self.namespace))

    def matches(self, workload: Workload) -> bool:
        limit = workload.spec.maximum_execution_time_seconds
        return limit == self.maximum_execution_time and (bool(self.prebuilt) or self.says_the_same(workload))

    def update(self, workload: Workload) -> tuple[Effect, ...]:  # noqa: ARG002  # made anew instead
        return ()

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:  # noqa: ARG002
        left = pod_states.grace_left(self.pod, self.now)
        return Outcome(requeue_after=left or None)

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
