"""Shows the ClusterQueues as the cluster's objects have them: quota, use, what is borrowed, and who waits for what.

Read with the rights of the one who asks, from the API server alone, so it works from anywhere and while Muster is down.
How long somebody waits comes from the inspection API where that is installed; who may not see ClusterQueues sees the
LocalQueues of a namespace. It changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from admission.api import names
from admission.api.kueue import ClusterQueue, LocalQueue, Workload
from admission.api.meta import TRUE, Condition, find_condition, is_true
from admission.commands import inspecting, output
from admission.commands.faults import NOT_ALLOWED, NOT_FOUND, Fault, told
from admission.commands.output import Form
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


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
    stop_policy: str = "None"


@dataclass(frozen=True, slots=True)
class LocalQueueView:
    """A LocalQueue as its own status has it."""

    namespace: str
    name: str
    cluster_queue: str
    active: bool
    message: str
    pending: int
    reserving: int
    admitted: int
    stop_policy: str = "None"
    usage: dict[str, str] = field(default_factory=dict)


def local_views(queues: Iterable[LocalQueue]) -> list[LocalQueueView]:
    """One view for each LocalQueue, by namespace and name."""
    return [
        _local_view(queue)
        for queue in sorted(queues, key=lambda queue: (queue.metadata.namespace, queue.metadata.name))
    ]


def _local_view(queue: LocalQueue) -> LocalQueueView:
    status = queue.status
    active, message = _activity(status.conditions)
    return LocalQueueView(
        namespace=queue.metadata.namespace,
        name=queue.metadata.name,
        cluster_queue=queue.spec.cluster_queue,
        active=active,
        message=message,
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        stop_policy=queue.spec.stop_policy or "None",
        usage={
            f"{flavor.name} {use.name}": str(use.total)
            for flavor in status.flavors_reservation
            for use in flavor.resources
        },
    )


def _activity(conditions: Iterable[Condition]) -> tuple[bool, str]:
    """Whether a queue is active, and what its condition says of that."""
    found = find_condition(conditions, names.ACTIVE)
    return (False, "not looked at yet") if found is None else (found.status == TRUE, found.message)


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
    active, message = _activity(status.conditions)
    return QueueView(
        name=queue.metadata.name,
        cohort=queue.spec.cohort_name or "",
        active=active,
        message=message,
        pending=status.pending_workloads,
        reserving=status.reserving_workloads,
        admitted=status.admitted_workloads,
        quotas=tuple(quotas),
        waiting=dict(sorted(waiting.items())),
        local_queues=tuple(local_queues),
        stop_policy=queue.spec.stop_policy or "None",
    )


def page(found: list[QueueView], form: Form = Form.TABLE) -> RenderableType:
    """The figures as a table for a terminal, and below it what cannot go into a narrow column."""
    from rich.console import Group
    from rich.text import Text

    notes = [(view, note) for view in found if (note := _note(view))]
    lines = [Text(f"{view.name}: {note}", style="" if view.active else "red") for view, note in notes]
    return Group(table(found, form), *([Text(), *lines] if lines else []))


def table(found: list[QueueView], form: Form = Form.TABLE) -> Table:
    """One row for each quota, the queue's own figures in the first."""
    from rich.text import Text

    wide = form is Form.WIDE
    titles = ["ClusterQueue", "Flavor", "Resource", "Used / quota", "Run", "Wait"]
    if wide:
        titles[1:1] = ["Cohort", "Stop policy"]
        titles.append("LocalQueues")
    shown = output.table(*titles, right=("Used / quota", "Run", "Wait"))
    for view in found:
        for index, quota in enumerate([*view.quotas] or [None]):
            first = index == 0
            name = Text(view.name if first else "", style="" if view.active else "red")
            held = () if not wide else (view.cohort, view.stop_policy) if first else ("", "")
            what = ("", "", "") if quota is None else (quota.flavor, quota.resource, _figures(quota))
            counts = (str(view.admitted), str(view.pending)) if first else ("", "")
            last = () if not wide else (", ".join(view.local_queues),) if first else ("",)
            shown.add_row(name, *held, *what, *counts, *last)
    return shown


