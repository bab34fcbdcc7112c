"""The rules that all kinds of jobs share: whether one is queued, and what may be written on it and changed later.

Works on what every job has (`Job`: metadata, suspended or not, one pod template) and on the review's context, so that
a kind adds only its own fields. It must never hold back what nobody asked to queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from admission.api import names
from admission.api.core import PodSpec
from admission.api.meta import ObjectMeta
from admission.jobs.composing import prebuilt_name
from admission.settings import WithoutQueue
from admission.webhook import fields, syntax
from admission.webhook.context import SYSTEM_PRIORITY_CLASSES, Context
from admission.webhook.fields import FieldError, annotation, label
from admission.webhook.review import Operation

_GATE_NAME_LIMIT: Final = 63


@dataclass(frozen=True, slots=True)
class Job:
    """What the shared rules look at. `takes_elastic`: the kind can be resized while it runs."""

    metadata: ObjectMeta
    is_suspended: bool
    takes_elastic: bool = False
    takes_prebuilt: bool = True

    @property
    def queue(self) -> str:
        return self.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def is_elastic(self) -> bool:
        return self.metadata.annotations.get(names.ELASTIC_JOB) == "true"

    @property
    def prebuilt(self) -> str:
        return prebuilt_name(self.metadata.labels, self.metadata.annotations)


# ------------------------------------------------------------------ is it queued


@dataclass(frozen=True, slots=True)
class Queued:
    """It is held back until it is admitted. `default_queue`: it gets the label of the default LocalQueue."""

    default_queue: bool = False


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """Nothing is changed."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It may not be created; the error says what would help."""

    error: FieldError


Verdict = Queued | LeftAlone | Refused


def verdict(metadata: ObjectMeta, spec: PodSpec, context: Context, *, assumed: str = "") -> Verdict:
    """Whether an object with pods of this spec is queued. `assumed` is what it counts as asking for besides.

    Naming a queue is enough, in a managed namespace. Without one it is the GPUs it asks for, or the setting that every
    job is managed. The priority class "default" is looked up by the controller when it makes the Workload: a class
    may be created after the job, and a label here would need a third cache.
    """
    if not context.is_managed_namespace:
        return LeftAlone()
    if metadata.labels.get(names.QUEUE_LABEL):
        return Queued()
    rules = context.rules
    if (resource := _gpu_asked_for(spec, context, assumed)) and rules.without_queue is not WithoutQueue.ALLOW:
        if rules.without_queue is WithoutQueue.DENY:
            return Refused(
                fields.required(
                    label(names.QUEUE_LABEL),
                    f"{resource} is asked for, so a LocalQueue of namespace {context.namespace} has to be named",
                )
            )
        return Queued(default_queue=True)
    if rules.manage_all:
        return Queued(default_queue=context.has_default_queue)
    return LeftAlone()


def _gpu_asked_for(spec: PodSpec, context: Context, assumed: str) -> str | None:
    gpus = context.rules.gpus
    if gpus is None or not context.is_gpu_namespace or spec.priority_class_name in SYSTEM_PRIORITY_CLASSES:
        return None
    return gpus.asked_for(spec) or assumed or None


def add_to_map(path: str, existing: object, entries: dict[str, str]) -> list[Operation]:
    """Operations that put entries into a map of the object, which may not be there."""
    if not entries:
        return []
    if not existing:
        return [{"op": "add", "path": path, "value": entries}]
    return [{"op": "add", "path": f"{path}/{_escaped(name)}", "value": value} for name, value in entries.items()]


def add_to_list(path: str, existing: object, items: list[object]) -> list[Operation]:
    """Operations that append items to a list of the object, which may not be there."""
    if not items:
        return []
    if not existing:
        return [{"op": "add", "path": path, "value": items}]
    return [{"op": "add", "path": f"{path}/-", "value": item} for item in items]


def add_finalizer(metadata: ObjectMeta, finalizer: str) -> list[Operation]:
    """Operations that put a finalizer on the object, where it is not there."""
    return (
        []
        if finalizer in metadata.finalizers
        else add_to_list("/metadata/finalizers", metadata.finalizers, [finalizer])
    )


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


# ------------------------------------------------------------------ what may be written on it


