"""LocalQueue: a namespace's door to a ClusterQueue, and what of its usage came through it."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import Conditions, ObjectMeta
from admission.api.names import API_VERSION
from admission.api.quota import FairSharing, LocalQueueFairSharingStatus, LocalQueueFlavorUsage, StopPolicy
from admission.api.schema import Cel, Column, Definition, Int32, Object, Schema, Subdomain, always


class LocalQueueSpec(Object, frozen=True):
    cluster_queue: Annotated[Subdomain, Schema(cel=(Cel("self == oldSelf", "field is immutable"),))] = ""
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None


class LocalQueueStatus(Object, frozen=True):
    conditions: Conditions = ()
    pending_workloads: Int32 = always(0)
    reserving_workloads: Int32 = always(0)
    admitted_workloads: Int32 = always(0)
    flavors_reservation: Annotated[
        tuple[LocalQueueFlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    flavors_usage: Annotated[
        tuple[LocalQueueFlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("LocalQueue")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LocalQueueSpec = msgspec.field(default_factory=LocalQueueSpec)
    status: LocalQueueStatus = LocalQueueStatus()

    DEFINITION: ClassVar[Definition] = Definition(
        plural="localqueues",
        namespaced=True,
        short_names=("queue", "queues", "lq"),
        has_status=True,
        columns=(
            Column("ClusterQueue", ".spec.clusterQueue"),
            Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
            Column("Admitted Workloads", ".status.admittedWorkloads", "integer"),
        ),
    )
