"""Holds entries between the controllers and the writer thread, within bounds: what is kept, merged or dropped.

Rows are merged by key, so only their newest value waits; decisions and uses wait in order, and when there are too many
the oldest decisions go first, then the oldest uses. It must never block or grow without limit, however long that lasts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from queues.journal.entries import (
    CohortRemoved,
    CohortRow,
    Decision,
    Entry,
    FlavorRemoved,
    FlavorRow,
    LocalQueueRemoved,
    LocalQueueRow,
    NodeRemoved,
    NodeRow,
    PastUseRow,
    QueueRemoved,
    QueueRow,
    Removed,
    Reset,
    Row,
    UsageEnded,
    UsageStarted,
    WorkloadRemoved,
    WorkloadRow,
)
from queues.journal.ledger import Snapshot

RowKey = tuple[str, ...]
Usage = UsageStarted | UsageEnded | Snapshot


#: Of what has a name alone.
_SORTS: dict[type[Row], str] = {
    QueueRow: "queue",
    QueueRemoved: "queue",
    CohortRow: "cohort",
    CohortRemoved: "cohort",
    FlavorRow: "flavor",
    FlavorRemoved: "flavor",
    NodeRow: "node",
    NodeRemoved: "node",
}


def row_key(row: Row) -> RowKey:
    match row:
        case WorkloadRow(uid=uid) | WorkloadRemoved(uid=uid):
            return ("workload", uid)
        case LocalQueueRow(namespace=namespace, name=name) | LocalQueueRemoved(namespace=namespace, name=name):
            return ("local", namespace, name)
        case PastUseRow(namespace=namespace, name=name):
            return ("past", namespace, name)
        case _:
            return (_SORTS[type(row)], row.name)


@dataclass(frozen=True, slots=True)
class Gap:
    """What had to be dropped since the last batch; times are those of the dropped entries."""

    since: float
    until: float
    decisions: int
    usage: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One transaction. `replace`: the rows are all that there are, others go away."""

    decisions: tuple[Decision, ...] = ()
    usage: tuple[Usage, ...] = ()
    rows: tuple[Row, ...] = ()
    replace: bool = False
    gap: Gap | None = None

    def __len__(self) -> int:
        return len(self.decisions) + len(self.usage) + len(self.rows)


@dataclass(slots=True)
class Buffer:
    """`capacity` bounds decisions and uses together, and the removals that wait. Not safe for threads by itself."""

    capacity: int
    decisions: deque[Decision] = field(default_factory=deque)
    usage: deque[Usage] = field(default_factory=deque)
    rows: dict[RowKey, Row] = field(default_factory=dict)
    replace: bool = False
    gap: Gap | None = None
    dropped: int = 0
    removals_lost: bool = False

    def __len__(self) -> int:
        return len(self.decisions) + len(self.usage) + len(self.rows)

    def add(self, entry: Entry) -> None:
        match entry:
            case Decision():
                self.decisions.append(entry)
            case UsageStarted() | UsageEnded():
                self.usage.append(entry)
            case Reset():
                self.usage.append(Snapshot(entry.at, entry.usage))
                rows: tuple[Row, ...] = (
                    *entry.queues,
                    *entry.local_queues,
                    *entry.workloads,
                    *entry.past_use,
                    *entry.surroundings,
                )
                self.rows = {row_key(row): row for row in rows}
                self.replace, self.removals_lost = True, False
            case _:
                self._add_row(entry)
        while len(self.decisions) + len(self.usage) > self.capacity:
            self._drop_oldest()

    def take(self, limit: int) -> Batch:
        """Removes up to `limit` of each sort.

        After a `Reset` all rows come at once, as they replace the others; after a gap in the uses all rows and uses,
        as which of the open ones are still true is read from the rows.
        """
        decisions = tuple(self.decisions.popleft() for _ in range(min(limit, len(self.decisions))))
        mending = self.gap is not None and self.gap.usage > 0
        uses = len(self.usage) if mending else min(limit, len(self.usage))
        usage = tuple(self.usage.popleft() for _ in range(uses))
        if self.replace or mending or len(self.rows) <= limit:
            rows, self.rows = tuple(self.rows.values()), {}
        else:
            keys = list(islice(self.rows, limit))
            rows = tuple(self.rows.pop(key) for key in keys)
        batch = Batch(decisions, usage, rows, self.replace, self.gap)
        self.replace, self.gap = False, None
        return batch

    def _add_row(self, row: Row) -> None:
        key = row_key(row)
        # To the end, so that the dictionary goes from the oldest change to the newest.
        self.rows.pop(key, None)
        if self.replace and isinstance(row, Removed):
            return
        self.rows[key] = row
        if len(self.rows) > self.capacity and isinstance(row, Removed):
            # Live rows are bounded by the cluster; removals only by time. Without them the read model needs a Reset.
            del self.rows[key]
            self.removals_lost = True
            self.dropped += 1

    def _drop_oldest(self) -> None:
        if self.decisions:
            at, decisions = self.decisions.popleft().at, 1
        else:
            at, decisions = self.usage.popleft().at, 0
        self.dropped += 1
        gap = self.gap or Gap(at, at, 0, 0)
        self.gap = Gap(min(gap.since, at), max(gap.until, at), gap.decisions + decisions, gap.usage + 1 - decisions)
