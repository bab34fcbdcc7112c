"""What the webhooks add to the creation of a pod: 200 pods a second of three sorts, without any webhook and with each.

Measured at the client, create by create, and by the API server's count of calls. The pods name queues that do not exist
or none: what is measured is the way of a create through the webhook, not what comes after it.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass, field
from typing import Any

import uvloop

from benchmarks import contestants, measure, report
from benchmarks.contestants import MUSTER, PEER, SIDES, Side
from benchmarks.driver import Door, say
from benchmarks.installed import installed
from benchmarks.report import Bound, Figure

_RATE = 200
_SECONDS = 60
_NAMESPACE = "webhook"
_COUNT = re.compile(
    r"^apiserver_admission_webhook_admission_duration_seconds_count\{([^}]*)\} (\S+)$", re.MULTILINE
)  # fmt: skip


@dataclass(slots=True)
class Load:
    """Seconds of each create, by sort of pod; `calls` are those of webhooks, `bare` the same load without any.

    `cpu` is that of all processes of the installation; where the webhook has its own, `webhook_cpu` is that one's.
    """

    latencies: dict[str, list[float]] = field(default_factory=dict)
    calls: float = 0.0
    cpu: float = 0.0
    webhook_cpu: float = 0.0
    bare: Load | None = None

    def quantile(self, share: float, sort: str = "") -> float:
        """In milliseconds."""
        found = self.latencies[sort] if sort else [each for one in self.latencies.values() for each in one]
        return report.quantile(found, share) * 1000

    def added(self, share: float) -> float:
        return self.quantile(share) - (0.0 if self.bare is None else self.bare.quantile(share))

    @property
    def pods(self) -> int:
        return sum(map(len, self.latencies.values()))


SORTS = ("gpu", "labelled", "other")


def pod(number: int, sort: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "none"}
    metadata: dict[str, Any] = {"name": f"{sort}-{number}", "namespace": _NAMESPACE}
    if sort != "other":
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": "none"}
    if sort == "gpu":
        container["resources"] = {"limits": {"nvidia.com/gpu": "8"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def figures(divisor: int, sides: list[str]) -> list[Figure]:
    seconds = _SECONDS / divisor
    loads = {name: _measured(SIDES[name], seconds) for name in sides}
    muster, peer = loads.get(MUSTER.name), loads.get(PEER.name)
    found: list[Figure] = []

    def add(name: str, value: Any, unit: str, *bounds: Bound) -> None:
        ours, theirs = (None if load is None else value(load) for load in (muster, peer))
        first, *rest = bounds or (None,)
        found.extend(report.compared(f"webhook.{name}", ours, theirs, unit, first))
        if ours is not None:
            itself = (Figure(f"webhook.{name}.muster.itself", ours, unit, bound=bound) for bound in rest)
            found.extend(report.show(figure) for figure in itself)

    for share, name in ((0.5, "p50"), (0.99, "p99")):
        bounds = (Bound(at_most=1.0), Bound(at_most=10.0, of_value=True)) if share > 0.9 else ()
        add(f"added.{name}", lambda load, s=share: load.added(s), "ms", *bounds)
        for sort in SORTS:
            add(f"create.{sort}.{name}", lambda load, s=share, k=sort: load.quantile(s, k), "ms")
        add(f"create.without.{name}", lambda load, s=share: load.quantile(s) - load.added(s), "ms")
    add("calls", lambda load: load.calls / load.pods, "1/pod")
    add("cpu_of_installation", lambda load: load.cpu / load.pods * 1000, "ms/pod")
    if muster is not None and muster.calls:
        each = muster.webhook_cpu / muster.calls * 1000
        found.append(report.show(Figure("webhook.cpu_per_review.muster", each, "ms")))
    return found


def _measured(side: Side, seconds: float) -> Load:
    """Without any webhook and then with those of this side, on the same control plane."""
    with contestants.control_plane(side) as plane:
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
        say(f"webhook: {seconds:g} s without, then {seconds:g} s with {side.name}")
        bare = uvloop.run(_load(plane, seconds))
        with installed(side, plane) as running:
            root = running.process.pid
            before, webhook_before = measure.usage(root), measure.usage_of_children(root, " webhook ")
            load = uvloop.run(_load(plane, seconds))
            load.cpu = measure.usage(root).since(before).cpu
            load.webhook_cpu = measure.usage_of_children(root, " webhook ").since(webhook_before).cpu
            load.bare = bare
        return load


async def _load(plane: Any, seconds: float) -> Load:
    load = Load({sort: [] for sort in SORTS})
    async with Door(plane.server, plane.token, plane.ca) as door:
        loop = asyncio.get_running_loop()
        for number in range(20):  # connections and caches get warm
            await door.ask("POST", f"/api/v1/namespaces/{_NAMESPACE}/pods?dryRun=All", pod(number, "gpu"))
        before = await _calls(door)
        began = loop.time()
        tasks = []
        for number in range(int(seconds * _RATE)):
            await asyncio.sleep(max(0.0, began + number / _RATE - loop.time()))
            tasks.append(loop.create_task(_create(door, load, number, SORTS[number % len(SORTS)])))
        await asyncio.gather(*tasks)
        load.calls = await _calls(door) - before
        await door.ask("DELETE", f"/api/v1/namespaces/{_NAMESPACE}/pods?gracePeriodSeconds=0")
    return load


async def _create(door: Door, load: Load, number: int, sort: str) -> None:
    began = time.perf_counter()
    status, content = await door.ask("POST", f"/api/v1/namespaces/{_NAMESPACE}/pods", pod(number, sort))
    if status >= 400:
        raise RuntimeError(f"creating a pod: {status} {content.decode(errors='replace'):.300}")
    load.latencies[sort].append(time.perf_counter() - began)


async def _calls(door: Door) -> float:
    _, content = await door.ask("GET", "/metrics")
    return sum(float(value) for _, value in _COUNT.findall(content.decode()))
