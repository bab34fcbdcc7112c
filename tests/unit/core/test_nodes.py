"""Quota and nodes are decided together: what fits one has to fit the other."""

from __future__ import annotations

import pytest

from queues.core import events
from queues.core.model import HOSTNAME_LABEL, Taint
from queues.core.plan import Admit
from queues.core.reasons import Code
from tests.builders import (
    CPU,
    GPU,
    LOWER,
    admitted,
    cluster_queue,
    evicted,
    flavor,
    held,
    node,
    topology,
    workload,
)

RACK = "example.com/rack"
POOL = {"pool": "gpu"}
GPUS = flavor("gpus", POOL, topology="t")


def cluster(play, nodes, gpus, levels=(HOSTNAME_LABEL,), total=32):
    made = play().apply(events.TopologyChanged(topology("t", *levels))).flavors(GPUS)
    for index in range(nodes):
        made.apply(events.NodeChanged(node(f"n{index}", gpus, {**POOL, RACK: f"r{index // 2}"})))
    made.queues(cluster_queue("q").flavor("gpus", {GPU: total}).within(LOWER))
    return made


def domains(plan, uid):
    return {
        domain.values: domain.count
        for decision in plan
        if isinstance(decision, Admit) and decision.uid == uid
        for pod_set in decision.admission.pod_sets
        if pod_set.topology is not None
        for domain in pod_set.topology.domains
    }


def test_a_gang_gets_its_hosts(play):
    made = cluster(play, nodes=2, gpus=8)
    made.submit(workload("w").queue("q").gpus(4).gang(3))
    assert domains(made.run(), "w") == {("n0",): 2, ("n1",): 1}
    made.submit(workload("x").queue("q").gpus(4))
    assert sum(domains(made.run(), "x").values()) == 1
    made.submit(workload("y").queue("q").gpus(4))
    reason = held(made.run())["y"].reason
    assert reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    assert 'topology "t" doesn\'t allow to fit any of 1 pod(s)' in reason.message
    made.finish("x")
    assert admitted(made.run()) == ["y"]


def test_a_gang_is_admitted_whole_or_not_at_all(play):
    made = cluster(play, nodes=2, gpus=8)
    made.submit(workload("w").queue("q").gpus(8).gang(3))
    assert admitted(made.run()) == []
    made.apply(events.NodeChanged(node("n9", 8, {**POOL, RACK: "r9"})))
    assert domains(made.run(), "w") == {("n0",): 1, ("n1",): 1, ("n9",): 1}


def busy(play, total):
    """Four nodes of 8 GPUs, on each 6 high-priority and 2 low-priority workloads of one GPU."""
    made = cluster(play, nodes=4, gpus=8, total=total)
    for index in range(32):
        on = {HOSTNAME_LABEL: f"n{index % 4}"}
        name, priority = (f"high{index:02}", 100) if index < 24 else (f"low{index:02}", 0)
        made.submit(workload(name).queue("q").gpus(1).priority(priority).selecting(**on))
    assert len(admitted(made.run())) == 32
    return made


@pytest.mark.parametrize("total", [32, 40], ids=["quota is full", "quota is there"])
def test_nobody_is_evicted_for_a_pod_that_no_node_could_hold_even_then(play, total):
    made = busy(play, total)
    made.submit(workload("h8").queue("q").gpus(8).priority(100))
    plan = made.run()
    assert evicted(plan) == []
    reason = held(plan)["h8"].reason
    assert "topology" in reason.message
    if total == 40:
        assert reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    made.submit(workload("h1").queue("q").gpus(1).priority(100))
    (victim,) = evicted(made.run())
    assert victim.startswith("low")
    made.release(victim)
    assert admitted(made.run()) == ["h1"]


def test_fragmented_nodes_are_cleared_of_lower_priority(play):
    """There is quota, but the free GPUs lie on two nodes."""
    made = cluster(play, nodes=2, gpus=8, total=40)
    made.submit(workload("x").queue("q").gpus(5), workload("y").queue("q").gpus(5))
    made.run()
    made.submit(workload("w").queue("q").gpus(8).priority(1))
    plan = made.run()
    (victim,) = evicted(plan)
    assert held(plan)["w"].reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS
    made.submit(workload("small").queue("q").gpus(3))
    small = made.run()
    assert domains(small, "small") in ({("n0",): 1}, {("n1",): 1}), "the other node is nobody's claim"
    made.release(victim)
    plan = made.run()
    assert admitted(plan) == ["w"]


@pytest.mark.parametrize(("gpus", "fits"), [(6, False), (4, True)])
def test_capacity_is_per_node_not_per_rack(play, gpus, fits):
    made = cluster(play, nodes=2, gpus=4, levels=(RACK,), total=8)
    made.submit(workload("w").queue("q").gpus(gpus).topology(required=RACK))
    plan = made.run()
    assert domains(plan, "w") == ({("r0",): 1} if fits else {})


