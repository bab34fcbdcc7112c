"""Gangs: groups of 8 plain GPU pods through the real webhook, the real scheduler and fake nodes, step by step.

The steps are created to gated, last pod to admitted, admitted to ungated, ungated to bound, each taken from one watch
of pods and one of Workloads. It must never see the two sides through different eyes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks import contestants, measure, report, scenarios
from benchmarks.contestants import MUSTER, PEER, SIDES, Side
from benchmarks.driver import Door, say, true_of
from benchmarks.installed import Installed, installed
from benchmarks.measure import Usage
from benchmarks.report import Bound, Figure
from tests.controlplane.cluster import ControlPlane

_GROUPS, _PODS = 2000, 8
_NODES, _GPUS = 250, 8
_NAMESPACE = "gangs"
_PODS_PATH = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_GROUP = "kueue.x-k8s.io/pod-group-name"
_AT_ONCE = 16
_RUN_FOR = "2s"
_LONGEST = 3600.0
STEPS = ("created_to_gated", "last_pod_to_admitted", "admitted_to_ungated", "ungated_to_bound")


@dataclass(slots=True)
class Group:
    """Times of the loop. Of a group's pods the last one counts at every step."""

    sent: float = 0.0
    created: list[float] = field(default_factory=list)
    admitted: float = 0.0
    ungated: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)

    @property
    def is_bound(self) -> bool:
        return len(self.bound) == _PODS

    def steps(self) -> dict[str, float]:
        """Seconds of each step."""
        return {
            "last_pod_to_admitted": self.admitted - max(self.created),
            "admitted_to_ungated": max(self.ungated.values()) - self.admitted,
            "ungated_to_bound": max(self.bound.values()) - max(self.ungated.values()),
        }


@dataclass(frozen=True, slots=True)
class Run:
    wall: float
    steps: dict[str, list[float]]
    controller: Usage
    installation: Usage
    api_server: Usage
    requests: dict[str, int]


def figures(divisor: int, sides: list[str]) -> list[Figure]:
    count = _GROUPS // divisor
    runs = {name: _run(SIDES[name], count) for name in sides}
    muster, peer = runs.get(MUSTER.name), runs.get(PEER.name)
    found: list[Figure] = []

    def add(name: str, value: Any, unit: str, bound: Bound | None = None) -> None:
        ours, theirs = (None if run is None else value(run) for run in (muster, peer))
        found.extend(report.compared(f"gangs.{name}", ours, theirs, unit, bound))

    for step in STEPS:
        for share, name in ((0.5, "p50"), (0.95, "p95"), (0.99, "p99")):
            bound = Bound(at_most=0.5) if (step, name) == ("admitted_to_ungated", "p95") else None
            add(f"{step}.{name}", lambda run, s=step, q=share: report.quantile(run.steps[s], q), "s", bound)
    add("wall", lambda run: run.wall, "s")
    add("cpu.controller", lambda run: run.controller.cpu, "s", Bound(at_most=0.4))
    add("cpu.api_server", lambda run: run.api_server.cpu, "s")
    add("memory.controller", lambda run: run.controller.memory, "MiB", Bound(at_most=0.4))
    add("cpu.installation", lambda run: run.installation.cpu, "s")
    add("memory.installation", lambda run: run.installation.memory, "MiB")
    add("memory.api_server", lambda run: run.api_server.memory, "MiB")
    for what in dict.fromkeys(what for run in runs.values() for what in run.requests):
        if any(run.requests.get(what, 0) >= count / 10 for run in runs.values()):
            add(f"requests.{what.replace(' ', '_')}", lambda run, w=what: run.requests.get(w, 0) / count, "1/group")
    return found


def _run(side: Side, count: int) -> Run:
    with contestants.control_plane(side) as plane:
        plane.start_controllers()
        plane.start_scheduler()
        plane.start_kwok()
        for body in _objects():
            plane.api.create(body)
        with installed(side, plane) as running:
            say(f"gangs: {count} groups of {_PODS} pods, {side.name}")
            return uvloop.run(_play(plane, running, count))


