"""StatefulSets: all pods of one are one gang, whose Workload outlives them and waits on hold while there are none.

It decides from the StatefulSet, the pods that name it as their controller and its Workload. It never writes to a
StatefulSet: scaling is its user's, making pods its controller's.
"""

from __future__ import annotations

from typing import Final

from admission.api import names
from admission.api.apps import GROUP, StatefulSet
from admission.api.core import Pod
from admission.api.kueue import PodSet, Workload
from admission.jobs import composing
from admission.jobs.injection import Directives, cleaned
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.serving import (
    ServingGang,
    Wanted,
    facts_of,
    is_parent,
    joined,
    left_behind,
    main_workload,
    serve,
)
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings

KIND: Final = "StatefulSet"
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
        if owner is None or owner.kind != KIND or not owner.api_version.startswith(f"{GROUP}/"):
            return None
        return UnitKey(self.name, member.metadata.namespace, owner.name)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        owner = workload.metadata.controller
        if owner is None or owner.kind != KIND or not owner.api_version.startswith(f"{GROUP}/"):
            return ()
        return (UnitKey(self.name, workload.metadata.namespace, owner.name),)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        """Each StatefulSet that had the name is led by itself: pods of an earlier one may still run."""
        present = next((each for each in unit.members if isinstance(each, StatefulSet)), None)
        workloads: dict[str, list[Workload]] = {}
        pods: dict[str, list[Pod]] = {}
        for workload in unit.workloads:
            workloads.setdefault(_controller_uid(workload), []).append(workload)
        for member in unit.members:
            if isinstance(member, Pod):
                pods.setdefault(_controller_uid(member), []).append(member)
        uid = "" if present is None else present.metadata.uid
        outcomes = [
            left_behind(workloads.get(each, ()), pods.get(each, ()), context)
            for each in sorted({*workloads, *pods} - {uid})
        ]
        if present is not None:
            outcomes.append(_lead(present, tuple(workloads.get(uid, ())), pods.get(uid, []), context))
        return joined(outcomes)


def _controller_uid(obj: Workload | Pod) -> str:
    owner = obj.metadata.controller
    return "" if owner is None else owner.uid


def _lead(owner: StatefulSet, own: tuple[Workload, ...], pods: list[Pod], context: Context) -> Outcome:
    if owner.metadata.is_deleting:
        return left_behind(own, pods, context)
    if not is_parent(owner.spec.template, names.STATEFUL_SET_INTEGRATION) and not pods:
        return left_behind(own, pods, context)
    wanted = _wanted(owner, short=context.settings.gate("ShortWorkloadNames"))
    workload = main_workload(own)
    place_of = {pod.metadata.uid: _only_pod_set(workload) for pod in pods}
    facts = facts_of(pods, wanted, workload, place_of, context)
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
