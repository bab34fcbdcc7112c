"""Workloads: pod templates that mean something, and no change under those that hold quota.

Judged from the Workload and the one before it. Status writes are not looked at (they are Muster's own, and many);
the rules between spec and status are in the CRD, where the API server checks them itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from admission.api import names
from admission.api.core import PodSpec, PodTemplateSpec, ResourceRequirements
from admission.api.decoding import convert
from admission.api.kueue import PodSet, Workload
from admission.api.meta import is_true
from admission.webhook import fields, job_rules, quotas, syntax
from admission.webhook.context import Context
from admission.webhook.fields import FieldError, annotation
from admission.webhook.review import Operation


def mutate(raw: Mapping[str, Any], workload: Workload, context: Context) -> list[Operation]:
    """Without partial admission every pod set starts whole."""
    if context.rules.partial_admission:
        return []
    return [
        {"op": "remove", "path": f"/spec/podSets/{position}/minCount"}
        for position, pod_set in enumerate(raw.get("spec", {}).get("podSets") or ())
        if position < len(workload.spec.pod_sets) and "minCount" in pod_set
    ]


def validate(new: Workload, old: Workload | None, _context: Context) -> Iterator[FieldError]:
    if old is None or new.spec.pod_sets != old.spec.pod_sets:
        for position, pod_set in enumerate(new.spec.pod_sets):
            yield from _pod_set_errors(fields.index("spec.podSets", position), pod_set)
        yield from _min_count_errors(new)
        yield from _group_errors(new)
    gates = new.metadata.annotations.get(names.ADMISSION_GATED_BY)
    if gates is not None:
        yield from job_rules.gate_errors(gates)
    boost = new.metadata.annotations.get(names.PRIORITY_BOOST)
    if boost is not None and syntax.integer(boost) is None:
        yield fields.invalid(annotation(names.PRIORITY_BOOST), boost, "must be an integer of 32 bits")
    if old is not None:
        yield from job_rules.gate_update_errors(new.metadata, old.metadata)
        if is_true(old.status.conditions, names.QUOTA_RESERVED) and not _same_pod_sets(new, old):
            yield fields.forbidden("spec.podSets", "field is immutable while quota is reserved")


def _same_pod_sets(new: Workload, old: Workload) -> bool:
    """The pods of an elastic job may become fewer while they run."""
    before, now = old.spec.pod_sets, new.spec.pod_sets
    if old.metadata.annotations.get(names.ELASTIC_JOB) == "true" and len(before) == len(now):
        before = tuple(
            msgspec.structs.replace(was, count=min(was.count, is_.count)) for was, is_ in zip(before, now, strict=True)
        )
    return before == now


def _min_count_errors(workload: Workload) -> Iterator[FieldError]:
    partial = [position for position, pod_set in enumerate(workload.spec.pod_sets) if pod_set.min_count is not None]
    if len(partial) > 1:
        yield fields.invalid("spec.podSets", len(partial), "at most one pod set may have a minCount")
    if partial and workload.metadata.annotations.get(names.ELASTIC_JOB) == "true":
        at = f"{fields.index('spec.podSets', partial[0])}.minCount"
        yield fields.forbidden(at, "may not be set for an elastic job")


def _group_errors(workload: Workload) -> Iterator[FieldError]:
    """A group is one leader and its workers, and both ask for the same place.

    A pod set that is alone in its group is placed as if it were in none.
    """
    groups: dict[str, list[tuple[int, PodSet]]] = {}
    for position, pod_set in enumerate(workload.spec.pod_sets):
        request = pod_set.topology_request
        if request is not None and request.pod_set_group_name:
            groups.setdefault(request.pod_set_group_name, []).append((position, pod_set))
    for name, members in groups.items():
        at = f"{fields.index('spec.podSets', members[-1][0])}.topologyRequest.podSetGroupName"
        if len(members) > 2:
            yield fields.invalid(at, name, f"a group has two pod sets, not {len(members)}")
        if len(members) < 2:
            continue
        if all(pod_set.count != 1 for _, pod_set in members):
            yield fields.invalid(at, name, "one pod set of a group must have exactly one pod")
        places = {
            (each.topology_request.required, each.topology_request.preferred)
            for _, each in members
            if each.topology_request is not None
        }
        if len(places) > 1:
            yield fields.invalid(at, name, "the pod sets of a group must have the same required or preferred topology")


def _pod_set_errors(path: str, pod_set: PodSet) -> Iterator[FieldError]:
    if problem := syntax.dns_label(pod_set.name):
        yield fields.invalid(f"{path}.name", pod_set.name, problem)
    request = pod_set.topology_request
    if request is not None:
        level, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
        if (level is None) != (size is None):
            missing = "podSetSliceSize" if size is None else "podSetSliceRequiredTopology"
            yield fields.required(
                f"{path}.topologyRequest.{missing}",
                "podSetSliceSize and podSetSliceRequiredTopology must be set together",
            )
        if size is not None and size > pod_set.count:
            yield fields.invalid(
                f"{path}.topologyRequest.podSetSliceSize",
                size,
                f"must not be greater than the number of pods ({pod_set.count})",
            )
    try:
        template = convert(pod_set.template, PodTemplateSpec)
    except msgspec.ValidationError as error:
        yield fields.invalid(f"{path}.template", pod_set.template, f"cannot be read: {error}")
        return
    metadata = template.metadata
    yield from syntax.metadata_errors(f"{path}.template.metadata", metadata.labels, metadata.annotations)
    yield from _spec_errors(f"{path}.template.spec", template.spec)


def _spec_errors(path: str, spec: PodSpec) -> Iterator[FieldError]:
    for field, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for position, container in enumerate(containers):
            at = f"{fields.index(f'{path}.{field}', position)}.resources"
            yield from _resource_errors(at, container.resources)
    if spec.resources is not None:
        yield from _resource_errors(f"{path}.resources", spec.resources)
    for name, quantity in spec.overhead.items():
        yield from quotas.quantity_errors(fields.key(f"{path}.overhead", name), quantity)


def _resource_errors(path: str, resources: ResourceRequirements) -> Iterator[FieldError]:
    for field, amounts in (("requests", resources.requests), ("limits", resources.limits)):
        for name, quantity in amounts.items():
            at = fields.key(f"{path}.{field}", name)
            if name == "pods":
                yield fields.invalid(at, name, "pods are counted by the queue and may not be asked for")
            yield from quotas.quantity_errors(at, quantity)
