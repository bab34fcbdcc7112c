"""MultiKueueConfig and MultiKueueCluster: the worker clusters that workloads may be sent to, in order of preference."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from admission.api.meta import Conditions, ObjectMeta
from admission.api.names import API_VERSION
from admission.api.schema import REQUIRED, Cel, Column, Definition, Object, Schema, always


class MultiKueueConfigSpec(Object, frozen=True):
    """No quota management means Manual."""

    clusters: Annotated[
        tuple[Annotated[str, Schema(min_length=1, max_length=256)], ...],
        Schema(
            required=True,
            list_type="atomic",
            min_items=1,
            max_items=20,
            cel=(Cel("self.all(x, self.exists_one(y, y == x))", "clusters must be unique"),),
        ),
    ] = always(())
    quota_management: Annotated[str | None, Schema(enum=("Manual", "Automated"))] = None


class MultiKueueConfig(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("MultiKueueConfig")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: MultiKueueConfigSpec = msgspec.field(default_factory=MultiKueueConfigSpec)

    DEFINITION: ClassVar[Definition] = Definition(plural="multikueueconfigs", short_names=("mkconf",))


class KubeConfig(Object, frozen=True):
    """Location is the name of a Secret in the manager's namespace, or a path."""

    location: Annotated[str, Schema(required=True, min_length=1, max_length=256)] = always("")
    location_type: Annotated[str, Schema(enum=("Secret", "Path"), default="Secret")] = "Secret"


class ClusterProfileReference(Object, frozen=True):
    name: Annotated[str, Schema(required=True, min_length=1, max_length=256)] = always("")


class ClusterSource(Object, frozen=True):
    kube_config: KubeConfig | None = None
    cluster_profile_ref: ClusterProfileReference | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "has(self.kubeConfig) != has(self.clusterProfileRef)",
                "exactly one of kubeConfig and clusterProfileRef must be set",
            ),
        )
    )


class MultiKueueClusterSpec(Object, frozen=True):
    cluster_source: Annotated[ClusterSource, REQUIRED] = msgspec.field(default_factory=ClusterSource)


class MultiKueueClusterStatus(Object, frozen=True):
    conditions: Conditions = ()


class MultiKueueCluster(Object, frozen=True):
    api_version: str = always(API_VERSION)
    kind: str = always("MultiKueueCluster")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: MultiKueueClusterSpec = msgspec.field(default_factory=MultiKueueClusterSpec)
    status: MultiKueueClusterStatus = MultiKueueClusterStatus()

    DEFINITION: ClassVar[Definition] = Definition(
        plural="multikueueclusters",
        short_names=("mkc",),
        has_status=True,
        columns=(
            Column("Connected", '.status.conditions[?(@.type=="Active")].status'),
            Column("Age", ".metadata.creationTimestamp", "date"),
        ),
    )
