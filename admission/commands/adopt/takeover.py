"""Takes a cluster over from Kueue, step by step: no step evicts anything, and each can be done again.

Kueue is stopped before anything is taken from it, and what it refuses while it is stopped stays refused until Muster
answers in its place: nothing is created past the queues. What is deleted is kept in a file first.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from admission.api import names
from admission.commands.adopt import survey
from admission.commands.adopt.survey import KINDS, Object, Survey, raw
from admission.commands.faults import Fault
from admission.commands.progress import Progress
from admission.commands.stopping import stop

if TYPE_CHECKING:
    from admission.kube.client import Client

_PAUSE: Final = 0.3
_SETTLED: Final = 0.5
_WRITES: Final = 16
_RETRIES: Final = 5
_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"


@dataclass(frozen=True, slots=True)
class Options:
    """`seconds`: how long anything is waited for. `wait`: also for Muster to take its place."""

    backup: Path
    muster_namespace: str
    seconds: float
    wait: bool = True


async def take_over(client: Client, found: Survey, options: Options, say: Progress) -> AsyncIterator[str]:
    """Yields what was done, a line a step."""
    # 1. What is to be deleted or changed is kept.
    if _kept(found, options.backup):
        yield f"kept Kueue's webhooks, API services and Deployments in {options.backup}"

    # 2. Objects of older versions are written again while there is still somebody to convert them.
    count = await _rewrite(client, found, say)
    if count:
        yield f"wrote {count} objects again as {names.VERSION}"

    # 3. What Kueue refuses while it is stopped must not be Muster's own pods.
    await _spare(client, found, options.muster_namespace)

    # 4. Kueue stops. Pods go on running: nobody evicts.
    for manager in found.managers:
        await stop(client, manager.deployment, "Kueue", options.seconds, say)
        yield f"stopped Kueue: Deployment {manager.namespace}/{manager.name} has 0 replicas"

    # 5. The CRDs are Muster's: the same kinds and objects. Where Muster is installed by now it has brought its own.
    if not found.muster_webhooks:
        await _hand_over_crds(client, found)
        yield f"applied Muster's CRDs; all {sum(map(len, found.objects.values()))} objects stay"

    # 6. Muster answers in Kueue's place, and only then Kueue's webhooks go.
    if not found.webhooks and not found.api_services:
        return
    if not await _is_there(client, options, say):
        yield "Muster is not there yet: install it (kubectl apply -k webhook-config) and run muster adopt again"
        return
    for line in await _clear(client, found):
        yield line


# ------------------------------------------------------------------ keeping


def _kept(found: Survey, path: Path) -> bool:
    """Write what Kueue can be brought back with. A file that is there is of an earlier run, and stays."""
    objects = [*found.webhooks, *found.api_services, *(manager.deployment for manager in found.managers)]
    if not objects or path.exists():
        return False
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            yaml.safe_dump_all([_bare(each) for each in objects], file, sort_keys=False)
    except OSError as error:
        raise Fault(f"nothing was changed: {path} cannot be written ({error}); name another with --backup") from error
    return True


def _bare(obj: Object) -> Object:
    """Without what only the stored object has."""
    stored = {"uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"}
    metadata = {key: value for key, value in obj["metadata"].items() if key not in stored}
    return {key: value for key, value in {**obj, "metadata": metadata}.items() if key != "status"}


# ------------------------------------------------------------------ versions


async def _rewrite(client: Client, found: Survey, say: Progress) -> int:
    """Store every object of a kind that was ever stored otherwise in Muster's version."""
    from admission.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

    count = 0
    for crd in found.crds:
        name, spec = crd["metadata"]["name"], crd["spec"]
        stored = (crd.get("status") or {}).get("storedVersions") or []
        storage = next(each["name"] for each in spec["versions"] if each["storage"])
        if stored == [names.VERSION] and storage == names.VERSION:
            continue
        if storage != names.VERSION:
            versions = [{**each, "storage": each["name"] == names.VERSION} for each in spec["versions"]]
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, {"spec": {"versions": versions}})
            # Every API server has to have seen it before something is stored.
            await asyncio.sleep(_SETTLED)
        count += await _rewrite_all(client, spec["names"]["plural"], spec["names"]["kind"], say)
        status = {"status": {"storedVersions": [names.VERSION]}}
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, status, subresource="status")
    return count


