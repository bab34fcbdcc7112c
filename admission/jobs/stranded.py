"""Ends pods that wait for a host where they can never run: one that has failed, or that their gang has left.

The scheduler would wait for the host for ever, since a node selector cannot be changed; a failed pod is made anew by
its controller and then sent elsewhere. Only pods that were let go, wait unbound and are pinned by hostname are ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from admission.api import meta, names
from admission.api.core import Pod, is_gated, is_terminal
from admission.api.kueue import TopologyAssignment
from admission.api.topology_assignment import decode
from admission.jobs import pod_states
from admission.jobs.effects import Effect, Patch, PatchKind, Severity, Tell

_PENDING = frozenset({"", "Pending"})


def ended(
    pods: Iterable[Pod], assignment: TopologyAssignment, unhealthy: AbstractSet[str], now: float
) -> tuple[Effect, ...]:
    """One write and one event for each stranded pod of a pod set with this assignment."""
    if assignment.levels[-1:] != (names.HOSTNAME_LABEL,):
        return ()
    pinned = [pod for pod in pods if names.HOSTNAME_LABEL in pod.spec.node_selector and _waits_unbound(pod)]
    if not pinned:
        return ()
    hosts = {domain.values[-1] for domain in decode(assignment)} - unhealthy
    effects: list[Effect] = []
    for pod in pinned:
        host = pod.spec.node_selector[names.HOSTNAME_LABEL]
        if host in hosts:
            continue
        message = f"The pod is pinned to node {host}, which has failed or is not assigned to its workload any more"
        condition = {
            "type": names.TERMINATED_BY_KUEUE,
            "status": meta.TRUE,
            "reason": names.REASON_UNSCHEDULABLE_ON_ASSIGNED_NODE,
            "message": message,
            "lastTransitionTime": meta.rfc3339(now),
        }
        body = {"status": {"phase": "Failed", "conditions": [condition]}}
        ref = pod_states.ref(pod)
        effects.append(Patch(ref, body, kind=PatchKind.STRATEGIC, subresource="status"))
        effects.append(Tell(ref, names.EVENT_POD_TERMINATED, message, Severity.NORMAL))
    return tuple(effects)


def _waits_unbound(pod: Pod) -> bool:
    return (
        pod.status.phase in _PENDING
        and not pod.spec.node_name
        and not is_terminal(pod)
        and not pod.metadata.is_deleting
        and not is_gated(pod, names.TOPOLOGY_GATE)
        and not is_gated(pod, names.ADMISSION_GATE)
    )
