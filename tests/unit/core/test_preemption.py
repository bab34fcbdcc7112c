"""Whom classical preemption evicts, and whom it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from queues.core.model import Workload
from queues.core.plan import Evict
from queues.core.policy import Policy
from queues.core.reasons import Code, Preempted
from tests.builders import (
    ANY,
    CPU,
    GPU,
    LOWER,
    LOWER_OR_NEWER,
    ClusterQueueBuilder,
    CohortBuilder,
    WorkloadBuilder,
    admitted,
    cluster_queue,
    cohort,
    evicted,
    flavor,
    held,
    workload,
)

IN_QUEUE = Preempted.IN_CLUSTER_QUEUE
RECLAIM = Preempted.IN_COHORT_RECLAMATION
WHILE_BORROWING = Preempted.IN_COHORT_RECLAIM_WHILE_BORROWING


@dataclass
class Case:
    queues: list[ClusterQueueBuilder]
    holding: list[WorkloadBuilder]
    arrives: WorkloadBuilder
    want: dict[str, Preempted]
    cohorts: list[CohortBuilder] = field(default_factory=list)


def low(name, queue, gpus, since=0.0):
    return workload(name).queue(queue).gpus(gpus).holding(queue, since=since)


def q(name, gpus, **kw):
    return cluster_queue(name).cohort("c").gpus(gpus, **kw)


IN_THE_QUEUE = {
    "never: nobody goes": Case(
        [cluster_queue("a").gpus(4)], [low("x", "a", 4)], workload("w").queue("a").gpus(4).priority(9), {}
    ),
    "lower priority goes": Case(
        [cluster_queue("a").gpus(4).within(LOWER)],
        [low("x", "a", 4)],
        workload("w").queue("a").gpus(4).priority(1),
        {"x": IN_QUEUE},
    ),
    "equal priority stays": Case(
        [cluster_queue("a").gpus(4).within(LOWER)], [low("x", "a", 4)], workload("w").queue("a").gpus(4), {}
    ),
    "newer and equal goes where the policy says so": Case(
        [cluster_queue("a").gpus(4).within(LOWER_OR_NEWER)],
        [low("x", "a", 4).at(20)],
        workload("w").queue("a").gpus(4).at(10),
        {"x": IN_QUEUE},
    ),
    "older and equal stays": Case(
        [cluster_queue("a").gpus(4).within(LOWER_OR_NEWER)],
        [low("x", "a", 4).at(5)],
        workload("w").queue("a").gpus(4).at(10),
        {},
    ),
    "the lowest priority goes first": Case(
        [cluster_queue("a").gpus(4).within(LOWER)],
        [low("x", "a", 2).priority(2), low("y", "a", 2).priority(1)],
        workload("w").queue("a").gpus(2).priority(3),
        {"y": IN_QUEUE},
    ),
    "among equals the one that started last": Case(
        [cluster_queue("a").gpus(4).within(LOWER)],
        [low("x", "a", 2, since=5), low("y", "a", 2, since=9)],
        workload("w").queue("a").gpus(2).priority(3),
        {"y": IN_QUEUE},
    ),
    "among these the lowest uid": Case(
        [cluster_queue("a").gpus(4).within(LOWER)],
        [low("y", "a", 2), low("x", "a", 2)],
        workload("w").queue("a").gpus(2).priority(3),
        {"x": IN_QUEUE},
    ),
    "those that turn out not to be needed stay": Case(
        [cluster_queue("a").gpus(6).within(LOWER)],
        [low("x", "a", 1, since=9), low("y", "a", 5, since=5)],
        workload("w").queue("a").gpus(5).priority(3),
        {"y": IN_QUEUE},
    ),
    "nobody goes when all of them were not enough": Case(
        [cluster_queue("a").gpus(6).within(LOWER)],
        [low("x", "a", 2), low("y", "a", 4).priority(5)],
        workload("w").queue("a").gpus(3).priority(3),
        {},
    ),
    "nobody goes for more than the quota": Case(
        [cluster_queue("a").gpus(6).within(LOWER)], [low("x", "a", 6)], workload("w").queue("a").gpus(7).priority(3), {}
    ),
    "who uses nothing that is short stays": Case(
        [cluster_queue("a").flavor("default", {GPU: 4, CPU: 4000}).within(LOWER)],
        [low("x", "a", 2), workload("y").queue("a").cpu(4000).holding("a").priority(-5)],
        workload("w").queue("a").gpus(4).priority(3),
        {"x": IN_QUEUE},
    ),
}

IN_THE_COHORT = {
    "borrowed quota is taken back from anybody": Case(
        [q("a", 4).reclaim(ANY), q("b", 0)],
        [low("x", "b", 4).priority(9)],
        workload("w").queue("a").gpus(4),
        {"x": RECLAIM},
    ),
    "only from lower priority where the policy says so": Case(
        [q("a", 4).reclaim(LOWER), q("b", 0)], [low("x", "b", 4).priority(9)], workload("w").queue("a").gpus(4), {}
    ),
    "never means that lent quota is gone until it is given back": Case(
        [q("a", 4).within(LOWER), q("b", 0)], [low("x", "b", 4)], workload("w").queue("a").gpus(4).priority(9), {}
    ),
    "a queue within its nominal quota loses nothing": Case(
        [q("a", 4).reclaim(ANY), q("b", 4), q("d", 0)],
        [low("x", "b", 4), low("y", "d", 2)],
        workload("w").queue("a").gpus(4),
        {"y": RECLAIM},
    ),
    "reclaiming stops where the borrower is back within its quota": Case(
        [q("a", 4).reclaim(ANY), q("b", 2)],
        [low("x", "b", 2, since=1), low("y", "b", 2, since=2), low("z", "b", 2, since=3)],
        workload("w").queue("a").gpus(4),
        {"y": RECLAIM, "z": RECLAIM},
    ),
    "other queues go before the own one": Case(
        [q("a", 4).reclaim(ANY).within(LOWER), q("b", 0)],
        [low("x", "a", 2), low("y", "b", 2)],
        workload("w").queue("a").gpus(2).priority(5),
        {"y": RECLAIM},
    ),
    "who would have to borrow reclaims nothing": Case(
        [q("a", 2).reclaim(ANY), q("b", 2), q("d", 0)],
        [low("x", "a", 2), low("y", "d", 2)],
        workload("w").queue("a").gpus(2).priority(5),
        {},
    ),
    "borrowing while reclaiming: from lower priority": Case(
        [q("a", 2).reclaim(ANY).borrow(LOWER), q("b", 2), q("d", 0)],
        [low("x", "a", 2), low("y", "d", 2)],
        workload("w").queue("a").gpus(2).priority(5),
        {"y": WHILE_BORROWING},
    ),
    "borrowing while reclaiming: not from equal priority": Case(
        [q("a", 2).reclaim(ANY).borrow(LOWER), q("b", 2), q("d", 0)],
        [low("x", "a", 2), low("y", "d", 2).priority(5)],
        workload("w").queue("a").gpus(2).priority(5),
        {},
    ),
    "borrowing while reclaiming: not above the threshold": Case(
        [q("a", 2).reclaim(ANY).borrow(LOWER, threshold=1), q("b", 2), q("d", 0)],
        [low("x", "a", 2), low("y", "d", 2).priority(2)],
        workload("w").queue("a").gpus(2).priority(5),
        {},
    ),
    "borrowing while reclaiming: up to the threshold": Case(
        [q("a", 2).reclaim(ANY).borrow(LOWER, threshold=2), q("b", 2), q("d", 0)],
        [low("x", "a", 2), low("y", "d", 2).priority(2)],
        workload("w").queue("a").gpus(2).priority(5),
        {"y": WHILE_BORROWING},
    ),
    "a borrowing limit is not stretched": Case(
        [q("a", 2, borrowing=1).reclaim(ANY).borrow(LOWER), q("b", 6)],
        [low("x", "b", 8)],
        workload("w").queue("a").gpus(4).priority(5),
        {},
    ),
}

TREES = {
    "quota of the cohort is its queues' own": Case(
        [cluster_queue("guar").cohort("g").gpus(0).reclaim(ANY), cluster_queue("be").cohort("root").gpus(0)],
        [low("b", "be", 3)],
        workload("w").queue("guar").gpus(3),
        {"b": RECLAIM},
        [cohort("root"), cohort("g").parent("root").gpus(3)],
    ),
    "borrowers are found in any part of the tree": Case(
        [
            cluster_queue("a").cohort("left").gpus(4).reclaim(ANY),
            cluster_queue("b").cohort("deep").gpus(0),
        ],
        [low("x", "b", 4)],
        workload("w").queue("a").gpus(4),
        {"x": RECLAIM},
        [cohort("root"), cohort("left").parent("root"), cohort("right").parent("root"), cohort("deep").parent("right")],
    ),
    "a cohort within its quota hides its queues": Case(
        [
            cluster_queue("a").cohort("left").gpus(4).reclaim(ANY),
            cluster_queue("b").cohort("right").gpus(0),
            cluster_queue("d").cohort("root").gpus(0),
        ],
        [low("x", "b", 3), low("y", "d", 2)],
        workload("w").queue("a").gpus(4),
        {"y": RECLAIM},
        [cohort("root"), cohort("left").parent("root"), cohort("right").parent("root").gpus(3)],
    ),
    "a subtree's right does not depend on borrowing within it": Case(
        [
            cluster_queue("a").cohort("left").gpus(0).reclaim(ANY),
            cluster_queue("own").cohort("left").gpus(4),
            cluster_queue("b").cohort("right").gpus(0),
        ],
        [low("x", "b", 4).priority(9)],
        workload("w").queue("a").gpus(4),
        {"x": RECLAIM},
        [cohort("root"), cohort("left").parent("root"), cohort("right").parent("root")],
    ),
}

CASES = {**IN_THE_QUEUE, **IN_THE_COHORT, **TREES}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_victims(play, case):
    made = play().cohorts(*case.cohorts).queues(*case.queues)
    for builder in case.holding:
        made.change(builder.build())
    made.submit(case.arrives)
    plan = made.run()
    assert {d.uid: d.reason for d in plan if isinstance(d, Evict)} == case.want
    assert admitted(plan) == []
    assert made.run() == (), "one decision is enough"
    if case.want:
        assert held(plan)["w"].reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS
        made.release(*case.want)
        assert admitted(made.run()) == ["w"]
    else:
        assert held(plan)["w"].reason.code in (Code.WAITING_FOR_QUOTA, Code.EXCEEDS_MAX_QUOTA)


def test_the_message_names_both_paths(play):
    made = play().cohorts(cohort("root"), cohort("left").parent("root"))
    made.queues(cluster_queue("a").cohort("left").gpus(4).reclaim(ANY), cluster_queue("b").cohort("root").gpus(0))
    made.change(low("x", "b", 4).build())
    made.submit(workload("w").queue("a").gpus(4))
    (eviction,) = [d for d in made.run() if isinstance(d, Evict)]
    assert eviction.message == (
        "Preempted to accommodate a workload (UID: w, JobUID: UNKNOWN) due to reclamation within the cohort; "
        "preemptor path: /root/left/a; preemptee path: /root/b"
    )
    assert (eviction.preemptor, eviction.preemptor_queue) == ("w", "a")


@pytest.mark.parametrize("variant", ["plain", "with borrowing limits"])
def test_a_head_that_never_fits_does_not_shield_the_victims(play, variant):
    if variant == "plain":
        made = play().queues(q("a", 3).reclaim(ANY), q("b", 0))
        borrowers = ["w0"]
    else:
        made = play().queues(q("a", 3, borrowing=0).reclaim(ANY), q("b", 0, borrowing=3))
        borrowers = ["w0", "w1"]
    made.submit(*[workload(name).queue("b") for name in borrowers])
    assert admitted(made.run()) == borrowers
    made.submit(workload("never").queue("a").gpus(4))
    assert evicted(made.run()) == []
    made.submit(workload("wanted").queue("a").gpus(3))
    assert sorted(evicted(made.run())) == borrowers
    made.release(*borrowers)
    assert admitted(made.run()) == ["wanted"]
    assert made.waiting() == {"never", *borrowers}
    made.finish("wanted")
    assert sorted(admitted(made.run())) == borrowers
    assert evicted(made.run()) == []


def test_the_highest_priority_goes_first_across_queues(play):
    made = play().cohorts(cohort("c").gpus(4)).queues(q("a", 0), q("b", 0))
    made.submit(workload("x").queue("a").gpus(4), workload("y").queue("b").gpus(4).priority(3))
    assert admitted(made.run()) == ["y"]


def test_priorities_across_queues_can_be_left_out(play):
    made = play(Policy(priority_sorting_within_cohort=False)).cohorts(cohort("c").gpus(4)).queues(q("a", 0), q("b", 0))
    made.submit(workload("x").queue("a").gpus(4), workload("y").queue("b").gpus(4).priority(3))
    assert admitted(made.run()) == ["x"]


def test_who_borrows_less_goes_first(play):
    made = play().queues(q("a", 0), q("b", 4))
    made.submit(workload("x").queue("a").gpus(4).priority(3), workload("y").queue("b").gpus(4))
    assert admitted(made.run()) == ["y"]


def test_two_preemptors_do_not_share_a_victim(play):
    made = play().queues(q("a", 2).reclaim(ANY), q("b", 2).reclaim(ANY), q("d", 0))
    made.change(low("x", "d", 2, since=1).build())
    made.change(low("y", "d", 2, since=2).build())
    made.submit(workload("w1").queue("a").gpus(2), workload("w2").queue("b").gpus(2))
    plan = made.run()
    assert [(d.preemptor, d.uid) for d in plan if isinstance(d, Evict)] == [("w1", "y"), ("w2", "x")]


def test_several_resources_are_freed_together(play):
    made = play().flavors(flavor("other"))
    made.queues(cluster_queue("a").flavor("default", {GPU: 4}).flavor("other", {CPU: 4000}, group=1).within(LOWER))
    made.change(low("x", "a", 4).build())
    made.change(workload("y").queue("a").cpu(4000).holding("a", "other").build())
    made.submit(workload("w").queue("a").asks({GPU: 4, CPU: 1000}).priority(3))
    assert sorted(evicted(made.run())) == ["x", "y"]


def test_a_victim_that_holds_more_than_it_is_charged_now(play):
    """Pods that have ended gave their quota back: what is left of the victim may not be enough."""
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER))
    made.change(workload("x").queue("a").gpus(1).gang(4).holding("a").reclaimable(3).build())
    assert made.used("a") == 1
    made.submit(workload("w").queue("a").gpus(4).priority(1))
    assert evicted(made.run()) == ["x"]


# ------------------------------------------------------------------ preemption gates


def gated(name: str) -> Workload:
    return replace(workload(name).queue("a").gpus(4).priority(1).build(), preemption_gates=("theirs",))


def test_nobody_is_evicted_while_a_gate_is_closed(play):
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER)).submit(low("x", "a", 4)).change(gated("w"))
    plan = made.run()
    assert evicted(plan) == []
    reason = held(plan)["w"].reason
    assert reason.is_preemption_gated
    assert reason.code is Code.WAITING_FOR_QUOTA
    made.change(replace(gated("w"), preemption_gates=()))
    assert evicted(made.run()) == ["x"]


def test_a_closed_gate_is_no_hindrance_to_others_of_its_shape(play):
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER)).submit(low("x", "a", 4)).change(gated("first"))
    made.submit(workload("second").queue("a").gpus(4).priority(1).at(1))
    assert evicted(made.run()) == ["x"]
    made.release("x")
    assert admitted(made.run()) == ["second"], "what its victim gave back is for it"


def test_free_quota_is_taken_whatever_the_gates(play):
    made = play().queues(cluster_queue("a").gpus(4).within(LOWER)).change(gated("w"))
    assert admitted(made.run()) == ["w"]
