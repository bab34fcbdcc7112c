"""The documentation, done: the quick start step by step, every manifest handed in, and the commands of the tasks.

What people are told to write goes to a real API server with Muster behind it, as they would hand it in with kubectl;
what they are told to type is typed in the cluster that the quick start has made.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.settings.problems import FRAMEWORKS
from tests.cluster import custom_kinds
from tests.cluster.test_serving_kinds import crd as leader_worker_sets
from tests.cluster.town import CONTROLLERS, Muster, gates, is_running, node
from tests.controlplane.cluster import Api, ControlPlane
from tests.controlplane.cluster import eventually as soon
from tests.unit.publishing.test_documentation import DOCS, PAGES, ROOT, Block, blocks

pytestmark = pytest.mark.cluster

CONTROL_PLANE: dict[str, Any] = {"controllers": CONTROLLERS, "scheduler": True, "kwok": True}
QUICK_START = DOCS / "quick-start.md"
SETTINGS = {
    "integrations": {"frameworks": list(FRAMEWORKS)},
    "featureGates": {"SparkApplicationIntegration": True},
}


def eventually(question: Any, message: str) -> Any:
    return soon(question, seconds=40, message=message)


#: Of programs that are not here.
FOREIGN = {"cert-manager.io/v1"}


def manifests(block: Block) -> list[dict[str, Any]]:
    """What can be handed in: whole objects, and not settings."""
    if block.language != "yaml":
        return []
    found = [each for each in yaml.safe_load_all(block.text) if isinstance(each, dict)]
    whole = [each for each in found if {"apiVersion", "kind", "metadata"} <= each.keys()]
    return [each for each in whole if each["kind"] != "Configuration" and each["apiVersion"] not in FOREIGN]


def commands(page: Path) -> list[str]:
    lines = [line.strip() for block in blocks(page) if not block.language for line in block.text.splitlines()]
    return [line for line in lines if line.startswith(("muster ", "kubectl "))]


class Reader:
    """Does as a page says."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.api, self.folder = plane, plane.api, folder

    def types(self, line: str) -> str:
        words = shlex.split(line, comments=True)
        program = {"kubectl": [str(self.plane.bin / "kubectl")], "muster": [sys.executable, "-m", "admission.cli"]}
        surroundings = os.environ | {"KUBECONFIG": self.plane.kubeconfig, "PYTHONPATH": str(ROOT)}
        command = [*program[words[0]], *words[1:]]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=surroundings)
        assert done.returncode == 0, f"{line}: {done.stdout}{done.stderr}"
        return done.stdout

    def hands_in(self, objects: list[dict[str, Any]], *more: str) -> None:
        file = self.folder / "manifests.yaml"
        file.write_text(yaml.safe_dump_all(objects))
        self.types(shlex.join(["kubectl", "apply", "--validate=strict", "-f", str(file), *more]))


@pytest.fixture(scope="module")
def reader(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    custom_kinds.serve(control_plane)
    control_plane.api.apply(leader_worker_sets())
    eventually(lambda: control_plane.api.list("LeaderWorkerSet") == [], "LeaderWorkerSets are served")
    for number in range(2):
        control_plane.api.create(node(f"host-{number}", "rack-0"))
    muster = Muster(control_plane, Path(tmp_path_factory.mktemp("muster")), SETTINGS)
    muster.start()
    yield Reader(control_plane, Path(tmp_path_factory.mktemp("reader")))
    muster.stop()
    assert muster.complaints() == []


@pytest.fixture(scope="module")
def started(reader: Reader) -> Reader:
    """The quick start from its second step on, block by block; the first one is `test_installing`'s."""
    for block in blocks(QUICK_START):
        objects = manifests(block)
        if objects:
            reader.hands_in(objects)
            if any(each["kind"] == "LocalQueue" for each in objects):
                eventually(lambda: reader.api.get("LocalQueue", "default", "vision")["status"]["conditions"], "a queue")
    return reader


def running(api: Api, job: str) -> int:
    pods = [each for each in api.list("Pod", "vision") if each["metadata"]["name"].startswith(f"{job}-")]
    return sum(is_running(each) and each["status"]["phase"] == "Running" for each in pods)


def test_the_quick_start_ends_as_it_says(started: Reader) -> None:
    api = started.api
    eventually(lambda: running(api, "train") == 2, "the job is admitted whole and started")
    (block,) = [block for block in blocks(QUICK_START) for each in manifests(block) if each["kind"] == "Job"]
    (again,) = manifests(block)
    again["metadata"]["name"] = "again"
    started.hands_in([again])
    assert gates(api.get("Pod", "notebook", "vision")), "all GPUs of the queue are in use"
    typed = {line: started.types(line) for line in commands(QUICK_START) if "explain" in line or "workloads" in line}
    assert len(typed) == 2
    eventually(lambda: "nvidia.com/gpu" in started.types("muster explain vision/again"), "it is told what is missing")
    assert "vision" in started.types("muster queues")
    api.delete("Job", "train", "vision")
    eventually(
        lambda: not gates(api.get("Pod", "notebook", "vision")) or running(api, "again") == 2, "the next one starts"
    )


@pytest.mark.parametrize("page", ["tasks/hold-a-queue.md", "tasks/why-it-waits.md"])
def test_the_commands_of_the_tasks_do_what_they_say(started: Reader, page: str) -> None:
    if started.api.find("Job", "train", "vision") is None:
        (job,) = [each for block in blocks(QUICK_START) for each in manifests(block) if each["kind"] == "Job"]
        started.hands_in([job])

    uid = started.api.get("Job", "train", "vision")["metadata"]["uid"]

    def workload() -> str | None:
        """Not that of a job of this name that is gone."""
        found = [each["metadata"] for each in started.api.list("Workload", "vision")]
        mine = [each["name"] for each in found if uid in {one["uid"] for one in each.get("ownerReferences") or []}]
        return next((name for name in mine if name.startswith("job-train")), None)

    name = eventually(workload, "its Workload is there")
    lines = commands(DOCS / page)
    assert lines
    for line in lines:
        assert started.types(line.replace("NAME", name))


WITH_MANIFESTS = [page for page in PAGES if any(map(manifests, blocks(page)))]


@pytest.mark.parametrize("page", WITH_MANIFESTS, ids=[str(page.relative_to(ROOT)) for page in WITH_MANIFESTS])
def test_every_manifest_is_taken(started: Reader, page: Path) -> None:
    """As a dry run of the API server's, with all of its checks, Muster's webhooks and its policies."""
    objects = [each for block in blocks(page) for each in manifests(block)]
    known = {each["metadata"]["name"] for each in started.api.list("Namespace")}
    for name in {each["metadata"].get("namespace", "default") for each in objects} - known:
        started.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    for each in objects:
        # Beside what the quick start has made: jobs and pods cannot be changed into others.
        if "kueue" not in each["apiVersion"] and each["kind"] != "Namespace":
            each["metadata"]["name"] += "-as-documented"
    # Two ways to write the same object are two examples.
    rounds: list[dict[tuple[str, str, str], dict[str, Any]]] = []
    for each in objects:
        key = (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        free = next((one for one in rounds if key not in one), None)
        if free is None:
            rounds.append(free := {})
        free[key] = each
    for one in rounds:
        started.hands_in(list(one.values()), "--dry-run=server")
