"""Whatever happens, in whatever order: the promises of admission hold after every step."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from queues.core.cycle import decide
from queues.core.model import (
    Cohort,
    FlavorResource,
    PreemptionPolicy,
    QueueingStrategy,
    ResourceFlavor,
    StopPolicy,
    Workload,
)
from queues.core.plan import Admit, Evict, Plan
from queues.core.policy import FairSharing, FairStrategy, Policy
from queues.core.state import State
from tests.oracle.flavors import assign, outcome
from tests.oracle.preemption import Preemptor, fits
from tests.oracle.quota import Holder, World
from tests.properties.cluster import Cluster, holder_of, played
from tests.properties.worlds import (
    COHORTS,
    CPU,
    FLAVORS,
    GPU,
    PARENTS,
    QUEUES,
    cluster_queues,
    cohorts,
    flavors,
    workloads,
)
from tests.unit.core.invariants import check_invariants

UNITS = [FlavorResource(flavor, resource) for flavor in FLAVORS for resource in (GPU, CPU)]

STEPS = (
    *["arrive"] * 8,
    *["decide"] * 8,
    *["write"] * 3,
    *["release"] * 3,
    *["end"] * 2,
    "refuse",
    "priority",
    "back off",
    "queue",
    "stop",
    "drop queue",
    "cohort",
    "drop cohort",
    "hold",
    "pods end",
    "flavor",
    "restart",
)


FINAL, INITIAL = FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE, FairStrategy.LESS_THAN_INITIAL_SHARE
POLICIES = {
    "classical": st.just(Policy()),
    "fair": st.sampled_from(
        [Policy(fair_sharing=FairSharing(each)) for each in ((FINAL,), (INITIAL,), (FINAL, INITIAL))]
    ),
}


class History:
    """Draws what happens next and checks the promises."""

    def __init__(self, data: st.DataObject, *, scarce: bool, policy: Policy) -> None:
        self.data = data
        self.scarce = scarce
        self.cluster = Cluster(replace(policy, max_rounds=300))
        self.arrived = 0
        #: (preemptor, victim) since the last arrival, end or edit.
        self.evictions: set[tuple[str, str]] = set()
        for name in FLAVORS:
            self.cluster.put_flavor(ResourceFlavor(name) if scarce else self.draw(flavors(name)))
        for name in self.draw(st.lists(st.sampled_from(COHORTS), max_size=3, unique=True)):
            self.cluster.put_cohort(self.draw_cohort(name))
        for name in QUEUES[: self.draw(st.integers(1, len(QUEUES)))]:
            self.cluster.put_queue(self.draw(cluster_queues(name, scarce=scarce)))

        for _ in range(self.draw(st.integers(0, 8))):
            self.arrive()
        self.decide()
        for uid in list(self.cluster.unwritten):
            self.cluster.write(uid)

    def draw(self, strategy):
        return self.data.draw(strategy)

    def draw_cohort(self, name: str) -> Cohort:
        return Cohort(name, next(iter(PARENTS[name]), None)) if self.scarce else self.draw(cohorts(name))

    def pick(self, uids) -> str | None:
        found = sorted(uids)
        return self.draw(st.sampled_from(found)) if found else None

    def step(self) -> None:  # noqa: PLR0912
        cluster = self.cluster
        cluster.now += self.draw(st.integers(0, 2))
        kind = self.draw(st.sampled_from(STEPS))
        note(f"--- {cluster.now} {kind}")
        if kind not in ("decide", "write", "release", "refuse", "restart"):
            self.evictions.clear()
        match kind:
            case "arrive":
                self.arrive()
            case "decide":
                self.decide()
            case "write" if (uid := self.pick(cluster.unwritten)) is not None:
                cluster.write(uid)
            case "refuse" if (uid := self.pick(cluster.unwritten)) is not None:
                self.evictions.clear()
                cluster.refuse(uid)
            case "release" if (uid := self.pick(u for u, w in cluster.workloads.items() if w.evicted)) is not None:
                cluster.release(uid)
            case "end" if (uid := self.pick(cluster.workloads)) is not None:
                cluster.end(uid)
            case "priority" if (uid := self.pick(cluster.workloads)) is not None:
                self.edit(uid, priority=self.draw(st.integers(0, 3)))
            case "back off" if (uid := self.pick(w.uid for w in cluster.waiting())) is not None:
                self.edit(uid, eligible_at=cluster.now + self.draw(st.integers(0, 3)))
            case "queue":
                name = self.draw(st.sampled_from(sorted(cluster.queues)))
                cluster.put_queue(self.draw(cluster_queues(name, scarce=self.scarce)))
            case "stop":
                queue = cluster.queues[self.draw(st.sampled_from(sorted(cluster.queues)))]
                stopped = queue.stop_policy is not StopPolicy.NONE
                cluster.put_queue(replace(queue, stop_policy=StopPolicy.NONE if stopped else StopPolicy.HOLD))
            case "drop queue" if len(cluster.queues) > 1:
                cluster.drop_queue(self.draw(st.sampled_from(sorted(cluster.queues))))
            case "hold" if (uid := self.pick(w.uid for w in cluster.waiting())) is not None:
                self.edit(uid, held=self.draw(st.sampled_from(["inactive", None])))
            case "pods end" if (uid := self.pick(cluster.workloads)) is not None:
                first, *rest = cluster.workloads[uid].pod_sets
                ended = self.draw(st.integers(first.reclaimable, first.count))
                self.edit(uid, pod_sets=(replace(first, reclaimable=ended), *rest))
            case "cohort":
                cluster.put_cohort(self.draw_cohort(self.draw(st.sampled_from(COHORTS))))
            case "drop cohort" if (name := self.pick(cluster.cohorts)) is not None:
                cluster.drop_cohort(name)
            case "flavor":
                cluster.put_flavor(self.draw(st.sampled_from(FLAVORS).flatmap(flavors)))
            case "restart":
                self.restart()
            case _:
                pass
        self.check_books()
        check_invariants(cluster.state, within_limits=False)

    def arrive(self) -> None:
        created = self.cluster.now - self.draw(st.integers(0, 1))
        uid, queues = f"w{self.arrived:03}", tuple(self.cluster.queues)
        self.cluster.put(self.draw(workloads(uid, queues=queues, created_at=created, scarce=self.scarce)))
        self.arrived += 1

    def edit(self, uid: str, **changes) -> None:
        """A decision that is not written yet loses against an edit: its write conflicts."""
        old = self.cluster.workloads[uid]
        new = replace(old, **changes)
        if new != old:
            self.cluster.unwritten.pop(uid, None)
        self.cluster.put(new)

    # ---- deciding, with the promises

    def decide(self) -> None:
        before = self.cluster.world()
        claims = claims_of(self.cluster.state)
        plan = self.cluster.decide()
        for decision in plan:
            note(f"    {decision}")
        self.check_plan(before, claims, plan)
        self.check_nobody_is_forgotten()
        again = self.cluster.decide()
        assert not [d for d in again if isinstance(d, Admit | Evict)], "the first decide was not done"

    def check_plan(self, world: World, before: dict[str, Holder], plan: Plan) -> None:
        """Each decision was right when it was taken, on top of those before it."""
        cluster = self.cluster
        after = claims_of(cluster.state)
        starting = [d.uid for d in plan if isinstance(d, Admit)]
        assert len(starting) == len(set(starting)), "started twice"
        assert not set(starting) & {d.uid for d in plan if isinstance(d, Evict)}, "started and evicted"
        preemptors = {d.preemptor for d in plan if isinstance(d, Evict)}
        # What was withdrawn may let somebody start who was to wait for others, and its claim passes on.
        assert cluster.withdrawn or not preemptors & set(starting), "evicted others for nothing"
        claims = {uid: after[uid] for uid in before if uid in after and uid not in preemptors}
        # Claims that were given up during the plan, or made without evicting anybody: who knows when.
        given_up = [claim for uid, claim in before.items() if uid not in claims and uid not in preemptors]
        heirs = [claim for uid, claim in after.items() if uid not in before and uid not in preemptors]
        made = heirs + cluster.withdrawn  # held when others were judged, though the plan does not say so any more
        for preemptor, decisions in groupby(plan, lambda d: d.preemptor if isinstance(d, Evict) else None):
            if preemptor is not None:
                evicts = list(decisions)
                if preemptor in after:
                    others = [[*claims.values(), *some, *more] for some in ([], given_up) for more in ([], made)]
                    self.check_evictions(world, others, after[preemptor], evicts)
                    claims[preemptor] = after[preemptor]
                else:  # somebody who was withdrawn comes before it again: it is for others what the victims give back
                    assert cluster.withdrawn, "evicted for nobody"
                    assert heirs, "evicted for nobody"
                world = self.without(world, evicts)
                continue
            for decision in decisions:
                if isinstance(decision, Admit):
                    workload = cluster.workloads[decision.uid]
                    holder = holder_of(workload, decision.admission)
                    check_whole(workload, decision.admission)
                    assert all(h.uid != holder.uid for h in world.holders), "it holds quota already"
                    assert fits(world, holder.queue, dict(holder.usage), allow_borrowing=True), "more than there is"
                    world = replace(world, holders=(*world.holders, holder))

    def without(self, world: World, evicts: list[Evict]) -> World:
        """The victims hold quota, and the preemptors were not evicted for them."""
        for evict in evicts:
            assert any(h.uid == evict.uid and not h.evicted for h in world.holders), "nothing to take back"
            assert (evict.uid, evict.preemptor) not in self.evictions, "they evict each other"
            self.evictions.add((evict.preemptor, evict.uid))
        victims = {evict.uid for evict in evicts}
        return replace(world, holders=tuple(replace(h, evicted=h.evicted or h.uid in victims) for h in world.holders))

    def check_evictions(self, world: World, others: list[list[Holder]], claim: Holder, evicts: list[Evict]) -> None:
        """With the victims gone the preemptor fits; if only one of them stayed, it would not."""
        victims = {evict.uid for evict in evicts}
        going = [h for h in world.holders if h.uid in victims]
        staying = [h for h in world.holders if not h.evicted and h.uid not in victims]

        def fits_beside(*holders: Holder, borrowing: bool) -> bool:
            return fits(replace(world, holders=holders), claim.queue, dict(claim.usage), borrowing)

        bases = [[*staying, *other] for other in others]
        assert any(fits_beside(*base, borrowing=True) for base in bases), "evicted for nothing"
        assert any(
            fits_beside(*base, borrowing=borrowing)
            and not any(fits_beside(*base, holder, borrowing=borrowing) for holder in going)
            for base in bases
            for borrowing in (True, False)
        ), f"one of {sorted(victims)} could have stayed"

    def check_nobody_is_forgotten(self) -> None:
        """Without evictions under way, nobody waits whose turn it is and who fits."""
        cluster = self.cluster
        if any(cluster.is_evicted(uid) for uid in cluster.workloads):
            return
        world = cluster.world()
        heads: list[Workload] = []
        strict: set[str] = set()
        for workload in cluster.waiting():
            queue = cluster.queues.get(workload.queue.name)
            if queue is None or queue.stop_policy is not StopPolicy.NONE or workload.held is not None:
                continue
            if workload.eligible_at <= cluster.now and queue.name not in strict:
                heads.append(workload)
                if queue.strategy is QueueingStrategy.STRICT_FIFO:
                    strict.add(queue.name)
        kept = {world.root(("queue", w.queue.name)) for w in heads if w.queue.name in strict and keeps_quota(world, w)}
        for workload in heads:
            if world.root(("queue", workload.queue.name)) not in kept:
                want = outcome(world, preemptor_of(workload), list(workload.pod_sets))
                assert want.admitted is None, f"{workload.uid} fits and waits"

    def check_books(self) -> None:
        """What the state has added up is what the objects and decisions say, at every node of the tree."""
        cluster, state = self.cluster, self.cluster.state
        world = cluster.world()
        state.settle()
        for name in cluster.queues:
            got = {fr: usage.reserved for fr, usage in state.usage(name).items() if usage.reserved}
            want = {fr: world.usage(("queue", name), fr) for fr in UNITS}
            assert got == {fr: amount for fr, amount in want.items() if amount}, name
        for name in world.all_cohorts():
            reading = state.cohort(name)
            for fr in UNITS:
                got = reading[fr].usage if fr in reading else 0
                assert got == world.usage(("cohort", name), fr), (name, fr)

    def restart(self) -> None:
        """A new state from the objects alone: unwritten decisions are lost, nothing else is."""
        cluster = self.cluster
        cluster.unwritten.clear()
        listed = cluster.objects()
        cluster.state = State()
        cluster.history.clear()
        cluster.plans.clear()
        for event in self.draw(st.permutations(listed)):
            cluster.tell(event)
        other = State()
        for event in listed:
            other.apply(event)
        assert decide(other, cluster.now, cluster.policy) == cluster.decide(), "the order of the list decides"
        cluster.unwritten.clear()
        cluster.state = State()
        cluster.history.clear()
        cluster.plans.clear()
        for event in listed:
            cluster.tell(event)
        self.decide()


def claims_of(state: State) -> dict[str, Holder]:
    """What preemptors wait for, as if they held it."""
    found = {}
    for uid, record in state.workloads.items():
        if record.claim is not None and record.queue is not None:
            usage = tuple(sorted(record.claim.usage.items()))
            found[uid] = Holder(f"claim of {uid}", record.queue.name, usage)
    return found


def preemptor_of(workload: Workload) -> Preemptor:
    return Preemptor(workload.queue.name, workload.priority, workload.queued_at)


def keeps_quota(world: World, head: Workload) -> bool:
    """A head that would need preemption, and is not sure to get it, keeps those behind it from what it waits for.

    In a StrictFIFO queue it stands there in every cycle.
    """
    if world.queues[head.queue.name].preemption.reclaim_within_cohort is PreemptionPolicy.ANY:
        return False
    return not assign(world, preemptor_of(head), list(head.pod_sets), {}).is_unfit


def check_whole(workload: Workload, admission) -> None:
    assert [p.name for p in admission.pod_sets] == [p.name for p in workload.pod_sets]
    for pod_set, given_ in zip(workload.pod_sets, admission.pod_sets, strict=True):
        most = pod_set.count - pod_set.reclaimable
        assert min(most, pod_set.min_count or most) <= given_.count <= most
        wanted = {r: each * given_.count for r, each in pod_set.requests.items() if each * given_.count}
        assert {r: amount for r, amount in given_.usage.items() if amount} == wanted
        assert set(wanted) <= set(given_.flavors)


@pytest.mark.parametrize("scarce", [True, False])
@pytest.mark.parametrize("policies", POLICIES.values(), ids=POLICIES.keys())
@given(data=st.data())
def test_promises_hold_after_every_step(data, scarce, policies):
    history = History(data, scarce=scarce, policy=data.draw(policies))
    for _ in range(data.draw(st.integers(5, 30))):
        history.step()
    history.decide()
    cluster = history.cluster
    assert cluster.plans == played(cluster.history, cluster.policy), "the same events gave another plan"
