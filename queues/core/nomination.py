"""Judges one workload at the head of its queue: which flavors, which nodes, whom to evict, or why not.

It works from the state as it is and looking ahead. It leaves both as they were; `cycle` carries out what it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from queues.core.accounts import Account
from queues.core.books import Books
from queues.core.demand import counts_of
from queues.core.explain import why_not
from queues.core.flavors import Assignment, PodSetPlan, Terms, assign
from queues.core.fungibility import FIT, NO_CANDIDATES, NO_FIT, PREEMPT, RECLAIM, Grade
from queues.core.model import FlavorResource, PodSetAssignment, Preemption, PreemptionPolicy
from queues.core.partial import Counts, can_be_reduced, most_that_fit
from queues.core.placing import Places, find_places, places_still_fit, plans_to_place
from queues.core.policy import Policy
from queues.core.preemption.candidates import Need, Target
from queues.core.quantities import fits
from queues.core.reasons import Reason
from queues.core.records import Claim, QueueRecord, WorkloadRecord
from queues.core.refusals import Misfit, Refusal
from queues.core.state import State


class Preempting(Protocol):
    """The part of a strategy that says who can be evicted."""

    def may_borrow(self, preemption: Preemption) -> bool:
        """Whether a preemptor may go beyond its nominal quota while it takes quota from other queues."""
        ...

    def find_targets(self, need: Need, books: Books) -> list[Target]:
        """Whom to evict; nobody when that would not be enough."""
        ...


@dataclass(slots=True)
class Entry:
    """`targets` are to be evicted first. `obstacle` is what stands in the way on the nodes."""

    record: WorkloadRecord
    queue: QueueRecord
    assignment: Assignment
    targets: list[Target] = field(default_factory=list)
    obstacle: Refusal | None = None
    #: It goes on waiting for those who were evicted for it before.
    goes_on_waiting: bool = False
    #: Those who leave already give back enough for it too: nobody else has to go.
    waits_for_others: bool = False

    @property
    def level(self) -> int:
        """How far up the tree it has to borrow."""
        return self.assignment.level

    @property
    def needs_nodes(self) -> bool:
        return any(plan.topology is not None for plan in self.assignment.plans)

    @property
    def fits_now(self) -> bool:
        return self.assignment.mode is FIT

    @property
    def can_wait(self) -> bool:
        """Whether it starts once those who are evicted, for it or for others, are gone."""
        return bool(self.targets) or self.waits_for_others

    @property
    def is_gated(self) -> bool:
        """Whether it would have to evict somebody, and may not."""
        return bool(self.record.workload.preemption_gates) and bool(self.targets)

    def reason(self) -> Reason:
        return why_not(self.assignment, self.obstacle)

    @property
    def misfit(self) -> Misfit | None:
        """What of its pods has no place, where quota alone would suffice."""
        return None if self.obstacle is None else self.obstacle.misfit

    def pod_set_assignments(self) -> tuple[PodSetAssignment, ...]:
        return tuple([_pod_set_assignment(plan) for plan in self.assignment.plans])


def nominate(state: State, record: WorkloadRecord, policy: Policy, strategy: Preempting) -> Entry:
    """Cost: see `flavors.assign`, `placing.find_places` and `classical.find_targets`."""
    queue = record.queue
    assert queue is not None  # noqa: S101
    judge = _Judge(state, record, queue, policy, strategy)
    claim = record.claim
    if claim is None:
        return judge.full()
    state.books.lift(claim)
    try:
        return judge.instead_of_claim() or judge.as_claimed(claim) or judge.still_waiting(claim) or judge.full()
    finally:
        state.books.restore(claim)


def still_fits(state: State, entry: Entry) -> bool:
    """Whether what was found is still free, now and looking ahead."""
    node = entry.queue.node
    for unit, amount in entry.assignment.usage.items():
        account = node.account(unit)
        if not fits(amount, max(0, account.available)) or not fits(amount, max(0, account.ahead.available)):
            return False
    return places_still_fit(state.books.domains, entry.assignment.plans)


def still_works(state: State, entry: Entry) -> bool:
    """Whether the workload would still fit with its targets gone, and with none of these spared."""
    books = state.books
    if any(target.record.holder is None or target.record.evicted for target in entry.targets):
        return False
    with books.nodes_ahead():
        return _works_without_targets(books, entry)


def _works_without_targets(books: Books, entry: Entry) -> bool:
    queue, usage = entry.queue, entry.assignment.usage
    is_forbidden = any(target.without_borrowing for target in entry.targets)

    def fits_ahead() -> bool:
        if not _fits_ahead(queue, usage) or (is_forbidden and _borrows_ahead(queue, usage)):
            return False
        return places_still_fit(books.domains, entry.assignment.plans)

    for target in entry.targets:
        books.simulate(target.record, gone=True)
    works = fits_ahead()
    for target in entry.targets:
        books.simulate(target.record, gone=False)
        if works and fits_ahead():  # others were evicted since then, that is enough
            works = False
        books.simulate(target.record, gone=True)
    for target in entry.targets:
        books.simulate(target.record, gone=False)
    return works


def _fits_ahead(queue: QueueRecord, usage: dict[FlavorResource, int]) -> bool:
    return all(fits(amount, queue.node.account(unit).ahead.available) for unit, amount in usage.items())


def _borrows_ahead(queue: QueueRecord, usage: dict[FlavorResource, int]) -> bool:
    return any(queue.node.account(unit).ahead.borrows_with(amount) for unit, amount in usage.items())


class _Judge:
    def __init__(
        self, state: State, record: WorkloadRecord, queue: QueueRecord, policy: Policy, strategy: Preempting
    ) -> None:
        assert queue.spec is not None  # noqa: S101
        self.state = state
        self.books = state.books
        self.record = record
        self.queue = queue
        self.policy = policy
        self.strategy = strategy
        self.preemption = queue.spec.preemption
        self.can_preempt = (
            self.preemption.within_cluster_queue is not PreemptionPolicy.NEVER
            or self.preemption.reclaim_within_cohort is not PreemptionPolicy.NEVER
        )
        #: What was looked at for a part of the pods.
        self.watched: set[FlavorResource] = set()
        self.watches_nodes = False
        self._kept = state.reservations.against(record)
        self._probed: dict[tuple[FlavorResource, int], list[Target]] = {}

    # ------------------------------------------------------------------ whole entries

    def full(self) -> Entry:
        """All pods if that can be, else as many as fit."""
        pod_sets = self.record.workload.pod_sets
        counts = counts_of(self.record.workload)
        entry = self._entry(counts, self._probe)
        if entry.fits_now or entry.can_wait or not self.policy.partial_admission:
            return entry
        if not can_be_reduced(pod_sets, counts):
            return entry
        reduced = most_that_fit(pod_sets, counts, self._startable)
        if reduced is not None:
            return reduced
        # More of what only a part of the pods would have fitted into may help as well.
        entry.assignment.watched |= self.watched
        entry.assignment.watches_nodes = entry.assignment.watches_nodes or self.watches_nodes
        return entry

    def instead_of_claim(self) -> Entry | None:
        """What could start at once, and would be chosen although what it waits for is as good as free."""
        with self.books.nodes_ahead():
            entry = self._entry(counts_of(self.record.workload), _probe_ahead)
        if not entry.fits_now:
            return None
        places = self._find_places(plans_to_place(self.state.world, self.queue, entry.assignment))
        if isinstance(places, Refusal):
            return None
        _set_places(entry.assignment, places)
        return entry

    def as_claimed(self, claim: Claim) -> Entry | None:
        """What it waits for, if that is free by now. It may be less than all: the claim can be for fewer pods."""
        assignment = Assignment(_plans_again(self.record, claim), dict(claim.usage), FIT)
        entry = Entry(self.record, self.queue, assignment)
        if not still_fits(self.state, entry):
            return None
        places = self._find_places(plans_to_place(self.state.world, self.queue, assignment))
        if isinstance(places, Refusal):
            return None
        _set_places(assignment, places)
        return entry

    def still_waiting(self, claim: Claim) -> Entry | None:
        """The claim once more, if it still does with all gone who leave; None when something came between."""
        if not _fits_ahead(self.queue, claim.usage):
            return None
        assignment = Assignment(_plans_again(self.record, claim), dict(claim.usage), PREEMPT)
        plans = plans_to_place(self.state.world, self.queue, assignment)
        assignment.watches_nodes = bool(plans)
        with self.books.nodes_ahead():
            places = self._find_places(plans)
        if isinstance(places, Refusal):
            return None
        _set_places(assignment, places)
        return Entry(self.record, self.queue, assignment, goes_on_waiting=True)

    def _startable(self, counts: Counts) -> Entry | None:
        entry = self._entry(counts, self._probe)
        self.watched |= entry.assignment.watched
        self.watches_nodes = self.watches_nodes or entry.assignment.watches_nodes
        return entry if entry.fits_now or entry.can_wait else None

    def _entry(self, counts: Counts, probe: Callable[[FlavorResource, Account, int], Grade]) -> Entry:
        terms = Terms(
            world=self.state.world,
            domains=self.books.domains,
            quota_check=self.policy.quota_check,
            probe=probe,
            preempts_while_borrowing=self.strategy.may_borrow(self.preemption),
            is_fungible=self.policy.flavor_fungibility,
            has_claims=bool(self.books.claimants),
        )
        pod_sets = tuple(zip(self.record.workload.pod_sets, counts, strict=True))
        assignment = assign(self.queue, pod_sets, self.record.progress, terms)
        entry = Entry(self.record, self.queue, assignment)
        if assignment.mode is NO_FIT:
            return entry
        plans = plans_to_place(self.state.world, self.queue, assignment)
        if plans:
            self._place(entry, plans)
        if assignment.mode is not FIT and assignment.mode is not NO_FIT and probe is not _probe_ahead:
            with self.books.nodes_ahead():
                self._find_targets(entry, plans)
        return entry

    # ------------------------------------------------------------------ nodes

    def _place(self, entry: Entry, plans: list[PodSetPlan]) -> None:
        """Where quota suffices but the nodes do not, preemption may still help, unless not even empty nodes would."""
        assignment = entry.assignment
        assignment.watches_nodes = True
        if assignment.mode is FIT:
            places = self._find_places(plans)
            if not isinstance(places, Refusal):
                _set_places(assignment, places)
                return
            entry.obstacle = places
            assignment.mode = NO_CANDIDATES
            for plan in plans:
                assignment.short.update(
                    FlavorResource(flavor, name) for name, flavor in plan.flavors.items() if plan.usage.get(name)
                )
        on_empty_nodes = self._find_places(plans, simulate_empty=True)
        if isinstance(on_empty_nodes, Refusal):
            entry.obstacle = on_empty_nodes
            assignment.mode = NO_FIT

    def _find_places(self, plans: list[PodSetPlan], *, simulate_empty: bool = False) -> Places | Refusal:
        rules, kept = self.policy.topology, () if simulate_empty else self._kept
        return find_places(self.state.world, self.books.domains, plans, rules, kept=kept, simulate_empty=simulate_empty)

    # ------------------------------------------------------------------ preemption

    def _probe(self, unit: FlavorResource, account: Account, amount: int) -> Grade:
        """What preemption could do for this unit alone, wherever the pods would run."""
        ahead = account.ahead
        level, _ = ahead.lowest_fit(amount)
        if not self.can_preempt:
            return Grade(NO_CANDIDATES, level)
        if fits(amount, ahead.available):
            return Grade(RECLAIM, level)
        need = Need(self.record, self.queue, {unit: amount}, frozenset((unit,)), _anywhere)
        targets = self._probed[unit, amount] = self.strategy.find_targets(need, self.books)
        if not targets:
            return Grade(NO_CANDIDATES, level)
        for target in targets:
            self.books.simulate(target.record, gone=True)
        level, _ = ahead.lowest_fit(amount)
        for target in targets:
            self.books.simulate(target.record, gone=False)
        own = any(target.queue is self.queue for target in targets)
        return Grade(PREEMPT if own else RECLAIM, level)

    def _find_targets(self, entry: Entry, plans: list[PodSetPlan]) -> None:
        if not self.can_preempt:
            return
        assignment = entry.assignment
        if _fits_ahead(self.queue, assignment.usage):
            places = self._find_places(plans) if plans else {}
            if not isinstance(places, Refusal):
                _set_places(assignment, places)
                entry.waits_for_others = True
                return
        if not plans and len(assignment.usage) == 1:
            known = self._probed.get(next(iter(assignment.usage.items())))
            if known is not None:
                entry.targets = known
                return

        def nodes_fit() -> bool:
            places = self._find_places(plans)
            if isinstance(places, Refusal):
                entry.obstacle = entry.obstacle or places
                return False
            return True

        need = Need(
            self.record,
            self.queue,
            assignment.usage,
            frozenset(assignment.short),
            nodes_fit if plans else _anywhere,
        )
        entry.targets = self.strategy.find_targets(need, self.books)
        if entry.targets and plans:
            self._place_without(entry, plans)

    def _place_without(self, entry: Entry, plans: list[PodSetPlan]) -> None:
        """Where the pods go once the targets are gone; the last trial of the search was with others gone too."""
        for target in entry.targets:
            self.books.simulate(target.record, gone=True)
        places = self._find_places(plans)
        for target in entry.targets:
            self.books.simulate(target.record, gone=False)
        if not isinstance(places, Refusal):
            _set_places(entry.assignment, places)


def _probe_ahead(_unit: FlavorResource, account: Account, amount: int) -> Grade:
    """What waiting could do, without further preemption."""
    level, _ = account.ahead.lowest_fit(amount)
    return Grade(RECLAIM if fits(amount, account.ahead.available) else NO_CANDIDATES, level)


def _anywhere() -> bool:
    return True


def _set_places(assignment: Assignment, places: Places) -> None:
    for plan in assignment.plans:
        plan.topology = places.get(plan.pod_set.name)


def _plans_again(record: WorkloadRecord, claim: Claim) -> list[PodSetPlan]:
    by_name = {one.name: one for one in claim.assignments}
    return [
        PodSetPlan(pod_set, one.count, dict(one.flavors), dict(one.usage))
        for pod_set in record.workload.pod_sets
        for one in (by_name[pod_set.name],)
    ]


def _pod_set_assignment(plan: PodSetPlan) -> PodSetAssignment:
    usage = {name: plan.usage[name] for name in plan.flavors}
    return PodSetAssignment(plan.pod_set.name, plan.count, plan.flavors, usage, plan.topology, plan.is_delayed)
