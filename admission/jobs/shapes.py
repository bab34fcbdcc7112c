"""Pod templates as values that can be compared, whatever the API server filled in or left out.

Works on the plain dicts of templates. It must never fail on one that is malformed: that is equal to an empty one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from admission.api.core import LimitRange, PodSpec, PodTemplateSpec
from admission.api.decoding import convert
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests


def shape(template: Mapping[str, Any]) -> PodTemplateSpec:
    """What Muster reads of the template."""
    try:
        return convert(template, PodTemplateSpec)
    except msgspec.ValidationError:  # from before the webhook: only comparable as "nothing known"
        return PodTemplateSpec()


def runs_the_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether the containers are the same and all that they take; where they may run is what a start changes."""
    return _taken(one) == _taken(other)


def _taken(template: Mapping[str, Any]) -> tuple[object, ...]:
    """The overhead follows from the runtime class, and is written into some templates and not into others."""
    spec = shape(template).spec
    return spec.containers, spec.init_containers, spec.resources, spec.resource_claims, spec.runtime_class_name


def asks_for_more(pod: PodSpec, template: PodSpec, limit_ranges: Iterable[LimitRange] = ()) -> bool:
    """Whether the pod would take more than what is charged for the template, whatever its role is said to be.

    The overhead follows from the runtime class, and templates lack it. Mostly all is the same, which is seen at once.
    """
    if pod.runtime_class_name != template.runtime_class_name or _claims(pod) - _claims(template):
        return True
    if _resources(pod) == _resources(template):
        return False
    taken = pod_requests(_without_overhead(pod), Surroundings(are_admitted=True))
    most = pod_requests(_without_overhead(template), Surroundings(limit_ranges=tuple(limit_ranges), are_admitted=True))
    if isinstance(taken, Misconfigured) or isinstance(most, Misconfigured):
        return True
    return any(amount > most.node.get(name, 0) for name, amount in taken.node.items())


def _claims(spec: PodSpec) -> Counter[tuple[str, str]]:
    return Counter((claim.resource_claim_name, claim.resource_claim_template_name) for claim in spec.resource_claims)


def _resources(spec: PodSpec) -> tuple[object, ...]:
    return (
        spec.resources,
        [each.resources for each in spec.containers],
        [(each.resources, each.restart_policy) for each in spec.init_containers],
    )


def _without_overhead(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(spec, overhead={})