async def _rewrite_all(client: Client, plural: str, kind: str, say: Progress) -> int:
    namespaced = plural in {name for name, _, is_namespaced in KINDS if is_namespaced}
    resource = raw(names.GROUP, names.VERSION, plural, kind, namespaced=namespaced)
    objects = (await client.list(resource)).items
    limit = asyncio.Semaphore(_WRITES)

    async def one(obj: Object) -> None:
        from admission.kube.errors import Conflict, NotFound

        meta = obj["metadata"]
        namespace = meta.get("namespace")
        async with limit:
            for _ in range(_RETRIES):
                try:
                    await client.replace(resource, namespace, meta["name"], obj)
                except NotFound:
                    return
                except Conflict:
                    # Somebody has written it meanwhile, which stores it anew: looked at again to be sure.
                    obj = await client.get(resource, namespace, meta["name"])
                else:
                    return

    for start in range(0, len(objects), _WRITES * 4):
        say(f"writing {plural} again: {start} of {len(objects)}")
        await asyncio.gather(*(one(obj) for obj in objects[start : start + _WRITES * 4]))
    return len(objects)


async def _hand_over_crds(client: Client, found: Survey) -> None:
    from admission.commands import install
    from admission.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

    for crd in found.crds:
        conversion = crd["spec"].get("conversion") or {}
        service = ((conversion.get("webhook") or {}).get("clientConfig") or {}).get("service") or {}
        if service.get("namespace") in found.namespaces or (service and not found.namespaces):
            name = crd["metadata"]["name"]
            plain = {"spec": {"conversion": {"strategy": "None", "webhook": None}}}
            await client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, plain)
    await install.crds(client)


# ------------------------------------------------------------------ stopping


async def _spare(client: Client, found: Survey, namespace: str) -> None:
    """Exempt Muster's namespace from Kueue's webhooks: nobody will answer for it."""
    apart = {"key": _NAMESPACE_LABEL, "operator": "NotIn", "values": [namespace]}
    for configuration in found.webhooks:
        webhooks = []
        for webhook in configuration.get("webhooks") or ():
            selector = webhook.get("namespaceSelector") or {}
            expressions = [each for each in selector.get("matchExpressions") or () if each != apart]
            webhooks.append({**webhook, "namespaceSelector": {**selector, "matchExpressions": [*expressions, apart]}})
        if webhooks != configuration.get("webhooks"):
            resource = _webhooks(configuration)
            await client.patch(resource, None, configuration["metadata"]["name"], {"webhooks": webhooks})


def _webhooks(configuration: Object) -> Any:
    from admission.kube.resources import MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS

    return MUTATING_WEBHOOKS if configuration["kind"] == MUTATING_WEBHOOKS.kind else VALIDATING_WEBHOOKS


# ------------------------------------------------------------------ taking its place


async def _is_there(client: Client, options: Options, say: Progress) -> bool:
    """Whether Muster's webhooks are published, waited for where that is wanted."""
    deadline = time.monotonic() + options.seconds
    while True:
        if survey.is_published((await survey.survey_webhooks(client))[1]):
            return True
        if not options.wait or time.monotonic() > deadline:
            return False
        say("waiting for Muster: kubectl apply -k webhook-config")
        await asyncio.sleep(_PAUSE)


async def _clear(client: Client, found: Survey) -> list[str]:
    """Delete what would ask or lead to a Kueue that is not there."""
    from admission.kube.errors import NotFound

    done = []
    services = raw("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False)
    targets: Iterable[tuple[Any, Object]] = [
        *((_webhooks(each), each) for each in found.webhooks),
        *((services, each) for each in found.api_services),
    ]
    for resource, obj in targets:
        name = obj["metadata"]["name"]
        try:
            present = await client.get(resource, None, name)
            if survey.is_musters(present):
                continue  # taken over by Muster's manifests in the meantime
            await client.delete(resource, None, name, uid=present["metadata"]["uid"])
        except NotFound:
            continue
        done.append(f"deleted {resource.kind} {name}")
    return done
