"""Certificates of Muster's own, kept in the cluster and replaced under load, and configurations that follow."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from admission.kube.client import connect
from admission.settings.configuration import InternalCertManagement, Webhook
from admission.webhook.certificates import keep, replace_now, stored
from admission.webhook.configuration import ByService
from admission.webhook.publishing import publish
from admission.webhook.server import certificate_names
from tests.cluster.webhook_process import NAMESPACE, WebhookProcess, install_crds, settings_for
from tests.controlplane.cluster import Api, ControlPlane, eventually

pytestmark = pytest.mark.cluster

QUEUE = "kueue.x-k8s.io/queue-name"
GATE = "kueue.x-k8s.io/admission"
SECRET = "kueue-webhook-server-cert"
SERVICE = "kueue-webhook-service"


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Api:
    """A Service that leads here: its name resolves to this machine."""
    api = control_plane.api
    install_crds(api)
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    spec = {"type": "ExternalName", "externalName": "localhost"}
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    api.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
    return api


class Keeper:
    """Keeps certificates and configurations in a thread, as a webhook's process does."""

    def __init__(self, plane: ControlPlane, webhook: WebhookProcess) -> None:
        self._plane, self._settings = plane, webhook.settings
        self._names = certificate_names(webhook.settings)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._keep()), daemon=True)

    async def _publish(self, client: Any, bundle: bytes) -> None:
        port = self._settings.webhook.port
        await publish(client, self._settings, ByService(NAMESPACE, SERVICE, bundle, port))

    async def _keep(self) -> None:
        async with await connect(self._plane.kubeconfig) as client:
            keeping = asyncio.ensure_future(
                keep(
                    client,
                    self._settings,
                    names=self._names,
                    publish=lambda bundle: self._publish(client, bundle),
                    look_every=0.2,
                )
            )
            await asyncio.to_thread(self._ended.wait)
            keeping.cancel()

    def rotate(self) -> None:
        async def run() -> None:
            async with await connect(self._plane.kubeconfig) as client:
                await replace_now(client, self._settings, self._names, lambda bundle: self._publish(client, bundle))

        asyncio.run(run())

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


@pytest.fixture
def webhook(control_plane: ControlPlane, installed: Api, tmp_path: Path) -> Iterator[WebhookProcess]:
    """One that serves what a `Keeper` writes."""
    settings = settings_for(tmp_path)
    started = WebhookProcess(control_plane, tmp_path, settings)
    yield started
    started.end()
    for kind in (
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicyBinding",
        "ValidatingAdmissionPolicy",
    ):
        for each in installed.list(kind, selector="app.kubernetes.io/name=muster"):
            installed.delete(kind, each["metadata"]["name"])
    installed.delete("Secret", SECRET, NAMESPACE)


