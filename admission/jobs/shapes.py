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
    """Whether the containers are the same; where they may run is what a start changes."""
    mine, theirs = shape(one).spec, shape(other).spec
    return (mine.containers, mine.init_containers) == (theirs.containers, theirs.init_containers)
