"""Says of one workload why it waits, or what it was given: its conditions, its place in the queue, its latest events.

Read with the rights of the one who asks, from the API server alone; its place in the queue, who stands before it and
what would help come from the inspection API, or the place alone from the visibility API, where these are installed. It
decides nothing: the reasons are those that the controller wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import click
import msgspec

from admission.api import names
from admission.api.core import Event
from admission.api.kueue import Workload
from admission.api.meta import find_condition, is_true
from admission.commands import inspecting, output
from admission.commands.faults import NOT_FOUND, Fault, told
from admission.commands.naming import namespace_and_name
from admission.commands.output import Form
from admission.commands.reach import Reach
from admission.commands.surroundings import dev_inspection

if TYPE_CHECKING:
    from rich.console import RenderableType

    from admission.kube.client import Client

_EVENTS_SHOWN = 10
_AHEAD_SHOWN = 5


@dataclass(frozen=True, slots=True)
class PodSetView:
    name: str
    count: int
    flavors: dict[str, str] = field(default_factory=dict)
    usage: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """`state` is one word; `reason` and `message` are those of the condition that says why."""

    namespace: str
    name: str
    owner: str
    queue: str
    cluster_queue: str
    priority: int
    created: str
    state: str
    reason: str
    message: str
    position_in_cluster_queue: int | None = None
    position_in_local_queue: int | None = None
    remedy: str = ""
    ahead: tuple[str, ...] = ()
    requeue_at: str = ""
    pod_sets: tuple[PodSetView, ...] = ()
    checks: dict[str, str] = field(default_factory=dict)
    evictions: dict[str, int] = field(default_factory=dict)
    events: tuple[str, ...] = ()


#: The first of these that holds says what state a workload is in.
_STATES = (
    (names.FINISHED, "Finished"),
    (names.EVICTED, "Evicted"),
    (names.ADMITTED, "Admitted"),
    (names.QUOTA_RESERVED, "QuotaReserved"),
)


def explanation(workload: Workload, cluster_queue: str, events: Iterable[Event] = ()) -> Explanation:
    """Everything that the objects say; positions are added by the caller."""
    status, spec, meta = workload.status, workload.spec, workload.metadata
    word, reason, message = state(workload)
    admission = status.admission
    given = {assignment.name: assignment for assignment in (admission.pod_set_assignments if admission else ())}
    pod_sets = []
    for pod_set in spec.pod_sets:
        assignment = given.get(pod_set.name)
        if assignment is None:
            pod_sets.append(PodSetView(pod_set.name, pod_set.count))
            continue
        usage = {resource: str(total) for resource, total in assignment.resource_usage.items()}
        count = pod_set.count if assignment.count is None else assignment.count
        pod_sets.append(PodSetView(pod_set.name, count, dict(assignment.flavors), usage))
    stats = status.scheduling_stats
    latest = sorted(events, key=lambda event: event.last_timestamp or event.event_time or "")[-_EVENTS_SHOWN:]
    return Explanation(
        namespace=meta.namespace,
        name=meta.name,
        owner=owner_of(workload),
        queue=spec.queue_name or "",
        cluster_queue=admission.cluster_queue if admission else cluster_queue,
        priority=spec.priority or 0,
        created=meta.creation_timestamp or "",
        state=word,
        reason=reason,
        message=message,
        requeue_at=(status.requeue_state.requeue_at or "") if status.requeue_state else "",
        pod_sets=tuple(pod_sets),
        checks={check.name: check.state for check in status.admission_checks},
        evictions={stat.reason: stat.count for stat in stats.evictions} if stats else {},
        events=tuple(f"{event.last_timestamp or event.event_time} {event.reason}: {event.message}" for event in latest),
    )


def owner_of(workload: Workload) -> str:
    """KIND/NAME of the job that it stands for, its controller where there is one; empty without any."""
    owner = workload.metadata.controller or next(iter(workload.metadata.owner_references), None)
    return f"{owner.kind}/{owner.name}" if owner else ""


def state(workload: Workload) -> tuple[str, str, str]:
    """Its state in one word, and the reason and message of the condition that says why."""
    conditions = workload.status.conditions
    for kind, word in _STATES:
        found = find_condition(conditions, kind)
        if found is not None and found.status == "True":
            return word, found.reason, found.message
    if not workload.spec.active:
        return "Inactive", "Deactivated", "spec.active is false"
    waiting = find_condition(conditions, names.QUOTA_RESERVED)
    if waiting is None:
        return "Pending", "PendingEvaluation", "the controller has not looked at it yet"
    return "Pending", waiting.reason, waiting.message


def newest(workloads: Iterable[Workload], owner: str) -> Workload | None:
    """Of the workloads of an owner with this name, one that is not finished, else the newest."""
    owned = [
        workload
        for workload in workloads
        if any(reference.name == owner for reference in workload.metadata.owner_references)
    ]
    return max(
        owned,
        key=lambda workload: (
            not is_true(workload.status.conditions, names.FINISHED),
            workload.metadata.creation_timestamp or "",
        ),
        default=None,
    )


async def find(client: Client, namespace: str, name: str) -> Workload:
    """The Workload of this name, else the newest of a job or pod of this name."""
    from admission.kube.errors import NotFound
    from admission.kube.resources import WORKLOADS

    try:
        return await client.get(WORKLOADS, namespace, name)
    except NotFound:
        workload = newest((await client.list(WORKLOADS, namespace)).items, name)
    if workload is None:
        raise Fault(f"there is no Workload {namespace}/{name}, nor one of a job or pod of this name", NOT_FOUND)
    return workload


async def _read(reach: Reach, text: str) -> Explanation:
    from admission.kube.errors import ApiError, NotFound
    from admission.kube.resources import EVENTS, LOCAL_QUEUES

    async with reach.client() as client:
        namespace, name = namespace_and_name(text, client.namespace)
        workload = await find(client, namespace, name)
        cluster_queue = ""
        with contextlib.suppress(NotFound):
            if workload.spec.queue_name:
                local = await client.get(LOCAL_QUEUES, namespace, workload.spec.queue_name)
                cluster_queue = local.spec.cluster_queue
        events: tuple[Event, ...] = ()
        # Not everyone who may see a workload may see events.
        with contextlib.suppress(ApiError):
            uid = f"involvedObject.uid={workload.metadata.uid}"
            events = (await client.list(EVENTS, namespace, field_selector=uid)).items
        found = explanation(workload, cluster_queue, events)
        if found.state != "Pending" or not found.queue:
            return found
        return await _with_inspection(client, found) or await _with_positions(client, found) or found


async def _with_inspection(client: Client, found: Explanation) -> Explanation | None:
    """What the inspection API adds; None where it is not installed, or does not know of the workload yet."""
    answer = await inspecting.ask(client, f"workloads/{found.namespace}/{found.name}")
    return None if answer is None else inspected(found, answer)


def inspected(found: Explanation, answer: dict[str, Any]) -> Explanation | None:
    """The explanation with what the inspection API says of the same workload."""
    place = answer.get("position")
    if place is None:
        return None
    return replace(
        found,
        position_in_cluster_queue=place["inClusterQueue"],
        position_in_local_queue=place["inLocalQueue"],
        remedy=(answer.get("reason") or {}).get("remedy") or "",
        ahead=tuple(_named(each) for each in answer.get("ahead") or ()),
    )


def _named(ahead: dict[str, Any]) -> str:
    """One that stands before it; of those in other namespaces only the size may be known."""
    name = f"{ahead['namespace']}/{ahead['name']}" if ahead.get("name") else f"a workload of {ahead['pods']} pods"
    return f"{name} (priority {ahead['priority']})"


async def _with_positions(client: Client, found: Explanation) -> Explanation | None:
    """Its place as the visibility API has it; None where that is not installed."""
    from admission.kube.errors import ApiError

    path = (
        f"/apis/{names.VISIBILITY_GROUP}/v1beta2/namespaces/{found.namespace}"
        f"/localqueues/{found.queue}/pendingworkloads"
    )
    try:
        answer: dict[str, Any] = msgspec.json.decode(await client.raw("GET", path, query={"limit": "100000"}))
    except ApiError:
        return None
    for item in answer.get("items") or []:
        if item["metadata"]["name"] == found.name:
            return replace(
                found,
                position_in_cluster_queue=item["positionInClusterQueue"],
                position_in_local_queue=item["positionInLocalQueue"],
            )
    return None


def page(found: Explanation) -> RenderableType:
    """The explanation for a terminal."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    rows = {
        "Workload": f"{found.namespace}/{found.name}",
        "Of": found.owner,
        "Queue": f"{found.queue} -> {found.cluster_queue}" if found.queue else "none",
        "Priority": str(found.priority),
        "Created": found.created,
        "State": found.state,
        "Why": f"{found.reason}: {found.message}",
        "Ahead in queue": "" if found.position_in_cluster_queue is None else str(found.position_in_cluster_queue),
        "Would help": found.remedy,
        "Before it": ", ".join(found.ahead[:_AHEAD_SHOWN]),
        "Tried again at": found.requeue_at,
        "Checks": ", ".join(f"{name} {state}" for name, state in found.checks.items()),
        "Evicted": ", ".join(f"{reason} {count}x" for reason, count in found.evictions.items()),
    }
    for title, value in rows.items():
        if value:
            facts.add_row(title, value)
    pods = output.table("Pod set", "Pods", "Flavors", "Takes", right=("Pods",))
    for pod_set in found.pod_sets:
        flavors = ", ".join(f"{resource}: {flavor}" for resource, flavor in pod_set.flavors.items())
        usage = ", ".join(f"{resource} {total}" for resource, total in pod_set.usage.items())
        pods.add_row(pod_set.name, str(pod_set.count), flavors, usage)
    return Group(facts, Text(), pods, *(Text(line, style="dim") for line in found.events))


def run(reach: Reach, workload: str, form: Form) -> None:
    """`muster explain NAME`."""
    with told():
        found = asyncio.run(_read(reach, workload))
    output.show(form, asdict(found), lambda: [page(found)])
    if found.state == "Pending" and found.queue and found.position_in_cluster_queue is None:
        where = dev_inspection()
        hint = f"; the muster dev of this machine shows it at {where}" if where else ""
        click.echo(f"muster: its place in the queue is not served through this API server{hint}", err=True)