def _objects() -> Iterator[dict[str, Any]]:
    for number in range(_NODES):
        allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(_GPUS)}
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"node-{number}", "annotations": {"kwok.x-k8s.io/node": "fake"}},
            "status": {"allocatable": allocatable, "capacity": allocatable},
        }
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}
    api = scenarios.API
    yield {"apiVersion": api, "kind": "ResourceFlavor", "metadata": {"name": "gpu"}, "spec": {}}
    quota = {"name": "nvidia.com/gpu", "nominalQuota": str(_NODES * _GPUS)}
    group = {"coveredResources": ["nvidia.com/gpu"], "flavors": [{"name": "gpu", "resources": [quota]}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield {"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": "gpus"}, "spec": spec}
    metadata = {"name": "gpus", "namespace": _NAMESPACE}
    yield {"apiVersion": api, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": "gpus"}}


def _pod(group: str, number: int) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{group}-{number}",
            "namespace": _NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "gpus", _GROUP: group},
            "annotations": {"kueue.x-k8s.io/pod-group-total-count": str(_PODS), "example.com/run-for": _RUN_FOR},
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
        },
    }


class _Play:
    def __init__(self, door: Door, count: int) -> None:
        self.door = door
        self.groups = {f"group-{number}": Group() for number in range(count)}
        self.gated: list[float] = []
        self.left = count
        self.done = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def create(self, name: str, slots: asyncio.Semaphore) -> None:
        async with slots:
            for number in range(_PODS):
                began = self.loop.time()
                await self.door.create_gated(_PODS_PATH, _pod(name, number))
                self.gated.append(self.loop.time() - began)
                self.groups[name].created.append(self.loop.time())

    async def pods(self, version: str) -> None:
        async for obj in self.door.follow(_PODS_PATH, version):
            self._pod(obj, self.groups[obj["metadata"]["labels"][_GROUP]])

    def _pod(self, obj: dict[str, Any], group: Group) -> None:
        name, now = obj["metadata"]["name"], self.loop.time()
        if not obj["spec"].get("schedulingGates"):
            group.ungated.setdefault(name, now)
        if obj["spec"].get("nodeName") and name not in group.bound:
            group.bound[name] = now
            self.left -= group.is_bound
            if not self.left:
                self.done.set()

    async def workloads(self, version: str) -> None:
        path = f"/apis/{scenarios.API}/namespaces/{_NAMESPACE}/workloads"
        async for obj in self.door.follow(path, version):
            group = self.groups.get(obj["metadata"]["name"])
            if group is not None and not group.admitted and "Admitted" in true_of(obj):
                group.admitted = self.loop.time()


async def _play(plane: ControlPlane, running: Installed, count: int) -> Run:
    server = plane.processes["kube-apiserver"].pid
    async with Door(plane.server, plane.token, plane.ca) as door:
        before = measure.usage(server)
        _, content = await door.ask("GET", "/metrics")
        asked = measure.requests(content.decode())
        version = await door.version(_PODS_PATH)
        play = _Play(door, count)
        following: list[Any] = [play.pods(version), play.workloads(version)]
        watches = [asyncio.ensure_future(each) for each in following]
        began = play.loop.time()
        slots = asyncio.Semaphore(_AT_ONCE)
        creating = asyncio.gather(*(play.create(name, slots) for name in play.groups))
        telling = asyncio.ensure_future(_tell(play, began))
        async with asyncio.timeout(_LONGEST):
            await creating
            await play.done.wait()
        wall = play.loop.time() - began
        for task in (*watches, telling):
            task.cancel()
        await asyncio.gather(*watches, telling, return_exceptions=True)
        steps: dict[str, list[float]] = {step: [] for step in STEPS}
        steps["created_to_gated"] = play.gated
        for group in play.groups.values():
            for step, seconds in group.steps().items():
                steps[step].append(seconds)
        _, content = await door.ask("GET", "/metrics")
        return Run(
            wall,
            steps,
            running.controller_usage(),
            running.usage(),
            measure.usage(server).since(before),
            measure.asked(asked, measure.requests(content.decode())),
        )


async def _tell(play: _Play, began: float) -> None:
    while True:
        await asyncio.sleep(10)
        created = sum(len(group.created) == _PODS for group in play.groups.values())
        admitted = sum(group.admitted > 0 for group in play.groups.values())
        bound = len(play.groups) - play.left
        say(f"{play.loop.time() - began:.0f} s: {created} groups created, {admitted} admitted, {bound} bound")
