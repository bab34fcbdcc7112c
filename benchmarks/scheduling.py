"""One scheduling scenario: both sides in turn on control planes of their own, with our driver or the peer's runner.

Figures come from the driver (times), from /proc (CPU, memory) and from the API server's counters (requests). A side is
measured from the start of its controller to the last finish; what is compared is what both did in the same run.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import csv
import os
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import uvloop
import yaml

from benchmarks import contestants, measure, report, scenarios
from benchmarks.contestants import MUSTER, PEER, Side
from benchmarks.driver import Door, Driver
from benchmarks.measure import Usage
from benchmarks.peer import build
from benchmarks.report import Bound, Figure
from benchmarks.scenarios import Scenario
from tests.controlplane.build import programs_folder
from tests.controlplane.cluster import Api, ControlPlane

_RUNNER_MINUTES = 60


@dataclass(frozen=True, slots=True)
class Run:
    """What one side needed. `own` are the driver's writes among `requests`; seconds, MiB."""

    wall: float
    waits: Mapping[str, float]
    controller: Usage
    api_server: Usage
    requests: Mapping[str, int] = field(default_factory=dict)
    own: Mapping[str, int] = field(default_factory=dict)
    evictions: int = 0

    def asked_by_controller(self, what: str) -> int:
        return self.requests.get(what, 0) - self.own.get(what, 0)


# ------------------------------------------------------------------ with our driver


def driven(side: Side, scenario: Scenario) -> Run:
    with contestants.control_plane(side) as plane:
        server = plane.processes["kube-apiserver"].pid
        before = measure.usage(server)
        with side.running(plane, topology=scenario.topology) as process:
            try:
                return uvloop.run(_drive(side, scenario, plane, process.pid, before))
            except Exception:
                print(contestants.log_of(plane, side), flush=True)
                raise


async def _drive(side: Side, scenario: Scenario, plane: ControlPlane, controller: int, before: Usage) -> Run:
    server = plane.processes["kube-apiserver"].pid
    async with Door(plane.server, plane.token, plane.ca) as door:
        driver = Driver(door, scenario, releases=side.releases)
        await driver.set_up()
        asked = await _requests(door)
        door.own.clear()
        outcome = await driver.play()
        await asyncio.sleep(2.0)  # what the controller still has to write belongs to the run
        return Run(
            outcome.wall,
            outcome.waits,
            measure.usage(controller),
            measure.usage(server).since(before),
            measure.asked(asked, await _requests(door)),
            outcome.own,
            outcome.evictions,
        )


async def _requests(door: Door) -> measure.Requests:
    _, content = await door.ask("GET", "/metrics")
    return measure.requests(content.decode())


# ------------------------------------------------------------------ with the peer's runner


