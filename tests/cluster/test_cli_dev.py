"""`muster dev` as a real process tree against a real API server: start, stop, kill, rotate, remove."""

from __future__ import annotations

import contextlib
import os
import signal
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
import yaml

from admission import lifeline
from tests.controlplane.cluster import ApiError, ControlPlane, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


class Dev:
    """One `muster dev` with its folder."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.ready = folder / "ready"
        self.log = folder / "log"
        self.settings = folder / "settings-given.yaml"
        self.settings.write_text(yaml.safe_dump(SETTINGS))
        self.process: subprocess.Popen[bytes] | None = None

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "admission.cli", "dev", "--kubeconfig", self.plane.kubeconfig, *arguments]

    def start(self) -> float:
        """Seconds from exec to ready."""
        # A kill leaves it behind.
        self.ready.unlink(missing_ok=True)
        started = time.monotonic()
        arguments = ["--config", str(self.settings), "--dir", str(self.folder), "--ready-file", str(self.ready)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command(*arguments), stdout=log, stderr=log, cwd=ROOT)
        while not self.ready.exists():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() - started < 60, self.log.read_text()[-3000:]
            time.sleep(0.02)
        return time.monotonic() - started

    def end(self, number: signal.Signals) -> float:
        """Seconds from the signal to the end."""
        assert self.process is not None
        started = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(20)
        return time.monotonic() - started

    def descendants(self) -> set[int]:
        """Every process below it, also when it is gone itself: each has its supervisor's id in its environment."""
        assert self.process is not None
        mark = f"{lifeline.PARENT}={self.process.pid}".encode()
        found = set()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
        return found

    def port(self) -> int:
        return int(yaml.safe_load((self.folder / "ports.json").read_text())["webhook"])

    def served(self) -> str:
        return ssl.get_server_certificate(("127.0.0.1", self.port()))


@pytest.fixture
def dev(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Dev]:
    one = Dev(control_plane, tmp_path)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.end(signal.SIGTERM)
    subprocess.run(one.command("--remove"), check=True, cwd=ROOT, capture_output=True)


def flavor(name: str) -> dict[str, Any]:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}


def job(name: str, queue: str | None = "lq") -> dict[str, Any]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"template": {"spec": pod}},
    }


def test_ready_means_that_the_next_create_is_answered(dev: Dev, record_property: Any) -> None:
    for i in range(3):
        record_property(f"seconds_to_ready_{i}", round(dev.start(), 2))
        assert "muster is ready" in dev.log.read_text()
        assert dev.plane.api.create(flavor(f"ready-{i}"))["metadata"]["finalizers"]
        made = dev.plane.api.create(job(f"queued-{i}"))
        assert made["spec"]["suspend"] is True
        dev.end(signal.SIGKILL if i == 1 else signal.SIGTERM)


def test_an_orderly_end_is_quick_and_takes_all_along(dev: Dev) -> None:
    dev.start()
    assert len(dev.descendants()) >= 2
    assert dev.end(signal.SIGTERM) < 3
    assert dev.process is not None
    assert dev.process.returncode == 0
    assert not dev.ready.exists()
    assert not dev.descendants()


def test_a_kill_leaves_nothing_running_and_the_next_start_goes_on(dev: Dev) -> None:
    dev.start()
    port, served = dev.port(), dev.served()
    dev.end(signal.SIGKILL)
    # One that has just been started finds out a moment later, when it is loaded.
    eventually(lambda: not dev.descendants(), message="children die with their parent")
    dev.start()
    assert (dev.port(), dev.served()) == (port, served)


@pytest.mark.parametrize("child", ["webhook", "controller"])
def test_a_child_that_dies_is_started_again(dev: Dev, child: str) -> None:
    dev.start()

    def pid() -> int | None:
        for each in dev.descendants():
            with contextlib.suppress(OSError):
                command = Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0")
                parent = int(Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[1])
                if child.encode() in command and dev.process is not None and parent == dev.process.pid:
                    return each
        return None

    before = pid()
    assert before is not None
    os.kill(before, signal.SIGKILL)
    eventually(lambda: pid() not in {None, before})
    if child == "webhook":
        eventually(lambda: dev.plane.api.create(flavor("again"))["metadata"]["finalizers"])
        # A webhook in the cluster would soon say that it is reached by its Service.
        time.sleep(2)
        (found,) = dev.plane.api.list("MutatingWebhookConfiguration", selector="app.kubernetes.io/name=muster")
        assert all("url" in each["clientConfig"] for each in found["webhooks"])


def test_no_create_fails_while_the_certificate_is_replaced(dev: Dev) -> None:
    dev.start()
    before = dev.served()
    failures: list[str] = []
    made = 0
    done = threading.Event()

    def create() -> None:
        nonlocal made
        while not done.is_set():
            made += 1
            try:
                dev.plane.api.create(flavor(f"rotating-{made}"), dry_run=True)
            except ApiError as error:
                failures.append(str(error))

    worker = threading.Thread(target=create)
    worker.start()
    try:
        for _ in range(2):
            subprocess.run(dev.command("--rotate", "--dir", str(dev.folder)), check=True, cwd=ROOT)
        eventually(lambda: dev.served() != before)
        time.sleep(1)
        eventually(lambda: made > 50, message="a slow machine takes longer for as many")
    finally:
        done.set()
        worker.join()
    assert made > 50
    assert failures == []


def test_two_cannot_run_in_one_folder(dev: Dev) -> None:
    dev.start()
    second = subprocess.run(
        dev.command("--dir", str(dev.folder)), capture_output=True, text=True, check=False, cwd=ROOT, timeout=30
    )
    assert second.returncode == 2
    assert "another muster dev runs with" in second.stderr


def test_removal_leaves_no_webhook_behind(dev: Dev) -> None:
    dev.start()
    dev.end(signal.SIGTERM)
    with pytest.raises(ApiError):
        dev.plane.api.create(job("refused"))
    subprocess.run(dev.command("--remove"), check=True, cwd=ROOT)
    kinds = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy"]
    assert [dev.plane.api.list(kind, selector="app.kubernetes.io/name=muster") for kind in kinds] == [[], [], []]
    eventually(lambda: dev.plane.api.create(job("accepted")))


def test_what_is_decided_can_be_inspected(dev: Dev) -> None:
    dev.start()
    api = dev.plane.api
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "seen", "resources": [{"name": "cpu", "nominalQuota": "1"}]}],
            }
        ],
    }
    made = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    api.create(flavor("seen"))
    api.create({**made, "kind": "ClusterQueue", "metadata": {"name": "seen"}, "spec": spec})
    local = {"name": "seen", "namespace": "default"}
    api.create({**made, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": "seen"}})
    for i in range(3):
        body = job(f"seen-{i}", "seen")
        body["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        api.create(body)
    ports = yaml.safe_load((dev.folder / "ports.json").read_text())
    urllib3.disable_warnings()

    def asked(path: str, port: int, token: str = dev.plane.token) -> requests.Response:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.get(f"https://127.0.0.1:{port}{path}", headers=headers, verify=False, timeout=10)

    def pending() -> bool:
        with contextlib.suppress(requests.RequestException):
            path = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/seen/pendingworkloads"
            items = asked(path, ports["visibility"]).json().get("items", [])
            return [item["positionInClusterQueue"] for item in items] == [0, 1]
        return False

    eventually(pending, seconds=60)
    assert asked("/api/v1/queues", ports["inspection"]).status_code == 200
    assert asked("/api/v1/queues", ports["inspection"], "made-up").status_code == 401
    assert dev.end(signal.SIGTERM) < 3
