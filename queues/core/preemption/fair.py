"""Decides whom to evict under fair sharing: from whoever borrows most, as long as that makes shares more equal.

It works on the quota tree looking ahead, with the preemptor's request added to its ClusterQueue, taking candidates out
one by one, and puts everything back before it returns. It never touches what is really held.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from queues.core.books import Books
from queues.core.borrowers import Borrower
from queues.core.fairness import Measure, borrows, measure_of
from queues.core.model import PreemptionPolicy
from queues.core.policy import FairSharing, FairStrategy
from queues.core.preemption import sparing
from queues.core.preemption.candidates import Need, Rank, Target, rank, who_may_go
from queues.core.preemption.giving import is_in_vain, is_plain
from queues.core.quantities import fits
from queues.core.reasons import Preempted
from queues.core.records import QueueRecord, WorkloadRecord
from queues.core.tree import Node

_Turn = tuple[bool, int, Rank]

#: Bound once: see `fungibility`.
_NEVER: Final = PreemptionPolicy.NEVER


def find_targets(need: Need, books: Books, rules: FairSharing) -> list[Target]:
    """Whom to evict; nobody when that would not be enough.

    Cost: the candidates times the size of the tree. Where it is plain, the queues with larger shares than the
    preemptor's, and the workloads of those that have to give.
    """
    if is_in_vain(need, books, rules):
        return []
    root = need.queue.node.root
    line: _Line | _PlainLine
    if is_plain(root, rules):
        line = _PlainLine(need, books.borrowers.below(root).by_share)
    else:
        line = _Line(need, _candidates(need, books))
    search = _Search(need, books, rules)
    search.add_request()
    try:
        found = search.run(line)
        if found:
            search.spare()
        return search.targets if found else []
    finally:
        search.put_back()


def _candidates(need: Need, books: Books) -> dict[Node, list[WorkloadRecord]]:
    """By queue, in the order in which they would have to go. Others only where something that is short is borrowed."""
    found: dict[Node, list[WorkloadRecord]] = {}
    for node in _queues_below(need.queue.node.root):
        holder = books.queue_at.get(node)
        records = [] if holder is None else who_may_go(holder, need)
        if records:
            found[node] = records
    return found


def _queues_below(top: Node) -> Iterator[Node]:
    pending = [top]
    while pending:
        node = pending.pop()
        if node.is_cohort:
            pending.extend(node.children.values())
        else:
            yield node


class _Search:
    def __init__(self, need: Need, books: Books, rules: FairSharing) -> None:
        self.need = need
        self.books = books
        self.rules = rules
        self.own = need.queue.node
        self.path = {self.own, *self.own.path()}
        self.targets: list[Target] = []
        #: Shares as they are now, until something is taken out or put back there.
        self._measures: dict[Node, Measure] = {}

    # ------------------------------------------------------------------ the request, and what is taken out

    def add_request(self) -> None:
        for unit, amount in self.need.usage.items():
            self.own.account(unit).ahead.charge(amount)
        self._measures.clear()
        #: Whether what is short is the queue's own quota: then it takes that back, whatever the shares are.
        self.reclaims_own = self.rules.preempt_within_nominal and self.own.is_within_quota(self.need.short)

    def put_back(self) -> None:
        for target in self.targets:
            self.books.simulate(target.record, gone=False)
        for unit, amount in self.need.usage.items():
            self.own.account(unit).ahead.release(amount)

    def take_out(self, record: WorkloadRecord, queue: QueueRecord, reason: Preempted) -> bool:
        """Whether the request fits with this one gone as well."""
        self.books.simulate(record, gone=True)
        self._measures.pop(queue.node, None)
        for above in queue.node.path():
            self._measures.pop(above, None)
        self.targets.append(Target(record, queue, reason))
        return self.request_fits()

    def measure(self, node: Node) -> Measure:
        found = self._measures.get(node)
        if found is None:
            found = self._measures[node] = measure_of(node)
        return found

    def request_fits(self) -> bool:
        accounts = [(self.own.account(unit).ahead, amount) for unit, amount in self.need.usage.items()]
        for account, amount in accounts:
            account.release(amount)
        fitting = all(fits(amount, account.available) for account, amount in accounts) and self.need.nodes_fit()
        for account, amount in accounts:
            account.charge(amount)
        return fitting

    def spare(self) -> None:
        """Those whose eviction turned out not to be needed stay; the last taken out is needed for sure."""
        self.targets = sparing.needed(
            self.targets,
            lambda target: self.books.simulate(target.record, gone=False),
            lambda target: self.books.simulate(target.record, gone=True),
            self.request_fits,
        )

    # ------------------------------------------------------------------ the rules

    def run(self, line: _Line | _PlainLine) -> bool:
        rejected: dict[Node, list[WorkloadRecord]] = {}
        if self._first_pass(line, rejected):
            return True
        return len(self.rules.strategies) > 1 and self._second_pass(rejected)

    def _first_pass(self, line: _Line | _PlainLine, rejected: dict[Node, list[WorkloadRecord]]) -> bool:
        while (node := line.next_queue(self)) is not None:
            queue, records = self.books.queue_at[node], line.candidates[node]
            if node is self.own or self.reclaims_own:
                reason = Preempted.IN_CLUSTER_QUEUE if node is self.own else Preempted.IN_COHORT_RECLAMATION
                if self.take_out(records.pop(0), queue, reason):
                    return True
                continue
            mine, theirs = self._below_meeting(node)
            while records:
                record = records.pop(0)
                if self._is_fairer(mine, theirs, record):
                    if self.take_out(record, queue, Preempted.IN_COHORT_FAIR_SHARING):
                        return True
                    break
                rejected.setdefault(node, []).append(record)
        return False

    def _second_pass(self, rejected: dict[Node, list[WorkloadRecord]]) -> bool:
        """One of each queue, where the preemptor would still have less than the other had before."""
        line = _Line(self.need, rejected)
        while (node := line.next_queue(self)) is not None:
            mine, theirs = self._below_meeting(node)
            record = rejected[node][0]
            rejected[node].clear()
            if self.measure(mine) < self.measure(theirs) and self.take_out(
                record, self.books.queue_at[node], Preempted.IN_COHORT_FAIR_SHARING
            ):
                return True
        return False

    def _is_fairer(self, mine: Node, theirs: Node, record: WorkloadRecord) -> bool:
        share, before = self.measure(mine), self.measure(theirs)
        match self.rules.strategies[0]:
            case FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE:
                # Without the workload they never have more than with it.
                return share <= before and share <= self._measure_without(theirs, record)
            case FairStrategy.LESS_THAN_INITIAL_SHARE:
                return share < before

    def _measure_without(self, node: Node, record: WorkloadRecord) -> Measure:
        self.books.simulate(record, gone=True)
        share = measure_of(node)
        self.books.simulate(record, gone=False)
        return share

    def _below_meeting(self, other: Node) -> tuple[Node, Node]:
        """The two nodes on either side right below the lowest one that holds both queues: these compete."""
        theirs = other
        while theirs.parent is not None and theirs.parent not in self.path:
            theirs = theirs.parent
        mine = self.own
        while mine.parent is not None and mine.parent is not theirs.parent:
            mine = mine.parent
        return mine, theirs


class _Line:
    """Whose turn it is to give: from the root down to the child with the largest share, again after each taking.

    Between two turns nothing changes but for the queue that had the last one and the cohorts above it, so that queues
    stand in heaps and only this one is looked at again.
    """

    def __init__(self, need: Need, candidates: dict[Node, list[WorkloadRecord]]) -> None:
        self.candidates = candidates
        self._own = need.queue.node
        self._queues: dict[Node, list[tuple[_Turn, Node]]] = {}
        self._cohorts: dict[Node, list[Node]] = {}
        self._last: Node | None = None

    def next_queue(self, search: _Search) -> Node | None:
        root = self._own.root
        if not root.is_cohort:
            return root if self.candidates.get(root) else None
        if self._last is not None:
            assert self._last.parent is not None  # noqa: S101
            _review(self._queues[self._last.parent], self._last, self.candidates, search)
        self._last = self._largest(root, search)
        return self._last

    def _largest(self, cohort: Node, search: _Search) -> Node | None:
        measure = search.measure
        queues, cohorts = self._children(cohort, search)
        while True:
            cohorts[:] = [child for child in cohorts if _is_open(child, search)]
            queue = queues[0][1] if queues else None
            below = max(cohorts, key=lambda node: (measure(node), node.name), default=None)
            if below is None or (queue is not None and measure(queue) > measure(below)):
                return queue
            found = self._largest(below, search)
            if found is not None:
                return found
            cohorts.remove(below)

    def _children(self, cohort: Node, search: _Search) -> tuple[list[tuple[_Turn, Node]], list[Node]]:
        if cohort not in self._queues:
            children = cohort.children.values()
            self._cohorts[cohort] = [child for child in children if child.is_cohort]
            queues = [child for child in children if self.candidates.get(child) and _is_open(child, search)]
            self._queues[cohort] = [(_turn(child, self.candidates, search), child) for child in queues]
            heapify(self._queues[cohort])
        return self._queues[cohort], self._cohorts[cohort]


class _PlainLine:
    """The same where all queues stand right below the root and others may not be left with less than the preemptor.

    They come in from the largest share down, and only once it is their turn: whoever has less than the preemptor is not
    looked at as long as that can give itself. Whose least workload is too much for it is passed over.
    """

    def __init__(self, need: Need, by_share: list[Borrower]) -> None:
        self.candidates: dict[Node, list[WorkloadRecord]] = {}
        self._need = need
        self._own = need.queue.node
        self._by_share = by_share
        #: So many with the smallest shares were not looked at yet.
        self._left = len(by_share)
        self._queues: list[tuple[_Turn, Node]] = []
        self._last: Node | None = None

    def next_queue(self, search: _Search) -> Node | None:
        if self._last is not None:
            _review(self._queues, self._last, self.candidates, search)
        elif records := who_may_go(self._need.queue, self._need):
            self._open(self._own, records, search)
        self._let_in(search)
        self._last = self._queues[0][1] if self._queues else None
        return self._last

    def _let_in(self, search: _Search) -> None:
        """Have all in the line whose share is as large as that of the first in it."""
        own = search.measure(self._own)
        can_give_itself = bool(self.candidates.get(self._own))
        while self._left:
            share, _, keeps, queue = self._by_share[self._left - 1]
            if self._queues and share < search.measure(self._queues[0][1]):
                return
            if not search.reclaims_own and not can_give_itself and share < own:
                self._left = 0
                return
            self._left -= 1
            # Of equals the preemptor's own queue gives last.
            is_too_much = not search.reclaims_own and keeps < own and (own <= share or not can_give_itself)
            if queue is self._need.queue or is_too_much or not _is_open(queue.node, search):
                continue
            if records := who_may_go(queue, self._need):
                self._open(queue.node, records, search)

    def _open(self, node: Node, records: list[WorkloadRecord], search: _Search) -> None:
        self.candidates[node] = records
        heappush(self._queues, (_turn(node, self.candidates, search), node))


def _is_open(child: Node, search: _Search) -> bool:
    """Whether it borrows, or is the preemptor's own part of the tree."""
    return child in search.path or borrows(child)


def _review(
    queues: list[tuple[_Turn, Node]], last: Node, candidates: dict[Node, list[WorkloadRecord]], search: _Search
) -> None:
    """Put the first of the line, which had its turn, where it stands by now."""
    if candidates.get(last) and _is_open(last, search):
        heapreplace(queues, (_turn(last, candidates, search), last))
    else:
        heappop(queues)


def _turn(queue: Node, candidates: dict[Node, list[WorkloadRecord]], search: _Search) -> _Turn:
    """The largest share, and then whose first candidate comes first; no two have the same."""
    is_unbounded, parts = search.measure(queue)
    return (not is_unbounded, -parts, rank(candidates[queue][0], is_own=queue is search.own))
