"""Lists workloads with what a person wants to know of each: its queue, its state, and why it waits.

Read with the rights of the one who asks, from the API server alone; places in the queue come from the inspection API
where that is installed. It changes nothing, and the reasons are those that the controller wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from admission.api.kueue import LocalQueue, Workload
from admission.commands import inspecting, output
from admission.commands.explain import owner_of, state
from admission.commands.faults import told
from admission.commands.output import Form
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from rich.table import Table

    from admission.kube.client import Client

#: Pages of a queue's pending workloads that are asked for at most, and how long they are.
_PAGES: Final = 5
_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class WorkloadView:
    """`position` counts those before it in its ClusterQueue; None where it does not wait, or nobody says."""

    namespace: str
    name: str
    owner: str
    queue: str
    cluster_queue: str
    priority: int
    pods: int
    state: str
    reason: str
    message: str
    created: str
    age_seconds: int
    flavors: tuple[str, ...] = ()
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Empty fields let everything through. `states` are compared without regard to case."""

    queue: str = ""
    cluster_queue: str = ""
    states: tuple[str, ...] = ()

    def lets_through(self, view: WorkloadView) -> bool:
        return (
            (not self.queue or view.queue == self.queue)
            and (not self.cluster_queue or view.cluster_queue == self.cluster_queue)
            and (not self.states or view.state.lower() in self.states)
        )


def views(workloads: Iterable[Workload], local_queues: Iterable[LocalQueue], now: float) -> list[WorkloadView]:
    """One view for each workload: what waits first, and within a state the newest last."""
    queue_of = {(queue.metadata.namespace, queue.metadata.name): queue.spec.cluster_queue for queue in local_queues}
    found = [_view(workload, queue_of, now) for workload in workloads]
    return sorted(found, key=lambda view: (_ORDER.get(view.state, 0), view.namespace, view.created, view.name))


#: What somebody may want to do something about comes first.
_ORDER: Final = {"Pending": 0, "Evicted": 1, "QuotaReserved": 2, "Admitted": 3, "Inactive": 4, "Finished": 5}


def _view(workload: Workload, queue_of: Mapping[tuple[str, str], str], now: float) -> WorkloadView:
    meta, spec, admission = workload.metadata, workload.spec, workload.status.admission
    word, reason, message = state(workload)
    by_queue = queue_of.get((meta.namespace, spec.queue_name or ""), "")
    assignments = admission.pod_set_assignments if admission else ()
    return WorkloadView(
        namespace=meta.namespace,
        name=meta.name,
        owner=owner_of(workload),
        queue=spec.queue_name or "",
        cluster_queue=admission.cluster_queue if admission else by_queue,
        priority=spec.priority or 0,
        pods=sum(pod_set.count for pod_set in spec.pod_sets),
        state=word,
        reason=reason,
        message=message,
        created=meta.creation_timestamp or "",
        age_seconds=max(0, int(now - meta.created_at)),
        flavors=tuple(sorted({flavor for each in assignments for flavor in each.flavors.values()})),
    )


def table(found: Sequence[WorkloadView], form: Form = Form.TABLE, *, everywhere: bool = False) -> Table:
    """The views as a table. Of what waits the reason stands in place of the state."""
    wide = form is Form.WIDE
    places = any(view.position is not None for view in found)
    titles = [
        *(["Namespace"] if everywhere or wide else []),
        "Workload",
        *(["Owner"] if wide else []),
        "Queue",
        *(["ClusterQueue", "Pods"] if wide else []),
        "Prio",
        "State",
        *(["Ahead"] if places else []),
        "Age",
        *(["Flavors", "Message"] if wide else []),
    ]
    shown = output.table(*titles, right=("Pods", "Prio", "Ahead", "Age"))
    for view in found:
        shown.add_row(
            *([view.namespace] if everywhere or wide else []),
            view.name,
            *([view.owner] if wide else []),
            view.queue,
            *([view.cluster_queue, str(view.pods)] if wide else []),
            str(view.priority),
            _state_of(view),
            *(["" if view.position is None else str(view.position)] if places else []),
            output.age(view.age_seconds),
            *([", ".join(view.flavors), view.message] if wide else []),
        )
    return shown


def _state_of(view: WorkloadView) -> str:
    if view.state == "Pending":
        return view.reason
    return f"{view.state}: {view.reason}" if view.state == "Evicted" else view.state


async def _read(reach: Reach, wanted: Filter, selector: str | None, *, everywhere: bool) -> list[WorkloadView]:
    from admission.kube.resources import LOCAL_QUEUES, WORKLOADS

    async with reach.client() as client:
        namespace = None if everywhere else client.namespace
        workloads, local_queues = await asyncio.gather(
            client.list(WORKLOADS, namespace, label_selector=selector), client.list(LOCAL_QUEUES, namespace)
        )
        found = [view for view in views(workloads.items, local_queues.items, time.time()) if wanted.lets_through(view)]
        return await _with_positions(client, found, namespace)


async def _with_positions(client: Client, found: list[WorkloadView], namespace: str | None) -> list[WorkloadView]:
    """With their places, where the inspection API says them."""
    waiting = sorted({view.cluster_queue for view in found if view.state == "Pending" and view.cluster_queue})
    places: dict[tuple[str, str], int] = {}
    for name in waiting:
        offset: int | None = 0
        for _ in range(_PAGES):
            query = {"limit": str(_PAGE), "offset": str(offset), **({"namespace": namespace} if namespace else {})}
            answer = await inspecting.ask(client, f"queues/{name}/pending", query)
            if answer is None:
                break
            places |= positions(answer)
            offset = answer.get("next")
            if offset is None:
                break
    return [replace(view, position=places.get((view.namespace, view.name))) for view in found]


def positions(answer: Mapping[str, Any]) -> dict[tuple[str, str], int]:
    """The places that a page of the inspection API tells."""
    return {(each["namespace"], each["name"]): each["positionInClusterQueue"] for each in answer.get("items") or ()}


def run(reach: Reach, form: Form, wanted: Filter, selector: str | None, *, everywhere: bool) -> None:
    """`muster workloads`."""
    from rich.text import Text

    with told():
        found = asyncio.run(_read(reach, wanted, selector, everywhere=everywhere))
    nothing = [Text("No workloads; -A shows those of all namespaces" if not everywhere else "No workloads")]
    output.show(
        form,
        [asdict(view) for view in found],
        lambda: [table(found, form, everywhere=everywhere)] if found else nothing,
    )
