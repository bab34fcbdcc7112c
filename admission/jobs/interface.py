"""What a kind of job has to tell, and what a reconcile may look at: the seam between adapters and controllers.

An adapter says which gang (unit) an object belongs to and, from the members and Workloads of one unit as they were
last observed, what is to be done. It never keeps anything between calls, reads a clock or talks to the API server, so
the same observation gives the same effects, and a run cut short anywhere is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from admission.api.core import LimitRange, PriorityClass, RuntimeClass
from admission.api.devices import DeviceClass, ResourceClaim, ResourceClaimTemplate
from admission.api.kueue import LocalQueue, ResourceFlavor, Workload, WorkloadPriorityClass
from admission.api.meta import ObjectMeta, OwnerReference
from admission.jobs.device_pools import Pools
from admission.jobs.effects import Effect
from admission.settings import Settings


class Member(Protocol):
    """An object of a job kind: a Job, a Pod."""

    @property
    def metadata(self) -> ObjectMeta: ...


class UnitKey(NamedTuple):
    """One gang: a Job, a single pod or a pod group. `adapter` is `Adapter.name`."""

    adapter: str
    namespace: str
    name: str


def units_of_controller(adapter: str, obj: Member, group: str, kind: str) -> tuple[UnitKey, ...]:
    """The one that is named like the object's controller, if that is of this kind."""
    owner = obj.metadata.controller
    if owner is None or not owner.is_of(group, kind):
        return ()
    return (UnitKey(adapter, obj.metadata.namespace, owner.name),)


@dataclass(frozen=True, slots=True)
class Unit:
    """A gang as last observed.

    `members` are the objects for which `unit_of` gave this key, in any order; none when all are gone. `workloads` are
    those for which `units_of_workload` names this key, finished and terminating ones included.
    """

    key: UnitKey
    members: tuple[Any, ...] = ()
    workloads: tuple[Workload, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """Effects to carry out in order. `requeue_after` seconds from now the unit is to be looked at again."""

    effects: tuple[Effect, ...] = ()
    requeue_after: float | None = None


class Context(Protocol):
    """Read-only look-ups in the last observed cluster. Every miss is None (or empty), never an exception.

    A change of what a unit looked up here has to make that unit dirty; which these are: its namespace's LimitRanges,
    labels and LocalQueues, and all priority classes.
    """

    @property
    def settings(self) -> Settings: ...

    @property
    def now(self) -> float:
        """Seconds since the epoch."""
        ...

    def workload_priority_class(self, name: str) -> WorkloadPriorityClass | None: ...

    def priority_class(self, name: str) -> PriorityClass | None: ...

    def priority_classes(self) -> Iterable[PriorityClass]:
        """All of them (for the global default)."""
        ...

    def limit_ranges(self, namespace: str) -> Iterable[LimitRange]: ...

    def runtime_class(self, name: str) -> RuntimeClass | None: ...

    def device_classes(self) -> Iterable[DeviceClass]:
        """All of them, where device classes are mapped to resources; otherwise none are observed."""
        ...

    def device_class(self, name: str) -> DeviceClass | None: ...

    def device_pools(self, driver: str) -> Pools:
        """The driver's devices, where a mapping counts by them; otherwise none are observed."""
        ...

    def resource_claim(self, namespace: str, name: str) -> ResourceClaim | None: ...

    def resource_claim_template(self, namespace: str, name: str) -> ResourceClaimTemplate | None: ...

    def resource_flavor(self, name: str) -> ResourceFlavor | None: ...

    def namespace_labels(self, namespace: str) -> Mapping[str, str]: ...

    def namespace_is_ending(self, namespace: str) -> bool:
        """Whether it is being deleted, so that nothing can be created in it any more."""
        ...

    def local_queue(self, namespace: str, name: str) -> LocalQueue | None: ...

    def workload(self, namespace: str, name: str) -> Workload | None: ...

    def owner(self, namespace: str, reference: OwnerReference) -> Member | None:
        """The object of an enabled job kind that `reference` names, with the same uid."""
        ...


class Adapter(Protocol):
    """One kind of gang."""

    @property
    def name(self) -> str:
        """Of the adapter; the first part of its units' keys."""
        ...

    @property
    def framework(self) -> str:
        """The name in `integrations.frameworks` that switches it on."""
        ...

    @property
    def kinds(self) -> frozenset[str]:
        """The plain kinds whose objects are members ("Job", "Pod")."""
        ...

    def unit_of(self, member: Any, settings: Settings) -> UnitKey | None:
        """The unit that an object of one of `kinds` belongs to; None: this adapter leaves it alone."""
        ...

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        """The units that have to look at this Workload when it changes: those that own it, as far as it says."""
        ...

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        """What to do so that cluster and Workload agree. Idempotent; nothing to do is the empty outcome."""
        ...
