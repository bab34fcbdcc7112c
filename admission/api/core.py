"""What Muster reads of Kubernetes' own objects: pods, nodes, namespaces, limit ranges, classes, events.

Only the fields that a decision rests on are typed; everything else is ignored and must never be written back, so
these objects are only ever patched, never replaced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.schema import Object, Quantity, always

ResourceList = dict[str, Quantity]

# ------------------------------------------------------------------ the scheduling shape of a pod


class ResourceClaimUse(Object, frozen=True):
    """A container's use of a claim of its pod."""

    name: str = always("")
    request: str = ""


class ResourceRequirements(Object, frozen=True):
    requests: ResourceList = msgspec.field(default_factory=dict)
    limits: ResourceList = msgspec.field(default_factory=dict)
    claims: tuple[ResourceClaimUse, ...] = ()


class ContainerPort(Object, frozen=True):
    name: str = ""
    host_port: int = 0
    container_port: int = always(0)
    protocol: str = ""
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Object, frozen=True):
    """`restart_policy` Always makes an init container a sidecar."""

    name: str = always("")
    image: str = ""
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class NodeSelectorRequirement(Object, frozen=True):
    key: str = always("")
    operator: str = always("")
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Object, frozen=True):
    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Object, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = always(())


class PreferredSchedulingTerm(Object, frozen=True):
    weight: int = always(0)
    preference: NodeSelectorTerm = msgspec.field(default_factory=NodeSelectorTerm)


class NodeAffinity(Object, frozen=True):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: tuple[PreferredSchedulingTerm, ...] = msgspec.field(
        default=(), name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Object, frozen=True):
    """Affinity between pods is kept as it is: it is hashed and copied, never evaluated."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class Toleration(Object, frozen=True):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class Taint(Object, frozen=True):
    key: str = always("")
    value: str = ""
    effect: str = always("")


class PodSchedulingGate(Object, frozen=True):
    name: str = always("")


class PodResourceClaim(Object, frozen=True):
    name: str = always("")
    resource_claim_name: str = ""
    resource_claim_template_name: str = ""


class PodSpec(Object, frozen=True):
    """`resources` are the pod-level requests and limits; `topology_spread_constraints` are kept as they are."""

    containers: tuple[Container, ...] = always(())
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: ResourceList = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    scheduling_gates: tuple[PodSchedulingGate, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    topology_spread_constraints: tuple[dict[str, Any], ...] = ()
    node_name: str = ""
    priority_class_name: str = ""
    priority: int | None = None
    preemption_policy: str = ""
    runtime_class_name: str = ""
    restart_policy: str = ""
    scheduler_name: str = ""
    service_account_name: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None
    active_deadline_seconds: int | None = None


class PodTemplateSpec(Object, frozen=True):
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


# ------------------------------------------------------------------ pods

POD_SUCCEEDED = "Succeeded"
POD_FAILED = "Failed"


class PodCondition(Object, frozen=True):
    """The API server sends null for a transition time that was never set."""

    type: str = always("")
    status: str = always("")
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None
    observed_generation: int | None = None


class PodStatus(Object, frozen=True):
    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: tuple[PodCondition, ...] = ()
    start_time: str | None = None
    nominated_node_name: str = ""


class Pod(Object, frozen=True):
    api_version: str = always("v1")
    kind: str = always("Pod")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: PodSpec = msgspec.field(default_factory=PodSpec)
    status: PodStatus = PodStatus()


def is_gated(pod: Pod, gate: str) -> bool:
    """Whether the pod waits for this scheduling gate."""
    return any(entry.name == gate for entry in pod.spec.scheduling_gates)


def is_terminal(pod: Pod) -> bool:
    """Whether the pod has ended, one way or the other."""
    return pod.status.phase in {POD_SUCCEEDED, POD_FAILED}


def pod_condition(pod: Pod, type_: str) -> PodCondition | None:
    return next((condition for condition in pod.status.conditions if condition.type == type_), None)


# ------------------------------------------------------------------ nodes and namespaces


class NodeSpec(Object, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()


class NodeCondition(Object, frozen=True):
    type: str = always("")
    status: str = always("")
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeStatus(Object, frozen=True):
    allocatable: ResourceList = msgspec.field(default_factory=dict)
    capacity: ResourceList = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()


class Node(Object, frozen=True):
    api_version: str = always("v1")
    kind: str = always("Node")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class NamespaceStatus(Object, frozen=True):
    phase: str = ""


class Namespace(Object, frozen=True):
    api_version: str = always("v1")
    kind: str = always("Namespace")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    status: NamespaceStatus = NamespaceStatus()


# ------------------------------------------------------------------ defaults and classes


class LimitRangeItem(Object, frozen=True):
    """`type` is Container, Pod or PersistentVolumeClaim."""

    type: str = always("")
    max: ResourceList = msgspec.field(default_factory=dict)
    min: ResourceList = msgspec.field(default_factory=dict)
    default: ResourceList = msgspec.field(default_factory=dict)
    default_request: ResourceList = msgspec.field(default_factory=dict)
    max_limit_request_ratio: ResourceList = msgspec.field(default_factory=dict)


class LimitRangeSpec(Object, frozen=True):
    limits: tuple[LimitRangeItem, ...] = always(())


class LimitRange(Object, frozen=True):
    api_version: str = always("v1")
    kind: str = always("LimitRange")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LimitRangeSpec = msgspec.field(default_factory=LimitRangeSpec)


class Overhead(Object, frozen=True):
    pod_fixed: ResourceList = msgspec.field(default_factory=dict)


class RuntimeClassScheduling(Object, frozen=True):
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()


class RuntimeClass(Object, frozen=True):
    api_version: str = always("node.k8s.io/v1")
    kind: str = always("RuntimeClass")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    handler: str = always("")
    overhead: Overhead | None = None
    scheduling: RuntimeClassScheduling | None = None


class PriorityClass(Object, frozen=True):
    api_version: str = always("scheduling.k8s.io/v1")
    kind: str = always("PriorityClass")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    value: int = always(0)
    global_default: bool = False
    preemption_policy: str = ""
    description: str = ""


# ------------------------------------------------------------------ events


class ObjectReference(Object, frozen=True):
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    field_path: str = ""


class EventSource(Object, frozen=True):
    component: str = ""
    host: str = ""


class Event(Object, frozen=True):
    """A core/v1 Event."""

    api_version: str = always("v1")
    kind: str = always("Event")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    involved_object: ObjectReference = msgspec.field(default_factory=ObjectReference)
    reason: str = ""
    message: str = ""
    type: str = ""
    count: int = 0
    first_timestamp: str | None = None
    last_timestamp: str | None = None
    event_time: str | None = None
    source: EventSource = EventSource()
    reporting_component: str = ""
    reporting_instance: str = ""
    action: str = ""
