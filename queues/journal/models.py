"""The tables of the journal, as typed declarative classes: decisions, read model, uses, past use, who wrote last.

They follow `entries`: history is append-only, the read model has one row per live object, a use is an interval.
Schema changes go through `migrations/`; a test compares both, so nothing here may create or alter a table.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Double, Index, Integer, MetaData, String, Text, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

#: Byte order for names and uids on every database: ties of the queue order end in the uid, compared as in the core.
Name = String().with_variant(String(collation="C"), "postgresql")

#: Kueue's order within a ClusterQueue, as columns of `WorkloadRecord`; the uid makes it total.
ORDER = ("ordinary", "falling_priority", "queued_at", "uid")

#: Most decisions have no cause; only those that have one are ever looked for by it.
HAS_CAUSE = text("cause <> ''")

#: SQLite numbers rows itself only where the type is exactly INTEGER.
RowId = BigInteger().with_variant(Integer, "sqlite")


class Base(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {str: Name, float: Double(), dict[str, Any]: JSON, list[Any]: JSON}  # noqa: RUF012 - SQLAlchemy's own protocol


class DecisionRecord(Base):
    """`entries.Decision`."""

    __tablename__ = "decisions"
    __table_args__ = (
        Index(None, "workload", "id"),
        Index(None, "namespace", "name", "id"),
        Index(None, "cluster_queue", "id"),
        Index(None, "at"),
        Index(None, "cause", "id", sqlite_where=HAS_CAUSE, postgresql_where=HAS_CAUSE),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    at: Mapped[float]
    workload: Mapped[str]
    namespace: Mapped[str]
    name: Mapped[str]
    kind: Mapped[str]
    cluster_queue: Mapped[str]
    local_queue: Mapped[str]
    code: Mapped[str]
    message: Mapped[str] = mapped_column(Text)
    facts: Mapped[dict[str, Any]]
    remedy: Mapped[str | None] = mapped_column(Text)
    cause: Mapped[str]


class WorkloadRecord(Base):
    """`entries.WorkloadRow`; the controlling owner's kind and name once more, to be found by.

    `ordinary` is "not sticky" and `falling_priority` the negated effective priority, so that the queue's order is that
    of ascending columns, which an index has on every database.
    """

    __tablename__ = "workloads"
    __table_args__ = (
        # The queue's order, with all that positions are counted from.
        Index("ix_workloads_order", "cluster_queue", "state", *ORDER, "namespace", "local_queue"),
        Index(None, "namespace", "name"),
        Index(None, "namespace", "owner_name"),
    )

    uid: Mapped[str] = mapped_column(primary_key=True)
    namespace: Mapped[str]
    name: Mapped[str]
    local_queue: Mapped[str]
    cluster_queue: Mapped[str]
    state: Mapped[str]
    created_at: Mapped[float]
    queued_at: Mapped[float]
    state_since: Mapped[float]
    priority: Mapped[int] = mapped_column(BigInteger)
    ordinary: Mapped[bool] = mapped_column(Boolean)
    falling_priority: Mapped[int] = mapped_column(BigInteger)
    evicted: Mapped[bool] = mapped_column(Boolean)
    owner_kind: Mapped[str]
    owner_name: Mapped[str]
    owners: Mapped[list[Any]]
    pods: Mapped[int] = mapped_column(BigInteger)
    requests: Mapped[dict[str, Any]]
    flavors: Mapped[dict[str, Any]]
    code: Mapped[str]
    message: Mapped[str] = mapped_column(Text)
    remedy: Mapped[str | None] = mapped_column(Text)
    shortages: Mapped[list[Any]]
    facts: Mapped[dict[str, Any]]
    pod_sets: Mapped[list[Any]] = mapped_column(server_default=text("'[]'"))


class QueueRecord(Base):
    """`entries.QueueRow`. Quotas are JSON: they are only ever read as a whole, and may exceed 64 bits."""

    __tablename__ = "cluster_queues"

    name: Mapped[str] = mapped_column(primary_key=True)
    cohort: Mapped[str]
    strategy: Mapped[str]
    stop_policy: Mapped[str]
    active: Mapped[bool] = mapped_column(Boolean)
    reason: Mapped[str]
    message: Mapped[str] = mapped_column(Text)
    quotas: Mapped[list[Any]]


class LocalQueueRecord(Base):
    """`entries.LocalQueueRow`."""

    __tablename__ = "local_queues"
    __table_args__ = (Index(None, "cluster_queue"),)

    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    cluster_queue: Mapped[str]
    active: Mapped[bool] = mapped_column(Boolean)
    reason: Mapped[str]
    message: Mapped[str] = mapped_column(Text)
    past_use: Mapped[float | None]


class CohortRecord(Base):
    """`entries.CohortRow`."""

    __tablename__ = "cohorts"

    name: Mapped[str] = mapped_column(primary_key=True)
    parent: Mapped[str]
    quotas: Mapped[list[Any]]


class FlavorRecord(Base):
    """`entries.FlavorRow`."""

    __tablename__ = "flavors"

    name: Mapped[str] = mapped_column(primary_key=True)
    node_labels: Mapped[dict[str, Any]]
    topology: Mapped[str]
    levels: Mapped[list[Any]]


class NodeRecord(Base):
    """`entries.NodeRow`."""

    __tablename__ = "nodes"

    name: Mapped[str] = mapped_column(primary_key=True)
    state: Mapped[str]
    labels: Mapped[dict[str, Any]]
    capacity: Mapped[dict[str, Any]]
    free: Mapped[dict[str, Any]]


class PastUseRecord(Base):
    """`entries.PastUseRow`."""

    __tablename__ = "past_use"

    namespace: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    uid: Mapped[str]
    at: Mapped[float]
    consumed: Mapped[dict[str, Any]]


class UsageRecord(Base):
    """One workload held `amount` of one resource of one flavor from `started_at` to `ended_at` (None: still does)."""

    __tablename__ = "usage"
    __table_args__ = (
        Index(None, "workload", "ended_at"),
        Index(None, "ended_at", "started_at"),
    )

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    workload: Mapped[str]
    namespace: Mapped[str]
    name: Mapped[str]
    cluster_queue: Mapped[str]
    local_queue: Mapped[str]
    flavor: Mapped[str]
    resource: Mapped[str]
    amount: Mapped[int] = mapped_column(BigInteger)
    started_at: Mapped[float]
    ended_at: Mapped[float | None]


class WriterRecord(Base):
    """One per run of a writer: its last batch, so that none is written twice, and the time it last said it is alive."""

    __tablename__ = "journal_writers"

    writer: Mapped[str] = mapped_column(primary_key=True)
    started_at: Mapped[float]
    written_at: Mapped[float]
    batch: Mapped[int] = mapped_column(BigInteger)
    dropped: Mapped[int] = mapped_column(BigInteger)
