"""Keeps a domain for a gang that has waited long for one, so that a stream of small jobs cannot take it bit by bit.

It works from who has no place and since when, and from the domain that drains soonest. It is bounded in time, holds one
domain for each ClusterQueue at most, and never keeps anything from workloads of higher priority.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from queues.core.model import Timestamp, Uid
from queues.core.outlook import Drain
from queues.core.policy import DomainReservation
from queues.core.records import QUEUED, QueueRecord, WorkloadRecord
from queues.core.topology.kept import KeptDomain


@dataclass(slots=True)
class Reservation:
    """`domain` is kept for the workload until then, unless it starts before."""

    record: WorkloadRecord
    queue: QueueRecord
    drain: Drain
    domain: KeptDomain
    until: Timestamp


class Reservations:
    def __init__(self) -> None:
        #: By the ClusterQueue for which they are.
        self.kept: dict[QueueRecord, Reservation] = {}
        #: Who has no place, and since when; in the order of that.
        self._without: dict[QueueRecord, dict[Uid, tuple[WorkloadRecord, Timestamp]]] = {}
        self._rule: DomainReservation | None = None
        self._now: Timestamp = 0.0

    def begin(self, now: Timestamp, rule: DomainReservation | None) -> bool:
        """Let go what is over. True when domains are free again that were kept."""
        self._rule, self._now = rule, now
        if rule is None:
            self._without.clear()
        if not self.kept:
            return False
        over = [one for one in self.kept.values() if rule is None or one.until <= now or not _waits(one)]
        for one in over:
            del self.kept[one.queue]
            self.has_no_place(one.record, now)  # it may have one again later
        return bool(over)

    def has_no_place(self, record: WorkloadRecord, now: Timestamp) -> None:
        queue = record.queue
        if self._rule is None or queue is None:
            return
        kept = self.kept.get(queue)
        if kept is None or kept.record is not record:
            self._without.setdefault(queue, {}).setdefault(record.uid, (record, now))

    def forget(self, record: WorkloadRecord) -> None:
        """It has a place now, or is gone: should it wait again, its time begins anew."""
        if self._without and record.queue is not None:
            self._without.get(record.queue, {}).pop(record.uid, None)

    def against(self, record: WorkloadRecord) -> tuple[KeptDomain, ...]:
        """The domains that this workload may not use.

        Whoever had others evicted may use what they give back, and whoever comes before the one that a domain is kept
        for in their own queue may use it too: that one could not start before them.
        """
        if not self.kept or record.claim is not None:
            return ()
        return tuple(
            [
                one.domain
                for one in self.kept.values()
                if one.record.priority >= record.priority and not _comes_first(record, one)
            ]
        )

    def review(self, now: Timestamp, drain_of: Callable[[WorkloadRecord], Drain | None]) -> list[Reservation]:
        """Keep domains for those that have waited long enough. Cost: a search for each whose queue has none."""
        rule, found = self._rule, []
        for queue, waiting in list(self._without.items()):
            if queue in self.kept or rule is None:
                continue
            for uid, (record, since) in list(waiting.items()):
                if not _stands(record, queue):
                    del waiting[uid]
                    continue
                if since + rule.after > now:
                    break
                del waiting[uid]
                drain = drain_of(record)
                if drain is None or any(not one.domain.is_apart_from(drain.hosts) for one in self.kept.values()):
                    waiting[uid] = (record, now)
                    continue
                one = Reservation(record, queue, drain, KeptDomain(drain.hosts), now + rule.lasting)
                self.kept[queue] = one
                found.append(one)
                break
            if not waiting:
                del self._without[queue]
        return found

    def next_due(self) -> Timestamp | None:
        """When a reservation ends or may begin. Cost: the queues in which somebody has no place."""
        times = [one.until for one in self.kept.values()]
        if self._rule is not None:
            first = [
                next(iter(waiting.values()))[1]
                for queue, waiting in self._without.items()
                if waiting and queue not in self.kept
            ]
            times += [since + self._rule.after for since in first if since + self._rule.after > self._now]
        return min(times, default=None)


def _waits(one: Reservation) -> bool:
    return _stands(one.record, one.queue)


def _stands(record: WorkloadRecord, queue: QueueRecord) -> bool:
    """Whether it waits in this queue and could start there."""
    return record.stage is QUEUED and record.queue is queue and queue.is_active


def _comes_first(record: WorkloadRecord, one: Reservation) -> bool:
    """Whether it is the one, or stands before it in the same queue."""
    mine, other = record.group, one.record.group
    if record.queue is not one.queue or mine is None or other is None:
        return False
    return (mine.level, record.key) <= (other.level, one.record.key)
