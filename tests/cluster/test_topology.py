"""Gangs by topology on a real control plane: failed nodes are replaced under them, or they start again elsewhere."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.api.kueue import TopologyAssignment
from admission.api.topology_assignment import decode
from tests.cluster.controller_rig import (
    KUEUE,
    Running,
    Watched,
    cluster_queue,
    flavor,
    install_crds,
    local_queue,
    running,
    workload,
)
from tests.controlplane.cluster import Api, ControlPlane, eventually

pytestmark = pytest.mark.cluster

HOST, RACK = "kubernetes.io/hostname", "example.com/rack"
_names = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane) -> Iterator[Running]:
    install_crds(control_plane)
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    control_plane.api.create(
        {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}}
    )
    with running(control_plane) as controller:
        yield controller


class Place:
    """A pool of nodes with its own flavor, queue and watched Workloads."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.name = f"t{next(_names)}"
        self.watched = Watched(api)
        api.create(flavor(self.name, nodeLabels={"pool": self.name}, topologyName="racks"))
        api.create(cluster_queue(self.name, 100, flavors=self.name))
        api.create(local_queue(self.name, self.name))

    def node(self, name: str, rack: str = "r1", cpu: str = "4") -> None:
        full = f"{self.name}-{name}"
        labels = {"pool": self.name, RACK: rack, HOST: full}
        self.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": full, "labels": labels}})
        # The API server marks new nodes as not ready; nobody else is there to take that away.
        self.api.patch("Node", full, {"spec": {"taints": None}})
        self.ready(name, cpu=cpu)

    def ready(self, name: str, status: str = "True", cpu: str = "4") -> None:
        condition = {"type": "Ready", "status": status, "reason": "Test", "message": ""}
        amounts = {"cpu": cpu, "memory": "8Gi", "pods": "110"}
        body = {"status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]}}
        self.api.patch("Node", f"{self.name}-{name}", body, sub="status")

    def lose(self, name: str) -> None:
        self.api.delete("Node", f"{self.name}-{name}")

    def gang(self, count: int, **request: Any) -> str:
        body = workload(f"{self.name}-w", self.name, cpu=4, count=count)
        body["spec"]["podSets"][0]["topologyRequest"] = request or {"required": RACK}
        self.api.create(body)
        self.watched.admitted(f"{self.name}-w")
        return f"{self.name}-w"

    def hosts(self, name: str) -> list[str]:
        admission = self.api.get("Workload", name, "default")["status"].get("admission") or {}
        found = []
        for one in admission.get("podSetAssignments", ()):
            for domain in decode(convert(one["topologyAssignment"], TopologyAssignment)):
                found += [domain.values[-1].removeprefix(f"{self.name}-")] * domain.count
        return found

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.api.get("Workload", name, "default")["status"]
        return found


@pytest.fixture
def place(api: Api) -> Place:
    return Place(api)


def test_a_lost_node_is_replaced_alone(place: Place) -> None:
    for name in ("a", "b", "c"):
        place.node(name)
    gang = place.gang(2)
    assert place.hosts(gang) == ["a", "b"]
    place.lose("a")
    eventually(lambda: place.hosts(gang) == ["b", "c"])
    assert not place.status(gang).get("unhealthyNodes")
    assert not place.watched.condition("Workload", gang, names.EVICTED)
    assert place.watched.is_true(gang, names.ADMITTED)


def test_without_another_node_in_the_rack_the_gang_goes_and_starts_elsewhere(place: Place) -> None:
    for name, rack in (("a", "r1"), ("b", "r1"), ("x", "r2"), ("y", "r2")):
        place.node(name, rack)
    gang = place.gang(2)
    assert place.hosts(gang) == ["a", "b"]
    place.lose("b")
    eventually(lambda: place.hosts(gang) == ["x", "y"])
    found = place.watched.condition("Workload", gang, names.EVICTED)
    assert "No replacement for node(s)" in found["message"]
    (counted,) = place.status(gang)["schedulingStats"]["evictions"]
    assert (counted["reason"], counted["count"]) == (names.EVICTED_BY_NODE_FAILURES, 1)


def test_a_gang_without_another_node_starts_again_when_its_node_is_back(place: Place) -> None:
    """A node that is not ready has failed for a gang that has no pod at work on it."""
    for name in ("a", "b", "c"):
        place.node(name)
    gang = place.gang(2)
    place.ready("c", "False")
    time.sleep(1)
    assert place.hosts(gang) == ["a", "b"], "a node that nobody is on"
    place.ready("a", "False")
    eventually(lambda: place.watched.is_true(gang, names.EVICTED) or place.hosts(gang) != ["a", "b"])
    place.ready("a")
    place.watched.admitted(gang)
    eventually(lambda: place.hosts(gang) == ["a", "b"])
    assert not place.status(gang).get("unhealthyNodes")


def test_two_lost_nodes_are_one_too_many(place: Place) -> None:
    for name in ("a", "b", "c", "d", "e"):
        place.node(name)
    gang = place.gang(3)
    for name in ("a", "b"):
        place.lose(name)

    def settled() -> bool:
        return place.hosts(gang) == ["c", "d", "e"] and place.watched.is_true(gang, names.ADMITTED)

    eventually(settled)


def test_slices_in_slices_are_kept_together(place: Place) -> None:
    for name, rack, cpu in (("a", "r1", "8"), ("b", "r1", "8"), ("c", "r2", "16")):
        place.node(name, rack, cpu)
    layers = [{"topology": RACK, "size": 4}, {"topology": HOST, "size": 2}]
    gang = place.gang(8, podsetSliceRequiredTopologyConstraints=layers)
    assert place.hosts(gang) == ["a", "a", "b", "b", "c", "c", "c", "c"]
