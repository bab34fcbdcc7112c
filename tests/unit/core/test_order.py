"""Who is next in a queue, who is parked, and what wakes the parked."""

from __future__ import annotations

import pytest

from queues.core import events
from queues.core.model import (
    ObjectKey,
    QueueingStrategy,
    StopPolicy,
)
from queues.core.policy import Policy
from queues.core.readings import Counts
from queues.core.reasons import Code
from tests.builders import (
    GPU,
    LOWER,
    admitted,
    check,
    cluster_queue,
    cohort,
    flavor,
    held,
    local_queue,
    workload,
)


def q(name, gpus, **kw):
    return cluster_queue(name).cohort("c").gpus(gpus, **kw)


@pytest.mark.parametrize(
    ("builders", "want"),
    [
        pytest.param([workload("x").at(2), workload("y").at(1)], ["y", "x"], id="the one that waits longest is next"),
        pytest.param(
            [workload("x").at(1), workload("y").at(2).priority(1)], ["y", "x"], id="a higher priority goes first"
        ),
        pytest.param([workload("y").at(1), workload("x").at(1)], ["x", "y"], id="the uid decides among equals"),
        pytest.param(
            [workload("x").at(1).priority(-1), workload("y").at(2)], ["y", "x"], id="priorities may be negative"
        ),
    ],
)
@pytest.mark.parametrize("strict", [False, True], ids=["best effort", "strict"])
def test_turns(play, builders, want, strict):
    queue = cluster_queue("q").gpus(0)
    made = play().queues(queue.strict() if strict else queue)
    made.submit(*[builder.queue("q") for builder in builders])
    assert list(made.state.order("q")) == want
    made.run()
    assert list(made.state.order("q")) == want, "parked or not"
    made.queues(cluster_queue("q").gpus(1))
    assert admitted(made.run()) == want[:1]


def test_best_effort_passes_by_who_does_not_fit(play):
    made = play().queues(cluster_queue("q").gpus(4))
    made.submit(workload("big").queue("q").gpus(5), workload("small").queue("q").gpus(1))
    assert admitted(made.run()) == ["small"]


def test_strict_stops_at_who_does_not_fit(play):
    made = play().queues(cluster_queue("q").strict().gpus(4))
    made.submit(workload("old").queue("q").gpus(2))
    made.run()
    made.submit(workload("big").queue("q").gpus(3), workload("small").queue("q").gpus(1))
    plan = made.run()
    assert admitted(plan) == []
    assert set(held(plan)) == {"big"}
    assert made.state.counts("q").pending == 2
    behind = made.state.reason("small")
    assert behind.code is Code.PENDING_EVALUATION
    assert "default/big" in behind.message
    made.finish("old")
    assert admitted(made.run()) == ["big", "small"]


def test_a_head_of_strict_order_that_leaves_makes_way(play):
    made = play().queues(cluster_queue("q").strict().gpus(4))
    made.submit(workload("big").queue("q").gpus(5), workload("small").queue("q").gpus(1))
    assert admitted(made.run()) == []
    made.finish("big")
    assert admitted(made.run()) == ["small"]


def test_a_new_head_of_strict_order_is_looked_at(play):
    made = play().queues(cluster_queue("q").strict().gpus(4))
    made.submit(workload("big").queue("q").gpus(5))
    made.run()
    made.submit(workload("small").queue("q").gpus(1).priority(1))
    assert admitted(made.run()) == ["small"]


def test_equal_workloads_wait_together(play):
    """Ten thousand equal ones cost one look; each is told why it waits."""
    made = play().queues(cluster_queue("q").gpus(2))
    made.submit(*[workload(f"w{index}").queue("q").gpus(1).at(5) for index in range(10)])
    plan = made.run()
    assert len(admitted(plan)) == 2
    assert {hold.reason.code for hold in held(plan).values()} == {Code.WAITING_FOR_QUOTA}
    assert len(held(plan)) == 8
    made.submit(workload("late").queue("q").gpus(1))
    assert list(held(made.run())) == ["late"]
    made.finish("w0")
    assert admitted(made.run()) == ["w2"]


def test_a_change_of_strategy_counts_at_once(play):
    made = play().queues(cluster_queue("q").strict().gpus(4))
    made.submit(workload("big").queue("q").gpus(5), workload("small").queue("q").gpus(1))
    assert admitted(made.run()) == []
    made.queues(cluster_queue("q").gpus(4))
    assert admitted(made.run()) == ["small"]
    assert made.state.books.queues["q"].spec.strategy is QueueingStrategy.BEST_EFFORT_FIFO


# ------------------------------------------------------------------ waking


