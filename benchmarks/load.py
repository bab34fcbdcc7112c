"""Load: 200,000 Workloads in 1,000 queues, and readers of the inspection that never pause, beside admissions.

Stored as the restart scenario stores them; then running ones end, wave after wave, and as many of those that wait are
admitted, first alone and then while readers ask for queues and their pending order without a pause. Muster alone: the
peer has no such inspection. It must never count what the readers cost the machine as if it were the controller's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

import aiohttp
import uvloop
import yaml

from admission import tls
from admission.commands.surroundings import PUBLISHED_ELSEWHERE
from benchmarks import contestants, measure, report, restart, scenarios
from benchmarks.contestants import MUSTER, ROOT
from benchmarks.driver import MERGE, Door, say, true_of
from benchmarks.report import Bound, Figure
from benchmarks.scenarios import Class, Scenario
from tests.controlplane.cluster import ControlPlane, free_port

_FINISHED, _RUNNING, _PENDING = 160_000, 20_000, 20_000
_QUEUES = Scenario("load", cohorts=100, queues=10, classes=(Class("small", 1, 1000, 1000, 1000, 50),))
#: Workloads that end in each wave, and readers.
_WAVE, _READERS = 2_000, 4
_LONGEST = 900.0


def figures(divisor: int, sides: list[str]) -> list[Figure]:
    return uvloop.run(_run(divisor)) if MUSTER.name in sides else []


async def _run(divisor: int) -> list[Figure]:
    found: list[Figure] = []

    def add(name: str, value: float, unit: str, bound: Bound | None = None) -> None:
        found.append(report.show(Figure(f"load.{name}", value, unit, bound=bound)))

    counts = tuple(count // divisor for count in (_FINISHED, _RUNNING, _PENDING))
    base = replace(_QUEUES, cohorts=max(1, _QUEUES.cohorts // divisor))
    queues = scenarios.queues(base)
    # What runs fills all but one of the quota of each queue; nobody borrows, so that a wave's end is its own admission.
    scenario = replace(base, nominal=counts[1] // len(queues) + 1, borrowing_limit=0)
    with contestants.control_plane(MUSTER) as plane:
        async with Door(plane.server, plane.token, plane.ca) as door:
            await restart.set_up(door, scenario, queues)
            say(f"load: {sum(counts)} workloads are being stored")
            await restart.store(plane, restart.workloads(counts, queues))
            seen = Admitted(door)
            with _running(plane) as (process, inspection):
                began = time.monotonic()
                following = asyncio.ensure_future(seen.follow())
                await seen.reach(1)
                add("first_admission", time.monotonic() - began, "s")
                await seen.reach(min(len(queues), counts[2]))
                add("all_that_fit", time.monotonic() - began, "s")
                waves = Waves(door, queues, seen, iter(range(counts[1])))
                wave = min(_WAVE, counts[1] // 3, (counts[2] - len(queues)) // 3)
                await waves.end(wave)  # whatever is loaded late is there now
                alone = await _costs(process, waves.end(wave))
                async with _readers(plane, inspection) as reads:
                    beside = await _costs(process, waves.end(wave))
                    answered = reads[0]
                controller = measure.usage_of_children(process.pid, " controller ")
                following.cancel()
            add("admissions_alone", wave / alone.seconds, "/s")
            add("admissions_beside_readers", wave / beside.seconds, "/s")
            add("reads_meanwhile", answered / beside.seconds, "/s")
            add("cpu_of_an_admission_alone", alone.cpu / wave * 1000, "ms")
            if alone.cpu:
                add("cpu_of_an_admission_beside_readers_to_alone", beside.cpu / alone.cpu, "x", Bound(at_most=1.1))
            add("memory.controller", controller.memory, "MiB")
    return found


# ------------------------------------------------------------------ Muster


@contextlib.contextmanager
def _running(plane: ControlPlane) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """`muster run` without a webhook that anybody asks, and the port of its inspection."""
    port = free_port()
    # Nobody calls the webhook here, but inspection only starts once it answers.
    serving, settings = plane.folder / "serving", plane.folder / "load.yaml"
    tls.write_files(serving, tls.issue(("127.0.0.1",), datetime.now(UTC)))
    settings.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "leaderElection": {"leaderElect": False},
                "metrics": {"bindAddress": "0"},
                "health": {"healthProbeBindAddress": "0"},
                "featureGates": {"VisibilityOnDemand": False},
                "webhook": {"host": "127.0.0.1", "port": free_port(), "certDir": str(serving)},
                "internalCertManagement": {"enable": False},
                # What runs here has no pods, and runs for long already.
                "waitForPodsReady": {"timeout": "876000h"},
                "muster": {"stateDir": str(plane.folder), "inspection": {"bindPort": port}},
            }
        )
    )
    command = [
        sys.executable,
        "-m",
        "admission.cli",
        "run",
        "--kubeconfig",
        plane.kubeconfig,
        "--config",
        str(settings),
    ]
    with (plane.folder / "logs" / "muster.log").open("ab") as log:
        environment = os.environ | {PUBLISHED_ELSEWHERE: "yes"}
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=environment)
    try:
        yield process, port
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        if process.poll() is None:
            process.kill()
            process.wait()


# ------------------------------------------------------------------ admissions


class Admitted:
    """Counts Workloads that come to be admitted, by a watch from now on."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._uids: set[str] = set()
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._uids)

    async def follow(self) -> None:
        path = f"/apis/{scenarios.API}/workloads"
        async for obj in self._door.follow(path, await self._door.version(path)):
            true = true_of(obj)
            if "Admitted" in true and "Finished" not in true:
                self._uids.add(obj["metadata"]["uid"])
                self._changed.set()

    async def reach(self, count: int) -> None:
        async with asyncio.timeout(_LONGEST):
            while len(self._uids) < count:
                self._changed.clear()
                await self._changed.wait()


