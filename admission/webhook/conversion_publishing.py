"""Keeps the CRDs' word on who converts v1beta1 equal to where the webhook is, with the authorities of its certificate.

Reads the CRDs of the kinds that are converted and writes only what differs, and only where the CRD serves v1beta1: the
overlay decides that. It must never stop the publishing of what the API server needs for v1beta2.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from admission.api import names, v1beta1
from admission.webhook.configuration import Reached

if TYPE_CHECKING:
    from admission.kube.client import Client

logger = logging.getLogger(__name__)

_NOT_SERVED: Final = "v1beta1 is asked for by muster.serveV1beta1, but the CRD is there without its overlay"


async def publish_conversion(client: Client, reached: Reached) -> None:
    """Have the API server ask this webhook to convert. Raises ApiError for what may pass, such as no connection."""
    from admission.kube.errors import Forbidden, NotFound
    from admission.kube.resources import CUSTOM_RESOURCE_DEFINITIONS

    wanted = reached.client_config(v1beta1.CONVERSION_PATH)
    for plural in v1beta1.CONVERTED:
        name = f"{plural}.{names.GROUP}"
        try:
            stored = await client.get(CUSTOM_RESOURCE_DEFINITIONS, None, name)
            if not _is_overlaid(stored):
                logger.warning("%s, so nothing asks for its conversion: %s", _NOT_SERVED, name)
            elif (change := difference(wanted, stored)) is not None:
                await client.patch(CUSTOM_RESOURCE_DEFINITIONS, None, name, change)
                logger.info("brought up to date", extra={"kind": CUSTOM_RESOURCE_DEFINITIONS.kind, "object": name})
        except (Forbidden, NotFound) as error:
            logger.warning("%s or without Muster's right to convert it: %s", _NOT_SERVED, error.message)


def _is_overlaid(stored: Mapping[str, Any]) -> bool:
    return any(version["name"] == names.V1BETA1 and version["served"] for version in stored["spec"]["versions"])


def difference(wanted: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any] | None:
    """A merge patch that makes the CRD `stored` ask at the client config `wanted`, or None."""
    conversion = stored["spec"].get("conversion") or {}
    asked = (conversion.get("webhook") or {}).get("clientConfig") or {}
    # An authority that this process was not given stays.
    aim = {"caBundle": asked.get("caBundle"), **wanted}
    aim = {name: value for name, value in aim.items() if value}
    if conversion.get("strategy") == "Webhook" and aim == asked:
        return None
    # A Service and an address exclude each other.
    client_config = {**dict.fromkeys(asked.keys() - aim.keys()), **aim}
    if "caBundle" not in wanted:
        # Not written again either: somebody else may have replaced it since it was read.
        client_config.pop("caBundle", None)
    webhook = {"clientConfig": client_config, "conversionReviewVersions": ["v1"]}
    return {"spec": {"conversion": {"strategy": "Webhook", "webhook": webhook}}}
