"""`make demo`: control plane, Muster, a busy hour; live progress, a table and one JSON line.

Exits non-zero when a must is not met.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.live import Live
from rich.table import Table

from examples.demo import manifests
from examples.demo.auditor import Auditor, held, is_running, is_true
from examples.demo.driver import Driver
from examples.demo.trace import gangs
from tests.controlplane.cluster import ControlPlane, eventually, free_port

#: What Muster is told; everything else is its default.
SETTINGS: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod"]},
}
PATIENCE = 480.0
MUSTS = ("pods_bound_early", "gangs_partial", "quota_exceeded", "gates_left")


@contextlib.contextmanager
def muster(plane: ControlPlane, folder: Path) -> Iterator[int]:
    """Webhook, controller and inspection as real processes; yields the inspection's port."""
    port = free_port()
    config, ready, log = folder / "config.yaml", folder / "ready", folder / "muster.log"
    config.write_text(yaml.safe_dump(SETTINGS | {"visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": port}}))
    command = [sys.executable, "-m", "admission.cli", "dev", f"--kubeconfig={plane.kubeconfig}"]
    command += [f"--config={config}", f"--dir={folder / 'state'}", f"--ready-file={ready}"]
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out, stdin=subprocess.DEVNULL) as process:
        try:
            while not ready.exists():
                if process.poll() is not None:
                    sys.exit(f"Muster ended while starting:\n{log.read_text(errors='replace')[-3000:]}")
                time.sleep(0.1)
            yield port
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()


def progress(auditor: Auditor) -> Table:
    """One row for each team, from what the API server says now."""
    table = Table(title="GPUs by team", caption="nominal quota may be exceeded by borrowing inside a cohort")
    for column in ("cohort", "team"):
        table.add_column(column)
    for column in ("nominal", "held", "running", "waiting gangs", "preempted"):
        table.add_column(column, justify="right")
    workloads, pods, preempted = auditor.all("Workload"), auditor.all("Pod"), auditor.preempted()
    for cohort, teams in manifests.COHORTS.items():
        for team, nominal in teams.items():
            mine = [w for t in workloads if (w := t.now) and w["metadata"]["namespace"] == team]
            running = [p for t in pods if (p := t.now) and p["metadata"]["namespace"] == team and is_running(p)]
            waiting = sum(not is_true(w, "QuotaReserved") and not is_true(w, "Finished") for w in mine)
            lost = sum(auditor.gangs[name].team == team for name in preempted)
            gpus_running = sum(int(p["spec"]["containers"][0]["resources"]["limits"][manifests.GPU]) for p in running)
            counts = (nominal, sum(held(w) for w in mine), gpus_running, waiting, lost)
            table.add_row(cohort, team, *map(str, counts))
    return table


def percentile(values: list[float], share: float) -> float:
    return round(values[min(len(values) - 1, int(len(values) * share))], 2) if values else 0.0


def verdict(auditor: Auditor) -> dict[str, Any]:
    """The last line: what was submitted, what became of it, and the four numbers that have to be 0."""
    exceeded, peak = auditor.quota()
    waits = auditor.waits()
    return {
        "gangs_submitted": len(auditor.submitted),
        "gangs_released": len(auditor.admissions()),
        "gangs_finished": len(auditor.finished()),
        "gangs_preempted": len(auditor.preempted()),
        "pods_bound_early": auditor.bound_early(),
        "gangs_partial": auditor.partial(),
        "quota_exceeded": exceeded,
        "gates_left": auditor.gates_left(),
        "wait_p50_s": percentile(waits, 0.5),
        "wait_p95_s": percentile(waits, 0.95),
        "peak_quota_use": round(peak, 3),
    }


def failures(result: dict[str, Any], driver: Driver, total: int) -> list[str]:
    """Sentences about each must that is not met."""
    found = [f"{name} is {result[name]} and has to be 0" for name in MUSTS if result[name]]
    found += [
        f"{result[name]} of {total} gangs: {name}"
        for name in ("gangs_submitted", "gangs_released", "gangs_finished")
        if result[name] != total
    ]
    return found + [f"a create failed: {error}" for error in driver.errors[:3]]


def watch(console: Console, auditor: Auditor, total: int) -> None:
    """Shows progress until all gangs have finished, or patience ends."""
    started = time.monotonic()
    interactive = console.is_terminal
    with Live(console=console, refresh_per_second=2) if interactive else contextlib.nullcontext() as live:
        told = 0.0
        while time.monotonic() - started < PATIENCE:
            finished, passed = len(auditor.finished()), time.monotonic() - started
            if live:
                live.update(progress(auditor))
            elif passed - told >= 5:
                told = passed
                released = len(auditor.admissions())
                console.print(
                    f"{passed:4.0f} s: {len(auditor.submitted)} gangs submitted, {released} released, "
                    f"{finished} finished, {len(auditor.preempted())} preempted"
                )
            if finished == total:
                return
            time.sleep(0.5)


def show(console: Console, auditor: Auditor, result: dict[str, Any]) -> None:
    table = Table(title="The hour, as the API server tells it")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in result.items():
        table.add_row(name, str(value))
    console.print(progress(auditor))
    console.print(table)


def keep(console: Console, plane: ControlPlane, port: int) -> None:
    """Leaves everything running until the user ends it."""
    console.print(f"[bold]inspection[/]: https://127.0.0.1:{port}/  (Authorization: Bearer {plane.token})")
    console.print(f"[bold]kubectl[/]:    {plane.bin}/kubectl --kubeconfig {plane.kubeconfig} get workloads -A")
    console.print(f"[bold]muster[/]:     .venv/bin/muster queues --kubeconfig {plane.kubeconfig}")
    console.print("Ctrl-C ends it.")
    with contextlib.suppress(KeyboardInterrupt):
        signal.pause()


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave everything running and print the addresses")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # so that nothing is left running
    console, todo = Console(stderr=False, width=None if sys.stdout.isatty() else 110), gangs()
    folder = Path(tempfile.mkdtemp(prefix="muster-demo-"))
    started = time.monotonic()
    with ControlPlane() as plane:
        console.print(f"control plane ready in {time.monotonic() - started:.1f} s")
        for node in manifests.nodes():
            plane.api.create(node)
        plane.start_controllers()
        plane.start_scheduler()
        plane.start_kwok()
        eventually(
            lambda: all(is_true(n, "Ready") and not n["spec"].get("taints") for n in plane.api.list("Node")), seconds=60
        )
        console.print(f"{manifests.NODES} nodes of {manifests.GPUS_PER_NODE} GPUs ready")
        began = time.monotonic()
        with muster(plane, folder) as port:
            console.print(
                f"Muster ready in {time.monotonic() - began:.1f} s; {len(todo)} gangs will arrive in a minute"
            )
            for obj in manifests.queues():
                plane.api.create(obj)
            auditor = Auditor(plane.api, todo)
            auditor.start()
            driver = Driver(plane.api, todo, auditor)
            driver.start()
            watch(console, auditor, len(todo))
            time.sleep(1)
            result = verdict(auditor)
            show(console, auditor, result)
            wrong = failures(result, driver, len(todo))
            for sentence in wrong:
                console.print(f"[red]{sentence}[/]")
            if wrong:
                console.print(f"Muster's log: {folder}/muster.log")
            driver.stop()
            auditor.stop()
            print(json.dumps(result), flush=True)
            if options.keep:
                keep(console, plane, port)
    return 1 if wrong else 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # the watches' threads may still wait for an API server that is gone
