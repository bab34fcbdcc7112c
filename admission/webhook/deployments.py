"""Deployments: their pods are queued one by one, each with a Workload of its own.

Reads the Deployment and the review's context. It labels the template, so that pods are queued as they are made, and
never holds back the Deployment itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from admission.api import names
from admission.api.apps import Deployment
from admission.webhook import serving, topology_requests
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.review import Operation


def mutate(_raw: Mapping[str, Any], deployment: Deployment, context: Context) -> list[Operation]:
    if not context.rules.deployments:
        return []
    metadata, template = deployment.metadata, deployment.spec.template
    queue = serving.queue_of(metadata, (template,), context)
    if not queue:  # without a queue its pods are judged one by one, as everybody's are
        return []
    labels = {names.MANAGED_LABEL: "true", **serving.labels_of(metadata, queue)}
    annotations = {names.POD_SUSPENDING_PARENT: names.DEPLOYMENT_INTEGRATION}
    return [
        *serving.own_label(metadata, queue),
        *serving.into_template("/spec/template", template, labels, annotations),
    ]


def validate(new: Deployment, old: Deployment | None, context: Context) -> Iterator[FieldError]:
    if not context.rules.deployments:
        return
    ready = 0 if old is None else old.status.ready_replicas
    yield from serving.errors(new.metadata, None if old is None else old.metadata, ready=ready)
    annotations = serving.annotations_of(new.spec.template)
    yield from topology_requests.errors("spec.template.metadata.annotations", annotations)
