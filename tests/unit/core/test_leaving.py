"""Who was asked to go is asked once, and what it gives back is counted on, whoever asked."""

from __future__ import annotations

import pytest

from queues.core import events
from queues.core.policy import FairSharing, Policy
from queues.core.reasons import Code
from tests.builders import ANY, LOWER, admitted, cluster_queue, evicted, held, workload


@pytest.fixture
def alone(play):
    """`x` is on its way out for `big`, which was deleted meanwhile."""
    made = play().queues(
        cluster_queue("p").cohort("c").gpus(2).reclaim(ANY),
        cluster_queue("own").cohort("c").gpus(2).within(LOWER),
        cluster_queue("b").cohort("c").gpus(0),
    )
    made.submit(workload("y").queue("own").gpus(2), workload("x").queue("b").gpus(2).priority(5))
    assert admitted(made.run()) == ["y", "x"]
    made.submit(workload("big").queue("p").gpus(2))
    assert evicted(made.run()) == ["x"]
    made.finish("big")
    made.run()
    return made


def test_nobody_else_is_evicted_for_what_comes_free_anyway(alone):
    alone.submit(workload("next").queue("own").gpus(2).priority(3))
    plan = alone.run()
    assert evicted(plan) == [], "x gives back enough, though `next` might not have evicted it"
    assert held(plan)["next"].reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS
    alone.release("x")
    assert admitted(alone.run()) == ["next"]
    assert alone.holding() == {"y", "next"}


def test_it_is_not_evicted_a_second_time_for_the_next_preemptor(alone):
    alone.submit(workload("again").queue("p").gpus(2))
    assert evicted(alone.run()) == []
    alone.release("x")
    assert admitted(alone.run()) == ["again"]


def test_more_has_to_go_where_that_is_not_enough(alone):
    alone.submit(workload("small").queue("p").gpus(1))
    alone.run()
    alone.submit(workload("next").queue("own").gpus(2).priority(3))
    assert evicted(alone.run()) == ["y"], "one GPU of what x gives back is spoken for"


def test_it_can_be_evicted_again_once_it_was_admitted_again(alone):
    alone.release("x")
    assert admitted(alone.run()) == ["x"]
    alone.submit(workload("again").queue("p").gpus(2))
    assert evicted(alone.run()) == ["x"]


def test_who_counts_on_it_looks_again_when_it_stays_after_all(alone):
    alone.submit(workload("next").queue("own").gpus(2).priority(3))
    assert evicted(alone.run()) == []
    alone.change(workload("x").queue("b").gpus(2).priority(5).holding("b").build())
    assert evicted(alone.run()) == ["y"]


@pytest.mark.parametrize("policy", [Policy(), Policy(fair_sharing=FairSharing())], ids=["classical", "fair"])
def test_a_start_and_an_eviction_of_one_workload_are_never_one_plan(play, policy):
    """b1 starts in the first round and would have to go in the second: it never started."""
    made = play(policy).queues(
        cluster_queue("a").cohort("c").gpus(4).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0)
    )
    made.submit(workload("a1").queue("a").gpus(2), workload("a2").queue("a").gpus(2), workload("b1").queue("b").gpus(2))
    plan = made.run()
    assert admitted(plan) == ["a1", "a2"]
    assert evicted(plan) == []
    assert held(plan)["b1"].reason.code is Code.WAITING_FOR_QUOTA
    assert made.used("a") == 4
    assert made.used("b") == 0
    assert made.run() == ()


def test_only_who_was_told_of_its_start_is_evicted(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(6).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("told").queue("b").gpus(2))
    made.run()
    made.submit(workload("a1").queue("a").gpus(2), workload("a2").queue("a").gpus(4), workload("b1").queue("b").gpus(2))
    plan = made.run()
    assert admitted(plan) == ["a1"]
    assert evicted(plan) == ["told"]
    assert set(held(plan)) == {"a2", "b1"}
    made.release("told")
    assert admitted(made.run()) == ["a2"]
    assert made.waiting() == {"told", "b1"}


def test_a_start_that_was_decided_before_is_evicted_though_nobody_wrote_it_yet(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(2).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("b1").queue("b").gpus(2))
    assert admitted(made.decide()) == ["b1"]
    made.submit(workload("a1").queue("a").gpus(2))
    assert evicted(made.decide()) == ["b1"]
    made.apply(events.WriteRefused("b1"))
    assert admitted(made.decide()) == ["a1"]


def test_nobody_overtakes_who_was_withdrawn_in_a_strict_queue(play):
    """b1 comes first in its queue again, before b2, which would have fitted into what is left."""
    made = play().queues(
        cluster_queue("a").cohort("c").gpus(5).reclaim(ANY), cluster_queue("b").strict().cohort("c").gpus(0)
    )
    made.submit(
        workload("a1").queue("a").gpus(1),
        workload("a2").queue("a").gpus(3),
        workload("b1").queue("b").gpus(3),
        workload("b2").queue("b").gpus(1),
    )
    plan = made.run()
    assert admitted(plan) == ["a1", "a2"]
    assert made.waiting() == {"b1", "b2"}
