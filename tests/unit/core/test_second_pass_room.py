"""A topology that was delayed and finds no place: who has to go for it, and what is kept for it until then."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from queues.core import events
from queues.core.model import AdmissionCheck
from queues.core.placing import PROVISIONING
from queues.core.plan import Evict, Hold, Place
from queues.core.policy import FairSharing, FairStrategy, Policy
from tests.builders import (
    ANY,
    GPU,
    LOWER,
    ClusterQueueBuilder,
    Play,
    WorkloadBuilder,
    admitted,
    cluster_queue,
    evicted,
    node,
    workload,
)
from tests.unit.core.test_second_pass import cluster, hosts_of
from tests.unit.core.topology.test_placement import RACK

LABELS = {"pool": "gpu", RACK: "r"}


def queue(name: str = "q") -> ClusterQueueBuilder:
    return cluster_queue(name).flavor("gpus", {GPU: 64}).within(LOWER)


def small(name: str, into: str = "q") -> WorkloadBuilder:
    return workload(name).queue(into).gpus(8).topology(required=RACK)


def filled(play, *low: WorkloadBuilder, nodes: int = 3, of: ClusterQueueBuilder | None = None, policy=None) -> Play:
    """These run; the gang `w` of two hosts comes after them, with quota and checks that are ready."""
    made = cluster(play, nodes=nodes, policy=policy).queues(of or queue())
    made.apply(events.CheckChanged(AdmissionCheck("c", PROVISIONING, active=True)))
    made.submit(*low)
    assert sorted(admitted(made.run())) == sorted(each.build().uid for each in low)
    return made


def with_gang(made: Play, *, priority: int = 5, gates: tuple[str, ...] = (), count: int = 2) -> Play:
    made.queues(queue().checks("c"))
    made.submit(workload("w").queue("q").gpus(8).gang(count).topology(required=RACK).priority(priority))
    assert admitted(made.run()) == ["w"]
    made.change(replace(made.objects["w"], is_to_be_placed=True, preemption_gates=gates))
    return made


def test_lower_ones_go_as_few_as_may_be(play):
    made = with_gang(filled(play, small("a").priority(1), small("b"), small("c").priority(2)))
    plan = made.run()
    assert evicted(plan) == ["b", "a"], "the lowest first"
    first = plan[0]
    assert isinstance(first, Evict)
    assert (first.preemptor, first.preemptor_queue) == ("w", "q")
    assert "due to prioritization in the ClusterQueue" in first.message
    assert made.run() == (), "it waits for them"


def test_it_gets_its_places_when_all_of_them_are_gone(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c").priority(9)))
    assert evicted(made.run()) == ["a", "b"]
    made.finish("a")
    assert made.run() == ()
    made.finish("b")
    (decision,) = made.run()
    assert isinstance(decision, Place)
    assert hosts_of(made, "w") == {"n1": 1, "n2": 1}
    assert made.used("q", flavor_name="gpus") == 24


def test_what_they_leave_is_kept_for_it(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c").priority(9)))
    made.queues(cluster_queue("other").flavor("gpus", {GPU: 64}))
    made.run()
    made.submit(small("x", "other").priority(99)).finish("a")
    assert admitted(made.run()) == []
    made.finish("b", "c")
    made.run()
    assert hosts_of(made, "w") == {"n0": 1, "n1": 1}
    assert hosts_of(made, "x") == {"n2": 1}


def test_it_takes_what_comes_free_elsewhere_and_its_victims_leave_room_for_others(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c").priority(9)))
    made.queues(cluster_queue("other").flavor("gpus", {GPU: 64}))
    assert evicted(made.run()) == ["a", "b"]
    made.apply(*[events.NodeChanged(node(name, 8, {**LABELS, RACK: "s"})) for name in ("n8", "n9")])
    (decision,) = made.run()
    assert isinstance(decision, Place)
    assert hosts_of(made, "w") == {"n8": 1, "n9": 1}
    made.submit(small("x", "other")).finish("a", "b")
    assert admitted(made.run()) == ["x"]


def test_who_leaves_anyway_is_waited_for(play):
    made = filled(play, small("a"), small("b"), small("c"))
    for name in ("a", "b"):
        made.change(replace(made.objects[name], evicted=True))
    made = with_gang(made)
    assert made.run() == ()
    made.queues(cluster_queue("other").flavor("gpus", {GPU: 64}))
    made.submit(small("x", "other").priority(99)).finish("a")
    assert admitted(made.run()) == [], "it is kept for the gang"
    made.finish("b")
    assert [each.uid for each in made.run() if isinstance(each, Place)] == ["w"]


def test_a_victim_that_stays_after_all_makes_it_look_again(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c")))
    first = evicted(made.run())
    stays = first[0]
    made.change(replace(made.objects[stays], evicted=False))
    assert len(evicted(made.run())) == 1


@dataclass(frozen=True)
class Nobody:
    id: str
    priority: int = 5
    gates: tuple[str, ...] = ()
    count: int = 2


NOBODY = [
    Nobody("nobody has a lower priority", priority=0),
    Nobody("a closed preemption gate", gates=("g",)),
    Nobody("not even empty nodes would do", count=4),
]


@pytest.mark.parametrize("case", NOBODY, ids=lambda case: case.id)
def test_nobody_goes(play, case: Nobody):
    made = filled(play, small("a"), small("b"), small("c"))
    made = with_gang(made, priority=case.priority, gates=case.gates, count=case.count)
    assert made.run() == ()
    assert made.holding() == {"a", "b", "c", "w"}


def test_a_queue_that_never_preempts_evicts_nobody_until_it_may(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c")))
    made.queues(cluster_queue("q").flavor("gpus", {GPU: 64}).checks("c"))
    assert made.run() == ()
    made.queues(queue().checks("c"))
    assert len(evicted(made.run())) == 2


FAIR = Policy(fair_sharing=FairSharing((FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)))


@pytest.mark.parametrize("policy", [Policy(), FAIR], ids=["classical", "fair sharing"])
def test_a_borrower_of_the_cohort_goes_whatever_its_priority(play, policy):
    made = cluster(play, policy=policy)
    made.apply(events.CheckChanged(AdmissionCheck("c", PROVISIONING, active=True)))
    mine = cluster_queue("q").flavor("gpus", {GPU: 16}).cohort("co").reclaim(ANY).checks("c")
    made.queues(mine, cluster_queue("other").flavor("gpus", {GPU: 16}).cohort("co"))
    made.submit(*[small(name, "other").priority(9) for name in ("a", "b", "c")])
    assert len(admitted(made.run())) == 3
    made.submit(workload("w").queue("q").gpus(8).topology(required=RACK))
    made.run()
    assert "w" in made.holding(), "quota is there, nodes are not"
    made.change(replace(made.objects["w"], is_to_be_placed=True))
    assert len(evicted(made.run())) == 1


def test_one_that_is_evicted_itself_keeps_nothing(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c").priority(9)))
    made.queues(cluster_queue("other").flavor("gpus", {GPU: 64}))
    assert evicted(made.run()) == ["a", "b"]
    made.change(replace(made.objects["w"], evicted=True))
    made.submit(small("x", "other"), small("y", "other")).finish("a", "b")
    assert admitted(made.run()) == ["x", "y"]


def test_the_same_plan_again_when_a_write_was_refused(play):
    made = with_gang(filled(play, small("a"), small("b"), small("c").priority(9)))
    plan = made.decide()
    assert evicted(plan) == ["a", "b"]
    made.apply(events.WriteRefused("a"), events.WriteRefused("w"))
    again = [each for each in made.run() if not isinstance(each, Hold)]
    assert evicted(again) == ["a"], "b was told to go already"
