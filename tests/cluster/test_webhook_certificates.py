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
from admission.settings import Integrations
from admission.settings.configuration import InternalCertManagement, Webhook
from admission.webhook.certificates import keep, replace_now, stored
from admission.webhook.configuration import ByService, manifests
from admission.webhook.publishing import publish
from admission.webhook.server import certificate_names
from tests.cluster.webhook_process import NAMESPACE, WebhookProcess, install_crds, settings_for
from tests.controlplane.cluster import Api, ControlPlane, eventually
from tests.unit.inspection.certificates import serving_certificate as make_certificate

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


def authority(api: Api) -> str:
    """The one that all of them trust, once both configurations are there."""

    def agreed() -> str:
        found = authorities(api)
        return found.pop() if len(found) == 1 else ""

    return str(eventually(agreed, message="the configurations agree"))


def serving_certificate(api: Api) -> str:
    return api.get("Secret", SECRET, NAMESPACE)["data"]["tls.crt"]


def test_500_creates_across_a_rotation_all_succeed(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    ns = control_plane.namespace()
    with Keeper(control_plane, webhook) as keeper:
        webhook.start()
        eventually(lambda: gated(installed, ns, "probe", dry_run=True), seconds=60)
        before, first = authority(installed), serving_certificate(installed)
        rotated = threading.Event()

        def rotate() -> None:
            keeper.rotate()
            rotated.set()

        def create(number: int) -> bool:
            if number == 50:
                threading.Thread(target=rotate).start()
            if number == 450:
                # The last fifty meet nothing but what is new.
                assert rotated.wait(120)
            return gated(installed, ns, f"p{number}")

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(create, range(500)))
        eventually(lambda: before not in authorities(installed), message="what is new is published")
        after = authority(installed)
        assert base64.b64decode(after).count(b"BEGIN CERTIFICATE") == 2
        assert before != after
        assert serving_certificate(installed) != first
        served = eventually(lambda: is_served(webhook, serving_certificate(installed)), message="the new one is served")
        assert served


def is_served(webhook: WebhookProcess, certificate: str) -> bool:
    return served(webhook) == base64.b64decode(certificate).decode().split()


def served(webhook: WebhookProcess) -> list[str]:
    return ssl.get_server_certificate(("127.0.0.1", webhook.settings.webhook.port)).split()


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
        found = eventually(lambda: installed.find("MutatingWebhookConfiguration", name))
        eventually(lambda: installed.find("ValidatingAdmissionPolicy", "muster-of-old") is None)
        found["webhooks"][0]["failurePolicy"] = "Ignore"
        changed = installed.patch("MutatingWebhookConfiguration", name, {"webhooks": found["webhooks"]})
        assert changed["webhooks"][0]["failurePolicy"] == "Ignore"

        def policies() -> set[str]:
            stored = installed.get("MutatingWebhookConfiguration", name)
            return {each["failurePolicy"] for each in stored["webhooks"]}

        eventually(lambda: policies() == {"Fail"})
        policy = "ValidatingAdmissionPolicy"
        wanted = manifests(webhook.settings, ByService(NAMESPACE, SERVICE))
        names = {each["metadata"]["name"] for each in wanted if each["kind"] == policy}
        assert "muster-managed-pods-stay-managed" in names
        eventually(lambda: {each["metadata"]["name"] for each in installed.list(policy)} == names)
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
    # Muster may not make Secrets: this one is installed empty.
    installed.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET, "namespace": NAMESPACE}})
    webhook.start()
    bundle = authority(installed)
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
    eventually(webhook.is_ready, seconds=60)
    assert ssl.get_server_certificate(("127.0.0.1", webhook.settings.webhook.port))


# ------------------------------------------------------------------ certificates of others

MUTATING = "muster-mutating-webhook-configuration"
INJECT = {"cert-manager.io/inject-ca-from": f"{NAMESPACE}/muster-webhook"}


