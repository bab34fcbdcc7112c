"""Where pending workloads wait, and what wakes them.

It works from records, the books' notes on what was given back, and time as told. A parked workload costs nothing until
something happens that could help it; it never judges whether anything fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush

from queues.core.accounts import Account
from queues.core.activity import World, flavors_named, inactive_reason, why_barred
from queues.core.books import Books
from queues.core.demand import shape_of
from queues.core.lacks import Lacks
from queues.core.model import FlavorResource, Timestamp, Uid
from queues.core.order import Group
from queues.core.preemption.candidates import may_evict
from queues.core.reasons import Code, Reason
from queues.core.records import (
    BACKING_OFF,
    BARRED,
    HELD,
    HOLDING,
    NO_PROGRESS,
    QUEUED,
    QueueRecord,
    Standing,
    WorkloadRecord,
)
from queues.core.shelves import Shelves, Ticket, Turn, TurnOf, tickets_of
from queues.core.tree import Node

#: Stages in which a workload is counted as pending.
PENDING = (QUEUED, BACKING_OFF, BARRED)


class Waiting:
    def __init__(self, books: Books, world: World) -> None:
        self.books = books
        self.world = world
        self.now: Timestamp = 0.0
        #: Queues that may have a candidate.
        self.active: dict[QueueRecord, None] = {}
        self.timers: list[tuple[Timestamp, Uid, WorkloadRecord]] = []
        #: Workloads that may have to be told a reason; True: also when only its facts changed.
        self.untold: dict[Uid, tuple[WorkloadRecord, bool]] = {}
        #: Those of whom it is not known what they lack; all others are on the shelves.
        self._parked: dict[Node, dict[Group, QueueRecord]] = {}
        self._parked_on_nodes: dict[Group, QueueRecord] = {}
        self._shelves = Shelves()
        #: Where in a cycle's line the head of a parked group would stand.
        self.turn_of: TurnOf = _no_turn
        self._standing: dict[Node, dict[QueueRecord, None]] = {}

    # ------------------------------------------------------------------ coming and going

    def file(self, record: WorkloadRecord) -> None:
        """Put a workload that holds nothing where it belongs by what is known now."""
        self.withdraw(record)
        workload, home = record.workload, record.home
        assert home is not None  # noqa: S101
        if workload.held is not None:
            record.reason = Reason(Code.SUSPENDED, workload.held)
            return
        queue = None if home.spec is None else self.books.queues.get(home.spec.cluster_queue)
        barred = why_barred(workload, home, queue, self.world)
        if queue is not None and queue.spec is not None and (barred is None or barred[1]):
            record.queue = queue
            queue.pending[record.uid] = record
        home.pending += 1
        if barred is not None:
            record.stage = BARRED
            record.reason = barred[0]
            self.tell(record, exactly=True)
        elif workload.eligible_at > self.now:
            record.stage = BACKING_OFF
            record.reason = Reason(Code.PENDING_EVALUATION, "The workload waits until its back-off ends")
            heappush(self.timers, (workload.eligible_at, record.uid, record))
        else:
            assert queue is not None  # noqa: S101
            self._enqueue(record, queue)
        self.books.touch(record)

    def _enqueue(self, record: WorkloadRecord, queue: QueueRecord) -> None:
        record.stage = QUEUED
        shape = shape_of(record.workload)
        if shape != record.shape:
            record.shape = shape
            record.progress = NO_PROGRESS
        if not queue.is_active:
            record.reason = inactive_reason(queue)
        self.push(record, queue)

    def push(self, record: WorkloadRecord, queue: QueueRecord) -> None:
        """Put the workload into the order, and see to it that it is looked at or told why not."""
        group = queue.order.push(record)
        if not group.is_parked and queue.is_active:
            self.active[queue] = None
        self.tell(record)

    def withdraw(self, record: WorkloadRecord) -> None:
        """Take a workload out of wherever it waits."""
        queue = record.queue
        if queue is not None and queue.standing is not None and queue.standing.record is record:
            self.stand(queue, None)
        if record.stage in PENDING:
            self.books.touch(record)
            if record.home is not None:
                record.home.pending -= 1
        if queue is not None:
            self.books.unclaim(record)
            self._leave_order(record, queue)
            queue.pending.pop(record.uid, None)
            record.queue = None
        record.stage = HELD
        record.reason = None

    def reorder(self, record: WorkloadRecord) -> None:
        """Its place depends on whether it waits for victims, and that changed."""
        queue = record.queue
        assert queue is not None  # noqa: S101
        self._leave_order(record, queue)
        self.push(record, queue)

    def _leave_order(self, record: WorkloadRecord, queue: QueueRecord) -> None:
        if record.group is not None:
            queue.order.remove(record)
            if queue.is_active:
                self.active[queue] = None

    # ------------------------------------------------------------------ parking and waking

    def park(
        self,
        queue: QueueRecord,
        group: Group,
        reason: Reason,
        watch: frozenset[FlavorResource] | None,
        lacks: Lacks | None,
        *,
        watches_nodes: bool,
    ) -> None:
        """Nobody of this group fits. It is looked at again when one of these units, or a node, has more room."""
        before = group.reason
        queue.order.park(group, reason, watch, watches_nodes=watches_nodes)
        group.lacks = lacks
        if lacks is None:
            group.take_ticket(None)
            self._parked.setdefault(queue.node.root, {})[group] = queue
        else:
            self._shelves.file(group, queue, lacks, self.turn_of)
        if watches_nodes:
            self._parked_on_nodes[group] = queue
        if not group.in_order and (group.untold or before is None or before.code is not reason.code):
            group.untold = False
            for record in group.members():
                self.tell(record)

    def resume(self, queue: QueueRecord, group: Group | None, *, is_late: bool = False) -> bool:
        """Those who came forward with somebody who started go on waiting for the same, and so do those who are late.

        Whether they do: late ones are to be judged again where the room is still there.
        """
        if group is None or group.is_parked or group.lacks is None or not group.is_open:
            return False
        if is_late and any(account.usage <= most for account, most in group.lacks.ceilings):
            return False
        group.is_parked = True
        self._shelves.file(group, queue, group.lacks, self.turn_of)
        return True

    def started(self, record: WorkloadRecord) -> None:
        """What others of the queue could evict now, is as good as free to them. Cost: the queue's groups."""
        queue = record.holder
        if queue is None or queue.spec is None or not record.charges:
            return
        policy = queue.spec.preemption.within_cluster_queue
        for group in queue.order.groups.values():
            lacks = group.lacks
            if lacks is None or not lacks.may_evict:
                continue
            head = group.head()
            if head is None or not may_evict(policy, head, record):
                continue
            if group.ticket is not None and group.ticket.is_valid:
                self._shelves.raise_ceilings(group.ticket, self.turn_of, max(record.charges.values()))
            else:
                group.lacks = None

    def wake_queue(self, queue: QueueRecord) -> None:
        """Anything may fit now in this queue."""
        for group in queue.order.groups.values():
            head = group.head()
            if head is not None:
                head.progress = NO_PROGRESS
            queue.order.wake(group)
        if queue.is_active:
            self.active[queue] = None

    def forget_parked(self, root: Node) -> None:
        """Everybody in the tree is awake, or stands in another tree by now."""
        self._parked.pop(root, None)
        self._shelves.forget(root)
        self._standing.pop(root, None)

    def wake_stirred(self) -> None:
        """Wake what could use what was given back.

        Cost: those who are woken, and the groups of the trees for which nobody can tell what they lack.
        """
        books = self.books
        is_quiet = not (books.freed or books.stirred or books.doubted or books.nodes_stirred or books.roomier)
        if is_quiet and self._shelves.is_quiet:
            return
        self._hasten()
        stirred, doubted, freed = books.stirred, books.doubted, books.freed
        if doubted:
            books.doubted = {}
            for queue in doubted:
                self.wake_queue(queue)
        if stirred:
            books.stirred = {}
            self._wake_trees(stirred)
        if freed:
            books.freed = {}
            if self._parked:
                for root, units in _by_root(freed).items():
                    self._wake_parked(root, units)
            self._offer(freed)
        self._call()
        if books.nodes_stirred or books.roomier:
            self._wake_on_nodes()

    def _wake_on_nodes(self) -> None:
        """Cost: the groups that wait for nodes, and the flavors of their queues; only those with roomier nodes wake."""
        books = self.books
        flavors = None if books.nodes_stirred else books.sharing(books.roomier)
        books.nodes_stirred, books.roomier = False, {}
        groups, self._parked_on_nodes = self._parked_on_nodes, {}
        for group, queue in groups.items():
            if flavors is None or not flavors.isdisjoint(flavors_named(queue.spec)):
                self._wake(group, queue)
            elif group.is_parked and group.size:
                self._parked_on_nodes[group] = queue

    def _wake_trees(self, stirred: Mapping[QueueRecord, set[FlavorResource] | None]) -> None:
        """Cost: the groups of all queues of these trees."""
        for root, units in _by_root(stirred).items():
            for queue in self._queues_of(root):
                for group in queue.order.groups.values():
                    if units is None or group.watch is None or not group.watch.isdisjoint(units):
                        self._wake(group, queue)

    def _offer(self, freed: Mapping[QueueRecord, set[FlavorResource]]) -> None:
        """Have the shelves know what was given back, and that turns in these queues may come earlier now."""
        for queue, some in freed.items():
            for unit in some:
                self._shelves.fell(queue.node.root, queue.node.account(unit))
            self._hasten_in(queue)
        for root in dict.fromkeys(queue.node.root for queue in freed):
            if self._shelves.has_thresholds(root):
                for ticket in self._shelves.would_evict(root, self.books.borrowers.below(root).most_kept):
                    self._wake(ticket.group, ticket.queue)

    def _hasten(self) -> None:
        """Where somebody was asked to go, turns may come earlier."""
        if self.books.lightened:
            lightened, self.books.lightened = self.books.lightened, {}
            for queue in lightened:
                self._hasten_in(queue)

    def _hasten_in(self, queue: QueueRecord) -> None:
        for ticket in tickets_of(queue):
            if ticket.turn and ticket.is_valid:
                self._shelves.hasten(ticket, self.turn_of)

    def _wake_parked(self, root: Node, units: set[FlavorResource] | None) -> None:
        """Cost: the groups of the tree for which nobody can tell what they lack."""
        groups = self._parked.get(root)
        if not groups:
            return
        for group, queue in list(groups.items()):
            if units is None or group.watch is None or not group.watch.isdisjoint(units):
                del groups[group]
                self._wake(group, queue)

    def _call(self) -> None:
        """Have those come forward for whom there may be enough by now."""
        if self._shelves.is_quiet:
            return
        trees = self._shelves.trees()
        for queue in list(self.active) if self.active else ():
            if queue.node.root in trees and queue.is_active and queue.order.head() is not None:
                for ticket in tickets_of(queue):
                    if ticket.may_come:  # one of these may come before the head
                        self._come(ticket)
        for ticket in self._shelves.called(self.turn_of):
            self._come(ticket)

    def _come(self, ticket: Ticket) -> None:
        group, lacks = ticket.group, ticket.group.lacks
        self._wake(group, ticket.queue)
        group.lacks = lacks

    @property
    def is_settled(self) -> bool:
        """Whether nobody may come forward any more for what was given back."""
        return self._shelves.is_quiet

    def is_outrun(self, queue: QueueRecord, turn: Turn | None) -> bool:
        """Whether somebody else may come forward whose turn is before this."""
        if turn is None:
            return False
        self._hasten()
        return self._shelves.has_before(turn, queue.node.root, self.turn_of)

    def _queues_of(self, root: Node) -> Iterator[QueueRecord]:
        below = [root]
        while below:
            node = below.pop()
            below += () if node.is_cyclic else node.children.values()
            queue = self.books.queue_at.get(node)
            if queue is not None:
                yield queue

    def _wake(self, group: Group, queue: QueueRecord) -> None:
        group.lacks = None  # also of who is awake: there may be more by now that helps than it was filed for
        if group.is_parked and group.is_open:
            queue.order.wake(group)
            head = group.head()
            if head is not None:
                head.progress = NO_PROGRESS
            if queue.is_active:
                self.active[queue] = None

    def wake_due(self, now: Timestamp) -> None:
        """Those whose back-off is over stand in the order from now on."""
        self.now = now
        self._shelves.begin()
        timers = self.timers
        while timers and timers[0][0] <= now:
            _, _, record = heappop(timers)
            if record.stage is BACKING_OFF and record.workload.eligible_at <= now:
                self.file(record)

    def next_due(self) -> Timestamp | None:
        timers = self.timers
        while timers:
            due, _, record = timers[0]
            if record.stage is BACKING_OFF and record.workload.eligible_at == due:
                return due
            heappop(timers)
        return None

    def heads(self) -> list[WorkloadRecord]:
        """The first candidate of every queue that has one. Cost: the active queues."""
        found: list[WorkloadRecord] = []
        if not self.active:
            return found
        for queue in list(self.active):
            head = queue.order.head() if queue.is_active else None
            if head is None:
                del self.active[queue]
            else:
                found.append(head)
        return found

    # ------------------------------------------------------------------ heads that keep others back

    def stand(self, queue: QueueRecord, standing: Standing | None) -> None:
        """Who keeps others back for this queue. When that changes, those whom it kept back are looked at again."""
        if standing is not None:
            self._standing.setdefault(queue.node.root, {})[queue] = None  # also when the tree is another one by now
        old = queue.standing
        if old == standing:
            return
        if old is not None:
            self.books.stir(queue, old.usage)
        queue.standing = standing

    def standing(self) -> list[Standing]:
        """Who keeps others back, in all trees."""
        return [queue.standing for queues in self._standing.values() for queue in queues if queue.standing is not None]

    def standing_with(self, heads: list[WorkloadRecord]) -> list[Standing]:
        """Who stands in the trees of these heads without being one of them."""
        if not self._standing:
            return []
        found = []
        for root in dict.fromkeys(head.queue.node.root for head in heads if head.queue is not None):
            queues = self._standing.get(root, {})
            for queue in list(queues):
                standing = queue.standing
                group = None if standing is None else standing.record.group
                if standing is None or group is None or queue.node.root is not root:
                    del queues[queue]
                elif group.is_parked and queue.order.first() is standing.record:
                    found.append(standing)
        return found

    # ------------------------------------------------------------------ telling

    def tell(self, record: WorkloadRecord, *, exactly: bool = False) -> None:
        known = self.untold.get(record.uid)
        self.untold[record.uid] = (record, exactly or (known is not None and known[1]))

    def reason_of(self, record: WorkloadRecord) -> Reason | None:
        """Why it waits, as far as it was judged; None when it holds quota."""
        if record.stage is HOLDING:
            return None
        if record.reason is not None or record.group is None:
            return record.reason
        group = record.group
        if not group.is_parked:
            return Reason(Code.PENDING_EVALUATION, "The workload has not been considered yet")
        head = group.head()
        if group.in_order and head is not None and head is not record:
            return Reason(Code.PENDING_EVALUATION, f"Waits behind {head.workload.key}, as StrictFIFO has it")
        return group.reason

    def news(self) -> list[tuple[WorkloadRecord, Reason]]:
        """Who has to be told which reason now, in a fixed order. Whoever was told the same before is left out."""
        found: list[tuple[WorkloadRecord, Reason]] = []
        if not self.untold:
            return found
        for record, exactly in self.untold.values():
            reason = self.reason_of(record)
            if reason is None or record.workload.held is not None:
                continue
            if reason.code is Code.PENDING_EVALUATION:
                if record.group is not None:
                    record.group.untold = True
                continue
            told = record.told
            if told is None or told.code is not reason.code or (exactly and told != reason):
                record.told = reason
                found.append((record, reason))
        self.untold.clear()
        found.sort(key=lambda item: (item[0].key, item[0].uid))
        return found


def _by_root(queues: Mapping[QueueRecord, set[FlavorResource] | None]) -> dict[Node, set[FlavorResource] | None]:
    """The units by tree; None: all of them."""
    found: dict[Node, set[FlavorResource] | None] = {}
    for queue, units in queues.items():
        root = queue.node.root
        known = found.setdefault(root, set())
        if units is None or known is None:
            found[root] = None
        else:
            known.update(units)
    return found


def _no_turn(_queue: QueueRecord, _record: WorkloadRecord, _asks: Sequence[tuple[Account, int]]) -> Turn | None:
    return None
