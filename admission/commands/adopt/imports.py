"""What becomes of a running pod that is brought into a queue: its Workload, admitted with what the pod uses already.

Decided from the pod, its node and the queue that a rule names. A pod is left as it is unless all of it can be accounted
for; usage above the quota is no obstacle, since it is there. Nothing here ever stops a pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from admission.api import meta, names
from admission.api.core import Node, Pod, PriorityClass, is_terminal
from admission.api.decoding import plain
from admission.api.kueue import ClusterQueue, LocalQueue, ResourceFlavor
from admission.api.quantities import format_amount
from admission.commands.adopt.mapping import Rule, rule_for
from admission.jobs import pod_states
from admission.jobs.composing import workload_name
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests
from admission.settings import Resources

REASON: Final = "Imported"
#: Keeps others from admitting the Workload before it is said where its pod runs.
GATE: Final = "muster.dev/import"
_MIRROR: Final = "kubernetes.io/config.mirror"
_PODS: Final = "pods"


@dataclass(frozen=True, slots=True)
class Around:
    """The cluster as far as an import looks at it, by name; LocalQueues by namespace and name."""

    local_queues: Mapping[tuple[str, str], LocalQueue] = field(default_factory=dict)
    cluster_queues: Mapping[str, ClusterQueue] = field(default_factory=dict)
    flavors: Mapping[str, ResourceFlavor] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClass] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    resources: Resources = field(default_factory=Resources)


@dataclass(frozen=True, slots=True)
class Import:
    """`uncounted` are the resources for which the ClusterQueue has no quota."""

    pod: Pod
    queue: str
    cluster_queue: str
    workload: dict[str, Any]
    admission: dict[str, Any]
    uncounted: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.workload["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class Skipped:
    """Left alone on purpose."""

    pod: Pod
    why: str


@dataclass(frozen=True, slots=True)
class Impossible:
    """Cannot be brought into a queue; `why` says what would have to change."""

    pod: Pod
    why: str


Verdict = Import | Skipped | Impossible


def verdicts(pods: Iterable[Pod], rules: tuple[Rule, ...], around: Around) -> list[Verdict]:
    """One for each pod, by namespace and name. Cost: the pods."""
    ordered = sorted(pods, key=lambda pod: (pod.metadata.namespace, pod.metadata.name))
    return [verdict(pod, rules, around) for pod in ordered]


def verdict(pod: Pod, rules: tuple[Rule, ...], around: Around) -> Verdict:
    if (why := _left_alone(pod)) is not None:
        return Skipped(pod, why)
    rule = rule_for(pod, rules)
    if rule is not None and rule.skip:
        return Skipped(pod, "a rule says so")
    if rule is None:
        return Impossible(pod, "no rule matches it; add one, with skip where it is to be left alone")
    try:
        return _import(pod, rule.to_local_queue, around)
    except _Obstacle as obstacle:
        return Impossible(pod, str(obstacle))


class _Obstacle(Exception):  # noqa: N818  # a way out of the functions below, and caught above
    """Why a pod cannot be imported."""


def _queue(pod: Pod, name: str, around: Around) -> ClusterQueue:
    label = pod.metadata.labels.get(names.QUEUE_LABEL, "")
    if label not in {"", name}:
        raise _Obstacle(f"it names the queue {label}, and its rule {name}")
    local = around.local_queues.get((pod.metadata.namespace, name))
    if local is None:
        raise _Obstacle(f"there is no LocalQueue {name} in its namespace; create it")
    queue = around.cluster_queues.get(local.spec.cluster_queue)
    if queue is None:
        raise _Obstacle(f"there is no ClusterQueue {local.spec.cluster_queue}; create it")
    return queue


def _priority(pod: Pod, around: Around) -> PriorityClass | None:
    name = pod.spec.priority_class_name
    if name and name not in around.priority_classes:
        raise _Obstacle(f"there is no PriorityClass {name}")
    return around.priority_classes.get(name)


def _left_alone(pod: Pod) -> str | None:
    # The second is on every pod of a job that was admitted.
    if pod_states.is_managed(pod) or names.PODSET_LABEL in pod.metadata.labels:
        return "it is in a queue already"
    if is_terminal(pod) or pod.metadata.is_deleting:
        return "it ends or has ended"
    if not pod.spec.node_name:
        return "it does not run yet"
    owner = pod.metadata.controller
    if _MIRROR in pod.metadata.annotations or (owner is not None and owner.kind in {"DaemonSet", "Node"}):
        return "it belongs to its node"
    return None


def _import(pod: Pod, local: str, around: Around) -> Import:
    queue, priority = _queue(pod, local, around), _priority(pod, around)
    requests = pod_requests(pod.spec, Surroundings(around.resources, are_admitted=True))
    if isinstance(requests, Misconfigured):
        raise _Obstacle(requests.message)
    usage = {name: amount for name, amount in requests.charge.items() if amount}
    if any(_PODS in group.covered_resources for group in queue.spec.resource_groups):
        usage[_PODS] = 1
    flavors = _flavors(pod, queue, usage, around)
    if not flavors:
        raise _Obstacle(f"ClusterQueue {queue.metadata.name} has no quota for anything that it asks for")
    assignment = {
        "name": names.DEFAULT_POD_SET,
        "flavors": flavors,
        "resourceUsage": {name: format_amount(name, usage[name]) for name in sorted(flavors)},
        "count": 1,
    }
    admission = {"clusterQueue": queue.metadata.name, "podSetAssignments": [assignment]}
    uncounted = tuple(sorted(usage.keys() - flavors.keys()))
    return Import(pod, local, queue.metadata.name, _workload(pod, local, priority), admission, uncounted)


def _flavors(pod: Pod, queue: ClusterQueue, usage: Mapping[str, int], around: Around) -> dict[str, str]:
    """Of each group the first flavor that the pod's node has the labels of: what it runs on, and nothing else."""
    found: dict[str, str] = {}
    node = around.nodes.get(pod.spec.node_name)
    labels = {} if node is None else node.metadata.labels
    for group in queue.spec.resource_groups:
        wanted = [name for name in group.covered_resources if name in usage]
        offered = [each.name for each in group.flavors]
        flavor = next((name for name in offered if _fits(around.flavors.get(name), labels)), None)
        if wanted and flavor is None:
            why = f"its node {pod.spec.node_name} has the labels of no flavor of ClusterQueue {queue.metadata.name}"
            raise _Obstacle(f"{why} ({', '.join(offered)})")
        if flavor is not None:
            found |= dict.fromkeys(wanted, flavor)
    return found


