"""A controller imports nothing that it does not use: each of these would cost it some MiB for as long as it runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

#: With a kubeconfig read, metrics turned off and a new journal; what is named on the command line is not there.
CONTROLLER = """
import asyncio, sys
from types import SimpleNamespace
import admission.controllers.loop
from admission.commands import controller
from admission.commands.memory import Memory
from admission.kube import access
from admission.settings import parse

kubeconfig, folder, *unwanted = sys.argv[1:]
settings = parse(
    "{apiVersion: config.kueue.x-k8s.io/v1beta2, kind: Configuration, metrics: {bindAddress: '0'},"
    f" muster: {{stateDir: {folder}}}}}"
)

async def work():
    configuration, _ = await access.load(kubeconfig)
    assert configuration.host == "https://api.example", configuration.host
    ready = asyncio.Event()
    ready.set()
    await controller._show(SimpleNamespace(ready=ready), None, settings)

asyncio.run(work())
memory = Memory(settings)
memory._open()
assert memory.close(10)
found = sorted({name.partition(".")[0] for name in sys.modules} & set(unwanted))
assert not found, found
assert "sqlalchemy" in sys.modules
assert "aiohttp.web" not in sys.modules
"""

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://api.example"}}]
users: [{name: u, user: {token: t}}]
"""


def test_nothing_that_is_not_used(tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(KUBECONFIG)
    unwanted = ("pydantic", "cryptography", "alembic", "mako", "opentelemetry")
    subprocess.run([sys.executable, "-c", CONTROLLER, kubeconfig, tmp_path / "state", *unwanted], check=True)


#: After the kubeconfig was read the name stands for the class again.
ASKED_FOR = """
from admission.kube import access
access._loading()
from kubernetes.aio import client
assert isinstance(client.ApiClient, type), client.ApiClient
"""


def test_whoever_wants_the_generated_models_gets_them() -> None:
    subprocess.run([sys.executable, "-c", ASKED_FOR], check=True)
