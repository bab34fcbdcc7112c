"""What random histories have taught, told short: each of these went wrong once."""

from __future__ import annotations

from queues.core.model import FungibilityPreference
from queues.core.plan import Admit
from tests.builders import (
    CPU,
    GPU,
    LOWER,
    MAY_STOP,
    admitted,
    cluster_queue,
    evicted,
    flavor,
    workload,
)

PREEMPT_FIRST = FungibilityPreference.PREEMPTION_OVER_BORROWING


def test_a_resource_that_fits_does_not_hide_one_that_does_not(play):
    """Borrowing cpu ranks below preempting for GPUs here, and the flavor was ranked by its cpu alone."""
    made = play()
    for name in ("p", "other"):
        queue = cluster_queue(name).cohort("c").flavor("default", {GPU: 6, CPU: 1})
        made.queues(queue.within(LOWER).fungibility(preference=PREEMPT_FIRST))
    made.submit(workload("o").queue("other").gpus(6), workload("low").queue("p").gpus(4))
    made.run()
    made.submit(workload("w").queue("p").asks({GPU: 4, CPU: 2}).priority(1))
    plan = made.run()
    assert (admitted(plan), evicted(plan)) == ([], ["low"])


def test_what_victims_leave_over_is_enough_for_the_next(play):
    """The second preemptor waits for the rest of what the first one's victim gives back, and evicts nobody."""
    made = play().queues(cluster_queue("main").gpus(4).within(LOWER))
    made.submit(workload("small").gpus(1), workload("large").gpus(3))
    made.run()
    made.submit(workload("first").gpus(2).priority(2), workload("second").gpus(1).priority(1))
    assert evicted(made.run()) == ["large"]
    made.release("large")
    assert admitted(made.run()) == ["first", "second"]


def test_a_scan_of_several_pod_sets_does_not_go_in_circles(play):
    """One pod set could preempt in the first flavor while the other cannot in the second, and the other way round."""
    queue = cluster_queue("main").flavor("one", {GPU: 3}).flavor("two", {GPU: 3})
    made = play().flavors(flavor("one"), flavor("two")).queues(queue.within(LOWER).fungibility(preempt=MAY_STOP))
    made.submit(workload("first").gpus(3).priority(5), workload("high").gpus(3).priority(5))
    made.run()
    made.finish("first")
    made.submit(workload("low").gpus(2))
    made.run()
    made.submit(workload("w").pod_set("main").asks({GPU: 3}).pod_set("workers").asks({GPU: 3}).priority(2))
    assert evicted(made.run()) == []
    assert not made.state.waiting.heads(), "it would be looked at again and again"


def test_room_in_a_flavor_that_was_looked_at_first_wakes(play):
    """The scan went on to the second flavor in a later round, and forgot that it had looked at the first one."""
    queue = cluster_queue("main").flavor("one", {GPU: 4}).flavor("two", {GPU: 1})
    made = play().flavors(flavor("one"), flavor("two")).queues(queue)
    made.submit(workload("a").gpus(2))
    made.run()
    made.submit(workload("w").pod_set("main").asks({GPU: 2}).pod_set("workers", 2).asks({GPU: 1}))
    assert admitted(made.run()) == []
    made.finish("a")
    assert admitted(made.run()) == ["w"]


def test_room_for_a_part_wakes_a_gang_that_may_start_in_part(play):
    """All of it exceeds the quota of the queue, so nothing was watched."""
    made = play().queues(cluster_queue("main").gpus(4))
    made.submit(workload("a").gpus(4))
    made.run()
    made.submit(workload("w").gang(6, at_least=2).gpus(1))
    assert admitted(made.run()) == []
    made.finish("a")
    (decision,) = [decision for decision in made.run() if isinstance(decision, Admit)]
    assert [pod_set.count for pod_set in decision.admission.pod_sets] == [4]


def test_who_preempts_in_the_first_flavor_does_not_start_in_the_second(play):
    """The queue prefers to preempt. Once the victim was asked to go, the free flavor was taken all the same."""
    queue = cluster_queue("main").flavor("one", {GPU: 2}).flavor("two", {GPU: 3})
    made = play().flavors(flavor("one"), flavor("two")).queues(queue.within(LOWER).fungibility(preempt=MAY_STOP))
    made.submit(workload("a").gpus(2), workload("b").gpus(1))
    made.run()
    made.submit(workload("w").gpus(2).priority(1))
    plan = made.run()
    assert (admitted(plan), evicted(plan)) == ([], ["a"])
    made.finish("b")
    assert admitted(made.run()) == []
    made.release("a")
    assert admitted(made.run()) == ["w", "a"]
    assert made.used("main", flavor_name="one") == 2


def test_a_flavor_is_looked_at_again_when_others_were_faster(play):
    """All of it fitted into the first flavor until another queue took a part; then a half still does."""
    queue = cluster_queue("main").cohort("c").flavor("one", {GPU: 2}).flavor("two", {GPU: 2})
    made = play().flavors(flavor("one"), flavor("two"))
    made.queues(queue, cluster_queue("other").cohort("c").flavor("one", {GPU: 2}))
    made.submit(workload("fast").queue("other").gpus(1))
    made.submit(workload("w").pod_set("main").asks({GPU: 2}).pod_set("workers", 2).asks({GPU: 1}))
    assert admitted(made.run()) == ["fast", "w"]
