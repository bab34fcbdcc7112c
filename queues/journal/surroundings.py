"""Answers what lies around the queues: cohorts, flavors with the levels of their topology, and nodes with what is free.

Each answer is made from one connection's view of the read model. It must never write, and never decides who may see
what.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from sqlalchemy import Connection, select

from queues.journal.entries import CohortRow, FlavorRow, NodeRow, NodeState, PodSetRow, QuotaRow, WorkloadState
from queues.journal.models import CohortRecord, FlavorRecord, NodeRecord, WorkloadRecord
from queues.journal.read import pod_set_row, rows_of

W = WorkloadRecord

#: Rows fetched at a time.
FETCHED = 1000


def cohorts(connection: Connection) -> list[CohortRow]:
    """Those that exist as objects; others are only named by their members."""
    query = rows_of(CohortRecord).order_by(CohortRecord.name)
    return [
        CohortRow(row["name"], row["parent"], tuple(QuotaRow(**quota) for quota in row["quotas"]))
        for row in connection.execute(query).mappings()
    ]


def flavors(connection: Connection) -> list[FlavorRow]:
    query = rows_of(FlavorRecord).order_by(FlavorRecord.name)
    return [
        FlavorRow(row["name"], row["node_labels"], row["topology"], tuple(row["levels"]))
        for row in connection.execute(query).mappings()
    ]


def nodes(connection: Connection) -> Iterator[NodeRow]:
    """All of them, by name."""
    query = rows_of(NodeRecord).order_by(NodeRecord.name)
    for name, state, labels, capacity, free in connection.execute(query, execution_options={"yield_per": FETCHED}):
        yield NodeRow(name, NodeState(state), labels, capacity, free)


def placed(connection: Connection, namespaces: Collection[str] = ()) -> Iterator[tuple[str, str, PodSetRow]]:
    """Namespace and name of workloads that hold quota, with each of their pod sets that was given places."""
    query = select(W.namespace, W.name, W.pod_sets).where(
        W.state.in_((WorkloadState.RESERVING.value, WorkloadState.ADMITTED.value))
    )
    if namespaces:
        query = query.where(W.namespace.in_(namespaces))
    for namespace, name, pod_sets in connection.execute(query.order_by(W.namespace, W.name)):
        for row in pod_sets:
            if row.get("domains"):
                yield namespace, name, pod_set_row(row)