class Waves:
    """Ends running Workloads; each queue that gives back admits another of its own."""

    def __init__(self, door: Door, queues: list[scenarios.Queue], seen: Admitted, numbers: Iterator[int]) -> None:
        self._door, self._queues, self._seen, self._numbers = door, queues, seen, numbers

    async def end(self, count: int) -> None:
        before = len(self._seen)
        slots = asyncio.Semaphore(16)
        done = {"type": "Finished", "status": "True", "reason": "Succeeded", "message": ""}
        conditions = [
            {"type": kind, "status": "True", "reason": kind, "message": "By the benchmark"}
            for kind in ("QuotaReserved", "Admitted")
        ]
        at = {"lastTransitionTime": "2026-01-01T00:00:10Z", "observedGeneration": 1}
        body = {"status": {"conditions": [{**each, **at} for each in (*conditions, done)]}}

        async def one(number: int) -> None:
            name = self._queues[number % len(self._queues)].name
            path = f"/apis/{scenarios.API}/namespaces/{name}/workloads/running-{number}/status"
            async with slots:
                status, content = await self._door.ask("PATCH", path, body, content_type=MERGE)
            if status != 200:
                raise RuntimeError(f"{path}: {status} {content.decode(errors='replace'):.300}")

        await asyncio.gather(*(one(next(self._numbers)) for _ in range(count)))
        await self._seen.reach(before + count)


class Cost(NamedTuple):
    seconds: float
    cpu: float


async def _costs(process: subprocess.Popen[bytes], work: Awaitable[None]) -> Cost:
    """Time until the work is done, and the controller's CPU seconds meanwhile."""
    before, began = measure.usage_of_children(process.pid, " controller "), time.monotonic()
    await work
    seconds = time.monotonic() - began
    return Cost(seconds, measure.usage_of_children(process.pid, " controller ").since(before).cpu)


# ------------------------------------------------------------------ readers


@contextlib.asynccontextmanager
async def _readers(plane: ControlPlane, port: int) -> AsyncIterator[list[int]]:
    """Clients that ask again as soon as they are answered; how many answers there were."""
    answered = [0]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {plane.token}"}
    base = f"https://127.0.0.1:{port}/api/v1"

    async def read(session: aiohttp.ClientSession, number: int) -> None:
        paths = ["/queues", f"/queues/cq-0-{number}-cohort-0/pending?limit=100", "/cohorts"]
        while True:
            for path in paths:
                async with session.get(base + path) as answer:
                    await answer.read()
                    if answer.status != 200:
                        raise RuntimeError(f"inspection: {path}: {answer.status}")
                    answered[0] += 1

    connector = aiohttp.TCPConnector(ssl=context)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(aiohttp.ClientError):
                    async with session.get(f"{base}/queues") as answer:
                        if answer.status == 200:
                            break
                await asyncio.sleep(0.2)
        readers = [asyncio.ensure_future(read(session, number)) for number in range(_READERS)]
        try:
            yield answered
        finally:
            for each in readers:
                if each.done():
                    each.result()
                each.cancel()
            await asyncio.gather(*readers, return_exceptions=True)
