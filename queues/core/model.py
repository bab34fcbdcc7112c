"""The frozen values that the core decides on: flavors, queues, cohorts, topologies, nodes and workloads.

They are made from cluster objects by the shell (`admission.controllers.observe`) and enter through events only.
Quantities are exact integers: cpu in milli-units, everything else in whole base units. This module computes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, NewType

ClusterQueueName = NewType("ClusterQueueName", str)
CohortName = NewType("CohortName", str)
FlavorName = NewType("FlavorName", str)
ResourceName = NewType("ResourceName", str)
TopologyName = NewType("TopologyName", str)
CheckName = NewType("CheckName", str)
NodeName = NewType("NodeName", str)
NamespaceName = NewType("NamespaceName", str)
Uid = NewType("Uid", str)

#: Seconds since the epoch. Comes in with events and `now`; the core never reads a clock.
Timestamp = float

#: A quota at or above this is unlimited: adding to it or taking from it changes nothing (`quantities`).
UNLIMITED = 2**63 - 1

POD_UNITS = ResourceName("pods")
HOSTNAME_LABEL = "kubernetes.io/hostname"


class ObjectKey(NamedTuple):
    """Namespace and name of a namespaced object (a LocalQueue or a Workload)."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class FlavorResource(NamedTuple):
    """The unit of quota: one resource of one flavor."""

    flavor: FlavorName
    resource: ResourceName


#: What a workload takes or a queue holds, per flavor and resource. Missing means zero.
Usage = Mapping[FlavorResource, int]


# ------------------------------------------------------------------ scheduling shape


class Operator(Enum):
    """Of a label selector or node affinity expression."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GT = "Gt"
    LT = "Lt"


@dataclass(frozen=True, slots=True)
class Expression:
    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All labels and all expressions have to match; an empty selector matches everything."""

    labels: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """Empty `key` with `Exists` tolerates every taint; empty `effect` every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class TopologyRequest:
    """How close together the pods of a pod set have to be. At most one of the first three is set.

    `inner_slices` divide the slices further: (level, size) from the outside in.
    """

    required: str | None = None
    preferred: str | None = None
    unconstrained: bool = False
    pod_set_group: str | None = None
    slice_required: str | None = None
    slice_size: int | None = None
    inner_slices: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PodSet:
    """`count` equal pods.

    `requests` is what quota charges for one pod (transformed, excluded prefixes dropped); `node_requests` what one pod
    takes from a node (the raw pod spec). `shared` is charged once, however many pods there are: what they use together.
    `affinity` is the required node affinity: terms are ORed, the expressions of a term ANDed. `preferences` are the
    terms of the preferred one with their weights.
    """

    name: str
    count: int
    requests: Mapping[ResourceName, int]
    node_requests: Mapping[ResourceName, int] = field(default_factory=dict)
    min_count: int | None = None
    reclaimable: int = 0
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[tuple[Expression, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyRequest | None = None
    shared: Mapping[ResourceName, int] = field(default_factory=dict)
    preferences: tuple[tuple[int, tuple[Expression, ...]], ...] = ()


# ------------------------------------------------------------------ quota


@dataclass(frozen=True, slots=True)
class Quota:
    """`borrowing_limit` None: no limit. `lending_limit` None: everything may be lent."""

    nominal: int = 0
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    flavor: FlavorName
    quotas: Mapping[ResourceName, Quota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that always come from the same flavor; `flavors` in the order in which they are tried."""

    resources: tuple[ResourceName, ...]
    flavors: tuple[FlavorQuotas, ...]


class Packing(Enum):
    """Where on a flavor's nodes pods go, where their request leaves a choice.

    `PACK` as closely as may be, in Kueue's order; `SPREAD` as evenly as may be; `FRAGMENTATION_AWARE` keeps room for
    the sizes that are known to come.
    """

    PACK = "Pack"
    SPREAD = "Spread"
    FRAGMENTATION_AWARE = "FragmentationAware"


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    name: FlavorName
    node_labels: tuple[tuple[str, str], ...] = ()
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology: TopologyName | None = None
    packing: Packing = Packing.PACK


class QueueingStrategy(Enum):
    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(Enum):
    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class PreemptionPolicy(Enum):
    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"
    ANY = "Any"


@dataclass(frozen=True, slots=True)
class Preemption:
    """`borrow_within_cohort` is Never or LowerPriority; the threshold is the highest priority it may evict."""

    within_cluster_queue: PreemptionPolicy = PreemptionPolicy.NEVER
    reclaim_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    borrow_within_cohort: PreemptionPolicy = PreemptionPolicy.NEVER
    max_priority_threshold: int | None = None


class FungibilityPolicy(Enum):
    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FungibilityPreference(Enum):
    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


@dataclass(frozen=True, slots=True)
class Fungibility:
    when_can_borrow: FungibilityPolicy = FungibilityPolicy.MAY_STOP_SEARCH
    when_can_preempt: FungibilityPolicy = FungibilityPolicy.TRY_NEXT_FLAVOR
    preference: FungibilityPreference = FungibilityPreference.BORROWING_OVER_PREEMPTION


