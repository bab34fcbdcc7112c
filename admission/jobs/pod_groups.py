"""A pod group: pods that name the same group wait until all are there, start together, and are replaced one by one.

It decides from the pods and the Workload of the group's name, through the facts of `group_facts`. No pod of a group is
let go unless its own Workload is admitted, and a Workload that belongs to something else is never touched.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from admission.api import names
from admission.api.core import POD_SUCCEEDED, Pod
from admission.api.decoding import plain
from admission.api.kueue import PodSet, Workload
from admission.api.meta import FALSE, TRUE, Condition
from admission.jobs import composing, pod_states, stranded
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Delete, Effect, Patch, Ref, Severity, Tell
from admission.jobs.gang import Verdict
from admission.jobs.group_facts import GroupFacts
from admission.jobs.injection import CannotStart, Injection
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.placement import group_offset, place
from admission.jobs.priority import ClassMissing, resolve
from admission.jobs.reconcile import abandoned, queue_problem, reconcile
from admission.jobs.roles import role_of
from admission.jobs.statuses import condition, holds_quota, is_evicted, with_condition, workload_ref
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings

_MOST_ROLES = 18

#: A group is made one pod after the other; nothing is said about missing ones before that had time to end.
_PATIENCE = 3.0

#: Whatever has taken the group's name does not say whose unit to look at when it goes.
_LOOK_AGAIN = 10.0


class PodGroups:
    """The adapter of managed pods that name a group."""

    name = "pod-group"
    framework = names.POD_INTEGRATION
    kinds = frozenset({pod_states.KIND})

    def unit_of(self, member: Pod, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam's signature
        group = pod_states.group_name(member)
        if not group or not pod_states.is_managed(member):
            return None
        return UnitKey(self.name, member.metadata.namespace, group)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        if not is_group_workload(workload):
            return ()
        return (UnitKey(self.name, workload.metadata.namespace, workload.metadata.name),)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        pods = tuple(sorted(unit.members, key=pod_states.by_age))
        workload = context.workload(unit.key.namespace, unit.key.name)
        if workload is not None and not is_claimable(workload, pods):
            return _name_taken(unit.key.name, workload, pods)
        own = () if workload is None else (workload,)
        if not pods:
            return Outcome(abandoned(pod_states.KIND, own))
        at_once = context.settings.gate("FastQuotaReleaseInPodIntegration")
        ranges = tuple(context.limit_ranges(unit.key.namespace))
        gang = PodGroupGang(unit.key.name, GroupFacts(pods, workload, context.now, ranges), at_once)
        return reconcile(gang, own, context)


def is_group_workload(workload: Workload) -> bool:
    return workload.metadata.annotations.get(names.IS_GROUP_WORKLOAD) == "true"


def is_claimable(workload: Workload, pods: tuple[Pod, ...]) -> bool:
    """Whether the Workload of the group's name is the group's: made for it, or beforehand and named by its pods."""
    if is_group_workload(workload):
        return True
    named = any(
        composing.prebuilt_name(pod.metadata.labels, pod.metadata.annotations) == workload.metadata.name for pod in pods
    )
    return named and workload.metadata.controller is None


def _name_taken(name: str, workload: Workload, pods: tuple[Pod, ...]) -> Outcome:
    """The pods stay gated and are told; they go when their users let them go."""
    owner = workload.metadata.controller
    whose = f"{owner.kind} {owner.name}" if owner is not None else "something else"
    message = f"The group cannot have the workload {name}: it belongs to {whose}. Choose another group name"
    tells = tuple(
        Tell(pod_states.ref(pod), names.EVENT_WORKLOAD_NAME_CONFLICT, message, Severity.WARNING)
        for pod in pods
        if pod_states.is_waiting(pod)
    )
    leaving = tuple(pod for pod in pods if pod_states.is_leaving(pod))
    return Outcome((*pod_states.let_go(leaving), *tells), _LOOK_AGAIN if pods else None)


@dataclass(frozen=True, slots=True)
class PodGroupGang:
    """One group at one time."""

    name: str
    facts: GroupFacts
    gives_back_at_once: bool = False

    # ------------------------------------------------------------------ who it is

    @property
    def kind(self) -> str:
        return pod_states.KIND

    @property
    def members(self) -> tuple[Pod, ...]:
        return self.facts.pods

    @property
    def first(self) -> Pod:
        return self.facts.pods[0]

    @property
    def waiting(self) -> tuple[Ref, ...]:
        return tuple(pod_states.ref(pod) for pod in self.facts.pods if pod_states.is_waiting(pod))

    @property
    def namespace(self) -> str:
        return self.first.metadata.namespace

    @property
    def queue_name(self) -> str:
        """A serving group stays where it is."""
        workload = self.facts.workload
        if workload is not None and self.facts.is_serving:
            return workload.spec.queue_name or ""
        occupant = next(iter(self.facts.occupants), self.first)
        return occupant.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str:
        occupant = next(iter(self.facts.occupants), self.first)
        return occupant.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        """Those that all its pods still name."""
        workload = self.facts.workload
        if workload is not None and not is_group_workload(workload):
            return None
        named = [composing.admission_gates(pod.metadata.annotations) for pod in self.facts.occupants]
        return tuple(gate for gate in (named[0] if named else ()) if all(gate in gates for gates in named))

    def ancestor(self, context: Context) -> Ancestor | None:  # noqa: ARG002  # the webhook gates only topmost pods
        return None

    # ------------------------------------------------------------------ how it is

    @property
    def is_over(self) -> bool:
        return self.facts.is_over

    @property
    def runs(self) -> bool:
        return any(pod_states.runs(pod) for pod in self.facts.pods)

    @property
    def is_active(self) -> bool:
        at_once = self.gives_back_at_once
        return any(pod_states.is_active(pod, self.facts.now, gives_back_at_once=at_once) for pod in self.facts.pods)

    def pods_may_follow(self, workload: Workload, now: float) -> float:  # noqa: ARG002
        return 0.0

    @property
    def verdict(self) -> Verdict | None:
        if not self.facts.has_ended:
            return None
        succeeded, total = self.facts.succeeded, self.facts.total or 0
        return Verdict(succeeded >= total, f"Pods succeeded: {succeeded}/{total}.")

    def is_ready(self, workload: Workload) -> bool:  # noqa: ARG002
        return self.facts.missing == 0 and all(pod_states.is_ready(pod) for pod in self.facts.occupants)

    def reclaimable(self, workload: Workload) -> dict[str, int]:  # noqa: ARG002
        if self.facts.is_serving:
            return {}
        ended = (pod for pod in self.facts.insiders if pod.status.phase == POD_SUCCEEDED)
        return dict(Counter(self.facts.pod_set_of(pod) for pod in ended))

    def with_conditions(self, workload: Workload, now: float) -> Workload:
        """WaitingForReplacementPods, which keeps the group out of the queue while pods are missing."""
        old = condition(workload, names.WAITING_FOR_REPLACEMENT_PODS)
        if self.facts.needs_replacements:
            evicted = condition(workload, names.EVICTED) if is_evicted(workload) else None
            reason = names.REASON_PODS_FAILED if evicted is None else evicted.reason
            message = "Some pods need replacement" if evicted is None else evicted.message
            waiting = Condition(names.WAITING_FOR_REPLACEMENT_PODS, TRUE, reason, message)
            return with_condition(workload, waiting, now)
        if old is None or old.status != TRUE:
            return workload
        complete = Condition(names.WAITING_FOR_REPLACEMENT_PODS, FALSE, names.PODS_READY, "No pods need replacement")
        return with_condition(workload, complete, now)

    # ------------------------------------------------------------------ to a Workload

    def matches(self, workload: Workload) -> bool:
        """While quota is held, what does not fit is an outsider. Else a whole group of another shape makes it anew."""
        owners = workload.metadata.owner_references
        made_by_others = not owners or any(owner.kind != pod_states.KIND for owner in owners)
        if holds_quota(workload) or made_by_others or self.facts.is_fast:
            return True
        pods = [pod for pod in self.facts.pods if pod_states.holds_place(pod)]
        if any(pod_states.runs(pod) for pod in self.facts.pods) or len(pods) < (self.facts.total or 0):
            return True
        roles = Counter(self.facts.places.get(role_of(pod), "") for pod in pods)
        return all(roles[pod_set.name] >= pod_set.count for pod_set in workload.spec.pod_sets)

    def update(self, workload: Workload) -> tuple[Effect, ...]:  # noqa: ARG002  # made anew instead
        return ()

    def compose(self, context: Context) -> Outcome:
        """The Workload of the whole group. Until it is there, its pods are told what is missing."""
        facts = self.facts
        if facts.outsiders:
            return Outcome(self._tell_waiting(names.EVENT_COMPOSE_FAILED, self._disagreement()))
        if not self.queue_name:
            return Outcome(queue_problem(self, context))
        if facts.needs_replacements:
            return self._incomplete(context)
        by_role: dict[str, list[Pod]] = {}
        for pod in facts.occupants:
            by_role.setdefault(role_of(pod), []).append(pod)
        counts = {role: len(pods) for role, pods in by_role.items()}
        if facts.is_fast:
            counts = {role_of(facts.occupants[0]): facts.total or 0}
        if len(counts) > _MOST_ROLES:
            message = f"The group has {len(counts)} kinds of pods; at most {_MOST_ROLES} are possible"
            return Outcome(self._tell_waiting(names.EVENT_COMPOSE_FAILED, message))
        classes = (by_role[role][0].spec.priority_class_name for role in sorted(counts))
        priority = resolve(self.priority_class, classes, context, self.namespace)
        if isinstance(priority, ClassMissing):
            return Outcome(self._tell_waiting(names.EVENT_PRIORITY_CLASS_NOT_FOUND, priority.message))
        meta = facts.occupants[0].metadata
        parts = composing.Composition(
            namespace=self.namespace,
            name=self.name,
            queue=self.queue_name,
            pod_sets=tuple(_pod_set(role, counts[role], by_role[role][0]) for role in sorted(counts)),
            priority=priority,
            owners=tuple(pod_states.owner(pod) for pod in facts.occupants),
            maximum_execution_time_seconds=composing.maximum_execution_time(meta.labels),
            labels=composing.copied_labels(meta.labels, context.settings.integrations.label_keys_to_copy),
            annotations={**composing.copied_annotations(meta.annotations), names.IS_GROUP_WORKLOAD: "true"},
        )
        return Outcome((composing.create(parts), *queue_problem(self, context)))

    def _incomplete(self, context: Context) -> Outcome:
        newest = max((pod.metadata.created_at for pod in self.facts.pods), default=0.0)
        patience = newest + _PATIENCE - context.now
        if patience > 0:
            return Outcome(requeue_after=patience)
        there, total = len(self.facts.occupants), self.facts.total
        message = f"Waiting for the whole pod group {self.name}: {there} of {total} pods exist"
        problems = queue_problem(self, context)
        return Outcome((*self._tell_waiting(names.EVENT_COMPOSE_FAILED, message), *problems))

    def _disagreement(self) -> str:
        queues = sorted({pod.metadata.labels.get(names.QUEUE_LABEL, "") for pod in self.facts.pods})
        totals = sorted({pod.metadata.annotations.get(names.POD_GROUP_TOTAL_COUNT, "") for pod in self.facts.pods})
        if len(queues) > 1:
            return f"The pods of group {self.name} name different queues: {', '.join(queues)}"
        if self.facts.are_unlike:
            return f"Pods of group {self.name} that say that they are alike ask for different amounts"
        return f"The pods of group {self.name} do not agree on a total count of at least 1: {', '.join(totals)}"

    def _tell_waiting(self, reason: str, message: str) -> tuple[Effect, ...]:
        return tuple(Tell(ref, reason, message, Severity.WARNING) for ref in self.waiting)

    # ------------------------------------------------------------------ order among its pods

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:
        """Owners first: a Workload without a living owner is garbage. Then pods that are too many, or can go."""
        facts = self.facts
        effects: list[Effect] = []
        if workload is not None and not workload.metadata.is_deleting:
            effects += self._own(workload)
        excess = facts.excess
        effects += pod_states.let_go((*facts.departing, *excess))
        effects += [Delete(pod_states.ref(pod)) for pod in excess]
        message = f"Excess pod deleted: the pod group {self.name} has {facts.total} pods"
        effects += [Tell(pod_states.ref(pod), names.EVENT_EXCESS_POD_DELETED, message) for pod in excess]
        if workload is not None:
            misfit = (
                f"This pod does not fit into the workload {workload.metadata.name} of its group: it has another queue "
                "or total count, or requests or node directives that none of the group's pod sets has"
            )
            effects += [
                Tell(pod_states.ref(pod), names.EVENT_COMPOSE_FAILED, misfit, Severity.WARNING)
                for pod in facts.outsiders
                if pod_states.is_waiting(pod)
            ]
        times = [left for pod in facts.pods if (left := pod_states.grace_left(pod, context.now)) > 0]
        return Outcome(tuple(effects), min(times, default=None))

    def _own(self, workload: Workload) -> tuple[Effect, ...]:
        known = {owner.uid for owner in workload.metadata.owner_references}
        new = [pod for pod in self.facts.occupants if pod.metadata.uid not in known]
        if not new:
            return ()
        alive = {pod.metadata.uid for pod in self.facts.pods}
        kept = [
            owner for owner in workload.metadata.owner_references if owner.kind != pod_states.KIND or owner.uid in alive
        ]
        owners = plain((*kept, *(pod_states.owner(pod) for pod in new)))
        body = {"metadata": {"ownerReferences": owners}}
        return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)

    # ------------------------------------------------------------------ and back

    def start(self, workload: Workload, injected: tuple[Injection, ...]) -> tuple[Effect, ...] | CannotStart:
        """One patch for each pod that may go. After an interruption the pods that are still gated are what is left."""
        facts = self.facts
        patches: list[Effect] = []
        for injection, pod_set in zip(injected, workload.spec.pod_sets, strict=True):
            pods = [pod for pod in facts.releasable if facts.pod_set_of(pod) == pod_set.name]
            domains = self._domains(pods, injection, pod_set, workload)
            for pod in pods:
                if pod.metadata.uid not in domains:
                    continue
                patch = pod_states.ungated(pod, injection, domains[pod.metadata.uid])
                if isinstance(patch, CannotStart):
                    return patch
                patches.append(patch)
            if injection.topology is not None:
                sent = [pod for pod in facts.insiders if facts.pod_set_of(pod) == pod_set.name]
                patches += stranded.ended(sent, injection.topology, _unhealthy(workload), facts.now)
        return tuple(patches)

    def _domains(
        self, pods: list[Pod], injection: Injection, pod_set: PodSet, workload: Workload
    ) -> dict[str, dict[str, str]]:
        """Where each pod goes; without a topology assignment anywhere. A pod for which there is no room is left out."""
        if injection.topology is None:
            return {pod.metadata.uid: {} for pod in pods}
        going = {pod.metadata.uid for pod in pods}
        placed = [
            pod
            for pod in self.facts.insiders
            if self.facts.pod_set_of(pod) == pod_set.name
            and pod.metadata.uid not in going
            and not pod_states.is_waiting(pod)
            and not pod_states.is_leaving(pod)
        ]
        found = place(pods, placed, injection.topology, pod_set, group_offset(pod_set, workload.spec.pod_sets))
        unhealthy = _unhealthy(workload)
        return {
            uid: dict(selector)
            for uid, selector in found.items()
            if selector.get(names.HOSTNAME_LABEL) not in unhealthy
        }

    def stop(self, workload: Workload | None, reason: str, message: str) -> tuple[Effect, ...]:  # noqa: ARG002
        """Pods that are still gated stay: they have nothing to give back and can start next time."""
        running = [pod for pod in self.facts.pods if pod_states.runs(pod)]
        return pod_states.terminated(running, message, self.facts.now)

    def restore(self, workload: Workload) -> tuple[Effect, ...]:  # noqa: ARG002  # gated pods were never changed
        return ()

    def finalize(self) -> tuple[Effect, ...]:
        return pod_states.let_go(self.facts.pods)


def _unhealthy(workload: Workload) -> frozenset[str]:
    return frozenset(node.name for node in workload.status.unhealthy_nodes)


def _pod_set(role: str, count: int, pod: Pod) -> PodSet:
    return PodSet(
        name=role,
        template=pod_states.template(pod),
        count=count,
        topology_request=topology_request(pod.metadata.annotations, names.POD_GROUP_POD_INDEX),
    )
