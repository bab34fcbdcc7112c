"""Workload: a gang as the queues see it, with the quota that it holds and everything that happened to it."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from admission.api.flavors import Tolerations
from admission.api.meta import Conditions, ObjectMeta
from admission.api.names import API_VERSION, DEFAULT_POD_SET
from admission.api.schema import (
    DNS_LABEL_PATTERN,
    REQUIRED,
    Cel,
    Column,
    Definition,
    Int32,
    Object,
    Quantity,
    Schema,
    Subdomain,
    Time,
    always,
)

PodSetName = Annotated[str, Schema(required=True, max_length=63, pattern=DNS_LABEL_PATTERN, default=DEFAULT_POD_SET)]
PodSetReference = Annotated[str, Schema(required=True, max_length=63, pattern=DNS_LABEL_PATTERN)]

_RESERVED = (
    "has({0}.status) && has({0}.status.conditions) && "
    "{0}.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
)
_ADMITTED = _RESERVED.replace("QuotaReserved", "Admitted")

# ------------------------------------------------------------------ spec


class SliceRequiredTopologyConstraint(Object, frozen=True):
    topology: Annotated[str, Schema(required=True, min_length=1, max_length=63)] = always("")
    size: Annotated[Int32, Schema(required=True, minimum=1)] = always(1)


class PodSetTopologyRequest(Object, frozen=True):
    """At most one of required, preferred and unconstrained. Slice constraints go from the outside in."""

    required: Annotated[str | None, Schema(max_length=63)] = None
    preferred: Annotated[str | None, Schema(max_length=63)] = None
    unconstrained: bool | None = None
    pod_index_label: Annotated[str | None, Schema(max_length=317)] = None
    sub_group_index_label: Annotated[str | None, Schema(max_length=317)] = None
    sub_group_count: Annotated[Int32 | None, Schema(minimum=0)] = None
    pod_set_group_name: Annotated[str | None, Schema(max_length=256)] = None
    pod_set_slice_required_topology: Annotated[str | None, Schema(max_length=63)] = None
    pod_set_slice_size: Annotated[Int32 | None, Schema(minimum=1)] = None
    podset_slice_required_topology_constraints: Annotated[
        tuple[SliceRequiredTopologyConstraint, ...], Schema(list_type="atomic", max_items=3)
    ] = ()


class PodSet(Object, frozen=True):
    """`count` pods of one template. The template is kept as it came; read it with `decoding.convert`."""

    name: PodSetName = always(DEFAULT_POD_SET)
    template: Annotated[dict[str, Any], Schema(required=True, opaque=True)] = msgspec.field(default_factory=dict)
    count: Annotated[Int32, Schema(default=1, minimum=0)] = always(1)
    min_count: Annotated[Int32 | None, Schema(minimum=1)] = None
    topology_request: PodSetTopologyRequest | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.minCount) || self.minCount <= self.count",
                "minCount must be less than or equal to count",
                field=".minCount",
            ),
        )
    )


class PriorityClassRef(Object, frozen=True):
    group: Annotated[str, Schema(required=True, enum=("kueue.x-k8s.io", "scheduling.k8s.io"))] = always("")
    kind: Annotated[str, Schema(required=True, enum=("WorkloadPriorityClass", "PriorityClass"))] = always("")
    name: Annotated[Subdomain, Schema(required=True, min_length=1)] = always("")

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "(self.group == 'kueue.x-k8s.io') == (self.kind == 'WorkloadPriorityClass')",
                "kind must be WorkloadPriorityClass for group kueue.x-k8s.io and PriorityClass for scheduling.k8s.io",
                field=".kind",
            ),
        )
    )


class PreemptionGate(Object, frozen=True):
    name: Annotated[str, Schema(required=True, min_length=1, max_length=63)] = always("")


class WorkloadSpec(Object, frozen=True):
    pod_sets: Annotated[
        tuple[PodSet, ...], Schema(list_type="map", list_keys=("name",), min_items=1, max_items=18)
    ] = ()
    queue_name: Subdomain | None = None
    priority_class_ref: PriorityClassRef | None = None
    priority: Int32 | None = None
    active: Annotated[bool, Schema(default=True)] = True
    maximum_execution_time_seconds: Annotated[Int32 | None, Schema(minimum=1)] = None
    preemption_gates: Annotated[
        tuple[PreemptionGate, ...], Schema(list_type="map", list_keys=("name",), max_items=8)
    ] = ()

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.priorityClassRef) || has(self.priority)",
                "priority must be set when priorityClassRef is set",
                field=".priority",
            ),
        )
    )


# ------------------------------------------------------------------ topology assignment


class LevelValues(Object, frozen=True):
    """The value of each domain is `prefix` + its root + `suffix`."""

    prefix: Annotated[str | None, Schema(max_length=63)] = None
    suffix: Annotated[str | None, Schema(max_length=63)] = None
    roots: Annotated[
        tuple[Annotated[str, Schema(max_length=63)], ...],
        Schema(required=True, list_type="atomic", min_items=1, max_items=100000),
    ] = always(())


class SliceLevelValues(Object, frozen=True):
    """One value for all domains of the slice, or one for each."""

    universal: Annotated[str | None, Schema(max_length=63)] = None
    individual: LevelValues | None = None

    SCHEMA: ClassVar[Schema] = Schema(one_of=("universal", "individual"))


class SlicePodCounts(Object, frozen=True):
    """One count for all domains of the slice, or one for each."""

    universal: Annotated[Int32 | None, Schema(minimum=1)] = None
    individual: Annotated[
        tuple[Annotated[Int32, Schema(minimum=1)], ...] | None,
        Schema(list_type="atomic", min_items=1, max_items=100000),
    ] = None

    SCHEMA: ClassVar[Schema] = Schema(one_of=("universal", "individual"))


class TopologyAssignmentSlice(Object, frozen=True):
    domain_count: Annotated[Int32, Schema(required=True, minimum=1)] = always(1)
    values_per_level: Annotated[
        tuple[SliceLevelValues, ...], Schema(required=True, list_type="atomic", min_items=1, max_items=16)
    ] = always(())
    pod_counts: Annotated[SlicePodCounts, REQUIRED] = msgspec.field(default_factory=SlicePodCounts)

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "self.valuesPerLevel.all(v, !has(v.individual) || size(v.individual.roots) == self.domainCount)",
                "individual values must be as many as domainCount",
                field=".valuesPerLevel",
            ),
            Cel(
                "!has(self.podCounts.individual) || size(self.podCounts.individual) == self.domainCount",
                "individual pod counts must be as many as domainCount",
                field=".podCounts",
            ),
        )
    )


class TopologyAssignment(Object, frozen=True):
    """Where the pods of a pod set go, compactly; `admission.api.topology_assignment` reads and writes it."""

    levels: Annotated[
        tuple[Annotated[str, Schema(min_length=1, max_length=317)], ...],
        Schema(required=True, list_type="atomic", min_items=1, max_items=16),
    ] = always(())
    slices: Annotated[
        tuple[TopologyAssignmentSlice, ...],
        Schema(required=True, list_type="atomic", min_items=1, max_items=1000),
    ] = always(())

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "self.slices.all(s, size(s.valuesPerLevel) == size(self.levels))",
                "valuesPerLevel must be as many as levels",
                field=".slices",
            ),
        )
    )


# ------------------------------------------------------------------ status


class PodSetAssignment(Object, frozen=True):
    """`resource_usage` is the total of the pod set at admission; it stays when pods are given back."""

    name: PodSetName = always(DEFAULT_POD_SET)
    flavors: dict[str, Subdomain] = msgspec.field(default_factory=dict)
    resource_usage: dict[str, Quantity] = msgspec.field(default_factory=dict)
    count: Annotated[Int32 | None, Schema(minimum=0)] = None
    topology_assignment: TopologyAssignment | None = None
    delayed_topology_request: Annotated[str | None, Schema(enum=("Pending", "Ready"))] = None


class Admission(Object, frozen=True):
    cluster_queue: Annotated[Subdomain, REQUIRED] = always("")
    pod_set_assignments: Annotated[
        tuple[PodSetAssignment, ...],
        Schema(required=True, list_type="map", list_keys=("name",), min_items=1, max_items=18),
    ] = always(())


class RequeueState(Object, frozen=True):
    count: Annotated[Int32 | None, Schema(minimum=0)] = None
    requeue_at: Time | None = None


class ReclaimablePod(Object, frozen=True):
    """How many pods of the pod set no longer need their quota."""

    name: PodSetReference = always("")
    count: Annotated[Int32, Schema(required=True, minimum=0)] = always(0)


class PodSetUpdate(Object, frozen=True):
    """What an admission check wants the pods of a pod set to get when they start."""

    name: PodSetReference = always("")
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    tolerations: Tolerations = ()


class AdmissionCheckState(Object, frozen=True):
    name: Annotated[str, Schema(required=True, min_length=1, max_length=316)] = always("")
    state: Annotated[str, Schema(required=True, enum=("Pending", "Ready", "Retry", "Rejected"))] = always("Pending")
    last_transition_time: Annotated[Time, REQUIRED] = always("")
    message: Annotated[str, Schema(required=True, max_length=32768)] = always("")
    requeue_after_seconds: Annotated[Int32 | None, Schema(minimum=0)] = None
    retry_count: Annotated[Int32 | None, Schema(minimum=0)] = None
    pod_set_updates: Annotated[tuple[PodSetUpdate, ...], Schema(list_type="atomic", max_items=18)] = ()


class PodSetRequest(Object, frozen=True):
    """What the pod set would take if it were admitted now."""

    name: PodSetReference = always("")
    resources: dict[str, Quantity] = msgspec.field(default_factory=dict)


class SchedulingStatsEviction(Object, frozen=True):
    reason: Annotated[str, Schema(required=True, max_length=316)] = always("")
    underlying_cause: Annotated[str, Schema(required=True, max_length=316)] = always("")
    count: Annotated[Int32, Schema(required=True, minimum=0)] = always(0)


class SchedulingStats(Object, frozen=True):
    evictions: Annotated[
        tuple[SchedulingStatsEviction, ...],
        Schema(list_type="map", list_keys=("reason", "underlyingCause"), max_items=256),
    ] = ()


class UnhealthyNode(Object, frozen=True):
    name: Annotated[Subdomain, Schema(required=True, min_length=1)] = always("")


class PreemptionGateState(Object, frozen=True):
    name: Annotated[str, Schema(required=True, min_length=1, max_length=63)] = always("")
    position: Annotated[str, Schema(required=True, enum=("Open", "Closed"))] = always("")
    last_transition_time: Annotated[Time, REQUIRED] = always("")


class WorkloadStatus(Object, frozen=True):
    """`resource_requests` stand there only while no quota is held."""

    conditions: Conditions = ()
    admission: Admission | None = None
    requeue_state: RequeueState | None = None
    reclaimable_pods: Annotated[
        tuple[ReclaimablePod, ...], Schema(list_type="map", list_keys=("name",), max_items=18)
    ] = ()
    admission_checks: Annotated[
        tuple[AdmissionCheckState, ...], Schema(list_type="map", list_keys=("name",), max_items=8)
    ] = ()
    resource_requests: Annotated[
        tuple[PodSetRequest, ...], Schema(list_type="map", list_keys=("name",), max_items=18)
    ] = ()
    accumulated_past_execution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[
        tuple[Annotated[str, Schema(max_length=256)], ...], Schema(list_type="atomic", max_items=20)
    ] = ()
    cluster_name: Annotated[str | None, Schema(max_length=256)] = None
    unhealthy_nodes: Annotated[
        tuple[UnhealthyNode, ...], Schema(list_type="map", list_keys=("name",), max_items=8)
    ] = ()
    preemption_gates: Annotated[
        tuple[PreemptionGateState, ...], Schema(list_type="map", list_keys=("name",), max_items=8)
    ] = ()

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.clusterName) || !has(self.nominatedClusterNames) || size(self.nominatedClusterNames) == 0",
                "clusterName and nominatedClusterNames are mutually exclusive",
                field=".clusterName",
            ),
            Cel(
                "!has(self.clusterName) || !has(oldSelf.clusterName) || self.clusterName == oldSelf.clusterName",
                "clusterName is immutable once it is set",
                field=".clusterName",
            ),
        )
    )


class Workload(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("Workload")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = WorkloadStatus()

    DEFINITION: ClassVar[Definition] = Definition(
        plural="workloads",
        namespaced=True,
        short_names=("kwl", "kueueworkload", "kueueworkloads"),
        has_status=True,
        columns=(
            Column("Queue", ".spec.queueName"),
            Column("Reserved in", ".status.admission.clusterQueue"),
            Column("Admitted", '.status.conditions[?(@.type=="Admitted")].status'),
            Column("Finished", '.status.conditions[?(@.type=="Finished")].status'),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
        selectable=(".status.admission.clusterQueue",),
    )

    # What changes rarely is compared first, so that a status write looks through the conditions only for rule one.
    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.status) || !has(self.status.admission) || "
                "size(self.status.admission.podSetAssignments) == size(self.spec.podSets) || "
                f"!({_RESERVED.format('self')})",
                "podSetAssignments must have the same number of podSets as the spec",
                field=".status.admission.podSetAssignments",
            ),
            Cel(
                "has(self.spec.priorityClassRef) == has(oldSelf.spec.priorityClassRef) && "
                "(!has(self.spec.priorityClassRef) || ("
                "self.spec.priorityClassRef.group == oldSelf.spec.priorityClassRef.group && "
                "self.spec.priorityClassRef.kind == oldSelf.spec.priorityClassRef.kind && "
                "(self.spec.priorityClassRef.kind == 'WorkloadPriorityClass' || "
                "self.spec.priorityClassRef.name == oldSelf.spec.priorityClassRef.name))) || "
                f"!({_RESERVED.format('oldSelf')})",
                "priorityClassRef is immutable while quota is reserved, but for the name of a WorkloadPriorityClass",
                field=".spec.priorityClassRef",
            ),
            Cel(
                "has(self.spec.queueName) == has(oldSelf.spec.queueName) && "
                "(!has(self.spec.queueName) || self.spec.queueName == oldSelf.spec.queueName) || "
                f"!({_RESERVED.format('self')}) || !({_RESERVED.format('oldSelf')})",
                "queueName is immutable while quota is reserved",
                field=".spec.queueName",
            ),
            Cel(
                "has(self.spec.maximumExecutionTimeSeconds) == has(oldSelf.spec.maximumExecutionTimeSeconds) && "
                "(!has(self.spec.maximumExecutionTimeSeconds) || "
                "self.spec.maximumExecutionTimeSeconds == oldSelf.spec.maximumExecutionTimeSeconds) || "
                f"!({_ADMITTED.format('self')}) || !({_ADMITTED.format('oldSelf')})",
                "maximumExecutionTimeSeconds is immutable while admitted",
                field=".spec.maximumExecutionTimeSeconds",
            ),
        )
    )
