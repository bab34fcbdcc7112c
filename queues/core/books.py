"""Who holds what: charges every admission to the quota tree, to nodes and to the counters, and takes it off again.

It works from the admissions that workloads hold and from the claims of those that wait for evictions. It never decides
whether anything may be held: what the cluster says is held, is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from queues.core.borrowers import Borrowers
from queues.core.demand import Placed, charges_of, on_hosts, placed_of
from queues.core.model import (
    Admission,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    ObjectKey,
    ResourceFlavor,
    Uid,
)
from queues.core.order import PendingQueue
from queues.core.quantities import add_up
from queues.core.records import NO_CHARGES, Claim, LocalQueueRecord, QueueRecord, WorkloadRecord
from queues.core.topology.domains import Domains
from queues.core.tree import Forest, Node

Charged = tuple[tuple[FlavorName, Placed], ...]


def may_share(one: ResourceFlavor, other: ResourceFlavor | None) -> bool:
    """Whether a node could have the labels of both."""
    if other is None:
        return True
    theirs = dict(other.node_labels)
    return all(theirs.get(key, value) == value for key, value in one.node_labels)


class Books:
    """Usage is kept at every level as it changes; nothing here costs more than the height of the tree."""

    def __init__(self) -> None:
        self.forest = Forest()
        self.borrowers = Borrowers()
        self.domains = Domains()
        self.flavors: dict[FlavorName, ResourceFlavor] = {}
        self.queues: dict[ClusterQueueName, QueueRecord] = {}
        self.local_queues: dict[ObjectKey, LocalQueueRecord] = {}
        self.homes_in: dict[str, dict[ObjectKey, LocalQueueRecord]] = {}
        self.queue_at: dict[Node, QueueRecord] = {}
        #: Who has pods on which host, as far as assignments name hosts.
        self.tenants: dict[str, dict[Uid, WorkloadRecord]] = {}
        self.unready: dict[Uid, WorkloadRecord] = {}
        #: Those who wait for victims.
        self.claimants: dict[Uid, WorkloadRecord] = {}
        #: Those who were asked to go and still hold what they have: looking ahead, they are gone.
        self.leaving: dict[Uid, WorkloadRecord] = {}
        #: Queues whose numbers changed since the shell last asked.
        self.changed_queues: dict[ClusterQueueName, None] = {}
        self.changed_local_queues: dict[ObjectKey, None] = {}
        #: Cohorts whose quota or whose place in the tree changed.
        self.changed_cohorts: dict[CohortName, None] = {}
        #: LocalQueues whose past use has to be counted up to now.
        self.recounted: dict[LocalQueueRecord, None] = {}
        #: Where anything that concerns these units may be possible since the last look (None: all units).
        self.stirred: dict[QueueRecord, set[FlavorResource] | None] = {}
        #: Of these units less is used in these queues since the last look, and nothing else has changed.
        self.freed: dict[QueueRecord, set[FlavorResource]] = {}
        #: Queues in which somebody was asked to go since the last look.
        self.lightened: dict[QueueRecord, None] = {}
        #: Queues in which everybody has to look again.
        self.doubted: dict[QueueRecord, None] = {}
        self.nodes_stirred = False
        #: The same, but only on the nodes of these flavors.
        self.roomier: dict[FlavorName, None] = {}

    # ------------------------------------------------------------------ records

    def queue(self, name: ClusterQueueName) -> QueueRecord:
        record = self.queues.get(name)
        if record is None:
            record = self.queues[name] = QueueRecord(name, self.forest.queue(name), PendingQueue())
            self.queue_at[record.node] = record
        return record

    def forget_queue_if_unused(self, queue: QueueRecord) -> None:
        """A ClusterQueue that does not exist is remembered as long as LocalQueues or admissions name it."""
        if queue.spec is None and not queue.homes and not queue.holding:
            self.queues.pop(queue.name, None)
            self.queue_at.pop(queue.node, None)
            self.stirred.pop(queue, None)
            self.freed.pop(queue, None)
            self.doubted.pop(queue, None)
            self.lightened.pop(queue, None)
            self.borrowers.drop(queue)
            self.forest.forget_queue(queue.name)

    def local_queue(self, key: ObjectKey) -> LocalQueueRecord:
        record = self.local_queues.get(key)
        if record is None:
            record = self.local_queues[key] = LocalQueueRecord(key)
            self.homes_in.setdefault(key.namespace, {})[key] = record
        return record

    def forget_if_unused(self, home: LocalQueueRecord) -> None:
        """A LocalQueue that does not exist is remembered as long as workloads name it."""
        if home.spec is None and not home.workloads:
            del self.local_queues[home.key]
            siblings = self.homes_in[home.key.namespace]
            del siblings[home.key]
            if not siblings:
                del self.homes_in[home.key.namespace]

    def touch(self, record: WorkloadRecord) -> None:
        """The numbers of the queues that count this workload changed."""
        for queue in (record.queue, record.holder):
            if queue is not None:
                self.changed_queues[queue.name] = None
        if record.home is not None:
            self.changed_local_queues[record.home.key] = None

    def stir(self, queue: QueueRecord, units: Iterable[FlavorResource] | None) -> None:
        """More than what was given back is different around this queue: anything of these units (None: all) may fit."""
        if units is None:
            self.stirred[queue] = None
            return
        known = self.stirred.setdefault(queue, set())
        if known is not None:
            known.update(units)

    def free(self, queue: QueueRecord, units: Iterable[FlavorResource]) -> None:
        """So much less is used in this queue, now or looking ahead."""
        self.freed.setdefault(queue, set()).update(units)

    # ------------------------------------------------------------------ holding

    def hold(self, record: WorkloadRecord, admission: Admission) -> None:
        """Charge what the workload holds from now on."""
        queue = self.queue(admission.cluster_queue)
        record.admission = admission
        record.holder = queue
        record.charges = charges_of(record.workload, admission)
        queue.holding[record.uid] = record
        self.borrowers.changed(queue)
        for unit, amount in record.charges.items():
            account = self.forest.account(queue.node, unit)
            account.charge(amount)
            if not record.evicted:
                account.ahead.charge(amount)
        if record.evicted:
            self.leaving[record.uid] = record
        placed = placed_of(record.workload.pod_sets, admission.pod_sets)
        if placed:
            record.placed = self.take(placed)
            for host, _, _ in on_hosts(placed):
                self.tenants.setdefault(host, {})[record.uid] = record
        self._count(record, queue, 1)
        if not record.ready:
            self.unready[record.uid] = record

    def drop(self, record: WorkloadRecord) -> None:
        """Take back everything the workload holds."""
        queue, admission = record.holder, record.admission
        if queue is None or admission is None:
            return
        self._count(record, queue, -1)
        del queue.holding[record.uid]
        self.borrowers.changed(queue)
        claim, record.claimed_by = record.claimed_by, None
        for unit, amount in record.charges.items():
            account = self.forest.account(queue.node, unit)
            account.release(amount)
            if not record.evicted:
                account.ahead.release(amount)
        self.leaving.pop(record.uid, None)
        if claim is not None:
            del claim.victims[record.uid]
        if record.placed:
            self._drop_placed(record)
        self.free(queue, record.charges)
        self.unready.pop(record.uid, None)
        record.admission, record.holder = None, None
        record.charges, record.placed = NO_CHARGES, ()

    def _drop_placed(self, record: WorkloadRecord) -> None:
        self.give_back(record.placed)
        for host, _, _ in on_hosts(one for _, one in record.placed):
            there = self.tenants.get(host, {})
            there.pop(record.uid, None)
            if not there:
                self.tenants.pop(host, None)
        self.more_room(flavor for flavor, _ in record.placed)

    def recharge(self, record: WorkloadRecord, admission: Admission) -> None:
        """The workload holds something else than before; who waits for it goes on waiting."""
        claim, before = record.claimed_by, record.charges
        self.drop(record)
        self.hold(record, admission)
        if record.holder is not None and any(amount > before.get(unit, 0) for unit, amount in record.charges.items()):
            self.stir(record.holder, record.charges)  # there is more to be evicted
        if claim is not None:
            claim.victims[record.uid] = record
            record.claimed_by = claim

    def _count(self, record: WorkloadRecord, queue: QueueRecord, sign: int) -> None:
        admission, home, charges = record.admission, record.home, record.charges
        admitted = admission is not None and admission.admitted
        add_up(queue.reserved, charges, sign)
        if admitted:
            queue.admitted_count += sign
            add_up(queue.admitted, charges, sign)
        if home is not None:
            home.reserving_count += sign
            add_up(home.reserved, charges, sign)
            if admitted:
                home.admitted_count += sign
                add_up(home.admitted, charges, sign)
                self.recounted[home] = None
        self.touch(record)

    def move_home(self, record: WorkloadRecord, home: LocalQueueRecord) -> None:
        """Another LocalQueue counts the workload from now on."""
        old = record.home
        if old is home:
            return
        queue = record.holder
        if queue is not None:
            self._count(record, queue, -1)
        if old is not None:
            self.changed_local_queues[old.key] = None
            del old.workloads[record.uid]
            self.forget_if_unused(old)
        record.home = home
        home.workloads[record.uid] = record
        if queue is not None:
            self._count(record, queue, 1)

    # ------------------------------------------------------------------ nodes

    def take(self, placed: tuple[Placed, ...]) -> Charged:
        """Charge topology assignments; the result undoes it."""
        charged = tuple([(self._flavor_with_topology(one.flavors), one) for one in placed])
        for flavor, one in charged:
            self.domains.take(flavor, one.assignment, one.node_requests)
        return charged

    def give_back(self, charged: Charged) -> None:
        for flavor, one in charged:
            self.domains.give_back(flavor, one.assignment, one.node_requests)

    def more_room(self, flavors: Iterable[FlavorName]) -> None:
        """On nodes of these flavors something was given back, now or looking ahead, or changed otherwise."""
        self.roomier.update(dict.fromkeys(flavors))

    def sharing(self, flavors: Iterable[FlavorName]) -> frozenset[FlavorName]:
        """Those with a topology that may have a node in common with one of these. Cost: the flavors, squared."""
        known = [self.flavors.get(name) for name in flavors]
        return frozenset(
            [
                name
                for name, one in self.flavors.items()
                if one.topology is not None and any(may_share(one, other) for other in known)
            ]
        )

    def _flavor_with_topology(self, flavors: tuple[FlavorName, ...]) -> FlavorName:
        for name in flavors:
            flavor = self.flavors.get(name)
            if flavor is not None and flavor.topology is not None:
                return name
        return flavors[0]

    # ------------------------------------------------------------------ leaving

    def leave(self, record: WorkloadRecord) -> None:
        """The workload is asked to go. Whoever asked for it, looking ahead it is gone from now on."""
        if not record.evicted:
            record.evicted = True
            self.leaving[record.uid] = record
            self._shift(record, -1)
            if record.holder is not None:
                self.borrowers.changed(record.holder)
                self.lightened[record.holder] = None

    def stay(self, record: WorkloadRecord) -> None:
        """It is not going to leave after all; whoever counts on that has to look again."""
        if record.evicted:
            self._return(record)
            self.more_room(flavor for flavor, _ in record.placed)
            if record.holder is not None:
                self.stir(record.holder, None)

    def spare(self, record: WorkloadRecord) -> None:
        """The same before anybody was told: only who waits for others, or in its own queue, has counted on it."""
        self._return(record)
        self.more_room(flavor for flavor, _ in record.placed)
        root = None if record.holder is None else record.holder.node.root
        for queue in (record.holder, *(each.queue for each in self.claimants.values())):
            if queue is not None and queue.node.root is root:
                self.doubted[queue] = None

    def _return(self, record: WorkloadRecord) -> None:
        record.evicted = False
        del self.leaving[record.uid]
        self._shift(record, 1)
        if record.holder is not None:
            self.borrowers.changed(record.holder)
        claim, record.claimed_by = record.claimed_by, None
        if claim is not None:
            del claim.victims[record.uid]

    @contextmanager
    def nodes_ahead(self) -> Iterator[None]:
        """Have the nodes as they will be without all who leave. Cost: what these have placed."""
        placed = [one for record in self.leaving.values() for one in record.placed]
        for flavor, one in placed:
            self.domains.give_back(flavor, one.assignment, one.node_requests)
        try:
            yield
        finally:
            for flavor, one in reversed(placed):
                self.domains.take(flavor, one.assignment, one.node_requests)

    # ------------------------------------------------------------------ claims

    def claim(self, claim: Claim) -> None:
        """Look ahead: what the victims give back is taken."""
        record = claim.record
        record.claim = claim
        for victim in claim.victims.values():
            victim.claimed_by = claim
        self.claimants[record.uid] = record
        if record.queue is not None:
            record.queue.claimants[record.uid] = record
        self.restore(claim)

    def unclaim(self, record: WorkloadRecord) -> None:
        """The workload waits for nobody any more. Its victims leave all the same, for whoever comes next."""
        claim = record.claim
        if claim is None:
            return
        self.more_room(flavor for flavor, _ in claim.placed)
        self.lift(claim)
        record.claim = None
        del self.claimants[record.uid]
        if record.queue is not None:
            del record.queue.claimants[record.uid]
            self.free(record.queue, claim.usage)
        for victim in claim.victims.values():
            victim.claimed_by = None

    def lift(self, claim: Claim) -> None:
        """Take a claim out while its own workload is judged anew; `restore` puts it back."""
        self._claim_usage(claim, -1)
        self.give_back(claim.placed)
        claim.placed = ()

    def restore(self, claim: Claim) -> None:
        self._claim_usage(claim, 1)
        claim.placed = self.take(placed_of(claim.record.workload.pod_sets, claim.assignments))

    def _claim_usage(self, claim: Claim, sign: int) -> None:
        queue = claim.record.queue or claim.record.holder
        assert queue is not None  # noqa: S101
        self.borrowers.changed(queue)
        for unit, amount in claim.usage.items():
            ahead = self.forest.account(queue.node, unit).ahead
            if sign > 0:
                ahead.charge(amount)
            else:
                ahead.release(amount)

    def simulate(self, record: WorkloadRecord, *, gone: bool) -> None:
        """Look ahead as if a workload had given back what it holds, and take that back again.

        Nobody asks meanwhile who borrows most (`borrowers`), so that stays as it is.
        """
        self._shift(record, -1 if gone else 1)
        for flavor, one in record.placed:
            if gone:
                self.domains.give_back(flavor, one.assignment, one.node_requests)
            else:
                self.domains.take(flavor, one.assignment, one.node_requests)

    def _shift(self, victim: WorkloadRecord, sign: int) -> None:
        queue = victim.holder
        if queue is None:
            return
        for unit, amount in victim.charges.items():
            ahead = self.forest.account(queue.node, unit).ahead
            if sign > 0:
                ahead.charge(amount)
            else:
                ahead.release(amount)
