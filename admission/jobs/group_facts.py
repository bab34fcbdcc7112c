"""A pod group as observed: who is in it, who is one too many, who was replaced, and whether it has ended.

It decides from the pods of the group and, where there is one, the pod sets of its Workload. A terminating pod never
occupies the place that it is leaving: a replacement that arrives early is kept, and let go once the old pod has ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from admission.api import names
from admission.api.core import POD_SUCCEEDED, LimitRange, Pod, PodSpec, is_gated, is_terminal
from admission.api.decoding import plain
from admission.api.kueue import Workload
from admission.api.meta import whole_number
from admission.jobs import pod_states
from admission.jobs.pod_sets import pod_spec
from admission.jobs.requests import Misconfigured
from admission.jobs.roles import role_hash, role_of
from admission.jobs.shapes import asks_for_more, shape
from admission.jobs.statuses import is_evicted, is_finished


@dataclass(frozen=True)
class GroupFacts:
    """`pods` oldest first. `workload` is the group's own or None."""

    pods: tuple[Pod, ...]
    workload: Workload | None
    now: float
    limit_ranges: tuple[LimitRange, ...] = ()

    # ------------------------------------------------------------------ what the pods say of their group

    def _says(self, annotation: str, value: str) -> bool:
        return any(pod.metadata.annotations.get(annotation) == value for pod in self.pods)

    @cached_property
    def is_serving(self) -> bool:
        """It never ends, and nothing of it is given back while it runs."""
        return self._says(names.POD_GROUP_SERVING, "true")

    @cached_property
    def is_fast(self) -> bool:
        """One pod is enough to wait for quota, of which all the others are expected to be copies."""
        return self._says(names.POD_GROUP_FAST_ADMISSION, "true")

    @cached_property
    def is_unretriable(self) -> bool:
        return self._says(names.RETRIABLE_IN_GROUP, "false")

    @cached_property
    def total(self) -> int | None:
        """How many pods the group has; from its Workload, else as all of its pods say; None where they disagree."""
        if self.workload is not None:
            return sum(pod_set.count for pod_set in self.workload.spec.pod_sets)
        counts = {total_count(pod) for pod in self.pods}
        return counts.pop() if len(counts) == 1 else None

    @cached_property
    def are_unlike(self) -> bool:
        """Whether one asks for more than the oldest of its role, whose spec becomes the template of all."""
        oldest: dict[str, PodSpec] = {}
        return any(
            asks_for_more(pod.spec, oldest.setdefault(role_of(pod), pod.spec))
            for pod in self.pods
            if pod_states.holds_place(pod)
        )

    @cached_property
    def outsiders(self) -> tuple[Pod, ...]:
        """Pods that contradict the Workload (or, without one, each other): never let go."""
        queues = {queue_of(pod) for pod in self.pods if pod_states.holds_place(pod)}
        if self.workload is None:
            return self.pods if self.total is None or len(queues) > 1 or self.are_unlike else ()
        moved = len(queues) == 1  # all of them, so the Workload follows
        return tuple(
            pod
            for pod in self.pods
            if not pod_states.runs(pod)
            and (
                role_of(pod) not in self.places
                or total_count(pod) not in {None, self.total}
                or not (moved or queue_of(pod) == self.workload.spec.queue_name)
                or self._asks_for_more(pod)
            )
        )

    @cached_property
    def insiders(self) -> tuple[Pod, ...]:
        outside = {pod.metadata.uid for pod in self.outsiders}
        return tuple(pod for pod in self.pods if pod.metadata.uid not in outside)

    # ------------------------------------------------------------------ places

    @cached_property
    def places(self) -> dict[str, str]:
        """The pod set of each role. Pod sets that Muster did not name are known by the shape of their template."""
        if self.workload is None:
            return {}
        found: dict[str, str] = {}
        for pod_set in self.workload.spec.pod_sets:
            spec = pod_spec(pod_set)
            if not isinstance(spec, Misconfigured):
                found.setdefault(role_hash(plain(spec)), pod_set.name)
        return {**found, **{pod_set.name: pod_set.name for pod_set in self.workload.spec.pod_sets}}

    @cached_property
    def _templates(self) -> dict[str, PodSpec]:
        pod_sets = () if self.workload is None else self.workload.spec.pod_sets
        return {pod_set.name: shape(pod_set.template).spec for pod_set in pod_sets}

    def _asks_for_more(self, pod: Pod) -> bool:
        """Its role is an annotation, which can be written, of a short hash, which can be met."""
        template = self._templates.get(self.places.get(role_of(pod), ""))
        return template is not None and asks_for_more(pod.spec, template, self.limit_ranges)

    def pod_set_of(self, pod: Pod) -> str:
        return self.places.get(role_of(pod), "")

    @cached_property
    def occupants(self) -> tuple[Pod, ...]:
        """The pods that hold a place, but for those that are too many."""
        spare = {pod.metadata.uid for pod in self.excess}
        return tuple(pod for pod in self.insiders if pod_states.holds_place(pod) and pod.metadata.uid not in spare)

    @cached_property
    def excess(self) -> tuple[Pod, ...]:
        """Too many, newest first: of those that are still gated, then of the others."""
        candidates = [pod for pod in self.insiders if pod_states.holds_place(pod)]
        if self.workload is None:
            return _beyond(candidates, self.total)
        spare: list[Pod] = []
        for pod_set in self.workload.spec.pod_sets:
            spare += _beyond([pod for pod in candidates if self.pod_set_of(pod) == pod_set.name], pod_set.count)
        return tuple(spare)

    @cached_property
    def missing(self) -> int:
        return max(0, (self.total or 0) - len(self.occupants))

    @cached_property
    def needs_replacements(self) -> bool:
        """Whether it must not be admitted as it is: quota for pods that do not exist would be held for nothing."""
        if self.is_fast:
            return not self.occupants
        return self.missing > 0

    @cached_property
    def releasable(self) -> tuple[Pod, ...]:
        """The gated pods that may go once the group is admitted.

        All of them are there, or the group was let go before and these complete it. A replacement waits until the pod
        whose place it takes has ended, so the group never runs more pods than were admitted.
        """
        started = any(not pod_states.is_waiting(pod) for pod in self.occupants)
        if self.workload is None or not (started or self.is_fast or self.missing == 0):
            return ()
        result: list[Pod] = []
        for pod_set in self.workload.spec.pod_sets:
            of_role = [pod for pod in self.insiders if self.pod_set_of(pod) == pod_set.name]
            used = sum(1 for pod in of_role if pod.status.phase == POD_SUCCEEDED or pod_states.runs(pod))
            used += sum(1 for pod in of_role if pod.metadata.is_deleting and pod_states.is_active(pod, self.now))
            waiting = [
                pod for pod in self.occupants if pod_states.is_waiting(pod) and self.pod_set_of(pod) == pod_set.name
            ]
            result += waiting[: max(0, pod_set.count - used)]
        return tuple(result)

    # ------------------------------------------------------------------ the end

    @cached_property
    def succeeded(self) -> int:
        return sum(1 for pod in self.insiders if pod.status.phase == POD_SUCCEEDED)

    @cached_property
    def has_ended(self) -> bool:
        """All pods have succeeded; or one said that there is no second try, and none is left to end."""
        if self.is_serving or self.total is None:
            return False
        if self.succeeded >= self.total:
            return True
        return self.is_unretriable and all(is_terminal(pod) for pod in self.insiders)

    @cached_property
    def anchor(self) -> Pod | None:
        """The one pod that keeps an evicted group's Workload alive until its replacements come.

        The Workload is owned by the pods. When all pods of an evicted group have ended and are being deleted, one of
        those that ran keeps its finalizer, so that the group keeps its name, its place and its history. Every other
        pod goes. Deleting the Workload gives the group up and lets the last one go as well.
        """
        workload = self.workload
        if workload is None or self.is_serving or self.is_unretriable or self.has_ended:
            return None
        if workload.metadata.is_deleting or is_finished(workload) or not is_evicted(workload):
            return None
        if not self.pods or not all(pod_states.is_leaving(pod) for pod in self.pods):
            return None
        held = [
            pod
            for pod in self.insiders
            if names.POD_FINALIZER in pod.metadata.finalizers and not is_gated(pod, names.ADMISSION_GATE)
        ]
        # One that has succeeded is kept first: its success counts.
        return min(held, key=lambda pod: (pod.status.phase != POD_SUCCEEDED, pod_states.by_age(pod)), default=None)

    @cached_property
    def is_over(self) -> bool:
        """Every pod is being deleted, nothing runs, and nobody waits for replacements."""
        return bool(self.pods) and self.anchor is None and all(pod_states.is_leaving(pod) for pod in self.pods)

    @cached_property
    def departing(self) -> tuple[Pod, ...]:
        """The pods that Muster has no reason to hold: ended and being deleted, while others carry the group on.

        The pods that have succeeded are kept to the end of the group (unless it has none), as they are counted.
        """
        kept = self.anchor
        inside = {pod.metadata.uid for pod in self.insiders}
        return tuple(
            pod
            for pod in self.pods
            if pod_states.is_leaving(pod)
            and pod is not kept
            and (pod.status.phase != POD_SUCCEEDED or self.is_serving or pod.metadata.uid not in inside)
        )


def queue_of(pod: Pod) -> str:
    return pod.metadata.labels.get(names.QUEUE_LABEL, "")


def total_count(pod: Pod) -> int | None:
    """What the pod says of the size of its group; None where that is no number."""
    return whole_number(pod.metadata.annotations.get(names.POD_GROUP_TOTAL_COUNT, "")) or None


def _beyond(pods: Iterable[Pod], count: int | None) -> tuple[Pod, ...]:
    """The pods to give up so that `count` are left: those that nothing holds, then gated ones, then the newest."""
    kept_first = sorted(
        pods,
        key=lambda pod: (
            names.POD_FINALIZER not in pod.metadata.finalizers,
            pod_states.is_waiting(pod),
            pod_states.by_age(pod),
        ),
    )
    return tuple(reversed(kept_first[count:])) if count is not None else ()
