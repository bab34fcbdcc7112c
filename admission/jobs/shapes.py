"""Pod templates as values that can be compared, whatever the API server filled in or left out.

Works on the plain dicts of templates. It must never fail on one that is malformed: that is equal to an empty one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from admission.api.core import PodTemplateSpec
from admission.api.decoding import convert


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
