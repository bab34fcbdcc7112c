"""Which hosts of a gang's assignment have failed for it, from the nodes and the gang's pods as last observed.

A node that is gone, or says nothing of itself, has failed at once; one that is not ready, or has a taint that the pods
do not tolerate, only when no pod of the gang is at work on it any more. It must never call a node failed because nodes
are not observed at all.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.api import core, names
from admission.api.kueue import Workload
from admission.api.topology_assignment import decode
from admission.controllers import conditions, observe
from admission.controllers.store import key_of
from admission.controllers.tables import Tables
from admission.jobs.pod_sets import tolerations
from admission.settings import Settings
from queues.core import model
from queues.core.topology.suitability import HARD_EFFECTS, is_tolerated

_Hosts = dict[str, frozenset[str]]


class NodeHealth:
    """`troubled` are the names of nodes on which pods may have to be given up."""

    def __init__(self, tables: Tables, settings: Settings) -> None:
        self.troubled: set[str] = set()
        self._tables = tables
        self._by_taint = settings.gate("TASReplaceNodeOnNodeTaints")
        self._by_pods = settings.gate("TASReplaceNodeOnPodTermination")
        self._is_on = settings.gate("TASFailedNodeReplacement")
        self._hosts: dict[str, tuple[object, _Hosts]] = {}

    def changed(self, before: core.Node | None, after: core.Node | None) -> list[Workload]:
        """A node changed; the Workloads for which that may matter. Cost: all Workloads, when its health changed."""
        was, is_ = _trouble(before), _trouble(after)
        either = after or before
        if either is None or was == is_:
            return []
        name = either.metadata.name
        (self.troubled.add if is_ else self.troubled.discard)(name)
        hosts = {node.metadata.labels.get(names.HOSTNAME_LABEL, "") for node in (before, after) if node is not None}
        return [
            workload
            for workload in self._tables.workloads
            if workload.status.admission is not None and any(host in self.hosts(workload) for host in hosts)
        ]

    def forget(self, uid: str) -> None:
        self._hosts.pop(uid, None)

    def hosts(self, workload: Workload) -> _Hosts:
        """The hosts of its assignment, with the names of the pod sets on each; none where it goes by larger domains."""
        admission = workload.status.admission
        known = self._hosts.get(workload.metadata.uid)
        if known is not None and known[0] is admission:
            return known[1]
        found: dict[str, set[str]] = {}
        for one in () if admission is None else admission.pod_set_assignments:
            assignment = one.topology_assignment
            if assignment is not None and assignment.levels[-1:] == (names.HOSTNAME_LABEL,):
                for domain in decode(assignment):
                    found.setdefault(domain.values[-1], set()).add(one.name)
        hosts = {host: frozenset(pod_sets) for host, pod_sets in found.items()}
        self._hosts[workload.metadata.uid] = (admission, hosts)
        return hosts

    def failed(self, workload: Workload) -> tuple[str, ...]:
        """The failed hosts, by name. Cost: the hosts of the assignment."""
        controller = workload.metadata.controller
        if not self._is_on or not conditions.holds_quota(workload) or not len(self._tables.nodes):
            return ()
        if controller is not None and controller.kind == "Pod":  # a pod stays where it is, there is nothing to move
            return ()
        hosts = self.hosts(workload)
        return tuple(sorted(host for host, pod_sets in hosts.items() if self._has_failed(workload, host, pod_sets)))

    def _has_failed(self, workload: Workload, host: str, pod_sets: frozenset[str]) -> bool:
        nodes = self._tables.nodes.where("host", host)
        if not nodes:
            return True
        if not any(node.metadata.name in self.troubled for node in nodes):
            return False
        if not any(_says_something(node) for node in nodes):
            return True
        is_bad = any(not _is_ready(node) for node in nodes) and self._by_pods
        if not is_bad and self._by_taint:
            is_bad = any(self._is_repelled(workload, node, pod_sets) for node in nodes)
        return is_bad and not self._is_used(workload, {node.metadata.name for node in nodes})

    def _is_used(self, workload: Workload, nodes: set[str]) -> bool:
        """Whether pods of the gang are at work there, or have done all that they were there for."""
        there = [pod for pod in self._tables.pods.where("workload", key_of(workload)) if pod.spec.node_name in nodes]
        at_work = any(not core.is_terminal(pod) and not pod.metadata.is_deleting for pod in there)
        return at_work or (bool(there) and all(pod.status.phase == core.POD_SUCCEEDED for pod in there))

    def _is_repelled(self, workload: Workload, node: core.Node, pod_sets: frozenset[str]) -> bool:
        taints = [taint for taint in observe.node(node).taints if taint.effect in HARD_EFFECTS]
        if not taints:
            return False
        flavors = self._flavor_tolerations(workload)
        return any(
            not all(is_tolerated(taint, (*tolerations(pod_set), *flavors)) for taint in taints)
            for pod_set in workload.spec.pod_sets
            if pod_set.name in pod_sets
        )

    def _flavor_tolerations(self, workload: Workload) -> list[model.Toleration]:
        admission = workload.status.admission
        assignments = () if admission is None else admission.pod_set_assignments
        found: list[model.Toleration] = []
        for flavor_name in sorted({flavor for one in assignments for flavor in one.flavors.values()}):
            flavor = self._tables.flavors.get("", flavor_name)
            if flavor is not None:
                found += observe.flavor(flavor).tolerations
        return found


def _trouble(node: core.Node | None) -> object:
    """What of a node can make it fail; equal for two states of a node that are equally good. A missing one: `gone`."""
    if node is None:
        return "gone"
    taints: Iterable[object] = (taint for taint in node.spec.taints if taint.effect in HARD_EFFECTS)
    return (_says_something(node), _is_ready(node), *taints) if not _is_well(node) else ()


def _is_well(node: core.Node) -> bool:
    return _is_ready(node) and not any(taint.effect in HARD_EFFECTS for taint in node.spec.taints)


def _says_something(node: core.Node) -> bool:
    return any(each.type == "Ready" for each in node.status.conditions)


def _is_ready(node: core.Node) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in node.status.conditions)
