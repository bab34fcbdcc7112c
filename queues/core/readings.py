"""What the shell may read of the state: usage, counts, order, reasons, activity.

It works from the books and the waiting lists and changes neither (but for handing over what changed). Everything is
answered at the cost of what is answered, never by a pass over all workloads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from queues.core.activity import World, local_activity_of
from queues.core.books import Books
from queues.core.fairness import NO_SHARE, Share, share_of
from queues.core.model import (
    AdmissionCheck,
    ClusterQueue,
    ClusterQueueName,
    Cohort,
    CohortName,
    FlavorName,
    FlavorResource,
    LocalQueue,
    Namespace,
    ObjectKey,
    ResourceFlavor,
    Timestamp,
    Topology,
    Uid,
)
from queues.core.order import uids
from queues.core.past import PastUse, Sample
from queues.core.quantities import beyond
from queues.core.reasons import Reason
from queues.core.records import Activity, Stage, WorkloadRecord
from queues.core.reservations import Reservations
from queues.core.topology.hosts import HostChanges
from queues.core.usage_history import NO_USE, Level
from queues.core.waiting import Waiting


@dataclass(frozen=True, slots=True)
class UnitUsage:
    """`reserved` by all that hold quota, `admitted` by those that are admitted, each with the borrowed part.

    A LocalQueue borrows nothing itself.
    """

    reserved: int
    admitted: int
    reserved_borrowed: int = 0
    admitted_borrowed: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """`pending` = `active` (would be looked at) + `inadmissible` (parked, backing off or barred)."""

    pending: int
    active: int
    inadmissible: int
    reserving: int
    admitted: int


@dataclass(frozen=True, slots=True)
class Changed:
    cluster_queues: tuple[ClusterQueueName, ...]
    local_queues: tuple[ObjectKey, ...]
    cohorts: tuple[CohortName, ...] = ()


@dataclass(frozen=True, slots=True)
class CohortReading:
    """One unit of a cohort: quota with what children lend, what is used of it, and the most that can be used."""

    quota: int
    usage: int
    potential: int


@dataclass(frozen=True, slots=True)
class Shapes:
    """How many different shapes of workloads wait in a queue: each is judged once for all that have it."""

    active: int
    inadmissible: int


#: What `knows` can be asked about.
Told = ClusterQueue | LocalQueue | Cohort | ResourceFlavor | AdmissionCheck | Topology | Namespace


class Readings:
    """The reading half of `State`."""

    books: Books
    waiting: Waiting
    world: World
    past: PastUse
    reservations: Reservations
    workloads: dict[Uid, WorkloadRecord]
    _cohorts: dict[CohortName, Cohort]

    def settle(self) -> None:
        raise AssertionError("a state settles itself")

    def queue_status(self, name: ClusterQueueName) -> Activity:
        """The condition `Active` of a ClusterQueue."""
        self.settle()
        queue = self.books.queues.get(name)
        if queue is None:
            return Activity(active=False, reason="NotFound", message=f"ClusterQueue {name} not found")
        return queue.activity

    def local_queue_status(self, key: ObjectKey) -> Activity:
        """The condition `Active` of a LocalQueue."""
        self.settle()
        home = self.books.local_queues.get(key)
        if home is None or home.spec is None:
            return Activity(active=False, reason="NotFound", message=f"LocalQueue {key} not found")
        return local_activity_of(home, self.books.queues.get(home.spec.cluster_queue))

    def usage(self, name: ClusterQueueName) -> dict[FlavorResource, UnitUsage]:
        """Of every unit that the ClusterQueue has quota for, in its own order, and of all others that it uses."""
        self.settle()
        queue = self.books.queues.get(name)
        if queue is None:
            return {}
        found = {}
        for unit in (*queue.node.quotas, *sorted(set(queue.reserved) - set(queue.node.quotas))):
            quota = queue.node.quotas.get(unit)
            nominal = 0 if quota is None else quota.nominal
            reserved, admitted = queue.reserved.get(unit, 0), queue.admitted.get(unit, 0)
            in_cohort = queue.node.parent is not None
            found[unit] = UnitUsage(
                reserved,
                admitted,
                beyond(reserved, nominal) if in_cohort else 0,
                beyond(admitted, nominal) if in_cohort else 0,
            )
        return found

    def local_usage(self, key: ObjectKey) -> dict[FlavorResource, UnitUsage]:
        """Of every unit that the LocalQueue's ClusterQueue has quota for, and of all others that it uses."""
        home = self.books.local_queues.get(key)
        if home is None:
            return {}
        queue = None if home.spec is None else self.books.queues.get(home.spec.cluster_queue)
        units = {} if queue is None else queue.node.quotas
        return {
            unit: UnitUsage(home.reserved.get(unit, 0), home.admitted.get(unit, 0))
            for unit in (*units, *sorted(set(home.reserved) - set(units)))
        }

    def counts(self, name: ClusterQueueName) -> Counts:
        """Cost: the queue's groups of equal workloads."""
        queue = self.books.queues.get(name)
        if queue is None:
            return Counts(0, 0, 0, 0, 0)
        pending = len(queue.pending)
        active = sum(group.size for group in queue.order.groups.values() if not group.is_parked)
        active = active if queue.is_active else 0
        return Counts(pending, active, pending - active, len(queue.holding), queue.admitted_count)

    def shapes(self, name: ClusterQueueName) -> Shapes:
        """Cost: the queue's groups of equal workloads."""
        queue = self.books.queues.get(name)
        if queue is None:
            return Shapes(0, 0)
        total = len(queue.order.groups)
        parked = sum(1 for group in queue.order.groups.values() if group.is_parked) if queue.is_active else total
        return Shapes(total - parked, parked)

    def local_counts(self, key: ObjectKey) -> Counts:
        """Cost: the groups of equal workloads in its ClusterQueue."""
        home = self.books.local_queues.get(key)
        if home is None:
            return Counts(0, 0, 0, 0, 0)
        queue = None if home.spec is None else self.books.queues.get(home.spec.cluster_queue)
        active = 0
        if queue is not None and queue.is_active:
            active = sum(group.homes.get(home, 0) for group in queue.order.groups.values() if not group.is_parked)
        return Counts(home.pending, active, home.pending - active, home.reserving_count, home.admitted_count)

    def order(self, name: ClusterQueueName) -> tuple[Uid, ...]:
        """Everybody who waits in the ClusterQueue, parked and backing off included, in the order of their turn."""
        queue = self.books.queues.get(name)
        if queue is None:
            return ()
        others = [record for record in queue.pending.values() if record.stage is not Stage.QUEUED]
        others.sort(key=lambda record: (-record.priority, record.workload.queued_at, record.uid))
        if queue.order.by_usage:
            others.sort(key=lambda record: NO_USE if record.home is None else record.home.level)
        return uids(queue.order.ordered()) + uids(others)

    def reason(self, uid: Uid) -> Reason | None:
        """Why a workload waits; None when it holds quota or is not known."""
        record = self.workloads.get(uid)
        return None if record is None else self.waiting.reason_of(record)

    def cohort(self, name: CohortName) -> dict[FlavorResource, CohortReading]:
        self.settle()
        node = self.books.forest.cohorts.get(name)
        if node is None:
            return {}
        return {
            unit: CohortReading(account.subtree, account.usage, account.potential)
            for unit, account in sorted(node.accounts.items())
        }

    def cohorts(self) -> dict[CohortName, tuple[CohortName, ...]]:
        """All cohorts, those that are only named too, each with those above it, the nearest first."""
        self.settle()
        return {
            name: tuple([CohortName(above.name) for above in node.path()])
            for name, node in sorted(self.books.forest.cohorts.items())
        }

    def cohorts_above(self, name: ClusterQueueName) -> tuple[CohortName, ...]:
        """The nearest first; in a cycle there are none."""
        self.settle()
        queue = self.books.queues.get(name)
        return () if queue is None else tuple([CohortName(above.name) for above in queue.node.path()])

    def share(self, name: ClusterQueueName) -> Share:
        """The dominant resource share of a ClusterQueue, as its workloads hold it."""
        self.settle()
        queue = self.books.queues.get(name)
        return NO_SHARE if queue is None else share_of(queue.node, ahead=False)

    def cohort_share(self, name: CohortName) -> Share:
        """That of a cohort."""
        self.settle()
        node = self.books.forest.cohorts.get(name)
        return NO_SHARE if node is None else share_of(node, ahead=False)

    def past_use(self, key: ObjectKey) -> Sample | None:
        """What the LocalQueue used lately, as of the last sampling; None where that is not remembered."""
        home = self.books.local_queues.get(key)
        return None if home is None else home.sample

    def takes_turns(self, key: ObjectKey) -> bool:
        """Whether past use comes first in the order of its ClusterQueue."""
        home = self.books.local_queues.get(key)
        queue = None if home is None or home.spec is None else self.books.queues.get(home.spec.cluster_queue)
        return queue is not None and queue.order.by_usage

    def past_level(self, key: ObjectKey) -> Level | None:
        """Its present place among the LocalQueues by that; None where that is not remembered."""
        home = self.books.local_queues.get(key)
        return None if home is None or home.history is None else home.level

    def cohort_specs(self) -> dict[CohortName, Cohort]:
        """The Cohorts that exist as objects, as the shell told them last."""
        return self._cohorts

    def flavor_levels(self) -> dict[FlavorName, tuple[ResourceFlavor, tuple[str, ...]]]:
        """All flavors, with the levels of their topology: none where it has none or that does not exist."""
        return {name: (flavor, self.books.domains.levels_of(name) or ()) for name, flavor in self.books.flavors.items()}

    def host_changes(self, since: int | None) -> HostChanges:
        """What changed on nodes since the answer before (its `version`); None: everything. Cost: what is answered."""
        return self.books.domains.host_changes(since)

    def queue(self, name: ClusterQueueName) -> ClusterQueue | None:
        """The ClusterQueue as the shell told it last."""
        record = self.books.queues.get(name)
        return None if record is None else record.spec

    def knows(self, value: Told) -> bool:
        """Whether this is what the shell told last."""
        known: object = None
        match value:
            case ClusterQueue():
                known = self.queue(value.name)
            case LocalQueue():
                home = self.books.local_queues.get(value.key)
                known = None if home is None else home.spec
            case Cohort():
                known = self._cohorts.get(value.name)
            case ResourceFlavor():
                known = self.books.flavors.get(value.name)
            case AdmissionCheck():
                known = self.world.checks.get(value.name)
            case Topology():
                known = self.world.topologies.get(value.name)
            case Namespace():
                labels = self.world.namespaces.get(value.name)
                known = None if labels is None else Namespace(value.name, labels)
            case _:
                assert_never(value)
        return known == value

    def queue_names(self) -> tuple[ClusterQueueName, ...]:
        return tuple(sorted(name for name, queue in self.books.queues.items() if queue.spec is not None))

    def next_wakeup(self) -> Timestamp | None:
        """When the first back-off ends, past use is sampled again, or a reservation begins or ends."""
        dues = (self.waiting.next_due(), self.past.next_due(), self.reservations.next_due())
        times = [due for due in dues if due is not None]
        return min(times, default=None)

    def dirty_queues(self) -> Changed:
        """The existing queues whose status may have changed since the last call; empties the list."""
        self.settle()
        books = self.books
        queues = [name for name in books.changed_queues if books.queue(name).spec is not None]
        homes = [key for key in books.changed_local_queues if (home := books.local_queues.get(key)) and home.spec]
        changed = Changed(tuple(sorted(queues)), tuple(sorted(homes)), tuple(sorted(books.changed_cohorts)))
        books.changed_queues.clear()
        books.changed_local_queues.clear()
        books.changed_cohorts.clear()
        return changed
