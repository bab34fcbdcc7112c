"""Gangs that need a rack, on 5,000 fake nodes: whether the real scheduler binds every pod where it was to go.

500 gangs of 1 to 64 GPU pods are created at once through the real webhook, as pod groups with a required rack, and run
for a while each. What is counted comes from one watch of pods. It must never take Muster's word for where a pod is.
"""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks import contestants, measure, report, scenarios
from benchmarks.contestants import MUSTER, PEER, SIDES, Side
from benchmarks.driver import Door, say
from benchmarks.installed import Installed, installed
from benchmarks.measure import Usage
from benchmarks.report import Bound, Figure
from tests.controlplane.cluster import ControlPlane

_BLOCKS, _RACKS, _HOSTS, _GPUS = 25, 10, 20, 8
_GANGS = 500
_LABELS = ("example.com/block", "example.com/rack", "kubernetes.io/hostname")
_NAMESPACE = "racks"
_PODS_PATH = f"/api/v1/namespaces/{_NAMESPACE}/pods"
_GROUP = "kueue.x-k8s.io/pod-group-name"
_RUN_FOR = "20s"
_AT_ONCE = 16
_LONGEST = 3600.0

#: GPUs of each pod by the number of pods: every gang fits into an empty rack of 160 GPUs, two of the largest do not.
_SHAPES = {1: 8, 2: 8, 4: 8, 8: 8, 16: 8, 32: 4, 64: 2}


@dataclass(slots=True)
class Gang:
    """Times of the loop; `racks` are those of the nodes that its pods were bound to."""

    pods: int
    created: float = 0.0
    bound: dict[str, float] = field(default_factory=dict)
    racks: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Run:
    wall: float
    gangs: dict[str, Gang]
    unschedulable: set[str]
    controller: Usage
    api_server: Usage


def figures(divisor: int, sides: list[str]) -> list[Figure]:
    runs = {name: _run(SIDES[name], divisor) for name in sides}
    muster, peer = runs.get(MUSTER.name), runs.get(PEER.name)
    found: list[Figure] = []

    def add(name: str, value: Any, unit: str, bound: Bound | None = None) -> None:
        ours, theirs = (None if run is None else value(run) for run in (muster, peer))
        found.extend(report.compared(f"racks.{name}", ours, theirs, unit, bound))

    none = Bound(at_most=0, of_value=True)
    add("gangs", lambda run: len(run.gangs), "gangs")
    add("pods", lambda run: sum(gang.pods for gang in run.gangs.values()), "pods")
    add("pods_not_bound", lambda run: sum(gang.pods - len(gang.bound) for gang in run.gangs.values()), "pods", none)
    add("gangs_outside_one_rack", lambda run: sum(len(g.racks) != 1 for g in run.gangs.values()), "gangs", none)
    add("pods_unschedulable", lambda run: len(run.unschedulable), "pods", none)
    for share, name in ((0.5, "p50"), (0.95, "p95"), (1, "max")):
        add(f"created_to_bound.{name}", lambda run, q=share: report.quantile(_waits(run), q), "s")
    add("wall", lambda run: run.wall, "s")
    add("cpu.controller", lambda run: run.controller.cpu, "s")
    add("memory.controller", lambda run: run.controller.memory, "MiB")
    add("cpu.api_server", lambda run: run.api_server.cpu, "s")
    return found


def _waits(run: Run) -> list[float]:
    return [max(gang.bound.values(), default=run.wall) - gang.created for gang in run.gangs.values()]


