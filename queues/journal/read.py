"""Answers questions from the read model and the history: queues, the order of what waits, one workload, decisions.

Each answer is made from one connection's view of the database, and positions come from the queue's order at that
moment. It must never write, and never decides who may see what.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Subquery, func, select

from queues.journal.entries import (
    Decision,
    Kind,
    LocalQueueRow,
    Owner,
    QueueRow,
    QuotaRow,
    WorkloadRow,
    WorkloadState,
)
from queues.journal.models import Base, DecisionRecord, LocalQueueRecord, QueueRecord, WorkloadRecord, WriterRecord

W = WorkloadRecord

#: Kueue's order within a ClusterQueue; the uid makes it total.
ORDER = (W.sticky.desc(), W.effective_priority.desc(), W.queued_at, W.uid)


@dataclass(frozen=True, slots=True)
class Freshness:
    """When a writer last said that what is written is up to date, and how many entries that writer had to drop."""

    written_at: float
    dropped: int


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """`oldest_pending`: since when the longest waiting one waits; None where none does."""

    queue: QueueRow
    counts: Mapping[WorkloadState, int]
    pending_by_reason: Mapping[str, int]
    oldest_pending: float | None


@dataclass(frozen=True, slots=True)
class Pending:
    """Positions from 0: over the whole ClusterQueue, and among those of the same LocalQueue."""

    workload: WorkloadRow
    in_cluster_queue: int
    in_local_queue: int


@dataclass(frozen=True, slots=True)
class Recorded:
    """A decision with its number in the history."""

    id: int
    decision: Decision


@dataclass(frozen=True, slots=True)
class DecisionFilter:
    """Empty: any. `before` is a number of the history, to go on from; `since` and `until` are times."""

    workload: str = ""
    namespace: str = ""
    name: str = ""
    cluster_queue: str = ""
    kind: Kind | None = None
    since: float | None = None
    until: float | None = None
    before: int | None = None


def freshness(connection: Connection) -> Freshness | None:
    """None: nothing was ever written."""
    query = select(WriterRecord.written_at, WriterRecord.dropped).order_by(WriterRecord.written_at.desc()).limit(1)
    row = connection.execute(query).first()
    return None if row is None else Freshness(row.written_at, row.dropped)


# ------------------------------------------------------------------ queues


def queues(
    connection: Connection, names: Collection[str] | None = None, *, namespace: str | None = None
) -> list[QueueOverview]:
    """By name; counts are of all workloads, or of those in `namespace`. One pass over the live workloads."""
    query = _rows(QueueRecord).order_by(QueueRecord.name)
    tally = select(W.cluster_queue, W.state, W.code, func.count(), func.min(W.state_since)).group_by(
        W.cluster_queue, W.state, W.code
    )
    if names is not None:
        query, tally = query.where(QueueRecord.name.in_(names)), tally.where(W.cluster_queue.in_(names))
    if namespace is not None:
        tally = tally.where(W.namespace == namespace)
    counted: dict[str, list[tuple[WorkloadState, str, int, float]]] = {}
    for name, state, code, count, since in connection.execute(tally):
        counted.setdefault(name, []).append((WorkloadState(state), code, count, since or 0.0))
    return [_overview(_queue(row), counted.get(row["name"], [])) for row in connection.execute(query).mappings()]


def _overview(queue: QueueRow, counted: Sequence[tuple[WorkloadState, str, int, float]]) -> QueueOverview:
    counts = dict.fromkeys(WorkloadState, 0)
    reasons: dict[str, int] = {}
    for state, code, count, _ in counted:
        counts[state] += count
        if state is WorkloadState.PENDING:
            reasons[code] = reasons.get(code, 0) + count
    oldest = min((since for state, _, _, since in counted if state is WorkloadState.PENDING), default=None)
    ordered = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    return QueueOverview(queue, counts, ordered, oldest)


def has_queue(connection: Connection, name: str) -> bool:
    return connection.scalar(select(QueueRecord.name).where(QueueRecord.name == name)) is not None


def local_queues(
    connection: Connection, *, namespace: str | None = None, name: str | None = None
) -> list[LocalQueueRow]:
    query = _rows(LocalQueueRecord).order_by(LocalQueueRecord.namespace, LocalQueueRecord.name)
    if namespace is not None:
        query = query.where(LocalQueueRecord.namespace == namespace)
    if name is not None:
        query = query.where(LocalQueueRecord.name == name)
    return [LocalQueueRow(**row) for row in connection.execute(query).mappings()]


# ------------------------------------------------------------------ what waits


def pending(
    connection: Connection,
    cluster_queue: str,
    *,
    namespace: str | None = None,
    local_queue: str | None = None,
    limit: int,
    offset: int = 0,
) -> list[Pending]:
    """In order; filters come before `offset`. One sort of the whole queue, whatever the page."""
    ranked = _ranked(cluster_queue)
    query = _pending_query(ranked).order_by(ranked.c.in_cluster_queue).limit(limit).offset(offset)
    if namespace is not None:
        query = query.where(ranked.c.namespace == namespace)
    if local_queue is not None:
        query = query.where(ranked.c.local_queue == local_queue)
    return [_pending(row) for row in connection.execute(query).mappings()]


def count_pending(connection: Connection, cluster_queue: str, *, namespace: str | None = None) -> int:
    query = select(func.count()).where(W.cluster_queue == cluster_queue, W.state == WorkloadState.PENDING.value)
    if namespace is not None:
        query = query.where(W.namespace == namespace)
    return connection.scalar(query) or 0


def place(connection: Connection, workload: WorkloadRow) -> Pending | None:
    """Where it stands; None for one that does not wait."""
    ranked = _ranked(workload.cluster_queue)
    row = connection.execute(_pending_query(ranked).where(ranked.c.uid == workload.uid)).mappings().first()
    return None if row is None else _pending(row)


def _ranked(cluster_queue: str) -> Subquery:
    in_queue = func.row_number().over(order_by=ORDER) - 1
    in_local = func.row_number().over(partition_by=(W.namespace, W.local_queue), order_by=ORDER) - 1
    return (
        select(
            W.uid,
            W.namespace,
            W.local_queue,
            in_queue.label("in_cluster_queue"),
            in_local.label("in_local_queue"),
        )
        .where(W.cluster_queue == cluster_queue, W.state == WorkloadState.PENDING.value)
        .subquery()
    )


def _pending_query(ranked: Subquery) -> Select[Any]:
    query = select(*W.__table__.columns, ranked.c.in_cluster_queue, ranked.c.in_local_queue)
    return query.join(ranked, W.uid == ranked.c.uid)


# ------------------------------------------------------------------ one workload, and history


def workload(connection: Connection, namespace: str, name: str) -> WorkloadRow | None:
    """By its own name, or else by that of its owner (a Job); the newest where there are several."""
    for column in (W.name, W.owner_name):
        query = _rows(W).where(W.namespace == namespace, column == name).order_by(W.created_at.desc()).limit(1)
        row = connection.execute(query).mappings().first()
        if row is not None:
            return _workload(row)
    return None


def decisions(connection: Connection, wanted: DecisionFilter, *, limit: int) -> list[Recorded]:
    """The newest first."""
    d = DecisionRecord
    query = _rows(d).order_by(d.id.desc()).limit(limit)
    for column, value in (
        (d.workload, wanted.workload),
        (d.namespace, wanted.namespace),
        (d.name, wanted.name),
        (d.cluster_queue, wanted.cluster_queue),
    ):
        if value:
            query = query.where(column == value)
    if wanted.kind is not None:
        query = query.where(d.kind == wanted.kind.value)
    if wanted.since is not None:
        query = query.where(d.at >= wanted.since)
    if wanted.until is not None:
        query = query.where(d.at < wanted.until)
    if wanted.before is not None:
        query = query.where(d.id < wanted.before)
    return [_decision(dict(row)) for row in connection.execute(query).mappings()]


def names(connection: Connection, uids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Namespace and name of workloads, live or remembered."""
    found: dict[str, tuple[str, str]] = {}
    for record, uid in ((DecisionRecord, DecisionRecord.workload), (W, W.uid)):
        query = select(uid, func.max(record.namespace), func.max(record.name)).where(uid.in_(uids)).group_by(uid)
        for key, namespace, name in connection.execute(query):
            found[key] = (namespace or "", name or "")
    return found


# ------------------------------------------------------------------ rows to values


def _rows(record: type[Base]) -> Select[Any]:
    """All columns of a table, rather than objects: a page may have thousands of rows."""
    return select(*record.__table__.columns)


def _queue(row: Mapping[Any, Any]) -> QueueRow:
    return QueueRow(**{**row, "quotas": tuple(QuotaRow(**quota) for quota in row["quotas"])})


def _workload(row: Mapping[Any, Any]) -> WorkloadRow:
    values = {name: row[name] for name in WorkloadRow.__dataclass_fields__}
    return WorkloadRow(
        **{
            **values,
            "state": WorkloadState(row["state"]),
            "owners": tuple(Owner(**owner) for owner in row["owners"]),
            "shortages": tuple(row["shortages"]),
        }
    )


def _pending(row: Mapping[Any, Any]) -> Pending:
    return Pending(_workload(row), row["in_cluster_queue"], row["in_local_queue"])


def _decision(row: dict[str, Any]) -> Recorded:
    number = row.pop("id")
    return Recorded(number, Decision(**{**row, "kind": Kind(row["kind"])}))
