"""The parts that ClusterQueues, Cohorts and LocalQueues share: resource groups, fair sharing, usage, stop policies."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.schema import REQUIRED, Cel, Int64, Object, Quantity, Schema, Subdomain, Time, always

StopPolicy = Annotated[str, Schema(enum=("None", "Hold", "HoldAndDrain"), default="None")]


class ResourceQuota(Object, frozen=True):
    """No borrowing limit: may borrow everything. No lending limit: lends everything."""

    name: Annotated[str, REQUIRED] = always("")
    nominal_quota: Annotated[Quantity, REQUIRED] = always("0")
    borrowing_limit: Quantity | None = None
    lending_limit: Quantity | None = None


class FlavorQuotas(Object, frozen=True):
    name: Annotated[Subdomain, REQUIRED] = always("")
    resources: Annotated[
        tuple[ResourceQuota, ...],
        Schema(required=True, list_type="map", list_keys=("name",), min_items=1, max_items=64),
    ] = always(())


class ResourceGroup(Object, frozen=True):
    """Resources that always come from the same flavor; the flavors are tried in their order."""

    covered_resources: Annotated[
        tuple[str, ...], Schema(required=True, list_type="atomic", min_items=1, max_items=64)
    ] = always(())
    flavors: Annotated[
        tuple[FlavorQuotas, ...],
        Schema(required=True, list_type="map", list_keys=("name",), min_items=1, max_items=64),
    ] = always(())

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "self.flavors.all(x, size(x.resources) == size(self.coveredResources))",
                "flavors must have the same number of resources as the coveredResources",
                field=".flavors",
            ),
        )
    )


ResourceGroups = Annotated[tuple[ResourceGroup, ...], Schema(list_type="atomic", max_items=16)]


class FairSharing(Object, frozen=True):
    """Weight 0: borrows last, and gives back first."""

    weight: Annotated[Quantity, Schema(default=1)] = "1"


class FairSharingStatus(Object, frozen=True):
    weighted_share: Annotated[Int64, REQUIRED] = always(0)


class AdmissionFairSharingStatus(Object, frozen=True):
    consumed_resources: dict[str, Quantity] = msgspec.field(default_factory=dict)
    last_update: Time | None = None


class LocalQueueFairSharingStatus(Object, frozen=True):
    weighted_share: Annotated[Int64, REQUIRED] = always(0)
    admission_fair_sharing_status: AdmissionFairSharingStatus | None = None


class ResourceUsage(Object, frozen=True):
    name: Annotated[str, REQUIRED] = always("")
    total: Quantity = always("0")
    borrowed: Quantity = always("0")


class FlavorUsage(Object, frozen=True):
    """`total` includes what is `borrowed`."""

    name: Annotated[Subdomain, REQUIRED] = always("")
    resources: Annotated[
        tuple[ResourceUsage, ...], Schema(required=True, list_type="map", list_keys=("name",), max_items=64)
    ] = always(())


class LocalQueueResourceUsage(Object, frozen=True):
    name: Annotated[str, REQUIRED] = always("")
    total: Quantity = always("0")


class LocalQueueFlavorUsage(Object, frozen=True):
    name: Annotated[Subdomain, REQUIRED] = always("")
    resources: Annotated[
        tuple[LocalQueueResourceUsage, ...],
        Schema(required=True, list_type="map", list_keys=("name",), max_items=64),
    ] = always(())
