"""Where pods go by the policy of their flavor, one sentence a case."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from queues.core.model import (
    HOSTNAME_LABEL,
    Node,
    Packing,
    PodSet,
    ResourceFlavor,
    Size,
    Taint,
    Toleration,
    Topology,
    TopologyRequest,
)
from queues.core.topology import devices
from queues.core.topology.domains import Domains
from queues.core.topology.placement import NoPlacement, place
from queues.core.topology.sizes import LARGEST, MOST_FREQUENT, Sizes, sizes_of
from queues.core.topology.spread import shared_evenly

GPU, SHARE = "nvidia.com/gpu", "example.com/gpu-milli"
BLOCK, RACK, HOST = "block", "rack", HOSTNAME_LABEL


def node(path: str, gpus: int, cpu: int = 100, **kw) -> Node:
    block, rack, name = path.split("/")
    return Node(name, {BLOCK: block, RACK: rack, HOST: name}, {GPU: gpus, "cpu": cpu, "pods": 110}, **kw)


def pods(count: int, gpus: int, cpu: int = 0, *, name: str = "main", **where) -> PodSet:
    return PodSet(name, count, {}, {GPU: gpus, "cpu": cpu}, topology=TopologyRequest(**where) if where else None)


def domains_of(packing: Packing, *nodes: Node) -> Domains:
    domains = Domains()
    domains.topology_changed(Topology("topo", (BLOCK, RACK, HOST)))
    domains.flavor_changed(ResourceFlavor("gpu", topology="topo", packing=packing))
    for each in nodes:
        domains.node_changed(each)
    return domains


def placed(domains: Domains, *pod_sets: PodSet) -> dict[str, int] | str:
    got = place(domains, "gpu", "topo", pod_sets, {})
    if isinstance(got, NoPlacement):
        return got.message
    (found,) = got.values()
    return {"/".join(each.values): each.count for each in found.domains}


def coming(domains: Domains, *pod_sets: PodSet, times: int = 1) -> None:
    sizes = domains.sizes["gpu"]
    for index, pod_set in enumerate(pod_sets * times):
        sizes.waits(f"w{index}", sizes_of([pod_set], [pod_set.count]))


# Two racks in the first block, one in the second.
NODES = (node("b1/r1/n1", 8), node("b1/r1/n2", 4), node("b1/r2/n3", 8), node("b2/r3/n4", 8))


@dataclass(frozen=True)
class Spread:
    id: str
    pods: PodSet
    want: dict[str, int] | str
    nodes: tuple[Node, ...] = NODES


SPREAD = [
    Spread("one pod goes where most is free", pods(1, 1), {"n1": 1}),
    Spread("pods go to as many blocks, racks and nodes as there are", pods(4, 1), {"n1": 1, "n3": 1, "n4": 2}),
    Spread("what is full gets no more", pods(14, 2), {"n1": 4, "n2": 2, "n3": 4, "n4": 4}),
    Spread("inside a required rack pods are shared out too", pods(4, 1, required=RACK), {"n1": 2, "n2": 2}),
    Spread("the roomiest rack is the required one", pods(2, 1, required=RACK), {"n1": 1, "n2": 1}),
    Spread(
        "a preferred rack that is too small is left for its block",
        pods(7, 2, preferred=RACK),
        {"n1": 2, "n2": 2, "n3": 3},
    ),
    Spread(
        "no block is large enough for a preference, so all are used",
        pods(12, 2, preferred=RACK),
        {"n1": 2, "n2": 2, "n3": 4, "n4": 4},
    ),
    Spread(
        "slices stay together",
        pods(4, 2, slice_required=RACK, slice_size=2),
        {"n1": 1, "n2": 1, "n4": 2},
    ),
    Spread(
        "a required rack that is too small is no place",
        pods(9, 2, required=RACK),
        'topology "topo" allows to fit only 6 out of 9 pod(s). Total nodes: 4',
    ),
    Spread(
        "too many pods have no place",
        pods(15, 2),
        'topology "topo" allows to fit only 14 out of 15 pod(s). Total nodes: 4',
    ),
]


@pytest.mark.parametrize("case", SPREAD, ids=lambda case: case.id)
def test_spread(case: Spread) -> None:
    assert placed(domains_of(Packing.SPREAD, *case.nodes), case.pods) == case.want


@pytest.mark.parametrize(
    ("room", "need", "want"),
    [
        ([3, 3, 3], 3, [1, 1, 1]),
        ([1, 5, 2], 6, [1, 3, 2]),
        ([0, 2, 2], 3, [0, 2, 1]),
        ([2, 4, 4], 7, [2, 3, 2]),
        ([5], 5, [5]),
        ([1, 1], 2, [1, 1]),
        ([4, 1], 0, [0, 0]),
    ],
)
def test_shared_evenly(room: list[int], need: int, want: list[int]) -> None:
    assert shared_evenly(np.array(room), need).tolist() == want


# ------------------------------------------------------------------ room for what comes


@dataclass(frozen=True)
class KeepsRoom:
    id: str
    coming: tuple[PodSet, ...]
    pods: PodSet
    want: dict[str, int]
    nodes: tuple[Node, ...]


WHOLE = pods(1, 8)
KEEPS_ROOM = [
    KeepsRoom(
        "a small pod leaves the whole node to what needs one",
        (WHOLE,),
        pods(1, 1),
        {"n2": 1},
        (node("b1/r1/n1", 8), node("b1/r1/n2", 12)),
    ),
    KeepsRoom(
        "the tighter node is taken where nothing would be lost on either",
        (pods(1, 4),),
        pods(1, 1),
        {"n2": 1},
        (node("b1/r1/n1", 7), node("b1/r1/n2", 5)),
    ),
    KeepsRoom(
        "a pod without GPUs leaves cores to those that need them",
        (pods(1, 1, 10),),
        pods(1, 0, 10),
        {"n2": 1},
        (node("b1/r1/n1", 8, cpu=80), node("b1/r1/n2", 2, cpu=60)),
    ),
    KeepsRoom(
        "a gang's place is not broken where another one has a node to spare",
        (pods(2, 8, required=RACK),),
        pods(1, 1),
        {"n3": 1},
        (node("b1/r1/n1", 8), node("b1/r1/n2", 8), node("b2/r2/n3", 24)),
    ),
    KeepsRoom(
        "of two racks the one is broken that no gang fits into any more",
        (pods(2, 8, required=RACK),),
        pods(1, 1),
        {"n3": 1},
        (node("b1/r1/n1", 8), node("b1/r1/n2", 8), node("b2/r2/n3", 8)),
    ),
    KeepsRoom(
        "the size that comes more often counts more",
        (pods(1, 3), pods(1, 3), pods(1, 3), pods(1, 4)),
        pods(1, 1),
        {"n1": 1},
        (node("b1/r1/n1", 4), node("b1/r1/n2", 3)),
    ),
    KeepsRoom(
        "pods that one node takes together stay together",
        (pods(1, 8),),
        pods(4, 1, preferred=RACK),
        {"n2": 4},
        (node("b1/r1/n1", 8), node("b1/r1/n2", 4)),
    ),
    KeepsRoom(
        "a gang of many nodes goes by Kueue's order",
        (pods(1, 8),),
        pods(2, 8, required=RACK),
        {"n1": 1, "n2": 1},
        (node("b1/r1/n1", 8), node("b1/r1/n2", 8), node("b1/r2/n3", 8)),
    ),
]


@pytest.mark.parametrize("case", KEEPS_ROOM, ids=lambda case: case.id)
def test_room_is_kept_for_what_comes(case: KeepsRoom) -> None:
    domains = domains_of(Packing.FRAGMENTATION_AWARE, *case.nodes)
    coming(domains, *case.coming)
    assert placed(domains, case.pods) == case.want


def test_what_the_flavor_tolerates_what_is_to_come_tolerates_too() -> None:
    taint = Taint("nvidia.com/gpu", effect="NoSchedule")
    domains = domains_of(Packing.FRAGMENTATION_AWARE, *(replace(each, taints=(taint,)) for each in KEEPS_ROOM[0].nodes))
    domains.flavor_changed(
        ResourceFlavor(
            "gpu",
            topology="topo",
            packing=Packing.FRAGMENTATION_AWARE,
            tolerations=(Toleration("nvidia.com/gpu", "Exists"),),
        )
    )
    coming(domains, WHOLE)
    assert placed(domains, pods(1, 1)) == {"n2": 1}


def test_without_anything_to_come_it_is_kueues_order() -> None:
    nodes = (node("b1/r1/n1", 8), node("b1/r1/n2", 12))
    assert placed(domains_of(Packing.FRAGMENTATION_AWARE, *nodes), pods(1, 1)) == {"n1": 1}


# ------------------------------------------------------------------ what is known to come


def size(gpus: int) -> Size:
    return Size(((GPU, gpus), ("pods", 1)))


def test_what_waits_counts_until_it_is_gone() -> None:
    sizes = Sizes()
    sizes.waits("a", ((size(1), 3),))
    sizes.waits("a", ((size(2), 1),))
    assert sizes.coming() == ((size(2), 1),)
    sizes.gone("a")
    assert sizes.coming() == ()


def test_what_was_started_counts_until_others_came_after_it() -> None:
    sizes = Sizes()
    sizes.remembered(((size(8), 1), (size(4), 1)))
    for index in range(2047):
        sizes.started(f"w{index}", ((size(1), 1),))
    assert dict(sizes.coming()) == {size(1): 2047, size(4): 1}


def test_the_most_frequent_sizes_are_told_and_equals_in_one_order() -> None:
    sizes, backwards = Sizes(), Sizes()
    count = MOST_FREQUENT + LARGEST + 10
    for index in range(count):
        sizes.waits(f"w{index}", ((size(index + 1), 1),))
        backwards.waits(f"w{index}", ((size(count - index), 1),))
    assert sizes.coming() == backwards.coming()
    assert len(sizes.coming()) == MOST_FREQUENT + LARGEST


def test_a_large_size_is_told_however_seldom_it_comes() -> None:
    sizes = Sizes()
    for index in range(200):
        sizes.waits(f"w{index}", ((size(index + 1), 2),))
    gang = Size(((GPU, 1), ("pods", 1)), 1000, RACK)
    sizes.waits("gang", ((gang, 1),))
    sizes.waits("large", ((size(900), 1),))
    told = dict(sizes.coming())
    assert gang in told
    assert size(900) in told
    assert size(200) in told


def test_pods_that_stay_together_are_one_size_and_others_each_their_own() -> None:
    together, apart = pods(4, 8, required=RACK), pods(3, 1)
    (gang,) = sizes_of([together], [4])
    (single,) = sizes_of([apart], [3])
    assert (gang[0].pods, gang[0].level, gang[1]) == (4, RACK, 4)
    assert (single[0].pods, single[0].level, single[1]) == (1, None, 3)


# ------------------------------------------------------------------ devices


def sharing(name: str, gpus: int) -> Node:
    labels = {BLOCK: "b", RACK: "r", HOST: name}
    return Node(name, labels, {SHARE: gpus * 1000, "pods": 110}, devices={SHARE: gpus})


def share(amount: int, count: int = 1) -> PodSet:
    return PodSet("main", count, {}, {SHARE: amount})


def test_a_share_sits_on_one_gpu() -> None:
    domains = domains_of(Packing.PACK, sharing("n1", 2))
    for uid in ("a", "b"):
        domains.pod_placed(uid, "n1", {SHARE: 600})
    assert placed(domains, share(500)) == (
        'topology "topo" doesn\'t allow to fit any of 1 pod(s). Total nodes: 1; '
        'excluded: resource "example.com/gpu-milli" on one device: 1'
    )
    assert placed(domains, share(400, 2)) == {"n1": 2}
    domains.pod_gone("a")
    assert placed(domains, share(500)) == {"n1": 1}


def test_more_than_a_gpu_takes_whole_ones() -> None:
    domains = domains_of(Packing.PACK, sharing("n1", 4))
    domains.pod_placed("a", "n1", {SHARE: 100})
    assert placed(domains, share(3000)) == {"n1": 1}
    domains.pod_placed("b", "n1", {SHARE: 2000})
    assert isinstance(placed(domains, share(2000)), str)


def test_devices_that_become_known_later_count_what_is_there() -> None:
    domains = domains_of(Packing.PACK)
    domains.pod_placed("a", "n1", {SHARE: 600})
    domains.node_changed(sharing("n1", 1))
    assert isinstance(placed(domains, share(500)), str)


def test_assignments_take_shares_and_give_them_back() -> None:
    domains = domains_of(Packing.PACK, sharing("n1", 2))
    both = share(600, 2)
    found = place(domains, "gpu", "topo", [both], {})
    assert not isinstance(found, NoPlacement)
    domains.take("gpu", found["main"], both.node_requests)
    assert isinstance(placed(domains, share(600)), str)
    domains.give_back("gpu", found["main"], both.node_requests)
    assert placed(domains, share(600)) == {"n1": 1}


def test_a_small_share_goes_to_the_node_whose_gpu_is_broken_already() -> None:
    domains = domains_of(Packing.FRAGMENTATION_AWARE, sharing("n1", 2), sharing("n2", 2))
    domains.pod_placed("a", "n2", {SHARE: 300})
    coming(domains, share(1000), share(1000))
    assert placed(domains, share(500)) == {"n2": 1}


@pytest.mark.parametrize(
    ("held", "want"),
    [
        pytest.param([], [10, 10, 10], id="nothing is held"),
        pytest.param([(6, 1), (4, 1)], [0, 10, 10], id="the fullest that still takes it"),
        pytest.param([(4, 1), (7, 1), (6, 1)], [3, 0, 10], id="the largest first"),
        pytest.param([(20, 1), (3, 1)], [0, 0, 7], id="whole ones"),
        pytest.param([(6, 4)], [0, 0, 0], id="more than there is"),
    ],
)
def test_packed(held: list[tuple[int, int]], want: list[int]) -> None:
    assert devices.packed(3, 30, held) == want


HUGE = [pytest.param(2**bits, id=f"2**{bits}") for bits in (49, 62, 70)]


@pytest.mark.parametrize("amount", HUGE)
def test_more_of_a_device_than_can_be_counted_fits_nowhere(amount: int) -> None:
    domains = domains_of(Packing.PACK, sharing("n1", 2))
    assert isinstance(placed(domains, share(amount)), str)


@pytest.mark.parametrize("amount", HUGE)
@pytest.mark.parametrize("resource", [GPU, SHARE])
def test_no_room_is_kept_for_what_never_fits(resource: str, amount: int) -> None:
    domains = domains_of(Packing.FRAGMENTATION_AWARE, sharing("n1", 2), node("b1/r1/n2", 8))
    coming(domains, PodSet("main", 1, {}, {resource: amount}))
    assert placed(domains, pods(1, 1)) == {"n2": 1}
    assert placed(domains, share(1)) == {"n1": 1}
