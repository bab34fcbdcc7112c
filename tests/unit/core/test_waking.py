"""What is given back is offered to those whom it could help, in their turn, and costs nobody else a look."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

from queues.core import events
from queues.core.policy import FairSharing, FairStrategy, Policy
from queues.core.tree import Account, Node
from tests.builders import ANY, LOWER, admitted, check, cluster_queue, evicted, local_queue, workload


def crowd(play, policy=None, *, queues=20, **kinds):
    """All quota is in use, and in each queue a small and a large workload wait."""
    made = play(policy)
    for number in range(queues):
        queue = cluster_queue(f"q{number}").cohort("c").gpus(1)
        made.queues(queue.within(LOWER).reclaim(ANY) if kinds.get("preempting") else queue)
    made.submit(*[workload(f"r{number}").queue(f"q{number}").priority(2) for number in range(queues)])
    assert len(admitted(made.run())) == queues
    made.submit(*[workload(f"large{number}").queue(f"q{number}").gpus(3).priority(2) for number in range(queues)])
    made.submit(*[workload(f"small{number}").queue(f"q{number}") for number in range(queues)])
    assert admitted(made.run()) == []
    return made


@pytest.mark.parametrize("preempting", [False, True], ids=["no preemption", "preemption"])
def test_one_is_judged_for_what_only_one_can_have(play, judged, preempting):
    made = crowd(play, preempting=preempting)
    del judged[:]
    made.finish("r7")
    assert admitted(made.run()) == ["small7"], "who stays within its own quota goes first"
    assert set(judged) <= {"small7", "large7"}, "the others keep waiting"


def test_who_waits_for_more_is_judged_when_there_is_enough(play, judged):
    made = crowd(play, queues=4)
    made.finish("small0", "small1", "small2", "small3", "r0", "r1")
    made.run()
    del judged[:]
    made.finish("r2")
    assert admitted(made.run()) == ["large0"]
    assert judged == ["large0"]


def test_in_each_round_a_queue_has_one_turn(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(0), cluster_queue("b").cohort("c").gpus(2))
    made.submit(workload("r").queue("b").gpus(2))
    made.run()
    made.submit(*[workload(name).queue("a").at(1.0 + n) for n, name in enumerate(["a1", "a2"])])
    made.submit(workload("b1").queue("b").at(9.0))
    made.run()
    made.finish("r")
    assert admitted(made.run()) == ["b1", "a1"]


def test_who_is_put_back_again_and_again_stands_there_once(play):
    """`low` never comes forward: a pair or a three always goes before it, each on a shelf of its own."""
    made = play().queues(cluster_queue("a").gpus(12))
    names: list[str] = []

    def submit(kind: str) -> None:
        names.append(f"{kind}{len(names)}")
        one = workload(names[-1]).queue("a").priority(9).at(float(len(names)))
        made.submit(one.gpus(3) if kind == "three" else one.gang(2))

    for kind in ("three", "three", "pair", "pair", "pair"):
        submit(kind)
    made.run()
    made.submit(workload("low").queue("a").gpus(2))
    for kind in ("pair", "three") * 3:
        submit(kind)
    made.run()
    for kind in ("three", "pair") * 200:
        made.finish(next(name for name in names if name.startswith(kind) and name in made.holding()))
        submit(kind)
        made.run()
    assert "low" in made.waiting()
    entries = [
        len(heap)
        for shelves in made.state.waiting._shelves._of_tree.values()
        for shelf in shelves.values()
        for heap in shelf._heaps.values()
    ]
    assert sum(entries) < 100


def test_a_newcomer_takes_its_turn_among_those_who_wait(play):
    made = play().queues(
        *[cluster_queue(name).cohort("c").gpus(1) for name in "ab"], cluster_queue("n").cohort("c").gpus(0)
    )
    made.submit(workload("r").queue("a").gpus(2))
    made.run()
    made.submit(workload("a1").queue("a").gpus(2).priority(1), workload("b1").queue("b").gpus(2).priority(1))
    made.run()
    made.finish("r")
    made.submit(workload("low").queue("n"))
    assert admitted(made.run()) == ["a1"], "the newcomer would borrow and is worth less"
    made.finish("a1")
    made.submit(workload("high").queue("n").gpus(2).priority(2))
    assert admitted(made.run()) == ["high"]


def test_a_larger_one_of_the_same_queue_that_comes_first_is_not_passed_over(play):
    """`big` borrows, so its turn comes late in the line, but in its own queue it comes first."""
    made = play().queues(cluster_queue("a").cohort("c").gpus(1), cluster_queue("b").cohort("c").gpus(3))
    made.submit(workload("r").queue("b").gpus(4))
    made.run()
    made.submit(workload("big").queue("a").gpus(4).priority(1), workload("tiny").queue("a"))
    made.run()
    made.finish("r")
    assert admitted(made.run()) == ["big"]


def test_what_starts_in_the_own_queue_meanwhile_counts_as_what_could_be_evicted(play):
    """3 GPUs would come from `low` once it runs, and 1 more is given back elsewhere."""
    made = play().queues(cluster_queue("a").cohort("c").gpus(4).within(LOWER), cluster_queue("b").cohort("c").gpus(2))
    made.submit(workload("r1").queue("b").gpus(3), workload("r2").queue("b").gpus(1), workload("r3").queue("b").gpus(2))
    made.run()
    made.submit(workload("big").queue("a").gpus(4).priority(1), workload("low").queue("a").gpus(3))
    made.run()
    made.finish("r1")
    assert admitted(made.run()) == ["low"]
    made.finish("r2")
    assert evicted(made.run()) == ["low"]


def test_an_inactive_queue_lets_the_next_have_its_turn(play):
    made = play().apply(events.CheckChanged(check("c")))
    made.queues(cluster_queue("a").cohort("c").gpus(1).checks("c"))
    made.queues(*[cluster_queue(name).cohort("c").gpus(1) for name in "br"])
    made.submit(workload("r").queue("r").gpus(3))
    made.run()
    made.submit(workload("a1").queue("a").at(1.0), workload("b1").queue("b").at(2.0))
    made.run()
    made.apply(events.CheckChanged(check("c", active=False)))
    made.finish("r")
    assert admitted(made.run()) == ["b1"]
    made.apply(events.CheckChanged(check("c")))
    assert admitted(made.run()) == ["a1"]


def test_a_turn_that_comes_later_by_now_is_known_wherever_the_workload_waits(play):
    """`big` waits for its own queue or for the cohort. Two of its own queue start, after which it would borrow."""
    made = play().queues(cluster_queue("a").cohort("c").gpus(10, lending=0), cluster_queue("b").cohort("c").gpus(4))
    made.submit(workload("rb").queue("b").gpus(4), *[workload(f"r{gpus}").queue("a").gpus(gpus) for gpus in (5, 4, 1)])
    made.run()
    made.submit(workload("big").queue("a").gpus(4))
    made.finish("r1")
    made.run()
    made.submit(workload("filler").queue("a"))
    assert admitted(made.run()) == ["filler"]
    made.submit(workload("s3").queue("a").gpus(3).priority(1), workload("s1").queue("a").priority(1))
    made.run()
    made.finish("r5")
    assert admitted(made.run()) == ["s3", "s1"]
    made.finish("rb")
    assert admitted(made.run()) == ["big"]


@pytest.mark.parametrize("policy", [Policy(), Policy(fair_sharing=FairSharing())], ids=["classical", "fair"])
def test_all_that_is_given_back_at_once_is_used_at_once(play, policy):
    made = crowd(play, policy)
    made.finish(*[f"r{number}" for number in range(20)])
    plan = made.run()
    assert sum(made.used(f"q{number}") for number in range(20)) == 20
    assert len(admitted(plan)) >= 7


def test_who_could_be_evicted_by_now_counts_for_those_who_come_after_a_start_that_had_to_wait(play):
    """`first` had to wait for the pods of `slow`. Meanwhile `low` has lost its priority, so `second` may evict it."""
    made = play(Policy(block_admission_until_pods_ready=True))
    made.queues(cluster_queue("a").gpus(4).within(LOWER), cluster_queue("b").gpus(1))
    for name, queue, gpus in (("r", "a", 3), ("low", "a", 1), ("slow", "b", 1)):
        made.submit(workload(name).queue(queue).gpus(gpus).priority(5))
        assert admitted(made.run()) == [name]
        made.apply(events.PodsReadyChanged(name, name != "slow"))
    made.submit(*[workload(name).queue("a").gpus(2).priority(1) for name in ("first", "second")])
    made.run()
    made.finish("r")
    assert admitted(made.run()) == []
    made.change(replace(made.objects["low"], priority=0))
    made.apply(events.PodsReadyChanged("slow", ready=True))
    plan = made.run()
    assert (admitted(plan), evicted(plan)) == (["first"], ["low"])


def test_under_fair_sharing_who_waits_for_others_is_judged_when_one_of_them_could_give(play, judged):
    """Six GPUs; `large` would use three, two of them borrowed, so whoever gives has to keep two that it borrows."""
    made = play(Policy(fair_sharing=FairSharing((FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,))))
    for name, gpus in (("a", 1), ("b", 1), ("d", 3), ("e", 1)):
        made.queues(cluster_queue(name).cohort("c").gpus(gpus).reclaim(ANY))
    made.submit(*[workload(name).queue(name[0]) for name in ("a0", "b0", "b1", "d0", "d1", "e0")])
    assert len(admitted(made.run())) == 6
    made.submit(workload("large").queue("a").gpus(2))
    made.submit(workload("b2").queue("b").at(8.0), workload("b3").queue("b").at(9.0))
    made.run()
    del judged[:]
    for gone, next_one in (("d0", "b2"), ("d1", "b3")):
        made.finish(gone)
        assert admitted(made.run()) == [next_one]
    made.finish("e0")
    assert len(evicted(made.run())) == 1
    assert judged == ["b2", "b3", "large"]


@pytest.mark.parametrize("cohort", [None, "c"], ids=["alone", "in a cohort"])
def test_nothing_is_remembered_of_trees_that_are_gone(play, cohort):
    made = play()
    for number in range(3):
        name = f"gone{number}"
        made.queues(cluster_queue(name).cohort(cohort and f"gone {cohort}{number}").gpus(1).within(LOWER))
        made.submit(workload(f"r{number}").queue(name), workload(f"w{number}").queue(name))
        made.run()
        made.finish(f"r{number}", f"w{number}")
        made.apply(events.ClusterQueueGone(name), events.LocalQueueGone(local_queue(name, name).key))
        made.run()
    made.run()
    gc.collect()
    assert [one.name for one in gc.get_objects() if isinstance(one, Node) and one.name.startswith("gone")] == []


# ------------------------------------------------------------------ ceilings


def account(subtree, usage, parent=None, *, limit=None, private=0):
    made = Account()
    made.subtree, made.usage, made.parent, made.borrowing_limit, made.private = subtree, usage, parent, limit, private
    return made


def test_what_is_available_has_no_ceiling():
    root = account(10, 4)
    assert account(5, 4, root).ceilings_for(6) == []


def test_the_root_is_what_has_to_fall():
    root = account(10, 8)
    assert account(5, 4, root).ceilings_for(3) == [(root, 7)]


def test_the_limit_that_leaves_least_is_what_has_to_fall():
    root = account(10, 4)
    queue = account(5, 4, root, limit=2)
    assert queue.ceilings_for(5) == [(queue, 2)]


def test_below_the_limit_any_fall_of_what_is_private_may_help():
    root = account(10, 8)
    queue = account(5, 4, root, private=2)
    assert queue.ceilings_for(3) == [(root, 7), (queue, 3)]


@pytest.mark.parametrize("amount", range(1, 12))
@pytest.mark.parametrize(("private", "limit"), [(0, None), (0, 2), (3, None), (3, 2)])
def test_a_ceiling_is_kept_exactly_when_it_is_available(amount, private, limit):
    """With one account below the root: what is over a ceiling does not fit."""
    for used in range(8):
        root = account(9, max(0, used - private) + 2)
        queue = account(6, used, root, limit=limit, private=private)
        found = queue.ceilings_for(amount)
        assert (found == []) == (amount <= queue.available)
        assert all(one.usage > most for one, most in found)
