"""The look-ups that adapters and the pod sets of Workloads are made with: the last observed cluster, read only.

It is `admission.jobs.interface.Context` over the tables of the store. Every miss is None or empty; it must never fetch
anything or change a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from admission.api.core import LimitRange, PriorityClass, RuntimeClass
from admission.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate
from admission.api.kueue import LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass
from admission.api.meta import OwnerReference
from admission.controllers.tables import Tables
from admission.jobs.device_pools import Pools
from admission.jobs.interface import Member
from admission.settings import Settings


@dataclass(frozen=True, slots=True)
class Look:
    """`member_kinds` are the plain kinds of the enabled adapters."""

    tables: Tables
    settings: Settings
    clock: Callable[[], float]
    member_kinds: frozenset[str]
    #: What was made of the slices of each driver; whoever hears of another slice empties it.
    pools: dict[str, Pools] = field(default_factory=dict)

    @property
    def now(self) -> float:
        return self.clock()

    def workload_priority_class(self, name: str) -> WorkloadPriorityClass | None:
        return self.tables.workload_priority_classes.get("", name)

    def priority_class(self, name: str) -> PriorityClass | None:
        return self.tables.priority_classes.get("", name)

    def priority_classes(self) -> Iterable[PriorityClass]:
        return self.tables.priority_classes

    def limit_ranges(self, namespace: str) -> Iterable[LimitRange]:
        return self.tables.limit_ranges.where("namespace", namespace)

    def has_limits(self, namespace: str) -> bool:
        """Whether LimitRanges of the namespace have a say in what its pods ask for."""
        return self.tables.limit_ranges.has("namespace", namespace)

    def runtime_class(self, name: str) -> RuntimeClass | None:
        return self.tables.runtime_classes.get("", name)

    def device_classes(self) -> Iterable[DeviceClass]:
        return self.tables.device_classes

    def device_class(self, name: str) -> DeviceClass | None:
        return self.tables.device_classes.get("", name)

    def device_pools(self, driver: str) -> Pools:
        found = self.pools.get(driver)
        if found is None:
            slices = [each for each in self.tables.resource_slices if each.spec.driver == driver]
            found = self.pools[driver] = Pools.of(sorted(slices, key=lambda each: each.metadata.name))
        return found

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return self.tables.resource_claims.get(namespace, name)

    def resource_claim_template(self, namespace: str, name: str) -> ResourceClaimTemplate | None:
        return self.tables.resource_claim_templates.get(namespace, name)

    def resource_flavor(self, name: str) -> ResourceFlavor | None:
        return self.tables.flavors.get("", name)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        found = self.tables.namespaces.get("", namespace)
        return {} if found is None else found.metadata.labels

    def namespace_is_ending(self, namespace: str) -> bool:
        found = self.tables.namespaces.get("", namespace)
        return found is not None and found.metadata.is_deleting

    def local_queue(self, namespace: str, name: str) -> LocalQueue | None:
        return self.tables.local_queues.get(namespace, name)

    def workload(self, namespace: str, name: str) -> Workload | None:
        return self.tables.workloads.get(namespace, name)

    def owner(self, namespace: str, reference: OwnerReference) -> Member | None:
        if reference.kind not in self.member_kinds:
            return None
        found = self.tables.members(reference.kind).get(namespace, reference.name)
        return found if found is not None and found.metadata.uid == reference.uid else None
