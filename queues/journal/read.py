"""Answers questions from the read model and the history: queues, the order of what waits, one workload, decisions.

Each answer is made from one connection's view of the database, and positions come from the queue's order at that
moment. It must never write, and never decides who may see what.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from sqlalchemy import Connection, Select, Text, cast, func, or_, select

from queues.journal.entries import (
    Decision,
    Kind,
    LocalQueueRow,
    Owner,
    PastUseRow,
    PodSetRow,
    QueueRow,
    QuotaRow,
    WorkloadRow,
    WorkloadState,
)
from queues.journal.models import (
    ORDER,
    Base,
    DecisionRecord,
    LocalQueueRecord,
    PastUseRecord,
    QueueRecord,
    WorkloadRecord,
    WriterRecord,
)

W = WorkloadRecord
L = LocalQueueRecord

#: Rows fetched at a time, and values bound in one statement.
FETCHED = 500

#: Starts are remembered among so many decisions, and so many of them.
LOOKED_AT = 200_000
REMEMBERED = 8192


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
    cause: str = ""


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
    query = rows_of(QueueRecord).order_by(QueueRecord.name)
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


def flavors_of(connection: Connection, name: str) -> set[str]:
    """Those that a ClusterQueue has quota of."""
    quotas = connection.scalar(select(QueueRecord.quotas).where(QueueRecord.name == name)) or ()
    return {str(quota["flavor"]) for quota in quotas}


def local_queues(
    connection: Connection, *, namespace: str | None = None, name: str | None = None, cluster_queue: str | None = None
) -> list[LocalQueueRow]:
    query = rows_of(L).order_by(L.namespace, L.name)
    for column, value in ((L.namespace, namespace), (L.name, name), (L.cluster_queue, cluster_queue)):
        if value is not None:
            query = query.where(column == value)
    return [LocalQueueRow(**row) for row in connection.execute(query).mappings()]


def past_use(connection: Connection) -> list[PastUseRow]:
    """Of all LocalQueues, as written last."""
    return [PastUseRow(**row) for row in connection.execute(rows_of(PastUseRecord)).mappings()]


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
    """In order; filters come before `offset`. Costs one step along an index for each one up to the end of the page."""
    with closing(_order(connection, cluster_queue)) as order:
        wanted = (
            place
            for place in order
            if namespace in {None, place.namespace} and local_queue in {None, place.local_queue}
        )
        page = list(islice(wanted, offset, min(offset + limit, sys.maxsize))) if limit else []
    return _pending(connection, page)


def count_pending(connection: Connection, cluster_queue: str, *, namespace: str | None = None) -> int:
    query = select(func.count()).where(W.cluster_queue == cluster_queue, W.state == WorkloadState.PENDING.value)
    if namespace is not None:
        query = query.where(W.namespace == namespace)
    return connection.scalar(query) or 0


def place(connection: Connection, workload: WorkloadRow) -> Pending | None:
    """Where it stands; None for one that does not wait."""
    with closing(_order(connection, workload.cluster_queue)) as order:
        found = next((place for place in order if place.uid == workload.uid), None)
    return None if found is None else _pending(connection, [found])[0]


class _Place(NamedTuple):
    uid: str
    namespace: str
    local_queue: str
    in_cluster_queue: int
    in_local_queue: int


def _order(connection: Connection, cluster_queue: str) -> Generator[_Place]:
    """What waits, from the front, straight from the index; the reader stops when it has enough.

    Window functions would sort the whole queue for every page, which takes most of a second for 50,000 workloads. Only
    where past use counts is that so, since it changes for all of a LocalQueue at once.
    """
    query = select(W.uid, W.namespace, W.local_queue).where(
        W.cluster_queue == cluster_queue, W.state == WorkloadState.PENDING.value
    )
    if _goes_by_past_use(connection, cluster_queue):
        query = query.outerjoin(L, (L.namespace == W.namespace) & (L.name == W.local_queue)).order_by(
            func.coalesce(L.past_use, 0.0)
        )
    query = query.order_by(*(getattr(W, column) for column in ORDER))
    counted: dict[tuple[str, str], int] = {}
    with connection.execute(query, execution_options={"yield_per": FETCHED}) as rows:
        for position, (uid, namespace, local_queue) in enumerate(rows):
            before = counted.get((namespace, local_queue), 0)
            counted[namespace, local_queue] = before + 1
            yield _Place(uid, namespace, local_queue, position, before)


def _goes_by_past_use(connection: Connection, cluster_queue: str) -> bool:
    query = select(L.name).where(L.cluster_queue == cluster_queue, L.past_use.is_not(None)).limit(1)
    return connection.scalar(query) is not None


def _pending(connection: Connection, places: Sequence[_Place]) -> list[Pending]:
    """The rows of these places. One that went away in between is left out."""
    found: dict[str, WorkloadRow] = {}
    for start in range(0, len(places), FETCHED):
        uids = [place.uid for place in places[start : start + FETCHED]]
        for row in connection.execute(rows_of(W).where(W.uid.in_(uids))).mappings():
            found[row["uid"]] = _workload(row)
    return [
        Pending(found[place.uid], place.in_cluster_queue, place.in_local_queue)
        for place in places
        if place.uid in found
    ]


# ------------------------------------------------------------------ one workload, and history


def workload(connection: Connection, namespace: str, name: str) -> WorkloadRow | None:
    """By its own name, or else by that of its owner (a Job); the newest where there are several."""
    for column in (W.name, W.owner_name):
        query = rows_of(W).where(W.namespace == namespace, column == name).order_by(W.created_at.desc()).limit(1)
        row = connection.execute(query).mappings().first()
        if row is not None:
            return _workload(row)
    return None


def workloads(
    connection: Connection,
    *,
    namespace: str | None = None,
    cluster_queue: str | None = None,
    state: WorkloadState | None = None,
    beginning: str = "",
    limit: int,
    offset: int = 0,
) -> tuple[list[WorkloadRow], int]:
    """Those whose name, or whose Job's, begins so; the newest first, and how many there are in all."""
    where = [
        column == value
        for column, value in (
            (W.namespace, namespace),
            (W.cluster_queue, cluster_queue),
            (W.state, None if state is None else state.value),
        )
        if value is not None
    ]
    if beginning:
        where.append(or_(*(column.startswith(beginning, autoescape=True) for column in (W.name, W.owner_name))))
    total = connection.scalar(select(func.count()).select_from(W).where(*where)) or 0
    query = rows_of(W).where(*where).order_by(W.created_at.desc(), W.uid).limit(limit).offset(offset)
    return [_workload(row) for row in connection.execute(query).mappings()], total


