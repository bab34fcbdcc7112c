"""Restart: how long a controller takes from its start to the first new admission in a cluster full of workloads.

The workloads are put into etcd as the API server would have stored them, since creating and finishing them one by one
takes longer than everything else. It must never write to etcd while a controller is watching.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import uvloop

from benchmarks import contestants, measure, report, scenarios
from benchmarks.contestants import MUSTER, PEER, SIDES, Side
from benchmarks.driver import Door, path_of, say, true_of
from benchmarks.measure import Usage
from benchmarks.report import Bound, Figure
from benchmarks.scenarios import Class, Creation, Scenario
from tests.controlplane.cluster import ControlPlane

_FINISHED, _RUNNING, _PENDING = 100_000, 20_000, 20_000
_QUEUES = Scenario("restart", cohorts=10, queues=10, classes=(Class("small", 1, 1000, 1000, 1000, 50),))
_STORED = "/registry/kueue.x-k8s.io/workloads"
_WORKLOADS = f"/apis/{scenarios.API}/workloads"
_BATCH = 100
_LONGEST = 900.0


@dataclass(frozen=True, slots=True)
class Run:
    """`first` is when the first workload was admitted, in seconds after the start of the process."""

    first: float
    controller: Usage
    api_server: Usage


def figures(divisor: int, sides: list[str]) -> list[Figure]:
    runs = {name: uvloop.run(_run(SIDES[name], divisor)) for name in sides}
    muster, peer = runs.get(MUSTER.name), runs.get(PEER.name)
    found: list[Figure] = []

    def add(name: str, values: tuple[float | None, float | None], unit: str, at_most: float | None) -> None:
        bound = None if at_most is None else Bound(at_most=at_most)
        found.extend(report.compared(f"restart.{name}", *values, unit, bound))

    def both(value: Any) -> tuple[float | None, float | None]:
        return (None if muster is None else value(muster), None if peer is None else value(peer))

    add("first_admission", both(lambda run: run.first), "s", 0.5)
    add("cpu.controller", both(lambda run: run.controller.cpu), "s", 0.4)
    add("cpu.api_server", both(lambda run: run.api_server.cpu), "s", None)
    add("memory.controller", both(lambda run: run.controller.memory), "MiB", 0.4)
    add("memory.api_server", both(lambda run: run.api_server.memory), "MiB", None)
    return found


async def _run(side: Side, divisor: int) -> Run:
    counts = tuple(count // divisor for count in (_FINISHED, _RUNNING, _PENDING))
    # What runs fills all but a tenth of the quota.
    queues = scenarios.queues(_QUEUES)
    scenario = replace(_QUEUES, nominal=counts[1] // len(queues) * 11 // 10 + 1)
    with contestants.control_plane(side) as plane:
        server = plane.processes["kube-apiserver"].pid
        async with Door(plane.server, plane.token, plane.ca) as door:
            await set_up(door, scenario, queues)
            say(f"restart: {sum(counts)} workloads are being stored for {side.name}")
            await store(plane, workloads(counts, queues))
            version = await door.version(_WORKLOADS)
            before = measure.usage(server)
            watch = asyncio.ensure_future(_first_admission(door, version))
            await asyncio.sleep(1)
            with side.running(plane, topology=False) as process:
                began = time.monotonic()
                first = await asyncio.wait_for(watch, _LONGEST) - began
                await asyncio.sleep(5)  # the peak of memory may come a little later
                return Run(first, measure.usage(process.pid), measure.usage(server).since(before))


async def set_up(door: Door, scenario: Scenario, queues: Iterable[scenarios.Queue]) -> None:
    """The flavor and the queues."""
    for body in scenarios.shared_objects(scenario):
        await door.create(path_of(body), body, body["kind"])
    for queue in queues:
        for body in scenarios.queue_objects(scenario, queue):
            await door.create(path_of(body), body, body["kind"])


async def _first_admission(door: Door, version: str) -> float:
    async for obj in door.follow(_WORKLOADS, version):
        if "Admitted" in true_of(obj):
            return time.monotonic()
    raise AssertionError("a watch that is followed never ends")


def workloads(counts: tuple[int, ...], queues: list[scenarios.Queue]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Finished, running and pending ones, spread over the queues, each as stored and under its key."""
    small = _QUEUES.classes[0]
    for kind, count in zip(("finished", "running", "pending"), counts, strict=True):
        for number in range(count):
            queue = queues[number % len(queues)]
            body = scenarios.workload_object(Creation(0.0, queue.name, f"{kind}-{number}", small))
            body["metadata"] |= {
                "uid": str(uuid.uuid5(uuid.NAMESPACE_OID, f"{kind}-{number}")),
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "generation": 1,
            }
            if kind != "pending":
                body["status"] = _status(queue.name, is_finished=kind == "finished")
            yield f"{_STORED}/{queue.name}/{body['metadata']['name']}", body


def _status(queue: str, *, is_finished: bool) -> dict[str, Any]:
    at = "2026-01-01T00:00:10Z"
    kinds = ["QuotaReserved", "Admitted", *(["Finished"] if is_finished else [])]
    assignment = {"name": "main", "count": 1, "flavors": {"cpu": scenarios.FLAVOR}, "resourceUsage": {"cpu": "1"}}
    return {
        "admission": {"clusterQueue": queue, "podSetAssignments": [assignment]},
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": kind,
                "message": "By the benchmark",
                "lastTransitionTime": at,
                "observedGeneration": 1,
            }
            for kind in kinds
        ],
    }


async def store(plane: ControlPlane, objects: Iterator[tuple[str, dict[str, Any]]]) -> None:
    """Straight into etcd, many at a time."""

    def coded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    async with aiohttp.ClientSession() as session:
        batch: list[dict[str, Any]] = []

        async def flush() -> None:
            async with session.post(f"{plane.etcd}/v3/kv/txn", json={"success": batch}) as answer:
                if answer.status != 200:
                    raise RuntimeError(f"etcd: {await answer.text():.500}")
            batch.clear()

        for key, body in objects:
            batch.append({"requestPut": {"key": coded(key), "value": coded(json.dumps(body))}})
            if len(batch) == _BATCH:
                await flush()
        if batch:
            await flush()