class Issuer:
    """Does what cert-manager does: writes the files of a mounted Secret, and injects the authority."""

    def __init__(self, api: Api, webhook: WebhookProcess) -> None:
        self._api, self.folder = api, Path(webhook.settings.webhook.cert_dir)
        self.folder.mkdir(exist_ok=True)

    def issue(self) -> str:
        """A new certificate in the folder; the bundle to trust for it."""
        make_certificate(self.folder, (f"{SERVICE}.{NAMESPACE}.svc",))
        return base64.b64encode((self.folder / "ca.crt").read_bytes()).decode()

    def inject(self, bundle: str) -> None:
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
            for found in self._api.list(kind, selector="app.kubernetes.io/name=muster"):
                entries = found["webhooks"]
                for each in entries:
                    each["clientConfig"]["caBundle"] = bundle
                change = {"webhooks": entries, "metadata": {"annotations": INJECT}}
                self._api.patch(kind, found["metadata"]["name"], change)

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.folder.iterdir()}


def install(api: Api) -> None:
    """As the manifests do: for other settings than those of the webhook, and without an authority."""
    for manifest in manifests(settings_for(Path("none")), ByService(NAMESPACE, SERVICE)):
        api.apply(manifest)


def entries(api: Api) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in api.get("MutatingWebhookConfiguration", MUTATING)["webhooks"]}


def are_followed(api: Api) -> bool:
    """Whether both configurations are for pods only, as the settings say."""
    validating = api.get("ValidatingWebhookConfiguration", "muster-validating-webhook-configuration")
    return "mjob.kb.io" not in entries(api) and "vjob.kb.io" not in {each["name"] for each in validating["webhooks"]}


def test_with_the_certificates_of_others_configurations_follow_the_settings(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    issuer = Issuer(installed, webhook)
    bundle = issuer.issue()
    install(installed)
    issuer.inject(bundle)
    assert "mjob.kb.io" in entries(installed)
    webhook.settings = msgspec.structs.replace(webhook.settings, integrations=Integrations(frameworks=("pod",)))
    webhook.start(publishes=True)
    # Both: what the issuer injects below is the whole of a configuration.
    eventually(lambda: are_followed(installed), message="the settings' own kinds only")
    assert "mpod.kb.io" in entries(installed)
    eventually(lambda: installed.find("ValidatingAdmissionPolicy", "muster-queued-jobs-are-suspended") is None)
    assert authorities(installed) == {bundle}
    assert served(webhook) == issuer.files()["tls.crt"].decode().split()

    # Renewed: files and bundle are another's to write, whatever else has to be put right.
    renewed = issuer.issue()
    issuer.inject(renewed)
    eventually(lambda: served(webhook) == issuer.files()["tls.crt"].decode().split(), message="the new one is served")
    webhook.end()
    changed = [{**each, "failurePolicy": "Ignore"} for each in entries(installed).values()]
    installed.patch("MutatingWebhookConfiguration", MUTATING, {"webhooks": changed})
    webhook.start(publishes=True)
    eventually(lambda: {each["failurePolicy"] for each in entries(installed).values()} == {"Fail"})
    assert authorities(installed) == {renewed}
    assert installed.get("MutatingWebhookConfiguration", MUTATING)["metadata"]["annotations"] == INJECT
    assert installed.find("Secret", SECRET, NAMESPACE) is None


def test_what_is_published_elsewhere_is_left_alone(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    Issuer(installed, webhook).issue()
    webhook.start()
    asyncio.run(asyncio.sleep(2))
    assert installed.list("MutatingWebhookConfiguration", selector="app.kubernetes.io/name=muster") == []


def test_files_of_others_are_used_as_they_are(
    control_plane: ControlPlane, installed: Api, webhook: WebhookProcess
) -> None:
    """Also where internal management is on, as it is by default."""
    issuer = Issuer(installed, webhook)
    bundle = issuer.issue()
    install(installed)
    issuer.inject(bundle)
    files = issuer.files()
    webhook.settings = msgspec.structs.replace(
        webhook.settings,
        integrations=Integrations(frameworks=("pod",)),
        internal_cert_management=InternalCertManagement(),
    )
    webhook.start()
    eventually(lambda: "mjob.kb.io" not in entries(installed), message="the settings' own kinds only")
    asyncio.run(asyncio.sleep(1))
    assert issuer.files() == files
    assert served(webhook) == files["tls.crt"].decode().split()
    assert authorities(installed) == {bundle}
    assert installed.find("Secret", SECRET, NAMESPACE) is None
