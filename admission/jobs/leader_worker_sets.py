"""LeaderWorkerSets: each group of a leader and its workers is a gang with a Workload of its own.

It decides from the LeaderWorkerSet, the labels that its controller gives to pods, and the Workloads of its groups. A
group that is not wanted any more keeps its quota until its pods are gone; nothing is written to a LeaderWorkerSet.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from admission.api import names
from admission.api.core import Pod
from admission.api.kueue import PodSet, Workload
from admission.api.leader_worker_sets import (
    GROUP,
    GROUP_INDEX_LABEL,
    NAME_LABEL,
    WORKER_INDEX_LABEL,
    LeaderWorkerSet,
)
from admission.api.meta import whole_number
from admission.jobs import composing
from admission.jobs.injection import Directives, cleaned
from admission.jobs.interface import Context, Outcome, Unit, UnitKey, units_of_controller
from admission.jobs.serving import (
    ServingGang,
    Wanted,
    is_parent,
    joined,
    left_behind,
    main_workload,
    serve,
)
from admission.jobs.serving_facts import facts_of
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings

KIND: Final = "LeaderWorkerSet"
LEADER: Final = "leader"
WORKER: Final = "worker"


class LeaderWorkerSets:
    """The adapter: a unit for each LeaderWorkerSet, with a gang for each of its groups."""

    name = "leaderworkerset"
    framework = names.LEADER_WORKER_SET_INTEGRATION
    kinds = frozenset({KIND, "Pod"})

    def unit_of(self, member: LeaderWorkerSet | Pod, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam
        if isinstance(member, LeaderWorkerSet):
            return UnitKey(self.name, member.metadata.namespace, member.metadata.name)
        name = member.metadata.labels.get(NAME_LABEL)
        if member.metadata.annotations.get(names.POD_SUSPENDING_PARENT) != self.framework or not name:
            return None
        return UnitKey(self.name, member.metadata.namespace, name)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        return units_of_controller(self.name, workload, GROUP, KIND)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        present = next((each for each in unit.members if isinstance(each, LeaderWorkerSet)), None)
        pods = [each for each in unit.members if isinstance(each, Pod)]
        if present is None or present.metadata.is_deleting or not _is_ours(present):
            return left_behind(unit.workloads, pods, context)
        own = [each for each in unit.workloads if each.metadata.controller_uid == present.metadata.uid]
        of_namesakes = [each for each in unit.workloads if each not in own]
        of_before = [pod for pod in pods if pod.metadata.created_at < present.metadata.created_at]
        by_index: dict[int, list[Pod]] = {}
        for pod in pods:
            if pod in of_before:
                continue
            by_index.setdefault(_number(pod, GROUP_INDEX_LABEL), []).append(pod)
        wanted = list(range(_groups(present)))
        outcomes = [left_behind(of_namesakes, of_before, context)]
        led: set[str] = set()
        for index in sorted({*wanted, *by_index}):
            name = _workload_name(present, index, context)
            mine = tuple(each for each in own if each.metadata.name == name)
            led |= {name}
            there = by_index.get(index, [])
            if index in range(len(wanted)):
                outcomes.append(_lead(present, index, mine, there, context))
            else:
                outcomes.append(left_behind(mine, there, context))
        outcomes.append(left_behind((each for each in own if each.metadata.name not in led), (), context))
        return joined(outcomes)


def _is_ours(owner: LeaderWorkerSet) -> bool:
    templates = owner.spec.leader_worker_template
    both = (templates.worker_template, *(() if templates.leader_template is None else (templates.leader_template,)))
    return all(is_parent(each, names.LEADER_WORKER_SET_INTEGRATION) for each in both)


def _groups(owner: LeaderWorkerSet) -> int:
    """How many groups are to have quota: in a rolling update those of the surge as well."""
    return max(owner.replicas, owner.status.replicas) if owner.surges else owner.replicas


def _number(pod: Pod, label: str) -> int:
    """An index from a label of the controller's; -1, which no group has, for anything else."""
    number = whole_number(pod.metadata.labels.get(label, ""))
    return -1 if number is None else number


def _workload_name(owner: LeaderWorkerSet, index: int, context: Context) -> str:
    short = context.settings.gate("ShortWorkloadNames")
    meta = owner.metadata
    return composing.workload_name(KIND, GROUP, f"{meta.name}-{index}", meta.uid, short=short)


def _lead(
    owner: LeaderWorkerSet, index: int, own: tuple[Workload, ...], pods: Iterable[Pod], context: Context
) -> Outcome:
    there = list(pods)
    name = _workload_name(owner, index, context)
    wanted = Wanted(owner, KIND, GROUP, name, _pod_sets(owner), index)
    known = {pod_set.name for pod_set in wanted.pod_sets}
    place_of = {pod.metadata.uid: _place(pod, known) for pod in there}
    facts = facts_of(there, wanted.pod_sets, main_workload(own), place_of, context)
    at_once = context.settings.gate("FastQuotaReleaseInPodIntegration")
    return serve(ServingGang(name, facts, at_once, wanted=wanted), own, context)


def _pod_sets(owner: LeaderWorkerSet) -> tuple[PodSet, ...]:
    """Without a template of its own the leader is one of equal pods."""
    templates = owner.spec.leader_worker_template
    if templates.leader_template is None:
        return (_pod_set(names.DEFAULT_POD_SET, templates.worker_template, owner.size),)
    leader = _pod_set(LEADER, templates.leader_template, 1)
    if owner.size <= 1:
        return (leader,)
    return (leader, _pod_set(WORKER, templates.worker_template, owner.size - 1))


def _pod_set(name: str, raw: dict[str, Any], count: int) -> PodSet:
    template = cleaned(raw)
    request = topology_request(Directives.of(template).annotations, WORKER_INDEX_LABEL)
    return PodSet(name=name, template=template, count=count, topology_request=request)


def _place(pod: Pod, known: set[str]) -> str:
    if LEADER not in known:
        return names.DEFAULT_POD_SET
    return LEADER if _number(pod, WORKER_INDEX_LABEL) == 0 else WORKER
