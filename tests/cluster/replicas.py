"""Several `muster run` beside one control plane, and a balancer before their webhooks, as a Service would be.

A replica is a process tree of its own with its own ports, and shares settings, certificates and the Lease with the
others. What the balancer sends where is what the test says, by connection, as kube-proxy does.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import requests
import yaml

from admission import lifeline, tls
from admission.commands.surroundings import PUBLISHED_ELSEWHERE
from tests.cluster.account import NAMESPACE, kubeconfig_of_muster
from tests.controlplane.cluster import ControlPlane, eventually, free_port

ROOT = Path(__file__).parents[2]
LEASE = "c1f6bfd2.kueue.x-k8s.io"
#: Seconds; the official client's rules hold: retry < renew < lease.
DURATION, RENEW, RETRY = 6, 4, 1


class Replica:
    """One `muster run`."""

    def __init__(
        self, plane: ControlPlane, folder: Path, held: tls.Certificates, *, kubeconfig: str = "", **settings: Any
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.log = folder, folder / "log"
        self.port, self.health, self.metrics, self.inspection = (free_port() for _ in range(4))
        tls.write_files(folder / "serving", held)
        self.kubeconfig = kubeconfig or kubeconfig_of_muster(plane)
        self.settings = folder / "settings.yaml"
        body = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "webhook": {"host": "127.0.0.1", "port": self.port, "certDir": str(folder / "serving")},
            "internalCertManagement": {"enable": False},
            "metrics": {"bindAddress": f"127.0.0.1:{self.metrics}"},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health}"},
            "integrations": {"frameworks": ["batch/job", "pod"]},
            "leaderElection": {
                "leaderElect": True,
                "leaseDuration": f"{DURATION}s",
                "renewDeadline": f"{RENEW}s",
                "retryPeriod": f"{RETRY}s",
            },
            "featureGates": {"VisibilityOnDemand": False},
            "muster": {"stateDir": str(folder), "inspection": {"bindPort": self.inspection}},
            **settings,
        }
        self.settings.write_text(yaml.safe_dump(body))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        arguments = ["run", "--kubeconfig", self.kubeconfig, "--config", str(self.settings)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "admission.cli", *arguments],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=ROOT,
                env=os.environ | {PUBLISHED_ELSEWHERE: "yes"},
            )
        return self

    def is_ready(self, probe: str = "readyz") -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(self.log.read_text()[-3000:])
        with contextlib.suppress(requests.RequestException):
            return requests.get(f"http://127.0.0.1:{self.health}/{probe}", timeout=5).status_code == 200
        return False

    def readiness(self) -> str:
        return requests.get(f"http://127.0.0.1:{self.health}/readyz", timeout=5).text

    def wait_ready(self) -> Self:
        eventually(self.is_ready, seconds=60, message=f"a replica is ready; its log is {self.log}")
        return self

    def end(self, number: int = signal.SIGTERM) -> None:
        """SIGKILL is the loss of a node: nobody of the tree lives to tell."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(60)

    def children(self) -> list[int]:
        """Everybody below."""
        assert self.process is not None
        mark = f"{lifeline.PARENT}={self.process.pid}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found

    def is_holder(self, identity: str) -> bool:
        return any(f"_{pid}_" in identity for pid in self.children())


class Balancer:
    """Hands each new connection to one of `backends` (ports); what is open stays where it is."""

    def __init__(self) -> None:
        self.backends: list[int] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        dice = random.Random(1)
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", dice.choice(self.backends)), 5)
            except (OSError, IndexError):
                client.close()  # as a Service without endpoints, or with one that does not listen
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for one in (source, sink):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


@contextlib.contextmanager
def balancer() -> Iterator[Balancer]:
    made = Balancer()
    try:
        yield made
    finally:
        made.close()


def certificates() -> tls.Certificates:
    return tls.issue(("127.0.0.1", "localhost"), datetime.now(UTC))
