"""Whose turn it is, and who has to go first, where past use counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

import pytest

from queues.core import events
from queues.core.cycle import decide
from queues.core.model import ClusterQueueName, LocalQueue, ObjectKey, Uid
from queues.core.policy import AdmissionFairSharing, FairSharing, Policy
from tests.builders import (
    ANY,
    CPU,
    GPU,
    LOWER,
    NAMESPACE,
    ClusterQueueBuilder,
    Play,
    WorkloadBuilder,
    admitted,
    check,
    cluster_queue,
    cohort,
    evicted,
    workload,
)
from tests.unit.core.invariants import check_invariants

RULES = AdmissionFairSharing(half_life=3600.0, sampling_interval=300.0)
POLICY = Policy(admission_fair_sharing=RULES)
TREE_WIDE = Policy(admission_fair_sharing=replace(RULES, across_cohorts=True))


def scoped(name: str = "cq", gpus: int = 0) -> ClusterQueueBuilder:
    return cluster_queue(name).gpus(gpus).by_past_use()


PLENTY, FULL = scoped(gpus=100), scoped(gpus=2).within(LOWER)


def key(name: str) -> ObjectKey:
    return ObjectKey(NAMESPACE, name)


def local(name: str, queue: str = "cq", weight: int = 1000) -> events.Event:
    return events.LocalQueueChanged(LocalQueue(key(name), ClusterQueueName(queue), fair_weight=weight))


def used(name: str, gpus: float = 0, cpu: float = 0) -> events.Event:
    amounts = {GPU: Fraction(gpus), CPU: Fraction(cpu)}
    return events.UsageRestored(key(name), {name: value for name, value in amounts.items() if value}, 990.0)


def waits(name: str, queue: str, priority: int = 0, gpus: int = 1) -> WorkloadBuilder:
    return workload(name).queue(queue).gpus(gpus).priority(priority)


def runs(name: str, queue: str, since: float = 1.0, gpus: int = 1, priority: int = 0) -> WorkloadBuilder:
    return workload(name).queue(queue).gpus(gpus).priority(priority).holding("cq", since=since)


def play(policy: Policy = POLICY) -> Play:
    return Play(policy, after_each=lambda each: check_invariants(each.state, within_limits=each.is_within_limits))


# ------------------------------------------------------------------ order


@dataclass
class Order:
    """LocalQueues a, b and c of a queue where all that waits fits, in the order in which it starts."""

    waiting: list[WorkloadBuilder]
    want: list[str]
    past: list[events.Event] = field(default_factory=list)
    weights: dict[str, int] = field(default_factory=dict)
    policy: Policy = POLICY
    queue: ClusterQueueBuilder = PLENTY


ABC = [waits("a1", "a"), waits("b1", "b"), waits("c1", "c")]
PAST = [used("a", 8), used("b", 2), used("c", 4)]

ORDERS = {
    "whoever used least goes first": Order(ABC, ["b1", "c1", "a1"], PAST),
    "without any past the longest wait goes first": Order(ABC, ["a1", "b1", "c1"]),
    "past use counts before priority": Order(
        [waits("a1", "a", priority=9), waits("b1", "b")], ["b1", "a1"], [used("a", 8)]
    ),
    "within a LocalQueue priority decides": Order(
        [waits("a1", "a"), waits("a2", "a", priority=9), waits("b1", "b")], ["a2", "a1", "b1"], [used("b", 99)]
    ),
    "entering counts: LocalQueues take turns": Order(
        [waits("a1", "a"), waits("a2", "a"), waits("b1", "b"), waits("b2", "b")], ["a1", "b1", "a2", "b2"]
    ),
    "more is charged for more": Order(
        [waits("a1", "a", gpus=3), waits("a2", "a"), waits("b1", "b"), waits("b2", "b"), waits("b3", "b")],
        ["a1", "b1", "b2", "b3", "a2"],
    ),
    "twice the weight, half the use": Order(ABC, ["a1", "b1", "c1"], PAST, {"a": 8000}),
    "weight 0 goes last": Order(ABC, ["c1", "a1", "b1"], PAST, {"b": 0}),
    "a resource that weighs 0 does not count": Order(
        ABC,
        ["b1", "c1", "a1"],
        [used("a", 8), used("b", 2, cpu=10**6), used("c", 4)],
        policy=Policy(admission_fair_sharing=replace(RULES, resource_weights=((CPU, Fraction(0)),))),
    ),
    "cpu counts in cores": Order(ABC, ["c1", "a1", "b1"], [used("a", 8), used("b", cpu=9000), used("c", 4)]),
    "a half-life of 0 remembers nothing": Order(
        ABC, ["a1", "b1", "c1"], PAST, policy=Policy(admission_fair_sharing=replace(RULES, half_life=0.0))
    ),
    "a queue out of scope keeps its order": Order(ABC, ["a1", "b1", "c1"], PAST, queue=cluster_queue("cq").gpus(100)),
    "without rules the scope means nothing": Order(ABC, ["a1", "b1", "c1"], PAST, policy=Policy()),
    "StrictFIFO goes by past use too": Order(ABC, ["b1", "c1", "a1"], PAST, queue=scoped(gpus=100).strict()),
}


@pytest.mark.parametrize("case", ORDERS.values(), ids=ORDERS.keys())
def test_order(case: Order) -> None:
    p = play(case.policy).queues(case.queue)
    for name in ("a", "b", "c"):
        p.apply(local(name, weight=case.weights.get(name, 1000)))
    p.apply(*case.past).submit(*case.waiting)
    told = p.state.order(ClusterQueueName("cq"))
    plan = p.run()
    assert admitted(plan) == case.want
    assert set(told) == set(case.want)


def test_positions_are_those_of_the_turns() -> None:
    p = play().queues(scoped(gpus=0)).apply(*map(local, "abc"), *PAST).submit(*ABC)
    p.run()
    assert p.state.order(ClusterQueueName("cq")) == ("b1", "c1", "a1")


def test_the_head_of_a_strict_queue_is_that_of_who_used_least() -> None:
    """It stops all others, also those who came before it."""
    p = play().queues(scoped(gpus=1).strict()).apply(*map(local, "ab"), used("a", 8))
    p.submit(waits("small", "a"), waits("big", "b", gpus=2))
    assert admitted(p.run()) == []
    p.apply(events.ClusterQueueChanged(scoped(gpus=2).strict().build()))
    assert admitted(p.run()) == ["big"]
    p.finish("big")
    assert admitted(p.run()) == ["small"]


def test_a_strict_queue_goes_on_when_use_changes_who_is_first() -> None:
    p = play().queues(scoped(gpus=1).strict()).apply(*map(local, "ab"), used("a", 8))
    p.submit(waits("small", "a"), waits("big", "b", gpus=2))
    p.run()
    p.apply(local("b", weight=0))
    assert admitted(p.run()) == ["small"]


def test_scope_may_come_and_go() -> None:
    p = play().shrunk().queues(cluster_queue("cq").gpus(0)).apply(*map(local, "abc"))
    p.submit(*ABC, runs("r", "a", gpus=9))
    p.run()
    assert p.state.order(ClusterQueueName("cq")) == ("a1", "b1", "c1")
    p.apply(events.ClusterQueueChanged(scoped(gpus=0).build()))
    p.run()
    p.now += 600
    p.run()
    assert p.state.order(ClusterQueueName("cq")) == ("b1", "c1", "a1")
    p.apply(events.ClusterQueueChanged(cluster_queue("cq").gpus(0).build()))
    p.run()
    assert p.state.order(ClusterQueueName("cq")) == ("a1", "b1", "c1")
    assert p.state.past_use(key("a")) is None


# ------------------------------------------------------------------ the history


def consumed(p: Play, name: str) -> float:
    """As of now."""
    p.now = max(p.now, (p.state.past.next_due() or p.now) + 1)
    p.decide()
    sample = p.state.past_use(key(name))
    return 0.0 if sample is None else float(sample.consumed.get(GPU, Fraction(0)))


def level(p: Play, name: str) -> float:
    found = p.state.past_level(key(name))
    assert found is not None
    return float(found.value)


def one_running(p: Play) -> Play:
    return p.queues(scoped(gpus=4)).apply(*map(local, "ab")).submit(waits("x", "a", gpus=4))


def test_who_runs_uses() -> None:
    p = one_running(play())
    p.run()
    p.now += 3600
    assert consumed(p, "a") == pytest.approx(2.2, abs=0.1), "half of what it holds, and what was charged at the entry"
    assert consumed(p, "b") == 0


def test_a_refused_admission_costs_nothing() -> None:
    p = one_running(play())
    p.decide()
    p.apply(events.WriteRefused(Uid("x")), events.WorkloadGone(Uid("x")))
    p.decide()
    assert level(p, "a") == pytest.approx(0, abs=0.01)


def test_what_waits_for_checks_is_charged_and_not_settled() -> None:
    p = play().queues(scoped(gpus=4).checks("c")).apply(*map(local, "ab"))
    p.apply(events.CheckChanged(check("c")))
    p.submit(waits("x", "a", gpus=4)).run()
    charged = level(p, "a")
    assert charged == pytest.approx(4 * (1 - 0.5 ** (300 / 3600)), rel=1e-6)
    p.now += 3600
    p.decide()
    assert level(p, "a") == pytest.approx(charged), "it neither fades nor grows"
    p.release("x")
    p.objects["x"] = replace(p.objects["x"], held="inactive")
    p.change(p.objects["x"])
    p.decide()
    assert level(p, "a") == 0


def test_moving_to_another_local_queue_takes_the_charge_off() -> None:
    p = play().queues(scoped(gpus=4).checks("c")).apply(*map(local, "ab"))
    p.apply(events.CheckChanged(check("c")))
    p.submit(waits("x", "a", gpus=4)).run()
    p.change(replace(p.objects["x"], queue=key("b")))
    p.decide()
    assert level(p, "a") == 0


def test_a_restart_goes_on_where_it_was() -> None:
    p = one_running(play())
    p.run()
    p.now += 3600
    before = consumed(p, "a")
    sample = p.state.past_use(key("a"))
    assert sample is not None
    q = play().queues(scoped(gpus=4))
    q.apply(*map(local, "ab"), events.UsageRestored(key("a"), sample.consumed, sample.at)).change(p.objects["x"])
    q.now = p.now
    q.decide()
    assert level(q, "a") == pytest.approx(before, rel=0.001)
    assert q.state.past_use(key("a")) == sample, "nothing new is told"
    q.now = p.now = p.now + 3600
    assert consumed(q, "a") == pytest.approx(consumed(p, "a"), abs=0.01)


@pytest.mark.parametrize(("since", "charged"), [(980.0, 0.0), (995.0, 4 * (1 - 0.5 ** (300 / 3600)))])
def test_after_a_restart_those_are_charged_who_came_since_it_was_written_down(since: float, charged: float) -> None:
    p = play().queues(scoped(gpus=4)).apply(local("a"), used("a", 0.5))
    p.change(runs("x", "a", since=since, gpus=4).build())
    p.now = 990.0
    p.decide()
    assert level(p, "a") == pytest.approx(0.5 + charged, abs=0.002)


def test_of_what_was_restored_the_newest_counts() -> None:
    p = play().queues(scoped(gpus=4)).apply(local("a"))
    for amount, at in ((3, 500.0), (7, 900.0), (5, 700.0)):
        p.apply(events.UsageRestored(key("a"), {GPU: Fraction(amount)}, at))
    p.now = 900.0
    p.decide()
    assert level(p, "a") == pytest.approx(7, rel=0.01)


def test_it_is_sampled_at_the_interval_and_told_only_then() -> None:
    p = one_running(play())
    p.run()
    p.decide()
    first = p.state.past_use(key("a"))
    p.state.dirty_queues()
    for _ in range(3):
        p.now += 50
        p.decide()
    assert p.state.past_use(key("a")) == first
    assert p.state.dirty_queues().local_queues == ()
    wakeup = p.state.next_wakeup()
    assert wakeup is not None
    assert p.now < wakeup <= p.now + 300
    p.now = wakeup
    p.decide()
    assert p.state.dirty_queues().local_queues == (key("a"),)
    assert p.state.past_use(key("a")) != first


def test_nobody_is_woken_for_what_is_forgotten() -> None:
    p = one_running(play(Policy(admission_fair_sharing=replace(RULES, half_life=1.0))))
    p.run()
    p.finish("x").run()
    for _ in range(20):
        p.now += 301
        p.decide()
    assert p.state.next_wakeup() is None
    assert p.state.past_use(key("a")) is not None
    assert p.state.past_use(key("a")).consumed == {}  # type: ignore[union-attr]


def test_deleting_a_local_queue_with_admitted_work_disturbs_nobody() -> None:
    p = play().queues(scoped(gpus=4)).apply(*map(local, "ab")).submit(waits("x", "a"))
    p.run()
    p.apply(events.LocalQueueGone(key("a")))
    p.decide()
    p.submit(waits("y", "b"))
    assert admitted(p.run()) == ["y"]
    assert p.holding() == {"x", "y"}
    p.apply(local("a"))
    p.decide()
    assert level(p, "a") == pytest.approx(0, abs=0.01), "a LocalQueue of the same name begins anew"
    p.finish("x").run()


# ------------------------------------------------------------------ preemption


@dataclass
class Victims:
    """`running` in a queue that they fill; the preemptor is in LocalQueue p and needs one of two GPUs each."""

    running: list[WorkloadBuilder]
    want: list[str]
    past: list[events.Event] = field(default_factory=lambda: [used("a", 2), used("b", 9)])
    queue: ClusterQueueBuilder = FULL


VICTIMS = {
    "those of the LocalQueue that used more go first": Victims([runs("a1", "a", 5), runs("b1", "b", 1)], ["b1"]),
    "also where they have the higher priority": Victims(
        [runs("a1", "a", priority=1), runs("b1", "b", priority=2)], ["b1"]
    ),
    "in one LocalQueue the lower priority goes first": Victims(
        [runs("b1", "b", priority=2), runs("b2", "b", priority=1)], ["b2"]
    ),
    "with equal use the newest goes first": Victims([runs("a1", "a", 5), runs("b1", "b", 1)], ["a1"], []),
    "out of scope past use does not count": Victims(
        [runs("a1", "a", 5), runs("b1", "b", 1)], ["a1"], queue=cluster_queue("cq").gpus(2).within(LOWER)
    ),
}


@pytest.mark.parametrize("sharing", [None, FairSharing()], ids=["classical", "fair"])
@pytest.mark.parametrize("case", VICTIMS.values(), ids=VICTIMS.keys())
def test_victims(case: Victims, sharing: FairSharing | None) -> None:
    p = play(replace(POLICY, fair_sharing=sharing)).queues(case.queue).apply(*map(local, "abp"), *case.past)
    p.submit(*case.running, waits("p1", "p", priority=9))
    assert evicted(p.run()) == case.want


@pytest.mark.parametrize(("gpus", "want"), [(2, {"b2", "b1"}), (3, {"b2", "b1", "o1"}), (4, {"b2", "b1", "o1", "a1"})])
def test_other_queues_keep_their_turns(gpus: int, want: set[str]) -> None:
    """By rank b2, a1, o1, b1. o1 is of another queue; b used more than a, so that b1 and a1 change places."""
    p = play().queues(
        scoped("cq").cohort("c"),
        cluster_queue("other").gpus(0).cohort("c"),
        cluster_queue("mine").gpus(4).cohort("c").reclaim(ANY),
    )
    p.apply(*map(local, "ab"), used("a", 2), used("b", 9))
    p.submit(
        runs("a1", "a", priority=1),
        runs("b1", "b", priority=3),
        workload("o1").queue("other").gpus(1).priority(2).holding("other", since=1.0),
        runs("b2", "b", priority=0),
    )
    p.submit(workload("m").queue("mine").gpus(gpus).priority(9))
    assert set(evicted(p.run())) == want


# ------------------------------------------------------------------ across cohorts


@dataclass
class Across:
    want: list[str]
    policy: Policy = TREE_WIDE
    quotas: dict[str, int] = field(default_factory=dict)


ACROSS = {
    "the queue that used less lately goes first": Across(["y"]),
    "off, the longer wait decides": Across(["x"], POLICY),
    "with fair sharing as well": Across(["y"], replace(TREE_WIDE, fair_sharing=FairSharing())),
    "who borrows nothing goes before who used less": Across(["x"], quotas={"q1": 1, "q2": 0}),
}


@pytest.mark.parametrize("case", ACROSS.values(), ids=ACROSS.keys())
def test_across_cohorts(case: Across) -> None:
    """q1 is in a cohort that used much, q2 in one that used little; one GPU is free for both."""
    p = play(case.policy)
    p.cohorts(
        cohort("left").parent("root"),
        cohort("right").parent("root"),
    )
    quotas = case.quotas or {"shared": 1}
    p.queues(
        cluster_queue("q1").gpus(quotas.get("q1", 0)).cohort("left"),
        cluster_queue("q2").gpus(quotas.get("q2", 0)).cohort("right"),
        cluster_queue("q3").gpus(0).cohort("right"),
        cluster_queue("shared").gpus(quotas.get("shared", 0)).cohort("root"),
    )
    p.apply(used("q1", 8), used("q2", 1), used("q3", 2))
    p.submit(workload("x").queue("q1").gpus(1), workload("y").queue("q2").gpus(1))
    assert admitted(p.run()) == case.want


def test_it_is_the_same_whoever_looks_and_whenever() -> None:
    """Decisions in between, at any time, change nothing about who used what."""
    found = []
    for times in ([], [1100.0], [1003.5, 1009.25, 1111.0, 1500.0]):
        p = play().queues(scoped(gpus=4)).apply(*map(local, "ab"), used("b", 3))
        p.change(runs("x", "a", since=900.0, gpus=4).build())
        for at in (1001.0, *times, 5000.0):
            decide(p.state, at, POLICY)
        found.append([level(p, name) for name in "ab"])
    assert found[0] == pytest.approx(found[1], rel=1e-4)
    assert found[0] == pytest.approx(found[2], rel=1e-4)
