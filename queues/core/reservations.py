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
from queues.core.records import QueueRecord, Stage, WorkloadRecord
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
        self.kept: dict[Uid, Reservation] = {}
        #: Who has no place, and since when; in the order of that.
        self._without: dict[Uid, tuple[WorkloadRecord, Timestamp]] = {}
        self._rule: DomainReservation | None = None
        self._now: Timestamp = 0.0

    def begin(self, now: Timestamp, rule: DomainReservation | None) -> bool:
        """Let go what is over. True when domains are free again that were kept."""
        self._rule, self._now = rule, now
        over = [uid for uid, one in self.kept.items() if rule is None or one.until <= now or not _waits(one)]
        for uid in over:
            one = self.kept.pop(uid)
            if rule is not None and _waits(one):
                self._without[uid] = (one.record, now)  # it may have one again later
        return bool(over)

    def has_no_place(self, record: WorkloadRecord, now: Timestamp) -> None:
        if self._rule is not None and record.uid not in self.kept:
            self._without.setdefault(record.uid, (record, now))

    def against(self, record: WorkloadRecord) -> tuple[KeptDomain, ...]:
        """The domains that this workload may not use. Whoever had others evicted may use what they give back."""
        if not self.kept or record.claim is not None:
            return ()
        return tuple(
            [
                one.domain
                for one in self.kept.values()
                if one.record is not record and one.record.priority >= record.priority
            ]
        )

    def review(self, now: Timestamp, drain_of: Callable[[WorkloadRecord], Drain | None]) -> list[Reservation]:
        """Keep domains for those that have waited long enough. Cost: a search for each of these."""
        rule, found = self._rule, []
        if rule is None:
            self._without.clear()
            return []
        for uid, (record, since) in list(self._without.items()):
            queue = record.queue
            if record.stage is not Stage.QUEUED or queue is None:
                del self._without[uid]
            elif since + rule.after > now:
                break
            elif not any(one.queue is queue for one in self.kept.values()):
                drain = drain_of(record)
                del self._without[uid]
                if drain is None or any(one.domain.path == drain.path for one in self.kept.values()):
                    self._without[uid] = (record, now)
                    continue
                one = Reservation(record, queue, drain, KeptDomain(drain.path, drain.hosts), now + rule.lasting)
                self.kept[uid] = one
                found.append(one)
        return found

    def next_due(self) -> Timestamp | None:
        """When a reservation ends or may begin."""
        times = [one.until for one in self.kept.values()]
        if self._rule is not None:
            first = next((since for _, since in self._without.values()), None)
            if first is not None and first + self._rule.after > self._now:
                times.append(first + self._rule.after)
        return min(times, default=None)


def _waits(one: Reservation) -> bool:
    return one.record.stage is Stage.QUEUED and one.record.queue is one.queue