def pod(ns: str, name: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": ns, "labels": {QUEUE: "q"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    }


def gated(api: Api, ns: str, name: str, *, dry_run: bool = False) -> bool:
    made = api.create(pod(ns, name), dry_run=dry_run)
    return GATE in [gate["name"] for gate in made["spec"].get("schedulingGates") or []]


def authorities(api: Api) -> set[str]:
    found = set()
    for kind in ("Mutating", "Validating"):
        name = f"muster-{kind.lower()}-webhook-configuration"
        for entry in api.get(f"{kind}WebhookConfiguration", name)["webhooks"]:
            found.add(entry["clientConfig"].get("caBundle", ""))
    return found


def serving_certificate(api: Api) -> str:
    return api.get("Secret", SECRET, NAMESPACE)["data"]["tls.crt"]


def test_500_creates_across_a_rotation_all_succeed(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    ns = control_plane.namespace()
    with Keeper(control_plane, webhook) as keeper:
        webhook.start()
        eventually(lambda: gated(installed, ns, "probe", dry_run=True), seconds=30)
        (before,), first = authorities(installed), serving_certificate(installed)
        rotated = threading.Event()

        def rotate() -> None:
            keeper.rotate()
            rotated.set()

        def create(number: int) -> bool:
            if number == 50:
                threading.Thread(target=rotate).start()
            if number == 450:
                # The last fifty meet nothing but what is new.
                assert rotated.wait(60)
            return gated(installed, ns, f"p{number}")

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(create, range(500)))
        (after,) = authorities(installed)
        assert base64.b64decode(after).count(b"BEGIN CERTIFICATE") == 2
        assert before != after
        assert serving_certificate(installed) != first
        served = eventually(lambda: is_served(webhook, serving_certificate(installed)), message="the new one is served")
        assert served


def is_served(webhook: WebhookProcess, certificate: str) -> bool:
    shown = ssl.get_server_certificate(("127.0.0.1", webhook.settings.webhook.port))
    return shown.split() == base64.b64decode(certificate).decode().split()


def test_replicas_agree_on_one_certificate(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    async def all_at_once() -> list[bytes]:
        async with await connect(control_plane.kubeconfig) as client:
            names = certificate_names(webhook.settings)
            held = await asyncio.gather(*(stored(client, webhook.settings, names) for _ in range(6)))
            return [each.certificate for each in held]

    certificates = asyncio.run(all_at_once())
    assert len(set(certificates)) == 1
    assert base64.b64decode(serving_certificate(installed)) == certificates[0]


def test_what_was_changed_in_the_cluster_is_put_right(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    name = "muster-mutating-webhook-configuration"
    stray = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": "muster-of-old",
            "labels": {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "webhook"},
        },
        "spec": {
            "matchConstraints": {
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ]
            },
            "validations": [{"expression": "true"}],
        },
    }
    installed.create(stray)
    with Keeper(control_plane, webhook):
        found = eventually(lambda: installed.find("MutatingWebhookConfiguration", name), seconds=20)
        eventually(lambda: installed.find("ValidatingAdmissionPolicy", "muster-of-old") is None)
        found["webhooks"][0]["failurePolicy"] = "Ignore"
        changed = installed.patch("MutatingWebhookConfiguration", name, {"webhooks": found["webhooks"]})
        assert changed["webhooks"][0]["failurePolicy"] == "Ignore"

        def policies() -> set[str]:
            stored = installed.get("MutatingWebhookConfiguration", name)
            return {each["failurePolicy"] for each in stored["webhooks"]}

        eventually(lambda: policies() == {"Fail"})
        policy = "ValidatingAdmissionPolicy"
        eventually(lambda: installed.find(policy, "muster-managed-pods-stay-managed"))
        versions = [each["metadata"]["resourceVersion"] for each in installed.list(policy)]
        asyncio.run(asyncio.sleep(1))
        assert [each["metadata"]["resourceVersion"] for each in installed.list(policy)] == versions


def test_the_process_keeps_its_own_certificates(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    """With internal certificate management the process alone makes everything that a call needs."""
    port = webhook.settings.webhook.port
    webhook.settings = msgspec.structs.replace(
        webhook.settings,
        internal_cert_management=InternalCertManagement(),
        webhook=Webhook(port=port, cert_dir=str(webhook.folder / "own")),
    )
    webhook.start()
    (bundle,) = eventually(lambda: authorities(installed), seconds=20)
    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname=f"{SERVICE}.{NAMESPACE}.svc") as connection,
    ):
        assert connection.version() == "TLSv1.3"
    assert installed.get("Secret", SECRET, NAMESPACE)["data"].keys() == {"ca.crt", "ca.key", "tls.crt", "tls.key"}


def test_it_does_not_listen_before_there_is_a_certificate(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    webhook.start(wait=False)
    asyncio.run(asyncio.sleep(2))
    with pytest.raises(ConnectionRefusedError):
        ssl.get_server_certificate(("127.0.0.1", webhook.settings.webhook.port))
    webhook.make_certificates()
    eventually(webhook.is_ready, seconds=20)
    assert ssl.get_server_certificate(("127.0.0.1", webhook.settings.webhook.port))
