"""Records what a controller's metrics say while it works and while things go wrong: `python -m tests.recording.record`.

Two runs side by side, in real time, since the alert rules speak of minutes: some 18 minutes on any machine. What is
kept are the series that the rules name, at one scrape in 15 seconds, in promtool's own notation.
"""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import requests
import urllib3
import yaml

from tests.cluster.controller_rig import cluster_queue, flavor, install_crds, local_queue, workload
from tests.cluster.faulty import Answer, Asked, Fault, Faulty, faulty, nothing
from tests.controlplane.cluster import ApiError, ControlPlane, control_plane, eventually, free_port

ROOT = Path(__file__).parents[2]
RULES = ROOT / "webhook-config" / "monitoring" / "rules.yaml"
TARGET = Path(__file__).parent / "metrics.json"
INTERVAL = 15
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$")


def names() -> set[str]:
    """The series that the rules ask for."""
    rules = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    return {name for rule in rules for name in re.findall(r"\b(?:kueue|muster)_[a-z_]+[a-z]\b", rule["expr"])}


# ------------------------------------------------------------------ what is kept


@dataclass
class Record:
    """Scrapes as columns; None where there was none."""

    wanted: set[str] = field(default_factory=names)
    scrapes: list[dict[str, str] | None] = field(default_factory=list)

    def add(self, text: str | None) -> None:
        if text is None:
            self.scrapes.append(None)
            return
        found = (_SAMPLE.match(line) for line in text.splitlines())
        self.scrapes.append(
            {f"{each[1]}{{{each[2] or ''}}}": each[3] for each in found if each is not None and each[1] in self.wanted}
        )

    def series(self) -> dict[str, str]:
        """In promtool's notation. Prometheus marks what a scrape no longer has, or a failed one, as stale."""
        keys = sorted({key for scrape in self.scrapes for key in scrape or ()})
        return {key: notation([(scrape or {}).get(key) for scrape in self.scrapes]) for key in keys}


def notation(values: list[str | None]) -> str:
    words: list[str] = []
    before: str | None = None
    for value in values:
        words.append(value if value is not None else "_" if before is None else "stale")
        before = value
    return " ".join(_runs(words))


def _runs(words: list[str]) -> Iterator[str]:
    """`5 5 5` is `5x2`, `_ _ _` is `_x3`."""
    position = 0
    while position < len(words):
        word, end = words[position], position
        while end < len(words) and words[end] == word:
            end += 1
        number = end - position
        if word == "stale":
            yield "stale"
            number = 1
        elif word == "_":
            yield f"_x{number}"
        else:
            yield f"{word}x{number - 1}" if number > 1 else word
        position += number


# ------------------------------------------------------------------ a run


class Run:
    """A controller, a proxy between it and its API server, and work that comes and ends."""

    def __init__(self, plane: ControlPlane, between: Faulty, folder: Path) -> None:
        self.plane, self.api, self.between, self.folder = plane, plane.api, between, folder
        self.port, self.record = free_port(), Record()
        self.journal = folder / "journal.sqlite3"
        settings = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "metrics": {"bindAddress": f"127.0.0.1:{self.port}"},
            "health": {"healthProbeBindAddress": "0"},
            "leaderElection": {"leaderElect": False},
            "integrations": {"frameworks": ["batch/job", "pod"]},
            "muster": {"stateDir": str(folder), "journal": {"url": f"sqlite:///{self.journal}"}},
        }
        (folder / "settings.yaml").write_text(yaml.safe_dump(settings))
        command = [sys.executable, "-m", "admission.cli", "controller", "--kubeconfig", between.kubeconfig]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--config", str(folder / "settings.yaml")], stdout=log, stderr=log, cwd=ROOT
            )
        self._over = threading.Event()
        self._working = threading.Thread(target=self._work, daemon=True)
        self.started = 0.0

    def prepare(self) -> None:
        self.api.create(flavor())
        for name in ("busy", "held"):
            self.api.create(cluster_queue(name, 4))
        self.api.create(local_queue("busy", "busy"))
        eventually(lambda: self.scraped() is not None, seconds=60, message="metrics are served")
        self._working.start()

    def scraped(self) -> str | None:
        headers = {"Authorization": f"Bearer {self.plane.token}"}
        with contextlib.suppress(requests.RequestException):
            answer = requests.get(f"https://127.0.0.1:{self.port}/metrics", headers=headers, verify=False, timeout=10)
            return answer.text if answer.ok else None
        return None

    def until(self, minutes: float) -> None:
        """Scrapes on and on until then."""
        self.started = self.started or time.monotonic()
        while len(self.record.scrapes) * INTERVAL <= minutes * 60:
            time.sleep(max(0.0, self.started + len(self.record.scrapes) * INTERVAL - time.monotonic()))
            self.record.add(self.scraped())

    def end(self) -> None:
        self._over.set()
        self._working.join(30)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _work(self) -> None:
        """A Workload a second, each of which ends when it was admitted."""
        number = 0
        while not self._over.wait(1):
            with contextlib.suppress(ApiError, requests.RequestException):
                self.api.create(workload(f"w{number}", "busy"))
                number += 1
                for each in self.api.list("Workload", "default"):
                    conditions = (each.get("status") or {}).get("conditions") or []
                    if any(c["type"] == "Admitted" and c["status"] == "True" for c in conditions):
                        self.api.delete("Workload", each["metadata"]["name"], "default")


def writes(run: Run) -> None:
    """From minute 1 a queue is held; from 6 on writes are refused or not answered, and the journal is locked."""
    run.until(1)
    run.api.patch("ClusterQueue", "held", {"spec": {"stopPolicy": "Hold"}})
    run.until(6)
    asked = [0]

    def fault(one: Asked) -> Fault:
        if one.method != "PATCH":
            return None
        if one.is_of("localqueues"):
            return Answer(422)
        asked[0] += 1
        return Answer(503) if asked[0] % 2 == 0 else None

    run.between.fault = fault
    locked = sqlite3.connect(run.journal, isolation_level=None)
    locked.execute("BEGIN EXCLUSIVE")
    run.until(17.5)
    locked.close()


def watches(run: Run) -> None:
    """From minute 2 the watch of pods cannot be opened; from 8.75 it can; at 10 the only replica is killed."""
    run.until(2)
    pods = "/api/v1/pods"
    run.between.fault = lambda one: Answer(503) if one.path == pods and one.method == "GET" else None
    run.between.close_watches(lambda path: path == pods)
    run.until(8.75)
    run.between.fault = nothing
    run.until(10)
    run.process.kill()
    run.until(16)


RUNS: dict[str, Callable[[Run], None]] = {"writes": writes, "watches": watches}


def recorded(name: str, into: dict[str, dict[str, str]]) -> None:
    with (
        TemporaryDirectory(prefix="muster-recording-") as folder,
        control_plane() as plane,
        faulty(plane, Path(folder) / "between") as between,
    ):
        install_crds(plane)
        run = Run(plane, between, Path(folder))
        try:
            run.prepare()
            RUNS[name](run)
        finally:
            run.end()
        into[name] = run.record.series()


def main() -> None:
    urllib3.disable_warnings()
    found: dict[str, dict[str, str]] = {}
    threads = [threading.Thread(target=recorded, args=(name, found)) for name in RUNS]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if found.keys() != RUNS.keys():
        sys.exit("a run has failed")
    body = {"interval_seconds": INTERVAL, "runs": {name: found[name] for name in RUNS}}
    TARGET.write_text(json.dumps(body, indent=1) + "\n")


if __name__ == "__main__":
    main()
