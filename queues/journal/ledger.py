"""Turns what the controllers tell about uses of quota into intervals: which to close, which to open.

It decides from the told entries, in order, and the intervals that are still open in the database; telling twice changes
nothing, and intervals of one workload never overlap. It must never invent an end: what is not told stays open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from queues.journal.entries import UsageEnded, UsageEntry, UsageStarted

#: The most that a 64-bit column holds; larger amounts are unlimited for every purpose of a ledger.
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """`id` None: not in the database yet."""

    workload: str
    namespace: str
    name: str
    cluster_queue: str
    local_queue: str
    flavor: str
    resource: str
    amount: int
    started_at: float
    ended_at: float | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The uses of a `Reset`: everything that is open at `at`; whatever else is open ends there."""

    at: float
    usage: tuple[UsageStarted, ...]


@dataclass(frozen=True, slots=True)
class Settlement:
    """Ends by id of the interval, and new rows."""

    ends: Mapping[int, float]
    inserts: Sequence[Interval]


@dataclass(slots=True)
class _Book:
    """Open intervals and the last known end of each workload while entries are applied."""

    open: dict[str, list[Interval]]
    last_end: dict[str, float]
    ends: dict[int, float] = field(default_factory=dict)
    inserts: list[Interval] = field(default_factory=list)

    def close(self, interval: Interval, at: float) -> None:
        end = max(at, interval.started_at)
        self.open[interval.workload].remove(interval)
        self.last_end[interval.workload] = max(end, self.last_end.get(interval.workload, end))
        if interval.id is not None:
            self.ends[interval.id] = end
        elif end > interval.started_at:
            self.inserts.append(replace(interval, ended_at=end))

    def start(self, entry: UsageStarted, changed_at: float) -> None:
        """Amounts that another told before change at `changed_at`; a first use counts from `entry.at`."""
        told = {(a.flavor, a.resource): min(a.amount, LARGEST) for a in entry.amounts if a.amount > 0}
        present = self.open.setdefault(entry.workload, [])
        start = max(changed_at, *(i.started_at for i in present)) if present else entry.at
        for interval in list(present):
            key = (interval.flavor, interval.resource)
            if interval.cluster_queue == entry.cluster_queue and told.get(key) == interval.amount:
                del told[key]
            else:
                self.close(interval, changed_at)
        start = max(start, self.last_end.get(entry.workload, start))
        for (flavor, resource), amount in told.items():
            present.append(
                Interval(
                    workload=entry.workload,
                    namespace=entry.namespace,
                    name=entry.name,
                    cluster_queue=entry.cluster_queue,
                    local_queue=entry.local_queue,
                    flavor=flavor,
                    resource=resource,
                    amount=amount,
                    started_at=start,
                )
            )

    def end(self, workload: str, at: float) -> None:
        for interval in list(self.open.get(workload, ())):
            self.close(interval, at)


def settle(
    entries: Iterable[UsageEntry | Snapshot],
    open_intervals: Iterable[Interval],
    last_ends: Mapping[str, float],
) -> Settlement:
    """Costs one step for each entry and amount.

    `open_intervals` are those of the workloads in `entries`, or all that are open where a `Snapshot` is among them;
    `last_ends` the latest end of each of these workloads.
    """
    book = _Book({}, dict(last_ends))
    for interval in open_intervals:
        book.open.setdefault(interval.workload, []).append(interval)
    for entry in entries:
        match entry:
            case UsageStarted():
                book.start(entry, entry.at)
            case UsageEnded():
                book.end(entry.workload, entry.at)
            case Snapshot():
                for workload in set(book.open) - {use.workload for use in entry.usage}:
                    book.end(workload, entry.at)
                for use in entry.usage:
                    book.start(use, entry.at)
            case _:
                assert_never(entry)
    return Settlement(book.ends, [*book.inserts, *(i for many in book.open.values() for i in many if i.id is None)])
