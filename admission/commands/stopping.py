"""Stops what runs as a Deployment with a leader: scales it to 0, and waits until nobody is left who could still write.

Decided from its pods and its Lease, both of which have to be gone: pods that the API server has forgotten may run on.
It never deletes anything, so that the Deployment can be scaled up again.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

from admission.commands.adopt.survey import Object, raw
from admission.commands.faults import REFUSED, Fault
from admission.commands.progress import Progress

if TYPE_CHECKING:
    from admission.kube.client import Client
    from admission.kube.resources import Resource

_PAUSE: Final = 0.3
#: Where the leader election is kept, by default: Kueue's name, and Muster's too.
_LEASE: Final = "c1f6bfd2.kueue.x-k8s.io"


def deployments() -> Resource[Any]:
    return raw("apps", "v1", "deployments", "Deployment", namespaced=True)


async def stop(client: Client, deployment: Object, who: str, seconds: float, say: Progress) -> None:
    """Returns when none of its pods is left and nobody holds the Lease of its namespace."""
    metadata = deployment["metadata"]
    if deployment["spec"].get("replicas", 1):
        body = {"spec": {"replicas": 0}}
        await client.patch(deployments(), metadata["namespace"], metadata["name"], body, subresource="scale")
    labels = deployment["spec"]["selector"].get("matchLabels") or {}
    await gone(client, metadata["namespace"], labels, who, seconds, say)


async def gone(client: Client, namespace: str, labels: dict[str, str], who: str, seconds: float, say: Progress) -> None:
    """Waits for the end of pods with these labels, and of their leader's."""
    from admission.kube.resources import PODS

    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    deadline = time.monotonic() + seconds
    while True:
        left = len((await client.list(PODS, namespace, label_selector=selector)).items)
        holder = await _holder(client, namespace)
        if not left and not holder:
            return
        what = f"{left} pods of {who} are left" if left else f"{holder} still holds {who}'s Lease"
        if time.monotonic() > deadline:
            raise Fault(f"{who} does not stop: {what} in {namespace}; end them, and run this again", REFUSED)
        say(f"stopping {who}: {what}")
        await asyncio.sleep(_PAUSE)


async def _holder(client: Client, namespace: str) -> str:
    """Who holds the Lease; empty where nobody does, or has renewed it in time."""
    from admission.api.meta import epoch
    from admission.kube.errors import NotFound
    from admission.kube.resources import LEASES

    try:
        spec = (await client.get(LEASES, namespace, _LEASE))["spec"]
    except NotFound:
        return ""
    holder, renewed = str(spec.get("holderIdentity") or ""), spec.get("renewTime")
    if not holder or not renewed:
        return ""
    return holder if epoch(renewed) + float(spec.get("leaseDurationSeconds") or 0) > time.time() else ""
