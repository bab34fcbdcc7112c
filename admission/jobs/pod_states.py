"""What a pod's own fields say about it, and the single writes on pods: ungate, terminate, let go.

Everything is read from one observed pod. What is written on a pod of the user is the least that does it: gates and
finalizers of Muster's own, directives of the admission, one condition; foreign gates and finalizers stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from admission.api import meta, names
from admission.api.core import POD_FAILED, POD_SUCCEEDED, Pod, is_gated, is_terminal, pod_condition
from admission.api.decoding import plain
from admission.api.meta import OwnerReference
from admission.jobs.effects import Delete, Effect, Patch, PatchKind, Ref
from admission.jobs.injection import OWN_ANNOTATIONS, OWN_LABELS, CannotStart, Injection
from admission.jobs.statuses import without_finalizer

KIND = "Pod"

#: What queues all of its pods, or groups of them, together.
_OF_GANGS = frozenset({names.STATEFUL_SET_INTEGRATION, names.LEADER_WORKER_SET_INTEGRATION})
#: The gates that a start takes off.
_OWN_GATES = frozenset({names.ADMISSION_GATE, names.TOPOLOGY_GATE})
#: Each pod has its own, which would make the pods of a gang differ.
_LEFT_OUT = OWN_ANNOTATIONS | {names.REVIEWED}


# ------------------------------------------------------------------ facts


def ref(pod: Pod) -> Ref:
    return Ref(KIND, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def owner(pod: Pod) -> OwnerReference:
    """As one of the owners of its group's Workload, none of which is the controller."""
    return OwnerReference("v1", KIND, pod.metadata.name, pod.metadata.uid)


def is_managed(pod: Pod) -> bool:
    """Whether the webhook has taken the pod in; the finalizer counts too, or it would never come off."""
    return pod.metadata.labels.get(names.MANAGED_LABEL) == "true" or names.POD_FINALIZER in pod.metadata.finalizers


def group_name(pod: Pod) -> str:
    return pod.metadata.annotations.get(names.POD_GROUP_NAME) or pod.metadata.labels.get(names.POD_GROUP_NAME, "")


def was_one_of_many(pod: Pod) -> bool:
    """Whether it was let go with the gang of an owner. It is none by itself, also when the owner went without it."""
    annotations = pod.metadata.annotations
    return annotations.get(names.POD_SUSPENDING_PARENT) in _OF_GANGS and names.WORKLOAD_ANNOTATION in annotations


def is_waiting(pod: Pod) -> bool:
    """Whether it is held back, and could be let go."""
    return is_gated(pod, names.ADMISSION_GATE) and not is_terminal(pod) and not pod.metadata.is_deleting


def runs(pod: Pod) -> bool:
    """Whether it was let go, and neither ended nor was told to."""
    return not is_gated(pod, names.ADMISSION_GATE) and not is_terminal(pod) and not pod.metadata.is_deleting


def is_leaving(pod: Pod) -> bool:
    """Whether it is being deleted and nothing of it runs, or ever will: only finalizers keep the object.

    Without any grace left it is the kubelet's last word, or that of somebody who knows that the node is lost.
    """
    if not pod.metadata.is_deleting:
        return False
    return is_terminal(pod) or not pod.spec.node_name or pod.metadata.deletion_grace_period_seconds == 0


def is_active(pod: Pod, now: float, *, gives_back_at_once: bool = False) -> bool:
    """Whether it holds what it was given on a node.

    A deleted pod does until its containers have ended, or its time to do so is over: the kubelet would have killed it
    by then, and a node that does not answer must not keep quota for ever. With `gives_back_at_once`, which is the gate
    FastQuotaReleaseInPodIntegration, it holds nothing from the moment of its deletion.
    """
    if gives_back_at_once and pod.metadata.is_deleting:
        return False
    if is_gated(pod, names.ADMISSION_GATE) or is_terminal(pod) or not pod.spec.node_name or is_leaving(pod):
        return False
    return not pod.metadata.is_deleting or grace_left(pod, now) > 0


