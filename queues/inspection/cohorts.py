"""The tree of cohorts with the queues in it: what each has, holds, borrows and leaves idle, and what waits below it.

It is made from the queues' rows, which name their cohort, and the rows of Cohorts that exist as objects. It must never
loop, whatever parents the objects name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from queues.inspection import answers
from queues.inspection.quantities import totals
from queues.journal import read, surroundings
from queues.journal.entries import CohortRow, WorkloadState

Json = dict[str, Any]


@dataclass(slots=True)
class _Cohort:
    row: CohortRow
    children: list[_Cohort] = field(default_factory=list)
    queues: list[read.QueueOverview] = field(default_factory=list)

    def below(self) -> Iterator[_Cohort]:
        yield self
        for child in self.children:
            yield from child.below()


def tree(connection: Connection, now: float) -> Json:
    """Cohorts without a parent, and the queues without a cohort."""
    known = {row.name: _Cohort(row) for row in surroundings.cohorts(connection)}
    alone: list[read.QueueOverview] = []
    for overview in read.queues(connection):
        name = overview.queue.cohort
        if name:
            known.setdefault(name, _Cohort(CohortRow(name))).queues.append(overview)
        else:
            alone.append(overview)
    roots = _rooted(known)
    return {
        "freshness": answers.freshness(connection, now),
        "items": [_cohort(cohort, now) for cohort in roots],
        "queues": [answers.overview(each, now) for each in alone],
    }


def _rooted(known: dict[str, _Cohort]) -> list[_Cohort]:
    """Hangs each under its parent. Those of a circle of parents, which the queues refuse, are shown as roots."""
    for parent in {cohort.row.parent for cohort in known.values() if cohort.row.parent} - known.keys():
        known[parent] = _Cohort(CohortRow(parent))
    roots = []
    for name in sorted(known):
        parent, seen = known[name].row.parent, {name}
        while parent and parent not in seen:
            seen.add(parent)
            parent = known[parent].row.parent
        if parent or not known[name].row.parent:
            roots.append(known[name])
        else:
            known[known[name].row.parent].children.append(known[name])
    return roots


def _cohort(cohort: _Cohort, now: float) -> Json:
    below = list(cohort.below())
    queues = [queue for each in below for queue in each.queues]
    reasons: Counter[str] = Counter()
    for queue in queues:
        reasons.update({code or "PendingEvaluation": count for code, count in queue.pending_by_reason.items()})
    oldest = min((queue.oldest_pending for queue in queues if queue.oldest_pending is not None), default=None)
    return {
        "name": cohort.row.name,
        "quotas": totals(
            (quota for each in below for quota in each.row.quotas),
            (quota for queue in queues for quota in queue.queue.quotas),
        ),
        "ownQuotas": [
            {
                "flavor": quota.flavor,
                "resource": quota.resource,
                "nominal": quota.nominal,
                "borrowingLimit": quota.borrowing_limit,
                "lendingLimit": quota.lending_limit,
            }
            for quota in cohort.row.quotas
        ],
        "counts": {state.value: sum(queue.counts[state] for queue in queues) for state in WorkloadState},
        "pendingByReason": dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))),
        "longestWaitSeconds": None if oldest is None else answers.waited(oldest, now),
        "cohorts": [_cohort(child, now) for child in cohort.children],
        "queues": [answers.overview(queue, now) for queue in cohort.queues],
    }
