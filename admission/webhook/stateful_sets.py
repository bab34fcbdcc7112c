"""StatefulSets: all pods of one wait for one Workload, which is of the size that was asked for when it was made.

Reads the StatefulSet and the review's context. Those that a LeaderWorkerSet makes are that one's; it never judges what
only the controller can know, such as whether quota was given back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from admission.api import leader_worker_sets, names
from admission.api.apps import StatefulSet
from admission.jobs.serving import is_parent
from admission.webhook import fields, serving, topology_requests
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.review import Operation

_FRAMEWORK = names.STATEFUL_SET_INTEGRATION


def mutate(_raw: Mapping[str, Any], one: StatefulSet, context: Context) -> list[Operation]:
    if not context.rules.stateful_sets or _is_of_others(one):
        return []
    queue = serving.queue_of(one.metadata, (one.spec.template,), context)
    if queue is None:
        return []
    annotations = {names.POD_SUSPENDING_PARENT: _FRAMEWORK}
    return [
        *serving.own_label(one.metadata, queue),
        *serving.into_template("/spec/template", one.spec.template, {}, annotations),
    ]


def validate(new: StatefulSet, old: StatefulSet | None, context: Context) -> Iterator[FieldError]:
    if not context.rules.stateful_sets or _is_of_others(new):
        return
    ready = 0 if old is None else old.status.ready_replicas
    yield from serving.errors(new.metadata, None if old is None else old.metadata, ready=ready)
    at = "spec.template.metadata.annotations"
    yield from topology_requests.errors(at, serving.annotations_of(new.spec.template), new.replicas or None)
    if old is None or not is_parent(old.spec.template, _FRAMEWORK):
        return
    if old.replicas or old.status.replicas:
        yield from serving.shape_errors("spec.template", new.spec.template, old.spec.template)
    if new.replicas == old.replicas:
        return
    if old.replicas and new.replicas:
        yield fields.forbidden(
            "spec.replicas", f"all pods were admitted together: scale to 0 first, then from there to {new.replicas}"
        )
    elif new.replicas and old.status.replicas:
        yield fields.forbidden("spec.replicas", f"pods of before are still there: {old.status.replicas}")


def _is_of_others(one: StatefulSet) -> bool:
    """The leaders of a LeaderWorkerSet are a StatefulSet that it controls, the workers one that a leader's pod does."""
    owner = one.metadata.controller
    if owner is None:
        return False
    return owner.kind == "Pod" or owner.api_version.startswith(f"{leader_worker_sets.GROUP}/")
