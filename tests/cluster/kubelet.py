"""A kubelet for Muster's own pods: what their manifests say is run, as processes of this machine instead of an image.

Arguments, settings, service account, Secrets, probes and the end are the manifest's; only ports and folders are others,
so that several pods fit on one machine, and an image's name stands for a folder with the code. It also does the work of
the endpoints' controller, so that an API server with `--enable-aggregator-routing` finds the Services.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import requests
import yaml

from tests.cluster.account import with_token
from tests.controlplane.cluster import ApiError, ControlPlane, free_port

Object = dict[str, Any]

#: The node's name. Nobody may look for its Node: who does takes it for lost.
NODE = "this-machine"
#: Of the seconds that a pod goes on after it was deleted: there is one API server, which hears of it at once.
PRE_STOP = 1.0
_PAUSE = 0.1


def own_address() -> str | None:
    """An address of this machine that may stand in an EndpointSlice, where it has one."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("192.0.2.1", 9))  # sends nothing
        found = str(one.getsockname()[0])
        return None if found.startswith(("127.", "169.254.")) else found
    return None


class Kubelet:
    """Runs every pod of a namespace. `images`: which folder's code an image has."""

    def __init__(
        self,
        plane: ControlPlane,
        namespace: str,
        folder: Path,
        images: Mapping[str, Path],
        address: str,
        kubeconfig: str = "",
    ) -> None:
        self.plane, self.api, self.namespace = plane, plane.api, namespace
        self.folder, self.images, self.address = folder, dict(images), address
        #: Says where the API server is, and who it is.
        self.kubeconfig = kubeconfig or plane.kubeconfig
        self.lives: dict[str, threading.Thread] = {}
        self.faults: list[str] = []
        self._running = True
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._running = False
        for each in [self._thread, *self.lives.values()]:
            each.join(30)

    def said(self, word: str) -> list[str]:
        """The lines with this word in the logs of all pods that there were."""
        logs = (path.read_text(errors="replace") for path in sorted(self.folder.glob("*/log")))
        return [line for log in logs for line in log.splitlines() if word in line]

    def _look(self) -> None:
        while self._running:
            with contextlib.suppress(ApiError, requests.RequestException):
                for pod in self.api.list("Pod", self.namespace):
                    name = pod["metadata"]["name"]
                    if name not in self.lives and "deletionTimestamp" not in pod["metadata"]:
                        self.lives[name] = threading.Thread(target=self._guarded, args=(pod,), daemon=True)
                        self.lives[name].start()
            time.sleep(_PAUSE)

    def _guarded(self, pod: Object) -> None:
        try:
            self._live(pod)
        except Exception as error:  # noqa: BLE001  # the test is told
            self.faults.append(f"{pod['metadata']['name']}: {error!r}")

    # ---- one pod

    def _live(self, pod: Object) -> None:
        name = pod["metadata"]["name"]
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        self.api.request("POST", self.api.path("Pod", self.namespace, name, "binding"), {**binding, "target": target})
        folder = self.folder / name
        folder.mkdir()
        (container,) = pod["spec"]["containers"]
        ports = self._settings(pod, container, folder)
        process = self._start(pod, container, folder)
        probe = container["readinessProbe"]
        ready, missed = False, 0
        try:
            while self._running:
                found = self.api.find("Pod", name, self.namespace)
                if found is None or "deletionTimestamp" in found["metadata"]:
                    break
                if process.poll() is not None:
                    raise RuntimeError((folder / "log").read_text()[-3000:])
                # As a kubelet: on a busy machine one answer may come too late.
                missed = 0 if _answers(probe, ports) else missed + 1
                if (now := missed < (probe.get("failureThreshold", 3) if ready else 1)) != ready:
                    ready = now
                    self._tell(name, ready=ready)
                    self._endpoints(pod, ports) if ready else self._no_endpoints(name)
                time.sleep(_PAUSE)
            self._no_endpoints(name)
            if self._running and container.get("lifecycle", {}).get("preStop"):
                time.sleep(PRE_STOP)
        finally:
            process.terminate()
            try:
                process.wait(pod["spec"]["terminationGracePeriodSeconds"])
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            with contextlib.suppress(requests.RequestException):
                self.api.delete("Pod", name, self.namespace, grace=0)

    def _settings(self, pod: Object, container: Object, folder: Path) -> dict[str, int]:
        """The mounted ConfigMap with free ports; these by the names that the container gives them."""
        (config,) = [each["configMap"]["name"] for each in pod["spec"]["volumes"] if "configMap" in each]
        settings = yaml.safe_load(self.api.get("ConfigMap", config, self.namespace)["data"]["config.yaml"])
        said = {
            "webhook": settings["webhook"]["port"],
            "metrics": int(settings["metrics"]["bindAddress"].rpartition(":")[2]),
            "health": int(settings["health"]["healthProbeBindAddress"].rpartition(":")[2]),
            "visibility": settings["visibilityServer"]["bindPort"],
        }
        named = {each["name"]: each["containerPort"] for each in container["ports"]}
        if said != named:
            raise AssertionError(f"the settings say {said}, the container {named}")
        ports = {name: free_port() for name in said}
        settings["webhook"] |= {"port": ports["webhook"], "certDir": str(folder / "certificates")}
        settings["metrics"]["bindAddress"] = f":{ports['metrics']}"
        settings["health"]["healthProbeBindAddress"] = f":{ports['health']}"
        settings["visibilityServer"]["bindPort"] = ports["visibility"]
        settings.setdefault("muster", {})["stateDir"] = str(folder)
        settings["muster"].setdefault("inspection", {})["bindPort"] = free_port()
        (folder / "config.yaml").write_text(yaml.safe_dump(settings))
        return ports

    def _start(self, pod: Object, container: Object, folder: Path) -> subprocess.Popen[bytes]:
        code = self.images[container["image"]]
        args = [
            str(folder / "config.yaml") if each == "/etc/muster/config.yaml" else each for each in container["args"]
        ]
        command = [sys.executable, "-m", "admission.cli", *args, "--kubeconfig", str(self._credentials(pod, folder))]
        with (folder / "log").open("ab") as log:
            return subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=code,
                env={**os.environ, "PYTHONPATH": str(code), **self._environment(container)},
            )

    def _environment(self, container: Object) -> dict[str, str]:
        found = {}
        for each in container.get("env") or ():
            if "value" in each:
                found[each["name"]] = each["value"]
                continue
            reference = each["valueFrom"]["secretKeyRef"]
            secret = self.api.find("Secret", reference["name"], self.namespace)
            if secret is not None:
                found[each["name"]] = base64.b64decode(secret["data"][reference["key"]]).decode()
            elif not reference.get("optional"):
                raise AssertionError(f"there is no Secret {reference['name']}")
        return found

    def _credentials(self, pod: Object, folder: Path) -> Path:
        """A kubeconfig with a token of the pod's own service account."""
        made = folder / "kubeconfig"
        account = pod["spec"]["serviceAccountName"]
        made.write_text(with_token(self.api, self.kubeconfig, self.namespace, account))
        return made

    # ---- what others are told

    def _tell(self, name: str, *, ready: bool) -> None:
        status = "True" if ready else "False"
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        conditions = [
            {"type": type_, "status": status, "lastTransitionTime": now} for type_ in ("Ready", "ContainersReady")
        ]
        body = {"phase": "Running", "podIP": self.address, "podIPs": [{"ip": self.address}], "conditions": conditions}
        self.api.patch("Pod", name, {"status": body}, self.namespace, sub="status")

    def _endpoints(self, pod: Object, ports: Mapping[str, int]) -> None:
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        for service in self.api.list("Service", self.namespace):
            if not service["spec"]["selector"].items() <= labels.items():
                continue
            metadata = {
                "name": f"{service['metadata']['name']}-{name}",
                "namespace": self.namespace,
                "labels": {"kubernetes.io/service-name": service["metadata"]["name"], "for-pod": name},
            }
            self.api.apply({
                "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata,
                "addressType": "IPv4",
                "endpoints": [{"addresses": [self.address], "conditions": {"ready": True}}],
                "ports": [
                    {"name": each["name"], "port": ports[each["targetPort"]], "protocol": "TCP"}
                    for each in service["spec"]["ports"]
                ],
            })  # fmt: skip

    def _no_endpoints(self, name: str) -> None:
        for each in self.api.list("EndpointSlice", self.namespace, f"for-pod={name}"):
            self.api.delete("EndpointSlice", each["metadata"]["name"], self.namespace)


def _answers(probe: Object, ports: Mapping[str, int]) -> bool:
    with contextlib.suppress(requests.RequestException):
        url = f"http://127.0.0.1:{ports[probe['httpGet']['port']]}{probe['httpGet']['path']}"
        return requests.get(url, timeout=probe["timeoutSeconds"]).status_code == 200
    return False
