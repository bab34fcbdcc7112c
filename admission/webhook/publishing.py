"""Keeps what the API server is told equal to the settings: webhook configurations, policies and the authorities.

Reads what is there and writes only what differs, so a restart writes nothing. It leaves authorities that it was not
given as they are, and never touches what does not carry its labels or its names.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from admission.settings import Settings
from admission.webhook.configuration import PART_OF, Reached, manifests
from admission.webhook.conversion_publishing import publish_conversion

if TYPE_CHECKING:
    from admission.kube.client import Client
    from admission.kube.resources import Resource

logger = logging.getLogger(__name__)

#: How often somebody else may be faster in changing the same object.
_MOST_STEPS: Final = 10


async def publish(client: Client, settings: Settings, reached: Reached) -> None:
    """Make the cluster's configurations and policies what the settings say, no more and no less."""
    made = manifests(settings, reached)
    labels = ",".join(f"{name}={value}" for name, value in PART_OF.items())
    for resource in _resources():
        wanted = {each["metadata"]["name"]: each for each in made if each["kind"] == resource.kind}
        listed = (await client.list(resource, label_selector=labels)).items
        stored = {each["metadata"]["name"]: each for each in listed}
        for name, manifest in wanted.items():
            await _make_so(client, resource, manifest, stored.get(name))
        for name in stored.keys() - wanted.keys():
            await _take_away(client, resource, name)
    if settings.muster.serve_v1beta1:
        await publish_conversion(client, reached)


async def _take_away(client: Client, resource: Resource[dict[str, Any]], name: str) -> None:
    from admission.kube.client import Forbidden

    try:
        await client.delete(resource, None, name)
    except Forbidden as error:
        # It has Muster's labels, but a name that Muster never gives: no reason to stop keeping certificates.
        logger.warning("not taken away", extra={"kind": resource.kind, "object": name, "error": error.message})
    else:
        logger.info("taken away", extra={"kind": resource.kind, "object": name})


async def _make_so(
    client: Client, resource: Resource[dict[str, Any]], manifest: dict[str, Any], stored: dict[str, Any] | None
) -> None:
    from admission.kube.client import AlreadyExists

    name = manifest["metadata"]["name"]
    if stored is None:
        try:
            await client.create(resource, manifest)
        except AlreadyExists:
            # Without the labels that it was looked for by, or another replica was faster.
            stored = await client.get(resource, None, name)
        else:
            logger.info("created", extra={"kind": resource.kind, "object": name})
            if any(not each["clientConfig"].get("caBundle") for each in manifest.get("webhooks", ())):
                logger.warning(
                    "the API server is not told whose certificate to trust: that is left to whoever issues it",
                    extra={"kind": resource.kind, "object": name},
                )
            return
    await _bring_up_to_date(client, resource, manifest, stored)


async def _bring_up_to_date(
    client: Client, resource: Resource[dict[str, Any]], manifest: dict[str, Any], stored: dict[str, Any]
) -> None:
    """Raises Conflict when others change it all the time."""
    from admission.kube.client import Conflict

    name = manifest["metadata"]["name"]
    for left in reversed(range(_MOST_STEPS)):
        if (change := difference(manifest, stored)) is None:
            return
        # Authorities stand in the middle of what is written: those that somebody else put in meanwhile have to stay.
        version = {"resourceVersion": stored["metadata"]["resourceVersion"]}
        try:
            await client.patch(resource, None, name, {**change, "metadata": version})
        except Conflict:
            if not left:
                raise
            stored = await client.get(resource, None, name)
        else:
            logger.info("brought up to date", extra={"kind": resource.kind, "object": name})
            return


def difference(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """A merge patch that makes `stored` what is `wanted`, or None. Fields that the API server added do not count."""
    change: dict[str, Any] = {}
    if "webhooks" in wanted:
        trusted = {each["name"]: each["clientConfig"].get("caBundle") for each in stored.get("webhooks") or ()}
        # All of them reach the same server, so a new one trusts what the others agree on.
        (common,) = agreed if len(agreed := set(trusted.values())) == 1 else (None,)
        webhooks = [_with_authorities(each, trusted.get(each["name"], common)) for each in wanted["webhooks"]]
        if not _holds(webhooks, stored.get("webhooks")):
            change["webhooks"] = webhooks
    if "spec" in wanted and not _holds(wanted["spec"], stored.get("spec")):
        change["spec"] = wanted["spec"]
    return change or None


def _with_authorities(webhook: dict[str, Any], trusted: str | None) -> dict[str, Any]:
    """Keeps the authorities that are trusted now where none are given."""
    client_config = webhook["clientConfig"]
    if client_config.get("caBundle") or not trusted:
        return webhook
    return {**webhook, "clientConfig": {**client_config, "caBundle": trusted}}


def _holds(wanted: Any, stored: Any) -> bool:
    """Whether `stored` says all that `wanted` says. Lists have to agree in length and order, empty values exactly."""
    match wanted:
        case dict() if wanted:
            return isinstance(stored, dict) and all(_holds(value, stored.get(name)) for name, value in wanted.items())
        case list() if wanted:
            return (
                isinstance(stored, list)
                and len(wanted) == len(stored)
                and all(_holds(one, other) for one, other in zip(wanted, stored, strict=True))
            )
        case _:
            # Empty and absent are the same to the API server.
            return bool(wanted == stored or (not wanted and not stored))


def _resources() -> tuple[Resource[dict[str, Any]], ...]:
    from admission.kube.resources import (
        ADMISSION_POLICIES,
        ADMISSION_POLICY_BINDINGS,
        MUTATING_WEBHOOKS,
        VALIDATING_WEBHOOKS,
    )

    return (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, ADMISSION_POLICIES, ADMISSION_POLICY_BINDINGS)
