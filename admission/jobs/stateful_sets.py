"""StatefulSets: all pods of one are one gang, whose Workload outlives them and waits on hold while there are none.

It decides from the StatefulSet, the pods that name it as their controller and its Workload. It never writes to a
StatefulSet: scaling is its user's, making pods its controller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from admission.api import names
from admission.api.apps import GROUP, StatefulSet
from admission.api.core import Pod
from admission.api.decoding import plain
from admission.api.kueue import PodSet, Workload
from admission.jobs import composing, pod_states
from admission.jobs.effects import Effect, Patch
from admission.jobs.injection import Directives, cleaned
from admission.jobs.interface import Context, Outcome, Unit, UnitKey, units_of_controller
from admission.jobs.serving import (
    ServingGang,
    Wanted,
    gvk,
    has_shapes_of,
    is_parent,
    joined,
    left_behind,
    main_workload,
    serve,
)
from admission.jobs.serving_facts import facts_of
from admission.jobs.statuses import workload_ref
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings

KIND: Final = "StatefulSet"
POD_NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
#: The finalizer of an object that is deleted without what it owns.
_ORPHANED: Final = "orphan"
GVK: Final = gvk(GROUP, KIND)
POD_INDEX: Final = "apps.kubernetes.io/pod-index"


class StatefulSets:
    """The adapter: a unit for each StatefulSet."""

    name = "statefulset"
    framework = names.STATEFUL_SET_INTEGRATION
    kinds = frozenset({KIND, "Pod"})

    def unit_of(self, member: StatefulSet | Pod, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam
        if isinstance(member, StatefulSet):
            return UnitKey(self.name, member.metadata.namespace, member.metadata.name)
        if member.metadata.annotations.get(names.POD_SUSPENDING_PARENT) != self.framework:
            return None
        owner = member.metadata.controller
        if owner is None:
            name = _left_by(member)
            return UnitKey(self.name, member.metadata.namespace, name) if name else None
        return UnitKey(self.name, member.metadata.namespace, owner.name) if owner.is_of(GROUP, KIND) else None

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        """Also of one that its StatefulSet left behind with its pods, for the next one of its name to take up."""
        meta = workload.metadata
        if meta.controller is None and meta.annotations.get(names.JOB_OWNER_GVK) == GVK:
            name = meta.annotations.get(names.JOB_OWNER_NAME, "")
            return (UnitKey(self.name, meta.namespace, name),) if name else ()
        return units_of_controller(self.name, workload, GROUP, KIND)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        """Each StatefulSet that had the name is led by itself: pods of an earlier one may still run."""
        present = next((each for each in unit.members if isinstance(each, StatefulSet)), None)
        workloads: dict[str, list[Workload]] = {}
        pods: dict[str, list[Pod]] = {}
        for workload in unit.workloads:
            workloads.setdefault(workload.metadata.controller_uid, []).append(workload)
        for member in unit.members:
            if isinstance(member, Pod):
                pods.setdefault(member.metadata.controller_uid, []).append(member)
        uid = "" if present is None else present.metadata.uid
        own = tuple(workloads.pop(uid, ())) if uid else ()
        left = pods.pop("", [])
        mine = pods.pop(uid, []) if uid else []
        if any(pod_states.runs(pod) for pod in (*left, *mine)) and not own:
            # Deleted without its pods. The next one of its name takes them up, and with them their Workload.
            free = [each for name, several in workloads.items() if not pods.get(name) for each in several]
            if effects := _freed(free) if present is None else _taken_up(present, free):
                return Outcome(effects)
        outcomes = [
            left_behind(workloads.get(each, ()), pods.get(each, ()) if each else left, context)
            for each in sorted({*workloads, *pods})
        ]
        if present is not None:
            outcomes.append(_lead(present, own, mine, context))
        return joined(outcomes)


def _left_by(pod: Pod) -> str:
    """The StatefulSet that a pod without a controller was made by."""
    name, _, index = pod.metadata.name.rpartition("-")
    return name if index.isdecimal() and pod.metadata.labels.get(POD_NAME_LABEL) == pod.metadata.name else ""


def _freed(workloads: Iterable[Workload]) -> tuple[Effect, ...]:
    """Not to be collected with an owner that is gone while pods of it run."""
    return tuple(
        Patch(
            workload_ref(each), {"metadata": {"ownerReferences": None}}, resource_version=each.metadata.resource_version
        )
        for each in workloads
        if each.metadata.owner_references and not each.metadata.is_deleting
    )


def _taken_up(owner: StatefulSet, free: Iterable[Workload]) -> tuple[Effect, ...]:
    wanted = _wanted(owner, short=False)
    for workload in free:
        if owner.metadata.is_deleting or workload.metadata.is_deleting or not has_shapes_of(workload, wanted):
            continue
        body = {"metadata": {"ownerReferences": [plain(wanted.reference)]}}
        return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)
    return ()


def _lead(owner: StatefulSet, own: tuple[Workload, ...], pods: list[Pod], context: Context) -> Outcome:
    if owner.metadata.is_deleting:
        if _ORPHANED in owner.metadata.finalizers:
            return Outcome()  # it goes and its pods stay, and so does what they hold
        return left_behind(own, pods, context)
    if not is_parent(owner.spec.template, names.STATEFUL_SET_INTEGRATION) and not pods:
        return left_behind(own, pods, context)
    wanted = _wanted(owner, short=context.settings.gate("ShortWorkloadNames"))
    workload = main_workload(own)
    place_of = {pod.metadata.uid: _only_pod_set(workload) for pod in pods}
    facts = facts_of(pods, wanted.pod_sets, workload, place_of, context)
    at_once = context.settings.gate("FastQuotaReleaseInPodIntegration")
    return serve(ServingGang(wanted.workload_name, facts, at_once, wanted=wanted), own, context)


def _only_pod_set(workload: Workload | None) -> str:
    """A Workload that was taken over may have given it another name."""
    pod_sets = () if workload is None else workload.spec.pod_sets
    return pod_sets[0].name if len(pod_sets) == 1 else names.DEFAULT_POD_SET


def _wanted(owner: StatefulSet, *, short: bool) -> Wanted:
    template = cleaned(owner.spec.template)
    pod_set = PodSet(
        name=names.DEFAULT_POD_SET,
        template=template,
        count=owner.replicas,
        topology_request=topology_request(Directives.of(template).annotations, POD_INDEX),
    )
    meta = owner.metadata
    name = composing.workload_name(KIND, GROUP, meta.name, meta.uid, short=short)
    return Wanted(owner, KIND, GROUP, name, (pod_set,))
