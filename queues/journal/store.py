"""Writes one batch of entries in one transaction: rows, uses, decisions, and the mark that this batch is written.

The mark makes a batch count once, even where the connection broke after the commit. It takes the batch as it is;
what to do about failures is the writer's business, so nothing is caught here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

from msgspec import structs
from sqlalchemy import Connection, Table, bindparam, case, delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from queues.journal.buffer import Batch, Gap, Usage
from queues.journal.entries import (
    CohortRemoved,
    CohortRow,
    Decision,
    FlavorRemoved,
    FlavorRow,
    Kind,
    LocalQueueRemoved,
    LocalQueueRow,
    NodeRemoved,
    NodeRow,
    PastUseRow,
    PodSetRow,
    QueueRemoved,
    QueueRow,
    Row,
    WorkloadRemoved,
    WorkloadRow,
    WorkloadState,
)
from queues.journal.ledger import Interval, Snapshot, settle
from queues.journal.models import (
    Base,
    CohortRecord,
    DecisionRecord,
    FlavorRecord,
    LocalQueueRecord,
    NodeRecord,
    PastUseRecord,
    QueueRecord,
    UsageRecord,
    WorkloadRecord,
    WriterRecord,
)

#: For statements that run once for each of many rows.
WORKLOADS, QUEUES, LOCAL_QUEUES, PAST_USE, USAGE, COHORTS, FLAVORS, NODES = (
    Base.metadata.tables[record.__tablename__]
    for record in (
        WorkloadRecord,
        QueueRecord,
        LocalQueueRecord,
        PastUseRecord,
        UsageRecord,
        CohortRecord,
        FlavorRecord,
        NodeRecord,
    )
)

#: What is removed by its name alone.
REMOVALS = (
    (QueueRemoved, QUEUES),
    (CohortRemoved, COHORTS),
    (FlavorRemoved, FLAVORS),
    (NodeRemoved, NODES),
)

#: Values bound in one statement: below what any build of SQLite allows.
CHUNK = 500

T = TypeVar("T")
Values = dict[str, Any]


def write_batch(connection: Connection, batch: Batch, now: float) -> None:
    write_rows(connection, batch.rows, replace=batch.replace)
    write_usage(connection, batch.usage)
    if batch.gap is not None and batch.gap.usage:
        _close_unfounded(connection, batch.gap.until)
    decisions = [_gap(batch.gap, now)] if batch.gap is not None else []
    decisions += [_decision(d) for d in batch.decisions]
    if decisions:
        connection.execute(insert(DecisionRecord), decisions)


# ------------------------------------------------------------------ read model


def write_rows(connection: Connection, rows: Sequence[Row], *, replace: bool = False) -> None:
    """Each key occurs once. With `replace`, rows of other keys go away."""
    if replace:
        for table in (WORKLOADS, QUEUES, LOCAL_QUEUES, COHORTS, FLAVORS, NODES):
            connection.execute(delete(table))
    for uids in _chunks(row.uid for row in rows if isinstance(row, WorkloadRemoved)):
        connection.execute(delete(WorkloadRecord).where(WorkloadRecord.uid.in_(uids)))
    for removed, table in REMOVALS:
        for names in _chunks(row.name for row in rows if isinstance(row, removed)):
            connection.execute(delete(table).where(table.c.name.in_(names)))
    if gone := [{"of": row.namespace, "named": row.name} for row in rows if isinstance(row, LocalQueueRemoved)]:
        for table in (LOCAL_QUEUES, PAST_USE):
            connection.execute(
                delete(table).where(table.c.namespace == bindparam("of"), table.c.name == bindparam("named")), gone
            )
    _upsert(connection, WORKLOADS, [_workload(row) for row in rows if isinstance(row, WorkloadRow)])
    _upsert(connection, QUEUES, [_queue(row) for row in rows if isinstance(row, QueueRow)])
    _upsert(connection, LOCAL_QUEUES, [_fields(row) for row in rows if isinstance(row, LocalQueueRow)])
    _upsert(connection, PAST_USE, [_past_use(row) for row in rows if isinstance(row, PastUseRow)])
    _upsert(connection, COHORTS, [_cohort(row) for row in rows if isinstance(row, CohortRow)])
    _upsert(connection, FLAVORS, [_flavor(row) for row in rows if isinstance(row, FlavorRow)])
    _upsert(connection, NODES, [_node(row) for row in rows if isinstance(row, NodeRow)])


def _upsert(connection: Connection, table: Table, rows: list[Values]) -> None:
    if not rows:
        return
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    statement = dialect.insert(table)
    changed = {c.name: statement.excluded[c.name] for c in table.columns if not c.primary_key}
    connection.execute(
        statement.on_conflict_do_update(index_elements=list(table.primary_key.columns), set_=changed), rows
    )


def _queue(row: QueueRow) -> Values:
    return {**_fields(row), "quotas": [structs.asdict(quota) for quota in row.quotas]}


def _cohort(row: CohortRow) -> Values:
    return {"name": row.name, "parent": row.parent, "quotas": [structs.asdict(quota) for quota in row.quotas]}


def _flavor(row: FlavorRow) -> Values:
    return {
        "name": row.name,
        "node_labels": dict(row.node_labels),
        "topology": row.topology,
        "levels": list(row.levels),
    }


def _node(row: NodeRow) -> Values:
    return {
        "name": row.name,
        "state": row.state.value,
        "labels": dict(row.labels),
        "capacity": dict(row.capacity),
        "free": dict(row.free),
    }


def _pod_set(row: PodSetRow) -> Values:
    """Without what is empty: most have no place yet, and there may be many."""
    return {
        name: dict(value) if isinstance(value, Mapping) else value
        for name in row.__struct_fields__
        if (value := getattr(row, name))
    }


def _past_use(row: PastUseRow) -> Values:
    return {
        "namespace": row.namespace,
        "name": row.name,
        "uid": row.uid,
        "at": row.at,
        "consumed": dict(row.consumed),
    }


def _workload(row: WorkloadRow) -> Values:
    first = row.owners[0] if row.owners else None
    values = _fields(row)
    is_sticky, effective = values.pop("sticky"), values.pop("effective_priority")
    return {
        **values,
        "ordinary": not is_sticky,
        "falling_priority": -(row.priority if effective is None else effective),
        "state": row.state.value,
        "owner_kind": first.kind if first else "",
        "owner_name": first.name if first else "",
        "owners": [structs.asdict(owner) for owner in row.owners],
        "requests": dict(row.requests),
        "flavors": dict(row.flavors),
        "shortages": [dict(shortage) for shortage in row.shortages],
        "facts": dict(row.facts),
        "message": _text(row.message),
        "remedy": None if row.remedy is None else _text(row.remedy),
        "pod_sets": [_pod_set(pod_set) for pod_set in row.pod_sets],
    }


def _fields(row: Any) -> Values:
    """Its attributes; `message` fit for a text column."""
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    return {**values, "message": _text(values["message"])}


# ------------------------------------------------------------------ usage ledger


def write_usage(connection: Connection, entries: Sequence[Usage]) -> None:
    if not entries:
        return
    workloads: set[str] = set()
    everything = False
    for entry in entries:
        match entry:
            case Snapshot():
                everything = True
                workloads.update(use.workload for use in entry.usage)
            case _:
                workloads.add(entry.workload)
    settlement = settle(
        entries,
        _open_intervals(connection, None if everything else workloads),
        _last_ends(connection, workloads),
    )
    if settlement.ends:
        connection.execute(
            update(USAGE).where(USAGE.c.id == bindparam("row")).values(ended_at=bindparam("end")),
            [{"row": row, "end": end} for row, end in settlement.ends.items()],
        )
    if settlement.inserts:
        connection.execute(
            insert(UsageRecord), [{k: v for k, v in asdict(i).items() if k != "id"} for i in settlement.inserts]
        )


def _open_intervals(connection: Connection, workloads: set[str] | None) -> Iterator[Interval]:
    """Of these workloads; None: of all."""
    columns = [getattr(UsageRecord, name) for name in Interval.__dataclass_fields__]
    query = select(*columns).where(UsageRecord.ended_at.is_(None)).order_by(UsageRecord.id)
    if workloads is None:
        yield from (Interval(**row) for row in connection.execute(query).mappings())
        return
    for uids in _chunks(sorted(workloads)):
        rows = connection.execute(query.where(UsageRecord.workload.in_(uids))).mappings()
        yield from (Interval(**row) for row in rows)


def _last_ends(connection: Connection, workloads: set[str]) -> dict[str, float]:
    ends: dict[str, float] = {}
    for uids in _chunks(sorted(workloads)):
        query = (
            select(UsageRecord.workload, func.max(UsageRecord.ended_at))
            .where(UsageRecord.workload.in_(uids), UsageRecord.ended_at.is_not(None))
            .group_by(UsageRecord.workload)
        )
        ends.update((uid, end) for uid, end in connection.execute(query) if end is not None)
    return ends


def _close_unfounded(connection: Connection, at: float) -> None:
    """Ends were lost: what the read model does not know to hold quota ended at `at`, as far as is known."""
    holding = select(WorkloadRecord.uid).where(
        WorkloadRecord.state.in_((WorkloadState.RESERVING.value, WorkloadState.ADMITTED.value))
    )
    connection.execute(
        update(UsageRecord)
        .where(UsageRecord.ended_at.is_(None), UsageRecord.workload.not_in(holding))
        .values(ended_at=case((UsageRecord.started_at > at, UsageRecord.started_at), else_=at))
    )


# ------------------------------------------------------------------ history


def _decision(decision: Decision) -> Values:
    return {
        **_fields(decision),
        "kind": decision.kind.value,
        "facts": dict(decision.facts),
        "remedy": None if decision.remedy is None else _text(decision.remedy),
    }


def _gap(gap: Gap, now: float) -> Values:
    message = (
        f"{gap.decisions} decisions and {gap.usage} uses of quota were not recorded: the database was not available"
    )
    facts = {"since": gap.since, "until": gap.until, "decisions": gap.decisions, "usage": gap.usage}
    return _decision(Decision(at=now, workload="", namespace="", name="", kind=Kind.GAP, message=message, facts=facts))


def prune(connection: Connection, *, decisions_before: float | None, usage_before: float | None, limit: int) -> bool:
    """Deletes up to `limit` old rows of each sort, and the marks of writers long gone; whether there may be more."""
    more = False
    if decisions_before is not None:
        old_decisions = select(DecisionRecord.id).where(DecisionRecord.at < decisions_before).limit(limit)
        more |= connection.execute(delete(DecisionRecord).where(DecisionRecord.id.in_(old_decisions))).rowcount == limit
        connection.execute(delete(WriterRecord).where(WriterRecord.written_at < decisions_before))
    if usage_before is not None:
        old_usage = select(UsageRecord.id).where(UsageRecord.ended_at < usage_before).limit(limit)
        more |= connection.execute(delete(UsageRecord).where(UsageRecord.id.in_(old_usage))).rowcount == limit
    return more


# ------------------------------------------------------------------ small parts


def _text(value: str) -> str:
    """PostgreSQL takes no NUL in a text."""
    return value.replace("\x00", "\N{REPLACEMENT CHARACTER}")


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    chunk: list[T] = []
    for value in values:
        chunk.append(value)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
