"""Long random histories at little cost: plain random numbers, cheap checks after every step, dear ones now and then.

What `test_histories` does in depth for short histories, with a reference beside each decision, this does in length.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, replace
from random import Random

from queues.core.cycle import decide
from queues.core.model import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    FungibilityPolicy,
    ObjectKey,
    PodSet,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    StopPolicy,
    Workload,
)
from queues.core.plan import Admit, Evict, Plan
from queues.core.policy import Policy
from tests.compiled import IS_COMPILED
from tests.properties.cluster import Cluster, played
from tests.properties.worlds import GPU
from tests.unit.core.invariants import check_invariants

FLAVORS = ("a100", "h100")
COHORTS = {"root": None, "left": "root", "right": "root", "deep": "left"}
NEVER, LOWER, ANY = PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY

CLASSICAL = Policy()

#: Of what happens, in the order of `Storm.turns`.
WEIGHTS = (22, 33, 20, 12, 8, 2, 2, 1)

#: How often a dear check is made.
EVERY = 125


@dataclass(frozen=True)
class Climate:
    """What the trees and queues of a storm are like."""

    policy: Policy = CLASSICAL
    cohorts: tuple[str, ...] = ("root",)
    flavors: tuple[str, ...] = FLAVORS[:1]
    preempts: bool = True
    limits: bool = False
    strict: bool = False


class Storm:
    def __init__(self, seed: int, climate: Climate) -> None:
        self.random = random = Random(seed)
        self.climate = climate
        self.cluster = cluster = Cluster(replace(climate.policy, max_rounds=2000), tell_of=None)
        self.arrived = 0
        self.steps = 0
        self.turns = (
            *(self.arrive, self.decide, self.write, self.end),
            *(self.release, self.refuse, self.edit, self.reconfigure),
        )
        for name in climate.flavors:
            cluster.put_flavor(ResourceFlavor(name))
        for name in climate.cohorts:
            if COHORTS[name] is not None:
                cluster.put_cohort(Cohort(name, COHORTS[name]))
        for number in range(random.randint(2, 8)):
            cluster.put_queue(self.queue(f"q{number}"))

    # ---- what there is

    def quota(self) -> Quota:
        random, nominal = self.random, self.random.randint(0, 8)
        if not self.climate.limits:
            return Quota(nominal)
        borrowing, lending = (random.choice((None, None, random.randint(0, 6))) for _ in range(2))
        return Quota(nominal, borrowing, lending)

    def queue(self, name: str) -> ClusterQueue:
        random = self.random
        flavors = tuple(FlavorQuotas(one, {GPU: self.quota()}) for one in self.climate.flavors)
        preemption = Preemption()
        if self.climate.preempts:
            reclaim = random.choice((NEVER, LOWER, ANY, ANY))
            borrow = random.choice((NEVER, NEVER, LOWER)) if reclaim is not NEVER else NEVER
            preemption = Preemption(random.choice((NEVER, LOWER, LOWER)), reclaim, borrow)
        return ClusterQueue(
            name,
            (ResourceGroup((GPU,), flavors),),
            random.choice(self.climate.cohorts),
            strategy=random.choice(list(QueueingStrategy))
            if self.climate.strict
            else QueueingStrategy.BEST_EFFORT_FIFO,
            preemption=preemption,
            fungibility=Fungibility(random.choice(list(FungibilityPolicy)), random.choice(list(FungibilityPolicy))),
            fair_weight=random.choice((1000, 1000, 500, 3000, 0)),
        )

    def arrive(self) -> None:
        random, now = self.random, self.cluster.now
        if len(self.cluster.workloads) >= 40:
            return
        uid = f"w{self.arrived:05}"
        self.arrived += 1
        pods = PodSet("main", random.choice((1, 1, 1, 2, 2, 4, 8)), {GPU: 1})
        if random.random() < 0.05:
            pods = replace(pods, min_count=1)
        sets = (pods, PodSet("more", random.randint(1, 3), {GPU: 1})) if random.random() < 0.05 else (pods,)
        queue = ObjectKey("ns", random.choice(list(self.cluster.queues)))
        self.cluster.put(Workload(uid, ObjectKey("ns", uid), queue, sets, random.randint(0, 3), now, now))

    # ---- what happens

    def step(self) -> None:
        cluster, random = self.cluster, self.random
        cluster.now += random.choice((0.0, 0.5, 1.0))
        self.steps += 1
        random.choices(self.turns, WEIGHTS)[0]()
        if self.steps % EVERY == 0:
            check_invariants(cluster.state, within_limits=False)
            self.check_nobody_is_forgotten()

    def write(self) -> None:
        if self.cluster.unwritten:
            self.cluster.write(self.random.choice(list(self.cluster.unwritten)))

    def refuse(self) -> None:
        if self.cluster.unwritten:
            self.cluster.refuse(self.random.choice(list(self.cluster.unwritten)))

    def release(self) -> None:
        leaving = [uid for uid, each in self.cluster.workloads.items() if each.evicted]
        if leaving:
            self.cluster.release(self.random.choice(leaving))

    def end(self) -> None:
        if self.cluster.workloads:
            self.cluster.end(self.random.choice(list(self.cluster.workloads)))

    def edit(self) -> None:
        """A decision that is not written yet loses against an edit: its write conflicts."""
        cluster, random = self.cluster, self.random
        if not cluster.workloads:
            return
        old = cluster.workloads[random.choice(list(cluster.workloads))]
        first, *rest = old.pod_sets
        ended = random.randint(first.reclaimable, first.count)
        new = random.choice(
            (
                replace(old, priority=random.randint(0, 3)),
                replace(old, held=None if old.held else "inactive") if old.admission is None else old,
                replace(old, eligible_at=cluster.now + 2),
                replace(old, pod_sets=(replace(first, reclaimable=ended), *rest)),
            )
        )
        if new != old:
            cluster.unwritten.pop(old.uid, None)
            cluster.put(new)

    def reconfigure(self) -> None:
        cluster, random = self.cluster, self.random
        name = random.choice(list(cluster.queues))
        if random.random() < 0.5:
            cluster.put_queue(self.queue(name))
        else:
            old = cluster.queues[name]
            stop = StopPolicy.NONE if old.stop_policy is not StopPolicy.NONE else StopPolicy.HOLD
            cluster.put_queue(replace(old, stop_policy=stop))

    def decide(self) -> Plan:
        cluster = self.cluster
        held = {uid for uid in cluster.workloads if cluster.admission(uid) is not None}
        going = {uid for uid in cluster.workloads if cluster.is_evicted(uid)}
        over = self.over_limits()
        plan = cluster.decide()
        started = [one.uid for one in plan if isinstance(one, Admit)]
        evicted = [one.uid for one in plan if isinstance(one, Evict)]
        assert len(started) == len(set(started)), "started twice"
        assert not held & set(started), "it holds quota already"
        assert len(evicted) == len(set(evicted)), "evicted twice"
        assert not going & set(evicted), "asked to go again"
        assert set(evicted) <= held, "nothing to take back"
        assert not set(started) & set(evicted), "started and evicted"
        preemptors = {one.preemptor for one in plan if isinstance(one, Evict)}
        assert cluster.withdrawn or not set(started) & preemptors, "evicted for nothing"
        assert self.over_limits() <= over, "more than there is"
        return plan

    # ---- what has to be true

    def over_limits(self) -> set[tuple[str, str]]:
        """Accounts that are overdrawn: quota may be taken away, but nothing that is decided adds to them."""
        self.cluster.state.settle()
        return {
            (queue.name, unit.flavor)
            for queue in self.cluster.state.books.queues.values()
            for unit, account in queue.node.accounts.items()
            if account.usage and account.available < 0
        }

    def check_nobody_is_forgotten(self) -> None:
        """Once everybody was judged, and nobody waits for evictions, judging everybody again starts nobody."""
        self.decide()
        if self.cluster.state.books.leaving or self.cluster.state.books.claimants or IS_COMPILED:
            return
        again = deepcopy(self.cluster.state)
        again.look_again()
        found = decide(again, self.cluster.now, self.cluster.policy)
        assert not [one for one in found if isinstance(one, Admit)], "somebody fits and waits"

    def check_replay(self) -> None:
        cluster = self.cluster
        assert cluster.plans == played(cluster.history, cluster.policy), "the same events gave another plan"