def full(play):
    """`w` waits in q for the quota that `old` uses in the other queue of the cohort."""
    made = play().queues(q("q", 0), q("other", 2))
    made.submit(workload("old").queue("other").gpus(2))
    made.run()
    made.submit(workload("w").queue("q").gpus(2))
    assert admitted(made.run()) == []
    assert made.state.counts("q").inadmissible == 1
    return made


WAKES = {
    "work in another queue of the cohort ends": lambda made: made.finish("old"),
    "work in another queue is evicted and gives back": lambda made: made.change(
        workload("old").queue("other").gpus(2).held("inactive").build()
    ),
    "work in another queue shrinks": lambda made: made.change(
        workload("old").queue("other").gpus(1).gang(2).reclaimable(2).holding("other").build()
    ),
    "its own queue gets quota": lambda made: made.queues(q("q", 2)),
    "another queue of the cohort gets quota": lambda made: made.queues(q("other", 4)),
    "a new queue joins the cohort": lambda made: made.queues(q("third", 2)),
    "the cohort gets quota": lambda made: made.cohorts(cohort("c").gpus(2)),
    "the cohort gets a parent with quota": lambda made: made.cohorts(
        cohort("root").gpus(2), cohort("c").parent("root")
    ),
    "the queue moves to another cohort": lambda made: made.cohorts(cohort("rich").gpus(9)).queues(
        cluster_queue("q").cohort("rich").gpus(0)
    ),
    "the queue may preempt now and the victim is gone": lambda made: made.queues(q("q", 2).within(LOWER)),
    "its own priority changes": lambda made: made.finish("old").change(
        workload("w").queue("q").gpus(2).priority(3).build()
    ),
    "it asks for less": lambda made: made.queues(q("other", 3)).change(workload("w").queue("q").gpus(1).build()),
}


@pytest.mark.parametrize("event", WAKES.values(), ids=WAKES)
def test_what_wakes(play, event):
    made = full(play)
    event(made)
    assert admitted(made.run()) == ["w"]
    assert made.state.counts("q").pending == 0


def test_nothing_is_looked_at_while_nothing_happens(play):
    made = full(play)
    assert not made.state.waiting.active
    assert made.run() == ()


def test_events_elsewhere_wake_nobody(play):
    made = full(play)
    made.queues(cluster_queue("alone").gpus(1))
    made.submit(workload("x").queue("alone"))
    made.run()
    made.finish("x")
    made.state.waiting.wake_stirred()
    assert set(made.state.waiting.heads()) == set()


def test_a_release_of_another_flavor_wakes_nobody(play):
    made = play().flavors(flavor("spare"))
    made.queues(cluster_queue("q").cohort("c").gpus(1), cluster_queue("other").cohort("c").flavor("spare", {GPU: 1}))
    made.submit(workload("old").queue("q"), workload("x").queue("other"), workload("w").queue("q"))
    made.run()
    made.finish("x")
    made.state.waiting.wake_stirred()
    assert made.state.waiting.heads() == []


# ------------------------------------------------------------------ back-off


def test_a_back_off_ends_by_itself(play):
    made = play().queues(cluster_queue("q").strict().gpus(4))
    made.submit(workload("w").queue("q").gpus(1).not_before(5000.0))
    assert made.run() == ()
    assert made.state.next_wakeup() == 5000.0
    assert made.state.counts("q").pending == 1
    made.submit(workload("x").queue("q").gpus(1))
    assert admitted(made.run()) == ["x"], "it does not block those behind it"
    made.now = 4999.0
    assert admitted(made.run()) == ["w"]
    assert made.state.next_wakeup() is None


def test_a_back_off_can_be_cut_short(play):
    made = play().queues(cluster_queue("q").gpus(4))
    made.submit(workload("w").queue("q").gpus(1).not_before(5000.0))
    made.run()
    made.change(workload("w").queue("q").gpus(1).build())
    assert admitted(made.run()) == ["w"]
    assert made.state.next_wakeup() is None


# ------------------------------------------------------------------ kept back


@pytest.mark.parametrize("reclaim", [None, LOWER], ids=["never reclaims", "reclaims from lower priority"])
def test_a_strict_head_keeps_what_comes_free_of_its_own_quota(play, reclaim):
    """Else borrowers would pass its quota on to each other for ever."""
    head_queue = q("a", 4).strict()
    made = play().queues(head_queue if reclaim is None else head_queue.reclaim(reclaim), q("b", 0))
    made.submit(*[workload(f"x{index}").queue("b").priority(5) for index in range(4)])
    assert len(admitted(made.run())) == 4
    made.submit(workload("head").queue("a").gpus(4), workload("next").queue("b").priority(9))
    made.run()
    for index in range(3):
        made.finish(f"x{index}")
        assert admitted(made.run()) == []
    assert "StrictFIFO" in made.state.reason("next").message
    made.finish("x3")
    assert admitted(made.run()) == ["head"]