def decisions(connection: Connection, wanted: DecisionFilter, *, limit: int) -> list[Recorded]:
    """The newest first."""
    d = DecisionRecord
    query = rows_of(d).order_by(d.id.desc()).limit(limit)
    for column, value in (
        (d.workload, wanted.workload),
        (d.namespace, wanted.namespace),
        (d.name, wanted.name),
        (d.cluster_queue, wanted.cluster_queue),
        (d.cause, wanted.cause),
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


def starts(connection: Connection, *, until: float) -> list[Decision]:
    """The reservations before a time that have facts, the oldest first. Cost: one step for each decision looked at."""
    d = DecisionRecord
    newest = connection.scalar(select(func.max(d.id))) or 0
    query = (
        rows_of(d)
        .where(d.id > newest - LOOKED_AT, d.kind == Kind.RESERVED.value, d.at < until, cast(d.facts, Text) != "{}")
        .order_by(d.id.desc())
        .limit(REMEMBERED)
    )
    return [_decision(dict(row)).decision for row in connection.execute(query).mappings()][::-1]


def names(connection: Connection, uids: Collection[str]) -> dict[str, tuple[str, str]]:
    """Namespace and name of workloads, live or remembered."""
    found: dict[str, tuple[str, str]] = {}
    for record, uid in ((DecisionRecord, DecisionRecord.workload), (W, W.uid)):
        query = select(uid, func.max(record.namespace), func.max(record.name)).where(uid.in_(uids)).group_by(uid)
        for key, namespace, name in connection.execute(query):
            found[key] = (namespace or "", name or "")
    return found


# ------------------------------------------------------------------ rows to values


def rows_of(record: type[Base]) -> Select[Any]:
    """All columns of a table, rather than objects: a page may have thousands of rows."""
    return select(*record.__table__.columns)


def _queue(row: Mapping[Any, Any]) -> QueueRow:
    return QueueRow(**{**row, "quotas": tuple(QuotaRow(**quota) for quota in row["quotas"])})


def _workload(row: Mapping[Any, Any]) -> WorkloadRow:
    values = {name: row[name] for name in WorkloadRow.__struct_fields__ if name in row}
    return WorkloadRow(
        **{
            **values,
            "sticky": not row["ordinary"],
            "effective_priority": -row["falling_priority"],
            "state": WorkloadState(row["state"]),
            "owners": tuple(Owner(**owner) for owner in row["owners"]),
            "shortages": tuple(row["shortages"]),
            "pod_sets": tuple(pod_set_row(pod_set) for pod_set in row["pod_sets"]),
        }
    )


def pod_set_row(row: Mapping[str, Any]) -> PodSetRow:
    domains = tuple((tuple(values), count) for values, count in row.get("domains", ()))
    return PodSetRow(**{"count": 0, **row, "levels": tuple(row.get("levels", ())), "domains": domains})


def _decision(row: dict[str, Any]) -> Recorded:
    number = row.pop("id")
    return Recorded(number, Decision(**{**row, "kind": Kind(row["kind"])}))