def _note(view: QueueView) -> str:
    """Why it is not active, or what is waited for in it."""
    if not view.active:
        return f"not active, {view.message}"
    waiting = ", ".join(f"{reason} {count}" for reason, count in view.waiting.items())
    if view.longest_wait_seconds is not None and waiting:
        waiting += f" (longest {output.age(view.longest_wait_seconds)})"
    held = "" if view.stop_policy == "None" else f"on hold ({view.stop_policy})"
    return "; ".join(filter(None, (held, waiting and f"waiting {waiting}")))


def _figures(quota: Quota) -> str:
    text = f"{quota.reserved} / {quota.nominal}"
    return text if quota.borrowed == "0" else f"{text} (+{quota.borrowed})"


def local_table(found: list[LocalQueueView], form: Form = Form.TABLE) -> Table:
    from rich.text import Text

    wide = form is Form.WIDE
    titles = ["Namespace", "LocalQueue", "ClusterQueue", *(("Stop policy",) if wide else ()), "Run", "Wait", "In use"]
    shown = output.table(*titles, right=("Run", "Wait"))
    for view in found:
        name = Text(view.name, style="" if view.active else "red")
        use = ", ".join(f"{what} {total}" for what, total in view.usage.items() if total != "0")
        policy = (view.stop_policy,) if wide else ()
        says = use if view.active else view.message
        shown.add_row(view.namespace, name, view.cluster_queue, *policy, str(view.admitted), str(view.pending), says)
    return shown


async def _read(reach: Reach, chosen: Sequence[str]) -> list[QueueView]:
    from admission.kube.errors import Forbidden
    from admission.kube.resources import CLUSTER_QUEUES, LOCAL_QUEUES, WORKLOADS

    async with reach.client() as client:
        try:
            queues, local_queues, workloads = await asyncio.gather(
                client.list(CLUSTER_QUEUES), client.list(LOCAL_QUEUES), client.list(WORKLOADS)
            )
        except Forbidden as error:
            message = f"you may not see all queues ({error.message}); -n NAMESPACE shows the LocalQueues there"
            raise Fault(message, NOT_ALLOWED) from error
        found = views(queues.items, local_queues.items, workloads.items)
        if missing := set(chosen) - {view.name for view in found}:
            raise Fault(f"there is no ClusterQueue {', '.join(sorted(missing))}", NOT_FOUND)
        found = [view for view in found if not chosen or view.name in chosen]
        return with_waits(found, await inspecting.ask(client, "queues") or {})


def with_waits(found: list[QueueView], answer: dict[str, Any]) -> list[QueueView]:
    """The views with the longest wait in each queue, as the inspection API says it."""
    waits = {each["name"]: each.get("longestWaitSeconds") for each in answer.get("items") or ()}
    return [replace(view, longest_wait_seconds=waits.get(view.name)) for view in found]


async def _read_local(reach: Reach, chosen: Sequence[str], *, everywhere: bool) -> list[LocalQueueView]:
    from admission.kube.resources import LOCAL_QUEUES

    async with reach.client() as client:
        namespace = None if everywhere else client.namespace
        found = local_views((await client.list(LOCAL_QUEUES, namespace)).items)
    if missing := set(chosen) - {view.name for view in found}:
        where = "" if everywhere else f" in namespace {namespace}"
        raise Fault(f"there is no LocalQueue {', '.join(sorted(missing))}{where}", NOT_FOUND)
    return [view for view in found if not chosen or view.name in chosen]


def run(reach: Reach, form: Form, chosen: Sequence[str], *, everywhere: bool) -> None:
    """`muster queues`: all ClusterQueues, or the LocalQueues of a namespace that is named."""
    if everywhere or reach.namespace is not None:
        with told():
            locals_ = asyncio.run(_read_local(reach, chosen, everywhere=everywhere))
        output.show(form, [asdict(view) for view in locals_], lambda: [local_table(locals_, form)])
        return
    with told():
        found = asyncio.run(_read(reach, chosen))
    output.show(form, [asdict(view) for view in found], lambda: [page(found, form)])
