"""Sends the pods of an admitted job to their topology domains: each gets its node selector and loses the topology gate.

It decides from the pods that carry the Workload's name and from its topology assignment. A pod whose domain is full, or
whose node is known to be unhealthy, stays gated, and one that waits for such a node is ended; nothing is ever ungated
without a domain.
"""

from __future__ import annotations

from typing import Any

from admission.api import names
from admission.api.core import Pod, is_gated, is_terminal
from admission.api.decoding import plain
from admission.api.kueue import PodSet, TopologyAssignment, Workload
from admission.jobs import pod_states, stranded
from admission.jobs.effects import Effect, Patch
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.placement import group_offset, place
from admission.jobs.statuses import is_admitted
from admission.settings import Settings


class TopologyUngater:
    """The adapter of pods that job controllers make from a template with the topology gate. Its unit is a Workload.

    Managed pods are not among them: those get their domain when they are let go.
    """

    name = "topology"
    framework = ""
    kinds = frozenset({pod_states.KIND})

    def unit_of(self, member: Pod, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam's signature
        workload = member.metadata.annotations.get(names.WORKLOAD_ANNOTATION)
        if not workload or names.PODSET_LABEL not in member.metadata.labels or pod_states.is_managed(member):
            return None
        return UnitKey(self.name, member.metadata.namespace, workload)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        admission = workload.status.admission
        if admission is None or all(entry.topology_assignment is None for entry in admission.pod_set_assignments):
            return ()
        return (UnitKey(self.name, workload.metadata.namespace, workload.metadata.name),)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        pods: tuple[Pod, ...] = unit.members
        workload = context.workload(unit.key.namespace, unit.key.name)
        if workload is None or not is_admitted(workload) or workload.status.admission is None:
            return Outcome()
        assignments = {entry.name: entry.topology_assignment for entry in workload.status.admission.pod_set_assignments}
        unhealthy = frozenset(node.name for node in workload.status.unhealthy_nodes)
        effects: list[Effect] = []
        for pod_set in workload.spec.pod_sets:
            assignment = assignments.get(pod_set.name)
            if assignment is not None:
                of_set = [pod for pod in pods if pod.metadata.labels.get(names.PODSET_LABEL) == pod_set.name]
                offset = group_offset(pod_set, workload.spec.pod_sets)
                effects += _ungated(of_set, assignment, pod_set, offset, unhealthy)
                effects += stranded.ended(of_set, assignment, unhealthy, context.now)
        return Outcome(tuple(effects))


def _waits(pod: Pod) -> bool:
    return is_gated(pod, names.TOPOLOGY_GATE) and not is_terminal(pod) and not pod.metadata.is_deleting


def _ungated(
    pods: list[Pod], assignment: TopologyAssignment, pod_set: PodSet, offset: int | None, unhealthy: frozenset[str]
) -> list[Effect]:
    waiting = [pod for pod in pods if _waits(pod)]
    if not waiting:
        return []
    placed = [pod for pod in pods if not is_gated(pod, names.TOPOLOGY_GATE) and not pod_states.is_leaving(pod)]
    domains = place(waiting, placed, assignment, pod_set, offset)
    result: list[Effect] = []
    for pod in waiting:
        selector = domains.get(pod.metadata.uid)
        if selector is None or selector.get(names.HOSTNAME_LABEL) in unhealthy:
            continue
        spec: dict[str, Any] = {
            "nodeSelector": dict(selector),
            "schedulingGates": [plain(gate) for gate in pod.spec.scheduling_gates if gate.name != names.TOPOLOGY_GATE],
        }
        result.append(Patch(pod_states.ref(pod), {"spec": spec}, resource_version=pod.metadata.resource_version))
    return result
