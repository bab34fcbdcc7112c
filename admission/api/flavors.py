"""ResourceFlavor: a kind of node (its labels, taints and topology) that quota is given in."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.names import API_VERSION
from admission.api.schema import REQUIRED, Cel, Definition, Int64, Object, Schema, Subdomain, Time, always

TaintEffect = Annotated[str, Schema(enum=("NoSchedule", "PreferNoSchedule", "NoExecute"))]


class Taint(Object, frozen=True):
    key: Annotated[str, REQUIRED] = always("")
    value: str = ""
    effect: Annotated[TaintEffect, REQUIRED] = always("")
    time_added: Time | None = None


class Toleration(Object, frozen=True):
    """Of the same shape as a pod's; the rules are those that the API server has for pods."""

    key: str = ""
    operator: Annotated[str, Schema(enum=("Equal", "Exists"))] = ""
    value: str = ""
    effect: TaintEffect = ""
    toleration_seconds: Int64 | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "(has(self.key) && self.key != '') || (has(self.operator) && self.operator == 'Exists')",
                "operator must be Exists when key is empty, which means to match all values and all keys",
                field=".operator",
            ),
            Cel(
                "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
                "effect must be NoExecute when tolerationSeconds is set",
                field=".effect",
            ),
            Cel(
                "!has(self.value) || self.value == '' || !has(self.operator) || self.operator != 'Exists'",
                "a value must be empty when operator is Exists",
                field=".value",
            ),
        )
    )


Tolerations = Annotated[tuple[Toleration, ...], Schema(list_type="atomic", max_items=8)]


class ResourceFlavorSpec(Object, frozen=True):
    node_labels: Annotated[dict[str, str], Schema(atomic=True, max_properties=8)] = msgspec.field(default_factory=dict)
    node_taints: Annotated[tuple[Taint, ...], Schema(list_type="atomic", max_items=8)] = ()
    tolerations: Tolerations = ()
    topology_name: Subdomain | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
                "at least one nodeLabel is required when topologyName is set",
                field=".nodeLabels",
            ),
            Cel(
                "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
                "topologyName is immutable once it is set",
                field=".topologyName",
            ),
        )
    )


class ResourceFlavor(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("ResourceFlavor")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ResourceFlavorSpec = msgspec.field(default_factory=ResourceFlavorSpec)

    DEFINITION: ClassVar[Definition] = Definition(plural="resourceflavors", short_names=("flavor", "flavors", "rf"))
