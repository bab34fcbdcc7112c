"""`muster topology`: from nodes, assignments and pods to the tree, and what is wrong with it."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from rich.console import Console

from admission.api import core, names
from admission.api.decoding import convert
from admission.api.kueue import ResourceFlavor, Topology, Workload
from admission.commands import topology
from admission.commands.topology import Domain, FlavorTree

GPU = "nvidia.com/gpu"
HOST = names.HOSTNAME_LABEL


def node(name: str, gpus: int = 8, *, ready: bool = True, cordoned: bool = False, **labels: str) -> core.Node:
    raw = {
        "metadata": {"name": name, "labels": {HOST: name, **labels}},
        "spec": {"unschedulable": cordoned},
        "status": {
            "allocatable": {GPU: str(gpus), "cpu": "64"},
            "conditions": [{"type": "Ready", "status": str(ready)}],
        },
    }
    return convert(raw, core.Node)


def of_levels(*levels: str) -> Topology:
    return convert(
        {"metadata": {"name": "t"}, "spec": {"levels": [{"nodeLabel": level} for level in levels]}}, Topology
    )


def flavor(name: str = "f", topology_name: str = "t", **labels: str) -> ResourceFlavor:
    return convert(
        {"metadata": {"name": name}, "spec": {"topologyName": topology_name, "nodeLabels": labels}}, ResourceFlavor
    )


def template(gpus: int) -> dict[str, Any]:
    return {"containers": [{"name": "c", "resources": {"requests": {GPU: str(gpus)}}}]}


def gang(levels: list[str], values: list[list[str]], gpus: int = 8, *, finished: bool = False) -> Workload:
    columns = [{"individual": {"roots": list(column)}} for column in zip(*values, strict=True)]
    piece = {"domainCount": len(values), "valuesPerLevel": columns, "podCounts": {"universal": 1}}
    raw = {
        "metadata": {"name": "w", "namespace": "team"},
        "spec": {"podSets": [{"name": "main", "count": len(values), "template": {"spec": template(gpus)}}]},
        "status": {
            "conditions": [{"type": "Finished", "status": "True"}] if finished else [],
            "admission": {
                "clusterQueue": "q",
                "podSetAssignments": [
                    {"name": "main", "flavors": {GPU: "f"}, "topologyAssignment": {"levels": levels, "slices": [piece]}}
                ],
            },
        },
    }
    return convert(raw, Workload)


def pod(name: str, on: str, gpus: int = 1, workload: str = "") -> core.Pod:
    raw = {
        "metadata": {
            "name": name,
            "namespace": "team",
            "annotations": {names.WORKLOAD_ANNOTATION: workload} if workload else {},
            "labels": {names.PODSET_LABEL: "main"} if workload else {},
        },
        "spec": {"nodeName": on, **template(gpus)},
        "status": {"phase": "Running"},
    }
    return convert(raw, core.Pod)


NODES = (node("a", rack="r1"), node("b", rack="r1"), node("c", rack="r2"))


def only(
    *nodes: core.Node, levels: tuple[str, ...] = ("rack", HOST), workloads: Any = (), pods: Any = ()
) -> FlavorTree:
    (found,) = topology.trees([of_levels(*levels)], [flavor()], nodes, workloads, pods)
    return found


def shape(domain: Domain) -> Any:
    return {each.value: (each.free, each.gpus, shape(each)) for each in domain.domains}


def test_free_and_used_gpus_of_every_domain() -> None:
    held = gang([HOST], [["a"], ["c"]], 6)
    own = pod("own", "a", 6, "w")
    found = only(*NODES, workloads=[held], pods=[own, pod("alone", "b", 3)])
    assert shape(found.root) == {
        "r1": (7, 16, {"a": (2, 8, {}), "b": (5, 8, {})}),
        "r2": (2, 8, {"c": (2, 8, {})}),
    }
    assert (found.root.free, found.root.gpus, found.problems) == (9, 24, ())


def test_use_of_a_rack_is_known_of_the_rack_alone() -> None:
    found = only(*NODES, levels=("rack",), workloads=[gang(["rack"], [["r1"]], 8)])
    assert shape(found.root) == {"r1": (8, 16, {}), "r2": (8, 8, {})}


def test_what_is_finished_holds_nothing() -> None:
    found = only(*NODES, workloads=[gang([HOST], [["a"]], finished=True)])
    assert found.root.free == 24


PROBLEMS = [
    pytest.param(
        (*NODES, node("x"), node("y")),
        ("2 node(s) have no label rack and are left out: x, y",),
        id="missing labels are named, with the nodes",
    ),
    pytest.param(
        (*NODES, *(node(f"x{i}") for i in range(7))),
        ("7 node(s) have no label rack and are left out: x0, x1, x2, x3, x4 and 2 more",),
        id="of many nodes only some are named",
    ),
    pytest.param(
        (*NODES, node("other", rack="r2", **{HOST: "a"})),
        ("host a is in 2 places and left out: r1, r2",),
        id="a host in two racks",
    ),
    pytest.param(
        (*NODES, node("d", rack="r3", cordoned=True), node("e", rack="r3", ready=False)),
        ("rack=r3 has no node that takes pods (2 cordoned or not ready)",),
        id="an empty domain",
    ),
    pytest.param((), ("no node has the labels of the flavor",), id="no nodes at all"),
]


@pytest.mark.parametrize(("nodes", "want"), PROBLEMS)
def test_what_is_wrong(nodes: tuple[core.Node, ...], want: tuple[str, ...]) -> None:
    assert only(*nodes).problems == want


def test_a_rack_in_two_blocks_is_suspicious() -> None:
    nodes = (node("a", rack="r1", block="b1"), node("b", rack="r1", block="b2"))
    assert only(*nodes, levels=("block", "rack", HOST)).problems == (
        "rack=r1 is below 2 domains, as if it were several: b1, b2",
    )


def test_a_flavor_whose_topology_is_missing_says_so_and_one_without_is_left_out() -> None:
    found = topology.trees([], [flavor(), flavor("plain", "")], NODES, [], [])
    assert [(each.flavor, each.problems) for each in found] == [("f", ("Topology t does not exist",))]


def test_a_flavor_sees_only_its_own_nodes() -> None:
    (found,) = topology.trees([of_levels(HOST)], [flavor(rack="r2")], NODES, [], [])
    assert shape(found.root) == {"c": (8, 8, {})}


def test_as_a_drawing_and_as_json() -> None:
    found = only(*NODES, node("x"), workloads=[gang([HOST], [["a"]])])
    out = io.StringIO()
    Console(file=out, width=120).print(topology.drawn(found, with_hosts=False))
    text = out.getvalue()
    assert "f (t): 16 of 24 GPUs free, 3 nodes" in text
    assert "r1: 8 of 16 GPUs free, 2 nodes" in text
    assert "a: 0 of 8" not in text
    assert "1 node(s) have no label rack" in text
    Console(file=out, width=120).print(topology.drawn(found, with_hosts=True))
    assert "a: 0 of 8" in out.getvalue()
    (raw,) = json.loads(topology.as_json([found]))
    assert (raw["flavor"], raw["levels"], raw["root"]["free"]) == ("f", ["rack", HOST], 16)
    assert [each["free"] for each in raw["root"]["domains"]] == [8, 8]
