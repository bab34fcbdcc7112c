"""`muster adopt`: a cluster with work that Kueue has started goes over to Muster, and nobody notices."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster import kueue_before
from tests.cluster.kueue_before import TEAM
from tests.cluster.town import CONTROLLERS, QUEUE, Muster, held, is_running, is_true, pod
from tests.controlplane.cluster import ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE: dict[str, Any] = {"controllers": CONTROLLERS, "scheduler": True, "kwok": True}
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "coming-from-kueue.md"


def muster(plane: ControlPlane, *arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "admission.cli", *arguments, "--kubeconfig", plane.kubeconfig]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=_environment())


def _environment() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": str(ROOT)}


def in_guide(*words: str) -> list[str]:
    """The line of the guide that begins so: what is executed here is what people are told to do."""
    lines = [line.split() for line in GUIDE.read_text().splitlines() if line.startswith(" ".join(words))]
    assert lines, f"the guide has no line {' '.join(words)}"
    return lines[0][1:]


@pytest.fixture(scope="module")
def kueues(control_plane: ControlPlane) -> ControlPlane:
    kueue_before.left(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def successor(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Muster]:
    one = Muster(control_plane, Path(tmp_path_factory.mktemp("muster")))
    yield one
    one.stop()


def running(plane: ControlPlane) -> dict[str, str]:
    """Uids of the pods that run, by name."""
    return {
        each["metadata"]["name"]: each["metadata"]["uid"]
        for each in plane.api.list("Pod", TEAM)
        if is_running(each) and each["status"].get("phase") == "Running"
    }


def test_a_dry_run_says_what_differs_and_changes_nothing(kueues: ControlPlane, tmp_path: Path) -> None:
    before = kueues.api.list("MutatingWebhookConfiguration"), kueues.api.list("Deployment", "kueue-system")
    ended = muster(kueues, *in_guide("muster", "adopt", "--dry-run"), "-o", "json", cwd=tmp_path)
    assert ended.returncode == 6, ended.stderr
    found = json.loads(ended.stdout)
    assert found["objects"]["Workload"] == 4
    assert found["objects"]["holding quota"] == 3
    said = {(each["level"], each["kind"], each["name"]): each["says"] for each in found["differences"]}
    config = "kueue-system/kueue-manager-config"
    lost = [
        text for (level, kind, name), text in said.items() if (level, kind, name) == ("lost", "Configuration", config)
    ]
    assert lost
    assert "pprofBindAddress" in ended.stdout
    assert ("note", "Deployment", "kueue-system/kueue-controller-manager") in said
    assert ("differs", "LocalQueue", f"{TEAM}/default") in said
    settings = yaml.safe_load((tmp_path / "configuration.yaml").read_text())
    assert settings["integrations"]["frameworks"] == ["batch/job", "ray.io/rayjob", "pod"]
    assert "pprofBindAddress" not in settings
    assert "add --accept-losses" in ended.stderr
    assert not (tmp_path / "kueue-before-muster.yaml").exists()
    assert before == (kueues.api.list("MutatingWebhookConfiguration"), kueues.api.list("Deployment", "kueue-system"))


def test_it_is_taken_over_and_nobody_is_evicted(kueues: ControlPlane, successor: Muster, tmp_path: Path) -> None:
    api, before = kueues.api, running(kueues)
    assert len(before) == 5
    admitted = {each["metadata"]["name"]: each["status"].get("admission") for each in api.list("Workload", TEAM)}
    first = muster(kueues, *in_guide("muster", "adopt", "--yes", "--accept-losses", "--no-wait"), cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert "stopped Kueue" in first.stdout
    assert "run muster adopt again" in first.stdout
    if not kueue_before.has_peer():
        assert "wrote 1 objects again as v1beta2" in first.stdout
    assert api.get("Deployment", "kueue-controller-manager", "kueue-system")["spec"]["replicas"] == 0
    # In between nothing gets past the queues: nobody answers for Kueue, and so it is refused.
    with pytest.raises(ApiError, match="failed calling webhook"):
        api.create(pod(TEAM, "early", 1, queue="default"))

    again = [word for word in in_guide("muster", "adopt", "--yes", "--accept-losses") if word != "--no-wait"]
    with subprocess.Popen(
        [sys.executable, "-m", "admission.cli", *again, "--kubeconfig", kueues.kubeconfig],
        cwd=tmp_path,
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        successor.start()
        out, err = waiting.communicate(timeout=120)
    assert waiting.returncode == 0, err
    assert "deleted MutatingWebhookConfiguration kueue-mutating-webhook-configuration" in out
    kept = list(yaml.safe_load_all((tmp_path / "kueue-before-muster.yaml").read_text()))
    assert {each["kind"] for each in kept} >= {"Deployment", "MutatingWebhookConfiguration"}
    kueues.kubectl("apply", "--dry-run=server", "-f", str(tmp_path / "kueue-before-muster.yaml"))
    for each in api.list("CustomResourceDefinition"):
        if each["spec"]["group"] == "kueue.x-k8s.io":
            assert each["status"]["storedVersions"] == ["v1beta2"]

    # Muster knows everything of it.
    def counted() -> tuple[int, int]:
        status = api.get("ClusterQueue", "research")["status"]
        return status["admittedWorkloads"], status["pendingWorkloads"]

    eventually(lambda: counted() == (3, 1), seconds=30, message="three run and one waits")
    assert running(kueues) == before
    for each in api.list("Workload", TEAM):
        assert each["status"].get("admission") == admitted[each["metadata"]["name"]]
        assert not is_true(each, "Evicted")

    # And it goes on: what ends makes room for what waits.
    api.delete("Job", "runs", TEAM)
    eventually(lambda: any(name.startswith("waits-") for name in running(kueues)), seconds=30)
    others = {name: uid for name, uid in before.items() if not name.startswith("runs-")}

    def are_left() -> bool:
        return {name: uid for name, uid in running(kueues).items() if not name.startswith("waits-")} == others

    # The pods of the deleted job have a moment to end.
    eventually(are_left, message="the others run on")


def test_running_pods_are_imported_with_their_usage(kueues: ControlPlane, successor: Muster) -> None:
    api = kueues.api
    for name, project in (("old-0", "alpha"), ("old-1", "alpha"), ("other", "beta")):
        body = pod(TEAM, name, 0, labels={"project": project}, run_for="1h")
        body["spec"]["nodeSelector"] = {"example.com/gpu": "h100"}
        api.create(body)
    eventually(lambda: {"old-0", "old-1", "other"} <= running(kueues).keys())
    before = running(kueues)
    *_, dry_run = dry_words = in_guide("muster", "adopt", "--import-pods")
    assert dry_run == "--dry-run"
    mapping = dry_words[:-1]
    refused = muster(kueues, *(word.replace(",beta=default", "") for word in mapping))
    assert (refused.returncode, "cannot be imported" in refused.stderr) == (6, True), refused.stderr
    dry = muster(kueues, *dry_words, "-o", "json")
    assert dry.returncode == 0, dry.stderr
    assert [each["name"] for each in json.loads(dry.stdout) if each["verdict"] == "import"] == [
        "old-0",
        "old-1",
        "other",
    ]
    assert QUEUE not in api.get("Pod", "old-0", TEAM)["metadata"]["labels"]
    used = sum(held(each, "cpu") for each in api.list("Workload", TEAM))
    eventually(lambda: _used(kueues) == used, message="the queue says what is held")
    ended = muster(kueues, *mapping)
    assert ended.returncode == 0, ended.stderr
    assert "imported 3 pods" in ended.stdout
    eventually(lambda: _used(kueues) == used + 3, message="their use counts")
    again = muster(kueues, *mapping)
    assert "imported 0 pods" in again.stdout
    # Muster owns them now: they run on, and their quota comes back when one ends.
    owner = lambda name: [
        w
        for w in api.list("Workload", TEAM)
        if any(o["name"] == name for o in w["metadata"].get("ownerReferences") or [])
    ]
    eventually(lambda: owner("old-0"))
    assert running(kueues) == before
    assert not any(is_true(each, "Evicted") for each in api.list("Workload", TEAM))
    api.delete("Pod", "other", TEAM)
    eventually(lambda: _used(kueues) == used + 2, message="its quota comes back")
    assert successor.complaints() == []


def _used(plane: ControlPlane) -> int:
    """Cores reserved in the ClusterQueue."""
    (flavor,) = plane.api.get("ClusterQueue", "research")["status"]["flavorsReservation"]
    return int(next(each["total"] for each in flavor["resources"] if each["name"] == "cpu"))
