"""The pending workloads of one ClusterQueue: who is next, who is parked, and what wakes them.

It works from each workload's order key (priority, time, uid) and its shape. Workloads of one shape stand in one group
and are parked and woken together, so that waiting costs nothing however many wait; under StrictFIFO all stand in a
single group, and a head that does not fit stops those behind it. It never decides whether anything fits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from queues.core.demand import Shape
from queues.core.model import FlavorResource, Uid
from queues.core.reasons import Reason
from queues.core.records import LocalQueueRecord, OrderKey, WorkloadRecord

#: The single group of a StrictFIFO queue.
IN_ORDER: Shape = ("in order",)

_SLACK = 32


def order_key(record: WorkloadRecord, *, sticky: bool) -> OrderKey:
    """The highest priority, the longest wait, the lowest uid. Before them, if `sticky`, who evicted others."""
    workload = record.workload
    first = sticky and record.claim is not None and record.claim.is_first
    return (0 if first else 1, -workload.priority, workload.queued_at, workload.uid)


class Group:
    """Workloads that fit or fail alike. `watch` are the units whose release may help once parked (None: anything)."""

    __slots__ = ("heap", "homes", "is_parked", "reason", "shape", "size", "untold", "watch", "watches_nodes")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.heap: list[tuple[OrderKey, WorkloadRecord]] = []
        self.size = 0
        #: How many of them each LocalQueue counts.
        self.homes: Counter[LocalQueueRecord] = Counter()
        self.is_parked = False
        self.reason: Reason | None = None
        #: Somebody in it has yet to be told the reason, whatever it was before.
        self.untold = False
        self.watch: frozenset[FlavorResource] | None = None
        self.watches_nodes = False

    def head(self) -> WorkloadRecord | None:
        heap = self.heap
        while heap:
            key, record = heap[0]
            if record.group is self and record.key is key:
                return record
            heappop(heap)
        return None

    def members(self) -> list[WorkloadRecord]:
        """In order."""
        return [record for key, record in sorted(self.heap) if record.group is self and record.key is key]

    def put(self, record: WorkloadRecord) -> None:
        if len(self.heap) > 2 * self.size + _SLACK:
            self.heap = [entry for entry in self.heap if entry[1].group is self and entry[1].key is entry[0]]
            heapify(self.heap)
        record.group = self
        self._count(record, 1)
        heappush(self.heap, (record.key, record))

    def take_out(self, record: WorkloadRecord) -> None:
        record.group = None
        self._count(record, -1)

    def _count(self, record: WorkloadRecord, sign: int) -> None:
        self.size += sign
        home = record.home
        if home is not None:
            self.homes[home] += sign
            if not self.homes[home]:
                del self.homes[home]


class PendingQueue:
    """All operations cost the logarithm of what is in the heaps at most, but for `ordered` and `regroup`."""

    __slots__ = ("_heads", "_serial", "groups", "is_strict")

    def __init__(self) -> None:
        self.is_strict = False
        self.groups: dict[Shape, Group] = {}
        #: The heads of all groups that are not parked, and some that are out of date. The serial number only keeps
        #: groups from being compared when an entry that is out of date has the same key.
        self._heads: list[tuple[OrderKey, int, Group]] = []
        self._serial = 0

    def push(self, record: WorkloadRecord) -> Group:
        """Put a workload in. Behind the head of a parked group it is parked too; before it, it is a candidate."""
        shape = self._place_of(record)
        group = self.groups.get(shape)
        if group is None:
            group = self.groups[shape] = Group(shape)
        record.key = order_key(record, sticky=not self.is_strict)
        group.put(record)
        if group.head() is record:
            group.is_parked = False
            self._offer(group)
        return group

    def remove(self, record: WorkloadRecord) -> None:
        group = record.group
        if group is None:
            return
        was_head = group.head() is record
        group.take_out(record)
        if not group.size:
            del self.groups[group.shape]
        elif was_head:
            # The next one was not judged itself: under StrictFIFO it may be quite different from the one that left.
            group.is_parked = group.is_parked and not self.is_strict
            self._offer(group)

    def head(self) -> WorkloadRecord | None:
        """The first candidate."""
        heads = self._heads
        while heads:
            key, _, group = heads[0]
            record = None if group.is_parked or self.groups.get(group.shape) is not group else group.head()
            if record is not None and record.key is key:
                return record
            heappop(heads)
        return None

    def park(
        self, group: Group, reason: Reason, watch: frozenset[FlavorResource] | None, *, watches_nodes: bool
    ) -> None:
        group.is_parked = True
        group.reason = reason
        group.watch = watch
        group.watches_nodes = watches_nodes

    def wake(self, group: Group) -> None:
        if group.is_parked:
            group.is_parked = False
            self._offer(group)

    def parked(self) -> Iterator[Group]:
        return (group for group in self.groups.values() if group.is_parked)

    def regroup(self, *, strict: bool) -> None:
        """Change the strategy. Everybody is a candidate again."""
        records = [record for group in self.groups.values() for record in group.members()]
        self.groups.clear()
        self._heads.clear()
        self.is_strict = strict
        for record in records:
            record.group = None
            self.push(record)

    def ordered(self) -> list[WorkloadRecord]:
        """Everybody, parked or not, in the order of their keys."""
        return sorted((record for group in self.groups.values() for record in group.members()), key=_key_of)

    def _place_of(self, record: WorkloadRecord) -> Shape:
        if self.is_strict:
            return IN_ORDER
        return ("claim", record.uid) if record.claim is not None else record.shape

    def _offer(self, group: Group) -> None:
        if len(self._heads) > 2 * len(self.groups) + _SLACK:
            self._heads.clear()
            for one in self.groups.values():
                self._add_head(one)
        else:
            self._add_head(group)

    def _add_head(self, group: Group) -> None:
        head = None if group.is_parked else group.head()
        if head is not None:
            self._serial += 1
            heappush(self._heads, (head.key, self._serial, group))


def _key_of(record: WorkloadRecord) -> OrderKey:
    return record.key


def uids(records: list[WorkloadRecord]) -> tuple[Uid, ...]:
    return tuple([record.uid for record in records])
