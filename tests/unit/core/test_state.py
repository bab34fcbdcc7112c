"""Events in: activity of queues, moves, refusals, restarts."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from queues.core import events
from queues.core.cycle import decide
from queues.core.model import UNLIMITED, FlavorResource, LabelSelector, ObjectKey
from queues.core.policy import Policy
from queues.core.readings import Counts, UnitUsage
from queues.core.reasons import Code
from queues.core.state import State
from tests.builders import (
    ANY,
    FLAVOR,
    GPU,
    LOWER,
    admitted,
    check,
    cluster_queue,
    cohort,
    evicted,
    flavor,
    held,
    local_queue,
    namespace,
    topology,
    workload,
)
from tests.unit.core.invariants import check_invariants

UNIT = FlavorResource(FLAVOR, GPU)
TEAM_X = LabelSelector((("team", "x"),))


# ------------------------------------------------------------------ active or not

INACTIVE = {
    "Terminating": (cluster_queue("q").gpus(4).terminating().stopped(), []),
    "Stopped": (cluster_queue("q").gpus(4).stopped().checks("no-such"), []),
    "FlavorNotFound": (cluster_queue("q").flavor("no-such", {GPU: 4}).checks("no-such"), []),
    "AdmissionCheckNotFound": (
        cluster_queue("q").gpus(4).checks("no-such", "off"),
        [events.CheckChanged(check("off", active=False))],
    ),
    "AdmissionCheckInactive": (
        cluster_queue("q").flavor("racks", {GPU: 4}).checks("off"),
        [
            events.CheckChanged(check("off", active=False)),
            events.FlavorChanged(flavor("racks", {"a": "b"}, topology="no-such")),
        ],
    ),
    "TopologyNotFound": (
        cluster_queue("q").flavor("racks", {GPU: 4}),
        [events.FlavorChanged(flavor("racks", {"a": "b"}, topology="no-such"))],
    ),
}


@pytest.mark.parametrize("reason", INACTIVE)
def test_an_inactive_queue_says_why(play, reason):
    queue, before = INACTIVE[reason]
    made = play().apply(*before).queues(queue)
    made.submit(workload("w").queue("q"))
    plan = made.run()
    assert admitted(plan) == []
    assert held(plan)["w"].reason.code is Code.SUSPENDED
    status = made.state.queue_status("q")
    assert (status.active, status.reason) == (False, reason)
    assert status.message.startswith("Can't admit new workloads: ")
    assert made.state.local_queue_status(ObjectKey("default", "q")).reason == "ClusterQueueIsInactive"
    assert made.state.counts("q").pending == 1


MENDED = {
    "the queue is started again": (
        cluster_queue("q").gpus(4).stopped(),
        events.ClusterQueueChanged(cluster_queue("q").gpus(4).build()),
    ),
    "the flavor appears": (
        cluster_queue("q").flavor("new", {GPU: 4}),
        events.FlavorChanged(flavor("new")),
    ),
    "the check appears": (cluster_queue("q").gpus(4).checks("new"), events.CheckChanged(check("new"))),
}


@pytest.mark.parametrize("mended", MENDED)
def test_a_queue_that_is_mended_goes_on_without_another_event(play, mended):
    queue, event = MENDED[mended]
    made = play().queues(queue)
    made.submit(workload("w").queue("q"))
    assert admitted(made.run()) == []
    made.apply(event)
    assert admitted(made.run()) == ["w"]
    assert made.state.queue_status("q").reason == "Ready"
    assert made.state.local_queue_status(ObjectKey("default", "q")).active


def test_a_topology_that_appears_activates_its_queues(play):
    made = (
        play().flavors(flavor("racks", {"a": "b"}, topology="t")).queues(cluster_queue("q").flavor("racks", {GPU: 4}))
    )
    assert made.state.queue_status("q").reason == "TopologyNotFound"
    made.apply(events.TopologyChanged(topology("t", "rack")))
    assert made.state.queue_status("q").active
    made.apply(events.TopologyGone("t"))
    assert made.state.queue_status("q").reason == "TopologyNotFound"


def test_running_work_of_a_stopped_queue_still_counts_and_can_be_reclaimed(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(4).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("x").queue("b").gpus(4))
    made.run()
    made.queues(cluster_queue("b").cohort("c").gpus(0).stopped())
    assert made.state.counts("b") == Counts(0, 0, 0, 1, 1)
    made.submit(workload("w").queue("a").gpus(4))
    assert evicted(made.run()) == ["x"]


def test_who_waits_for_victims_in_a_queue_that_stops_waits_no_more(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(4).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("x").queue("b").gpus(4))
    made.run()
    made.submit(workload("w").queue("a").gpus(4))
    made.run()
    made.queues(cluster_queue("a").cohort("c").gpus(4).reclaim(ANY).stopped())
    made.release("x")
    assert admitted(made.run()) == ["x"]


# ------------------------------------------------------------------ cycles


@pytest.mark.parametrize("kind", ["two", "self"])
def test_a_cohort_cycle_stops_its_tree_only(play, kind):
    made = play().cohorts(cohort("ca"), cohort("cb").parent("ca"))
    made.queues(cluster_queue("q").cohort("cb").gpus(2), cluster_queue("o").gpus(2))
    made.submit(workload("running").queue("q"))
    assert admitted(made.run()) == ["running"]
    made.cohorts(cohort("ca").parent("cb") if kind == "two" else cohort("cb").parent("cb"))
    made.submit(workload("waiting").queue("q"), workload("other").queue("o"))
    plan = made.run()
    assert admitted(plan) == ["other"]
    assert evicted(plan) == []
    assert held(plan)["waiting"].reason.code is Code.SUSPENDED
    assert made.state.queue_status("q").reason == "CohortCycleDetected"
    assert made.state.queue_status("o").active
    assert made.used("q") == 1
    made.cohorts(cohort("ca") if kind == "two" else cohort("cb").parent("ca"))
    assert admitted(made.run()) == ["waiting"]
    assert made.state.queue_status("q").active


# ------------------------------------------------------------------ local queues and namespaces


def test_a_missing_local_queue_is_named(play):
    made = play().queues(cluster_queue("q").gpus(4))
    made.submit(workload("w").queue("nope"))
    reason = held(made.run())["w"].reason
    assert (reason.code, reason.message) == (Code.MISCONFIGURED, "LocalQueue nope doesn't exist")
    made.apply(events.LocalQueueChanged(local_queue("nope", "q")))
    assert admitted(made.run()) == ["w"]


def test_a_missing_cluster_queue_is_named(play):
    made = play()
    made.apply(events.LocalQueueChanged(local_queue("lq", "nope")))
    made.submit(workload("w").queue("lq"))
    reason = held(made.run())["w"].reason
    assert (reason.code, reason.message) == (Code.MISCONFIGURED, "ClusterQueue nope doesn't exist")
    assert made.state.local_queue_status(ObjectKey("default", "lq")).reason == "ClusterQueueDoesNotExist"
    made.queues(cluster_queue("nope").gpus(1))
    assert admitted(made.run()) == ["w"]


def test_a_local_queue_made_again_takes_its_work_along(play):
    made = play().queues(cluster_queue("a").gpus(0), cluster_queue("b").gpus(4))
    made.apply(events.LocalQueueChanged(local_queue("lq", "a")))
    made.submit(workload("x").queue("lq"))
    made.run()
    assert made.state.counts("a").pending == 1
    made.apply(events.LocalQueueGone(ObjectKey("default", "lq")))
    assert made.state.counts("a").pending == 0
    made.apply(events.LocalQueueChanged(local_queue("lq", "b")))
    assert made.state.counts("b").pending == 1
    assert admitted(made.run()) == ["x"]
    assert made.state.counts("b").pending == 0


def test_another_queue_name_moves_the_workload_and_the_counters(play):
    made = play().queues(cluster_queue("a").gpus(0), cluster_queue("b").gpus(0))
    made.submit(workload("x").queue("a"))
    made.run()
    made.change(replace(made.objects["x"], queue=ObjectKey("default", "b")))
    assert [made.state.counts(name).pending for name in "ab"] == [0, 1]
    assert [made.state.local_counts(ObjectKey("default", name)).pending for name in "ab"] == [0, 1]


def test_a_deleted_local_queue_leaves_its_running_work(play):
    made = play().queues(cluster_queue("a").gpus(2))
    made.submit(workload("x").queue("a"))
    made.run()
    made.apply(events.LocalQueueGone(ObjectKey("default", "a")))
    made.apply(events.LocalQueueChanged(local_queue("other", "a")))
    made.submit(workload("y").queue("other"))
    assert admitted(made.run()) == ["y"]
    assert made.used("a") == 2


@pytest.mark.parametrize("strict", [False, True], ids=["best effort", "strict"])
def test_a_namespace_that_is_not_selected_blocks_nobody(play, strict):
    queue = cluster_queue("q").gpus(2).selecting(TEAM_X)
    made = play().queues(queue.strict() if strict else queue)
    made.apply(events.NamespaceChanged(namespace("t1", team="x")))
    made.apply(events.LocalQueueChanged(local_queue("q", "q", "t1")))
    made.submit(workload("old").queue("q"), workload("new").queue("q", "t1"))
    plan = made.run()
    assert admitted(plan) == ["new"]
    reason = held(plan)["old"].reason
    assert reason.code is Code.MISCONFIGURED
    assert "namespace doesn't match ClusterQueue selector" in reason.message
    assert made.state.counts("q").inadmissible == 1
    made.apply(events.NamespaceChanged(namespace("default", team="x")))
    assert admitted(made.run()) == ["old"]


def test_no_selector_matches_no_namespace(play):
    made = play().queues(cluster_queue("q").gpus(2).selecting(None))
    made.submit(workload("w").queue("q"))
    assert admitted(made.run()) == []
    made.queues(cluster_queue("q").gpus(2))
    assert admitted(made.run()) == ["w"]


def test_what_only_an_edit_mends_is_told(play):
    made = play().queues(cluster_queue("q").gpus(2))
    made.submit(workload("w").queue("q").misconfigured("requests exceed the LimitRange lr"))
    reason = held(made.run())["w"].reason
    assert (reason.code, reason.message) == (Code.MISCONFIGURED, "requests exceed the LimitRange lr")
    made.change(replace(made.objects["w"], misconfigured=None))
    assert admitted(made.run()) == ["w"]


def test_what_the_shell_holds_is_not_pending_and_not_told(play):
    made = play().queues(cluster_queue("q").gpus(2))
    made.submit(workload("w").queue("q").held("it is deactivated"))
    assert made.run() == ()
    assert made.state.counts("q").pending == 0
    assert made.state.reason("w").message == "it is deactivated"


# ------------------------------------------------------------------ the same again


def test_an_echo_changes_nothing(play):
    made = play().queues(cluster_queue("q").gpus(2))
    made.submit(workload("w").queue("q"))
    made.run()
    before = made.state.usage("q")
    made.state.dirty_queues()
    made.apply(events.WorkloadChanged(made.objects["w"]))
    assert made.state.usage("q") == before
    assert made.state.dirty_queues().cluster_queues == ()
    assert made.run() == ()


def test_an_object_from_before_the_decision_does_not_undo_it(play):
    made = play().queues(cluster_queue("q").gpus(1))
    made.submit(workload("w").queue("q"))
    assert admitted(made.decide()) == ["w"]
    made.apply(events.WorkloadChanged(made.objects["w"]))
    made.submit(workload("x").queue("q"))
    assert admitted(made.decide()) == []
    assert made.used("q") == 1


def test_a_refused_admission_is_taken_back_and_decided_again(play):
    made = play().queues(cluster_queue("q").gpus(1))
    made.submit(workload("w").queue("q"))
    assert admitted(made.decide()) == ["w"]
    made.apply(events.WriteRefused("w"))
    assert made.used("q") == 0
    assert admitted(made.decide()) == ["w"]


def test_a_refused_reason_is_told_again(play):
    made = play().queues(cluster_queue("q").gpus(1))
    made.submit(workload("w").queue("q").gpus(2))
    assert list(held(made.decide())) == ["w"]
    assert held(made.decide()) == {}
    made.apply(events.WriteRefused("w"))
    assert list(held(made.decide())) == ["w"]


def test_events_about_strangers_are_ignored(play):
    made = play()
    made.apply(
        events.WorkloadGone("x"),
        events.WriteRefused("x"),
        events.PodsReadyChanged("x", ready=True),
        events.ClusterQueueGone("x"),
        events.CohortGone("x"),
        events.LocalQueueGone(ObjectKey("n", "x")),
        events.NamespaceGone("x"),
        events.FlavorGone("x"),
        events.CheckGone("x"),
        events.TopologyGone("x"),
        events.NodeGone("x"),
        events.PodGone("x"),
    )
    assert made.run() == ()


def test_admission_from_elsewhere_is_counted(play):
    """Also in a queue that comes later, or that never had that quota."""
    made = play().shrunk()
    made.submit(workload("x").queue("q").gpus(3).holding("q"))
    made.queues(cluster_queue("q").gpus(2))
    assert made.state.usage("q")[UNIT] == UnitUsage(3, 3)
    made.submit(workload("y").queue("q"))
    assert admitted(made.run()) == []
    made.finish("x")
    assert admitted(made.run()) == ["y"]


def test_usage_says_what_is_borrowed(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(2), cluster_queue("b").cohort("c").gpus(4))
    made.submit(workload("x").queue("a").gpus(5))
    made.run()
    assert made.state.usage("a")[UNIT] == UnitUsage(5, 5, 3, 3)
    assert made.state.usage("b")[UNIT] == UnitUsage(0, 0)
    assert made.state.local_usage(ObjectKey("default", "a"))[UNIT] == UnitUsage(5, 5)
    reading = made.state.cohort("c")[UNIT]
    assert (reading.quota, reading.usage, reading.potential) == (6, 5, 6)


def test_dirty_queues_are_told_once(play):
    made = play().queues(cluster_queue("a").gpus(2), cluster_queue("b").gpus(2))
    assert made.state.dirty_queues().cluster_queues == ("a", "b")
    made.submit(workload("x").queue("a"))
    made.run()
    changed = made.state.dirty_queues()
    assert changed.cluster_queues == ("a",)
    assert changed.local_queues == (ObjectKey("default", "a"),)
    assert made.state.dirty_queues().cluster_queues == ()


def test_an_unlimited_quota_takes_anything_and_gives_back_exactly(play):
    made = play().queues(cluster_queue("q").gpus(UNLIMITED))
    made.submit(workload("w").queue("q").gpus(10**20))
    assert admitted(made.run()) == ["w"]
    assert made.used("q") == 10**20
    made.finish("w")
    assert made.used("q") == 0


# ------------------------------------------------------------------ restart


def objects(play):
    """A cluster in the middle of things, as events in the order in which they happened."""
    made = play().cohorts(cohort("root"), cohort("c").parent("root").gpus(1))
    made.queues(
        cluster_queue("a").cohort("c").gpus(4).reclaim(ANY),
        cluster_queue("b").cohort("c").gpus(2),
        cluster_queue("s").cohort("root").strict().gpus(1),
    )
    made.submit(*[workload(f"x{index}").queue("b") for index in range(6)])
    made.run()
    made.submit(workload("big").queue("a").gpus(4), workload("s1").queue("s").gpus(3), workload("s2").queue("s"))
    made.run()
    made.release("x5")
    made.run()
    return made, [
        events.FlavorChanged(flavor()),
        *[events.CohortChanged(one) for one in made.state._cohorts.values()],
        *[events.ClusterQueueChanged(q.spec) for q in made.state.books.queues.values() if q.spec],
        *[events.LocalQueueChanged(q.spec) for q in made.state.books.local_queues.values() if q.spec],
        *[events.WorkloadChanged(one) for one in made.objects.values()],
    ]


def test_after_a_restart_the_books_and_the_plan_do_not_depend_on_the_order_of_events(play):
    made, told = objects(play)
    plans, usages = set(), set()
    for seed in range(30):
        shuffled = list(told)
        random.Random(seed).shuffle(shuffled)
        state = State()
        for event in shuffled:
            state.apply(event)
            if seed % 5 == 0:
                state.settle()
        plans.add(repr(decide(state, made.now, Policy())))
        check_invariants(state)
        usages.add(repr([state.usage(name) for name in "abs"]))
    assert len(plans) == 1
    assert len(usages) == 1
    assert usages == {repr([made.state.usage(name) for name in "abs"])}


def test_news_of_an_admission_does_not_undo_an_eviction_decided_since(play):
    made = play().queues(cluster_queue("q").gpus(1).within(LOWER))
    made.submit(workload("x").queue("q"))
    (admit,) = made.decide()
    made.submit(workload("w").queue("q").priority(1))
    assert evicted(made.decide()) == ["x"]
    made.change(replace(made.objects["x"], admission=admit.admission))
    assert made.decide() == ()
    made.change(replace(made.objects["x"], evicted=True))
    assert made.decide() == ()
    made.release("x")
    assert admitted(made.decide()) == ["w"]
