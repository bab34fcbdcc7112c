"""Decides whom to evict for a workload by Kueue's classical rules: enough of the candidates, and as few as may be.

It works on the quota tree looking ahead, taking candidates out one by one until the workload fits, and puts everything
back before it returns. It never touches what is really held.
"""

from __future__ import annotations

from queues.core.accounts import Ceiling
from queues.core.books import Books
from queues.core.lacks import Prospect
from queues.core.model import FlavorResource, PreemptionPolicy
from queues.core.preemption import sparing
from queues.core.preemption.candidates import (
    REASONS,
    Candidate,
    Candidates,
    Kind,
    Need,
    Queues,
    Target,
    find_candidates,
    holders,
    may_evict,
)
from queues.core.quantities import fits
from queues.core.records import QueueRecord, WorkloadRecord


def find_targets(need: Need, books: Books, queue_at: Queues) -> list[Target]:
    """Whom to evict; nobody when that would not be enough. Cost: the candidates times the units requested."""
    must_borrow = not _is_under_nominal(need)
    candidates = find_candidates(need, queue_at, without_borrowing=not must_borrow)
    if candidates is None:
        return []
    for may_borrow in _attempts(need, candidates, must_borrow=must_borrow):
        targets = _Simulation(need, books, may_borrow=may_borrow).run(candidates.ordered)
        if targets:
            return [Target(one.record, one.queue, REASONS[one.kind], not may_borrow) for one in targets]
    return []


def prospect(record: WorkloadRecord, queue: QueueRecord, unit: FlavorResource, amount: int) -> Prospect | None:
    """What preemption could add where it was tried in vain; None when others matter, who come and go.

    Others can be evicted once the queue uses less than its own, or once the request fits into a cohort's own quota on
    the way up. Cost: the workloads of the own queue and the height of the tree.
    """
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    turns: list[Ceiling] = []
    if policies.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        account = queue.node.account(unit).ahead
        if policies.borrow_within_cohort is not PreemptionPolicy.NEVER or account.usage < account.nominal:
            return None
        turns.append((account, account.nominal - 1))
        rest = amount
        while account.parent is not None and account.parent.parent is not None:
            rest = max(0, rest - account.free_privately)
            if account.private:
                turns.append((account, account.usage - 1))
            account = account.parent
            if not account.borrows_with(rest):
                return None
            turns.append((account, account.subtree - rest))
    within = policies.within_cluster_queue
    own = sum(one.charges.get(unit, 0) for one in holders(queue, frozenset((unit,))) if may_evict(within, record, one))
    return Prospect(own, tuple(turns))


def _attempts(need: Need, candidates: Candidates, *, must_borrow: bool) -> tuple[bool, ...]:
    """Whether the preemptor may borrow, in the order in which it is tried."""
    spec = need.queue.spec
    assert spec is not None  # noqa: S101
    forbidden = spec.preemption.borrow_within_cohort is PreemptionPolicy.NEVER
    if not candidates.any_from_others or (forbidden and must_borrow):
        return (True,)
    if forbidden and not candidates.any_hierarchical:
        return (False, True)
    return (True, False)


def _is_under_nominal(need: Need) -> bool:
    for unit in need.short:
        account = need.queue.node.account(unit)
        if account.ahead.usage >= account.nominal:
            return False
    return True


class _Simulation:
    def __init__(self, need: Need, books: Books, *, may_borrow: bool) -> None:
        self.need = need
        self.books = books
        self.may_borrow = may_borrow
        self.wanted = [(need.queue.node.account(unit).ahead, amount) for unit, amount in need.usage.items()]

    def run(self, ordered: list[Candidate]) -> list[Candidate]:
        out = self._enough(ordered)
        needed = sparing.needed(out, self._put_back, self._take_out, self._fits) if out else []
        for candidate in needed:
            self._put_back(candidate)
        return needed

    def _enough(self, ordered: list[Candidate]) -> list[Candidate]:
        """The first candidates that are enough, taken out; without such, nobody.

        Whether the nodes suffice is asked ever more rarely, and the first that are enough are found by halving.
        """
        out: list[Candidate] = []
        tried, next_trial = 0, 1
        for candidate in ordered:
            if not self._is_valid(candidate):
                continue
            self._take_out(candidate)
            out.append(candidate)
            if len(out) < next_trial or not self._quota_fits():
                continue
            if self.need.nodes_fit():
                break
            tried, next_trial = len(out), len(out) + max(1, len(out) - tried) * 2
        else:
            if not out or not self._fits():
                for candidate in out:
                    self._put_back(candidate)
                return []
        return out[: sparing.shortest(out, tried, self._put_back, self._take_out, self._fits)]

    def _take_out(self, candidate: Candidate) -> None:
        self.books.simulate(candidate.record, gone=True)

    def _put_back(self, candidate: Candidate) -> None:
        self.books.simulate(candidate.record, gone=False)

    def _is_valid(self, candidate: Candidate) -> bool:
        """What was taken out before may have brought the candidate's queue, or a cohort above it, within its quota."""
        if candidate.kind is Kind.SAME_QUEUE:
            return True
        if self.may_borrow and candidate.kind is Kind.WITHOUT_BORROWING:
            return False
        node = candidate.queue.node
        if node.is_within_quota(self.need.short):
            return False
        for ancestor in node.path():
            if ancestor is candidate.meeting:
                break
            if ancestor.is_within_quota(self.need.short):
                return False
        return True

    def _fits(self) -> bool:
        return self._quota_fits() and self.need.nodes_fit()

    def _quota_fits(self) -> bool:
        for account, amount in self.wanted:
            if not self.may_borrow and account.borrows_with(amount):
                return False
            if not fits(amount, account.available):
                return False
        return True
