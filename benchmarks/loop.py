"""What the controller itself costs for each Workload: its whole loop, in simulated time.

Around it is an API server in memory. A scenario's creations come when they fall due, admitted Workloads finish after
their running time, and the clock jumps to whatever is next; so nothing is measured but the controller's own CPU time.
What the API server in memory needs is taken off. It is for finding out what a change is worth; what counts is measured
with `benchmarks.run`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import cProfile
import gc
import selectors
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from admission.api import meta
from admission.commands import logs
from admission.commands.surroundings import journal_url
from admission.controllers.loop import Controller
from admission.kube.client import Listing, WatchEvent
from admission.kube.errors import Conflict, NotFound
from admission.kube.reading import read
from admission.kube.resources import Resource
from admission.settings import Settings, load
from benchmarks import contestants, report, scenarios
from benchmarks.report import Figure
from benchmarks.scenarios import Creation, Scenario
from queues.journal import migrate
from queues.journal.writer import Journal
from tests.merging import merged

#: Seconds that one write occupies the API server, and until a watch tells a change: those of a real one on two cores.
_A_WRITE = 1 / 400
_WATCH_DELAY = 0.02
_BEGINNING = 1_800_000_000.0


class _Clock(selectors.DefaultSelector):  # type: ignore[valid-type, misc]  # the class depends on the platform
    """Never waits: what would have been waited for is added to the time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not found and timeout:
            self.now += timeout
        return found


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: _Clock) -> None:
        super().__init__(clock)
        self._clock_of_the_run = clock

    def time(self) -> float:
        return self._clock_of_the_run.now


