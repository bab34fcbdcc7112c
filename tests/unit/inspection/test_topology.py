"""The map of a flavor's nodes: what is held, free and out, how fragmented, and what comes closest to fit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from queues.inspection import answers, domains
from queues.inspection.topology import holes, topology
from queues.journal.database import open_database
from queues.journal.entries import FlavorRow, NodeRow, NodeState, PodSetRow, WorkloadState
from tests.unit.inspection.conftest import NOW, Client
from tests.unit.journal.databases import Databases
from tests.unit.journal.rows import GPU, queue, workload
from tests.unit.journal.test_read import remember

BLOCK, RACK, HOST = "cloud/block", "cloud/rack", "kubernetes.io/hostname"


def node(name: str, block: str, rack: str, used: int, state: NodeState = NodeState.READY) -> NodeRow:
    labels = {BLOCK: block, RACK: rack, HOST: name, "pool": "h100"}
    return NodeRow(name, state, labels, {GPU: 8, "cpu": 64_000}, {GPU: 8 - used, "cpu": 64_000 - 1000 * used})


def pod_set(closeness: str, level: str, pods: int, gpus: int = 8) -> PodSetRow:
    return PodSetRow("main", pods, {GPU: gpus, "cpu": 8_000}, closeness, level)


TOLD = (
    queue("cq"),
    FlavorRow("h100", {"pool": "h100"}, "racks", (BLOCK, RACK, HOST)),
    FlavorRow("spare", {"pool": "spare"}),
    node("h1", "b1", "r1", 8),
    node("h2", "b1", "r1", 3),
    node("h3", "b1", "r2", 0),
    node("h10", "b1", "r2", 0),
    node("h4", "b2", "r1", 2, NodeState.CORDONED),
    NodeRow("elsewhere", labels={"pool": "h100"}, capacity={GPU: 8}, free={GPU: 8}),
    NodeRow("s1", labels={"pool": "spare"}, capacity={GPU: 4}, free={GPU: -2}),
    workload("runs", state=WorkloadState.ADMITTED,
             pod_sets=(PodSetRow("main", 2, {GPU: 4}, levels=(HOST,), domains=((("h1",), 2),)),)),
    FlavorRow("coarse", {"pool": "coarse"}, "blocks", (BLOCK,)),
    NodeRow("c1", labels={"pool": "coarse", BLOCK: "b7"}, capacity={GPU: 12}, free={GPU: 12}),
    workload("wide", state=WorkloadState.ADMITTED, pod_sets=(
        PodSetRow("main", 5, {GPU: 1}, flavors={GPU: "coarse"}, levels=(BLOCK,), domains=((("b7",), 5),)),
    )),
    workload("waits", code="TopologyPlacementFailed", pod_sets=(pod_set("required", RACK, 3),)),
    workload("anywhere", pod_sets=(pod_set("unconstrained", "", 2), PodSetRow("rest", 1))),
    workload("huge", pod_sets=(pod_set("required", HOST, 1, gpus=16),)),
    workload("lost", pod_sets=(pod_set("required", "cloud/zone", 1),)),
)  # fmt: skip


@pytest.fixture
def connection(databases: Databases, template: str) -> Iterator[Connection]:
    url = databases.emptied(databases.copy(template))
    remember(url, *TOLD)
    engine = open_database(url)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def answer(connection: Connection, **asked: Any) -> dict[str, Any]:
    found = topology(connection, NOW, **{"flavor": None, "resource": None, **asked})
    assert found is not None
    return found


def test_the_flavor_with_a_topology_comes_first_and_counts_devices(connection: Connection) -> None:
    found = answer(connection)
    assert (found["flavor"], found["resource"], found["levels"]) == ("h100", GPU, [BLOCK, RACK])
    assert found["resources"] == [GPU, "cpu"]
    assert found["flavors"] == [
        {"name": "coarse", "topology": "blocks", "hosts": 1}, {"name": "h100", "topology": "racks", "hosts": 5},
        {"name": "spare", "topology": None, "hosts": 1},
    ]  # fmt: skip
    root = found["domain"]
    want = {"capacity": 40, "used": 13, "free": 21, "shut": 6, "freeOnEmptyHosts": 16, "hosts": 5, "closedHosts": 1}
    assert {key: root[key] for key in want} == want
    assert root["fragmentation"] == pytest.approx(5 / 21, abs=1e-4)


def test_domains_in_domains_in_natural_order(connection: Connection) -> None:
    b1, b2 = answer(connection)["domain"]["domains"]
    r1, r2 = b1["domains"]
    assert (b1["path"], r2["path"]) == (["b1"], ["b1", "r2"])
    assert [host["name"] for host in r2["nodes"]] == ["h3", "h10"]
    assert r1["nodes"][0] == {
        "name": "h1", "state": "ready", "capacity": 8, "used": 8,
        "workloads": [{"namespace": "ns", "name": "runs", "amount": 8}],
    }  # fmt: skip
    assert b2["fragmentation"] is None, "nothing is free there"
    assert b2["domains"][0]["nodes"][0]["state"] == "cordoned"


def test_below_one_domain(connection: Connection) -> None:
    found = answer(connection, at=("b1", "r2"))
    assert (found["at"], found["domain"]["capacity"]) == (["b1", "r2"], 16)
    assert topology(connection, NOW, flavor=None, resource=None, at=("b1", "r9")) is None
    assert topology(connection, NOW, flavor="none", resource=None) is None


def test_more_held_than_there_is_counts_as_full(connection: Connection) -> None:
    found = answer(connection, flavor="spare")
    assert (found["levels"], found["domain"]["used"], found["domain"]["free"]) == ([], 4, 0)
    assert [host["name"] for host in found["domain"]["nodes"]] == ["s1"]


def test_what_is_placed_in_a_domain_is_held_there(connection: Connection) -> None:
    found = answer(connection, flavor="coarse")
    assert (found["levels"], found["domain"]["used"], found["domain"]["free"]) == ([BLOCK], 5, 7)
    (block,) = found["domain"]["domains"]
    assert (block["used"], block["free"], block["freeOnEmptyHosts"]) == (5, 7, 7)
    assert [host["used"] for host in block["nodes"]] == [0], "nobody knows on which host"


def test_the_largest_holes(connection: Connection) -> None:
    assert holes(answer(connection)) == [
        {"path": ["b1"], "free": 16, "level": BLOCK}, {"path": ["b1", "r2"], "free": 16, "level": RACK},
    ]  # fmt: skip


def explained(connection: Connection, name: str, scope: answers.Scope = answers.EVERYTHING) -> Any:
    found = answers.explain(connection, "ns", name, NOW, scope)
    assert found is not None
    return found["closest"]


def test_what_comes_closest_to_fit(connection: Connection) -> None:
    (closest,) = explained(connection, "waits")
    assert (closest["pods"], closest["closeness"], closest["level"], closest["resource"]) == (3, "required", RACK, GPU)
    assert [(d["path"], d["fits"], d["free"]) for d in closest["domains"]] == [
        (["b1", "r2"], 2, 16), (["b1", "r1"], 0, 5), (["b2", "r1"], 0, 0),
    ]  # fmt: skip
    (anywhere,) = explained(connection, "anywhere")
    assert [(d["path"], d["fits"]) for d in anywhere["domains"]] == [([], 2)]
    (huge,) = explained(connection, "huge")
    assert {d["fits"] for d in huge["domains"]} == {0}
    (lost,) = explained(connection, "lost")
    assert lost["domains"] == [], "no flavor of the queue has that level"
    assert explained(connection, "runs") == []


def test_what_is_free_is_not_for_a_namespace(connection: Connection) -> None:
    (closest,) = explained(connection, "waits", answers.Scope("ns", unrestricted=False))
    assert [(d["fits"], d["free"]) for d in closest["domains"]] == [(2, None), (0, None), (0, None)]


def test_numbers_in_names_count_by_value() -> None:
    assert sorted(["r10", "r2", "r1b", "r1a"], key=domains.natural) == ["r1a", "r1b", "r2", "r10"]


def test_who_may_ask(client: Client) -> None:
    assert client("viewer").get("/api/v1/topology").get_json()["flavor"] is None, "there are no flavors"
    assert client("team").get("/api/v1/topology").status_code == 403
    assert client("admin").get("/api/v1/topology?flavor=none").status_code == 404
    assert client("admin").get("/api/v1/topology?at=" + "/".join("x" * 20)).status_code == 400