@pytest.mark.parametrize(
    "unusable",
    [{"taints": (Taint("broken", "yes"),)}, {"ready": False}, {"unschedulable": True}],
    ids=["tainted", "not ready", "cordoned"],
)
def test_an_unusable_node_is_not_counted_until_it_is_usable_again(play, unusable):
    made = cluster(play, nodes=1, gpus=4, levels=(RACK,), total=8)
    made.apply(events.NodeChanged(node("bad", 4, {**POOL, RACK: "r0"}, **unusable)))
    made.submit(workload("first").queue("q").gpus(4), workload("second").queue("q").gpus(4))
    plan = made.run()
    assert admitted(plan) == ["first"]
    assert held(plan)["second"].reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    made.apply(events.NodeChanged(node("bad", 4, {**POOL, RACK: "r0"})))
    assert admitted(made.run()) == ["second"]


def test_pods_without_a_workload_take_room_until_they_end(play):
    made = cluster(play, nodes=1, gpus=8)
    made.apply(events.PodPlaced("stranger", "n0", {GPU: 4}))
    made.submit(workload("w").queue("q").gpus(8).priority(5))
    plan = made.run()
    assert admitted(plan) == []
    assert held(plan)["w"].reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    made.apply(events.PodGone("stranger"))
    assert admitted(made.run()) == ["w"]


def test_nodes_freed_in_one_tree_wake_another(play):
    """Two cohorts that know nothing of each other share the nodes of a flavor."""
    made = cluster(play, nodes=1, gpus=8)
    made.queues(cluster_queue("elsewhere").cohort("c").flavor("gpus", {GPU: 8}))
    made.submit(workload("x").queue("q").gpus(8), workload("y").queue("elsewhere").gpus(8))
    assert admitted(made.run()) == ["x"]
    made.finish("x")
    assert admitted(made.run()) == ["y"]


def test_a_topology_flavor_is_only_for_who_asks_for_it_where_there_are_others(play):
    made = cluster(play, nodes=1, gpus=8)
    made.queues(cluster_queue("mixed").flavor("gpus", {GPU: 8}).flavor("default", {GPU: 8}))
    made.submit(workload("plain").queue("mixed"), workload("asks").queue("mixed").topology(unconstrained=True))
    plan = made.run()
    assert domains(plan, "plain") == {}
    assert domains(plan, "asks") == {("n0",): 1}


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"required": "no.such/level"}, "flavor gpus has no topology level no.such/level"),
        ({"required": RACK}, "flavor gpus has no topology level example.com/rack"),
    ],
)
def test_a_level_that_no_flavor_has_is_named(play, request_, words):
    made = cluster(play, nodes=1, gpus=8)
    made.submit(workload("w").queue("q").topology(**request_))
    reason = held(made.run())["w"].reason
    assert reason.code is Code.NO_MATCHING_FLAVOR
    assert words in reason.message


def test_asking_for_topology_where_no_flavor_has_one(play):
    made = play().queues(cluster_queue("q").gpus(8))
    made.submit(workload("w").queue("q").topology(unconstrained=True))
    reason = held(made.run())["w"].reason
    assert (reason.code, "has no topology" in reason.message) == (Code.NO_MATCHING_FLAVOR, True)


def test_a_preemptor_moves_when_its_node_goes(play):
    """While it waits, the node that it waits for disappears: it waits for the other one, or gives up."""
    made = cluster(play, nodes=2, gpus=8, total=16)
    made.submit(workload("x").queue("q").gpus(8), workload("y").queue("q").gpus(8))
    made.run()
    made.submit(workload("w").queue("q").gpus(8).priority(1))
    (victim,) = evicted(made.run())
    (host,) = {"x": ["n0"], "y": ["n1"]}[victim]
    made.apply(events.NodeGone(host))
    (other,) = {"x", "y"} - {victim}
    assert evicted(made.run()) == [other]
    made.release(other)
    plan = made.run()
    assert domains(plan, "w") == {("n1" if host == "n0" else "n0",): 1}


def test_after_a_restart_nodes_are_charged_as_before(play):
    made = cluster(play, nodes=1, gpus=8)
    made.submit(workload("w").queue("q").gpus(6))
    made.run()
    again = play()
    again.change(made.objects["w"])
    again.queues(cluster_queue("q").flavor("gpus", {GPU: 32}).within(LOWER))
    again.apply(events.NodeChanged(node("n0", 8, {**POOL, RACK: "r0"}))).flavors(GPUS)
    again.apply(events.TopologyChanged(topology("t", HOSTNAME_LABEL)))
    again.submit(workload("x").queue("q").gpus(3))
    assert admitted(again.run()) == []
    again.finish("w")
    assert admitted(again.run()) == ["x"]


def test_resources_that_no_node_has_do_not_matter_to_placement(play):
    made = cluster(play, nodes=1, gpus=8)
    made.flavors(flavor("credits"))
    made.queues(cluster_queue("both").flavor("gpus", {GPU: 8}).flavor("credits", {"credits": 100}, group=1))
    pods = workload("w").queue("both").asks({GPU: 1}).topology(unconstrained=True)
    pods = pods._pods(requests={GPU: 1, "credits": 5})
    made.submit(pods)
    plan = made.run()
    assert domains(plan, "w") == {("n0",): 1}
    assert CPU not in made.state.usage("both")
