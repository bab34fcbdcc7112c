"""Decides whom to evict under fair sharing: from whoever borrows most, as long as that makes shares more equal.

It works on the quota tree looking ahead, with the preemptor's request added to its ClusterQueue, taking candidates out
one by one, and puts everything back before it returns. It never touches what is really held.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from heapq import heapify, heappop, heapreplace

from queues.core.books import Books
from queues.core.fairness import Measure, borrows, measure_of
from queues.core.model import PreemptionPolicy
from queues.core.policy import FairSharing, FairStrategy
from queues.core.preemption import sparing
from queues.core.preemption.candidates import Need, Rank, Target, holders, in_turn, may_evict, rank
from queues.core.preemption.giving import is_in_vain
from queues.core.quantities import fits
from queues.core.reasons import Preempted
from queues.core.records import QueueRecord, WorkloadRecord
from queues.core.tree import Node

_Turn = tuple[bool, int, Rank]


def find_targets(need: Need, books: Books, rules: FairSharing) -> list[Target]:
    """Whom to evict; nobody when that would not be enough. Cost: the candidates times the size of the tree."""
    if is_in_vain(need, books, rules):
        return []
    candidates = _candidates(need, books)
    if not candidates:
        return []
    search = _Search(need, books, rules)
    search.add_request()
    try:
        found = search.run(candidates)
        if found:
            search.spare()
        return search.targets if found else []
    finally:
        search.put_back()


def _candidates(need: Need, books: Books) -> dict[Node, list[WorkloadRecord]]:
    """By queue, in the order in which they would have to go. Others only where something that is short is borrowed."""
    queue = need.queue
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    found: dict[Node, list[WorkloadRecord]] = {}
    for node in _queues_below(queue.node.root):
        holder = books.queue_at.get(node)
        if holder is None:
            continue
        if holder is queue:
            policy = policies.within_cluster_queue
        elif policies.reclaim_within_cohort is PreemptionPolicy.NEVER or node.is_within_quota(need.short):
            continue
        else:
            policy = policies.reclaim_within_cohort
        records = [record for record in holders(holder, need.short) if may_evict(policy, need.record, record)]
        if records:
            found[node] = in_turn(records, partial(rank, is_own=holder is queue))
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

    def run(self, candidates: dict[Node, list[WorkloadRecord]]) -> bool:
        rejected: dict[Node, list[WorkloadRecord]] = {}
        if self._first_pass(candidates, rejected):
            return True
        return len(self.rules.strategies) > 1 and self._second_pass(rejected)

    def _first_pass(
        self, candidates: dict[Node, list[WorkloadRecord]], rejected: dict[Node, list[WorkloadRecord]]
    ) -> bool:
        line = _Line(self, candidates)
        while (node := line.next_queue()) is not None:
            queue, records = self.books.queue_at[node], candidates[node]
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
        line = _Line(self, rejected)
        while (node := line.next_queue()) is not None:
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

    def __init__(self, search: _Search, candidates: dict[Node, list[WorkloadRecord]]) -> None:
        self.search = search
        self.candidates = candidates
        self._queues: dict[Node, list[tuple[_Turn, Node]]] = {}
        self._cohorts: dict[Node, list[Node]] = {}
        self._last: Node | None = None

    def next_queue(self) -> Node | None:
        root = self.search.own.root
        if not root.is_cohort:
            return root if self.candidates.get(root) else None
        if self._last is not None:
            self._review(self._last)
        self._last = self._largest(root)
        return self._last

    def _largest(self, cohort: Node) -> Node | None:
        measure = self.search.measure
        queues, cohorts = self._children(cohort)
        while True:
            cohorts[:] = [child for child in cohorts if self._is_open(child)]
            queue = queues[0][1] if queues else None
            below = max(cohorts, key=lambda node: (measure(node), node.name), default=None)
            if below is None or (queue is not None and measure(queue) > measure(below)):
                return queue
            found = self._largest(below)
            if found is not None:
                return found
            cohorts.remove(below)

    def _children(self, cohort: Node) -> tuple[list[tuple[_Turn, Node]], list[Node]]:
        if cohort not in self._queues:
            children = cohort.children.values()
            self._cohorts[cohort] = [child for child in children if child.is_cohort]
            queues = [child for child in children if self.candidates.get(child) and self._is_open(child)]
            self._queues[cohort] = [(self._turn(child), child) for child in queues]
            heapify(self._queues[cohort])
        return self._queues[cohort], self._cohorts[cohort]

    def _is_open(self, child: Node) -> bool:
        """Whether it borrows, or is the preemptor's own part of the tree."""
        return child in self.search.path or borrows(child)

    def _review(self, last: Node) -> None:
        assert last.parent is not None  # noqa: S101
        queues = self._queues[last.parent]
        if self.candidates.get(last) and self._is_open(last):
            heapreplace(queues, (self._turn(last), last))
        else:
            heappop(queues)

    def _turn(self, queue: Node) -> _Turn:
        """The largest share, and then whose first candidate comes first; no two have the same."""
        is_unbounded, parts = self.search.measure(queue)
        return (not is_unbounded, -parts, rank(self.candidates[queue][0], is_own=queue is self.search.own))
