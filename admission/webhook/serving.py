"""The rules that Deployments, StatefulSets and LeaderWorkerSets share: they are queued through the pods that they make.

Works on the metadata and pod templates of such an object and on the review's context. What it puts into a template is
what the pods are found and held back by; it must never change the template of an object that nobody asked to queue,
since that replaces all of its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from admission.api import names
from admission.api.core import PodTemplateSpec
from admission.api.decoding import convert
from admission.api.meta import ObjectMeta
from admission.jobs.roles import scheduling_shape
from admission.webhook import fields, job_rules, review
from admission.webhook.context import Context
from admission.webhook.fields import FieldError, label
from admission.webhook.handling import Refusal
from admission.webhook.review import Operation

Template = Mapping[str, Any]


def queue_of(metadata: ObjectMeta, templates: Iterable[Template], context: Context) -> str | None:
    """The queue that it waits in, empty where that is still to be named; None for what is not queued.

    An object that is changed is queued if it names a queue or was queued before: to start with that on any change
    would replace the pods of whoever ran before Muster came.
    """
    if metadata.is_deleting:
        return None
    if context.request.operation == review.UPDATE and not metadata.labels.get(names.QUEUE_LABEL):
        old = _old(context)
        if not old.labels.get(names.QUEUE_LABEL):
            return None
    for template in templates:
        match job_rules.verdict(metadata, convert(template, PodTemplateSpec).spec, context):
            case job_rules.Refused(error):
                raise Refusal(error)
            case job_rules.Queued(default_queue=default_queue):
                named = metadata.labels.get(names.QUEUE_LABEL, "")
                return names.DEFAULT_LOCAL_QUEUE if default_queue else named
            case job_rules.LeftAlone():
                pass
    return None


def _old(context: Context) -> ObjectMeta:
    raw = msgspec.json.decode(context.request.old_object)
    return convert(raw.get("metadata") or {}, ObjectMeta) if isinstance(raw, dict) else ObjectMeta()


def own_label(metadata: ObjectMeta, queue: str) -> list[Operation]:
    """The default queue, where the object names none."""
    if not queue or metadata.labels.get(names.QUEUE_LABEL) == queue:
        return []
    return job_rules.add_to_map("/metadata/labels", metadata.labels, {names.QUEUE_LABEL: queue})


def into_template(
    path: str, template: Template, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> list[Operation]:
    """Operations that put labels and annotations into a pod template, where they are not there."""
    metadata = template.get("metadata")
    if not isinstance(metadata, Mapping):
        whole = {"labels": dict(labels), "annotations": dict(annotations)}
        value = {name: entries for name, entries in whole.items() if entries}
        return [{"op": "add", "path": f"{path}/metadata", "value": value}]
    operations: list[Operation] = []
    for name, wanted in (("labels", labels), ("annotations", annotations)):
        there = metadata.get(name) or {}
        missing = {key: value for key, value in wanted.items() if there.get(key) != value}
        operations += job_rules.add_to_map(f"{path}/metadata/{name}", there, missing)
    return operations


def labels_of(metadata: ObjectMeta, queue: str) -> dict[str, str]:
    """The labels that pods are queued by."""
    wanted = {
        names.QUEUE_LABEL: queue,
        names.PRIORITY_CLASS_LABEL: metadata.labels.get(names.PRIORITY_CLASS_LABEL, ""),
    }
    return {name: value for name, value in wanted.items() if value}


# ------------------------------------------------------------------ what may be written on it


def errors(new: ObjectMeta, old: ObjectMeta | None, *, ready: int) -> Iterator[FieldError]:
    """`ready`: how many replicas are."""
    yield from job_rules.create_errors(job_rules.Job(new, is_suspended=True, takes_prebuilt=False))
    if old is None:
        return
    now, before = (each.labels.get(names.QUEUE_LABEL, "") for each in (new, old))
    at = label(names.QUEUE_LABEL)
    if before and not now:
        yield fields.required(at, "may be changed while no replica is ready, but not removed")
    elif before and now != before and ready:
        yield fields.invalid(at, now, f"field is immutable while replicas are ready ({ready})")
    priorities = [each.labels.get(names.PRIORITY_CLASS_LABEL) for each in (new, old)]
    if priorities[1] and not priorities[0]:
        yield fields.required(label(names.PRIORITY_CLASS_LABEL), "may be changed, but not removed")
    yield from job_rules.gate_update_errors(new, old)


def shape_errors(path: str, new: Template | None, old: Template | None) -> Iterator[FieldError]:
    """What was admitted is what runs: requests, node selection and the like stay as they are."""
    if (new is None) is not (old is None):
        yield fields.forbidden(path, "may not be added or removed while pods of it are queued; scale to 0 first")
    elif new is not None and old is not None and _shape(new) != _shape(old):
        yield fields.forbidden(
            f"{path}.spec",
            "what decides where pods run and what they take (requests, ports, node selector, affinity, tolerations, "
            "runtime class, priority, spread, claims) may not change while pods of it are queued; scale to 0 first",
        )


def _shape(template: Template) -> dict[str, Any]:
    return scheduling_shape(template.get("spec") or {})


def annotations_of(template: Template) -> dict[str, str]:
    return convert(template, PodTemplateSpec).metadata.annotations
