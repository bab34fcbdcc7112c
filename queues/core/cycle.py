"""The decision itself: who starts, who has to go, who waits and why.

It works on a state that events keep up to date, and repeats the cycle in memory until nothing more fits, so that one
call decides a whole burst. It reads no clock, writes nothing outside of the state, and breaks every tie by the uid.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from queues.core.accounts import Account
from queues.core.demand import flavors_of
from queues.core.explain import waits_for, with_outlook, with_reservation
from queues.core.flavors import Progress
from queues.core.fungibility import Mode
from queues.core.lacks import Lacks, lacks_of
from queues.core.model import (
    Admission,
    CheckName,
    ClusterQueue,
    FlavorResource,
    PodSetAssignment,
    PreemptionPolicy,
    Timestamp,
    Uid,
)
from queues.core.nomination import Entry, nominate, still_fits, still_works
from queues.core.outlook import Drain, Outlook, outlook_for
from queues.core.plan import Admit, Decision, Hold, Plan
from queues.core.policy import Policy
from queues.core.preemption.wording import eviction
from queues.core.quantities import fits, left, total
from queues.core.reasons import Code, Reason
from queues.core.records import NO_PROGRESS, Claim, QueueRecord, Standing, WorkloadRecord
from queues.core.refusals import Misfit
from queues.core.state import State
from queues.core.strategy import chosen
from queues.core.tree import Node

_NOT_READY = Reason(Code.WAITING_FOR_PODS_READY, "waiting for all admitted workloads to be in PodsReady condition")

_KEPT_BACK = Reason(
    Code.WAITING_FOR_QUOTA, "The free quota is kept for a workload that is first in its StrictFIFO ClusterQueue"
)


#: Rounds in a row with the same heads and nothing decided. Many flavors that are left to look at need some.
_FRUITLESS = 1000


class Misjudged(Exception):  # noqa: N818  # it says what happened to the workload
    """A bug came to light while this workload was judged: the state cannot be relied on any more."""

    def __init__(self, uid: Uid) -> None:
        super().__init__(f"while workload {uid} was judged")
        self.uid = uid


def decide(state: State, now: Timestamp, policy: Policy) -> Plan:
    """Cost: the queues that have a candidate, times the rounds until these are admitted or parked."""
    cycle = _Cycle(state, now, policy)
    # 1. Bring quota up to date with changed queues; end the back-offs that are over.
    state.waiting.turn_of = cycle.strategy.turn
    state.get_ready(now, policy)
    # 2. Those who hold quota but lack places on nodes go before everybody else.
    cycle.plan.extend(state.second_pass.decide(policy, cycle.strategy))
    for _ in range(policy.max_rounds):
        # 3. Wake what could use what was given back; count what was used.
        cycle.review_standing()
        state.waiting.wake_stirred()
        state.past.catch_up()
        # 4. Take the first candidate of every queue.
        heads = state.waiting.heads()
        if not heads or cycle.is_blocked:
            break
        cycle.note_round(heads)
        # 5. Judge each on its own.
        entries = cycle.nominate(heads)
        # 6. Who borrows least goes first, then the highest priority and the longest wait.
        line = cycle.strategy.line([*entries, *state.waiting.standing_with(heads)], state.books)
        # 7. Carry them out one after the other, as far as they still hold.
        for entry in line:
            if not cycle.is_outrun(entry):
                cycle.process(entry)
        cycle.give_back_kept()
    # 8. Keep domains for those who have waited long for one.
    cycle.keep_domains()
    # 9. Tell those who wait why.
    made = [decision for decision in cycle.plan if decision is not None]
    made += [Hold(record.uid, reason) for record, reason in state.waiting.news()]
    return tuple(made)


class _Cycle:
    def __init__(self, state: State, now: Timestamp, policy: Policy) -> None:
        self.state = state
        self.now = now
        self.policy = policy
        self.strategy = chosen(policy)
        #: Withdrawn admissions leave a gap.
        self.plan: list[Decision | None] = []
        #: Where in the plan each of those stands who started in this call: no write has told of them yet.
        self._started: dict[Uid, int] = {}
        #: The same of those who were asked to go.
        self._asked: dict[Uid, int] = {}
        #: How often each was withdrawn from there. Kueue's rules know circles, so somebody has to give in.
        self._withdrawals: dict[Uid, int] = {}
        #: Those who gave up what they waited for.
        self._hopeless: set[Uid] = set()
        #: Nobody else may start before the pods of those who did are ready.
        self.is_blocked = False
        #: Whether somebody of them was withdrawn in this round and may stand before those who are still to come.
        self._has_withdrawn = False
        #: The trees in which something was admitted or claimed since the entries of this round were judged, and
        #: whether any of that took nodes.
        self._changed: dict[Node, None] = {}
        self._nodes_changed = False
        #: Where the present scan of a workload's flavors stopped so far. With several pod sets it could go in circles.
        self._stops: dict[Uid, list[Progress]] = {}
        #: The heads of the last round, how much was decided before it, and for how many rounds that has been so.
        self._last_round: tuple[list[WorkloadRecord], int] = [], 0
        self._fruitless = 0
        #: What heads of StrictFIFO queues keep from those behind them for the rest of this round.
        self._kept: list[tuple[Account, int]] = []

    def note_round(self, heads: list[WorkloadRecord]) -> None:
        """Raises `Misjudged` where rounds go on for ever: the first of those who neither start nor wait is kept out."""
        this = heads, len(self.plan)
        self._fruitless = self._fruitless + 1 if this == self._last_round else 0
        self._last_round = this
        if self._fruitless > _FRUITLESS:
            raise Misjudged(heads[0].uid)

    def nominate(self, heads: list[WorkloadRecord]) -> list[Entry]:
        self._changed.clear()
        self._nodes_changed = False
        self._has_withdrawn = False
        entries: list[Entry] = []
        # Those who wait for victims first: where that has become hopeless, nobody is to be kept back by it any more.
        ordered = sorted(heads, key=lambda record: record.claim is None) if len(heads) > 1 else heads
        while len(entries) < len(ordered):
            record = ordered[len(entries)]
            entry = self._nominate(record)
            if record.claim is not None and not entry.goes_on_waiting and not entry.fits_now:
                self._give_up_hope(record, record.claim)
                entries.clear()
            else:
                entries.append(entry)
        return entries

    def _nominate(self, record: WorkloadRecord) -> Entry:
        queue = record.queue
        assert queue is not None  # noqa: S101
        if queue.order.is_strict:
            # Somebody came before the head that waits for victims: what these give back is for the new head.
            for other in list(queue.claimants.values()):
                if other is not record:
                    self.state.books.unclaim(other)
        record.reason = None
        self.state.judgements += 1
        try:
            return nominate(self.state, record, self.policy, self.strategy)
        except Exception as error:
            raise Misjudged(record.uid) from error

    def is_outrun(self, entry: Entry | Standing) -> bool:
        """Whether somebody who was not judged yet goes before it; then it is judged again in the next round."""
        waiting = self.state.waiting
        if waiting.is_settled or isinstance(entry, Standing) or not (entry.fits_now or entry.can_wait):
            return False
        account = entry.queue.node.account
        asks = [(account(unit), amount) for unit, amount in entry.assignment.usage.items()]
        return waiting.is_outrun(entry.queue, self.strategy.turn(entry.queue, entry.record, asks))

    def process(self, entry: Entry | Standing) -> None:
        try:
            self._process(entry)
        except Exception as error:
            raise Misjudged(entry.record.uid) from error

    def _process(self, entry: Entry | Standing) -> None:
        if isinstance(entry, Standing):
            self._keep(entry)
        elif self._has_withdrawn and entry.queue.order.is_strict and entry.queue.order.head() is not entry.record:
            return  # somebody who was withdrawn comes before it again
        elif entry.goes_on_waiting:
            self._wait_on(entry)
        elif entry.fits_now:
            self._start(entry)
        elif entry.is_gated:
            self._wait_at_gates(entry)
        elif entry.can_wait:
            self._preempt(entry)
        else:
            self._wait(entry)

    # ------------------------------------------------------------------ outcomes

    def _start(self, entry: Entry) -> None:
        record, queue, books = entry.record, entry.queue, self.state.books
        if self.policy.block_admission_until_pods_ready and books.unready:
            self.is_blocked = True
            record.reason = _NOT_READY
            self.state.waiting.tell(record)
            return
        if self._is_affected(entry) and not self._fits_still(entry):
            if not self._park_behind(entry, self._fits_still) and not self.state.waiting.resume(
                queue, record.group, is_late=True
            ):
                record.progress = NO_PROGRESS  # others were faster: every flavor is to be looked at again
            return
        assert queue.spec is not None  # noqa: S101
        assignments = entry.pod_set_assignments()
        checks = checks_of(queue.spec, assignments)
        admission = Admission(queue.name, assignments, self.now, admitted=not checks)
        group, claim = record.group, record.claim
        victims = [] if claim is None else list(claim.victims.values())
        self.state.admit(record, admission)
        self._spare(victims)
        self.state.waiting.resume(queue, group)
        self._note_change(entry)
        self._started[record.uid] = len(self.plan)
        self.plan.append(Admit(record.uid, admission, checks, borrows=entry.assignment.level > 0))

    def _is_affected(self, entry: Entry) -> bool:
        """Whether something happened since the entry was judged that could make a difference to it."""
        return bool(self._kept) or self._is_changed(entry)

    def _is_changed(self, entry: Entry) -> bool:
        """Not counting what heads keep for themselves."""
        return entry.queue.node.root in self._changed or (self._nodes_changed and entry.needs_nodes)

    def _note_change(self, entry: Entry) -> None:
        self._changed[entry.queue.node.root] = None
        self._nodes_changed = self._nodes_changed or entry.needs_nodes

    def _fits_still(self, entry: Entry) -> bool:
        claim, books = entry.record.claim, self.state.books
        if claim is None:
            return still_fits(self.state, entry)
        books.lift(claim)
        try:
            return still_fits(self.state, entry)
        finally:
            books.restore(claim)

    def _works_still(self, entry: Entry) -> bool:
        return still_works(self.state, entry)

    def _preempt(self, entry: Entry) -> None:
        """Ask the targets to go, and keep what they give back for this workload."""
        record, queue, books = entry.record, entry.queue, self.state.books
        self._give_up_claim(record)
        if self._is_affected(entry) and not self._works_still(entry):
            self._park_behind(entry, self._works_still)
            return
        if entry.targets and self._withdrawals.get(record.uid, 0) > 1:
            self._park(entry, entry.reason(), None)
            return
        told = [target for target in entry.targets if not self._withdraw(target.record)]
        if entry.targets and not told and self._fits_still(entry):
            self._start(entry)
            return
        for target in told:
            books.leave(target.record)
            self._asked[target.record.uid] = len(self.plan)
            self.plan.append(eviction(record, queue, target))
        victims = {target.record.uid: target.record for target in told}
        claim = Claim(record, entry.pod_set_assignments(), entry.assignment.usage, victims)
        books.claim(claim)
        self.state.waiting.stand(queue, None)
        record.progress = NO_PROGRESS
        self._note_change(entry)
        self.state.waiting.reorder(record)
        self._park(entry, waits_for(entry.assignment, len(victims)), None)

    def _withdraw(self, target: WorkloadRecord) -> bool:
        """Take back what was only decided in this call; whoever was told of its start has to be evicted."""
        position = self._started.pop(target.uid, None)
        if position is None:
            return False
        self.plan[position] = None
        self._withdrawals[target.uid] = self._withdrawals.get(target.uid, 0) + 1
        self._has_withdrawn = True
        self.state.withdraw(target)
        return True

    def _spare(self, victims: list[WorkloadRecord]) -> None:
        """Room came from elsewhere before anybody was told to make it."""
        for victim in victims:
            position = self._asked.pop(victim.uid, None)
            if position is not None:
                self.plan[position] = None
                self.state.books.spare(victim)

    def _give_up_hope(self, record: WorkloadRecord, claim: Claim) -> None:
        """Its victims may stay where nobody told them yet. Only once, or two could go on to doubt each other."""
        victims = [victim for victim in claim.victims.values() if victim.uid in self._asked]
        self._give_up_claim(record)
        if victims and record.uid not in self._hopeless:
            self._hopeless.add(record.uid)
            self._spare(victims)

    def _wait_at_gates(self, entry: Entry) -> None:
        """Whoever keeps a gate closed decides when others may be evicted; until then nothing is kept for it."""
        record = entry.record
        self._give_up_claim(record)
        record.progress = NO_PROGRESS
        reason = Reason(
            Code.WAITING_FOR_QUOTA,
            f"Others would have to be evicted, which closed preemption gates do not allow: "
            f"{', '.join(record.workload.preemption_gates)}",
            is_preemption_gated=True,
        )
        self._park(entry, reason, None)

    def _wait_on(self, entry: Entry) -> None:
        claim = entry.record.claim
        assert claim is not None  # noqa: S101
        assignments = entry.pod_set_assignments()
        if assignments != claim.assignments:
            self.state.books.lift(claim)
            claim.assignments = assignments
            self.state.books.restore(claim)
        group = entry.record.group
        known = None if group is None else group.reason
        if known is None or known.code is not Code.WAITING_FOR_PREEMPTED_WORKLOADS:
            known = waits_for(entry.assignment, len(claim.victims))
        self._park(entry, known, None)

    def _wait(self, entry: Entry) -> None:
        record = entry.record
        self._give_up_claim(record)
        progress = entry.assignment.progress
        stops = self._stops.setdefault(record.uid, [])
        if not record.progress:
            stops.clear()
        if progress and progress not in stops:
            stops.append(progress)
            record.progress = progress  # there are flavors left to look at
            return
        # After a search that began in the middle, what was looked at before may help as well.
        watch = None if record.progress else frozenset(entry.assignment.watched)
        lacks = None
        if watch is not None:
            kept = self._lift_kept()  # or it would come forward each time that this is given back
            lacks = lacks_of(record, entry.queue, entry.assignment, self.strategy.prospect)
            self._restore_kept(kept)
        record.progress = NO_PROGRESS
        reason, misfit = entry.reason(), entry.misfit
        if misfit is not None:
            self.state.reservations.has_no_place(record, self.now)
            reason = with_outlook(reason, record, self._outlook(entry, misfit))
        self._park(entry, reason, watch, lacks)
        self._stand(entry)

    # ------------------------------------------------------------------ domains

    def _outlook(self, entry: Entry, misfit: Misfit) -> Outlook:
        kept = self.state.reservations.against(entry.record)
        return outlook_for(self.state.books, entry.assignment.plans, misfit, self.policy.topology, kept)

    def keep_domains(self) -> None:
        """For those who have waited long for a place."""
        rule = self.policy.topology.reservation
        if rule is None:
            return

        def drain_of(record: WorkloadRecord) -> Drain | None:
            try:
                entry = nominate(self.state, record, self.policy, self.strategy)
                return None if entry.misfit is None else self._outlook(entry, entry.misfit).drain
            except Exception as error:
                raise Misjudged(record.uid) from error

        for one in self.state.reservations.review(self.now, drain_of):
            group = one.record.group
            if group is not None and group.reason is not None and group.head() is one.record:
                group.reason = with_reservation(group.reason, one.record, one.drain, rule.lasting)
                self.state.waiting.tell(one.record, exactly=True)

    # ------------------------------------------------------------------ keeping quota for a head

    def _stand(self, entry: Entry) -> None:
        """The head of a StrictFIFO queue that cannot evict anybody keeps what comes free for itself.

        Else those behind it, in other queues, could borrow it away for ever. Where it may reclaim from everybody this
        is not needed.
        """
        spec = entry.queue.spec
        assert spec is not None  # noqa: S101
        waits_for_quota = entry.assignment.mode is not Mode.NO_FIT
        if (
            entry.queue.order.is_strict
            and waits_for_quota
            and spec.preemption.reclaim_within_cohort is not PreemptionPolicy.ANY
        ):
            standing = Standing(entry.record, entry.assignment.level, entry.assignment.usage)
            self.state.waiting.stand(entry.queue, standing)
            self._keep(standing)
        else:
            self.state.waiting.stand(entry.queue, None)

    def review_standing(self) -> None:
        """They stand where they would if they were judged again; who would not wait for quota then keeps nothing."""
        for standing in self.state.waiting.standing():
            queue = standing.record.queue
            assert queue is not None  # noqa: S101
            self.state.waiting.stand(queue, self._as_of_now(standing, queue))

    def _as_of_now(self, standing: Standing, queue: QueueRecord) -> Standing | None:
        """By the rules of `flavors.assign`: only what the queue has itself, or could reclaim, is waited for."""
        assert queue.spec is not None  # noqa: S101
        may_borrow, level = self.strategy.may_borrow(queue.spec.preemption), 0
        for unit, amount in standing.usage.items():
            account = queue.node.account(unit)
            reach, may_reclaim = account.ahead.lowest_fit(amount)
            if not (may_borrow or may_reclaim or fits(amount, max(account.available, account.nominal))):
                return None
            level = max(level, reach)
        return standing if level == standing.level else replace(standing, level=level)

    def _keep(self, standing: Standing) -> None:
        """Until the end of the round: its nominal quota, or what it may borrow as well if it has to borrow."""
        queue = standing.record.queue
        assert queue is not None  # noqa: S101
        borrows = standing.level > 0
        for unit, amount in standing.usage.items():
            ahead = queue.node.account(unit).ahead
            if not borrows:
                amount = min(amount, left(ahead.nominal, ahead.usage))  # noqa: PLW2901
            elif ahead.borrowing_limit is not None:
                amount = min(amount, left(total(ahead.nominal, ahead.borrowing_limit), ahead.usage))  # noqa: PLW2901
            if amount > 0:
                ahead.charge(amount)
                self._kept.append((ahead, amount))

    def give_back_kept(self) -> None:
        self._lift_kept()

    def _park_behind(self, entry: Entry, holds: Callable[[Entry], bool]) -> bool:
        """Whether only what heads keep for themselves is in the way; then the workload waits until that changes."""
        kept = self._lift_kept()
        is_kept_back = bool(kept) and (not self._is_changed(entry) or holds(entry))
        self._restore_kept(kept)
        if is_kept_back:
            self._park(entry, _KEPT_BACK, None)
        return is_kept_back

    def _lift_kept(self) -> list[tuple[Account, int]]:
        """What heads keep is not counted until it is restored."""
        kept, self._kept = self._kept, []
        for account, amount in reversed(kept):
            account.release(amount)
        return kept

    def _restore_kept(self, kept: list[tuple[Account, int]]) -> None:
        for account, amount in kept:
            account.charge(amount)
        self._kept = kept

    # ------------------------------------------------------------------ parking

    def _park(
        self, entry: Entry, reason: Reason, watch: frozenset[FlavorResource] | None, lacks: Lacks | None = None
    ) -> None:
        record, waiting = entry.record, self.state.waiting
        group = record.group
        if group is None or group.head() is not record:
            return
        waiting.park(entry.queue, group, reason, watch, lacks, watches_nodes=entry.assignment.watches_nodes)
        waiting.tell(record, exactly=True)

    def _give_up_claim(self, record: WorkloadRecord) -> None:
        if record.claim is not None:
            self.state.books.unclaim(record)
            self.state.waiting.reorder(record)


def checks_of(spec: ClusterQueue, assignments: tuple[PodSetAssignment, ...]) -> tuple[CheckName, ...]:
    """The checks of the queue that apply to the flavors assigned."""
    if not spec.checks:
        return ()
    flavors = flavors_of(assignments)
    return tuple(
        sorted(rule.name for rule in spec.checks if not rule.on_flavors or not flavors.isdisjoint(rule.on_flavors))
    )
