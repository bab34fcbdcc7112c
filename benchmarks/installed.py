"""Both sides as a cluster has them installed: controller and webhook, the API server pointed at them by URL.

Muster runs as `muster dev`, the peer as its full manager with its own webhook manifests. It must never leave out of
either what an installation has on the way of a pod.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import yaml

from admission import tls
from benchmarks import contestants, measure
from benchmarks.contestants import PEER, ROOT, Side
from benchmarks.measure import Usage
from benchmarks.peer import build
from tests.controlplane.cluster import KINDS, Api, ApiError, ControlPlane, eventually, free_port

PEERS_NAMESPACE = "kueue-system"

_PEERS_SETTINGS: dict[str, Any] = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": PEERS_NAMESPACE,
    "leaderElection": {"leaderElect": False},
    "metrics": {"bindAddress": "0"},
    "internalCertManagement": {"enable": False},
    "clientConnection": {"qps": 50, "burst": 100},
    "integrations": {"frameworks": ["batch/job", "pod"]},
    "featureGates": {"VisibilityOnDemand": False},
}


@dataclass(frozen=True, slots=True)
class Installed:
    """A running installation, by its topmost process."""

    side: Side
    process: subprocess.Popen[bytes]

    def usage(self) -> Usage:
        """All of it."""
        return measure.usage(self.process.pid)

    def controller_usage(self) -> Usage:
        """The peer's controller and webhook are one process."""
        return self.usage() if self.side is PEER else measure.usage_of_children(self.process.pid, " controller ")


@contextlib.contextmanager
def installed(side: Side, plane: ControlPlane) -> Iterator[Installed]:
    """Ready: a pod that names a queue is gated. The CRDs are there already."""
    log_path = plane.folder / "logs" / f"{side.name}.log"
    with log_path.open("ab") as log:
        command = _peers(plane) if side is PEER else _musters(plane)
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        if side is PEER:
            _install_peers_webhooks(plane)
        _wait_until_pods_are_gated(plane.api, process, side, plane)
        yield Installed(side, process)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        if process.poll() is None:
            process.kill()
            process.wait()


def _wait_until_pods_are_gated(api: Api, process: subprocess.Popen[bytes], side: Side, plane: ControlPlane) -> None:
    with contextlib.suppress(ApiError):
        api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probe"}})
    queue = {
        "apiVersion": KINDS["LocalQueue"][0],
        "kind": "LocalQueue",
        "metadata": {"name": "probe", "namespace": "probe"},
        "spec": {"clusterQueue": "probe"},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "probe", "labels": {"kueue.x-k8s.io/queue-name": "probe"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    }

    def is_gated() -> bool:
        if process.poll() is not None:
            raise RuntimeError(f"{side.name} ended:\n{contestants.log_of(plane, side)}")
        with contextlib.suppress(ApiError):
            api.create(queue)
        return bool(api.create(pod, dry_run=True)["spec"].get("schedulingGates"))

    eventually(is_gated, seconds=90, every=0.5, message=f"{side.name} gates pods: {contestants.log_of(plane, side)}")


def _musters(plane: ControlPlane) -> list[str]:
    settings = plane.folder / "muster.yaml"
    settings.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "config.kueue.x-k8s.io/v1beta2",
                "kind": "Configuration",
                "namespace": "muster-system",
                "leaderElection": {"leaderElect": False},
                "metrics": {"bindAddress": "0"},
                "health": {"healthProbeBindAddress": "0"},
                "integrations": {"frameworks": ["batch/job", "pod"]},
                "visibilityServer": {"bindPort": free_port()},
                "muster": {"stateDir": str(plane.folder), "inspection": {"enabled": False}},
            }
        )
    )
    return [
        *(sys.executable, "-m", "admission.cli", "dev", "--kubeconfig", plane.kubeconfig),
        *("--config", str(settings), "--dir", str(plane.folder / "muster")),
    ]


def _peers(plane: ControlPlane) -> list[str]:
    with contextlib.suppress(ApiError):
        plane.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PEERS_NAMESPACE}})
    certificates = plane.folder / "peer-certificates"
    held = tls.issue(("127.0.0.1", "localhost"), datetime.now(UTC))
    tls.write_files(certificates, held)
    # It insists on certificates for its metrics, in a folder that cannot be set: it gets an /etc of its own.
    etc = plane.folder / "peer-etc"
    tls.write_files(etc / "kueue" / "metrics" / "certs", held)
    settings = plane.folder / "peer.yaml"
    webhook = {"port": free_port(), "host": "127.0.0.1", "certDir": str(certificates)}
    health = {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"}
    settings.write_text(yaml.safe_dump({**_PEERS_SETTINGS, "webhook": webhook, "health": health}))
    return [
        *("unshare", "--mount", "--map-root-user", "sh", "-c", f'mount --bind {etc} /etc && exec "$@"', "sh"),
        str(build.programs_folder() / "kueue"),
        f"--config={settings}",
        f"--kubeconfig={plane.kubeconfig}",
        "--zap-log-level=error",
    ]


def _install_peers_webhooks(plane: ControlPlane) -> None:
    """Its own manifests for the kinds that this API server has, reached by URL."""
    settings = yaml.safe_load((plane.folder / "peer.yaml").read_text())
    address = f"https://127.0.0.1:{settings['webhook']['port']}"
    authority = (plane.folder / "peer-certificates" / "ca.crt").read_bytes()
    import base64

    bundle = base64.b64encode(authority).decode()
    served = {"pods", "jobs", *(plural for version, plural, _ in KINDS.values() if version.startswith("kueue."))}
    apart = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", PEERS_NAMESPACE]}
    path = build.module_folder() / "config" / "components" / "webhook" / "manifests.yaml"
    for manifest in yaml.safe_load_all(path.read_text()):
        manifest["metadata"]["name"] = f"kueue-{manifest['metadata']['name']}"
        kept = []
        for webhook in manifest["webhooks"]:
            kinds = {kind.partition("/")[0] for rule in webhook["rules"] for kind in rule["resources"]}
            groups = {group for rule in webhook["rules"] for group in rule["apiGroups"]}
            if not kinds <= served or not groups <= {"", "batch", "kueue.x-k8s.io"}:
                continue
            service = webhook["clientConfig"].pop("service")
            webhook["clientConfig"] = {"url": address + service["path"], "caBundle": bundle}
            if kinds & {"pods", "jobs"}:
                webhook["namespaceSelector"] = {"matchExpressions": [apart]}
            kept.append(webhook)
        manifest["webhooks"] = kept
        deadline = time.monotonic() + 60
        while True:
            try:
                plane.api.apply(manifest)
                break
            except ApiError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
