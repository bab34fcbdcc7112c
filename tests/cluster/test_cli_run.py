"""`muster run` and the commands beside it, as real processes: probes, metrics, an address that answers at once."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
import yaml

from admission import tls
from admission.commands.surroundings import PUBLISHED_ELSEWHERE
from tests.cluster.account import NAMESPACE, kubeconfig_of_muster
from tests.controlplane.cluster import ApiError, ControlPlane, eventually, free_port

pytestmark = pytest.mark.cluster

CONTROL_PLANE: dict[str, Any] = {"users": {"scraper": ["scrapers"], "stranger": []}}
ROOT = Path(__file__).parents[2]


class Run:
    """One `muster run` with fixed ports and certificates that were there before."""

    def __init__(self, plane: ControlPlane, folder: Path, **settings: Any) -> None:
        self.plane, self.folder = plane, folder
        self.webhook, self.metrics, self.health, self.inspection, self.visibility = (free_port() for _ in range(5))
        self.certificates = folder / "serving"
        self.issued = tls.issue(("127.0.0.1",), dt.datetime.now(dt.UTC))
        tls.write_files(self.certificates, self.issued)
        self.settings = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "webhook": {"host": "127.0.0.1", "port": self.webhook, "certDir": str(self.certificates)},
            "internalCertManagement": {"enable": False},
            "metrics": {"bindAddress": f"127.0.0.1:{self.metrics}"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": self.visibility},
            "integrations": {"frameworks": ["batch/job", "pod"]},
            "muster": {"stateDir": str(folder), "inspection": {"bindPort": self.inspection}},
            **settings,
        }
        self.file = folder / "settings.yaml"
        self.file.write_text(yaml.safe_dump(self.settings))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, command: str = "run", *more: str) -> None:
        arguments = [command, "--kubeconfig", kubeconfig_of_muster(self.plane), "--config", str(self.file), *more]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "admission.cli", *arguments],
                stdout=log,
                stderr=log,
                cwd=ROOT,
                env=os.environ | {PUBLISHED_ELSEWHERE: "yes"},
            )

    def end(self) -> float:
        assert self.process is not None
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(20)
        return time.monotonic() - started

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def probe(self, name: str) -> tuple[int, str]:
        answer = requests.get(f"http://127.0.0.1:{self.health}/{name}", timeout=5)
        return answer.status_code, answer.text

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log()[-2000:]
        with contextlib.suppress(requests.RequestException):
            return self.probe("readyz")[0] == 200
        return False

    def scrape(self, token: str | None) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        urllib3.disable_warnings()
        return requests.get(f"https://127.0.0.1:{self.metrics}/metrics", headers=headers, verify=False, timeout=10)


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    folder = ROOT / "webhook-config" / "crds"
    made = [yaml.safe_load(file.read_text()) for file in sorted(folder.glob("kueue.x-k8s.io_*.yaml"))]
    for crd in made:
        control_plane.api.apply(crd)
    for crd in made:
        eventually(lambda kind=crd["spec"]["names"]["kind"]: control_plane.api.list(kind) == [])


@pytest.fixture
def run(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Run]:
    one = Run(control_plane, tmp_path)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.end()


def review() -> dict[str, Any]:
    flavor = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "x"}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u",
            "kind": {"group": "kueue.x-k8s.io", "version": "v1beta2", "kind": "ResourceFlavor"},
            "resource": {"group": "kueue.x-k8s.io", "version": "v1beta2", "resource": "resourceflavors"},
            "operation": "CREATE",
            "name": "x",
            "userInfo": {"username": "u"},
            "object": flavor,
        },
    }


def test_it_listens_only_when_it_can_answer(run: Run, record_property: Any) -> None:
    (run.folder / "ca.crt").write_bytes(run.issued.authorities)
    url = f"https://127.0.0.1:{run.webhook}/mutate-kueue-x-k8s-io-v1beta2-resourceflavor?timeout=10s"
    started = time.monotonic()
    run.start()
    # The first connection that is accepted is answered, by the certificate of certDir as it is.
    while True:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", run.webhook), 1):
            break
        assert time.monotonic() - started < 60, run.log()[-2000:]
        time.sleep(0.01)
    accepted = time.monotonic() - started
    answer = requests.post(url, json=review(), verify=str(run.folder / "ca.crt"), timeout=2)
    record_property("seconds_to_listening", round(accepted, 2))
    assert answer.json()["response"]["allowed"] is True
    assert ssl.get_server_certificate(("127.0.0.1", run.webhook)).strip() == run.issued.certificate.decode().strip()


def test_probes_say_what_is_not_ready(run: Run) -> None:
    run.start()
    eventually(run.is_ready, seconds=60)
    assert run.probe("healthz") == (200, "ok\n")
    assert run.probe("elsewhere")[0] == 404
    # Who waited to lead is not ready again while it catches up; afterwards only the webhook can be missing.
    eventually(lambda: "all informers are synced" in run.log())
    eventually(run.is_ready)
    # Neither part is ready while the API server cannot be followed from the start; the webhook's loss is noticed.
    webhook = next(
        line["pid"]
        for line in map(json.loads, filter(lambda text: text.startswith("{"), run.log().splitlines()))
        if line["msg"] == "started" and line["child"] == "webhook"
    )
    os.kill(webhook, signal.SIGKILL)
    eventually(lambda: run.probe("readyz") == (503, "webhook: not ready\n"), every=0.01)
    assert run.probe("healthz")[0] == 200
    eventually(run.is_ready, seconds=60)


def test_the_end_comes_in_order_and_in_time(run: Run) -> None:
    run.start()
    eventually(run.is_ready, seconds=60)

    def holder() -> str:
        lease = run.plane.api.find("Lease", "c1f6bfd2.kueue.x-k8s.io", NAMESPACE) or {"spec": {}}
        return str(lease["spec"].get("holderIdentity") or "")

    eventually(holder, seconds=30)  # who waits to lead is ready too
    assert run.end() < 3
    assert run.process is not None
    assert run.process.returncode == 0
    assert not holder()


def test_metrics_are_for_those_who_may_see_them(run: Run) -> None:
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "scraper"}}
    rules = [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]
    run.plane.api.apply({**role, "rules": rules})
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "scraper"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "scrapers"}],
    }
    run.plane.api.apply(binding)
    run.start()
    eventually(run.is_ready, seconds=60)

    def serves() -> bool:
        with contextlib.suppress(requests.RequestException):
            return run.scrape(None).status_code == 401
        return False

    eventually(serves)
    eventually(lambda: run.scrape(run.plane.tokens["scraper"]).status_code == 200, every=1)
    assert run.scrape("made-up").status_code == 401
    assert run.scrape(run.plane.tokens["stranger"]).status_code == 403
    text = run.scrape(run.plane.tokens["scraper"]).text
    for name in ("kueue_admission_attempts", "process_cpu_seconds", "python_info"):
        assert f"# TYPE {name}" in text


def test_the_controller_needs_nothing_but_the_crds(run: Run) -> None:
    run.start("controller")
    api = run.plane.api
    for obj in (
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "df"}},
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "ClusterQueue",
            "metadata": {"name": "cq"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "df", "resources": [{"name": "cpu", "nominalQuota": "4"}]}],
                    }
                ],
            },
        },
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "LocalQueue",
            "metadata": {"name": "lq", "namespace": "default"},
            "spec": {"clusterQueue": "cq"},
        },
        *(workload(f"w{i}") for i in range(3)),
    ):
        api.create(obj)

    def admitted() -> int:
        found = [each.get("status", {}).get("conditions", []) for each in api.list("Workload")]
        return sum(any(c["type"] == "Admitted" and c["status"] == "True" for c in each) for each in found)

    eventually(lambda: admitted() == 2, seconds=60)

    def is_shown() -> bool:
        (view,) = json.loads(muster("queues", "-o", "json", plane=run.plane))
        assert view["quotas"] == [
            {"flavor": "df", "resource": "cpu", "nominal": "4", "used": "4", "reserved": "4", "borrowed": "0"}
        ]
        assert (view["admitted"], view["pending"], view["active"]) == (2, 1, True)
        return True

    eventually(is_shown, message="the queue says who runs and who waits, a moment later than the Workloads")
    (waiting,) = [name for name in ("w0", "w1", "w2") if explained(run.plane, name)["state"] == "Pending"]
    why = eventually(
        lambda: (found := explained(run.plane, waiting))["reason"] == "WaitingForQuota" and found,
        message="who waits is told why, a moment later",
    )
    assert (why["reason"], why["queue"], why["cluster_queue"]) == ("WaitingForQuota", "lq", "cq")
    assert "cpu" in why["message"]
    assert "ClusterQueue" in muster("queues", plane=run.plane)
    assert why["message"].split(" ")[0] in muster("explain", f"default/{waiting}", plane=run.plane)


def workload(name: str, queue: str = "lq") -> dict[str, Any]:
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"queueName": queue, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }


def muster(*arguments: str, plane: ControlPlane) -> str:
    command = [sys.executable, "-m", "admission.cli", *arguments, "--kubeconfig", plane.kubeconfig]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def explained(plane: ControlPlane, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(muster("explain", f"default/{name}", "-o", "json", plane=plane))
    return found


def test_queues_and_workloads_are_in_the_metrics(run: Run) -> None:
    metrics = {"enableClusterQueueResources": True, "localQueueMetrics": {"enable": True}}
    run.settings["metrics"].update(metrics)
    run.settings["leaderElection"] = {"leaderElect": False}
    run.file.write_text(yaml.safe_dump(run.settings))
    run.start("controller")
    api = run.plane.api
    for obj in queues("measured"):
        api.create(obj)
    for name in ("m0", "m1", "m2"):
        api.create(workload(name, "measured"))
    cq, lq, role = 'cluster_queue="measured"', 'name="measured",namespace="default"', 'replica_role="standalone"'
    want = {
        f'kueue_cluster_queue_status{{{cq},{role},status="active"}} 1.0',
        f'kueue_pending_workloads{{{cq},{role},status="inadmissible"}} 1.0',
        f"kueue_admitted_active_workloads{{{cq},{role}}} 2.0",
        f'kueue_admitted_workloads_total{{{cq},priority_class="",{role}}} 2.0',
        f'kueue_unadmitted_workloads{{{cq},reason="NoReservation",{role},underlying_cause="WaitingForQuota"}} 1.0',
        f'kueue_cluster_queue_nominal_quota{{{cq},cohort="",flavor="measured",{role},resource="cpu"}} 4.0',
        f"kueue_local_queue_admitted_active_workloads{{{lq},{role}}} 2.0",
        f'muster_writes_total{{kind="Workload",{role},result="done",verb="patch"}}',
        f'muster_informer_silence_seconds{{kind="Workload",{role}}}',
        f"muster_journal_lag_seconds{{{role}}}",
    }

    def lacking() -> set[str]:
        with contextlib.suppress(requests.RequestException):
            answer = run.scrape(run.plane.token)
            assert answer.status_code == 200
            lines = {ordered(line) for line in answer.text.splitlines()}
            return {line for line in want if not any(found.startswith(ordered(line)) for found in lines)}
        return want

    def is_served() -> bool:
        assert lacking() == set()
        return True

    eventually(is_served, seconds=60, every=0.5, message="all of it is served")
    for kind, namespace in (("LocalQueue", "default"), ("ClusterQueue", None)):
        api.delete(kind, "measured", namespace)
    for name in ("m0", "m1", "m2"):
        api.delete("Workload", name, "default")
    eventually(lambda: cq not in run.scrape(run.plane.token).text, seconds=30, every=0.5)


def ordered(line: str) -> str:
    """A sample with its labels in alphabetical order."""
    name, brace, rest = line.partition("{")
    labels, end, value = rest.partition("}")
    return f"{name}{brace}{','.join(sorted(labels.split(',')))}{end}{value}"


def test_without_a_scheduler_every_controller_runs_and_nothing_is_decided(run: Run) -> None:
    run.start("controller", "--without", "scheduler")
    api = run.plane.api
    for obj in queues("undecided"):
        api.create(obj)
    api.create(workload("u", "undecided"))

    def pending() -> bool:
        return bool(api.get("ClusterQueue", "undecided").get("status", {}).get("pendingWorkloads") == 1)

    eventually(pending, seconds=60)
    time.sleep(1)
    conditions = api.get("Workload", "u", "default").get("status", {}).get("conditions", [])
    assert not [each for each in conditions if each["status"] == "True"]
    run.end()
    run.start("controller")
    eventually(lambda: "admission" in api.get("Workload", "u", "default").get("status", {}), seconds=60)


def queues(name: str) -> list[dict[str, Any]]:
    """A flavor, a ClusterQueue of 4 cpu and a LocalQueue, all of this name."""
    quota = {"name": name, "resources": [{"name": "cpu", "nominalQuota": "4"}]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [quota]}]}
    version = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": name}},
        {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": name},
        },
    ]


def test_migrations_go_up_and_down(control_plane: ControlPlane, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.sqlite3"

    def migrate(*arguments: str) -> str:
        command = [sys.executable, "-m", "admission.cli", "migrate", "--url", url, *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout

    assert migrate().startswith("empty -> ")
    assert migrate().split(" -> ")[0] != "empty"
    assert migrate("--to", "base").endswith("-> empty\n")


def test_an_unknown_workload_is_said_in_one_sentence(control_plane: ControlPlane) -> None:
    with pytest.raises(ApiError):
        control_plane.api.get("Workload", "none", "default")
    command = [sys.executable, "-m", "admission.cli", "explain", "default/none", "--kubeconfig"]
    ended = subprocess.run([*command, control_plane.kubeconfig], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, ended.stderr.count("\n")) == (3, 1)
    assert "there is no Workload default/none" in ended.stderr
