"""Puts what Muster needs into a cluster, and takes the part that points at this machine away again.

CRDs come from the manifests that travel with the code, webhook configurations and policies are made from the settings.
Everything is applied server-side, so what is there already costs nothing. It never deletes CRDs: queues and workloads
would go with them.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

import yaml

from admission.api import v1beta1
from admission.api.names import GROUP, V1BETA1
from admission.kube.client import Client
from admission.kube.errors import ApiError, NotFound
from admission.kube.resources import (
    ADMISSION_POLICIES,
    ADMISSION_POLICY_BINDINGS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    Resource,
)
from admission.resources import webhook_config
from admission.settings import Settings
from admission.webhook.configuration import PART_OF, ByUrl, manifests
from admission.webhook.publishing import publish

logger = logging.getLogger(__name__)

MANAGER: Final = "muster"
#: What is taken away first stops calls that nobody answers.
_CALLERS: Final[tuple[Resource[dict[str, Any]], ...]] = (
    MUTATING_WEBHOOKS,
    VALIDATING_WEBHOOKS,
    ADMISSION_POLICY_BINDINGS,
    ADMISSION_POLICIES,
)


async def crds(client: Client, converter: ByUrl | None = None) -> None:
    """Apply all CRDs and wait until the API server serves them. With a converter they serve v1beta1 too."""
    wanted = await asyncio.to_thread(_read_crds)
    if converter is None:
        await _stop_converting(client)
    else:
        from admission.api.v1beta1_crds import overlaid

        client_config = converter.client_config(v1beta1.CONVERSION_PATH)
        wanted = [overlaid(crd, client_config) for crd in wanted]
    applied = await asyncio.gather(
        *(
            client.apply(CUSTOM_RESOURCE_DEFINITIONS, None, crd["metadata"]["name"], crd, manager=MANAGER)
            for crd in wanted
        )
    )
    async with asyncio.timeout(60):
        await asyncio.gather(*(_established(client, crd) for crd in applied))


async def converting(client: Client) -> None:
    """Until the API server has had what is stored converted to v1beta1."""
    for plural in v1beta1.CONVERTED:
        path = f"/apis/{GROUP}/{V1BETA1}/{plural}"
        pause = 0.02
        while True:
            try:
                await client.raw("GET", path, query={"limit": "1"})
            except ApiError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, 0.5)
            else:
                break


async def namespace(client: Client, name: str) -> None:
    """Muster's own namespace, in which the leader's Lease is kept."""
    try:
        await client.get(NAMESPACES, None, name)
    except NotFound:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        await client.apply(NAMESPACES, None, name, body, manager=MANAGER)


async def callers(client: Client, settings: Settings, reached: ByUrl) -> None:
    """Have the API server ask the webhook at this address; nothing of an earlier run with other settings stays."""
    await publish(client, settings, reached)
    await _remove(client, {(each["kind"], each["metadata"]["name"]) for each in manifests(settings, reached)})


async def remove_callers(client: Client, service_namespace: str | None = None) -> list[str]:
    """Take all webhook configurations and policies away, and v1beta1 where it is converted at an address; their names.

    A CRD that asks at a Service is somebody else's, unless the Service is in the namespace that is named.
    """
    removed = await _remove(client, set())
    if asking := await _stop_converting(client, service_namespace):
        await crds(client)
    return [*removed, *(f"v1beta1 of {name}" for name in asking)]


async def _stop_converting(client: Client, service_namespace: str | None = None) -> list[str]:
    """Have no CRD ask at an address, whichever manager said so; the names of those that did."""
    found = [await _converted_by_us(client, f"{plural}.{GROUP}", service_namespace) for plural in v1beta1.CONVERTED]
    asking = [name for name in found if name is not None]
    for name in asking:
        no_webhook = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, no_webhook)
    return asking


async def _converted_by_us(client: Client, name: str, service_namespace: str | None) -> str | None:
    try:
        crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, name)
    except NotFound:
        return None
    client_config = ((crd["spec"].get("conversion") or {}).get("webhook") or {}).get("clientConfig") or {}
    service = client_config.get("service") or {}
    return name if "url" in client_config or (service and service["namespace"] == service_namespace) else None


async def _remove(client: Client, keep: set[tuple[str, str]]) -> list[str]:
    selector = ",".join(f"{key}={value}" for key, value in PART_OF.items())
    removed = []
    for resource in _CALLERS:
        for found in (await client.list(resource, label_selector=selector)).items:
            name = found["metadata"]["name"]
            if (resource.kind, name) not in keep:
                await client.delete(resource, None, name)
                removed.append(f"{resource.kind}/{name}")
    return removed


def _read_crds() -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    folder = webhook_config() / "crds"
    documents = [
        document
        for path in sorted(folder.glob("*.yaml"))
        for document in yaml.load_all(path.read_text(encoding="utf-8"), Loader=loader)
    ]
    return [each for each in documents if each and each["kind"] == CUSTOM_RESOURCE_DEFINITIONS.kind]


async def _established(client: Client, crd: dict[str, Any]) -> None:
    pause = 0.02
    while not _is_established(crd):
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.5)
        crd = await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, crd["metadata"]["name"])


def _is_established(crd: dict[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)
