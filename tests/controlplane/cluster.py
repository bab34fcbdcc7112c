"""One running control plane: etcd and kube-apiserver, and on request controllers, scheduler and fake nodes (kwok).

Everything listens on loopback, on free ports, below one temporary folder that holds certificates, data and logs.
`ControlPlane` starts and stops it; `Api` is a thin synchronous REST client for tests, which is not Muster's own client,
so that a fault of that one cannot hide itself.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.controlplane.build import programs_folder

#: What fake nodes and pods do by themselves.
STAGES = Path(__file__).parent / "stages.yaml"

KUEUE = "kueue.x-k8s.io/v1beta2"
#: kind -> (apiVersion, plural, namespaced)
KINDS: dict[str, tuple[str, str, bool]] = {
    "ClusterQueue": (KUEUE, "clusterqueues", False),
    "LocalQueue": (KUEUE, "localqueues", True),
    "ResourceFlavor": (KUEUE, "resourceflavors", False),
    "Workload": (KUEUE, "workloads", True),
    "Cohort": (KUEUE, "cohorts", False),
    "AdmissionCheck": (KUEUE, "admissionchecks", False),
    "WorkloadPriorityClass": (KUEUE, "workloadpriorityclasses", False),
    "Topology": (KUEUE, "topologies", False),
    "ProvisioningRequestConfig": (KUEUE, "provisioningrequestconfigs", False),
    "MultiKueueConfig": (KUEUE, "multikueueconfigs", False),
    "MultiKueueCluster": (KUEUE, "multikueueclusters", False),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "APIService": ("apiregistration.k8s.io/v1", "apiservices", False),
    "Job": ("batch/v1", "jobs", True),
    "Deployment": ("apps/v1", "deployments", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "Pod": ("v1", "pods", True),
    "Node": ("v1", "nodes", False),
    "Namespace": ("v1", "namespaces", False),
    "LimitRange": ("v1", "limitranges", True),
    "Event": ("v1", "events", True),
    "ConfigMap": ("v1", "configmaps", True),
    "Secret": ("v1", "secrets", True),
    "Service": ("v1", "services", True),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "RuntimeClass": ("node.k8s.io/v1", "runtimeclasses", False),
    "DeviceClass": ("resource.k8s.io/v1", "deviceclasses", False),
    "ResourceClaim": ("resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", "resourceclaimtemplates", True),
    "PriorityClass": ("scheduling.k8s.io/v1", "priorityclasses", False),
    "Lease": ("coordination.k8s.io/v1", "leases", True),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
}


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def eventually(question: Callable[[], Any], *, seconds: float = 10, every: float = 0.05, message: str = "") -> Any:
    """Asks until the answer is true and returns it; fails with the last answer."""
    deadline, last = time.monotonic() + seconds, None
    while True:
        try:
            answer = question()
            if answer:
                return answer
            last = repr(answer)
        except (ApiError, AssertionError, KeyError, TypeError, IndexError) as error:
            last = repr(error)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {message or question} (last: {last:.500})")
        time.sleep(every)


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Api:
    """Thin REST client for one user of one API server; safe to use from several threads."""

    def __init__(self, server: str, token: str, ca: str) -> None:
        self.server, self.token, self.ca = server, token, ca
        self._local = threading.local()

    def session(self) -> requests.Session:
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.verify, session.trust_env = self.ca, False
            session.headers["Authorization"] = "Bearer " + self.token
        return session

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float = 40,
    ) -> Any:
        data = None if body is None else json.dumps(body)
        response = self.session().request(
            method,
            self.server + path,
            data=data,
            params=params,
            timeout=timeout,
            headers={"Content-Type": content_type},
        )
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        if response.status_code >= 400:
            message = response.text
            with contextlib.suppress(ValueError):
                message = response.json().get("message", message)
            raise ApiError(response.status_code, message)
        return response.json() if is_json else response.text

    @staticmethod
    def path(kind: str, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
        version, plural, namespaced = KINDS[kind]
        parts = ["api" if "/" not in version else "apis", version]
        if namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, plural, *([name] if name else []), *([sub] if sub else [])])

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        return self.request("GET", self.path(kind, namespace, name))

    def find(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """The object, or None where there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[dict[str, Any]]:
        params = {"labelSelector": selector} if selector else None
        found = self.request("GET", self.path(kind, namespace), params=params)["items"]
        return [{"kind": kind, "apiVersion": KINDS[kind][0], **item} for item in found]

    def create(self, obj: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        params = {"dryRun": "All"} if dry_run else None
        return self.request("POST", self.path(obj["kind"], obj["metadata"].get("namespace")), obj, params=params)

    def apply(self, obj: dict[str, Any], *, manager: str = "tests") -> dict[str, Any]:
        """Server-side apply, forced."""
        path = self.path(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        params = {"fieldManager": manager, "force": "true"}
        return self.request("PATCH", path, obj, params=params, content_type="application/apply-patch+yaml")

    def patch(
        self, kind: str, name: str, body: Any, namespace: str | None = None, *, sub: str | None = None
    ) -> dict[str, Any]:
        """JSON merge patch, or a JSON patch where the body is a list."""
        content_type = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
        return self.request("PATCH", self.path(kind, namespace, name, sub), body, content_type=content_type)

    def delete(self, kind: str, name: str, namespace: str | None = None, *, grace: int | None = None) -> None:
        """Background deletion; that there is no such object is no failure."""
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", self.path(kind, namespace, name), body)
        except ApiError as error:
            if error.status != 404:
                raise


class Authority:
    """A throw-away certificate authority."""

    def __init__(self, name: str) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self.name, self.key.public_key())
        self.certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(
            self.key, hashes.SHA256()
        )

    def _builder(self, subject: x509.Name, public: Any) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self.name)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + dt.timedelta(days=30))
        )

    def issue(self, common_name: str, folder: Path, stem: str) -> None:
        """Writes a client certificate and its key to `folder`."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        certificate = (
            self._builder(subject, key.public_key())
            .add_extension(usage, critical=False)
            .sign(self.key, hashes.SHA256())
        )
        (folder / f"{stem}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        (folder / f"{stem}.key").write_bytes(private_pem(key))

    def write(self, path: Path) -> None:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))


def private_pem(key: Any) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


class ControlPlane:
    """etcd and kube-apiserver at once; `start_controllers`, `start_scheduler` and `start_kwok` on request.

    `users` are further users (name -> groups), each with a token of its own and only the rights that the test gives.
    """

    def __init__(self, *, users: Mapping[str, Sequence[str]] | None = None, api_args: Sequence[str] = ()) -> None:
        self.bin = programs_folder()
        self.folder = Path(tempfile.mkdtemp(prefix="muster-"))
        self.api_args = tuple(api_args)
        self.tokens = {"admin": uuid.uuid4().hex}
        self._groups: dict[str, Sequence[str]] = {"admin": ["system:masters"]}
        for system in ("system:kube-controller-manager", "system:kube-scheduler", "kwok"):
            self.tokens[system], self._groups[system] = uuid.uuid4().hex, ["system:masters"]
        for user, groups in (users or {}).items():
            self.tokens[user], self._groups[user] = uuid.uuid4().hex, groups
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands: dict[str, list[str]] = {}
        self.server = f"https://127.0.0.1:{free_port()}"
        self.etcd = f"http://127.0.0.1:{free_port()}"

    # ---- life

    def start(self) -> Self:
        self._write_files()
        pki, etcd_data, peer = self.folder / "pki", self.folder / "etcd", f"http://127.0.0.1:{free_port()}"
        self._spawn(
            "etcd",
            {
                "data-dir": etcd_data,
                "unsafe-no-fsync": "true",
                "log-level": "error",
                "listen-client-urls": self.etcd,
                "advertise-client-urls": self.etcd,
                "listen-peer-urls": peer,
                "initial-advertise-peer-urls": peer,
                "initial-cluster": f"default={peer}",
            },
        )
        self._spawn(
            "kube-apiserver",
            {
                "etcd-servers": self.etcd,
                "bind-address": "127.0.0.1",
                "advertise-address": "127.0.0.1",
                "secure-port": self.server.rpartition(":")[2],
                "cert-dir": pki,
                "token-auth-file": self.folder / "tokens.csv",
                "authorization-mode": "RBAC",
                "service-account-issuer": "https://kubernetes.default.svc",
                "service-account-key-file": pki / "sa.key",
                "service-account-signing-key-file": pki / "sa.key",
                "service-cluster-ip-range": "10.0.0.0/24",
                "allow-privileged": "true",
                "disable-admission-plugins": "ServiceAccount",
                "requestheader-client-ca-file": pki / "front-proxy-ca.crt",
                "requestheader-allowed-names": "front-proxy",
                "requestheader-username-headers": "X-Remote-User",
                "requestheader-group-headers": "X-Remote-Group",
                "requestheader-extra-headers-prefix": "X-Remote-Extra-",
                "proxy-client-cert-file": pki / "front-proxy.crt",
                "proxy-client-key-file": pki / "front-proxy.key",
            },
            self.api_args,
        )
        self.wait_ready()
        for user in self.tokens:
            self._write_kubeconfig(user)
        return self

    def stop(self) -> None:
        for name in reversed(list(self.processes)):
            self.kill(name, wait=False)
        deadline = time.monotonic() + 5
        for process in self.processes.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            if process.poll() is None:
                process.kill()
                process.wait()
        if not os.environ.get("MUSTER_KEEP_LOGS"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, *_: object) -> None:
        self.stop()

    # ---- parts

    def start_controllers(self, *names: str) -> None:
        """kube-controller-manager; names of controllers, or all of them."""
        self._spawn(
            "kube-controller-manager",
            {
                "kubeconfig": self.kubeconfig_of("system:kube-controller-manager"),
                "leader-elect": "false",
                "secure-port": "0",
                "use-service-account-credentials": "false",
                "service-account-private-key-file": self.folder / "pki" / "sa.key",
                **({"controllers": ",".join(names)} if names else {}),
            },
        )

    def start_scheduler(self) -> None:
        kubeconfig = self.kubeconfig_of("system:kube-scheduler")
        self._spawn("kube-scheduler", {"kubeconfig": kubeconfig, "leader-elect": "false", "secure-port": "0"})

    def start_kwok(self, stages: Path = STAGES) -> None:
        """Fake kubelets for every node there is; `stages` says what they do."""
        self._spawn(
            "kwok",
            {
                "kubeconfig": self.kubeconfig_of("kwok"),
                "manage-all-nodes": "true",
                "node-lease-duration-seconds": "40",
                "server-address": f"127.0.0.1:{free_port()}",
            },
            [f"--config={stages}"],
        )

    def kill(self, name: str, sig: int = signal.SIGKILL, *, wait: bool = True) -> None:
        process = self.processes[name]
        if process.poll() is None:
            process.send_signal(sig)
            if wait:
                process.wait()

    def restart(self, name: str) -> None:
        """The same program with the same flags and data again; killed, for an API server drains for a minute."""
        self.kill(name)
        self._run(name)
        if name in {"etcd", "kube-apiserver"}:
            self.wait_ready()

    def check(self) -> None:
        for name, process in self.processes.items():
            if process.poll() is not None:
                log = (self.folder / "logs" / f"{name}.log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{name} ended with {process.returncode}:\n{log}")

    # ---- access

    @property
    def kubeconfig(self) -> str:
        return self.kubeconfig_of("admin")

    @property
    def token(self) -> str:
        return self.tokens["admin"]

    @property
    def ca(self) -> str:
        return str(self.folder / "pki" / "apiserver.crt")

    @property
    def api(self) -> Api:
        return self.api_of("admin")

    def api_of(self, user: str) -> Api:
        return Api(self.server, self.tokens[user], self.ca)

    def kubeconfig_of(self, user: str) -> str:
        return str(self.folder / f"{user.replace(':', '-')}.kubeconfig")

    def kubectl(self, *args: str, user: str = "admin", check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "kubectl"), f"--kubeconfig={self.kubeconfig_of(user)}", *args]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    def namespace(self, labels: Mapping[str, str] | None = None, *, prefix: str = "t") -> str:
        """A new namespace with a name of its own."""
        name = f"{prefix}-{uuid.uuid4().hex[:6]}"
        self.api.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}
        )
        return name

    # ---- inside

    def _spawn(self, name: str, flags: Mapping[str, object], more: Sequence[str] = ()) -> None:
        self._commands[name] = [str(self.bin / name), *(f"--{k}={v}" for k, v in flags.items()), *more]
        self._run(name)

    def _run(self, name: str) -> None:
        (self.folder / "logs").mkdir(exist_ok=True)
        with (self.folder / "logs" / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                self._commands[name], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
            )

    def wait_ready(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(ApiError, requests.RequestException, OSError):
                if Path(self.ca).exists() and self.api.request("GET", "/readyz", timeout=5) == "ok":
                    return
            self.check()
            if time.monotonic() > deadline:
                raise RuntimeError(f"kube-apiserver is not ready; logs in {self.folder}/logs")
            time.sleep(0.1)

    def _write_files(self) -> None:
        pki = self.folder / "pki"
        pki.mkdir()
        (self.folder / "etcd").mkdir(mode=0o700)
        (pki / "sa.key").write_bytes(private_pem(rsa.generate_private_key(public_exponent=65537, key_size=2048)))
        front_proxy = Authority("front-proxy-ca")
        front_proxy.write(pki / "front-proxy-ca.crt")
        front_proxy.issue("front-proxy", pki, "front-proxy")
        rows = [f'{t},{user},{user},"{",".join(self._groups[user])}"' for user, t in self.tokens.items()]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _write_kubeconfig(self, user: str) -> None:
        ca = base64.b64encode(Path(self.ca).read_bytes()).decode()
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": self.server, "certificate-authority-data": ca}}],
            "users": [{"name": "u", "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        }
        Path(self.kubeconfig_of(user)).write_text(yaml.safe_dump(config))


@contextlib.contextmanager
def control_plane(
    *,
    controllers: Sequence[str] | None = None,
    scheduler: bool = False,
    kwok: bool = False,
    users: Mapping[str, Sequence[str]] | None = None,
    api_args: Sequence[str] = (),
) -> Iterator[ControlPlane]:
    """A running control plane. `controllers`: None for no controller manager, an empty list for all of its own."""
    with ControlPlane(users=users, api_args=api_args) as plane:
        if controllers is not None:
            plane.start_controllers(*controllers)
        if scheduler:
            plane.start_scheduler()
        if kwok:
            plane.start_kwok()
        yield plane
