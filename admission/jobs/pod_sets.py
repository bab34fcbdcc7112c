"""The pod sets of a Workload as the core decides on them: requests, scheduling shape and topology request.

They are read from the Workload's templates and the classes and LimitRanges of the cluster; a template that no API
server would accept is answered with the reason instead. It must never fail on what somebody wrote into a template.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from admission.api import names
from admission.api.core import Affinity, NodeSelectorRequirement, PodSpec, PodTemplateSpec, Toleration
from admission.api.decoding import convert
from admission.api.kueue import PodSet, PodSetTopologyRequest, Workload
from admission.api.meta import is_true
from admission.jobs.device_claims import Claimed, backed_resources, claimed
from admission.jobs.interface import Context
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests, resource_names
from queues.core import model


def core_pod_sets(workload: Workload, context: Context) -> tuple[model.PodSet, ...] | Misconfigured:
    """What the core needs to know of each pod set, in the order of the spec, or what only an edit can mend.

    The result depends on the spec, on `status.reclaimablePods` and whether quota is held, and on the RuntimeClasses,
    LimitRanges, device classes, claims, claim templates and settings. Whoever holds quota is past being refused.
    """
    status = workload.status
    holds_quota = status.admission is not None and is_true(status.conditions, names.QUOTA_RESERVED)
    charged: set[str] = set()
    limit_ranges = tuple(context.limit_ranges(workload.metadata.namespace))
    reclaimable = {entry.name: entry.count for entry in workload.status.reclaimable_pods}
    result = []
    for pod_set in workload.spec.pod_sets:
        spec = pod_spec(pod_set)
        if isinstance(spec, Misconfigured):
            return spec
        backed = backed_resources(resource_names(spec), context)
        if isinstance(backed, Misconfigured):
            if not holds_quota:
                return backed
            backed = {}
        around = Surroundings(
            resources=context.settings.resources,
            runtime_class=context.runtime_class(spec.runtime_class_name) if spec.runtime_class_name else None,
            limit_ranges=limit_ranges,
            backed=backed,
            are_admitted=holds_quota,
        )
        requests = pod_requests(spec, around)
        if isinstance(requests, Misconfigured):
            return requests
        devices = claimed(spec.resource_claims, workload.metadata.namespace, context, charged)
        if isinstance(devices, Misconfigured):
            if not holds_quota:
                return devices
            devices = Claimed()
        more = _from_checks(workload, pod_set.name) if holds_quota else _FromChecks()
        result.append(
            model.PodSet(
                name=pod_set.name,
                count=pod_set.count,
                requests=_sum(requests.charge, devices.per_pod),
                shared={model.ResourceName(name): amount for name, amount in devices.shared.items()},
                node_requests={model.ResourceName(name): amount for name, amount in requests.node.items()},
                min_count=pod_set.min_count,
                reclaimable=min(pod_set.count, reclaimable.get(pod_set.name, 0)),
                node_selector=tuple(sorted({**more.node_selector, **spec.node_selector}.items())),
                affinity=_affinity(spec.affinity),
                tolerations=(*_tolerations(spec.tolerations), *more.tolerations),
                topology=_topology(pod_set.topology_request),
                preferences=_preferences(spec.affinity),
            )
        )
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _FromChecks:
    """Where ready admission checks send the pods of a pod set."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[model.Toleration, ...] = ()


def _from_checks(workload: Workload, name: str) -> _FromChecks:
    updates = [
        update
        for check in workload.status.admission_checks
        if check.state == names.CHECK_READY
        for update in check.pod_set_updates
        if update.name == name
    ]
    return _FromChecks(
        {key: value for update in updates for key, value in update.node_selector.items()},
        tuple(
            model.Toleration(entry.key, entry.operator or "Equal", entry.value, entry.effect)
            for update in updates
            for entry in update.tolerations
        ),
    )


def tolerations(pod_set: PodSet) -> tuple[model.Toleration, ...]:
    """What the pods of the pod set tolerate by themselves; nothing where the template is malformed."""
    spec = pod_spec(pod_set)
    return () if isinstance(spec, Misconfigured) else _tolerations(spec.tolerations)


def _tolerations(entries: Iterable[Toleration]) -> tuple[model.Toleration, ...]:
    return tuple(model.Toleration(entry.key, entry.operator or "Equal", entry.value, entry.effect) for entry in entries)


def _sum(*several: Mapping[str, int]) -> dict[model.ResourceName, int]:
    result: dict[model.ResourceName, int] = {}
    for amounts in several:
        for name, amount in amounts.items():
            result[model.ResourceName(name)] = result.get(model.ResourceName(name), 0) + amount
    return result


def pod_spec(pod_set: PodSet) -> PodSpec | Misconfigured:
    """The typed pod spec of the pod set's template."""
    try:
        return convert(pod_set.template, PodTemplateSpec).spec
    except msgspec.ValidationError as error:
        return Misconfigured(f'the template of pod set "{pod_set.name}" is malformed: {error}')


def _affinity(affinity: Affinity | None) -> tuple[tuple[model.Expression, ...], ...]:
    """The required terms, of which one has to be met.

    `matchFields` name single nodes, never a flavor: a term of nothing else may always be met.
    """
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return ()
    terms = []
    for term in affinity.node_affinity.required.node_selector_terms:
        if term.match_fields and not term.match_expressions:
            return ()
        terms.append(tuple(expression for entry in term.match_expressions if (expression := _expression(entry))))
    return tuple(terms)


def _preferences(affinity: Affinity | None) -> tuple[tuple[int, tuple[model.Expression, ...]], ...]:
    """The preferred terms with their weights, as far as they speak of labels."""
    if affinity is None or affinity.node_affinity is None:
        return ()
    found = []
    for entry in affinity.node_affinity.preferred:
        expressions = tuple(made for each in entry.preference.match_expressions if (made := _expression(each)))
        if expressions and not entry.preference.match_fields:
            found.append((entry.weight, expressions))
    return tuple(found)


def _expression(entry: NodeSelectorRequirement) -> model.Expression | None:
    try:
        return model.Expression(entry.key, model.Operator(entry.operator), entry.values)
    except ValueError:  # an operator that this version does not know must not hide the other expressions
        return None


def _topology(request: PodSetTopologyRequest | None) -> model.TopologyRequest | None:
    if request is None:
        return None
    level, size = request.pod_set_slice_required_topology, request.pod_set_slice_size
    layers = tuple((each.topology, each.size) for each in request.podset_slice_required_topology_constraints)
    if layers:
        level, size = layers[0]
    return model.TopologyRequest(
        required=request.required,
        preferred=request.preferred,
        unconstrained=bool(request.unconstrained),
        pod_set_group=request.pod_set_group_name,
        slice_required=level,
        slice_size=size,
        inner_slices=layers[1:],
    )
