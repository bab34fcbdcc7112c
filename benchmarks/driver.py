"""Plays everybody but the queueing system: creates queues and workloads at their times, and ends what has run.

It works from a scenario and from one watch, and finishes a workload by a merge patch of its status, so that little of
what is measured is the driver. It never helps one side: both get the same objects, at the same times.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import msgspec

from benchmarks import scenarios
from benchmarks.scenarios import Class, Creation, Scenario

_WORKLOADS = f"/apis/{scenarios.API}/workloads"
_PATHS = {
    "Node": "/api/v1/nodes",
    "Namespace": "/api/v1/namespaces",
    "Topology": f"/apis/{scenarios.API}/topologies",
    "ResourceFlavor": f"/apis/{scenarios.API}/resourceflavors",
    "ClusterQueue": f"/apis/{scenarios.API}/clusterqueues",
}
MERGE = "application/merge-patch+json"


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""
    message: str = ""
    lastTransitionTime: str = ""  # noqa: N815  # as on the wire
    observedGeneration: int = 0  # noqa: N815


class _Status(msgspec.Struct, frozen=True):
    conditions: list[_Condition] = []


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""
    resourceVersion: str = ""  # noqa: N815


class _Object(msgspec.Struct):
    metadata: _Meta = _Meta()
    status: _Status = _Status()


class _Event(msgspec.Struct):
    type: str
    object: _Object


_EVENTS = msgspec.json.Decoder(_Event)


@dataclass(slots=True)
class _Seen:
    """A workload as last seen; times are those of the loop, negative when it did not happen (yet)."""

    of: Class
    conditions: list[_Condition] = field(default_factory=list)
    version: str = ""
    first_at: float = -1.0
    admitted_at: float = -1.0
    evictions: int = 0
    timer: asyncio.TimerHandle | None = None
    is_done: bool = False
    is_releasing: bool = False

    @property
    def runs(self) -> bool:
        return self.has("Admitted") and not self.has("Evicted")

    def has(self, kind: str) -> bool:
        return any(one.type == kind and one.status == "True" for one in self.conditions)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`wall` from the start of the clock to the last finish; `waits` are mean seconds from first seen to admitted."""

    wall: float
    waits: dict[str, float]
    evictions: int
    own: dict[str, int]


