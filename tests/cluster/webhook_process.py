"""A webhook as a process of its own, and an API server that is told to ask it."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from admission import tls
from admission.settings import Integrations, Settings, dump
from admission.settings.configuration import InternalCertManagement, Webhook
from admission.webhook.configuration import ByUrl, Reached, manifests
from tests.cluster.account import NAMESPACE, kubeconfig_of_muster
from tests.controlplane.cluster import KINDS, KUEUE, Api, ApiError, ControlPlane, eventually, free_port

CRDS = Path(__file__).parents[2] / "webhook-config" / "crds"

_PROGRAM = """
import sys
from admission.settings import load
from admission.webhook.server import serve
ready, publishes = sys.argv[3], sys.argv[4] == "publishes"
serve(load(sys.argv[1]), sys.argv[2], on_ready=lambda: open(ready, "w").close(), publishes=publishes)
"""


def settings_for(folder: Path, **changes: Any) -> Settings:
    """Both integrations, on a free port of loopback, with certificates that the test makes."""
    base = Settings(
        namespace=NAMESPACE,
        integrations=Integrations(frameworks=("batch/job", "pod")),
        webhook=Webhook(host="127.0.0.1", port=free_port(), cert_dir=str(folder / "certificates")),
        internal_cert_management=InternalCertManagement(enable=False),
    )
    return msgspec.structs.replace(base, **changes)


class WebhookProcess:
    def __init__(self, plane: ControlPlane, folder: Path, settings: Settings) -> None:
        self.plane, self.folder, self.settings = plane, folder, settings
        self.address = f"https://127.0.0.1:{settings.webhook.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def make_certificates(self) -> tls.Certificates:
        held = tls.issue(("127.0.0.1", "localhost"), datetime.now(UTC))
        tls.write_files(Path(self.settings.webhook.cert_dir), held)
        return held

    def start(self, *, wait: bool = True, publishes: bool = False) -> None:
        """Without internal management it leaves it to the test to tell the API server, unless it `publishes`."""
        config, self.ready = self.folder / "settings.yaml", self.folder / "ready"
        self.ready.unlink(missing_ok=True)
        config.write_text(dump(self.settings))
        with (self.folder / "webhook.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-c", _PROGRAM, str(config), kubeconfig_of_muster(self.plane), str(self.ready)),
                    "publishes" if publishes else "answers",
                ],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        if wait:
            eventually(self.is_ready, seconds=60, message=f"the webhook listens; its log is in {self.folder}")

    def is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError((self.folder / "webhook.log").read_text()[-3000:])
        return self.ready.exists()

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            self.process.wait(60)

    def log(self) -> str:
        return (self.folder / "webhook.log").read_text()


def install_crds(api: Api) -> None:
    for path in sorted(CRDS.glob("*.yaml")):
        for crd in yaml.safe_load_all(path.read_text()):
            if crd and crd["kind"] == "CustomResourceDefinition":
                api.apply(crd)
    for kind in [kind for kind, (version, _, _) in KINDS.items() if version == KUEUE]:
        eventually(lambda kind=kind: api.list(kind) is not None, seconds=30, message=f"{kind} is served")


def install_callers(api: Api, settings: Settings, reached: Reached) -> None:
    """Webhook configurations and policies; returns once the API server goes by them."""
    for manifest in manifests(settings, reached):
        api.apply(manifest)
    # Policies are compiled a moment after they are stored. The label is what tests select managed namespaces by.
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "probe", "labels": {"kueue": "on"}}}
    with contextlib.suppress(ApiError):
        api.create(namespace)
    probe = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "probe", "labels": {"kueue.x-k8s.io/managed": "no"}},
        "spec": {"containers": [{"name": "c", "image": "none"}]},
    }

    def is_refused() -> bool:
        try:
            api.create(probe, dry_run=True)
        except ApiError:
            return True
        return False

    eventually(is_refused, seconds=30, message="webhook and policies are in force")
    _all_in_force(api)


def _all_in_force(api: Api) -> None:
    """Waits for a policy of its own, stored last: those that were stored or deleted before are seen with it, or before.

    The API server looks at all of them together about once a second; until then it may go by some of them only, or
    still by those of the settings before.
    """
    name = f"last-{uuid.uuid4().hex[:6]}"
    kind = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    spec = {
        "matchConstraints": {"resourceRules": [kind]},
        "validations": [{"expression": f"object.metadata.name != '{name}'", "message": "the last one"}],
    }
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    policy, binding = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
    api.create({**body, "kind": policy, "spec": spec})
    api.create({**body, "kind": binding, "spec": {"policyName": name, "validationActions": ["Deny"]}})
    probe = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}}

    def is_refused() -> bool:
        try:
            api.create(probe, dry_run=True)
        except ApiError as error:
            return "the last one" in error.message
        return False

    eventually(is_refused, seconds=60, message="all policies are in force")
    api.delete(binding, name)
    api.delete(policy, name)


@contextlib.contextmanager
def serving(plane: ControlPlane, folder: Path, **changes: Any) -> Iterator[WebhookProcess]:
    """A webhook that answers, reached by URL."""
    webhook = WebhookProcess(plane, folder, settings_for(folder, **changes))
    held = webhook.make_certificates()
    reached = ByUrl(webhook.address, held.authorities)
    install_crds(plane.api)
    try:
        webhook.start()
        install_callers(plane.api, webhook.settings, reached)
        yield webhook
    finally:
        webhook.end()
        for manifest in manifests(webhook.settings, reached):
            plane.api.delete(manifest["kind"], manifest["metadata"]["name"])


def calls(api: Api, name: str) -> int:
    """How often the API server has asked the webhook of this name."""
    text = api.request("GET", "/metrics")
    metric = "apiserver_admission_webhook_admission_duration_seconds_count"
    pattern = rf'^{metric}{{[^}}]*name="{re.escape(name)}"[^}}]*}} (\S+)$'
    return int(sum(float(number) for number in re.findall(pattern, text, flags=re.MULTILINE)))
