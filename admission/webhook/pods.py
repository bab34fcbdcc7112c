"""Pods: gated as they are created when they are queued, with what the rest of Muster finds them by.

What a validating webhook would refuse is refused here, since nothing is asked twice for one pod; what has to hold
after all mutations is a policy that the API server evaluates itself (`policies`). Pods of DaemonSets, mirror pods and
the pods of a queued Job are never touched.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from admission.api import names
from admission.api.core import Pod
from admission.jobs.pod_states import group_name
from admission.jobs.roles import role_hash
from admission.webhook import fields, job_rules, syntax, topology_requests
from admission.webhook.context import Context, is_controlled_by
from admission.webhook.fields import FieldError, annotation, label
from admission.webhook.handling import Refusal
from admission.webhook.review import Operation

#: On pods that a kubelet made from a file, as it mirrors them to the API server.
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"


def mutate(raw: Mapping[str, Any], pod: Pod, context: Context) -> list[Operation]:
    if not context.rules.pods or _is_not_ours(pod, context):
        return []
    by_parent = names.POD_SUSPENDING_PARENT in pod.metadata.annotations
    verdict = job_rules.Queued() if by_parent else job_rules.verdict(pod.metadata, pod.spec, context)
    match verdict:
        case job_rules.Refused(error):
            raise Refusal(error)
        case job_rules.LeftAlone():
            if found := list(_managed_label_errors(pod)):
                raise Refusal(*found)
            return []
        case job_rules.Queued(default_queue=default_queue):
            if found := list(errors(pod)):
                raise Refusal(*found)
            return _gated(raw, pod, context, default_queue=default_queue, by_parent=by_parent)


def _is_not_ours(pod: Pod, context: Context) -> bool:
    """Whether someone trusted made the pod for an owner that is not queued by its pods."""
    if not context.is_trusted:
        return False
    if MIRROR_ANNOTATION in pod.metadata.annotations or is_controlled_by(pod.metadata, "apps", "DaemonSet"):
        return True
    if not (context.rules.jobs and is_controlled_by(pod.metadata, "batch", "Job")):
        return False
    labels = pod.metadata.labels
    queued_by_itself = labels.get(names.QUEUE_LABEL) and names.PODSET_LABEL not in labels
    return context.rules.manage_all or not queued_by_itself


def _gated(
    raw: Mapping[str, Any], pod: Pod, context: Context, *, default_queue: bool, by_parent: bool
) -> list[Operation]:
    metadata, gates = pod.metadata, {gate.name for gate in pod.spec.scheduling_gates}
    labels = {names.MANAGED_LABEL: "true"}
    if default_queue:
        labels[names.QUEUE_LABEL] = names.DEFAULT_LOCAL_QUEUE
    source = metadata.annotations.get(names.POD_GROUP_POD_INDEX_LABEL)
    if source is not None and (rank := metadata.labels.get(source)) is not None:
        labels[names.POD_GROUP_POD_INDEX] = rank
    added = {name: value for name, value in labels.items() if metadata.labels.get(name) != value}
    wanted = [names.ADMISSION_GATE, *([names.TOPOLOGY_GATE] if context.rules.topology else [])]
    finalizer = [] if by_parent else job_rules.add_finalizer(metadata, names.POD_FINALIZER)
    return [
        *job_rules.add_to_map("/metadata/labels", metadata.labels, added),
        *job_rules.add_to_map(
            "/metadata/annotations",
            metadata.annotations,
            {names.ROLE_HASH: role_hash(raw.get("spec") or {}), **context.stamp()},
        ),
        *finalizer,
        *job_rules.add_to_list(
            "/spec/schedulingGates", gates, [{"name": gate} for gate in wanted if gate not in gates]
        ),
    ]


# ------------------------------------------------------------------ what may be written on it


def errors(pod: Pod) -> Iterator[FieldError]:
    """What a queued pod may not be created with."""
    yield from _managed_label_errors(pod)
    yield from job_rules.create_errors(job_rules.Job(pod.metadata, is_suspended=True))
    total = yield from _group_errors(pod)
    yield from topology_requests.errors("metadata.annotations", pod.metadata.annotations, total)


def _managed_label_errors(pod: Pod) -> Iterator[FieldError]:
    managed = pod.metadata.labels.get(names.MANAGED_LABEL)
    if managed not in {None, "true"}:
        yield fields.forbidden(label(names.MANAGED_LABEL), 'may only be "true", and is set by the webhook')


def _group_errors(pod: Pod) -> Generator[FieldError, None, int | None]:
    """Yields the errors and returns the number of pods in the group (None: no group, or not known)."""
    group, text = group_name(pod), pod.metadata.annotations.get(names.POD_GROUP_TOTAL_COUNT)
    at = annotation if names.POD_GROUP_NAME in pod.metadata.annotations else label
    total = None if text is None else syntax.integer(text)
    if group and (problem := syntax.subdomain(group)):
        yield fields.invalid(at(names.POD_GROUP_NAME), group, problem)
    if group and text is None:
        yield fields.required(annotation(names.POD_GROUP_TOTAL_COUNT), "must be set for a pod of a group")
    if text is not None:
        if not group:
            yield fields.required(label(names.POD_GROUP_NAME), f"must be set when {names.POD_GROUP_TOTAL_COUNT} is")
        if total is None or total < 1:
            yield fields.invalid(annotation(names.POD_GROUP_TOTAL_COUNT), text, "must be an integer of at least 1")
            total = None
    fast = pod.metadata.annotations.get(names.POD_GROUP_FAST_ADMISSION)
    if fast is not None and not group:
        yield fields.required(label(names.POD_GROUP_NAME), f"must be set when {names.POD_GROUP_FAST_ADMISSION} is")
    prebuilt = job_rules.Job(pod.metadata, is_suspended=True).prebuilt
    if group and prebuilt and group != prebuilt:
        yield fields.invalid(at(names.POD_GROUP_NAME), group, f"must be equal to {names.PREBUILT_WORKLOAD}")
    return total if group else None
