"""The pending workloads of one ClusterQueue: who is next, who is parked, and what wakes them.

It works from each workload's order key (priority, time, uid) and its shape. Workloads of one shape stand in one group
and are parked and woken together, so that waiting costs nothing however many wait; under StrictFIFO all stand in a
single group, and a head that does not fit stops those behind it. Where past use counts, each LocalQueue has groups of
its own, so that a change of its use moves these and nobody else. It never decides whether anything fits.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from queues.core.demand import Shape
from queues.core.model import FlavorResource, Uid
from queues.core.reasons import Reason
from queues.core.records import LocalQueueRecord, OrderKey, WorkloadRecord
from queues.core.usage_history import NO_USE, Level

if TYPE_CHECKING:
    from queues.core.lacks import Lacks
    from queues.core.shelves import Ticket

#: The single group of a StrictFIFO queue, or of each LocalQueue of one.
IN_ORDER: Shape = ("in order",)

_SLACK = 32

_Entry = tuple[OrderKey, int, WorkloadRecord]


def order_key(record: WorkloadRecord, *, sticky: bool) -> OrderKey:
    """The highest priority, the longest wait, the lowest uid. Before them, if `sticky`, who evicted others."""
    workload = record.workload
    first = sticky and record.claim is not None and record.claim.is_first
    return (0 if first else 1, -workload.priority, workload.queued_at, workload.uid)


class Group:
    """Workloads that fit or fail alike. `watch` are the units whose release may help once parked (None: anything)."""

    __slots__ = (
        "heap", "homes", "in_order", "is_open", "is_parked", "lacks", "level", "reason", "shape", "size", "ticket",
        "untold", "watch", "watches_nodes",
    )  # fmt: skip

    def __init__(self, shape: Shape, level: Level, *, in_order: bool) -> None:
        self.shape = shape
        #: Comes before everything else: the past use of its LocalQueue, where that counts.
        self.level = level
        self.in_order = in_order
        #: With how often each was put in by then: all entries but its last are out of date.
        self.heap: list[_Entry] = []
        self.size = 0
        #: How many of them each LocalQueue counts.
        self.homes: dict[LocalQueueRecord, int] = {}
        #: Whether it is one of its queue's groups, as long as anybody is in it.
        self.is_open = True
        self.is_parked = False
        self.reason: Reason | None = None
        #: Somebody in it has yet to be told the reason, whatever it was before.
        self.untold = False
        self.watch: frozenset[FlavorResource] | None = None
        self.watches_nodes = False
        #: What has to be given back before it could do better, where that is known, and how it is filed by that.
        self.lacks: Lacks | None = None
        self.ticket: Ticket | None = None

    def head(self) -> WorkloadRecord | None:
        heap = self.heap
        while heap:
            _, entry, record = heap[0]
            if record.group is self and record.entry == entry:
                return record
            heappop(heap)
        return None

    def members(self) -> list[WorkloadRecord]:
        """In order."""
        return [record for _, entry, record in sorted(self.heap) if record.group is self and record.entry == entry]

    def wake(self) -> None:
        """Its head is a candidate again, and stands on no shelf."""
        self.is_parked = False
        self.lacks = None
        self.take_ticket(None)

    def take_ticket(self, ticket: Ticket | None) -> None:
        """Stand on the shelves by this one and no other."""
        old, self.ticket = self.ticket, ticket
        if old is not None:
            old.let_go()

    def close(self) -> None:
        """Nobody is in it any more. Its ticket goes too, for these two would keep each other in memory."""
        self.is_open = False
        self.take_ticket(None)

    def put(self, record: WorkloadRecord) -> None:
        if len(self.heap) > 2 * self.size + _SLACK:
            self.heap = [each for each in self.heap if each[2].group is self and each[2].entry == each[1]]
            heapify(self.heap)
        record.group = self
        record.entry += 1
        self._count(record, 1)
        heappush(self.heap, (record.key, record.entry, record))

    def take_out(self, record: WorkloadRecord) -> None:
        record.group = None
        self._count(record, -1)

    def _count(self, record: WorkloadRecord, sign: int) -> None:
        self.size += sign
        home = record.home
        if home is not None:
            count = self.homes.get(home, 0) + sign
            if count:
                self.homes[home] = count
            else:
                del self.homes[home]


class PendingQueue:
    """All operations cost the logarithm of what is in the heaps at most, but for `ordered` and `regroup`.

    `relevel` costs that for each shape that waits in the LocalQueue.
    """

    __slots__ = ("_heads", "_of_home", "_serial", "by_usage", "groups", "is_strict")

    def __init__(self) -> None:
        self.is_strict = False
        self.by_usage = False
        self.groups: dict[Shape, Group] = {}
        #: The heads of all groups that are candidates, and some that are out of date. The serial number only keeps
        #: groups from being compared when an entry that is out of date has the same key.
        self._heads: list[tuple[Level, OrderKey, int, Group]] = []
        self._serial = 0
        #: The groups of each LocalQueue, where past use counts.
        self._of_home: dict[LocalQueueRecord, dict[Shape, Group]] = {}

    def push(self, record: WorkloadRecord) -> Group:
        """Put a workload in. Behind the head of a parked group it is parked too; before it, it is a candidate."""
        shape = self._place_of(record)
        group = self.groups.get(shape)
        if group is None:
            group = self._open(shape, record)
        elif shape is record.shape:
            record.shape = group.shape  # an equal one, of which one is enough for thousands
        record.key = order_key(record, sticky=not self.is_strict)
        group.put(record)
        if group.head() is record:
            group.wake()
            self._offer(group)
        return group

    def remove(self, record: WorkloadRecord) -> None:
        group = record.group
        if group is None:
            return
        was_head = group.head() is record
        group.take_out(record)
        if not group.size:
            group.close()
            del self.groups[group.shape]
            home = record.home
            if self.by_usage and home is not None:
                del self._of_home[home][group.shape]
                if not self._of_home[home]:
                    del self._of_home[home]
        elif was_head:
            if self.is_strict:
                group.wake()  # the next one was not judged itself and may be quite different from the one that left
            elif group.ticket is not None:
                group.ticket.let_go()
            self._offer(group)

    def head(self) -> WorkloadRecord | None:
        """The first candidate. Under StrictFIFO that is the first of all, or nobody."""
        group = self._first()
        return None if group is None or group.is_parked else group.head()

    def first(self) -> WorkloadRecord | None:
        """Under StrictFIFO: who keeps all others waiting, parked or not."""
        group = self._first()
        return None if group is None else group.head()

    def _first(self) -> Group | None:
        heads = self._heads
        while heads:
            level, key, _, group = heads[0]
            if self._stands(group) and group.level == level:
                record = group.head()
                if record is not None and record.key == key:
                    return group
            heappop(heads)
        return None

    def _stands(self, group: Group) -> bool:
        return group.is_open and (self.is_strict or not group.is_parked)

    def park(
        self, group: Group, reason: Reason, watch: frozenset[FlavorResource] | None, *, watches_nodes: bool
    ) -> None:
        group.is_parked = True
        group.reason = reason
        group.watch = watch
        group.watches_nodes = watches_nodes

    def wake(self, group: Group) -> None:
        was_parked = group.is_parked
        group.wake()
        if was_parked:
            self._offer(group)

    def regroup(self, *, strict: bool, by_usage: bool) -> None:
        """Change the strategy. Everybody is a candidate again."""
        records = [record for group in self.groups.values() for record in group.members()]
        for group in self.groups.values():
            group.close()
        self.groups.clear()
        self._of_home.clear()
        self._heads.clear()
        self.is_strict = strict
        self.by_usage = by_usage
        for record in records:
            record.group = None
            self.push(record)

    def relevel(self, home: LocalQueueRecord) -> None:
        """The past use of a LocalQueue changed, and its groups with it."""
        for group in self._of_home.get(home, {}).values():
            group.level = home.level
            self._offer(group)
        for group in self.groups.values():
            if group.ticket is not None:
                group.ticket.let_go()

    def ordered(self) -> list[WorkloadRecord]:
        """Everybody, parked or not, in the order of their turn."""
        everybody = [(group.level, record.key, record) for group in self.groups.values() for record in group.members()]
        return [record for _, _, record in sorted(everybody, key=_turn)]

    def _open(self, shape: Shape, record: WorkloadRecord) -> Group:
        home = record.home if self.by_usage else None
        group = Group(shape, NO_USE if home is None else home.level, in_order=self.is_strict)
        self.groups[shape] = group
        if home is not None:
            self._of_home.setdefault(home, {})[shape] = group
        return group

    def _place_of(self, record: WorkloadRecord) -> Shape:
        place: Shape = record.shape
        if self.is_strict:
            place = IN_ORDER
        elif record.claim is not None:
            place = ("claim", record.uid)
        return (record.home.key, place) if self.by_usage and record.home is not None else place

    def _offer(self, group: Group) -> None:
        if len(self._heads) > 2 * len(self.groups) + _SLACK:
            self._heads.clear()
            for one in self.groups.values():
                self._add_head(one)
        else:
            self._add_head(group)

    def _add_head(self, group: Group) -> None:
        head = group.head() if self._stands(group) else None
        if head is not None:
            self._serial += 1
            heappush(self._heads, (group.level, head.key, self._serial, group))


def _turn(place: tuple[Level, OrderKey, WorkloadRecord]) -> tuple[Level, OrderKey]:
    return place[:2]


def uids(records: list[WorkloadRecord]) -> tuple[Uid, ...]:
    return tuple([record.uid for record in records])