@dataclass(frozen=True, slots=True)
class CheckRule:
    """An admission check of a queue; no flavors means all of them."""

    name: CheckName
    on_flavors: frozenset[FlavorName] = frozenset()


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    name: CheckName
    controller: str
    active: bool


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """`namespace_selector` None matches no namespace. `fair_weight` is in thousandths (1000 = weight 1).

    `usage_based`: its LocalQueues take turns by what they used lately.
    """

    name: ClusterQueueName
    groups: tuple[ResourceGroup, ...] = ()
    cohort: CohortName | None = None
    strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    namespace_selector: LabelSelector | None = LabelSelector()
    preemption: Preemption = Preemption()
    fungibility: Fungibility = Fungibility()
    checks: tuple[CheckRule, ...] = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: int = 1000
    usage_based: bool = False
    terminating: bool = False


@dataclass(frozen=True, slots=True)
class Cohort:
    """Cohorts that are only named exist too, without quota and parent."""

    name: CohortName
    parent: CohortName | None = None
    groups: tuple[ResourceGroup, ...] = ()
    fair_weight: int = 1000


@dataclass(frozen=True, slots=True)
class LocalQueue:
    key: ObjectKey
    cluster_queue: ClusterQueueName
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight: int = 1000


@dataclass(frozen=True, slots=True)
class Namespace:
    name: NamespaceName
    labels: Mapping[str, str]


# ------------------------------------------------------------------ topology


@dataclass(frozen=True, slots=True)
class Topology:
    """`levels` are node label keys from the root (largest domain) to the leaf."""

    name: TopologyName
    levels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """`allocatable` includes `pods`. A node that is not ready or is cordoned takes no pods.

    `devices`: over how many devices a shared resource lies, in equal parts. What a pod asks of one sits on a single
    device, or takes several whole ones; a resource that is not named here is one pool.
    """

    name: NodeName
    labels: Mapping[str, str]
    allocatable: Mapping[ResourceName, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    unschedulable: bool = False
    devices: Mapping[ResourceName, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Size:
    """What may come: `pods` of `requests` each (what one takes of a node, sorted), on the nodes that they may use.

    With a `level` they have to be together in one of its domains; without one each goes anywhere.
    """

    requests: tuple[tuple[ResourceName, int], ...]
    pods: int = 1
    level: str | None = None
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[tuple[Expression, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class TopologyDomain:
    """`count` pods in the domain whose label values are `values`, one for each of the assignment's levels."""

    values: tuple[str, ...]
    count: int


@dataclass(frozen=True, slots=True)
class TopologyAssignment:
    """Where the pods of a pod set go; domains are sorted by their values.

    When the lowest level is the hostname, `levels` is that level alone.
    """

    levels: tuple[str, ...]
    domains: tuple[TopologyDomain, ...]


# ------------------------------------------------------------------ workloads


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """`usage` is the total for `count` pods, as charged at admission.

    `is_delayed`: the pods go by topology, but where is only decided once the checks of the admission are ready.
    """

    name: str
    count: int
    flavors: Mapping[ResourceName, FlavorName]
    usage: Mapping[ResourceName, int]
    topology: TopologyAssignment | None = None
    is_delayed: bool = False


@dataclass(frozen=True, slots=True)
class Admission:
    """The quota that a workload holds. `reserved_at` orders preemption victims (latest first)."""

    cluster_queue: ClusterQueueName
    pod_sets: tuple[PodSetAssignment, ...]
    reserved_at: Timestamp
    admitted: bool = False


@dataclass(frozen=True, slots=True)
class Workload:
    """A gang as the queues see it.

    `queued_at` orders it among equals (creation, or the eviction for some causes). `eligible_at` is when its back-off
    ends (0: now). `held` names why the shell keeps it out of the queue (inactive, gated, on hold, replacement pods
    missing, checks failed), `misconfigured` what only an edit can mend (for instance a LimitRange violation); None
    means neither. `preemption_gates` are the closed ones: while there are any, it may not evict others. `admission` is
    what it holds; while `evicted` it goes on holding it until the shell says otherwise. `failed_hosts` are those of
    its assignment whose pods need another one; `is_to_be_placed`: its delayed pod sets can get their topology now.
    `generation` changes when the spec does.
    """

    uid: Uid
    key: ObjectKey
    queue: ObjectKey
    pod_sets: tuple[PodSet, ...]
    priority: int = 0
    created_at: Timestamp = 0.0
    queued_at: Timestamp = 0.0
    eligible_at: Timestamp = 0.0
    held: str | None = None
    misconfigured: str | None = None
    preemption_gates: tuple[str, ...] = ()
    admission: Admission | None = None
    evicted: bool = False
    failed_hosts: tuple[str, ...] = ()
    is_to_be_placed: bool = False
    generation: int = 0
    job_uid: str = ""