class Door:
    """The API server, over kept connections."""

    def __init__(self, server: str, token: str, ca: str, connections: int = 100) -> None:
        self.server = server
        context = ssl.create_default_context(cafile=ca)
        connector = aiohttp.TCPConnector(limit=connections, ssl=context)
        self.session = aiohttp.ClientSession(
            connector=connector,
            headers={"Authorization": f"Bearer {token}", "User-Agent": "benchmark-driver"},
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self.own: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def ask(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json"
    ) -> tuple[int, bytes]:
        """Once more and again while the API server asks to wait or a connection breaks."""
        data = None if body is None else json.dumps(body).encode()
        while True:
            try:
                async with self.session.request(
                    method, self.server + path, data=data, headers={"Content-Type": content_type}
                ) as answer:
                    content = await answer.read()
                    if answer.status not in {429, 500, 503, 504}:
                        return answer.status, content
            except (aiohttp.ClientError, OSError):
                pass
            await asyncio.sleep(0.2)

    async def create(self, path: str, body: Any, what: str) -> None:
        status, content = await self.ask("POST", path, body)
        if status >= 400 and status != 409:
            raise RuntimeError(f"creating {path}: {status} {content.decode(errors='replace'):.500}")
        self.own[f"POST {what}"] += 1

    async def create_gated(self, path: str, pod: Any) -> None:
        """A pod that comes back without a gate would be nobody's."""
        status, content = await self.ask("POST", path, pod)
        if status >= 400 or not json.loads(content)["spec"].get("schedulingGates"):
            raise RuntimeError(f"a pod was not gated: {status} {content.decode(errors='replace'):.500}")

    async def watch(self, path: str, version: str) -> AsyncIterator[bytes]:
        """Lines, from this version on, until the API server ends it."""
        query = f"?watch=true&resourceVersion={version}&timeoutSeconds=7200"
        async with self.session.get(self.server + path + query) as answer:
            if answer.status == 429:
                await asyncio.sleep(0.2)
                return
            if answer.status != 200:
                raise RuntimeError(f"watching {path}: {answer.status} {await answer.text():.500}")
            parts: list[bytes] = []
            async for chunk in answer.content.iter_any():
                head, newline, rest = chunk.partition(b"\n")
                parts.append(head)
                while newline:
                    yield b"".join(parts)
                    head, newline, rest = rest.partition(b"\n")
                    parts = [head]

    async def version(self, path: str) -> str:
        """From which a watch sees what comes."""
        _, content = await self.ask("GET", path + "?limit=1")
        return str(json.loads(content)["metadata"]["resourceVersion"])

    async def follow(self, path: str, version: str) -> AsyncIterator[Any]:
        """The objects that change from this version on, for ever: the API server ends a watch when it likes."""
        while True:
            async for line in self.watch(path, version):
                obj = json.loads(line)["object"]
                version = obj["metadata"]["resourceVersion"]
                yield obj


class Driver:
    """Plays one scenario against one API server."""

    def __init__(self, door: Door, scenario: Scenario, *, releases: bool) -> None:
        self.door = door
        self.scenario = scenario
        #: The side under test takes back evicted workloads' quota itself.
        self.releases = releases
        self.seen: dict[tuple[str, str], _Seen] = {}
        self.left = scenario.workloads
        self._done = asyncio.Event()
        self._failed: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    # ------------------------------------------------------------------ before the clock starts

    async def set_up(self, seconds: float = 60) -> None:
        """All queues are there and active."""
        for body in scenarios.shared_objects(self.scenario):
            await self.door.create(path_of(body), body, body["kind"].lower())
            if body["kind"] == "Node":
                path = f"{path_of(body)}/{body['metadata']['name']}"
                await self.door.ask("PATCH", path, {"spec": {"taints": None}}, content_type=MERGE)
                await self.door.ask("PATCH", path + "/status", {"status": body["status"]}, content_type=MERGE)
        slots = asyncio.Semaphore(16)
        await asyncio.gather(*(self._queue(queue, slots) for queue in scenarios.queues(self.scenario)))
        say("the queues are made")
        deadline = self._loop.time() + seconds
        while not await self._are_active():
            if self._loop.time() > deadline:
                raise TimeoutError(f"the queues are not active within {seconds:g} s")
            await asyncio.sleep(0.25)

    async def _queue(self, queue: scenarios.Queue, slots: asyncio.Semaphore) -> None:
        async with slots:
            for body in scenarios.queue_objects(self.scenario, queue):
                await self.door.create(path_of(body), body, body["kind"].lower())

    async def _are_active(self) -> bool:
        _, content = await self.door.ask("GET", _PATHS["ClusterQueue"] + "?resourceVersion=0")
        items = json.loads(content).get("items", [])
        active = [
            item
            for item in items
            for one in item.get("status", {}).get("conditions", ())
            if one["type"] == "Active" and one["status"] == "True"
        ]
        return len(active) == len(scenarios.queues(self.scenario))

    # ------------------------------------------------------------------ the run

    async def play(self, seconds: float = 3600) -> Outcome:
        """From the first creation to the last finish. Raises TimeoutError when that takes longer than `seconds`."""
        self._spawn(self._follow(await self.door.version(_WORKLOADS)))
        began = self._loop.time()
        sets: dict[tuple[str, str], list[Creation]] = {}
        for creation in scenarios.creations(self.scenario):
            self.seen[creation.queue, creation.name] = _Seen(creation.of)
            sets.setdefault((creation.queue, creation.of.name), []).append(creation)
        for one in sets.values():
            self._spawn(self._create(one, began))
        self._spawn(self._tell(began))
        async with asyncio.timeout(seconds):
            await self._done.wait()
        wall, failed = self._loop.time() - began, self._failed
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if failed is not None:
            raise failed
        return Outcome(wall, self._waits(), sum(one.evictions for one in self.seen.values()), dict(self.door.own))

    async def _tell(self, began: float) -> None:
        """How far it is, for those who wait."""
        while True:
            await asyncio.sleep(10)
            there = sum(one.first_at >= 0 for one in self.seen.values())
            started = sum(one.admitted_at >= 0 for one in self.seen.values())
            ended = self.scenario.workloads - self.left
            say(f"{self._loop.time() - began:.0f} s: {there} created, {started} started, {ended} ended")

    def _waits(self) -> dict[str, float]:
        waits: dict[str, list[float]] = {size: [] for size in self.scenario.sizes}
        for one in self.seen.values():
            waits[one.of.size].append(one.admitted_at - one.first_at)
        return {size: sum(found) / len(found) for size, found in waits.items()}

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = self._failed or task.exception()
            self._done.set()

    async def _create(self, creations: list[Creation], began: float) -> None:
        """One class of one queue, one after the other, each not before its time."""
        for creation in creations:
            await asyncio.sleep(max(0.0, began + creation.at - self._loop.time()))
            path = f"/apis/{scenarios.API}/namespaces/{creation.queue}/workloads"
            await self.door.create(path, scenarios.workload_object(creation), "workloads")

    async def _follow(self, version: str) -> None:
        """For ever: the API server ends a watch when it likes, soon after a CRD was made for instance."""
        while True:
            async for line in self.door.watch(_WORKLOADS, version):
                event = _EVENTS.decode(line)
                if event.type not in {"ADDED", "MODIFIED"}:
                    raise RuntimeError(f"the watch of workloads said {line.decode():.500}")
                version = event.object.metadata.resourceVersion
                self._take(event.object)

    def _take(self, obj: _Object) -> None:
        key = (obj.metadata.namespace, obj.metadata.name)
        one = self.seen[key]
        one.version, one.conditions = obj.metadata.resourceVersion, obj.status.conditions
        if one.first_at < 0:
            one.first_at = self._loop.time()
        if not one.is_done:
            self._react(key, one)

    def _react(self, key: tuple[str, str], one: _Seen) -> None:
        if one.runs:
            if one.timer is None:
                one.admitted_at = self._loop.time()
                one.timer = self._loop.call_later(one.of.run_ms / 1000, self._finish_later, key, one)
            return
        if one.timer is not None:
            one.timer.cancel()
            one.timer = None
            one.evictions += 1
        if not self.releases and not one.is_releasing and one.has("Evicted") and one.has("QuotaReserved"):
            one.is_releasing = True
            self._spawn(self._release(key, one))

    def _finish_later(self, key: tuple[str, str], one: _Seen) -> None:
        one.is_done = True
        self._spawn(self._finish(key, one))

    async def _finish(self, key: tuple[str, str], one: _Seen) -> None:
        """Unless it was evicted at the last moment, which a conflict tells."""
        while True:
            if not one.runs:
                one.is_done = False
                self._react(key, one)
                return
            done = _Condition("Finished", "True", "ByTest", "By the benchmark", _now())
            if await self._write(key, one, [*one.conditions, done], {}):
                break
        self.left -= 1
        if not self.left:
            self._done.set()

    async def _release(self, key: tuple[str, str], one: _Seen) -> None:
        """Its pods are gone: what the job's integration would write."""
        while one.has("QuotaReserved"):
            ended = {"QuotaReserved": "Pending", "Admitted": "NoReservation"}
            conditions = [
                _Condition(old.type, "False", ended[old.type], "Evicted by the benchmark", _now())
                if old.type in ended
                else old
                for old in one.conditions
            ]
            if await self._write(key, one, conditions, {"admission": None}):
                break
        one.is_releasing = False

    async def _write(
        self, key: tuple[str, str], one: _Seen, conditions: list[_Condition], more: dict[str, Any]
    ) -> bool:
        """Whether the status was written onto the object as last seen; else a newer one was seen by now."""
        version = one.version
        body = {
            "metadata": {"resourceVersion": version},
            "status": {"conditions": [_plain(condition) for condition in conditions], **more},
        }
        path = f"/apis/{scenarios.API}/namespaces/{key[0]}/workloads/{key[1]}/status"
        status, content = await self.door.ask("PATCH", path, body, content_type=MERGE)
        if status < 400:
            self.door.own["PATCH workloads/status"] += 1
            return True
        self.door.own[f"PATCH workloads/status ({status})"] += 1
        if status != 409:
            raise RuntimeError(f"writing {key}: {status} {content.decode(errors='replace'):.500}")
        while one.version == version:  # noqa: ASYNC110  # an event for each of 50,000 workloads costs more
            await asyncio.sleep(0.01)
        return False


def path_of(body: Any) -> str:
    """Where such an object is created."""
    if body["kind"] == "LocalQueue":
        return f"/apis/{scenarios.API}/namespaces/{body['metadata']['namespace']}/localqueues"
    return _PATHS[body["kind"]]


def true_of(obj: Any) -> set[str]:
    """The conditions of an object that hold."""
    return {one["type"] for one in obj.get("status", {}).get("conditions", ()) if one["status"] == "True"}


def say(text: str) -> None:
    print(f"# {text}", file=sys.stderr, flush=True)


def _plain(condition: _Condition) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(condition)
    if not condition.observedGeneration:
        del plain["observedGeneration"]
    return plain


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
