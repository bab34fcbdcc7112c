"""Who waits for nodes is judged again when nodes that it could use have more room, and not for any other's sake."""

from __future__ import annotations

import pytest

from queues.core import events
from queues.core.books import may_share
from queues.core.model import HOSTNAME_LABEL
from tests.builders import GPU, Play, admitted, cluster_queue, flavor, node, topology, workload

#: Pools of one full node each; in each a queue of its own in the same cohort, with gangs that wait.
POOLS = ("a", "b", "c")
WAITING = 5


@pytest.fixture
def made(play, judged) -> Play:
    one = play().apply(events.TopologyChanged(topology("t", HOSTNAME_LABEL)))
    for pool in POOLS:
        one.flavors(flavor(pool, {"pool": pool}, topology="t"))
        one.apply(events.NodeChanged(node(f"n-{pool}", 8, {"pool": pool})))
        one.queues(cluster_queue(pool).flavor(pool, {GPU: 64}).cohort("co"))
        one.submit(workload(f"run-{pool}").queue(pool).gpus(4).topology(required=HOSTNAME_LABEL))
    one.apply(events.PodPlaced("foreign", "n-a", {GPU: 4}))
    one.apply(events.PodPlaced("other", "n-b", {GPU: 4}))
    assert len(admitted(one.run())) == len(POOLS)
    for pool in POOLS:
        one.submit(
            *[
                workload(f"{pool}{number}").queue(pool).gpus(5 + number % 2).topology(required=HOSTNAME_LABEL)
                for number in range(WAITING)
            ]
        )
    assert admitted(one.run()) == []
    del judged[:]
    return one


def pools_of(judged: list[str]) -> set[str]:
    return {uid[0] for uid in judged}


def test_the_end_of_a_placed_workload_is_for_those_of_its_flavor(made, judged):
    made.finish("run-c")
    assert admitted(made.run()) == ["c0"]
    assert pools_of(judged) == {"c"}


def test_the_end_of_a_pod_outside_of_the_queues_is_for_those_of_its_node(made, judged):
    made.apply(events.PodGone("foreign"))
    assert admitted(made.run()) == []
    assert pools_of(judged) == {"a"}


def test_a_node_is_for_those_of_its_flavors_also_of_those_that_it_was_of(made, judged):
    made.apply(events.NodeChanged(node("new", 8, {"pool": "b"})))
    assert admitted(made.run()) == ["b0"]
    assert pools_of(judged) == {"b"}
    del judged[:]
    made.apply(events.NodeChanged(node("new", 8, {"pool": "c"})))
    made.run()
    assert pools_of(judged) == {"b", "c"}
    del judged[:]
    made.apply(events.NodeGone("new"))
    made.run()
    assert pools_of(judged) == {"c"}


def test_who_was_not_woken_goes_on_waiting_and_starts_in_the_end(made, judged):
    made.finish("run-c")
    made.run()
    made.apply(events.PodGone("foreign")).finish("run-a")
    assert admitted(made.run()) == ["a0"]


def test_a_flavor_over_the_same_nodes_is_woken_as_well(made, judged):
    made.flavors(flavor("all", {}, topology="t"))
    made.queues(cluster_queue("all").flavor("all", {GPU: 64}))
    made.submit(workload("every").queue("all").gpus(7).topology(required=HOSTNAME_LABEL))
    made.run()
    del judged[:]
    made.finish("run-c")
    made.run()
    assert {"every", "c0"} <= set(judged)
    assert pools_of(judged) == {"c", "e"}


SHARED = [
    pytest.param({"pool": "a"}, {"pool": "a"}, True, id="the same labels"),
    pytest.param({"pool": "a"}, {"pool": "b"}, False, id="another value"),
    pytest.param({"pool": "a"}, {}, True, id="no labels are on every node"),
    pytest.param({"pool": "a"}, {"zone": "z"}, True, id="a node may have both"),
    pytest.param({"pool": "a", "zone": "z"}, {"pool": "a", "zone": "y"}, False, id="one of several differs"),
]


@pytest.mark.parametrize(("one", "other", "want"), SHARED)
def test_flavors_share_nodes_unless_their_labels_exclude_each_other(one, other, want):
    assert may_share(flavor("x", one), flavor("y", other)) is want
    assert may_share(flavor("y", other), flavor("x", one)) is want


def test_a_flavor_that_is_gone_may_have_shared_any_node():
    assert may_share(flavor("x", {"pool": "a"}), None)