def test_a_strict_head_keeps_its_quota_when_the_cohort_gets_another_queue(play):
    made = play().queues(q("a", 4).strict(), q("b", 0))
    made.submit(*[workload(f"x{index}").queue("b") for index in range(4)])
    made.run()
    made.submit(workload("head").queue("a").gpus(4))
    made.finish("x0")
    made.run()
    made.queues(q("z", 0))
    made.run()
    made.submit(workload("next").queue("b"))
    assert admitted(made.run()) == []


def test_who_was_kept_back_starts_when_the_head_gives_up(play):
    made = play().queues(q("a", 4).strict(), q("b", 0))
    made.submit(*[workload(f"x{index}").queue("b") for index in range(4)])
    made.run()
    made.submit(workload("head").queue("a").gpus(4), workload("next").queue("b").gpus(2))
    made.run()
    made.finish("x0", "x1")
    assert admitted(made.run()) == []
    made.finish("head")
    assert admitted(made.run()) == ["next"]


def test_a_best_effort_head_keeps_nothing(play):
    made = play().queues(q("a", 4), q("b", 0))
    made.submit(*[workload(f"x{index}").queue("b") for index in range(4)])
    made.run()
    made.submit(workload("head").queue("a").gpus(4), workload("next").queue("b"))
    made.run()
    made.finish("x0")
    assert admitted(made.run()) == ["next"]


def test_a_strict_head_that_can_never_fit_keeps_nothing(play):
    made = play().queues(q("a", 4).strict(), q("b", 0))
    made.submit(workload("never").queue("a").gpus(5), workload("x").queue("b"))
    assert admitted(made.run()) == ["x"]


# ------------------------------------------------------------------ pods ready


def test_one_at_a_time_until_pods_are_ready(play):
    made = play(Policy(block_admission_until_pods_ready=True)).queues(cluster_queue("q").gpus(9), q("other", 9))
    made.submit(workload("x").queue("q"), workload("y").queue("q"), workload("z").queue("other"))
    plan = made.run()
    assert admitted(plan) == ["x"]
    assert held(plan)["z"].reason.code is Code.WAITING_FOR_PODS_READY
    assert admitted(made.run()) == []
    made.apply(events.PodsReadyChanged("x", ready=True))
    assert admitted(made.run()) == ["y"]
    made.finish("y")
    assert admitted(made.run()) == ["z"]


def test_stopping_matters_to_who_waits_only(play):
    made = full(play)
    made.apply(events.LocalQueueChanged(local_queue("q", "q", stop=StopPolicy.HOLD)))
    made.finish("old")
    plan = made.run()
    assert admitted(plan) == []
    assert held(plan)["w"].reason.code is Code.SUSPENDED
    made.apply(events.LocalQueueChanged(local_queue("q", "q")))
    assert admitted(made.run()) == ["w"]


def test_checks_of_the_queue_are_listed(play):
    made = play().flavors(flavor("one"))
    made.apply(*[events.CheckChanged(check(name)) for name in ("all", "here", "there")])
    made.queues(
        cluster_queue("q")
        .flavor("one", {GPU: 4})
        .checks("there", on=["other"])
        .checks("here", on=["one"])
        .checks("all")
    )
    made.submit(workload("w").queue("q"))
    (decision,) = made.run()
    assert decision.checks == ("all", "here")
    assert not decision.admission.admitted
    counts = made.state.counts("q")
    assert (counts.reserving, counts.admitted) == (1, 0)


def test_each_local_queue_counts_its_own(play):
    made = play().queues(cluster_queue("q").gpus(1))
    made.apply(events.LocalQueueChanged(local_queue("other", "q")))
    made.submit(workload("x").queue("q"), workload("y").queue("q"), workload("z").queue("other"))
    keys = [ObjectKey("default", name) for name in ("q", "other")]
    assert [made.state.local_counts(key) for key in keys] == [Counts(2, 2, 0, 0, 0), Counts(1, 1, 0, 0, 0)]
    made.run()
    assert [made.state.local_counts(key) for key in keys] == [Counts(1, 0, 1, 1, 1), Counts(1, 0, 1, 0, 0)]


def test_those_who_wait_alike_have_one_shape(play):
    made = play().queues(cluster_queue("q").gpus(1))
    made.submit(*[workload(name).queue("q").gpus(5) for name in "abc"])
    made.run()
    assert len({id(record.shape) for record in made.state.workloads.values()}) == 1
