"""Quota that an eviction frees is kept for the workload that it was freed for."""

from __future__ import annotations

import pytest

from queues.core import events
from queues.core.reasons import Code
from tests.builders import ANY, LOWER, admitted, cluster_queue, evicted, held, local_queue, workload


def q(name, gpus, **kw):
    return cluster_queue(name).cohort("c").gpus(gpus, **kw)


@pytest.fixture
def waiting(play):
    """`big` waits for x and y, who borrowed all of p's quota."""
    made = play().queues(q("p", 4).reclaim(ANY), q("b1", 0), q("b2", 0))
    made.submit(workload("x").queue("b1").gpus(2), workload("y").queue("b2").gpus(2))
    assert admitted(made.run()) == ["x", "y"]
    made.submit(workload("big").queue("p").gpus(4))
    assert sorted(evicted(made.run())) == ["x", "y"]
    return made


def test_nobody_takes_what_the_first_victim_gave_back(waiting):
    waiting.release("x")
    plan = waiting.run()
    assert admitted(plan) == []
    assert held(plan)["x"].reason.code is Code.WAITING_FOR_QUOTA
    waiting.release("y")
    assert admitted(waiting.run()) == ["big"]
    assert waiting.waiting() == {"x", "y"}
    assert waiting.run() == ()


def test_a_newcomer_does_not_take_it_either(waiting):
    waiting.release("x")
    waiting.submit(workload("new").queue("p").gpus(2).priority(5), workload("also").queue("b1").gpus(1).priority(9))
    assert admitted(waiting.run()) == []
    waiting.release("y")
    assert admitted(waiting.run()) == ["big"]


def test_what_is_free_anyway_goes_to_others_meanwhile(play):
    made = play().queues(q("p", 4).reclaim(ANY), q("b1", 0), q("own", 3))
    made.submit(workload("x").queue("b1").gpus(4))
    made.run()
    made.submit(workload("mine").queue("own").gpus(3))
    assert admitted(made.run()) == ["mine"]
    made.submit(workload("big").queue("p").gpus(4))
    assert evicted(made.run()) == ["x"]
    made.finish("mine")
    made.submit(workload("next").queue("own").gpus(3))
    assert admitted(made.run()) == ["next"], "its own quota is not part of what big waits for"


def test_it_starts_at_once_when_room_comes_from_elsewhere(play):
    made = play().queues(q("p", 4).reclaim(ANY), q("b", 4))
    made.submit(workload("x").queue("b").gpus(4), workload("y").queue("b").gpus(4))
    made.run()
    made.submit(workload("big").queue("p").gpus(4))
    assert evicted(made.run()) == ["x"]
    made.finish("y")
    assert admitted(made.run()) == ["big"]


@pytest.mark.parametrize("how", ["deleted", "held", "moved"])
def test_without_the_preemptor_the_quota_is_anybodys(waiting, how):
    waiting.release("x")
    waiting.run()
    if how == "deleted":
        waiting.finish("big")
    elif how == "held":
        waiting.change(workload("big").queue("p").gpus(4).held("it is inactive").build())
    else:
        waiting.apply(events.LocalQueueChanged(local_queue("elsewhere", "b2")))
        waiting.change(workload("big").queue("elsewhere").gpus(4).build())
    assert admitted(waiting.run()) == ["x"]


def test_a_smaller_preemptor_gives_back_what_it_does_not_need(waiting):
    waiting.release("x")
    waiting.run()
    waiting.change(workload("big").queue("p").gpus(2).at(2000).build())
    assert admitted(waiting.run()) == ["big"]


def test_a_refused_eviction_is_decided_again(waiting):
    waiting.change(waiting.objects["x"])
    waiting.apply(events.WriteRefused("x"))
    assert evicted(waiting.run()) == [], "the last object told is the evicted one"


def test_an_eviction_that_never_reached_the_cluster_is_asked_again(play):
    made = play().queues(cluster_queue("a").gpus(2).within(LOWER))
    made.submit(workload("x").queue("a").gpus(2))
    made.run()
    made.submit(workload("w").queue("a").gpus(2).priority(1))
    assert evicted(made.decide()) == ["x"]
    assert evicted(made.decide()) == []
    made.apply(events.WriteRefused("x"))
    assert evicted(made.decide()) == ["x"]


def test_a_victim_that_is_spared_is_replaced(play):
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER))
    made.submit(workload("x").queue("a").gpus(2), workload("y").queue("a").gpus(2))
    made.run()
    made.submit(workload("w").queue("a").gpus(2).priority(1))
    (first,) = evicted(made.decide())
    other = "x" if first == "y" else "y"
    made.change(workload(first).queue("a").gpus(2).holding("a").priority(5).build())
    assert evicted(made.run()) == [other]


def test_strict_order_passes_the_claim_on_to_a_new_head(play):
    """Under StrictFIFO nobody overtakes: what was freed for the old head is for the new one."""
    made = play().queues(cluster_queue("a").strict().gpus(4).within(LOWER))
    made.submit(workload("x").queue("a").gpus(4))
    made.run()
    made.submit(workload("first").queue("a").gpus(4).priority(1))
    assert evicted(made.run()) == ["x"]
    made.submit(workload("urgent").queue("a").gpus(4).priority(2))
    assert evicted(made.run()) == [], "x is on its way out already"
    made.release("x")
    assert admitted(made.run()) == ["urgent"]


def test_best_effort_order_keeps_the_claim(play):
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER))
    made.submit(workload("x").queue("a").gpus(4))
    made.run()
    made.submit(workload("first").queue("a").gpus(4).priority(1))
    assert evicted(made.run()) == ["x"]
    made.submit(workload("later").queue("a").gpus(4).priority(1))
    made.run()
    made.release("x")
    assert admitted(made.run()) == ["first"]


def test_already_evicted_work_is_waited_for_rather_than_evicting_more(play):
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER))
    made.submit(workload("x").queue("a").gpus(2), workload("y").queue("a").gpus(2))
    made.run()
    made.change(workload("x").queue("a").gpus(2).holding("a").evicted().build())
    made.submit(workload("w").queue("a").gpus(2).priority(1))
    plan = made.run()
    assert evicted(plan) == []
    assert held(plan)["w"].reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS


def test_quota_taken_away_ends_the_wait(waiting):
    waiting.shrunk().queues(q("p", 3).reclaim(ANY))
    plan = waiting.run()
    assert held(plan)["big"].reason.code is Code.EXCEEDS_MAX_QUOTA
    waiting.release("x", "y")
    assert admitted(waiting.run()) == ["x"]
