"""Adds up the usage ledger between two times, by ClusterQueue or by namespace: the GPU-hours of a team last month.

Intervals are clipped to the asked time, and those still open count up to now. It must never count what is yet to come.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from sqlalchemy import Connection, case, func, or_, select

from queues.journal.models import UsageRecord

U = UsageRecord


class By(Enum):
    QUEUE = "queue"
    NAMESPACE = "namespace"


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """`key` is the ClusterQueue or the namespace; `amount_seconds` the amount times the seconds that it was held."""

    key: str
    flavor: str
    resource: str
    amount_seconds: float
    workloads: int


def usage(
    connection: Connection,
    since: float,
    until: float,
    *,
    by: By = By.QUEUE,
    now: float,
    namespace: str | None = None,
    cluster_queues: Collection[str] | None = None,
) -> list[UsageTotal]:
    """One pass over the intervals that touch [since, until)."""
    until = min(until, now)
    if since >= until:
        return []
    key = U.cluster_queue if by is By.QUEUE else U.namespace
    start = case((U.started_at > since, U.started_at), else_=since)
    end = case((U.ended_at < until, U.ended_at), else_=until)
    query = (
        select(key, U.flavor, U.resource, func.sum(U.amount * (end - start)), func.count(U.workload.distinct()))
        .where(U.started_at < until, or_(U.ended_at.is_(None), U.ended_at > since))
        .group_by(key, U.flavor, U.resource)
        .order_by(key, U.flavor, U.resource)
    )
    if namespace is not None:
        query = query.where(U.namespace == namespace)
    if cluster_queues is not None:
        query = query.where(U.cluster_queue.in_(cluster_queues))
    return [UsageTotal(k, f, r, float(held), n) for k, f, r, held, n in connection.execute(query)]
