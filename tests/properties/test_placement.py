"""Placement agrees with its slow reference, and what it answers always holds on the nodes."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queues.core.model import (
    HOSTNAME_LABEL,
    Node,
    PodSet,
    ResourceFlavor,
    Taint,
    Toleration,
    Topology,
    TopologyRequest,
)
from queues.core.policy import TopologyRules
from queues.core.topology.domains import Domains
from queues.core.topology.placement import NoPlacement, place, still_fits
from queues.core.topology.replacement import Lost, replaced
from tests.oracle import placement as oracle

GPU = "nvidia.com/gpu"
LEVELS = ("block", "rack", HOSTNAME_LABEL)
BROKEN = Taint("broken")


@st.composite
def clusters(draw) -> list[Node]:
    shape = draw(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3), min_size=1, max_size=3))
    nodes = []
    for block, racks in enumerate(shape):
        for rack, hosts in enumerate(racks):
            for _ in range(hosts):
                name = f"n{len(nodes)}"
                labels = {"block": f"b{block}", "rack": f"r{rack}", HOSTNAME_LABEL: name}
                if draw(st.integers(0, 9)) == 0:
                    del labels[draw(st.sampled_from(sorted(labels)))]
                nodes.append(
                    Node(
                        name,
                        labels | {"odd": str(len(nodes) % 2)},
                        {
                            GPU: draw(st.integers(0, 8)),
                            "cpu": draw(st.integers(0, 16)),
                            "pods": draw(st.integers(1, 9)),
                        },
                        taints=(BROKEN,) if draw(st.integers(0, 9)) == 0 else (),
                        ready=draw(st.integers(0, 9)) > 0,
                        unschedulable=draw(st.integers(0, 9)) == 0,
                    )
                )
    return nodes


@st.composite
def requests(draw, levels: tuple[str, ...]) -> TopologyRequest | None:
    kind = draw(st.sampled_from(["implied", "unconstrained", "required", "preferred", "slices"]))
    level = draw(st.integers(0, len(levels) - 1))
    request = {
        "implied": None,
        "unconstrained": TopologyRequest(unconstrained=True),
        "required": TopologyRequest(required=levels[level]),
        "preferred": TopologyRequest(preferred=levels[level]),
        "slices": TopologyRequest(),
    }[kind]
    if kind == "slices" or (kind in ("required", "preferred") and draw(st.booleans())):
        lowest = 0 if kind == "slices" else level
        request = replace(
            request,
            slice_required=levels[draw(st.integers(lowest, len(levels) - 1))],
            slice_size=draw(st.integers(1, 3)),
        )
    return request


@st.composite
def pod_sets(draw, levels: tuple[str, ...] = LEVELS, name: str = "main") -> PodSet:
    topology = draw(requests(levels))
    size = 1 if topology is None else topology.slice_size or 1
    return PodSet(
        name,
        size * draw(st.integers(1, 5)),
        {},
        {GPU: draw(st.integers(0, 4)), "cpu": draw(st.integers(0, 5))},
        node_selector=(("odd", "1"),) if draw(st.integers(0, 5)) == 0 else (),
        tolerations=(Toleration("broken", "Exists"),) if draw(st.integers(0, 3)) == 0 else (),
        topology=topology,
    )


def domains_of(nodes: list[Node], levels: tuple[str, ...] = LEVELS) -> Domains:
    domains = Domains()
    domains.topology_changed(Topology("topo", levels))
    domains.flavor_changed(ResourceFlavor("gpu", topology="topo"))
    for node in nodes:
        domains.node_changed(node)
    return domains


def placed(domains: Domains, *pod_sets: PodSet, **kw):
    return place(domains, "gpu", "topo", pod_sets, {p.name: p.count for p in pod_sets}, **kw)


def as_tuples(assignment):
    return tuple((domain.values, domain.count) for domain in assignment.domains)


@given(clusters(), pod_sets())
def test_agrees_with_the_reference(nodes, pod_set):
    want = oracle.place(LEVELS, nodes, pod_set, pod_set.count)
    got = placed(domains_of(nodes), pod_set)
    if isinstance(got, NoPlacement):
        assert want == got.fits
    else:
        assert want == as_tuples(got["main"])


@given(st.data(), clusters())
def test_agrees_with_the_reference_without_hosts(data, nodes):
    levels = ("block", "rack")
    pod_set = data.draw(pod_sets(levels))
    want = oracle.place(levels, nodes, pod_set, pod_set.count)
    got = placed(domains_of(nodes, levels), pod_set)
    if isinstance(got, NoPlacement):
        assert want == got.fits
    else:
        assert want == as_tuples(got["main"])


@given(st.data(), clusters())
def test_a_history_of_changes_answers_as_a_fresh_start(data, nodes):
    """Taking, giving back and node changes in place leave what a rebuild from the objects gives."""
    domains = domains_of(nodes)
    held = []
    for step in range(data.draw(st.integers(1, 6))):
        match data.draw(st.sampled_from(["place", "give back", "node", "pod", "pod gone"])):
            case "place":
                pod_set = data.draw(pod_sets())
                got = placed(domains, pod_set)
                if not isinstance(got, NoPlacement):
                    assert still_fits(domains, "gpu", [pod_set], got)
                    domains.take("gpu", got["main"], pod_set.node_requests)
                    held.append((got["main"], pod_set))
            case "give back" if held:
                assignment, pod_set = held.pop(data.draw(st.integers(0, len(held) - 1)))
                domains.give_back("gpu", assignment, pod_set.node_requests)
            case "node" if nodes:
                index = data.draw(st.integers(0, len(nodes) - 1))
                old = nodes[index]
                nodes[index] = data.draw(
                    st.sampled_from(
                        [
                            replace(old, ready=not old.ready),
                            replace(old, allocatable={**old.allocatable, GPU: 3}),
                            replace(old, labels={**old.labels, "rack": "r9"}),
                            replace(old, taints=(BROKEN,)),
                        ]
                    )
                )
                domains.node_changed(nodes[index])
            case "pod" if nodes:
                domains.pod_placed(f"p{step}", data.draw(st.sampled_from(nodes)).name, {GPU: 1})
            case "pod gone":
                domains.pod_gone(f"p{step - 1}")
            case _:
                pass
        probe = data.draw(pod_sets())
        used = _used(domains, nodes, held)
        want = oracle.place(LEVELS, nodes, probe, probe.count, used)
        got = placed(domains, probe)
        assert want == (got.fits if isinstance(got, NoPlacement) else as_tuples(got["main"]))


def _used(domains, nodes, held, placed_pods=None):
    used = {node.name: {} for node in nodes}

    def add(name, requests, pods):
        for resource, amount in {**requests, "pods": 1}.items():
            used[name][resource] = used[name].get(resource, 0) + amount * pods

    for assignment, pod_set in held:
        for domain in assignment.domains:
            for node in nodes:
                if node.labels.get(HOSTNAME_LABEL) == domain.values[0]:
                    add(node.name, pod_set.node_requests, domain.count)
    for node, requests in (domains._capacity._placed if placed_pods is None else placed_pods).values():
        add(node, {r: v for r, v in requests.items() if r != "pods"}, 1)
    return used


@given(st.data(), clusters())
def test_pod_sets_of_a_workload_never_share_a_gpu(data, nodes):
    pods = [data.draw(pod_sets(name=name)) for name in ("a", "b", "c")]
    domains = domains_of(nodes)
    for simulate_empty in (False, True):
        got = placed(domains, *pods, simulate_empty=simulate_empty)
        if isinstance(got, NoPlacement):
            continue
        used = _used(domains, nodes, [(got[p.name], p) for p in pods])
        for node in nodes:
            assert all(used[node.name].get(r, 0) <= node.allocatable.get(r, 0) for r in (GPU, "cpu", "pods"))
        assert all(sum(d.count for d in got[p.name].domains) == p.count for p in pods)
    assert not domains._capacity._assumed


@given(st.data(), clusters())
def test_node_order_does_not_matter(data, nodes):
    pod_set = data.draw(pod_sets())
    shuffled = data.draw(st.permutations(nodes))
    assert placed(domains_of(nodes), pod_set) == placed(domains_of(shuffled), pod_set)


@given(st.data(), st.lists(st.integers(0, 8), min_size=1, max_size=3))
def test_a_rack_never_promises_what_an_unlucky_scheduler_could_not_do(data, gpus):
    """With the rack as the lowest level, admitted pods find a node wherever the scheduler put the earlier ones."""
    nodes = [Node(f"n{i}", {"rack": "r"}, {GPU: g, "pods": 6}) for i, g in enumerate(gpus)]
    domains = domains_of(nodes, ("rack",))
    free = {node.name: dict(node.allocatable) for node in nodes}
    for _ in range(data.draw(st.integers(1, 5))):
        pod_set = PodSet("main", data.draw(st.integers(1, 3)), {}, {GPU: data.draw(st.integers(0, 5))})
        got = placed(domains, pod_set)
        if isinstance(got, NoPlacement):
            continue
        domains.take("gpu", got["main"], pod_set.node_requests)
        for _ in range(pod_set.count):
            able = [
                name for name, left in free.items() if left["pods"] >= 1 and left[GPU] >= pod_set.node_requests[GPU]
            ]
            assert able, "a pod that was admitted has no node"
            chosen = data.draw(st.sampled_from(able))
            free[chosen]["pods"] -= 1
            free[chosen][GPU] -= pod_set.node_requests[GPU]


def _free(nodes, pod_set, taken=None):
    """Pods of the pod set by rack and host, beside what is taken of hosts."""
    racks = {}
    for node in nodes:
        labels = node.labels
        if all(level in labels for level in LEVELS):
            fits = oracle.free_pods(node, pod_set, (taken or {}).get(node.name, {}))
            hosts = racks.setdefault((labels["block"], labels["rack"]), {})
            hosts[node.name] = fits if oracle.usable(node, pod_set) else 0
    return racks


@given(clusters(), st.integers(1, 6), st.integers(1, 4), st.integers(0, 4), st.integers(0, 5))
def test_a_leader_and_its_workers_share_a_rack_whenever_one_can_hold_them(nodes, count, gpus, leader_gpus, leader_cpu):
    request = TopologyRequest(required="rack", pod_set_group="g")
    workers = PodSet("workers", count, {}, {GPU: gpus, "cpu": 1}, topology=request)
    leader = PodSet("leader", 1, {}, {GPU: leader_gpus, "cpu": leader_cpu}, topology=request)
    got = placed(domains_of(nodes), leader, workers)
    possible = False
    for hosts in _free(nodes, leader).values():
        for host, room in hosts.items():
            if room >= 1:
                taken = {host: {**leader.node_requests, "pods": 1}}
                rack = next(rack for rack in _free(nodes, workers, taken).values() if host in rack)
                possible = possible or sum(rack.values()) >= count
    assert possible is not isinstance(got, NoPlacement)
    if not isinstance(got, NoPlacement):
        racks = {n.name: (n.labels.get("block"), n.labels.get("rack")) for n in nodes}
        assert len({racks[d.values[0]] for found in got.values() for d in found.domains}) == 1
        used = _used(None, nodes, [(got["leader"], leader), (got["workers"], workers)], placed_pods={})
        assert all(used[n.name].get(r, 0) <= n.allocatable.get(r, 0) for n in nodes for r in (GPU, "cpu", "pods"))
        assert [sum(d.count for d in got[name].domains) for name in ("leader", "workers")] == [1, count]


@given(st.data(), clusters(), pod_sets(), st.booleans())
def test_replacing_a_node_changes_only_that_nodes_pods(data, nodes, pod_set, is_gone):
    domains = domains_of(nodes)
    got = placed(domains, pod_set)
    if isinstance(got, NoPlacement):
        return
    before = got["main"]
    domains.take("gpu", before, pod_set.node_requests)
    failed = data.draw(st.sampled_from([d.values[0] for d in before.domains]))
    if is_gone:
        domains.node_gone(failed)
    else:
        domains.node_changed(replace(next(n for n in nodes if n.name == failed), ready=False))
    after = replaced(domains, "gpu", "topo", Lost(pod_set, before, {failed}), TopologyRules())
    if isinstance(after, NoPlacement):
        return
    kept = {d.values: d.count for d in before.domains if d.values != (failed,)}
    now = {d.values: d.count for d in after.domains}
    assert (failed,) not in now
    assert all(now.get(values, 0) >= count for values, count in kept.items())
    assert sum(now.values()) == pod_set.count
    used = _used(domains, nodes, [(after, pod_set)])
    alive = [node for node in nodes if node.name != failed]
    assert all(used[n.name].get(r, 0) <= n.allocatable.get(r, 0) for n in alive for r in (GPU, "cpu", "pods"))
    request = pod_set.topology
    if request is not None and request.required and kept:
        depth = LEVELS.index(request.required) + 1
        paths = {
            n.name: tuple(n.labels[level] for level in LEVELS)[:depth] for n in alive if set(LEVELS) <= set(n.labels)
        }
        assert len({paths[values[0]] for values in now}) == 1
    if request is not None and request.slice_required and kept:
        depth = LEVELS.index(request.slice_required) + 1
        counts = {}
        for node in alive:
            if (node.name,) in now:
                path = tuple(node.labels[level] for level in LEVELS)[:depth]
                counts[path] = counts.get(path, 0) + now[node.name,]
        assert all(count % (request.slice_size or 1) == 0 for count in counts.values())
