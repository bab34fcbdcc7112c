"""Whatever the policy of a flavor, places hold on nodes and devices, and are what the documented order says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from queues.core.model import HOSTNAME_LABEL, Node, Packing, PodSet, ResourceFlavor, Topology, TopologyRequest
from queues.core.topology.domains import Domains
from queues.core.topology.placement import NoPlacement, place
from queues.core.topology.sizes import sizes_of
from tests.oracle import packing as oracle
from tests.properties.test_placement import GPU, LEVELS, clusters, pod_sets

SHARE = "example.com/gpu-milli"
REQUESTS = (None, TopologyRequest(required="rack"), TopologyRequest(preferred="rack"))


def domains_of(packing: Packing, nodes: list[Node]) -> Domains:
    domains = Domains()
    domains.topology_changed(Topology("topo", LEVELS))
    domains.flavor_changed(ResourceFlavor("gpu", topology="topo", packing=packing))
    for node in nodes:
        domains.node_changed(node)
    return domains


def placed(domains: Domains, pod_set: PodSet):
    return place(domains, "gpu", "topo", [pod_set], {})


def as_tuples(assignment):
    return tuple((domain.values, domain.count) for domain in assignment.domains)


@given(clusters(), pod_sets())
def test_spread_is_one_after_the_other(nodes, pod_set):
    want = oracle.spread(LEVELS, nodes, pod_set, pod_set.count)
    got = placed(domains_of(Packing.SPREAD, nodes), pod_set)
    assert want == (got.fits if isinstance(got, NoPlacement) else as_tuples(got["main"]))


@given(clusters(), pod_sets(), st.lists(pod_sets(), min_size=1, max_size=4))
def test_pods_go_to_the_host_where_least_is_lost(nodes, pod_set, coming):
    domains = domains_of(Packing.FRAGMENTATION_AWARE, nodes)
    for index, each in enumerate(coming):
        domains.sizes["gpu"].waits(f"w{index}", sizes_of([each], [each.count]))
    got = placed(domains, pod_set)
    packed = placed(domains_of(Packing.PACK, nodes), pod_set)
    assert isinstance(got, NoPlacement) is isinstance(packed, NoPlacement)
    if isinstance(got, NoPlacement):
        return
    host = oracle.least_harmful(LEVELS, nodes, pod_set, domains.sizes["gpu"].coming())
    assert as_tuples(got["main"]) == (as_tuples(packed["main"]) if host is None else (((host,), pod_set.count),))


@given(st.data(), st.sampled_from(Packing), st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_no_node_and_no_device_gets_more_than_it_has(data, packing, gpus):
    nodes = [
        Node(
            f"n{index}",
            {"block": "b", "rack": f"r{index % 2}", HOSTNAME_LABEL: f"n{index}"},
            {SHARE: count * 10, GPU: count, "cpu": 12, "pods": 20},
            devices={SHARE: count},
        )
        for index, count in enumerate(gpus)
    ]
    domains = domains_of(packing, nodes)
    held: list[tuple[PodSet, object]] = []
    for step in range(data.draw(st.integers(1, 8))):
        if held and data.draw(st.integers(0, 3)) == 0:
            pod_set, assignment = held.pop(data.draw(st.integers(0, len(held) - 1)))
            domains.give_back("gpu", assignment, pod_set.node_requests)
            continue
        requests = {SHARE: data.draw(st.sampled_from([0, 2, 3, 5, 7, 10, 20])), "cpu": data.draw(st.integers(0, 4))}
        request = data.draw(
            st.sampled_from([None, TopologyRequest(required="rack"), TopologyRequest(preferred="rack")])
        )
        pod_set = PodSet("main", data.draw(st.integers(1, 3)), {}, requests, topology=request)
        if packing is Packing.FRAGMENTATION_AWARE:
            domains.sizes["gpu"].waits(f"w{step}", sizes_of([pod_set], [pod_set.count]))
        got = placed(domains, pod_set)
        if not isinstance(got, NoPlacement):
            domains.take("gpu", got["main"], pod_set.node_requests)
            held.append((pod_set, got["main"]))
        for node in nodes:
            on_it = [
                (pods.node_requests, each.count)
                for pods, assignment in held
                for each in assignment.domains
                if each.values == (node.name,)
            ]
            assert sum(count for _, count in on_it) <= node.allocatable["pods"]
            assert sum(requests["cpu"] * count for requests, count in on_it) <= node.allocatable["cpu"]
            amounts = [requests[SHARE] for requests, count in on_it for _ in range(count) if requests[SHARE]]
            assert oracle.fit_on_devices(amounts, node.devices[SHARE], 10)
