"""Shows and changes the priority of a workload where its user would: the class on its job, or the number itself.

Decided from the Workload and its owners. A number under a WorkloadPriorityClass would be put right again by the
controller, so that is refused with the way out; priorities of pods themselves are never touched.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission.api import names
from admission.api.kueue import Workload
from admission.api.meta import OwnerReference, is_true
from admission.commands import output
from admission.commands.explain import find
from admission.commands.faults import NOT_FOUND, Fault, told
from admission.commands.naming import namespace_and_name
from admission.commands.output import Form
from admission.commands.progress import progress
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from admission.kube.client import Client

_SECONDS: Final = 30.0
_PAUSE: Final = 0.2


@dataclass(frozen=True, slots=True)
class Shown:
    """`kind` and `class_name` are those of the class that gives the priority; empty where none does."""

    namespace: str
    name: str
    priority: int
    kind: str = ""
    class_name: str = ""

    def line(self) -> str:
        by = f" ({self.kind} {self.class_name})" if self.class_name else ""
        return f"{self.namespace}/{self.name}: priority {self.priority}{by}"


def shown(workload: Workload) -> Shown:
    ref, spec, meta = workload.spec.priority_class_ref, workload.spec, workload.metadata
    kind, name = (ref.kind, ref.name) if ref is not None else ("", "")
    return Shown(meta.namespace, meta.name, spec.priority or 0, kind, name)


def why_not(workload: Workload, *, by_class: bool) -> str | None:
    """Why its priority cannot be changed like this, and what can be done; None where it can."""
    found = shown(workload)
    has_class = found.kind == names.WORKLOAD_PRIORITY_CLASS_KIND
    if is_true(workload.status.conditions, names.FINISHED):
        return f"{found.name} has finished"
    if not by_class and has_class:
        by = f"WorkloadPriorityClass {found.class_name}"
        return f"{found.name} has its priority from {by}; give it another: --class NAME"
    if by_class and not has_class and is_true(workload.status.conditions, names.QUOTA_RESERVED):
        return (
            f"{found.name} holds quota and has no WorkloadPriorityClass, so it cannot get one now; "
            "give it a number: muster priority NAME NUMBER"
        )
    return None


async def _to_number(client: Client, workload: Workload, number: int) -> Workload:
    from admission.kube.resources import WORKLOADS

    meta = workload.metadata
    return await client.patch(WORKLOADS, meta.namespace, meta.name, {"spec": {"priority": number}})


async def _to_class(client: Client, workload: Workload, class_name: str) -> Workload:
    """Label its owners, and wait until the Workload follows them; one without an owner is written itself."""
    from admission.kube.errors import NotFound
    from admission.kube.resources import WORKLOAD_PRIORITY_CLASSES, WORKLOADS

    meta = workload.metadata
    try:
        priority_class = await client.get(WORKLOAD_PRIORITY_CLASSES, None, class_name)
    except NotFound as error:
        raise Fault(f"there is no WorkloadPriorityClass {class_name}", NOT_FOUND) from error
    if not meta.owner_references:
        group, kind = names.WORKLOAD_PRIORITY_CLASS_GROUP, names.WORKLOAD_PRIORITY_CLASS_KIND
        ref = {"group": group, "kind": kind, "name": class_name}
        spec = {"priority": priority_class.value, "priorityClassRef": ref}
        return await client.patch(WORKLOADS, meta.namespace, meta.name, {"spec": spec})
    for owner in meta.owner_references:
        await _label(client, meta.namespace, owner, class_name)
    deadline = time.monotonic() + _SECONDS
    with progress() as say:
        while shown(workload).class_name != class_name:
            if time.monotonic() > deadline:
                raise Fault("the job has its class, but the Workload does not follow; does the controller run?")
            say("waiting until the Workload follows its job")
            await asyncio.sleep(_PAUSE)
            workload = await client.get(WORKLOADS, meta.namespace, meta.name)
    return workload


async def _label(client: Client, namespace: str, owner: OwnerReference, class_name: str) -> None:
    from admission.kube.resources import CUSTOM_JOBS, JOBS, PODS, Resource

    known: dict[str, Resource[Any]] = {"Job": JOBS, "Pod": PODS}
    known.update((each.kind, each) for each in CUSTOM_JOBS.values())
    resource = known.get(owner.kind)
    if resource is None:
        raise Fault(
            f"{owner.kind} {owner.name} is no kind that Muster knows; label it with {names.PRIORITY_CLASS_LABEL}"
        )
    body = {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: class_name}}}
    await client.patch(resource, namespace, owner.name, body)


async def _work(reach: Reach, text: str, number: int | None, class_name: str | None) -> Workload:
    async with reach.client() as client:
        workload = await find(client, *namespace_and_name(text, client.namespace))
        is_changed = number is not None or class_name is not None
        if is_changed and (problem := why_not(workload, by_class=class_name is not None)):
            raise Fault(problem)
        if class_name is not None:
            return await _to_class(client, workload, class_name)
        return workload if number is None else await _to_number(client, workload, number)


def run(reach: Reach, form: Form, text: str, number: int | None, class_name: str | None) -> None:
    """`muster priority NAME [NUMBER | --class NAME]`."""
    from rich.text import Text

    with told():
        found = shown(asyncio.run(_work(reach, text, number, class_name)))
    data: dict[str, Any] = {
        "namespace": found.namespace,
        "name": found.name,
        "priority": found.priority,
        "class": found.class_name or None,
        "class_kind": found.kind or None,
    }
    output.show(form, data, lambda: [Text(found.line())])
