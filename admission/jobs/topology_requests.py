"""The topology request of a pod set, read from the annotations of its pod template.

The webhook has refused annotations that contradict each other; whatever still cannot be read is left out here, since
objects from before the webhook exist too. This module never looks at a Topology.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from admission.api import names
from admission.api.kueue import PodSetTopologyRequest, SliceRequiredTopologyConstraint
from admission.api.meta import whole_number

_MOST_CONSTRAINTS = 3


def topology_request(annotations: Mapping[str, str], pod_index_label: str) -> PodSetTopologyRequest | None:
    """What the annotations ask for; None when they say nothing about topology."""
    required = annotations.get(names.PODSET_REQUIRED_TOPOLOGY) or None
    preferred = annotations.get(names.PODSET_PREFERRED_TOPOLOGY) or None
    unconstrained = annotations.get(names.PODSET_UNCONSTRAINED_TOPOLOGY, "").lower() == "true" or None
    slice_required = annotations.get(names.PODSET_SLICE_REQUIRED_TOPOLOGY) or None
    slice_size = whole_number(annotations.get(names.PODSET_SLICE_SIZE, "")) or None
    constraints = _constraints(annotations.get(names.PODSET_SLICE_CONSTRAINTS, ""))
    if not (required or preferred or unconstrained or slice_required or slice_size or constraints):
        return None
    return PodSetTopologyRequest(
        required=required,
        preferred=None if required else preferred,
        unconstrained=None if required or preferred else unconstrained,
        pod_index_label=pod_index_label,
        pod_set_group_name=annotations.get(names.PODSET_GROUP_NAME) or None,
        pod_set_slice_required_topology=slice_required,
        pod_set_slice_size=slice_size,
        podset_slice_required_topology_constraints=constraints,
    )


def _constraints(text: str) -> tuple[SliceRequiredTopologyConstraint, ...]:
    if not text:
        return ()
    try:
        entries = msgspec.json.decode(text, type=tuple[SliceRequiredTopologyConstraint, ...])
    except msgspec.DecodeError:
        return ()
    return entries[:_MOST_CONSTRAINTS]