def create_errors(job: Job) -> Iterator[FieldError]:
    labels, annotations = job.metadata.labels, job.metadata.annotations
    if job.queue and (problem := syntax.subdomain(job.queue)):
        yield fields.invalid(label(names.QUEUE_LABEL), job.queue, problem)
    if job.prebuilt:
        at = annotation if names.PREBUILT_WORKLOAD in annotations else label
        if not job.takes_prebuilt:
            yield fields.forbidden(at(names.PREBUILT_WORKLOAD), "is not supported for this kind")
        elif problem := syntax.subdomain(job.prebuilt):
            yield fields.invalid(at(names.PREBUILT_WORKLOAD), job.prebuilt, problem)
    seconds = labels.get(names.MAX_EXEC_TIME_LABEL)
    if seconds is not None and ((number := syntax.integer(seconds)) is None or number < 1):
        yield fields.invalid(label(names.MAX_EXEC_TIME_LABEL), seconds, "must be an integer of at least 1")
    if job.is_elastic and not job.takes_elastic:
        yield fields.forbidden(annotation(names.ELASTIC_JOB), "is not supported for this kind")
    if (gates := annotations.get(names.ADMISSION_GATED_BY)) is not None:
        yield from gate_errors(gates)


def gate_errors(text: str) -> Iterator[FieldError]:
    """The format of the list of admission gates."""
    at = annotation(names.ADMISSION_GATED_BY)
    gates = text.split(",") if text else []
    for gate in gates:
        if not gate or len(gate) > _GATE_NAME_LIMIT or gate.strip() != gate:
            yield fields.invalid(
                at, gate, f"each gate must have 1 to {_GATE_NAME_LIMIT} characters, none of them around it a blank"
            )
    if len(set(gates)) < len(gates):
        yield fields.invalid(at, text, "must not name a gate twice")


def errors(new: Job, old: Job | None, context: Context) -> Iterator[FieldError]:
    yield from create_errors(new)
    if old is not None:
        has_default_queue = context.has_default_queue and context.is_managed_namespace
        yield from _update_errors(new, old, has_default_queue=has_default_queue)


def _update_errors(new: Job, old: Job, *, has_default_queue: bool) -> Iterator[FieldError]:
    yield from _queue_update_errors(new, old, has_default_queue=has_default_queue)
    if new.prebuilt != old.prebuilt and not (new.is_suspended or new.is_elastic):
        yield fields.immutable(label(names.PREBUILT_WORKLOAD), new.prebuilt)
    limits = [job.metadata.labels.get(names.MAX_EXEC_TIME_LABEL) for job in (new, old)]
    if limits[0] != limits[1] and not (new.is_suspended and old.is_suspended):
        yield fields.immutable(label(names.MAX_EXEC_TIME_LABEL), limits[0])
    yield from _priority_update_errors(new, old)
    if new.is_elastic != old.is_elastic:
        yield fields.immutable(annotation(names.ELASTIC_JOB), new.metadata.annotations.get(names.ELASTIC_JOB))
    yield from gate_update_errors(new.metadata, old.metadata)


def _queue_update_errors(new: Job, old: Job, *, has_default_queue: bool) -> Iterator[FieldError]:
    at = label(names.QUEUE_LABEL)
    if not new.is_suspended:
        if new.queue != old.queue:
            yield fields.invalid(at, new.queue or None, "field is immutable while the job is not suspended")
    elif old.queue and not new.queue and has_default_queue:
        yield fields.required(
            at,
            f"may not be removed in a namespace with a LocalQueue {names.DEFAULT_LOCAL_QUEUE}: it would take the job",
        )


def _priority_update_errors(new: Job, old: Job) -> Iterator[FieldError]:
    at = label(names.PRIORITY_CLASS_LABEL)
    now, before = (job.metadata.labels.get(names.PRIORITY_CLASS_LABEL) for job in (new, old))
    if before and not now:
        yield fields.required(at, "may be changed, but not removed")
    if now and not before and not new.is_suspended:
        yield fields.forbidden(at, "may not be added while the job is not suspended")


def gate_update_errors(new: ObjectMeta, old: ObjectMeta) -> Iterator[FieldError]:
    """Admission gates are only ever taken away."""
    now, before = (_gates(metadata) for metadata in (new, old))
    if added := now - before:
        at = annotation(names.ADMISSION_GATED_BY)
        yield fields.forbidden(at, f"gates may only be removed, not added: {', '.join(sorted(added))[:128]}")


def _gates(metadata: ObjectMeta) -> frozenset[str]:
    text = metadata.annotations.get(names.ADMISSION_GATED_BY, "")
    return frozenset(text.split(",")) if text else frozenset()
