"""Shows the ClusterQueues as the cluster's objects have them: quota, use, what is borrowed, and who waits for what.

Read with the rights of the one who asks, from the API server alone, so it works from anywhere and while Muster is down.
How long somebody waits comes from the inspection API where that is installed. It changes nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec

from admission.api import names
from admission.api.kueue import ClusterQueue, LocalQueue, Workload
from admission.api.meta import find_condition, is_true
from admission.commands.faults import told

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from admission.kube.client import Client


@dataclass(frozen=True, slots=True)
class Quota:
    """One resource of one flavor; quantities as Kubernetes writes them."""

    flavor: str
    resource: str
    nominal: str
    used: str = "0"
    reserved: str = "0"
    borrowed: str = "0"


@dataclass(frozen=True, slots=True)
class QueueView:
    """`waiting` counts the pending workloads by the reason that they were given.

    `longest_wait_seconds` is None where the inspection API does not say it.
    """

    name: str
    cohort: str
    active: bool
    message: str
    pending: int
    reserving: int
    admitted: int
    quotas: tuple[Quota, ...] = ()
    waiting: dict[str, int] = field(default_factory=dict)
    local_queues: tuple[str, ...] = ()
    longest_wait_seconds: int | None = None


def views(
    queues: Iterable[ClusterQueue], local_queues: Iterable[LocalQueue], workloads: Iterable[Workload]
) -> list[QueueView]:
    """One view for each ClusterQueue, by name."""
    locals_of: dict[str, list[str]] = defaultdict(list)
    queue_of: dict[tuple[str, str], str] = {}
    for local in local_queues:
        locals_of[local.spec.cluster_queue].append(f"{local.metadata.namespace}/{local.metadata.name}")
        queue_of[local.metadata.namespace, local.metadata.name] = local.spec.cluster_queue
    waiting: dict[str, Counter[str]] = defaultdict(Counter)
    for workload in workloads:
        reason = pending_reason(workload)
        queue = queue_of.get((workload.metadata.namespace, workload.spec.queue_name or ""))
        if reason is not None and queue is not None:
            waiting[queue][reason] += 1
    return [
        _view(queue, sorted(locals_of[queue.metadata.name]), waiting[queue.metadata.name])
        for queue in sorted(queues, key=lambda queue: queue.metadata.name)
    ]


def pending_reason(workload: Workload) -> str | None:
    """Why the workload waits, in one word; None for one that does not."""
    conditions = workload.status.conditions
    if is_true(conditions, names.FINISHED) or is_true(conditions, names.QUOTA_RESERVED):
        return None
    reserved = find_condition(conditions, names.QUOTA_RESERVED)
    return reserved.reason if reserved is not None else "PendingEvaluation"


def _view(queue: ClusterQueue, local_queues: list[str], waiting: Counter[str]) -> QueueView:
    status = queue.status
    used = {(flavor.name, use.name): use for flavor in status.flavors_usage for use in flavor.resources}
    reserved = {(flavor.name, use.name): use for flavor in status.flavors_reservation for use in flavor.resources}
    quotas = []
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            for quota in flavor.resources:
                use, hold = used.get((flavor.name, quota.name)), reserved.get((flavor.name, quota.name))
                quotas.append(
                    Quota(
                        flavor=flavor.name,
                        resource=quota.name,
                        nominal=str(quota.nominal_quota),
                        used=str(use.total) if use else "0",
                        reserved=str(hold.total) if hold else "0",
                        borrowed=str(hold.borrowed) if hold else "0",
                    )
                )
    active = find_condition(status.conditions, "Active")
    return QueueView(
        name=queue.metadata.name,
        cohort=queue.spec.cohort_name or "",
        active=active is not None and active.status == "True",
        message=active.message if active is not None else "not looked at yet",
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        quotas=tuple(quotas),
        waiting=dict(sorted(waiting.items())),
        local_queues=tuple(local_queues),
    )


def table(found: list[QueueView]) -> Table:
    """The views as a table for a terminal."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table("ClusterQueue", "Cohort", "Flavor and resource", box=SIMPLE_HEAD, header_style="bold")
    for title in ("Used / quota", "Admitted", "Pending"):
        shown.add_column(title, justify="right")
    shown.add_column("Waiting for")
    for view in found:
        waiting = ", ".join(f"{reason} {count}" for reason, count in view.waiting.items())
        if view.longest_wait_seconds is not None and waiting:
            waiting += f" (longest {timedelta(seconds=view.longest_wait_seconds)})"
        if not view.active:
            waiting = view.message
        rows: list[Quota | None] = [*view.quotas] or [None]
        for index, quota in enumerate(rows):
            first = index == 0
            name = Text(view.name if first else "", style="" if view.active else "red")
            what, figures = ("", "") if quota is None else (f"{quota.flavor} {quota.resource}", _figures(quota))
            counts = (str(view.admitted), str(view.pending), waiting) if first else ("", "", "")
            shown.add_row(name, view.cohort if first else "", what, figures, *counts)
    return shown


def _figures(quota: Quota) -> str:
    text = f"{quota.reserved} / {quota.nominal}"
    return text if quota.borrowed == "0" else f"{text}, {quota.borrowed} borrowed"


async def _read(kubeconfig: str | None) -> list[QueueView]:
    from admission.kube.client import connect
    from admission.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS

    async with await connect(kubeconfig, component="cli") as client:
        queues, local_queues, workloads = await asyncio.gather(
            client.list(CLUSTER_QUEUES), client.list(LOCAL_QUEUES), client.list(WORKLOADS)
        )
        found = views(queues.items, local_queues.items, workloads.items)
        return with_waits(found, await _inspected(client))


async def _inspected(client: Client) -> dict[str, Any]:
    """What the inspection API says of the queues; nothing where it is not installed, or not for this user."""
    from admission.kube.errors import ApiError

    try:
        answer = await client.raw("GET", f"/apis/{names.INSPECTION_GROUP}/v1/queues")
    except ApiError:
        return {}
    decoded: dict[str, Any] = msgspec.json.decode(answer)
    return decoded


def with_waits(found: list[QueueView], answer: dict[str, Any]) -> list[QueueView]:
    """The views with the longest wait in each queue."""
    waits = {each["name"]: each.get("longestWaitSeconds") for each in answer.get("items") or ()}
    return [replace(view, longest_wait_seconds=waits.get(view.name)) for view in found]


def console() -> Console:
    """For standard output; wide where that is no terminal, so that nothing is cut off in a pipe."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def run(kubeconfig: str | None, output: str) -> None:
    """`muster queues`."""
    with told():
        found = asyncio.run(_read(kubeconfig))
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode([asdict(view) for view in found])).decode())
        return
    console().print(table(found))
