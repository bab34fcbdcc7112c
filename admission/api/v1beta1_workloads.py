"""v1beta1 of Workload: a priority class by name and source, and topology assignments as plain lists of domains.

Only what differs from v1beta2 stands here; every bound and every rule is that of v1beta2, said of the old fields, so
that nothing is stored through the old version which the new one would refuse. Objects are converted as plain dicts.
"""

from __future__ import annotations

import dataclasses
from typing import Annotated, Any, ClassVar

import msgspec

from admission.api import kueue
from admission.api.meta import Conditions, ObjectMeta
from admission.api.names import DEFAULT_POD_SET, V1BETA1_API_VERSION
from admission.api.schema import REQUIRED, Cel, Definition, Int32, Object, Quantity, Schema, Subdomain, always
from admission.api.workloads import (
    AdmissionCheckState,
    PodSetName,
    PodSetRequest,
    ReclaimablePod,
    RequeueState,
    SchedulingStats,
    UnhealthyNode,
)

WORKLOAD_PRIORITY_CLASS_SOURCE = "kueue.x-k8s.io/workloadpriorityclass"
POD_PRIORITY_CLASS_SOURCE = "scheduling.k8s.io/priorityclass"

# ------------------------------------------------------------------ spec


class PodSetTopologyRequest(Object, frozen=True):
    """Without the constraints of several slice levels, which v1beta1 has no words for."""

    required: Annotated[str | None, Schema(max_length=63)] = None
    preferred: Annotated[str | None, Schema(max_length=63)] = None
    unconstrained: bool | None = None
    pod_index_label: Annotated[str | None, Schema(max_length=317)] = None
    sub_group_index_label: Annotated[str | None, Schema(max_length=317)] = None
    sub_group_count: Annotated[Int32 | None, Schema(minimum=0)] = None
    pod_set_group_name: Annotated[str | None, Schema(max_length=256)] = None
    pod_set_slice_required_topology: Annotated[str | None, Schema(max_length=63)] = None
    pod_set_slice_size: Annotated[Int32 | None, Schema(minimum=1)] = None


class PodSet(Object, frozen=True):
    name: PodSetName = always(DEFAULT_POD_SET)
    template: Annotated[dict[str, Any], Schema(required=True, opaque=True)] = msgspec.field(default_factory=dict)
    count: Annotated[Int32, Schema(default=1, minimum=0)] = always(1)
    min_count: Annotated[Int32 | None, Schema(minimum=1)] = None
    topology_request: PodSetTopologyRequest | None = None

    SCHEMA: ClassVar[Schema] = kueue.PodSet.SCHEMA


class WorkloadSpec(Object, frozen=True):
    """An empty source means that there is no priority class, whatever its name."""

    pod_sets: Annotated[
        tuple[PodSet, ...], Schema(list_type="map", list_keys=("name",), min_items=1, max_items=18)
    ] = ()
    queue_name: Subdomain | None = None
    priority_class_name: Subdomain | None = None
    priority_class_source: Annotated[
        str | None, Schema(enum=(WORKLOAD_PRIORITY_CLASS_SOURCE, POD_PRIORITY_CLASS_SOURCE, ""))
    ] = None
    priority: Int32 | None = None
    active: Annotated[bool, Schema(default=True)] = True
    maximum_execution_time_seconds: Annotated[Int32 | None, Schema(minimum=1)] = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.priorityClassName) || has(self.priority)",
                "priority must be set when priorityClassName is set",
                field=".priority",
            ),
            Cel(
                "!has(self.priorityClassSource) || self.priorityClassSource == '' || has(self.priorityClassName)",
                "priorityClassName must be set when priorityClassSource is set",
                field=".priorityClassName",
            ),
        )
    )


# ------------------------------------------------------------------ status


class TopologyDomainAssignment(Object, frozen=True):
    values: Annotated[
        tuple[Annotated[str, Schema(max_length=63)], ...],
        Schema(required=True, list_type="atomic", min_items=1, max_items=16),
    ] = always(())
    count: Annotated[Int32, Schema(required=True, minimum=1)] = always(1)


class TopologyAssignment(Object, frozen=True):
    """Domain by domain, each with a value for every level."""

    levels: Annotated[
        tuple[Annotated[str, Schema(min_length=1, max_length=317)], ...],
        Schema(required=True, list_type="atomic", min_items=1, max_items=16),
    ] = always(())
    domains: Annotated[
        tuple[TopologyDomainAssignment, ...],
        Schema(required=True, list_type="atomic", min_items=1, max_items=100000),
    ] = always(())


class PodSetAssignment(Object, frozen=True):
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


class WorkloadStatus(Object, frozen=True):
    """The execution time is misspelled, as it was published."""

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
    accumulated_past_exexcution_time_seconds: Int32 | None = None
    scheduling_stats: SchedulingStats | None = None
    nominated_cluster_names: Annotated[
        tuple[Annotated[str, Schema(max_length=256)], ...], Schema(list_type="atomic", max_items=20)
    ] = ()
    cluster_name: Annotated[str | None, Schema(max_length=256)] = None
    unhealthy_nodes: Annotated[
        tuple[UnhealthyNode, ...], Schema(list_type="map", list_keys=("name",), max_items=8)
    ] = ()

    SCHEMA: ClassVar[Schema] = kueue.WorkloadStatus.SCHEMA


_SIZES, _REF, _QUEUE, _TIME = kueue.Workload.SCHEMA.cel
_HELD_QUOTA = (
    "has(oldSelf.status) && has(oldSelf.status.conditions) && "
    "oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True')"
)
# Not `?` and `orValue`: the API server knows no bound of what they give, and takes the rule for too dear.
_SOURCE = "(has({0}.spec.priorityClassSource) ? {0}.spec.priorityClassSource : '')"
_NAME = "(has({0}.spec.priorityClassName) ? {0}.spec.priorityClassName : '')"


class Workload(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("Workload")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: WorkloadSpec = msgspec.field(default_factory=WorkloadSpec)
    status: WorkloadStatus = WorkloadStatus()

    DEFINITION: ClassVar[Definition] = dataclasses.replace(kueue.Workload.DEFINITION, selectable=())

    # The rules of v1beta2, but that about `priorityClassRef` is said of the old fields.
    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            _SIZES,
            dataclasses.replace(
                _REF,
                rule=(
                    f"{_SOURCE.format('self')} == {_SOURCE.format('oldSelf')} && "
                    f"({_SOURCE.format('self')} != '{POD_PRIORITY_CLASS_SOURCE}' || "
                    f"{_NAME.format('self')} == {_NAME.format('oldSelf')}) || !({_HELD_QUOTA})"
                ),
                message=(
                    "priorityClassSource is immutable while quota is reserved, and so is the name of a PriorityClass"
                ),
                field=".spec.priorityClassSource",
            ),
            _QUEUE,
            _TIME,
        )
    )
