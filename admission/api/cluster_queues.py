"""ClusterQueue: quota by flavor, who may use it, in which order, and what may be preempted for it."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import Conditions, LabelSelector, ObjectMeta
from admission.api.names import API_VERSION
from admission.api.quota import FairSharing, FairSharingStatus, FlavorUsage, ResourceGroups, StopPolicy
from admission.api.schema import REQUIRED, Cel, Column, Definition, Int32, Object, Schema, Subdomain, always

FungibilityPolicy = Annotated[str, Schema(enum=("MayStopSearch", "TryNextFlavor"))]
MigrationMode = Annotated[str, Schema(required=True, enum=("TryPreferredFlavors", "RetainFirstAdmission"))]
AdmissionMode = Annotated[str, Schema(required=True, enum=("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing"))]


class FlavorFungibility(Object, frozen=True):
    """Whether the next flavor is tried before borrowing or preempting in this one."""

    when_can_borrow: Annotated[FungibilityPolicy, Schema(default="MayStopSearch")] = "MayStopSearch"
    when_can_preempt: Annotated[FungibilityPolicy, Schema(default="TryNextFlavor")] = "TryNextFlavor"
    preference: Annotated[str | None, Schema(enum=("BorrowingOverPreemption", "PreemptionOverBorrowing"))] = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.preference) || "
                "(self.whenCanBorrow == 'TryNextFlavor' && self.whenCanPreempt == 'TryNextFlavor')",
                "preference can only be set when both whenCanBorrow and whenCanPreempt are TryNextFlavor",
                field=".preference",
            ),
        )
    )


class BorrowWithinCohort(Object, frozen=True):
    policy: Annotated[str, Schema(enum=("Never", "LowerPriority"), default="Never")] = "Never"
    max_priority_threshold: Int32 | None = None


class ClusterQueuePreemption(Object, frozen=True):
    reclaim_within_cohort: Annotated[str, Schema(enum=("Never", "LowerPriority", "Any"), default="Never")] = "Never"
    borrow_within_cohort: Annotated[BorrowWithinCohort, Schema(default={})] = BorrowWithinCohort()
    within_cluster_queue: Annotated[
        str, Schema(enum=("Never", "LowerPriority", "LowerOrNewerEqualPriority"), default="Never")
    ] = "Never"

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "self.reclaimWithinCohort != 'Never' || !has(self.borrowWithinCohort) || "
                "self.borrowWithinCohort.policy == 'Never'",
                "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never",
                field=".borrowWithinCohort",
            ),
        )
    )


class AdmissionCheckStrategyRule(Object, frozen=True):
    """No flavors means all of them."""

    name: Annotated[str, Schema(required=True, min_length=1, max_length=316)] = always("")
    on_flavors: Annotated[tuple[Subdomain, ...], Schema(list_type="set", max_items=64)] = ()


class AdmissionChecksStrategy(Object, frozen=True):
    admission_checks: Annotated[
        tuple[AdmissionCheckStrategyRule, ...],
        Schema(list_type="map", list_keys=("name",), min_items=1, max_items=64),
    ] = ()


class AdmissionScope(Object, frozen=True):
    admission_mode: AdmissionMode = always("")


class MigrationConstraints(Object, frozen=True):
    last_acceptable_flavor_name: Subdomain | None = None


class Migration(Object, frozen=True):
    mode: MigrationMode = always("")
    constraints: MigrationConstraints | None = None


class ConcurrentAdmissionPolicy(Object, frozen=True):
    migration: Annotated[Migration, REQUIRED] = msgspec.field(default_factory=Migration)


class ClusterQueueSpec(Object, frozen=True):
    """No namespace selector matches no namespace; an empty one matches all."""

    resource_groups: ResourceGroups = ()
    cohort_name: Subdomain | None = None
    queueing_strategy: Annotated[str, Schema(enum=("StrictFIFO", "BestEffortFIFO"), default="BestEffortFIFO")] = (
        "BestEffortFIFO"
    )
    namespace_selector: Annotated[LabelSelector | None, Schema(atomic=True)] = None
    flavor_fungibility: Annotated[FlavorFungibility, Schema(default={})] = FlavorFungibility()
    preemption: Annotated[ClusterQueuePreemption, Schema(default={})] = ClusterQueuePreemption()
    admission_checks_strategy: AdmissionChecksStrategy | None = None
    stop_policy: StopPolicy = "None"
    fair_sharing: FairSharing | None = None
    admission_scope: AdmissionScope | None = None
    concurrent_admission_policy: ConcurrentAdmissionPolicy | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "has(self.cohortName) || !has(self.resourceGroups) || self.resourceGroups.all(g, "
                "g.flavors.all(f, f.resources.all(r, !has(r.borrowingLimit))))",
                "borrowingLimit must be nil when cohort is empty",
                field=".resourceGroups",
            ),
        )
    )


class ClusterQueueStatus(Object, frozen=True):
    """Reservation counts every workload that holds quota, usage only the admitted ones."""

    conditions: Conditions = ()
    flavors_reservation: Annotated[
        tuple[FlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)
    ] = ()
    flavors_usage: Annotated[tuple[FlavorUsage, ...], Schema(list_type="map", list_keys=("name",), max_items=64)] = ()
    pending_workloads: Int32 = always(0)
    reserving_workloads: Int32 = always(0)
    admitted_workloads: Int32 = always(0)
    fair_sharing: FairSharingStatus | None = None


class ClusterQueue(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("ClusterQueue")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ClusterQueueSpec = msgspec.field(default_factory=ClusterQueueSpec)
    status: ClusterQueueStatus = ClusterQueueStatus()

    DEFINITION: ClassVar[Definition] = Definition(
        plural="clusterqueues",
        short_names=("cq",),
        has_status=True,
        columns=(
            Column("Cohort", ".spec.cohortName"),
            Column("Strategy", ".spec.queueingStrategy", wide=True),
            Column("Pending Workloads", ".status.pendingWorkloads", "integer"),
            Column("Admitted Workloads", ".status.admittedWorkloads", "integer", wide=True),
        ),
    )
