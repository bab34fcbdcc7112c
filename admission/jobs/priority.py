"""The priority of a Workload: from its WorkloadPriorityClass label, else from the PriorityClass of its pods.

It works from labels, pod specs and the classes of the cluster; a class that does not exist is an answer, not an error.
It must never change the priority of the pods themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from admission.api import meta, names
from admission.api.kueue import PriorityClassRef, Workload
from admission.jobs.effects import Effect, Patch
from admission.jobs.interface import Context
from admission.jobs.statuses import holds_quota, workload_ref


@dataclass(frozen=True, slots=True)
class Priority:
    """`ref` None: nobody asked for a class and there is no default."""

    value: int
    ref: PriorityClassRef | None = None


@dataclass(frozen=True, slots=True)
class ClassMissing:
    kind: str
    name: str

    @property
    def message(self) -> str:
        return f'{self.kind} "{self.name}" does not exist'


def resolve(label: str, pod_classes: Iterable[str], context: Context, namespace: str) -> Priority | ClassMissing:
    """`label` is that of the job, `pod_classes` the priorityClassNames in the order in which they count.

    A job of a managed namespace that names no WorkloadPriorityClass gets the one called `default`, if there is one.
    """
    name = label or _default_class(context, namespace)
    if name:
        return _of_workload_class(name, context)
    name = next((name for name in pod_classes if name), "")
    if name:
        found = context.priority_class(name)
        return ClassMissing(names.POD_PRIORITY_CLASS_KIND, name) if found is None else _of_pods(name, found.value)
    defaults = [entry for entry in context.priority_classes() if entry.global_default]
    if not defaults:
        return Priority(0)
    lowest = min(defaults, key=lambda entry: (entry.value, entry.metadata.name))
    return _of_pods(lowest.metadata.name, lowest.value)


def _default_class(context: Context, namespace: str) -> str:
    """The class of those that name none; empty where there is none for them."""
    name, settings = names.DEFAULT_WORKLOAD_PRIORITY_CLASS, context.settings
    if not settings.gate("WorkloadPriorityClassDefaulting") or context.workload_priority_class(name) is None:
        return ""
    return name if meta.selects(settings.managed_namespaces, context.namespace_labels(namespace)) else ""


def _of_workload_class(name: str, context: Context) -> Priority | ClassMissing:
    found = context.workload_priority_class(name)
    if found is None:
        return ClassMissing(names.WORKLOAD_PRIORITY_CLASS_KIND, name)
    group, kind = names.WORKLOAD_PRIORITY_CLASS_GROUP, names.WORKLOAD_PRIORITY_CLASS_KIND
    return Priority(found.value, PriorityClassRef(group, kind, name))


def _of_pods(name: str, value: int) -> Priority:
    return Priority(value, PriorityClassRef(names.POD_PRIORITY_CLASS_GROUP, names.POD_PRIORITY_CLASS_KIND, name))


def follow_label(workload: Workload, label: str, context: Context) -> tuple[Effect, ...] | ClassMissing:
    """Carries a changed priority-class label over to the Workload, at any time of its life.

    The API server refuses a change of kind (or none to some) while quota is held, so that one waits.
    """
    ref = workload.spec.priority_class_ref
    if not label or (ref is not None and ref.kind == names.WORKLOAD_PRIORITY_CLASS_KIND and ref.name == label):
        return ()
    if holds_quota(workload) and (ref is None or ref.kind != names.WORKLOAD_PRIORITY_CLASS_KIND):
        return ()
    wanted = _of_workload_class(label, context)
    if isinstance(wanted, ClassMissing):
        return wanted
    return (_written(workload, wanted),)


def _written(workload: Workload, priority: Priority) -> Patch:
    ref = priority.ref
    body = {
        "spec": {
            "priority": priority.value,
            "priorityClassRef": None if ref is None else {"group": ref.group, "kind": ref.kind, "name": ref.name},
        }
    }
    return Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version)
