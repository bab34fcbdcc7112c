"""Brings running pods into queues: reads the cluster, and for each pod writes its Workload, the admission, the pod.

In this order, so that whoever looks in between sees a pod that is not queued yet, or one that is admitted. Cut short
anywhere, a second run goes on where the first one stopped. It never touches a pod but to make it a queued one.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from admission.api.core import Pod
from admission.api.kueue import Workload
from admission.api.meta import is_true
from admission.api.names import ADMISSION_GATED_BY, QUOTA_RESERVED
from admission.commands.adopt.imports import Around, Import, Verdict, pod_patch, status, verdicts
from admission.commands.adopt.mapping import Rule
from admission.commands.adopt.survey import Object, rules_of, survey_webhooks
from admission.commands.faults import IN_THE_WAY, Fault
from admission.commands.progress import Progress
from admission.settings import Resources

if TYPE_CHECKING:
    from admission.kube.client import Client

_WRITES: Final = 8
_AGAIN: Final = 3


async def looked_at(
    client: Client, namespaces: Sequence[str], rules: tuple[Rule, ...], resources: Resources
) -> list[Verdict]:
    """What becomes of each pod of the namespaces."""
    from admission.kube.resources import (
        CLUSTER_QUEUES,
        LOCAL_QUEUES,
        NODES,
        PODS,
        PRIORITY_CLASSES,
        RESOURCE_FLAVORS,
    )

    cluster_queues, flavors, classes, nodes = await asyncio.gather(
        client.list(CLUSTER_QUEUES), client.list(RESOURCE_FLAVORS), client.list(PRIORITY_CLASSES), client.list(NODES)
    )
    locals_ = [each for name in namespaces for each in (await client.list(LOCAL_QUEUES, name)).items]
    pods = [each for name in namespaces for each in (await client.list(PODS, name)).items]
    around = Around(
        local_queues={(each.metadata.namespace, each.metadata.name): each for each in locals_},
        cluster_queues={each.metadata.name: each for each in cluster_queues.items},
        flavors={each.metadata.name: each for each in flavors.items},
        priority_classes={each.metadata.name: each for each in classes.items},
        nodes={each.metadata.name: each for each in nodes.items},
        resources=resources,
    )
    return verdicts(pods, rules, around)


async def check(client: Client) -> None:
    """Whoever decides now has to know of pods: else their quota would be held for ever."""
    kueues, musters = await survey_webhooks(client)
    if kueues:
        message = "Kueue's webhooks are still there, and it would stop such pods; take it over first: muster adopt"
        raise Fault(message, IN_THE_WAY)
    if musters and not any(_asks_about_pods(each) for each in musters):
        message = "Muster does not queue pods here; add pod to integrations.frameworks of its settings first"
        raise Fault(message, IN_THE_WAY)


def _asks_about_pods(configuration: Object) -> bool:
    return any("pods" in (rule.get("resources") or ()) for rule in rules_of(configuration))


async def write(client: Client, wanted: Sequence[Import], say: Progress) -> list[str]:
    """Import all of them; returns what failed, a sentence for each."""
    limit = asyncio.Semaphore(_WRITES)
    done = 0
    failed: list[str] = []

    async def one(each: Import) -> None:
        nonlocal done
        from admission.kube.errors import ApiError

        async with limit:
            try:
                await _write(client, each)
            except ApiError as error:
                failed.append(f"{each.pod.metadata.namespace}/{each.pod.metadata.name}: {error.message}")
            done += 1
            say(f"importing pods: {done} of {len(wanted)}")

    await asyncio.gather(*(one(each) for each in wanted))
    return sorted(failed)


async def _write(client: Client, one: Import) -> None:
    from admission.kube.errors import AlreadyExists, Conflict, NotFound
    from admission.kube.resources import PODS, WORKLOADS

    namespace = one.pod.metadata.namespace
    try:
        workload: Workload = await client.create(WORKLOADS, one.workload, namespace)
    except AlreadyExists:
        workload = await client.get(WORKLOADS, namespace, one.name)
    for attempt in range(_AGAIN):
        if is_true(workload.status.conditions, QUOTA_RESERVED):
            break
        body: dict[str, Any] = status(one.admission, time.time())
        # What the controller has written of its waiting gives way, and must not be overlooked.
        body["metadata"] = {"resourceVersion": workload.metadata.resource_version}
        try:
            workload = await client.patch(WORKLOADS, namespace, one.name, body, subresource="status")
        except Conflict:
            if attempt == _AGAIN - 1:
                raise
            workload = await client.get(WORKLOADS, namespace, one.name)
    # The gate has to be off before the pod's own reconcile, which would see one that its pod does not name.
    ungated = {"metadata": {"annotations": {ADMISSION_GATED_BY: None}}}
    await client.patch(WORKLOADS, namespace, one.name, ungated)
    try:
        await client.patch(PODS, namespace, one.pod.metadata.name, pod_patch(one))
    except (NotFound, Conflict):
        if not await _is_there(client, one.pod):
            await _withdraw(client, workload)
            return
        raise  # it has changed meanwhile: the next run takes it as it is then


async def _is_there(client: Client, pod: Pod) -> bool:
    from admission.kube.errors import NotFound
    from admission.kube.resources import PODS

    try:
        found: Pod = await client.get(PODS, pod.metadata.namespace, pod.metadata.name)
    except NotFound:
        return False
    return found.metadata.uid == pod.metadata.uid


async def _withdraw(client: Client, workload: Workload) -> None:
    """The pod is gone: nobody else would ever give its quota back."""
    from admission.kube.errors import NotFound
    from admission.kube.resources import WORKLOADS

    of = workload.metadata
    with contextlib.suppress(NotFound):
        await client.delete(WORKLOADS, of.namespace, of.name, uid=of.uid)
        await client.patch(WORKLOADS, of.namespace, of.name, {"metadata": {"uid": of.uid, "finalizers": None}})
