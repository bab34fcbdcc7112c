"""Topology: the node labels that make a cluster's blocks, racks and hosts, from the largest to the smallest."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.names import API_VERSION
from admission.api.schema import REQUIRED, Cel, Definition, LabelKey, Object, Schema, always

_LOWEST_IS_HOST = "{0}.size() > 0 && {0}[{0}.size() - 1].nodeLabel == 'kubernetes.io/hostname'"


class TopologyLevel(Object, frozen=True):
    node_label: Annotated[LabelKey, REQUIRED] = always("")


class TopologySpec(Object, frozen=True):
    levels: Annotated[
        tuple[TopologyLevel, ...],
        Schema(
            required=True,
            list_type="atomic",
            min_items=1,
            max_items=16,
            cel=(
                Cel(
                    "self.all(x, self.filter(y, y.nodeLabel == x.nodeLabel).size() == 1)",
                    "must be unique",
                ),
                Cel(
                    "self.filter(x, x.nodeLabel == 'kubernetes.io/hostname').size() == 0 || "
                    "self[self.size() - 1].nodeLabel == 'kubernetes.io/hostname'",
                    "the kubernetes.io/hostname label can only be used at the lowest level of topology",
                ),
                Cel(
                    f"self == oldSelf || (({_LOWEST_IS_HOST.format('self')}) && ({_LOWEST_IS_HOST.format('oldSelf')}))",
                    "levels are immutable unless the lowest one is kubernetes.io/hostname before and after",
                ),
            ),
        ),
    ] = always(())


class Topology(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("Topology")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[TopologySpec, REQUIRED] = msgspec.field(default_factory=TopologySpec)

    DEFINITION: ClassVar[Definition] = Definition(plural="topologies", short_names=("topo",))
