"""ProvisioningRequestConfig: how the provisioning check asks a cluster autoscaler for nodes."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.names import API_VERSION
from admission.api.schema import REQUIRED, Definition, Int32, LabelKey, Object, Schema, Subdomain, always

RETRY_DEFAULTS = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}


class ProvisioningRequestRetryStrategy(Object, frozen=True):
    backoff_limit_count: Annotated[Int32, Schema(default=3, minimum=0)] = 3
    backoff_base_seconds: Annotated[Int32, Schema(default=60, minimum=1)] = 60
    backoff_max_seconds: Annotated[Int32, Schema(default=1800, minimum=1)] = 1800


class NodeSelectorUpdate(Object, frozen=True):
    key: Annotated[LabelKey, REQUIRED] = always("")
    value_from_provisioning_class_detail: Annotated[str, Schema(required=True, max_length=32768)] = always("")


class ProvisioningRequestPodSetUpdates(Object, frozen=True):
    node_selector: Annotated[
        tuple[NodeSelectorUpdate, ...], Schema(list_type="map", list_keys=("key",), max_items=8)
    ] = ()


class ProvisioningRequestConfigSpec(Object, frozen=True):
    provisioning_class_name: Annotated[Subdomain, REQUIRED] = always("")
    parameters: Annotated[dict[str, Annotated[str, Schema(max_length=255)]], Schema(max_properties=100)] = (
        msgspec.field(default_factory=dict)
    )
    managed_resources: Annotated[tuple[str, ...], Schema(list_type="set", max_items=100)] = ()
    retry_strategy: Annotated[ProvisioningRequestRetryStrategy, Schema(default=RETRY_DEFAULTS)] = (
        ProvisioningRequestRetryStrategy()
    )
    pod_set_updates: ProvisioningRequestPodSetUpdates | None = None
    pod_set_merge_policy: Annotated[
        str | None, Schema(enum=("IdenticalPodTemplates", "IdenticalWorkloadSchedulingRequirements"))
    ] = None


class ProvisioningRequestConfig(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("ProvisioningRequestConfig")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: ProvisioningRequestConfigSpec = msgspec.field(default_factory=ProvisioningRequestConfigSpec)

    DEFINITION: ClassVar[Definition] = Definition(plural="provisioningrequestconfigs", short_names=("prc",))