def _fits(flavor: ResourceFlavor | None, labels: Mapping[str, str]) -> bool:
    return flavor is not None and flavor.spec.node_labels.items() <= labels.items()


def _workload(pod: Pod, local: str, priority: PriorityClass | None) -> dict[str, Any]:
    """Without an owner: the pod takes it as its own once it is labelled.

    Until then nobody may think that its job is lost, nor admit it to somewhere else: it has a gate of ours.
    """
    of = pod.metadata
    spec: dict[str, Any] = {
        "queueName": local,
        "podSets": [{"name": names.DEFAULT_POD_SET, "count": 1, "template": pod_states.template(pod)}],
        "priority": priority.value if priority is not None else pod.spec.priority or 0,
    }
    if priority is not None:
        spec["priorityClassRef"] = {
            "group": names.POD_PRIORITY_CLASS_GROUP,
            "kind": names.POD_PRIORITY_CLASS_KIND,
            "name": priority.metadata.name,
        }
    return {
        "apiVersion": names.API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": workload_name(pod_states.KIND, "", of.name, of.uid),
            "namespace": of.namespace,
            "annotations": {names.ADMISSION_GATED_BY: GATE},
            "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        },
        "spec": spec,
    }


def status(admission: dict[str, Any], now: float) -> dict[str, Any]:
    """The status of an admission that is a fact already."""
    message = f"Imported into ClusterQueue {admission['clusterQueue']}"
    conditions = [
        {
            "type": kind,
            "status": meta.TRUE,
            "reason": REASON,
            "message": message,
            "lastTransitionTime": meta.rfc3339(now),
        }
        for kind in (names.QUOTA_RESERVED, names.ADMITTED)
    ]
    return {"status": {"admission": admission, "conditions": conditions}}


def pod_patch(one: Import) -> dict[str, Any]:
    """What makes the pod a queued one, in a single write: it finds its Workload admitted at once."""
    of = one.pod.metadata
    return {
        "metadata": {
            "resourceVersion": of.resource_version,
            "labels": {names.QUEUE_LABEL: one.queue},
            "annotations": {names.PREBUILT_WORKLOAD: one.name},
            "finalizers": plain([*of.finalizers, names.POD_FINALIZER]),
        }
    }
