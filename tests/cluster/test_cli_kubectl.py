"""kubectl's plugins against a cluster that Muster runs: `kubectl muster`, and the peer's own `kubectl kueue`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.town import CONTROLLERS, GPU, Town, condition, is_running, is_true, job, kueue, pod
from tests.controlplane.cluster import eventually
from tests.kueuectl import build as kueuectl

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONTROL_PLANE: dict[str, Any] = {
    "controllers": CONTROLLERS,
    "scheduler": True,
    "kwok": True,
    "users": {"researcher": [], "nobody": []},
}
ROOT = Path(__file__).parents[2]

needs_kueuectl = pytest.mark.skipif(
    not kueuectl.is_wanted(),
    reason="kubectl kueue is not built; it takes minutes: python -m tests.kueuectl.build, or MUSTER_PEER=1",
)


class Kubectl:
    """kubectl with plugins, called as a person would."""

    def __init__(self, town: Town, folder: Path) -> None:
        self.town, self.folder = town, folder
        # What an installer makes of the project's scripts.
        for name, target in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"].items():
            module, _, function = target.partition(":")
            script = folder / name
            script.write_text(
                f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
            )
            script.chmod(0o755)

    def __call__(self, *words: str, user: str = "admin", status: int = 0) -> str:
        ended = self.ended(*words, user=user)
        assert ended.returncode == status, (ended.stdout, ended.stderr)
        return ended.stdout if status == 0 else ended.stderr

    def ended(self, *words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        plane = self.town.plane
        path = os.pathsep.join([str(self.folder), str(kueuectl.folder()), str(plane.bin), os.environ["PATH"]])
        more = {"PATH": path, "KUBECONFIG": plane.kubeconfig_of(user), "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
        command = [str(plane.bin / "kubectl"), *words]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, env=os.environ | more, cwd=ROOT, timeout=60
        )


@pytest.fixture(scope="module")
def kubectl(town: Town, tmp_path_factory: pytest.TempPathFactory) -> Kubectl:
    return Kubectl(town, Path(tmp_path_factory.mktemp("bin")))


@pytest.fixture(scope="module")
def team(town: Town) -> str:
    """A team of 4 GPUs with a Job of 2 that runs, one of 4 that waits, and a bare Workload that waits behind it."""
    name = town.team(4)
    town.api.create(job(name, "runs", 2, 1, queue="default", priority="low", run_for="1h"))
    eventually(lambda: len(town.running(name)) == 2)
    town.api.create(job(name, "waits", 4, 1, queue="default", priority="low", run_for="1h"))
    spec = {"podSets": [{"name": "main", "count": 1, "template": pod("", "x", 4)}], "queueName": "default"}
    del spec["podSets"][0]["template"]["metadata"]["name"]  # type: ignore[index]
    town.api.create(kueue("Workload", "bare", spec, name))
    eventually(lambda: len([w for w in town.workloads(name) if condition(w, "QuotaReserved").get("message")]) == 3)

    def counts(kind: str, queue: str, namespace: str | None = None) -> tuple[int, int]:
        status = town.api.get(kind, queue, namespace)["status"]
        return status["admittedWorkloads"], status["pendingWorkloads"]

    # The queues may say so later than the Workloads.
    eventually(lambda: counts("ClusterQueue", name) == counts("LocalQueue", "default", name) == (1, 2))
    return name


def workload_of(town: Town, team: str, owner: str) -> dict[str, Any]:
    return next(
        w for w in town.workloads(team) if any(o["name"] == owner for o in w["metadata"].get("ownerReferences") or [])
    )


# ------------------------------------------------------------------ kubectl muster


def test_it_shows_queues_and_workloads_in_every_form(kubectl: Kubectl, team: str) -> None:
    (view,) = json.loads(kubectl("muster", "queues", team, "-o", "json"))
    assert (view["admitted"], view["pending"], view["waiting"]) == (1, 2, {"WaitingForQuota": 2})
    (local,) = yaml.safe_load(kubectl("muster", "-n", team, "queues", "-o", "yaml"))
    assert (local["cluster_queue"], local["admitted"], local["usage"][f"h100 {GPU}"]) == (team, 1, "2")
    text = kubectl("muster", "workloads", "-n", team)
    assert text.index("waits") < text.index("runs")
    waiting = json.loads(kubectl("muster", "workloads", "-n", team, "--state", "pending", "-o", "json"))
    assert {each["owner"] for each in waiting} == {"Job/waits", ""}
    assert "h100" in kubectl("muster", "workloads", "-A", "-o", "wide")
    assert "WaitingForQuota" in kubectl("muster", "explain", "waits", "-n", team)
    assert "rack-0" in kubectl("muster", "topology")
    used = json.loads(kubectl("muster", "usage", "--by", "namespace", "-n", team, "-o", "json"))
    assert used["source"] == "workloads"
    assert {each["resource"] for each in used["items"] if each["namespace"] == team} == {"cpu", GPU}


def test_the_status_tells_what_is_wrong(kubectl: Kubectl, town: Town, team: str) -> None:
    assert "there is no ClusterQueue nowhere" in kubectl("muster", "queues", "nowhere", status=3)
    assert "there is no Workload" in kubectl("muster", "explain", "nothing", "-n", team, status=3)
    assert "not found" in kubectl("muster", "hold", "lq/nothing", "-n", team, status=3)
    assert "-n NAMESPACE shows the LocalQueues" in kubectl("muster", "queues", user="nobody", status=4)
    assert "does not let you" in kubectl("muster", "workloads", "-n", team, "--as", "nobody", status=4)
    assert "context" in kubectl("muster", "queues", "--context", "elsewhere", status=2)
    assert "no answer" in kubectl("muster", "-n", team, "queues", "--request-timeout", "1ms", status=5)


def test_queues_are_held_and_resumed(kubectl: Kubectl, town: Town, team: str) -> None:
    api = town.api
    said = kubectl("muster", "hold", "clusterqueue", team)
    assert said.startswith(f"clusterqueue.kueue.x-k8s.io/{team} held; 1 that run go on; ")
    assert api.get("ClusterQueue", team)["spec"]["stopPolicy"] == "Hold"
    assert "on hold (Hold)" in kubectl("muster", "queues", team) or "not active" in kubectl("muster", "queues", team)
    kubectl("muster", "resume", f"cq/{team}")
    assert api.get("ClusterQueue", team)["spec"]["stopPolicy"] == "None"
    kubectl("muster", "-n", team, "hold", "--drain", "--wait", "--timeout", "30", "lq", "default")
    assert api.get("LocalQueue", "default", team)["spec"]["stopPolicy"] == "HoldAndDrain"
    assert not [w for w in town.workloads(team) if is_true(w, "QuotaReserved")]
    kubectl("muster", "-n", team, "resume", "lq", "default")
    eventually(lambda: town.running(team), seconds=30, message="somebody starts again")


def test_priorities_are_changed_where_their_user_would(kubectl: Kubectl, town: Town, team: str) -> None:
    assert "priority 10 (WorkloadPriorityClass low)" in kubectl("muster", "priority", "waits", "-n", team)
    assert "--class NAME" in kubectl("muster", "priority", "waits", "7", "-n", team, status=1)
    assert "WorkloadPriorityClass none" in kubectl(
        "muster", "priority", "waits", "--class", "none", "-n", team, status=3
    )
    changed = json.loads(kubectl("muster", "priority", "waits", "--class", "high", "-n", team, "-o", "json"))
    assert (changed["priority"], changed["class"]) == (1000, "high")
    assert town.api.get("Job", "waits", team)["metadata"]["labels"]["kueue.x-k8s.io/priority-class"] == "high"
    assert "priority 5" in kubectl("muster", "priority", "bare", "5", "-n", team)
    # It is first now, and takes the place of the one with the lower class.
    eventually(lambda: len([p for p in town.running(team) if p["metadata"]["name"].startswith("waits-")]) == 4)


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        pytest.param(["queues", "team-"], "{team}", id="a namespace with queues"),
        pytest.param(["hold", "lq", "-n", "{team}", ""], "default", id="a LocalQueue"),
        pytest.param(["-n", "{team}", "explain", "b"], "bare", id="a Workload"),
    ],
)
def test_names_are_completed_from_the_cluster(kubectl: Kubectl, team: str, typed: list[str], completed: str) -> None:
    words = ["__complete", "muster", *(word.replace("{team}", team) for word in typed)]
    # It gives up after three seconds rather than keep somebody waiting, as a busy machine may make it.
    eventually(lambda: completed.replace("{team}", team) in kubectl(*words).splitlines())


# ------------------------------------------------------------------ kubectl kueue


@needs_kueuectl
def test_the_peers_own_command_line_works(kubectl: Kubectl, town: Town) -> None:
    api, space = town.api, town.plane.namespace(prefix="peer")
    # create
    kubectl("kueue", "create", "resourceflavor", "small", "--node-labels", "example.com/gpu=h100")
    quota = ["--nominal-quota", f"small:cpu=4;{GPU}=2", "--namespace-selector", f"kubernetes.io/metadata.name={space}"]
    kubectl("kueue", "create", "clusterqueue", space, "--queuing-strategy", "StrictFIFO", *quota)
    kubectl("kueue", "create", "localqueue", "mine", "-n", space, "-c", space)
    assert api.get("ClusterQueue", space)["spec"]["queueingStrategy"] == "StrictFIFO"
    eventually(lambda: is_true(api.get("ClusterQueue", space), "Active"))
    eventually(lambda: is_true(api.get("LocalQueue", "mine", space), "Active"))
    # list
    api.create(job(space, "first", 1, 2, queue="mine", run_for="1h"))
    eventually(lambda: town.running(space), message="the first is the one that is admitted")
    api.create(job(space, "second", 1, 2, queue="mine", run_for="1h"))
    eventually(lambda: len(town.workloads(space)) == 2)
    assert space in kubectl("kueue", "list", "clusterqueue", "--active=true")
    assert "mine" in kubectl("kueue", "list", "localqueue", "-n", space)
    assert "small" in kubectl("kueue", "list", "resourceflavor")
    listed = kubectl("kueue", "list", "workload", "-n", space, "--status", "admitted")
    assert "job-first" in listed
    assert "ADMITTED" in listed
    assert "job-second" in kubectl("kueue", "list", "workload", "-n", space, "--status", "pending")
    assert "job-first" in kubectl("kueue", "list", "workload", "-n", space, "--for", "job/first")
    assert "first-" in kubectl("kueue", "list", "pods", "-n", space, "--for", "job/first")
    # stop and resume
    kubectl("kueue", "stop", "clusterqueue", space, "--keep-already-running")
    assert api.get("ClusterQueue", space)["spec"]["stopPolicy"] == "Hold"
    kubectl("kueue", "resume", "clusterqueue", space)
    kubectl("kueue", "stop", "localqueue", "mine", "-n", space)
    eventually(lambda: not town.running(space), message="the queue is drained")
    kubectl("kueue", "resume", "localqueue", "mine", "-n", space)
    eventually(lambda: len(town.running(space)) == 1)
    first = workload_of(town, space, "first")["metadata"]["name"]
    kubectl("kueue", "stop", "workload", first, "-n", space)
    eventually(lambda: any(p["metadata"]["name"].startswith("second-") for p in town.running(space)))
    kubectl("kueue", "resume", "workload", first, "-n", space)
    assert api.get("Workload", first, space)["spec"]["active"] is True
    # delete: the job goes, and its Workload with it
    second = workload_of(town, space, "second")["metadata"]["name"]
    kubectl("kueue", "delete", "workload", second, "-n", space, "--yes")
    eventually(lambda: api.find("Workload", second, space) is None and api.find("Job", "second", space) is None)
    eventually(lambda: any(is_running(p) for p in town.pods(space)), message="who waited starts")
    kubectl("kueue", "delete", "clusterqueue", space, "--wait=false")
    town.raze(space)
