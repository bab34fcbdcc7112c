"""Adds up the usage ledger between times, by ClusterQueue or by namespace: the GPU-hours of a team, day by day.

Intervals are clipped to the asked time, and those still open count up to now. It must never count what is yet to come.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from sqlalchemy import ColumnElement, Connection, Double, Integer, case, cast, func, literal, or_, select, union_all

from queues.journal.models import UsageRecord

U = UsageRecord

#: So many parts one statement may have on every database.
MOST_STEPS = 400


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


@dataclass(frozen=True, slots=True)
class StepTotal:
    """What of it was held in the step of this number, from 0."""

    step: int
    total: UsageTotal


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
    held = U.amount * (_earlier(until) - _later(since))
    query = (
        select(key, U.flavor, U.resource, func.sum(held), func.count(U.workload.distinct()))
        .where(U.started_at < until, or_(U.ended_at.is_(None), U.ended_at > since))
        .group_by(key, U.flavor, U.resource)
        .order_by(key, U.flavor, U.resource)
    )
    if namespace is not None:
        query = query.where(U.namespace == namespace)
    if cluster_queues is not None:
        query = query.where(U.cluster_queue.in_(cluster_queues))
    return [UsageTotal(k, f, r, float(amount), n) for k, f, r, amount, n in connection.execute(query)]


def usage_by_step(
    connection: Connection,
    edges: Sequence[float],
    *,
    by: By = By.QUEUE,
    now: float,
    namespace: str | None = None,
) -> list[StepTotal]:
    """The same for each step between two neighbouring edges; at most `MOST_STEPS`.

    One look at the index for each step, and one pass over the intervals that touch it.
    """
    pairs = [(start, min(stop, now)) for start, stop in pairwise(edges) if start < now]
    if not pairs:
        return []
    if len(pairs) > MOST_STEPS:
        raise ValueError(f"{len(pairs)} steps are more than {MOST_STEPS}")
    steps = union_all(
        *(
            select(
                cast(literal(number), Integer).label("step"),
                cast(literal(float(start)), Double).label("start"),
                cast(literal(float(stop)), Double).label("stop"),
            )
            for number, (start, stop) in enumerate(pairs)
        )
    ).cte("steps")
    since, until = steps.c.start, steps.c.stop
    key = U.cluster_queue if by is By.QUEUE else U.namespace
    held = U.amount * (_earlier(until) - _later(since))
    query = (
        select(steps.c.step, key, U.flavor, U.resource, func.sum(held), func.count(U.workload.distinct()))
        .join_from(steps, U, (U.started_at < until) & or_(U.ended_at.is_(None), U.ended_at > since))
        .group_by(steps.c.step, key, U.flavor, U.resource)
        .order_by(steps.c.step, key, U.flavor, U.resource)
    )
    if namespace is not None:
        query = query.where(U.namespace == namespace)
    return [
        StepTotal(step, UsageTotal(name, flavor, resource, float(amount), workloads))
        for step, name, flavor, resource, amount, workloads in connection.execute(query)
    ]


def _later(since: ColumnElement[float] | float) -> ColumnElement[float]:
    return case((U.started_at > since, U.started_at), else_=since)


def _earlier(until: ColumnElement[float] | float) -> ColumnElement[float]:
    return case((U.ended_at < until, U.ended_at), else_=until)
