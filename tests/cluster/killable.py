"""`muster controller` as a real process that can be killed between any two of its writes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import yaml

from tests.cluster.account import NAMESPACE, kubeconfig_of_muster
from tests.controlplane.cluster import ControlPlane

ROOT = Path(__file__).parents[2]


class Killable:
    """`muster controller` as a real process."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.config = folder / "config.yaml"
        configuration = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "leaderElection": {"leaderElect": False},
            "metrics": {"bindAddress": "0"},
            "integrations": {"frameworks": ["batch/job", "pod"]},
            "muster": {"journal": {"url": f"sqlite:///{folder}/journal.db"}, "stateDir": str(folder)},
        }
        self.config.write_text(yaml.safe_dump(configuration))
        self.kubeconfig = kubeconfig_of_muster(plane)
        self.log = (folder / "controller.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "admission.cli",
                "controller",
                "--kubeconfig",
                self.kubeconfig,
                "--config",
                str(self.config),
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=self.log,
            stderr=self.log,
            start_new_session=True,
        )

    def kill(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()
