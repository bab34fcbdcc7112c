"""Placement, one sentence a case: where the pods go, or what the refusal says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from queues.core.model import (
    HOSTNAME_LABEL,
    Expression,
    Node,
    Operator,
    PodSet,
    ResourceFlavor,
    Taint,
    Toleration,
    Topology,
    TopologyAssignment,
    TopologyDomain,
    TopologyRequest,
)
from queues.core.topology.domains import Domains
from queues.core.topology.placement import NoPlacement, assuming, place, still_fits

GPU = "nvidia.com/gpu"
BLOCK, RACK, HOST = "block", "rack", HOSTNAME_LABEL
BROKEN = Taint("broken", "yes", "NoSchedule")


def node(path: str, gpus: int, *, pods: int = 110, **kw) -> Node:
    """`b1/r1/n1`: the node n1 in rack r1 of block b1."""
    block, rack, name = path.split("/")
    labels = {BLOCK: block, RACK: rack, HOST: name, **kw.pop("labels", {})}
    return Node(name, labels, {GPU: gpus, "pods": pods}, **kw)


def pods(count: int, gpus: int, *, name: str = "main", **kw) -> PodSet:
    where = {key: kw.pop(key) for key in list(kw) if key in TopologyRequest.__dataclass_fields__}
    return PodSet(name, count, {}, {GPU: gpus}, topology=TopologyRequest(**where) if where else None, **kw)


def domains_of(*nodes: Node, levels: tuple[str, ...] = (BLOCK, RACK, HOST), **flavor) -> Domains:
    domains = Domains()
    domains.topology_changed(Topology("topo", levels))
    domains.flavor_changed(ResourceFlavor("gpu", topology="topo", **flavor))
    for each in nodes:
        domains.node_changed(each)
    return domains


def placed(domains: Domains, *pod_sets: PodSet, simulate_empty: bool = False):
    counts = {pod_set.name: pod_set.count for pod_set in pod_sets}
    got = place(domains, "gpu", "topo", pod_sets, counts, simulate_empty=simulate_empty)
    if isinstance(got, NoPlacement):
        return got.message
    return {name: {"/".join(d.values): d.count for d in found.domains} for name, found in got.items()}


def at(host: str, count: int) -> TopologyAssignment:
    return TopologyAssignment((HOST,), (TopologyDomain((host,), count),))


# Two blocks; the first has a rack of two nodes and a rack of one, the second a rack of one, 8 GPUs each.
FOUR_NODES = (node("b1/r1/n1", 8), node("b1/r1/n2", 8), node("b1/r2/n3", 8), node("b2/r3/n4", 8))


@dataclass(frozen=True)
class Case:
    id: str
    pods: PodSet
    want: dict[str, int] | str
    nodes: tuple[Node, ...] = FOUR_NODES
    taken: tuple[tuple[str, int], ...] = field(default=())  # host, pods of one GPU


CASES = [
    Case(
        "of racks with the same room the first by name is taken, whichever block was chosen first",
        pods(4, 1, preferred=BLOCK),
        {"n1": 1, "n2": 1, "n4": 2},
        nodes=(node("b1/r1/n1", 1), node("b1/r2/n2", 1), node("b2/r3/n3", 1), node("b2/r4/n4", 2)),
    ),
    Case("a required rack takes the whole gang", pods(2, 8, required=RACK), {"n1": 1, "n2": 1}),
    Case(
        "of the racks that hold the gang the one with the least room is taken",
        pods(1, 8, required=RACK),
        {"n3": 1},
    ),
    Case(
        "a used rack is tighter than an empty one",
        pods(1, 4, required=RACK),
        {"n4": 1},
        taken=(("n4", 4),),
    ),
    Case(
        "a required rack that is too small is a refusal that counts pods",
        pods(3, 8, required=RACK),
        'topology "topo" allows to fit only 2 out of 3 pod(s). Total nodes: 4',
    ),
    Case(
        "a pod larger than every node fits nowhere, and the nodes' reason is given",
        pods(1, 9, required=BLOCK),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource "nvidia.com/gpu": 4',
    ),
    Case("a preferred rack that is too small becomes a block", pods(3, 8, preferred=RACK), {"n1": 1, "n2": 1, "n3": 1}),
    Case(
        "a preferred block that is too small becomes the largest blocks",
        pods(4, 8, preferred=BLOCK),
        {"n1": 1, "n2": 1, "n3": 1, "n4": 1},
    ),
    Case(
        "a preference for more than the cluster holds is refused with what there is",
        pods(5, 8, preferred=RACK),
        'topology "topo" allows to fit only 4 out of 5 pod(s). Total nodes: 4',
    ),
    Case(
        "unconstrained pods fill the smallest gap that takes all of them",
        pods(2, 1, unconstrained=True),
        {"n2": 2},
        taken=(("n2", 6), ("n1", 4)),
    ),
    Case(
        "unconstrained pods that need several nodes start with the smallest gaps",
        pods(9, 1, unconstrained=True),
        {"n1": 1, "n2": 2, "n3": 6},
        taken=(("n2", 6), ("n1", 7)),
    ),
    Case("without a request the lowest level is used, smallest gap first", pods(1, 2), {"n2": 1}, taken=(("n2", 6),)),
    Case(
        "inside the chosen rack the largest nodes come first and the last is the tightest",
        pods(9, 1, required=RACK),
        {"n1": 3, "n2": 6},
        taken=(("n1", 5), ("n2", 2)),
    ),
    Case(
        "domains of one level are named in the order of their whole path",
        pods(3, 8, required=BLOCK),
        {"n9": 1, "n1": 1, "n2": 1},
        nodes=(node("b1/r1/n9", 8), node("b1/r2/n1", 8), node("b1/r2/n2", 8)),
    ),
    Case(
        "each slice stays in one rack though the gang spans racks",
        pods(6, 4, required=BLOCK, slice_required=RACK, slice_size=2),
        {"n1": 2, "n2": 2, "n3": 2},
    ),
    Case(
        "of racks with as many slices the one with fewer pods to spare is taken",
        pods(2, 1, required=RACK, slice_required=RACK, slice_size=2),
        {"n2": 2},
        nodes=(node("b1/r1/n1", 3), node("b1/r2/n2", 2)),
    ),
    Case(
        "slices that fit only in part are counted as slices",
        pods(6, 8, required=BLOCK, slice_required=RACK, slice_size=2),
        'topology "topo" allows to fit only 1 out of 3 slice(s). Total nodes: 4',
    ),
    Case(
        "slices alone start at the top with the smallest block",
        pods(2, 4, slice_required=HOST, slice_size=2),
        {"n4": 2},
    ),
    Case(
        "a gang that does not divide into slices is refused",
        pods(3, 1, slice_required=RACK, slice_size=2),
        "3 pod(s) cannot be divided into slices of 2",
    ),
    Case("a level that the topology lacks is named", pods(1, 1, required="zone"), "no requested topology level: zone"),
    Case("no pods need no place", pods(0, 9, required=RACK), {}),
    Case(
        "the node's limit of pods counts like a resource",
        pods(3, 1, required=RACK),
        'topology "topo" allows to fit only 2 out of 3 pod(s). Total nodes: 1',
        nodes=(node("b1/r1/n1", 8, pods=2),),
    ),
    Case(
        "a resource that no node has excludes all",
        replace(pods(1, 1), node_requests={"amd.com/gpu": 1}),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 4; excluded: resource "amd.com/gpu": 4',
    ),
    Case(
        "what keeps nodes out is counted by cause",
        pods(2, 1, node_selector=(("zone", "a"),), required=RACK),
        'topology "topo" allows to fit only 1 out of 2 pod(s). Total nodes: 5; excluded: nodeSelector: 1, notReady: 1,'
        ' taint "broken=yes:NoSchedule": 1, unschedulable: 1',
        nodes=(
            node("b1/r1/n1", 1, labels={"zone": "a"}),
            node("b1/r1/n2", 8),
            node("b1/r1/n3", 8, ready=False),
            node("b1/r1/n4", 8, unschedulable=True),
            node("b1/r1/n5", 8, taints=(BROKEN,)),
        ),
    ),
    Case(
        "a pod that tolerates the taint uses the node",
        pods(1, 8, tolerations=(Toleration("broken", "Equal", "yes", "NoSchedule"),)),
        {"n5": 1},
        nodes=(node("b1/r1/n5", 8, taints=(BROKEN,)),),
    ),
    Case(
        "a soft taint keeps nobody out",
        pods(1, 8),
        {"n5": 1},
        nodes=(node("b1/r1/n5", 8, taints=(Taint("slow", "", "PreferNoSchedule"),)),),
    ),
    Case("a pod pinned to a host goes there", pods(1, 1, node_selector=((HOST, "n3"),)), {"n3": 1}),
    Case(
        "required node affinity: one of the terms has to hold",
        pods(
            1,
            1,
            affinity=(
                (Expression(RACK, Operator.IN, ("nowhere",)),),
                (Expression(BLOCK, Operator.NOT_IN, ("b1",)), Expression(HOST, Operator.EXISTS)),
            ),
        ),
        {"n4": 1},
    ),
    Case(
        "affinity compares numbers",
        pods(1, 1, affinity=((Expression("gen", Operator.GT, ("3",)),),)),
        {"n2": 1},
        nodes=(node("b1/r1/n1", 8, labels={"gen": "3"}), node("b1/r1/n2", 8, labels={"gen": "10"})),
    ),
    Case(
        "nodes that lack a level label are not part of the topology",
        pods(1, 1),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 0',
        nodes=(Node("n1", {BLOCK: "b1", HOST: "n1"}, {GPU: 8, "pods": 9}),),
    ),
    Case(
        "one hostname in two racks cannot be aimed at",
        pods(1, 1),
        {"n2": 1},
        nodes=(node("b1/r1/n1", 8), replace(node("b1/r2/n1", 8), name="other"), node("b1/r2/n2", 8)),
    ),
    Case(
        "an unlimited node is no reason to wrap around",
        pods(3, 2**62, required=HOST),
        'topology "topo" doesn\'t allow to fit any of 3 pod(s). Total nodes: 1; excluded: resource "nvidia.com/gpu": 1',
        nodes=(node("b1/r1/n1", 2**70),),
    ),
    Case(
        "use beyond 64 bits leaves nothing and does not wrap",
        pods(1, 1),
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 1; excluded: resource "nvidia.com/gpu": 1',
        nodes=(node("b1/r1/n1", 2**60),),
        taken=(("n1", 2**64),),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_placement(case: Case):
    domains = domains_of(*case.nodes)
    for host, count in case.taken:
        domains.take("gpu", at(host, count), {GPU: 1})
    got = placed(domains, case.pods)
    want = case.want if isinstance(case.want, str) else {"main": case.want} if case.pods.count else {}
    assert got == want
    if isinstance(got, dict) and got:
        assert list(got["main"]) == list(case.want)


def test_capacity_is_per_node_not_per_rack():
    """A rack of two nodes with 4 GPUs each holds two pods of 4, and none of 6."""
    racks = (node("b1/r1/n1", 4), node("b1/r1/n2", 4))
    domains = domains_of(*racks, levels=(RACK,))
    assert placed(domains, pods(2, 4, required=RACK)) == {"main": {"r1": 2}}
    assert "doesn't allow to fit any of 1 pod(s)" in placed(domains, pods(1, 6, required=RACK))


@pytest.mark.parametrize("change", [{"taints": (BROKEN,)}, {"ready": False}, {"unschedulable": True}])
def test_an_unusable_node_adds_nothing_to_its_rack(change):
    domains = domains_of(node("b1/r1/n1", 4), node("b1/r1/n2", 4, **change), levels=(RACK,))
    assert placed(domains, pods(1, 4, required=RACK)) == {"main": {"r1": 1}}
    domains.take("gpu", TopologyAssignment((RACK,), (TopologyDomain(("r1",), 1),)), {GPU: 4})
    assert "any of 1 pod(s)" in placed(domains, pods(1, 4, required=RACK))


def test_small_pods_somewhere_in_a_rack_may_stand_on_different_nodes():
    """Two 1-GPU pods in a rack of two nodes leave surely no whole node, but still 14 single GPUs."""
    domains = domains_of(node("b1/r1/n1", 8), node("b1/r1/n2", 8), levels=(BLOCK, RACK))
    domains.take("gpu", TopologyAssignment((BLOCK, RACK), (TopologyDomain(("b1", "r1"), 2),)), {GPU: 1})
    assert "any of 1 pod(s)" in placed(domains, pods(1, 8, required=RACK))
    assert placed(domains, pods(14, 1, required=RACK)) == {"main": {"b1/r1": 14}}


def test_pods_without_gpus_cost_a_rack_no_gpus():
    domains = domains_of(node("b1/r1/n1", 8), node("b1/r1/n2", 8), levels=(RACK,))
    domains.take("gpu", TopologyAssignment((RACK,), (TopologyDomain(("r1",), 50),)), {"cpu": 1})
    assert placed(domains, pods(2, 8, required=RACK)) == {"main": {"r1": 2}}


def test_a_node_that_comes_back_still_holds_what_was_taken():
    domains = domains_of(*FOUR_NODES)
    domains.take("gpu", at("n4", 7), {GPU: 1})
    domains.pod_placed("uid", "n3", {GPU: 5})
    for gone in FOUR_NODES:
        assert domains.node_gone(gone.name)
    for back in reversed(FOUR_NODES):
        assert domains.node_changed(back)
    pinned = [placed(domains, pods(4, 1, node_selector=((HOST, host),))) for host in ("n3", "n4")]
    assert ["only 3 out of 4" in pinned[0], "only 1 out of 4" in pinned[1]] == [True, True]


def test_use_of_a_host_is_seen_by_every_flavor_over_it():
    domains = domains_of(*FOUR_NODES)
    domains.flavor_changed(ResourceFlavor("spot", ((BLOCK, "b2"),), topology="topo"))
    domains.take("gpu", at("n4", 1), {GPU: 3})
    got = place(domains, "spot", "topo", [pods(1, 6)], {})
    assert isinstance(got, NoPlacement)
    domains.give_back("gpu", at("n4", 1), {GPU: 3})
    assert place(domains, "spot", "topo", [pods(1, 6)], {}) == {"main": at("n4", 1)}


def test_flavors_see_what_is_assumed_for_the_same_workload():
    domains = domains_of(*FOUR_NODES[:1])
    domains.flavor_changed(ResourceFlavor("spot", topology="topo"))
    with assuming(domains) as assume:
        assume("gpu", at("n1", 1), {GPU: 6})
        assert "any of 1" in placed(domains, pods(1, 3), simulate_empty=True)
        assert isinstance(place(domains, "spot", "topo", [pods(1, 3)], {}), NoPlacement)
    assert placed(domains, pods(1, 3)) == {"main": {"n1": 1}}


def test_an_empty_cluster_is_one_without_assignments_but_with_other_pods():
    domains = domains_of(node("b1/r1/n1", 8))
    domains.take("gpu", at("n1", 8), {GPU: 1})
    assert "any of 4" in placed(domains, pods(4, 1))
    assert placed(domains, pods(4, 1), simulate_empty=True) == {"main": {"n1": 4}}
    domains.pod_placed("uid", "n1", {GPU: 5})
    assert "only 3 out of 4" in placed(domains, pods(4, 1), simulate_empty=True)
    assert domains.pod_gone("uid")
    assert not domains.pod_gone("uid")
    assert placed(domains, pods(4, 1), simulate_empty=True) == {"main": {"n1": 4}}


def test_free_resources_in_parts_are_those_of_now_and_of_what_is_not_closed():
    domains = domains_of(node("b1/r1/n1", 8), node("b1/r1/n2", 8), node("b1/r2/n3", 8))
    nothing, rack = np.zeros(0, np.int64), 1

    def in_parts(closed: list[int] | None = None) -> list[int]:
        leaves = nothing if closed is None else np.array(closed, np.int64)
        return domains.pods_in_parts("gpu", pods(1, 3), rack, leaves).tolist()

    assert in_parts() == [5, 2]
    domains.take("gpu", at("n1", 1), {GPU: 6})
    assert in_parts() == [3, 2]
    assert in_parts([1]) == [0, 2], "what is left of n1 is not enough by itself"
    assert in_parts() == [3, 2]
    domains.node_changed(node("b1/r2/n4", 8))
    assert in_parts() == [3, 5]
    domains.node_gone("n3")
    assert in_parts() == [3, 2]


def test_nobody_is_placed_when_one_pod_set_has_no_place():
    domains = domains_of(node("b1/r1/n1", 8))
    for simulate_empty in (False, True):
        got = placed(domains, pods(1, 5, name="a"), pods(1, 4, name="b"), simulate_empty=simulate_empty)
        assert got.startswith('topology "topo" doesn\'t allow to fit any of 1 pod(s)')
    assert placed(domains, pods(1, 5, name="a"), pods(1, 3, name="b")) == {"a": {"n1": 1}, "b": {"n1": 1}}


def test_a_leader_shares_the_domain_of_its_workers():
    group = {"required": RACK, "pod_set_group": "g"}
    domains = domains_of(*FOUR_NODES)
    got = placed(domains, pods(3, 4, name="workers", **group), pods(1, 1, name="leader", **group))
    assert got == {"leader": {"n1": 1}, "workers": {"n1": 1, "n2": 2}}


def test_giving_back_more_than_was_taken_is_a_bug_that_shows():
    domains = domains_of(*FOUR_NODES)
    with pytest.raises(ValueError, match="given back"):
        domains.give_back("gpu", at("n1", 1), {GPU: 1})


def test_changes_in_place_keep_the_tree_and_changes_of_place_do_not():
    domains = domains_of(*FOUR_NODES)
    tree = domains.tree_of("gpu")
    assert not domains.node_changed(FOUR_NODES[0])
    assert domains.node_changed(replace(FOUR_NODES[0], ready=False, taints=(BROKEN,), allocatable={GPU: 2}))
    assert domains.tree_of("gpu") is tree
    domains.node_changed(replace(FOUR_NODES[0], labels={**FOUR_NODES[0].labels, RACK: "r7"}))
    assert domains.tree_of("gpu") is not tree


def test_an_assignment_stops_fitting_when_others_took_its_room_or_its_domain_is_gone():
    domains = domains_of(*FOUR_NODES)
    pod_set = pods(1, 8)
    assert still_fits(domains, "gpu", [pod_set], {"main": at("n1", 1)})
    domains.take("gpu", at("n1", 1), {GPU: 1})
    assert not still_fits(domains, "gpu", [pod_set], {"main": at("n1", 1)})
    assert not still_fits(domains, "gpu", [pod_set], {"main": at("n9", 1)})
    both = [pods(1, 4, name="a"), pods(1, 5, name="b")]
    assert not still_fits(domains, "gpu", both, {"a": at("n2", 1), "b": at("n2", 1)})


def test_the_flavor_tolerates_for_its_pods():
    tainted = node("b1/r1/n1", 8, taints=(BROKEN,))
    assert "any of 1" in placed(domains_of(tainted), pods(1, 1))
    assert placed(domains_of(tainted, tolerations=(Toleration("broken", "Exists"),)), pods(1, 1)) == {"main": {"n1": 1}}


def test_a_flavor_sees_only_nodes_with_its_labels():
    domains = domains_of(*FOUR_NODES, node_labels=((BLOCK, "b2"),))
    assert placed(domains, pods(2, 8)).endswith("allows to fit only 1 out of 2 pod(s). Total nodes: 1")
    assert domains.levels_of("gpu") == (BLOCK, RACK, HOST)
    domains.topology_gone("topo")
    assert domains.levels_of("gpu") is None
    assert placed(domains, pods(1, 1)) == 'topology "topo" not found'