class MemoryServer:
    """Stores, checks versions and tells watches; as much of an API server as the controller's loop asks for."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._objects: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}
        self._watches: dict[str, list[asyncio.Queue[tuple[float, bytes, str]]]] = {}
        self._version = 1
        self._free_at = 0.0
        self.writes = 0
        self.refused = 0
        #: Seconds that this took itself. Reading the CPU time of a thread would cost more than what is measured.
        self.own = 0.0
        self.told: Callable[[dict[str, Any]], None] = lambda _: None

    # ------------------------------------------------------------------ what the controller asks for

    async def raw(self, method: str, path: str, *_: Any, **__: Any) -> bytes:
        del method, path
        return b"{}"

    async def list(self, resource: Resource[Any], **_: Any) -> Listing[Any]:
        stored = self._objects.get(resource.kind, {})
        found = tuple(read(msgspec.json.encode(obj), resource.type) for obj in stored.values())
        return Listing(found, str(self._version))

    async def watch(
        self, resource: Resource[Any], resource_version: str, *, opened: Callable[[], None], **_: Any
    ) -> AsyncGenerator[WatchEvent]:
        del resource_version
        queue: asyncio.Queue[tuple[float, bytes, str]] = asyncio.Queue()
        self._watches.setdefault(resource.kind, []).append(queue)
        opened()
        while True:
            at, body, kind = await queue.get()
            await asyncio.sleep(max(0.0, at - self._now()))
            yield WatchEvent(kind, msgspec.Raw(body))

    async def get(self, resource: Resource[Any], namespace: str | None, name: str) -> Any:
        return read(msgspec.json.encode(self._found(resource, namespace, name)), resource.type)

    async def create(self, resource: Resource[Any], body: Any, namespace: str | None = None, **_: Any) -> Any:
        encoded = msgspec.json.encode(body)
        await self._turn()
        with self.working():
            obj = msgspec.json.decode(encoded)
            name = obj["metadata"].get("name") or f"{obj['metadata']['generateName']}{self._version}"
            obj["metadata"] |= {"name": name, **({"namespace": namespace} if namespace else {})}
            stored = self.put(resource.kind, obj)
        return read(stored, resource.type)

    async def patch(self, resource: Resource[Any], namespace: str | None, name: str, body: Any, **_: Any) -> Any:
        encoded = msgspec.json.encode(body)
        await self._turn()
        with self.working():
            found = self._found(resource, namespace, name)
            change = msgspec.json.decode(encoded)
            version = change.get("metadata", {}).pop("resourceVersion", None)
            if version is not None and version != found["metadata"]["resourceVersion"]:
                self.refused += 1
                raise Conflict(409, "Conflict", "the object has been modified")
            stored = self.put(resource.kind, merged(found, change))
        return read(stored, resource.type)

    async def delete(self, resource: Resource[Any], namespace: str | None, name: str, **_: Any) -> None:
        await self._turn()
        with self.working():
            gone = self._found(resource, namespace, name)
            del self._objects[resource.kind][namespace or "", name]
            self._tell(resource.kind, "DELETED", gone)

    # ------------------------------------------------------------------ what others do

    def put(self, kind: str, obj: dict[str, Any]) -> bytes:
        """Stores and tells; the object as it then is."""
        self._version += 1
        metadata = {"uid": f"uid-{self._version}", "generation": 1, **obj["metadata"]}
        metadata.setdefault("creationTimestamp", meta.rfc3339(self._now()))
        obj = {**obj, "metadata": {**metadata, "resourceVersion": str(self._version)}}
        place = (metadata.get("namespace", ""), metadata["name"])
        stored = self._objects.setdefault(kind, {})
        event = "MODIFIED" if place in stored else "ADDED"
        stored[place] = obj
        body = self._tell(kind, event, obj)
        if kind == "Workload":
            self.told(obj)
        return body

    def _tell(self, kind: str, event: str, obj: dict[str, Any]) -> bytes:
        body = msgspec.json.encode(obj)
        for queue in self._watches.get(kind, ()):
            queue.put_nowait((self._now() + _WATCH_DELAY, body, event))
        return body

    def workload(self, namespace: str, name: str) -> dict[str, Any]:
        return self._objects["Workload"][namespace, name]

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.own += time.perf_counter() - began

    async def _turn(self) -> None:
        """One write after the other, each at its pace."""
        self.writes += 1
        self._free_at = max(self._free_at, self._now()) + _A_WRITE
        await asyncio.sleep(self._free_at - self._now())

    def _found(self, resource: Resource[Any], namespace: str | None, name: str) -> dict[str, Any]:
        found = self._objects.get(resource.kind, {}).get((namespace or "", name))
        if found is None:
            raise NotFound(404, "NotFound", f"{resource.kind} {name} is not there")
        return found


class Play:
    """Creates what falls due, and finishes what was admitted after its running time."""

    def __init__(self, server: MemoryServer, scenario: Scenario, loop: asyncio.AbstractEventLoop) -> None:
        self._server = server
        self._loop = loop
        self._creations = scenarios.creations(scenario)
        self._of: dict[tuple[str, str], Creation] = {(one.queue, one.name): one for one in self._creations}
        self._running: dict[tuple[str, str], asyncio.TimerHandle] = {}
        self.left = len(self._creations)
        self.starts = self.evictions = 0
        self.done = asyncio.Event()
        server.told = self._took

    def begin(self) -> None:
        for creation in self._creations:
            self._loop.call_later(creation.at, self._create, creation)

    def _create(self, creation: Creation) -> None:
        with self._server.working():
            self._server.put("Workload", scenarios.workload_object(creation))

    def _took(self, obj: dict[str, Any]) -> None:
        key = (obj["metadata"]["namespace"], obj["metadata"]["name"])
        holds = {one["type"] for one in obj.get("status", {}).get("conditions", ()) if one["status"] == "True"}
        runs = "Admitted" in holds and "Evicted" not in holds and "Finished" not in holds
        if runs and key not in self._running:
            self.starts += 1
            self._running[key] = self._loop.call_later(self._of[key].of.run_ms / 1000, self._finish, key)
        elif not runs and key in self._running:
            self._running.pop(key).cancel()
            if "Finished" not in holds:
                self.evictions += 1

    def _finish(self, key: tuple[str, str]) -> None:
        with self._server.working():
            found = self._server.workload(*key)
            finished = {
                "type": "Finished",
                "status": "True",
                "reason": "ByTest",
                "message": "By the benchmark",
                "lastTransitionTime": meta.rfc3339(_BEGINNING + self._loop.time()),
            }
            conditions = [*found["status"]["conditions"], finished]
            self._server.put("Workload", {**found, "status": {**found["status"], "conditions": conditions}})
        self.left -= 1
        if not self.left:
            self.done.set()


async def _run(scenario: Scenario, settings: Settings, journal: Journal, profile: cProfile.Profile | None) -> None:
    logs.gather()
    loop = asyncio.get_running_loop()

    def clock() -> float:
        return _BEGINNING + loop.time()

    server = MemoryServer(clock)
    for body in scenarios.shared_objects(scenario):
        server.put(body["kind"], body)
    for queue in scenarios.queues(scenario):
        for body in scenarios.queue_objects(scenario, queue):
            server.put(body["kind"], body)
    controller = Controller(server, settings, journal, clock=clock)  # type: ignore[arg-type]
    play = Play(server, scenario, loop)
    stop = asyncio.Event()
    running = asyncio.create_task(controller.run(stop))
    await controller.ready.wait()
    gc.collect()
    before, of_thread, own, began = time.process_time(), time.thread_time(), server.own, loop.time()
    if profile is not None:
        profile.enable()
    play.begin()
    await play.done.wait()
    ended = loop.time()
    await asyncio.sleep(2.0)
    if profile is not None:
        profile.disable()
    by_server = server.own - own
    in_loop = time.thread_time() - of_thread - by_server
    while journal.health().waiting:
        time.sleep(0.05)  # noqa: ASYNC251  # the journal's thread keeps real time
    cpu = time.process_time() - before - by_server
    stop.set()
    await running
    count = scenario.workloads
    for name, value, unit in (
        ("wall", ended - began, "simulated s"),
        ("starts", play.starts / count, "1/workload"),
        ("evictions", play.evictions / count, "1/workload"),
        ("writes", server.writes / count, "1/workload"),
        ("refused", server.refused / count, "1/workload"),
        ("cpu", cpu * 1e6 / count, "us/workload"),
        ("cpu.loop", in_loop * 1e6 / count, "us/workload"),
        ("cpu.journal", (cpu - in_loop) * 1e6 / count, "us/workload"),
    ):
        report.show(Figure(f"loop.{scenario.name}.{name}", value, unit))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("scenario", nargs="?", choices=sorted(scenarios.SCENARIOS), default=scenarios.BASELINE.name)
    parser.add_argument("--part", type=int, default=10, help="this part of its workloads: 10 is a tenth")
    parser.add_argument("--profile", type=Path, help="where cProfile puts what it saw")
    options = parser.parse_args()
    scenario = scenarios.SCENARIOS[options.scenario].part(options.part)
    profile = cProfile.Profile() if options.profile else None
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name, (Path(name) / "log").open("w") as log:
        with contextlib.redirect_stderr(log):
            logs.configure("controller")
        settings = load(contestants.settings(Path(name)))
        url = journal_url(settings)
        migrate.upgrade(url)
        journal = Journal(url)
        journal.start()
        with asyncio.Runner(loop_factory=lambda: _Loop(_Clock())) as runner:
            runner.run(_run(scenario, settings, journal, profile))
        journal.close()
    if profile is not None:
        profile.dump_stats(options.profile)


if __name__ == "__main__":
    main()