def _run(side: Side, divisor: int) -> Run:
    with contestants.control_plane(side) as plane:
        # Two cores cannot keep 5,000 fake nodes alive and do all the rest; a node that fails is not what is looked at.
        plane.start_controllers(node_monitor_grace_period="1h")
        plane.start_scheduler()
        blocks = max(1, _BLOCKS // divisor)
        rack_of = uvloop.run(_build(plane, blocks))
        plane.start_kwok()
        with installed(side, plane) as running:
            say(f"racks: {_GANGS // divisor} gangs on {len(rack_of)} nodes, {side.name}")
            return uvloop.run(_play(plane, running, _GANGS // divisor, rack_of))


async def _build(plane: ControlPlane, blocks: int) -> dict[str, str]:
    """Nodes, queue, flavor and topology. The rack of each node."""
    rack_of, slots = {}, asyncio.Semaphore(_AT_ONCE)
    async with Door(plane.server, plane.token, plane.ca) as door:

        async def post(path: str, body: dict[str, Any]) -> None:
            async with slots:
                status, content = await door.ask("POST", path, body)
                if status >= 400:
                    raise RuntimeError(f"{path}: {status} {content.decode(errors='replace'):.500}")

        bodies = list(_objects())
        for number in range(blocks * _RACKS * _HOSTS):
            name, rack = f"host-{number}", number // _HOSTS
            rack_of[name] = f"rack-{rack}"
            values = (f"block-{rack // _RACKS}", f"rack-{rack}", name)
            bodies.append(("/api/v1/nodes", _node(name, dict(zip(_LABELS, values, strict=True)))))
        await asyncio.gather(*(post(path, body) for path, body in bodies if "localqueues" not in path))
        await asyncio.gather(*(post(path, body) for path, body in bodies if "localqueues" in path))
    return rack_of


def _node(name: str, labels: dict[str, str]) -> dict[str, Any]:
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(_GPUS)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {**labels, "example.com/pool": "racks"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def _objects() -> Iterator[tuple[str, dict[str, Any]]]:
    api = scenarios.API
    yield "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}}

    def kueue(kind: str, plural: str, spec: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return f"/apis/{api}/{plural}", {"apiVersion": api, "kind": kind, "metadata": {"name": "racks"}, "spec": spec}

    yield kueue("Topology", "topologies", {"levels": [{"nodeLabel": label} for label in _LABELS]})
    yield kueue(
        "ResourceFlavor", "resourceflavors", {"topologyName": "racks", "nodeLabels": {"example.com/pool": "racks"}}
    )
    quota = {"name": "nvidia.com/gpu", "nominalQuota": str(_BLOCKS * _RACKS * _HOSTS * _GPUS)}
    flavor = {"name": "racks", "resources": [quota]}
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}]
    yield kueue("ClusterQueue", "clusterqueues", {"namespaceSelector": {}, "resourceGroups": groups})
    path, local = kueue("LocalQueue", f"namespaces/{_NAMESPACE}/localqueues", {"clusterQueue": "racks"})
    local["metadata"]["namespace"] = _NAMESPACE
    yield path, local


def _pod(gang: str, number: int, pods: int) -> dict[str, Any]:
    annotations = {
        "kueue.x-k8s.io/pod-group-total-count": str(pods),
        "kueue.x-k8s.io/podset-required-topology": _LABELS[1],
        "example.com/run-for": _RUN_FOR,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{gang}-{number}",
            "namespace": _NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "racks", _GROUP: gang},
            "annotations": annotations,
        },
        "spec": {
            "restartPolicy": "Never",
            "containers": [
                {"name": "c", "image": "none", "resources": {"limits": {"nvidia.com/gpu": str(_SHAPES[pods])}}}
            ],
        },
    }


class _Play:
    def __init__(self, door: Door, count: int, rack_of: dict[str, str]) -> None:
        dice = random.Random(1)
        self.door = door
        self.rack_of = rack_of
        self.gangs = {f"gang-{number}": Gang(dice.choice(list(_SHAPES))) for number in range(count)}
        self.unschedulable: set[str] = set()
        self.left = sum(gang.pods for gang in self.gangs.values())
        self.done = asyncio.Event()
        self.loop = asyncio.get_running_loop()

    async def create(self, name: str, slots: asyncio.Semaphore) -> None:
        gang = self.gangs[name]
        async with slots:
            for number in range(gang.pods):
                await self.door.create_gated(_PODS_PATH, _pod(name, number, gang.pods))
            gang.created = self.loop.time()

    async def follow(self, version: str) -> None:
        async for obj in self.door.follow(_PODS_PATH, version):
            self._see(obj)

    def _see(self, pod: dict[str, Any]) -> None:
        name, gang = pod["metadata"]["name"], self.gangs[pod["metadata"]["labels"][_GROUP]]
        for condition in pod.get("status", {}).get("conditions", ()):
            if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
                self.unschedulable.add(name)
        node = pod["spec"].get("nodeName")
        if node and name not in gang.bound:
            gang.bound[name] = self.loop.time()
            gang.racks.add(self.rack_of[node])
            self.left -= 1
            if not self.left:
                self.done.set()


async def _play(plane: ControlPlane, running: Installed, count: int, rack_of: dict[str, str]) -> Run:
    server = plane.processes["kube-apiserver"].pid
    async with Door(plane.server, plane.token, plane.ca) as door:
        before = measure.usage(server)
        play = _Play(door, count, rack_of)
        following = asyncio.ensure_future(play.follow(await door.version(_PODS_PATH)))
        telling = asyncio.ensure_future(_tell(play))
        began, slots = play.loop.time(), asyncio.Semaphore(_AT_ONCE)
        try:
            async with asyncio.timeout(_LONGEST):
                await asyncio.gather(*(play.create(name, slots) for name in play.gangs))
                await play.done.wait()
        except TimeoutError:
            say(f"{play.left} pods were not bound within {_LONGEST:.0f} s")
        wall = play.loop.time() - began
        for task in (following, telling):
            task.cancel()
        await asyncio.gather(following, telling, return_exceptions=True)
        used = measure.usage(server).since(before)
        return Run(wall, play.gangs, play.unschedulable, running.controller_usage(), used)


async def _tell(play: _Play) -> None:
    while True:
        await asyncio.sleep(10)
        states: dict[str, int] = defaultdict(int)
        for gang in play.gangs.values():
            states["bound" if len(gang.bound) == gang.pods else "created" if gang.created else "to come"] += 1
        say(", ".join(f"{count} gangs {state}" for state, count in sorted(states.items())))
