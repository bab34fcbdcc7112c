"""The eleven kinds of kueue.x-k8s.io/v1beta1, as an overlay over those of v1beta2.

A kind that does not differ is the one of v1beta2. It is stored as v1beta2 always, and nothing in Muster reads v1beta1
but the CRD generator, the conversion and their tests.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

import msgspec

from admission.api import kueue
from admission.api.admission_checks import AdmissionCheckParametersReference
from admission.api.meta import ObjectMeta
from admission.api.names import V1BETA1_API_VERSION
from admission.api.schema import REQUIRED, Cel, Definition, Int64, Object, Schema, always
from admission.api.v1beta1_queues import ClusterQueue, LocalQueue
from admission.api.v1beta1_workloads import (
    POD_PRIORITY_CLASS_SOURCE,
    WORKLOAD_PRIORITY_CLASS_SOURCE,
    TopologyAssignment,
    TopologyDomainAssignment,
    Workload,
)

__all__ = [
    "CONVERSION_PATH",
    "CONVERTED",
    "DEPRECATION_WARNING",
    "KINDS",
    "NOT_DEPRECATED",
    "POD_PRIORITY_CLASS_SOURCE",
    "WORKLOAD_PRIORITY_CLASS_SOURCE",
    "AdmissionCheck",
    "ClusterQueue",
    "LocalQueue",
    "MultiKueueCluster",
    "MultiKueueConfig",
    "Topology",
    "TopologyAssignment",
    "TopologyDomainAssignment",
    "Workload",
]


class AdmissionCheckSpec(Object, frozen=True):
    """The retry delay is taken and dropped: nobody goes by it."""

    controller_name: Annotated[
        str,
        Schema(required=True, min_length=1, max_length=253, cel=(Cel("self == oldSelf", "field is immutable"),)),
    ] = always("")
    retry_delay_minutes: Annotated[Int64 | None, Schema(default=15)] = None
    parameters: AdmissionCheckParametersReference | None = None


class AdmissionCheck(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("AdmissionCheck")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: AdmissionCheckSpec = msgspec.field(default_factory=AdmissionCheckSpec)
    status: kueue.AdmissionCheckStatus = kueue.AdmissionCheckStatus()

    DEFINITION: ClassVar[Definition] = kueue.AdmissionCheck.DEFINITION


class TopologySpec(Object, frozen=True):
    """Levels never change."""

    levels: Annotated[
        tuple[kueue.TopologyLevel, ...],
        Schema(
            required=True,
            list_type="atomic",
            min_items=1,
            max_items=16,
            cel=(
                Cel("self.all(x, self.filter(y, y.nodeLabel == x.nodeLabel).size() == 1)", "must be unique"),
                Cel(
                    "self.filter(x, x.nodeLabel == 'kubernetes.io/hostname').size() == 0 || "
                    "self[self.size() - 1].nodeLabel == 'kubernetes.io/hostname'",
                    "the kubernetes.io/hostname label can only be used at the lowest level of topology",
                ),
                Cel("self == oldSelf", "field is immutable"),
            ),
        ),
    ] = always(())


class Topology(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("Topology")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[TopologySpec, REQUIRED] = msgspec.field(default_factory=TopologySpec)

    DEFINITION: ClassVar[Definition] = kueue.Topology.DEFINITION


class MultiKueueConfigSpec(Object, frozen=True):
    """Without a word on who manages the quota."""

    clusters: Annotated[
        tuple[Annotated[str, Schema(min_length=1, max_length=256)], ...],
        Schema(required=True, list_type="set", min_items=1, max_items=20),
    ] = always(())


class MultiKueueConfig(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("MultiKueueConfig")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: MultiKueueConfigSpec = msgspec.field(default_factory=MultiKueueConfigSpec)

    DEFINITION: ClassVar[Definition] = kueue.MultiKueueConfig.DEFINITION


class KubeConfig(Object, frozen=True):
    """With an empty location there is none: that is how clients of v1beta1 leave it out beside a cluster profile."""

    location: Annotated[str, Schema(required=True, max_length=256)] = always("")
    location_type: Annotated[str, Schema(enum=("Secret", "Path"), default="Secret")] = "Secret"


class MultiKueueClusterSpec(Object, frozen=True):
    """What v1beta2 has in `clusterSource`."""

    kube_config: KubeConfig | None = None
    cluster_profile_ref: kueue.ClusterProfileReference | None = None

    SCHEMA: ClassVar[Schema] = Schema(
        cel=(
            Cel(
                "(has(self.kubeConfig) && self.kubeConfig.location != '') != has(self.clusterProfileRef)",
                "exactly one of kubeConfig and clusterProfileRef must be set",
            ),
        )
    )


class MultiKueueCluster(Object, frozen=True):
    api_version: str = always(V1BETA1_API_VERSION)
    kind: str = always("MultiKueueCluster")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[MultiKueueClusterSpec, REQUIRED] = msgspec.field(default_factory=MultiKueueClusterSpec)
    status: kueue.MultiKueueClusterStatus = kueue.MultiKueueClusterStatus()

    DEFINITION: ClassVar[Definition] = kueue.MultiKueueCluster.DEFINITION


#: Of each kind of v1beta2, in its order, the type of v1beta1.
KINDS: Final[tuple[type[msgspec.Struct], ...]] = (
    ClusterQueue,
    kueue.Cohort,
    LocalQueue,
    kueue.ResourceFlavor,
    Workload,
    kueue.WorkloadPriorityClass,
    AdmissionCheck,
    Topology,
    kueue.ProvisioningRequestConfig,
    MultiKueueConfig,
    MultiKueueCluster,
)

#: Plurals of the kinds that a webhook converts; for the others a change of the version is all there is to it.
CONVERTED: Final = ("clusterqueues", "cohorts", "localqueues", "multikueueclusters", "workloads")

#: Where the webhook is asked to do so.
CONVERSION_PATH: Final = "/convert"

#: Who uses the old version is told so by the API server, but for these kinds.
DEPRECATION_WARNING: Final = "This version is deprecated. Use v1beta2 instead."
NOT_DEPRECATED: Final = frozenset({"MultiKueueConfig"})
