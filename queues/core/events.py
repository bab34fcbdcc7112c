"""What can happen to the state: the only way in is `State.apply(event)`.

Each event carries the whole new value of one object, so that applying it twice changes nothing and a missed one is
mended by the next. `Gone` events carry the key alone. Nothing here looks at the state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from queues.core.model import (
    AdmissionCheck,
    CheckName,
    ClusterQueue,
    ClusterQueueName,
    Cohort,
    CohortName,
    FlavorName,
    LocalQueue,
    Namespace,
    NamespaceName,
    Node,
    NodeName,
    ObjectKey,
    ResourceFlavor,
    ResourceName,
    Size,
    Timestamp,
    Topology,
    TopologyName,
    Uid,
    Workload,
)


@dataclass(frozen=True, slots=True)
class FlavorChanged:
    flavor: ResourceFlavor


@dataclass(frozen=True, slots=True)
class FlavorGone:
    name: FlavorName


@dataclass(frozen=True, slots=True)
class ClusterQueueChanged:
    queue: ClusterQueue


@dataclass(frozen=True, slots=True)
class ClusterQueueGone:
    name: ClusterQueueName


@dataclass(frozen=True, slots=True)
class CohortChanged:
    cohort: Cohort


@dataclass(frozen=True, slots=True)
class CohortGone:
    name: CohortName


@dataclass(frozen=True, slots=True)
class LocalQueueChanged:
    queue: LocalQueue


@dataclass(frozen=True, slots=True)
class LocalQueueGone:
    key: ObjectKey


@dataclass(frozen=True, slots=True)
class UsageRestored:
    """What a LocalQueue had used lately as of `at`, as it was written down before a restart.

    In the core's units, and parts of them. It has to be told before the first decision; of several the newest counts.
    """

    key: ObjectKey
    consumed: Mapping[ResourceName, Fraction]
    at: Timestamp


@dataclass(frozen=True, slots=True)
class NamespaceChanged:
    namespace: Namespace


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: NamespaceName


@dataclass(frozen=True, slots=True)
class CheckChanged:
    check: AdmissionCheck


@dataclass(frozen=True, slots=True)
class CheckGone:
    name: CheckName


@dataclass(frozen=True, slots=True)
class TopologyChanged:
    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyGone:
    name: TopologyName


@dataclass(frozen=True, slots=True)
class NodeChanged:
    node: Node


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: NodeName


@dataclass(frozen=True, slots=True)
class PodPlaced:
    """A pod that no topology assignment accounts for occupies a node (bound and not ended)."""

    uid: Uid
    node: NodeName
    requests: Mapping[ResourceName, int]


@dataclass(frozen=True, slots=True)
class PodGone:
    """That pod ended or was deleted."""

    uid: Uid


@dataclass(frozen=True, slots=True)
class WorkloadChanged:
    """A workload arrived or changed. With `admission` set it holds that quota, whoever decided it."""

    workload: Workload


@dataclass(frozen=True, slots=True)
class WorkloadGone:
    """A workload finished or was deleted: it holds nothing and waits for nothing."""

    uid: Uid


@dataclass(frozen=True, slots=True)
class WriteRefused:
    """A decision about this workload could not be written: forget it and decide again from the last known object."""

    uid: Uid


@dataclass(frozen=True, slots=True)
class PodsReadyChanged:
    """Whether all pods of an admitted workload are ready (only told when admission may block on it)."""

    uid: Uid
    ready: bool


@dataclass(frozen=True, slots=True)
class SizesRemembered:
    """What was started on a flavor before everything that is known otherwise, and how many of each; oldest first.

    Told once, after the start: a second word on a flavor changes nothing.
    """

    flavor: FlavorName
    sizes: tuple[tuple[Size, int], ...]


Event = (
    FlavorChanged
    | FlavorGone
    | ClusterQueueChanged
    | ClusterQueueGone
    | CohortChanged
    | CohortGone
    | LocalQueueChanged
    | LocalQueueGone
    | UsageRestored
    | NamespaceChanged
    | NamespaceGone
    | CheckChanged
    | CheckGone
    | TopologyChanged
    | TopologyGone
    | NodeChanged
    | NodeGone
    | PodPlaced
    | PodGone
    | WorkloadChanged
    | WorkloadGone
    | WriteRefused
    | PodsReadyChanged
    | SizesRemembered
)
