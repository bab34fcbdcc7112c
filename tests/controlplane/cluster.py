"""One running control plane: etcd and kube-apiserver, and on request controllers, scheduler and fake nodes (kwok).

Everything listens on loopback, on free ports, below one temporary folder that holds certificates, data and logs.
`ControlPlane` starts and stops it; whatever of it does not come up is an error that shows its log.
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import requests
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.controlplane.api import KINDS, KUEUE, Api, ApiError, eventually
from tests.controlplane.build import programs_folder

__all__ = ["KINDS", "KUEUE", "Api", "ApiError", "Authority", "ControlPlane", "eventually", "free_port", "private_pem"]

#: What fake nodes and pods do by themselves.
STAGES = Path(__file__).parent / "stages.yaml"


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


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
        #: From when to when it was not ready after a restart: until then it may not know all roles yet.
        self.restarts: list[tuple[dt.datetime, dt.datetime]] = []
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

    def start_controllers(self, *names: str, **flags: str) -> None:
        """kube-controller-manager; names of controllers, or all of them. Flags with `_` for `-`."""
        self._spawn(
            "kube-controller-manager",
            {
                "kubeconfig": self.kubeconfig_of("system:kube-controller-manager"),
                "leader-elect": "false",
                "secure-port": "0",
                "use-service-account-credentials": "false",
                "service-account-private-key-file": self.folder / "pki" / "sa.key",
                **({"controllers": ",".join(names)} if names else {}),
                **{name.replace("_", "-"): value for name, value in flags.items()},
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
        began = dt.datetime.now(dt.UTC)
        self.kill(name)
        self._run(name)
        if name in {"etcd", "kube-apiserver"}:
            self.wait_ready()
            self.restarts.append((began, dt.datetime.now(dt.UTC)))

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