def grace_left(pod: Pod, now: float) -> float:
    """Seconds until a deleted pod is past its grace; 0 for one that is not deleted."""
    deadline = pod.metadata.deletion_timestamp
    return max(0.0, meta.epoch(deadline) - now) if deadline else 0.0


def holds_place(pod: Pod) -> bool:
    """Whether it counts as one of the group's pods.

    A pod that is being deleted has given up its place already, whatever still runs of it: a replacement that comes
    early is kept. One that has succeeded keeps its place for good.
    """
    return pod.status.phase == POD_SUCCEEDED or (pod.status.phase != POD_FAILED and not pod.metadata.is_deleting)


def is_ready(pod: Pod) -> bool:
    condition = pod_condition(pod, names.POD_READY)
    return pod.status.phase == POD_SUCCEEDED or (condition is not None and condition.status == meta.TRUE)


def by_age(pod: Pod) -> tuple[str, str]:
    return pod.metadata.creation_timestamp or "", pod.metadata.name


def template(pod: Pod) -> dict[str, Any]:
    """The pod as the template of a pod set: without what only this pod has, or Muster gave it."""
    labels = {name: value for name, value in pod.metadata.labels.items() if name not in OWN_LABELS}
    annotations = {name: value for name, value in pod.metadata.annotations.items() if name not in _LEFT_OUT}
    spec = plain(pod.spec)
    spec.pop("nodeName", None)
    gates = [gate for gate in spec.pop("schedulingGates", ()) if gate["name"] not in _OWN_GATES]
    if gates:
        spec["schedulingGates"] = gates
    return {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec}


# ------------------------------------------------------------------ writes


def ungated(pod: Pod, injection: Injection, domain: Mapping[str, str]) -> Patch | CannotStart:
    """One patch that lets the pod go to where its gang was admitted.

    The API server lets a gated pod's node selector grow but not change, so a key that has another value already can
    never be satisfied.
    """
    selector = {**injection.node_selector, **domain}
    for key, value in selector.items():
        present = pod.spec.node_selector.get(key, value)
        if present != value:
            message = f'pod {pod.metadata.name} wants {key}="{present}", but was admitted to {key}="{value}"'
            return CannotStart(message, permanent=True)
    tolerations = plain(pod.spec.tolerations)
    more = [dict(entry) for entry in injection.tolerations if dict(entry) not in tolerations]
    spec: dict[str, Any] = {
        "schedulingGates": [plain(gate) for gate in pod.spec.scheduling_gates if gate.name not in _OWN_GATES],
    }
    if selector:
        spec["nodeSelector"] = selector
    if more:
        spec["tolerations"] = [*tolerations, *more]
    metadata = {"labels": dict(injection.labels), "annotations": dict(injection.annotations)}
    body = {"metadata": metadata, "spec": spec}
    return Patch(ref(pod), body, resource_version=pod.metadata.resource_version)


def terminated(pods: Iterable[Pod], message: str, now: float) -> tuple[Effect, ...]:
    """Says on each pod why, then deletes it. All conditions come first: what says why must be there when they end."""
    chosen = list(pods)
    condition = {
        "type": names.TERMINATION_TARGET,
        "status": meta.TRUE,
        "reason": "StoppedByKueue",
        "message": message[:1024],
        "lastTransitionTime": meta.rfc3339(now),
    }
    body = {"status": {"conditions": [condition]}}
    said = [
        Patch(ref(pod), body, kind=PatchKind.STRATEGIC, subresource="status")
        for pod in chosen
        if pod_condition(pod, names.TERMINATION_TARGET) is None
    ]
    return (*said, *(Delete(ref(pod)) for pod in chosen))


def let_go(pods: Iterable[Pod]) -> tuple[Effect, ...]:
    """Takes Muster's finalizer off, and no other."""
    return tuple(
        effect for pod in pods for effect in without_finalizer(ref(pod), pod.metadata.finalizers, names.POD_FINALIZER)
    )
