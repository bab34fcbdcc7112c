"""v1beta1 of ClusterQueue and LocalQueue: the cohort's old field, plain admission checks, what the status once said.

Only what differs from v1beta2 stands here; every bound is that of v1beta2, so that nothing is stored through the old
version which the new one would refuse. Read by the CRD generator and the tests; objects are converted as plain dicts.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api import kueue
from admission.api.cluster_queues import AdmissionChecksStrategy, AdmissionScope, ClusterQueuePreemption
from admission.api.flavors import Taint
from admission.api.local_queues import LocalQueueSpec
from admission.api.meta import Conditions, LabelSelector, ObjectMeta
from admission.api.names import V1BETA1_API_VERSION
from admission.api.quota import (
    FairSharing,
    FairSharingStatus,
    FlavorUsage,
    LocalQueueFairSharingStatus,
    LocalQueueFlavorUsage,
    ResourceGroups,
    StopPolicy,
)
from admission.api.schema import REQUIRED, Cel, Column, Definition, Int32, Object, Schema, Subdomain, Time, always


class FlavorFungibility(Object, frozen=True):
    """`Borrow` and `Preempt` are the first names of MayStopSearch."""

    when_can_borrow: Annotated[
        str, Schema(enum=("MayStopSearch", "TryNextFlavor", "Borrow"), default="MayStopSearch")
    ] = "MayStopSearch"
    when_can_preempt: Annotated[
        str, Schema(enum=("MayStopSearch", "TryNextFlavor", "Preempt"), default="TryNextFlavor")
    ] = "TryNextFlavor"
    preference: Annotated[str | None, Schema(enum=("BorrowingOverPreemption", "PreemptionOverBorrowing"))] = None

    SCHEMA: ClassVar[Schema] = kueue.FlavorFungibility.SCHEMA


class ClusterQueueSpec(Object, frozen=True):
    """`admission_checks` are for all flavors, and win over a strategy beside them."""

    resource_groups: ResourceGroups = ()
    cohort: Subdomain | None = None
    queueing_strategy: Annotated[str, Schema(enum=("StrictFIFO", "BestEffortFIFO"), default="BestEffortFIFO")] = (
        "BestEffortFIFO"
    )
    namespace_selector: Annotated[LabelSelector | None, Schema(atomic=True)] = None
    flavor_fungibility: Annotated[FlavorFungibility, Schema(default={})] = FlavorFungibility()
    preemption: Annotated[ClusterQueuePreemption, Schema(default={})] = ClusterQueuePreemption()
    admission_checks: Annotated[
        tuple[Annotated[str, Schema(min_length=1, max_length=316)], ...], Schema(list_type="set", max_items=64)
    ] = ()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "has(self.cohort) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
                "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
                "borrowingLimit must be nil when cohort is empty",
                field=".resourceGroups",
            ),
        )
    )


class ClusterQueuePendingWorkload(Object, frozen=True):
    name: Annotated[str, REQUIRED] = always("")
    namespace: Annotated[str, REQUIRED] = always("")


class ClusterQueuePendingWorkloadsStatus(Object, frozen=True):
    """Nobody writes it any more; it is taken and dropped."""

    cluster_queue_pending_workload: Annotated[
        tuple[ClusterQueuePendingWorkload, ...], Schema(list_type="atomic", max_items=4000)
    ] = ()
    last_change_time: Annotated[Time, REQUIRED] = always("")


class ClusterQueueStatus(Object, frozen=True):
    conditions: Conditions = ()
    flavors_reservation: Annotated[
        tuple[FlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    flavors_usage: Annotated[tuple[FlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)] = ()
    pending_workloads: Int32 = always(0)
    reserving_workloads: Int32 = always(0)
    admitted_workloads: Int32 = always(0)
    pending_workloads_status: ClusterQueuePendingWorkloadsStatus | None = None
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("ClusterQueue")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ClusterQueueSpec = msgspec.field(default_factory=ClusterQueueSpec)
    status: ClusterQueueStatus = ClusterQueueStatus()

    DEFINITION: ClassVar[Definition] = Definition(
        plural=kueue.ClusterQueue.DEFINITION.plural,
        has_status=True,
        columns=(Column("Cohort", ".spec.cohort"), *kueue.ClusterQueue.DEFINITION.columns[1:]),
    )


class TopologyInfo(Object, frozen=True):
    name: Annotated[Subdomain, REQUIRED] = always("")
    levels: Annotated[tuple[str, ...], Schema(required=True, list_type="atomic", min_items=1, max_items=16)] = always(
        ()
    )


class LocalQueueFlavorStatus(Object, frozen=True):
    """Nobody writes it any more; it is taken and dropped."""

    name: Annotated[Subdomain, REQUIRED] = always("")
    resources: Annotated[tuple[str, ...], Schema(list_type="set", max_items=64)] = ()
    node_labels: Annotated[dict[str, str], Schema(atomic=True, max_properties=8)] = msgspec.field(default_factory=dict)
    node_taints: Annotated[tuple[Taint, ...], Schema(list_type="atomic", max_items=8)] = ()
    topology: TopologyInfo | None = None


class LocalQueueStatus(Object, frozen=True):
    """`flavor_usage` is `flavorsUsage` now."""

    conditions: Conditions = ()
    pending_workloads: Int32 = always(0)
    reserving_workloads: Int32 = always(0)
    admitted_workloads: Int32 = always(0)
    flavors_reservation: Annotated[
        tuple[LocalQueueFlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    flavor_usage: Annotated[
        tuple[LocalQueueFlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    flavors: Annotated[
        tuple[LocalQueueFlavorStatus, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    fair_sharing: LocalQueueFairSharingStatus | None = None


class LocalQueue(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("LocalQueue")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LocalQueueSpec = msgspec.field(default_factory=LocalQueueSpec)
    status: LocalQueueStatus = LocalQueueStatus()

    DEFINITION: ClassVar[Definition] = kueue.LocalQueue.DEFINITION
