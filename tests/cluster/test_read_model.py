"""What is read from the journal of a real control plane: by the pages, and by the next controller."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine

from admission.commands.memory import Memory
from admission.settings.configuration import Journal as JournalOptions
from queues.core.model import FlavorName
from queues.inspection import answers, cohorts
from queues.inspection.topology import topology
from queues.journal import migrate
from queues.journal.database import open_database
from queues.journal.writer import Journal
from tests.cluster.controller_rig import (
    KUEUE,
    SETTINGS,
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


def node(api: Api, name: str, rack: str, pool: str = "p") -> None:
    labels = {"pool": pool, RACK: rack, HOST: name}
    api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
    # The API server marks new nodes as not ready; nobody else is there to take that away.
    api.patch("Node", name, {"spec": {"taints": None}})
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Test", "message": ""}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    api.patch("Node", name, {"status": status}, sub="status")


def gang(name: str, count: int, priority: int, queue: str = "lq") -> dict[str, Any]:
    body = workload(name, queue, cpu=4, count=count, priority=priority)
    body["spec"]["podSets"][0]["topologyRequest"] = {"required": RACK}
    return body


@pytest.fixture
def remembered(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Engine]:
    """The database of a controller's journal."""
    install_crds(control_plane)
    url = f"sqlite:///{tmp_path}/journal.sqlite3"
    migrate.upgrade(url)
    journal = Journal(url)
    journal.start()
    engine = open_database(url)
    with running(control_plane, journal=journal):
        yield engine
    engine.dispose()
    journal.close()


def test_the_pages_know_what_the_queues_know(control_plane: ControlPlane, remembered: Engine) -> None:
    api, watched = control_plane.api, Watched(control_plane.api)
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    api.create({"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}})
    for parent, name in (("", "company"), ("company", "research")):
        spec = {"parentName": parent} if parent else {}
        api.create({"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": spec})
    api.create(flavor("f", nodeLabels={"pool": "p"}, topologyName="racks"))
    preemption = {"withinClusterQueue": "LowerPriority"}
    api.create(cluster_queue("cq", 100, cohort="research", flavors="f", preemption=preemption))
    api.create(local_queue("lq", "cq"))
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2")):
        node(api, name, rack)

    api.create(gang("low", 2, 0))
    watched.admitted("low")

    def used() -> dict[str, int]:
        with remembered.connect() as connection:
            found = topology(connection, time.time(), flavor="f", resource="cpu")
        domains = [] if found is None or found["domain"] is None else found["domain"]["domains"]
        return {host["name"]: host["used"] for rack in domains for host in rack["nodes"]}

    eventually(lambda: used() == {"a": 4000, "b": 4000, "c": 0}, message="the hosts are on the map")

    def known_cohorts() -> list[list[str]]:
        with remembered.connect() as connection:
            found = cohorts.tree(connection, time.time())["items"]
        return [[child["name"] for child in each["cohorts"]] for each in found]

    eventually(lambda: known_cohorts() == [["research"]], message="the company is known")

    api.create(gang("large", 3, 0))
    watched.waits("large", "TopologyPlacementFailed")

    def explained(name: str) -> dict[str, Any]:
        with remembered.connect() as connection:
            return answers.explain(connection, "default", name, time.time()) or {}

    (closest,) = eventually(lambda: explained("large").get("closest"), message="the closest racks are told")
    assert [(domain["path"], domain["fits"]) for domain in closest["domains"]] == [(["r2"], 1), (["r1"], 0)]

    api.create(gang("high", 2, 10))
    eventually(lambda: watched.is_true("low", "Evicted"), message="low has to go")
    (displaced,) = eventually(lambda: explained("high").get("displaced"), message="it is told who went")
    assert (displaced["namespace"], displaced["name"]) == ("default", "low")


def test_the_next_controller_knows_which_sizes_were_started(control_plane: ControlPlane, tmp_path: Path) -> None:
    """A gang started and is gone: nothing but the journal says that such ones come."""
    install_crds(control_plane)
    api, watched = control_plane.api, Watched(control_plane.api)
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    api.create({"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": "known"}, "spec": {"levels": levels}})
    made = flavor("known", nodeLabels={"pool": "known"}, topologyName="known")
    made["metadata"]["annotations"] = {"muster.dev/packing": "FragmentationAware"}
    api.create(made)
    api.create(cluster_queue("known", 100, flavors="known"))
    api.create(local_queue("known", "known"))
    for name in ("known-a", "known-b"):
        node(api, name, "r1", pool="known")
    muster = msgspec.structs.replace(SETTINGS.muster, journal=JournalOptions(url=f"sqlite:///{tmp_path}/journal"))
    settings = msgspec.structs.replace(SETTINGS, muster=muster)

    def known(controller: Running) -> list[tuple[int, str | None, int]]:
        assert controller.controller is not None
        sizes = controller.controller._cluster.state.books.domains.sizes[FlavorName("known")]  # nobody is told
        return [(size.pods, size.level, count) for size, count in sizes.coming()]

    memory = Memory(settings)
    memory.open()
    with running(control_plane, settings, memory) as first:
        api.create(gang("gone", 2, 0, queue="known"))
        watched.admitted("gone")
        eventually(lambda: memory.recall_starts(time.time() + 1).result(), every=0.2, message="the start is written")
        api.delete("Workload", "gone", "default")
        watched.gone("Workload", "gone")
        eventually(lambda: known(first) == [(2, RACK, 2)])
    assert memory.close(30)
    with running(control_plane, settings, Memory(settings)) as second:

        def remembered_after_news() -> bool:
            api.patch("Node", "known-a", {"metadata": {"labels": {"seen": str(time.monotonic())}}})
            return known(second) == [(2, RACK, 2)]

        eventually(remembered_after_news, message="it is told what the journal remembers")
