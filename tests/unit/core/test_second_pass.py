"""Workloads that hold quota and lack places: a host failed, or the topology was delayed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from queues.core import events
from queues.core.model import HOSTNAME_LABEL, AdmissionCheck, PodSet
from queues.core.placing import MULTIKUEUE, PROVISIONING
from queues.core.plan import Admit, GiveUp, Place
from queues.core.policy import Policy, TopologyRules
from queues.core.topology.placement import NoPlacement, place
from queues.core.topology.replacement import Lost, replaced
from tests.builders import GPU, LOWER, Play, admitted, cluster_queue, flavor, node, topology, workload
from tests.unit.core.topology.test_placement import BLOCK, RACK, domains_of, pods
from tests.unit.core.topology.test_placement import node as host

RULES = TopologyRules()


def rack(name: str, *gpus: int, block: str = "b1"):
    return [host(f"{block}/{name}/{name}n{index}", each) for index, each in enumerate(gpus, 1)]


@dataclass(frozen=True)
class Case:
    """`before` are the nodes while the pods are placed, `after` those that are there when the host fails."""

    id: str
    pods: PodSet
    before: list[Any]
    failed: str
    spares: list[Any]
    want: dict[str, int] | str


CASES = [
    Case(
        "only the pods of the failed host move",
        pods(3, 8, required=RACK),
        rack("r1", 8, 8, 8),
        "r1n2",
        [host("b1/r1/spare", 8)],
        {"r1n1": 1, "r1n3": 1, "spare": 1},
    ),
    Case(
        "a required rack is not left though another one has room",
        pods(2, 8, required=RACK),
        rack("r1", 8, 8),
        "r1n2",
        rack("r2", 8, 8, 8),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource "nvidia.com/gpu": 1',
    ),
    Case(
        "room on the healthy hosts of the rack is used",
        pods(4, 2, required=RACK),
        rack("r1", 4, 4),
        "r1n2",
        [host("b1/r1/spare", 2), host("b1/r1/spare2", 2)],
        {"r1n1": 2, "spare": 1, "spare2": 1},
    ),
    Case(
        "a preferred rack is kept when it has room",
        pods(2, 8, preferred=RACK),
        rack("r1", 8, 8),
        "r1n1",
        [*rack("r0", 8), host("b1/r1/zz", 9)],
        {"r1n2": 1, "zz": 1},
    ),
    Case(
        "a preferred rack without room is left for the same block",
        pods(2, 8, preferred=RACK),
        rack("r1", 8, 8),
        "r1n1",
        [*rack("r0", 8, block="b0"), *rack("r2", 9)],
        {"r1n2": 1, "r2n1": 1},
    ),
    Case(
        "a gang that was on one host only may start anywhere",
        pods(2, 4, required=RACK),
        rack("r1", 8),
        "r1n1",
        rack("r2", 8),
        {"r2n1": 2},
    ),
    Case(
        "a broken slice is rebuilt in its rack",
        pods(4, 8, required=BLOCK, slice_required=RACK, slice_size=2),
        [*rack("r1", 8, 8), *rack("r2", 8, 8)],
        "r1n1",
        [*rack("r0", 8, 8), host("b1/r1/spare", 9)],
        {"r1n2": 1, "spare": 1, "r2n1": 1, "r2n2": 1},
    ),
    Case(
        "a broken slice whose rack is full has no place",
        pods(4, 8, required=BLOCK, slice_required=RACK, slice_size=2),
        [*rack("r1", 8, 8), *rack("r2", 8, 8)],
        "r1n1",
        rack("r3", 8, 8),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s)',
    ),
    Case(
        "whole slices may go to another rack of the block",
        pods(4, 4, required=BLOCK, slice_required=RACK, slice_size=2),
        [*rack("r1", 8), *rack("r2", 8)],
        "r1n1",
        rack("r3", 4, 4),
        {"r2n1": 2, "r3n1": 1, "r3n2": 1},
    ),
    Case(
        "whole slices stay whole",
        pods(4, 4, required=BLOCK, slice_required=RACK, slice_size=2),
        [*rack("r1", 8), *rack("r2", 8)],
        "r1n1",
        [*rack("r3", 4), *rack("r4", 4)],
        'topology "topo" doesn\'t allow to fit any of 1 slice(s)',
    ),
    Case(
        "the innermost broken layer says where to go",
        pods(8, 2, required=BLOCK, slice_required=BLOCK, slice_size=8, inner_slices=((RACK, 4),)),
        [*rack("r1", 4, 4), *rack("r2", 8)],
        "r1n1",
        [*rack("r0", 8), host("b1/r1/spare", 4)],
        {"r1n2": 2, "spare": 2, "r2n1": 4},
    ),
    Case(
        "unconstrained pods go next to the healthy ones",
        pods(2, 8, unconstrained=True),
        rack("r1", 8, 8),
        "r1n2",
        [*rack("r0", 8), host("b1/r1/spare", 9)],
        {"r1n1": 1, "spare": 1},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
@pytest.mark.parametrize("is_gone", [True, False], ids=["gone", "not ready"])
def test_replacement(case: Case, is_gone: bool):
    domains = domains_of(*case.before)
    placed = place(domains, "gpu", "topo", [case.pods], {})
    assert not isinstance(placed, NoPlacement)
    domains.take("gpu", placed["main"], case.pods.node_requests)
    dead = next(each for each in case.before if each.name == case.failed)
    if is_gone:
        domains.node_gone(case.failed)
    else:
        domains.node_changed(replace(dead, ready=False))
    for spare in case.spares:
        domains.node_changed(spare)
    got = replaced(domains, "gpu", "topo", Lost(case.pods, placed["main"], {case.failed}), RULES)
    if isinstance(got, NoPlacement):
        assert isinstance(case.want, str), got.message
        assert got.message.startswith(case.want.partition(". ")[0])
    else:
        assert {each.values[-1]: each.count for each in got.domains} == case.want
        assert [each.values for each in got.domains] == sorted(
            (each.values for each in got.domains), key=lambda values: domains.tree_of("gpu").leaf_of[values]
        )


def test_a_healthy_host_that_is_gone_as_well_is_no_replacement():
    domains = domains_of(*rack("r1", 8, 8, 8))
    gang = pods(2, 8, required=RACK)
    placed = place(domains, "gpu", "topo", [gang], {})
    domains.node_gone("r1n1")
    domains.node_gone("r1n2")
    got = replaced(domains, "gpu", "topo", Lost(gang, placed["main"], {"r1n2"}), RULES)
    assert isinstance(got, NoPlacement)
    assert "r1n1" in got.message


def test_a_leader_is_replaced_in_the_rack_of_its_workers():
    group = {"required": RACK, "pod_set_group": "g"}
    workers, leader = pods(2, 8, name="workers", **group), pods(1, 1, name="leader", **group)
    domains = domains_of(*rack("r1", 8, 8, 1))
    placed = place(domains, "gpu", "topo", [leader, workers], {})
    assert placed["leader"].domains[0].values == ("r1n3",)
    for each in (workers, leader):
        domains.take("gpu", placed[each.name], each.node_requests)
    domains.node_gone("r1n3")
    lost = Lost(leader, placed["leader"], {"r1n3"}, placed["workers"])
    for spare in rack("r0", 8):
        domains.node_changed(spare)
    assert isinstance(replaced(domains, "gpu", "topo", lost, RULES), NoPlacement)
    domains.node_changed(host("b1/r1/spare", 1))
    got = replaced(domains, "gpu", "topo", lost, RULES)
    assert got.domains[0].values == ("spare",)


# ---------------------------------------------------------------- in the state


def cluster(play, *, nodes: int = 3, policy: Policy | None = None) -> Play:
    made = play(policy).apply(events.TopologyChanged(topology("t", RACK, HOSTNAME_LABEL)))
    made.flavors(flavor("gpus", {"pool": "gpu"}, topology="t"))
    for index in range(nodes):
        made.apply(events.NodeChanged(node(f"n{index}", 8, {"pool": "gpu", RACK: "r"})))
    return made.queues(cluster_queue("q").flavor("gpus", {GPU: 64}).within(LOWER))


def hosts_of(play: Play, name: str) -> dict[str, int]:
    admission = play.objects[name].admission
    return {d.values[-1]: d.count for one in admission.pod_sets if one.topology for d in one.topology.domains}


def fail(made: Play, name: str, *hosts: str) -> None:
    for each in hosts:
        made.apply(events.NodeGone(each))
    made.change(replace(made.objects[name], failed_hosts=hosts))


def test_nobody_is_evicted_for_a_replacement_and_without_one_the_gang_goes(play):
    made = cluster(play)
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK).priority(9))
    assert admitted(made.run()) == ["w"]
    made.submit(workload("low").queue("q").gpus(8))
    assert admitted(made.run()) == ["low"]
    fail(made, "w", "n0")
    (decision,) = made.run()
    assert isinstance(decision, GiveUp)
    assert decision.hosts == ("n0",)
    assert "n0" in decision.message
    assert made.run() == ()


def test_the_replaced_host_is_charged_and_the_failed_one_is_free_again(play):
    made = cluster(play)
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    made.run()
    fail(made, "w", "n0")
    (decision,) = made.run()
    assert isinstance(decision, Place)
    assert hosts_of(made, "w") == {"n1": 1, "n2": 1}
    assert made.used("q", flavor_name="gpus") == 16
    made.apply(events.NodeChanged(node("n0", 8, {"pool": "gpu", RACK: "r"})))
    made.submit(workload("x").queue("q").gpus(8))
    assert admitted(made.run()) == ["x"]
    assert hosts_of(made, "x") == {"n0": 1}


def test_a_replacement_comes_before_those_who_wait(play):
    made = cluster(play)
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    made.run()
    made.submit(workload("x").queue("q").gpus(8).priority(99).topology(required=RACK))
    fail(made, "w", "n0")
    plan = made.decide()
    assert isinstance(plan[0], Place)
    assert admitted(plan) == []


def test_a_write_that_was_refused_is_decided_again(play):
    made = cluster(play)
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    made.run()
    fail(made, "w", "n0")
    first = made.decide()
    made.apply(events.WriteRefused("w"))
    assert made.run() == first


def test_without_failing_fast_the_pods_wait_for_a_node(play):
    made = cluster(play, nodes=2, policy=Policy(topology=TopologyRules(fails_fast=False)))
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    made.run()
    fail(made, "w", "n0")
    assert made.run() == ()
    made.apply(events.NodeChanged(node("n7", 8, {"pool": "gpu", RACK: "r"})))
    (decision,) = made.run()
    assert isinstance(decision, Place)
    assert hosts_of(made, "w") == {"n1": 1, "n7": 1}


def test_a_host_that_recovers_in_time_is_not_replaced(play):
    made = cluster(play)
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    made.run()
    made.change(replace(made.objects["w"], failed_hosts=("n0",)))
    made.change(replace(made.objects["w"], failed_hosts=()))
    assert made.run() == ()


@pytest.mark.parametrize(
    ("controller", "on", "is_delayed"),
    [(PROVISIONING, (), True), (PROVISIONING, ("gpus",), True), (PROVISIONING, ("other",), False),
     (MULTIKUEUE, (), True), ("example.com/own", (), False)],
    ids=["provisioning", "provisioning for this flavor", "provisioning for another flavor", "multikueue", "another"],
)  # fmt: skip
def test_topology_waits_for_checks_that_make_nodes(play, controller, on, is_delayed):
    made = cluster(play, nodes=1)
    made.apply(events.CheckChanged(AdmissionCheck("c", controller, active=True)))
    made.queues(cluster_queue("q").flavor("gpus", {GPU: 64}).checks("c", on=on))
    made.submit(workload("w").queue("q").gpus(8).gang(1).topology(required=RACK))
    (decision,) = made.run()
    assert isinstance(decision, Admit)
    (one,) = decision.admission.pod_sets
    assert (one.is_delayed, one.topology is None) == (is_delayed, is_delayed)


def test_a_delayed_topology_is_decided_when_its_checks_are_ready(play):
    made = cluster(play, nodes=0)
    made.apply(events.CheckChanged(AdmissionCheck("c", PROVISIONING, active=True)))
    made.queues(cluster_queue("q").flavor("gpus", {GPU: 64}).checks("c"))
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    assert admitted(made.run()) == ["w"]
    made.apply(events.NodeChanged(node("n0", 8, {"pool": "gpu", RACK: "r"})))
    assert made.run() == (), "the checks are not ready"
    made.change(replace(made.objects["w"], is_to_be_placed=True))
    assert made.run() == (), "there is no room for both yet"
    made.apply(events.NodeChanged(node("n1", 8, {"pool": "gpu", RACK: "r"})))
    (decision,) = made.run()
    assert isinstance(decision, Place)
    assert not decision.admission.pod_sets[0].is_delayed
    assert hosts_of(made, "w") == {"n0": 1, "n1": 1}


def test_an_evicted_workload_gets_no_replacement(play):
    made = cluster(play)
    made.submit(workload("w").queue("q").gpus(8).gang(2).topology(required=RACK))
    made.run()
    made.change(replace(made.objects["w"], evicted=True))
    fail(made, "w", "n0")
    assert made.run() == ()
