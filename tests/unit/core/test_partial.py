from __future__ import annotations

import pytest

from queues.core.model import PodSet
from queues.core.partial import can_be_reduced, most_that_fit
from queues.core.plan import Admit
from queues.core.policy import Policy
from tests.builders import ANY, admitted, cluster_queue, evicted, workload


def pods(count, at_least=None):
    return PodSet("p", count, {}, min_count=at_least)


@pytest.mark.parametrize(
    ("sets", "room", "want"),
    [
        pytest.param([pods(10, 1)], 7, (7,), id="as many as fit"),
        pytest.param([pods(10, 8)], 7, None, id="not fewer than the minimum"),
        pytest.param([pods(10, 7)], 7, (7,), id="the minimum itself"),
        pytest.param([pods(10)], 7, None, id="without a minimum all or nothing"),
        pytest.param([pods(4), pods(10, 2)], 7, (4, 3), id="only who has a minimum gives up pods"),
        pytest.param([pods(10, 4), pods(4, 1)], 9, (6, 2), id="in proportion"),
        pytest.param([pods(1000, 1)], 1, (1,), id="down to one"),
    ],
)
def test_the_most_that_fit(sets, room, want):
    tried = []

    def attempt(counts):
        tried.append(counts)
        return counts if sum(counts) <= room else None

    counts = tuple(one.count for one in sets)
    assert most_that_fit(sets, counts, attempt) == want
    assert len(tried) <= 12
    assert can_be_reduced(sets, counts) is any(one.min_count is not None for one in sets)


def counts_of(plan):
    return {d.uid: [one.count for one in d.admission.pod_sets] for d in plan if isinstance(d, Admit)}


def test_a_workload_starts_with_fewer_pods(play):
    made = play().queues(cluster_queue("q").cpu(9000))
    made.submit(workload("w").queue("q").cpu(1000).gang(10, at_least=9))
    assert counts_of(made.run()) == {"w": [9]}
    made.submit(workload("x").queue("q").cpu(1000))
    assert admitted(made.run()) == []
    made.finish("w")
    assert admitted(made.run()) == ["x"]


def test_not_with_fewer_than_asked(play):
    made = play().queues(cluster_queue("q").cpu(9000))
    made.submit(workload("w").queue("q").cpu(1000).gang(12, at_least=10))
    assert admitted(made.run()) == []


def test_all_pods_by_preemption_rather_than_fewer_without(play):
    made = play().queues(cluster_queue("q").cohort("c").gpus(4).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("x").queue("b").gpus(2))
    made.run()
    made.submit(workload("w").queue("q").gpus(1).gang(4, at_least=2))
    assert evicted(made.run()) == ["x"]
    made.release("x")
    assert counts_of(made.run()) == {"w": [4]}


def test_fewer_by_preemption_where_all_do_not_fit_even_then(play):
    made = play().queues(cluster_queue("q").cohort("c").gpus(4).reclaim(ANY), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("x").queue("b").gpus(2))
    made.run()
    made.submit(workload("w").queue("q").gpus(1).gang(6, at_least=3))
    assert evicted(made.run()) == ["x"]
    made.release("x")
    assert counts_of(made.run()) == {"w": [4]}


def test_it_can_be_turned_off(play):
    made = play(Policy(partial_admission=False)).queues(cluster_queue("q").cpu(9000))
    made.submit(workload("w").queue("q").cpu(1000).gang(10, at_least=9))
    assert admitted(made.run()) == []
