"""The two sides: how the peer and Muster are started on a control plane, and which CRDs each brings.

Both run as they are published: the peer's minimal controller with its own limits, Muster's controller with its own
defaults but for what needs a cluster around it (leader election, metrics). It must never tune one for a scenario.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peer import build
from tests.controlplane.cluster import KINDS, ControlPlane, eventually

ROOT = Path(__file__).parent.parent

#: Where cProfile puts what it saw of Muster's controller; its figures are not to be compared then.
PROFILE = os.environ.get("MUSTER_BENCH_PROFILE", "")

#: As the peer sets them for heavy load.
API_ARGS = ("--max-requests-inflight=5000", "--max-mutating-requests-inflight=2500")

_SETTINGS = """\
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: muster-system
leaderElection: {leaderElect: false}
metrics: {bindAddress: "0"}
muster: {stateDir: FOLDER}
"""


@dataclass(frozen=True, slots=True)
class Side:
    """`releases` tells whether it takes back the quota of evicted workloads that belong to no job by itself."""

    name: str
    releases: bool

    def crds(self) -> Path:
        """The folder with the CRDs."""
        return build.crds() if self is PEER else ROOT / "webhook-config" / "crds"

    def command(self, folder: Path, *, topology: bool) -> list[str]:
        """Without the kubeconfig. Files that it needs go to `folder`."""
        if self is PEER:
            return [str(build.programs_folder() / "minimalkueue"), *(["--enableTAS"] if topology else [])]
        profiled = ["-m", "cProfile", "-o", PROFILE] if PROFILE else []
        return [sys.executable, *profiled, "-m", "admission.cli", "controller", "--config", str(settings(folder))]

    def wrapper(self, folder: Path) -> Path:
        """A program for the peer's runner, which gives it flags of its own and expects it to know them."""
        if self is PEER:
            return build.programs_folder() / "minimalkueue"
        path = folder / "muster"
        command = shlex.join(self.command(folder, topology=False))
        path.write_text(
            f'#!/bin/sh\n# Called with --kubeconfig FILE and then flags of the minimal controller.\ncd {ROOT}\n'
            f'exec {command} "$1" "$2"\n'
        )  # fmt: skip
        path.chmod(0o755)
        return path

    @contextlib.contextmanager
    def running(self, plane: ControlPlane, *, topology: bool) -> Iterator[subprocess.Popen[bytes]]:
        """Its controller, as a process that ends with the context."""
        command = [*self.command(plane.folder, topology=topology), "--kubeconfig", plane.kubeconfig]
        with (plane.folder / "logs" / f"{self.name}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()


def settings(folder: Path) -> Path:
    """Muster's settings, in a file in `folder`, where its journal will be as well."""
    path = folder / "muster.yaml"
    path.write_text(_SETTINGS.replace("FOLDER", str(folder)))
    return path


PEER = Side("peer", releases=False)
MUSTER = Side("muster", releases=True)
SIDES = {side.name: side for side in (PEER, MUSTER)}


def install_crds(plane: ControlPlane, side: Side) -> None:
    """Apply the side's CRDs and wait until the API server serves all of them."""
    files = sorted(side.crds().glob("kueue.x-k8s.io_*.yaml"))
    plane.kubectl("create", *(f"--filename={path}" for path in files))
    kinds = [kind for kind, (version, _, _) in KINDS.items() if version.startswith("kueue.")]

    def served() -> bool:
        for kind in kinds:
            plane.api.list(kind)
        return True

    eventually(served, seconds=60, message="the CRDs are served")


@contextlib.contextmanager
def control_plane(side: Side) -> Iterator[ControlPlane]:
    """A fresh control plane with the side's CRDs."""
    with ControlPlane(api_args=API_ARGS) as plane:
        install_crds(plane, side)
        yield plane


def log_of(plane: ControlPlane, side: Side) -> str:
    path = plane.folder / "logs" / f"{side.name}.log"
    return path.read_text(errors="replace")[-3000:] if path.exists() else ""


def quiet(environment: dict[str, str] | None = None) -> dict[str, str]:
    """The environment for programs that must not meet other clusters."""
    left = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    return {**left, **(environment or {})}
