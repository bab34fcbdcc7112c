"""LeaderWorkerSets: the pods of each group wait for a Workload of that group.

Reads the LeaderWorkerSet and the review's context. What it writes into both templates is what the pods are found and
held back by; the number of groups is never its business.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from admission.api import names
from admission.api.leader_worker_sets import LeaderWorkerSet
from admission.jobs.serving import is_parent
from admission.webhook import fields, serving, topology_requests
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.review import Operation

_FRAMEWORK = names.LEADER_WORKER_SET_INTEGRATION
_AT = "spec.leaderWorkerTemplate"
_PATH = "/spec/leaderWorkerTemplate"


def mutate(_raw: Mapping[str, Any], one: LeaderWorkerSet, context: Context) -> list[Operation]:
    if not context.rules.leader_worker_sets:
        return []
    templates = one.spec.leader_worker_template
    leader, worker = templates.leader_template, templates.worker_template
    queue = serving.queue_of(one.metadata, (worker, *(() if leader is None else (leader,))), context)
    if queue is None:
        return []
    labels = serving.labels_of(one.metadata, queue)
    annotations = {names.POD_SUSPENDING_PARENT: _FRAMEWORK, names.POD_GROUP_SERVING: "true"}
    of_workers = dict(annotations)
    if leader is not None and context.rules.topology and not _is_grouped(worker):
        of_workers[names.POD_INDEX_OFFSET] = "1"  # the leader is number 0
    return [
        *serving.own_label(one.metadata, queue),
        *([] if leader is None else serving.into_template(f"{_PATH}/leaderTemplate", leader, labels, annotations)),
        *serving.into_template(f"{_PATH}/workerTemplate", worker, labels, of_workers),
    ]


def _is_grouped(template: serving.Template) -> bool:
    return names.PODSET_GROUP_NAME in serving.annotations_of(template)


def validate(new: LeaderWorkerSet, old: LeaderWorkerSet | None, context: Context) -> Iterator[FieldError]:
    if not context.rules.leader_worker_sets:
        return
    ready = 0 if old is None else old.status.ready_replicas
    yield from serving.errors(new.metadata, None if old is None else old.metadata, ready=ready)
    now = new.spec.leader_worker_template
    workers = new.size if now.leader_template is None else new.size - 1
    for name, template, count in (
        ("leaderTemplate", now.leader_template, 1),
        ("workerTemplate", now.worker_template, workers),
    ):
        if template is not None:
            at = f"{_AT}.{name}.metadata.annotations"
            yield from topology_requests.errors(at, serving.annotations_of(template), count or None)
    before = None if old is None else old.spec.leader_worker_template
    if old is None or before is None or not is_parent(before.worker_template, _FRAMEWORK):
        return
    if not (old.replicas or old.status.replicas):
        return
    yield from serving.shape_errors(f"{_AT}.leaderTemplate", now.leader_template, before.leader_template)
    yield from serving.shape_errors(f"{_AT}.workerTemplate", now.worker_template, before.worker_template)
    if context.rules.keeps_group_size and new.size != old.size:
        yield fields.invalid(f"{_AT}.size", new.size, "field is immutable while groups are queued; scale to 0 first")
