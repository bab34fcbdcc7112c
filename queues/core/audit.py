"""Compares the books with what workloads hold, added up anew: the slow way, for whoever doubts the fast one.

Works from the records of a settled state and answers in sentences what does not agree; no sentence is good news. What
to do about it is the shell's business: this must never change anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from queues.core.demand import charges_of
from queues.core.model import ClusterQueueName, CohortName, FlavorResource, Uid
from queues.core.quantities import beyond
from queues.core.records import WorkloadRecord
from queues.core.state import State
from queues.core.tree import Node


def is_charged_right(state: State, uid: Uid) -> bool:
    """Whether the workload is charged exactly for what it was last said to hold; one that only waits for nothing."""
    record = state.workloads.get(uid)
    if record is None:
        return False
    admission = record.workload.admission
    if admission is None:
        return record.admission is None
    return record.admission is not None and record.charges == charges_of(record.workload, admission)


def wrong_in_queue(state: State, name: ClusterQueueName) -> Iterator[str]:
    """What a ClusterQueue counts as used, and those who hold quota in it do not. Cost: those who do."""
    queue = state.books.queues.get(name)
    if queue is None:
        return
    held = _sum(queue.holding)
    yield from _differences(f"ClusterQueue {name}", _usage(queue.node), held)
    yield from _differences(f"ClusterQueue {name}, reserved", queue.reserved, held)


def wrong_in_cohort(state: State, name: CohortName) -> Iterator[str]:
    """What a cohort counts as used, and its children do not use beyond what is theirs alone. Cost: its children."""
    node = state.books.forest.cohorts.get(name)
    if node is None or node.is_cyclic:
        return
    used: dict[FlavorResource, int] = {}
    for child in node.children.values():
        for unit, account in child.accounts.items():
            if amount := beyond(account.usage, account.private):
                used[unit] = used.get(unit, 0) + amount
    yield from _differences(f"Cohort {name}", _usage(node), used)


def _sum(holding: Mapping[Uid, WorkloadRecord]) -> dict[FlavorResource, int]:
    held: dict[FlavorResource, int] = {}
    for record in holding.values():
        for unit, amount in record.charges.items():
            held[unit] = held.get(unit, 0) + amount
    return held


def _usage(node: Node) -> dict[FlavorResource, int]:
    return {unit: account.usage for unit, account in node.accounts.items()}


def _differences(
    where: str, counted: Mapping[FlavorResource, int], held: Mapping[FlavorResource, int]
) -> Iterator[str]:
    for unit in sorted({*counted, *held}):
        if counted.get(unit, 0) != held.get(unit, 0):
            yield (
                f"{where}: {counted.get(unit, 0)} of {unit.resource} in flavor {unit.flavor} are counted, "
                f"{held.get(unit, 0)} are held"
            )
