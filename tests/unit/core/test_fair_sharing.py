"""Shares, whose turn it is, and who has to go under fair sharing."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import pytest

from queues.core.fairness import Share, share_of
from queues.core.model import UNLIMITED, ClusterQueueName, CohortName
from queues.core.plan import Evict
from queues.core.policy import FairSharing, FairStrategy, Policy
from queues.core.reasons import Preempted
from tests.builders import (
    ANY,
    CPU,
    GPU,
    LOWER,
    ClusterQueueBuilder,
    CohortBuilder,
    Play,
    WorkloadBuilder,
    admitted,
    cluster_queue,
    cohort,
    evicted,
    flavor,
    workload,
)

FINAL = FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = FairStrategy.LESS_THAN_INITIAL_SHARE
IN_QUEUE = Preempted.IN_CLUSTER_QUEUE
RECLAIM = Preempted.IN_COHORT_RECLAMATION
FAIR = Preempted.IN_COHORT_FAIR_SHARING


def fair(*strategies: FairStrategy) -> Policy:
    return Policy(fair_sharing=FairSharing(strategies or (FINAL, INITIAL)))


def q(name: str, gpus: int = 0, cohort_name: str = "c") -> ClusterQueueBuilder:
    return cluster_queue(name).cohort(cohort_name).gpus(gpus).reclaim(ANY)


def running(name: str, queue: str, gpus: int, since: float = 0.0) -> WorkloadBuilder:
    return workload(name).queue(queue).gpus(gpus).holding(queue, since=since)


def share(play: Play, name: str) -> Share:
    play.state.settle()
    return share_of(play.state.books.queues[ClusterQueueName(name)].node)


# ------------------------------------------------------------------ shares


@dataclass
class Shares:
    queues: list[ClusterQueueBuilder]
    holding: list[WorkloadBuilder]
    want: dict[str, Share]
    cohorts: list[CohortBuilder] = field(default_factory=list)


def finite(value: int | Fraction) -> Share:
    return Share(is_unbounded=False, value=Fraction(value))


SHARES = {
    "within its quota a queue has no share": Shares([q("a", 4), q("b", 4)], [running("x", "a", 4)], {"a": finite(0)}),
    "borrowed over lendable, in thousandths": Shares(
        [q("a", 4), q("b", 4)], [running("x", "a", 6)], {"a": finite(250), "b": finite(0)}
    ),
    "twice the weight, half the share": Shares(
        [q("a", 4).weight(2000), q("b", 4)], [running("x", "a", 6)], {"a": finite(125)}
    ),
    "it is exact": Shares([q("a"), q("b", 3)], [running("x", "a", 1)], {"a": finite(Fraction(1000, 3))}),
    "weight 0 while borrowing is above all": Shares(
        [q("a").weight(0), q("b", 4)],
        [running("x", "a", 1)],
        {"a": Share(is_unbounded=True, value=Fraction(250))},
    ),
    "weight 0 without borrowing is nothing": Shares([q("a", 4).weight(0)], [running("x", "a", 4)], {"a": finite(0)}),
    "the dominant resource counts": Shares(
        [
            cluster_queue("a").cohort("c").flavor("default", {GPU: 0, CPU: 0}),
            cluster_queue("b").cohort("c").flavor("default", {GPU: 4, CPU: 100}),
        ],
        [workload("x").queue("a").asks({GPU: 1, CPU: 50}).holding("a")],
        {"a": finite(500)},
    ),
    "what is unused of one flavor does not make up for another": Shares(
        [
            cluster_queue("a").cohort("c").flavor("default", {GPU: 4}).flavor("other", {GPU: 0}),
            cluster_queue("b").cohort("c").flavor("default", {GPU: 0}).flavor("other", {GPU: 4}),
        ],
        [workload("x").queue("a").gpus(2).holding("a", "other")],
        {"a": finite(250)},
    ),
    "without a cohort there is nothing to share": Shares(
        [cluster_queue("a").gpus(4)], [running("x", "a", 6)], {"a": finite(0)}
    ),
}


@pytest.mark.parametrize("case", SHARES.values(), ids=SHARES)
def test_shares(case: Shares) -> None:
    play = Play(fair()).flavors(flavor("other")).cohorts(*case.cohorts).queues(*case.queues).shrunk()
    play.submit(*case.holding)
    assert {name: share(play, name) for name in case.want} == case.want


def test_a_cohort_has_a_share_of_its_own_below_its_parent() -> None:
    play = Play(fair()).cohorts(cohort("root").gpus(8), cohort("left").parent("root"), cohort("right").parent("root"))
    play.queues(q("a", 0, "left"), q("b", 0, "right")).submit(running("x", "a", 2))
    play.state.settle()
    assert share_of(play.state.books.forest.cohorts[CohortName("left")]) == finite(250)
    assert share_of(play.state.books.forest.cohorts[CohortName("root")]) == finite(0)


def test_shares_are_told_rounded_up() -> None:
    assert finite(Fraction(1, 3)).rounded_up == 1
    assert finite(250).rounded_up == 250
    assert Share(is_unbounded=True, value=Fraction(1)).rounded_up == UNLIMITED


def test_zero_weights_rank_above_all_and_among_themselves_by_what_they_borrow() -> None:
    low, high = Share(is_unbounded=True, value=Fraction(1)), Share(is_unbounded=True, value=Fraction(2))
    assert finite(10**9) < low < high


# ------------------------------------------------------------------ whose turn


@dataclass
class Turn:
    queues: list[ClusterQueueBuilder]
    holding: list[WorkloadBuilder]
    arrive: list[WorkloadBuilder]
    want: list[str]
    cohorts: list[CohortBuilder] = field(default_factory=list)


def asks(name: str, queue: str, gpus: int) -> WorkloadBuilder:
    return workload(name).queue(queue).gpus(gpus)


TURNS = {
    "who would borrow the smaller share goes first, whatever its priority": Turn(
        [q("a"), q("b"), q("pool", 8)],
        [running("x", "a", 2)],
        [asks("more", "a", 4).priority(9), asks("first", "b", 4)],
        ["first"],
    ),
    "equal shares: the higher priority": Turn(
        [q("a"), q("b"), q("pool", 4)], [], [asks("low", "a", 4), asks("high", "b", 4).priority(1)], ["high"]
    ),
    "equal shares and priorities: the older": Turn(
        [q("a"), q("b"), q("pool", 4)], [], [asks("old", "b", 4), asks("new", "a", 4)], ["old"]
    ),
    "who does not borrow goes before who does, though its share be larger": Turn(
        [
            cluster_queue("a").cohort("c").flavor("default", {GPU: 4, CPU: 0}),
            cluster_queue("b").cohort("c").flavor("default", {GPU: 0, CPU: 0}),
            cluster_queue("pool").cohort("c").flavor("default", {GPU: 0, CPU: 100}),
        ],
        [workload("x").queue("a").asks({CPU: 90}).holding("a")],
        [asks("borrows", "b", 4).priority(5), asks("own", "a", 4)],
        ["own"],
    ),
    "twice the weight may have twice as much": Turn(
        [q("a").weight(2000), q("b"), q("pool", 6)],
        [running("x", "a", 2), running("y", "b", 2)],
        [asks("b", "b", 2), asks("a", "a", 2)],
        ["a"],
    ),
    "cohorts compete before their queues do": Turn(
        [q("a1", 0, "left"), q("a2", 0, "left"), q("b", 0, "right")],
        [running("x", "a1", 2)],
        [asks("left", "a2", 2).priority(9), asks("right", "b", 2)],
        ["right"],
        cohorts=[cohort("root").gpus(4), cohort("left").parent("root"), cohort("right").parent("root")],
    ),
}


@pytest.mark.parametrize("case", TURNS.values(), ids=TURNS)
def test_whose_turn_it_is(case: Turn) -> None:
    play = Play(fair()).cohorts(*case.cohorts).queues(*case.queues).submit(*case.holding, *case.arrive)
    assert admitted(play.decide()) == case.want


# ------------------------------------------------------------------ who goes


@dataclass
class Case:
    queues: list[ClusterQueueBuilder]
    holding: list[WorkloadBuilder]
    arrives: WorkloadBuilder
    want: dict[str, Preempted]
    cohorts: list[CohortBuilder] = field(default_factory=list)
    strategies: tuple[FairStrategy, ...] = (FINAL, INITIAL)


POOL = [cohort("c").gpus(8)]
FOUR_OF_TWO = [running(f"x{i}", "a", 2, since=i) for i in range(4)]

PREEMPTIONS = {
    "down to equal shares": Case(
        [q("a"), q("b")], FOUR_OF_TWO, asks("w", "b", 4), {"x3": FAIR, "x2": FAIR}, POOL, (FINAL,)
    ),
    "not beyond equal shares": Case([q("a"), q("b")], FOUR_OF_TWO, asks("w", "b", 5), {}, POOL, (FINAL,)),
    "initial share alone may go further": Case(
        [q("a"), q("b")], [running("x", "a", 8)], asks("w", "b", 5), {"x": FAIR}, POOL, (INITIAL,)
    ),
    "final share keeps one large workload": Case(
        [q("a"), q("b")], [running("x", "a", 8)], asks("w", "b", 5), {}, POOL, (FINAL,)
    ),
    "the second strategy tries what the first refused": Case(
        [q("a"), q("b")], [running("x", "a", 8)], asks("w", "b", 5), {"x": FAIR}, POOL, (FINAL, INITIAL)
    ),
    "own quota is taken back whatever the shares": Case(
        [q("a"), q("b", 8)],
        [running("x", "a", 4, since=1), running("y", "a", 4, since=2)],
        asks("w", "b", 8),
        {"x": RECLAIM, "y": RECLAIM},
    ),
    "from whoever has most": Case(
        [q("a"), q("b"), q("d")],
        [running("x", "a", 1), *(running(f"y{i}", "b", 1, since=i) for i in range(7))],
        asks("w", "d", 2),
        {"y6": FAIR, "y5": FAIR},
        POOL,
    ),
    "a queue of weight 0 gives first": Case(
        [q("a").weight(0), q("b"), q("d")],
        [running("x", "a", 2), running("y", "b", 6)],
        asks("w", "d", 2),
        {"x": FAIR},
        POOL,
    ),
    "a queue of weight 0 takes from nobody who has a weight": Case(
        [q("a").weight(0), q("b")], [running("x", "b", 8)], asks("w", "a", 2), {}, POOL
    ),
    "in its own queue by priority": Case(
        [q("a").within(LOWER)], [running("x", "a", 8)], asks("w", "a", 2).priority(1), {"x": IN_QUEUE}, POOL
    ),
    "nobody is evicted for nothing": Case([q("a"), q("b")], FOUR_OF_TWO, asks("w", "b", 9), {}, POOL),
    "whoever need not go stays": Case(
        [q("a"), q("b")],
        [running("small", "a", 1, since=9), running("big", "a", 4, since=5), running("rest", "a", 3, since=1)],
        asks("w", "b", 3),
        {"big": FAIR},
        POOL,
    ),
    "never reclaims: nobody goes": Case(
        [q("a"), cluster_queue("b").cohort("c").gpus(0)], FOUR_OF_TWO, asks("w", "b", 2), {}, POOL
    ),
    "cohorts compete: the other side's borrowing counts as one": Case(
        [q("a1", 0, "left"), q("a2", 0, "left"), q("b", 0, "right")],
        [running("x", "a1", 4, since=1), running("y", "a2", 4, since=2)],
        asks("w", "b", 4),
        {"y": FAIR},
        [cohort("root").gpus(8), cohort("left").parent("root"), cohort("right").parent("root")],
    ),
    "what the cohort guarantees is not borrowed": Case(
        [q("a", 0, "g"), q("b", 0, "root")],
        [running("x", "b", 3)],
        asks("w", "a", 3),
        {"x": FAIR},
        [cohort("root"), cohort("g").parent("root").gpus(3)],
    ),
}


@pytest.mark.parametrize("case", PREEMPTIONS.values(), ids=PREEMPTIONS)
def test_who_goes(case: Case) -> None:
    play = Play(fair(*case.strategies)).cohorts(*case.cohorts).queues(*case.queues)
    play.submit(*case.holding, case.arrives)
    plan = play.decide()
    assert {str(d.uid): d.reason for d in plan if isinstance(d, Evict)} == case.want
    assert admitted(plan) == []


def test_preemption_settles_at_equal_shares_and_stays_there() -> None:
    play = Play(fair()).cohorts(*POOL).queues(q("a"), q("b")).submit(*FOUR_OF_TWO)
    play.submit(asks("six", "b", 6), asks("five", "b", 5))
    assert evicted(play.run()) == []
    play.submit(asks("four", "b", 4), asks("three", "b", 3))
    gone = evicted(play.run())
    assert len(gone) == 2
    play.release(*gone)
    assert admitted(play.run()) == ["four"]
    for _ in range(20):
        assert not evicted(play.run())
    assert play.used("a") == 4
    assert play.used("b") == 4