def run_by_peer(side: Side, scenario: Scenario) -> Run:
    """The peer's runner starts its own control plane and the controller, and mimics execution in its own way."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as name:
        folder = Path(name)
        config = folder / "generator.yaml"
        config.write_text(yaml.safe_dump(scenarios.generator_config(scenario)))
        command = [
            str(build.programs_folder() / "runner"),
            f"--o={folder}",
            f"--crds={side.crds()}",
            f"--generatorConfig={config}",
            f"--minimalKueue={side.wrapper(folder)}",
            f"--timeout={_RUNNER_MINUTES}m",
            *(["--enableTAS"] if scenario.topology else []),
        ]
        environment = contestants.quiet({"KUBEBUILDER_ASSETS": str(programs_folder())})
        with (folder / "runner.log").open("wb") as log:
            runner = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
            try:
                names = {"api_server": "kube-apiserver", "controller": str(_program(side, folder))}
                with measure.Look.at(runner.pid, names) as look:
                    asked = _follow(runner, folder)
            finally:
                if runner.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(runner.pid, signal.SIGKILL)
                    runner.wait()
        if runner.returncode:
            tail = (folder / "runner.log").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the peer's runner failed with {runner.returncode}:\n{tail}")
        return _summary(side, folder, scenario, look.seen, asked)


def _program(side: Side, folder: Path) -> str:
    """What the command line of the controller has in it and no other."""
    return "minimalkueue" if side is PEER else str(folder / "muster.yaml")


def _follow(runner: subprocess.Popen[bytes], folder: Path) -> dict[str, int]:
    """Waits for the end and returns the requests that the API server had counted a moment before it."""
    api: Api | None = None
    first: measure.Requests | None = None
    last: measure.Requests = Counter()
    while runner.poll() is None:
        time.sleep(2.0)
        with contextlib.suppress(Exception):  # the API server comes and goes with the runner
            api = api or _api(folder)
            last = measure.requests(api.request("GET", "/metrics", timeout=5))
            first = first or last
    return {} if first is None else measure.asked(first, last)


def _api(folder: Path) -> Api:
    config = yaml.safe_load((folder / "kubeconfig").read_text())
    user, cluster = config["users"][0]["user"], config["clusters"][0]["cluster"]
    api = Api(cluster["server"].rstrip("/"), "", "")
    for key, source in (("client.crt", "client-certificate-data"), ("client.key", "client-key-data")):
        (folder / key).write_bytes(base64.b64decode(user[source]))
    (folder / "ca.crt").write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
    session = api.session()
    session.headers.pop("Authorization")
    session.verify = str(folder / "ca.crt")
    session.cert = (str(folder / "client.crt"), str(folder / "client.key"))
    return api


def _summary(
    side: Side, folder: Path, scenario: Scenario, seen: Mapping[str, Usage], requests: Mapping[str, int]
) -> Run:
    stats = yaml.safe_load((folder / f"{side.wrapper(folder).name}.stats.yaml").read_text())
    with (folder / "wlStates.csv").open(newline="") as rows:
        finished = sum(row["ms to finish"] != "0" for row in csv.DictReader(rows))
    if finished < scenario.workloads:
        raise RuntimeError(
            f"the peer's runner took {side.name} for done at {finished} of {scenario.workloads} workloads"
        )
    classes = yaml.safe_load((folder / "summary.yaml").read_text())["workloadClasses"]
    waits: dict[str, list[float]] = {size: [0.0, 0.0] for size in scenario.sizes}
    for name, each in classes.items():
        total = waits[name.partition("-")[0]]
        total[0] += each["count"] * each["averageTimeToAdmissionMs"] / 1000
        total[1] += each["count"]
    return Run(
        stats["wallMs"] / 1000,
        {size: total / count for size, (total, count) in waits.items() if count},
        Usage((stats["userMs"] + stats["sysMs"]) / 1000, stats["maxrss"] / 1024),
        seen.get("api_server", Usage()),
        requests,
        evictions=sum(each.get("totalEvictions", 0) for each in classes.values()),
    )


# ------------------------------------------------------------------ the figures


def figures(
    scenario: Scenario, runs: Mapping[str, Run], *, by_peer: bool, ideal: tuple[float, Mapping[str, float]] | None
) -> list[Figure]:
    """All figures of one scenario, in the order in which they are read."""
    muster, peer = runs.get(MUSTER.name), runs.get(PEER.name)
    prefix = f"{scenario.name}{'.peers_runner' if by_peer else ''}"
    found: list[Figure] = []

    def add(name: str, value: Any, unit: str, bound: Bound | None = None) -> None:
        ours, theirs = (None if run is None else float(value(run)) for run in (muster, peer))
        found.extend(report.compared(f"{prefix}.{name}", ours, theirs, unit, bound))

    wall = {"large": 0.45}.get(scenario.name, 0.50)
    add("wall", lambda run: run.wall, "s", None if by_peer else Bound(at_most=wall))
    for size in scenario.sizes:
        bound = Bound(at_most=0.50) if scenario.name == "baseline" and not by_peer else None
        add(f"time_to_admission.{size}", lambda run, size=size: run.waits.get(size, 0.0), "s", bound)
    both = 0.60 if by_peer else 0.50
    bound = Bound(at_most=both) if scenario.name == "baseline" else None
    add("cpu", lambda run: run.controller.cpu + run.api_server.cpu, "s", bound)
    add("cpu.controller", lambda run: run.controller.cpu, "s", Bound(at_most=0.4))
    add("cpu.api_server", lambda run: run.api_server.cpu, "s")
    add("memory.controller", lambda run: run.controller.memory, "MiB", Bound(at_most=0.4))
    add("memory.api_server", lambda run: run.api_server.memory, "MiB")
    add("evictions", lambda run: run.evictions, "evictions")
    found += _requests_of(prefix, scenario, runs, by_peer=by_peer)
    if ideal is not None and muster is not None:
        ended, waits = ideal
        found.append(report.show(Figure(f"{prefix}.no_overhead.wall", ended, "s")))
        found.append(report.show(Figure(f"{prefix}.no_overhead.distance", muster.wall - ended, "s")))
        found += [report.show(Figure(f"{prefix}.no_overhead.{size}", waits[size], "s")) for size in scenario.sizes]
    return found


def _requests_of(prefix: str, scenario: Scenario, runs: Mapping[str, Run], *, by_peer: bool) -> list[Figure]:
    """Requests per workload by verb, without those of the driver where it is ours."""
    count = scenario.workloads
    found: list[Figure] = []

    def add(name: str, value: Callable[[Run], float], unit: str, bound: Bound | None = None) -> None:
        ours, theirs = (None if run is None else value(run) for run in (runs.get(MUSTER.name), runs.get(PEER.name)))
        if max(ours or 0.0, theirs or 0.0) >= 0.001:
            found.extend(report.compared(f"{prefix}.requests.{name}", ours, theirs, unit, bound))

    if not by_peer:
        one = Bound(at_most=1.0, of_value=True)
        add("workload_writes", lambda run: _workload_writes(run) / (count + 2 * run.evictions), "1/decision", one)
        add("refused_writes", lambda run: _refused(run) / (count + 2 * run.evictions), "1/decision")
    add("writes", lambda run: (measure.writes(run.requests) - sum(run.own.values())) / count, "1/workload")
    for what in dict.fromkeys(what for run in runs.values() for what in run.requests):
        add(what.replace(" (", "_").replace(")", "").replace(" ", "_"), partial(_asked, what, count), "1/workload")
    return found


def _asked(what: str, count: int, run: Run) -> float:
    return run.asked_by_controller(what) / count


def _workload_writes(run: Run) -> int:
    """Writes to Workloads by the controller; one for each start and each eviction is what there has to be."""
    return sum(run.asked_by_controller(what) for what in run.requests if _is_workload_write(what) and "(" not in what)


def _refused(run: Run) -> int:
    """Those of them that came too late, as when what had to go for another was just finishing."""
    return sum(run.asked_by_controller(what) for what in run.requests if _is_workload_write(what) and "(" in what)


def _is_workload_write(what: str) -> bool:
    verb, _, resource = what.partition(" ")
    return verb in measure.WRITES and resource.startswith("workloads")
