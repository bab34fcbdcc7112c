"""Holds queues and lets them go on: writes `spec.stopPolicy` of ClusterQueues and LocalQueues, and nothing else.

What a held queue does is the controller's business: Hold starts nothing more, HoldAndDrain evicts what runs as well.
Waiting for the drain only looks; it must never hurry it.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Final

import click

from admission.api.kueue import ClusterQueue, LocalQueue
from admission.commands.faults import REFUSED, USAGE, Fault, told
from admission.commands.naming import queues
from admission.commands.progress import progress
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from admission.kube.client import Client
    from admission.kube.resources import Resource

HOLD: Final = "Hold"
DRAIN: Final = "HoldAndDrain"
NONE: Final = "None"

_PAUSE: Final = 0.5
_DONE: Final = {HOLD: "held", DRAIN: "held and draining", NONE: "resumed"}

Queue = ClusterQueue | LocalQueue


def said(kind: str, queue: Queue, policy: str) -> str:
    """What was done, in one line."""
    namespace = f"{queue.metadata.namespace}/" if queue.metadata.namespace else ""
    status = queue.status
    line = f"{kind.lower()}.kueue.x-k8s.io/{namespace}{queue.metadata.name} {_DONE[policy]}"
    if policy == HOLD and status.admitted_workloads:
        line += f"; {status.admitted_workloads} that run go on"
    if policy != NONE and status.pending_workloads:
        line += f"; {status.pending_workloads} wait"
    return line


def _resource(kind: str) -> Resource[Any]:
    from admission.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES

    return CLUSTER_QUEUES if kind == "ClusterQueue" else LOCAL_QUEUES


async def _write(client: Client, kind: str, name: str, policy: str) -> Queue:
    resource = _resource(kind)
    namespace = client.namespace if resource.namespaced else None
    written: Queue = await client.patch(resource, namespace, name, {"spec": {"stopPolicy": policy}})
    return written


async def _wait(client: Client, named: list[tuple[str, str]], seconds: float) -> None:
    """Until none of the queues holds quota for anybody."""
    deadline = time.monotonic() + seconds
    with progress() as say:
        while True:
            left = 0
            for kind, name in named:
                resource = _resource(kind)
                queue: Queue = await client.get(resource, client.namespace if resource.namespaced else None, name)
                left += queue.status.reserving_workloads
            if not left:
                return
            if time.monotonic() > deadline:
                raise Fault(f"{left} workloads still hold quota; they go on ending, look again with `muster queues`")
            say(f"draining: {left} workloads still hold quota")
            await asyncio.sleep(_PAUSE)


async def _work(reach: Reach, named: list[tuple[str, str]], policy: str, wait: float | None) -> None:
    async with reach.client() as client:
        failed: list[Fault] = []
        for kind, name in named:
            try:
                with told():
                    written = await _write(client, kind, name, policy)
            except Fault as fault:
                failed.append(fault)
                continue
            click.echo(said(kind, written, policy))
        if failed:
            status = failed[0].status if len({fault.status for fault in failed}) == 1 else REFUSED
            raise Fault("\nmuster: ".join(str(fault) for fault in failed), status)
        if wait is not None:
            await _wait(client, named, wait)


def run(reach: Reach, words: tuple[str, ...], policy: str, wait: float | None = None) -> None:
    """`muster hold` and `muster resume`. `wait`: seconds for which the drain is waited for."""
    named = queues(words)
    if wait is not None and policy != DRAIN:
        raise Fault("--wait needs --drain: without it, what runs goes on", USAGE)
    with told():
        asyncio.run(_work(reach, named, policy, wait))
