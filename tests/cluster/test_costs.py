"""What Muster asks of the API server, counted: none of these numbers depends on the machine.

One write admits a Workload; everything else is bounded by queues and seconds, not by Workloads.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.kube.client import Client
from tests.cluster.controller_rig import (
    Watched,
    cluster_queue,
    flavor,
    install_crds,
    local_queue,
    running,
    workload,
)
from tests.controlplane.cluster import ControlPlane, eventually

pytestmark = pytest.mark.cluster

QUEUES = ("a", "b", "c", "d")
WORKLOADS = 200
ADMISSION = "PATCH workloads/status"
WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass
class Asked:
    """Every request of the controller: how many of each sort, and the bytes in their bodies."""

    requests: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)

    def writes(self) -> dict[str, int]:
        return {what: count for what, count in self.requests.items() if what.partition(" ")[0] in WRITES}


def sort_of(method: str, path: str) -> str:
    """`PATCH workloads/status`: the verb, the kind and the subresource, without names."""
    parts = path.strip("/").split("/")
    parts = parts[2:] if parts[0] == "api" else parts[3:]
    if len(parts) > 2 and parts[0] == "namespaces":
        parts = parts[2:]
    return f"{method} {parts[0]}" + (f"/{parts[2]}" if len(parts) > 2 else "")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    found, ask = Asked(), Client.raw

    async def raw(self: Client, method: str, path: str, body: bytes = b"", **options: Any) -> bytes:
        what = sort_of(method, path)
        found.requests[what] += 1
        found.bytes[what] += len(body)
        return await ask(self, method, path, body, **options)

    monkeypatch.setattr(Client, "raw", raw)
    return found


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane) -> ControlPlane:
    """Queues with quota for everybody."""
    install_crds(control_plane)
    control_plane.api.create(flavor())
    for name in QUEUES:
        control_plane.api.create(cluster_queue(name, WORKLOADS, cohort="all"))
        control_plane.api.create(local_queue(name, name))
    return control_plane


def names(prefix: str) -> list[tuple[str, str]]:
    """Of Workloads, each with its queue."""
    return [(f"{prefix}-{index}", QUEUES[index % len(QUEUES)]) for index in range(WORKLOADS)]


def create(plane: ControlPlane, prefix: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda one: plane.api.create(workload(*one)), names(prefix)))


def admitted(plane: ControlPlane) -> int:
    conditions = (each.get("status", {}).get("conditions") or [] for each in plane.api.list("Workload"))
    return sum(any(one["type"] == "Admitted" and one["status"] == "True" for one in each) for each in conditions)


def is_empty(queues: Watched, name: str) -> bool:
    """Whether the statuses say that nobody waits or holds anything."""
    said = [queues.status(kind, name) for kind in ("ClusterQueue", "LocalQueue")]
    counts = ("pendingWorkloads", "reservingWorkloads", "admittedWorkloads")
    is_used = any(
        one["total"] != "0" for status in said for flavor in status["flavorsUsage"] for one in flavor["resources"]
    )
    return not is_used and not any(status.get(count) for status in said for count in counts)


def is_set_up(queues: Watched, name: str) -> bool:
    """Whether a new queue and its flavor have their statuses and their finalizers, which are written once."""
    has_finalizers = all(
        queues.api.get(kind, each)["metadata"].get("finalizers")
        for kind, each in (("ClusterQueue", name), ("ResourceFlavor", "default"))
    )
    return has_finalizers and all(queues.condition(kind, name, "Active") for kind in ("ClusterQueue", "LocalQueue"))


def test_a_write_for_each_admission_and_none_for_anything_else(town: ControlPlane, asked: Asked) -> None:
    queues = Watched(town.api)
    with running(town):
        eventually(lambda: all(is_set_up(queues, name) for name in QUEUES), seconds=30)
        began = time.monotonic()
        asked.requests.clear()
        asked.bytes.clear()
        create(town, "w")
        eventually(lambda: admitted(town) == WORKLOADS, seconds=90, every=0.5)
        eventually(lambda: queues.status("ClusterQueue", "a").get("admittedWorkloads") == WORKLOADS // 4)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda one: queues.finish(one[0]), names("w")))
        eventually(lambda: all(is_empty(queues, name) for name in QUEUES), seconds=30, every=0.5)
        seconds = time.monotonic() - began
    writes = asked.writes()
    assert writes.pop(ADMISSION) == WORKLOADS, "one merge patch for each admission, none for an end"
    assert asked.bytes[ADMISSION] / WORKLOADS < 900
    for kind in ("clusterqueues", "localqueues"):
        assert writes.pop(f"PATCH {kind}/status") <= len(QUEUES) * (seconds + 2), "each at most once a second"
    assert writes.pop("POST events", 0) <= 50 + 5 * (seconds + 1), "Events keep to their pace"
    assert not writes
    assert {what for what in asked.requests if what.startswith("GET")} == set(), "what is watched is never read"


def test_a_start_lists_each_kind_once_and_writes_nothing(town: ControlPlane, asked: Asked) -> None:
    """The Workloads of the test before are there, finished; the queues say what is true."""
    with running(town):
        time.sleep(1.5)
    assert not asked.writes()
    listings = {what: count for what, count in asked.requests.items() if what.startswith("GET")}
    assert listings.pop("GET workloads") == 1
    # Whether a kind is served at all is asked before it is listed.
    assert max(listings.values()) <= 2
