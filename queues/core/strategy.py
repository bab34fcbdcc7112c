"""Chooses the rules of one cycle by the policy: in which order entries are carried out, and whom a preemptor may evict.

A strategy works on entries that were judged already and on the books. It holds no state of its own, so that another
set of rules is another class here and no condition anywhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from queues.core import tournament
from queues.core.accounts import Account
from queues.core.books import Books
from queues.core.lacks import Prospect
from queues.core.model import FlavorResource, Preemption, PreemptionPolicy, Timestamp, Uid
from queues.core.nomination import Entry, Preempting
from queues.core.past_turns import by_past_use
from queues.core.policy import FairSharing, Policy
from queues.core.preemption import classical, fair, giving
from queues.core.preemption.candidates import Need, Target
from queues.core.records import QueueRecord, Standing, WorkloadRecord
from queues.core.shelves import Turn
from queues.core.tree import is_flat

Asks = Sequence[tuple[Account, int]]


class Strategy(Preempting, Protocol):
    def line(self, entries: Sequence[Entry | Standing], books: Books) -> Iterable[Entry | Standing]:
        """The entries in their turn. Usage may change while the result is read."""
        ...

    def turn(self, queue: QueueRecord, record: WorkloadRecord, asks: Asks) -> Turn | None:
        """Where in that line a workload stands with these amounts; None when that depends on who else does."""
        ...

    def prospect(
        self, record: WorkloadRecord, queue: QueueRecord, unit: FlavorResource, amount: int
    ) -> Prospect | None:
        """What preemption could add to so much of a unit; None when that can change at any time."""
        ...


class Classical:
    """Who borrows least goes first, then the highest priority and the longest wait."""

    def __init__(self, policy: Policy) -> None:
        self._by_priority = policy.priority_sorting_within_cohort

    def line(self, entries: Sequence[Entry | Standing], books: Books) -> Iterable[Entry | Standing]:
        del books
        return sorted(entries, key=self._turn) if len(entries) > 1 else entries

    def may_borrow(self, preemption: Preemption) -> bool:
        return preemption.borrow_within_cohort is not PreemptionPolicy.NEVER

    def find_targets(self, need: Need, books: Books) -> list[Target]:
        return classical.find_targets(need, books, books.queue_at)

    def turn(self, queue: QueueRecord, record: WorkloadRecord, asks: Asks) -> Turn | None:
        if not is_flat(queue.node):
            return None
        level = 0
        for account, amount in asks:
            parent = account.parent
            if parent is not None and account.ahead.borrows_with(amount):
                level = parent.height  # the root's
        workload = record.workload
        return (level, -workload.priority if self._by_priority else 0, workload.queued_at, workload.uid)

    def prospect(
        self, record: WorkloadRecord, queue: QueueRecord, unit: FlavorResource, amount: int
    ) -> Prospect | None:
        return classical.prospect(record, queue, unit, amount)

    def _turn(self, entry: Entry | Standing) -> tuple[int, int, Timestamp, Uid]:
        workload = entry.record.workload
        return (entry.level, -workload.priority if self._by_priority else 0, workload.queued_at, workload.uid)


class Fair:
    """Whoever would borrow the smallest share goes first, as a tournament up the tree; victims are those with most."""

    def __init__(self, policy: Policy, rules: FairSharing) -> None:
        self._by_priority = policy.priority_sorting_within_cohort
        self._rules = rules

    def line(self, entries: Sequence[Entry | Standing], books: Books) -> Iterable[Entry | Standing]:
        return tournament.winners(
            entries,
            books.borrowers,
            by_priority=self._by_priority,
            non_borrowing_first=self._rules.prioritize_non_borrowing,
        )

    def may_borrow(self, preemption: Preemption) -> bool:
        return (
            preemption.borrow_within_cohort is not PreemptionPolicy.NEVER
            or preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )

    def find_targets(self, need: Need, books: Books) -> list[Target]:
        return fair.find_targets(need, books, self._rules)

    def turn(self, queue: QueueRecord, record: WorkloadRecord, asks: Asks) -> Turn | None:
        node = queue.node
        if node.parent is None or not is_flat(node):
            return None
        return tournament.score_below_root(
            node,
            record,
            asks,
            by_priority=self._by_priority,
            non_borrowing_first=self._rules.prioritize_non_borrowing,
        )

    def prospect(
        self, record: WorkloadRecord, queue: QueueRecord, unit: FlavorResource, amount: int
    ) -> Prospect | None:
        return giving.prospect(record, queue, unit, amount, self._rules)


class Remembering:
    """Whoever used least lately goes first in the whole tree; between equals, and for the rest, other rules hold."""

    def __init__(self, rules: Strategy) -> None:
        self._rules = rules

    def line(self, entries: Sequence[Entry | Standing], books: Books) -> Iterable[Entry | Standing]:
        return by_past_use(self._rules.line(entries, books), books.queue_at)

    def may_borrow(self, preemption: Preemption) -> bool:
        return self._rules.may_borrow(preemption)

    def find_targets(self, need: Need, books: Books) -> list[Target]:
        return self._rules.find_targets(need, books)

    def turn(self, queue: QueueRecord, record: WorkloadRecord, asks: Asks) -> Turn | None:
        del queue, record, asks
        return None

    def prospect(
        self, record: WorkloadRecord, queue: QueueRecord, unit: FlavorResource, amount: int
    ) -> Prospect | None:
        return self._rules.prospect(record, queue, unit, amount)


def chosen(policy: Policy) -> Strategy:
    rules: Strategy = Classical(policy) if policy.fair_sharing is None else Fair(policy, policy.fair_sharing)
    past = policy.admission_fair_sharing
    return Remembering(rules) if past is not None and past.across_cohorts else rules
