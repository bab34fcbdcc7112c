"""What the state remembers of each workload and each queue between two calls.

These are the only mutable records of the core; they are changed by `state`, `books` and `cycle` and read by everybody
else. They hold no rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from queues.core.accounts import Account
from queues.core.demand import Placed, Shape
from queues.core.model import (
    Admission,
    ClusterQueue,
    ClusterQueueName,
    FlavorName,
    FlavorResource,
    LocalQueue,
    ObjectKey,
    PodSetAssignment,
    ResourceName,
    Uid,
    Workload,
)
from queues.core.reasons import Reason
from queues.core.tree import Node
from queues.core.usage_history import NO_USE, History

if TYPE_CHECKING:
    from queues.core.order import Group, PendingQueue
    from queues.core.past import Sample

#: The total order of pending workloads in a queue; ends in the uid.
OrderKey = tuple[int, int, float, Uid]


class Stage(Enum):
    """Where a workload is. Exactly one of these at any time."""

    #: It holds quota: admitted, reserving, or evicted and not yet released.
    HOLDING = auto()
    #: It waits in the order of its ClusterQueue, as candidate or parked.
    QUEUED = auto()
    #: It waits for its own time to come.
    BACKING_OFF = auto()
    #: Something that is not quota keeps it out of the order; `reason` says what.
    BARRED = auto()
    #: The shell keeps it out and says so itself.
    HELD = auto()


#: Bound once, for these are asked for with every event: see `fungibility`.
HOLDING, QUEUED, BACKING_OFF, BARRED, HELD = Stage

#: Shared by all that have none, for there are many of them: what a record has is replaced, and never changed in place.
NO_CHARGES: Final[dict[FlavorResource, int]] = {}
NO_PROGRESS: Final[dict[tuple[int, int], int]] = {}


class WorkloadRecord:
    """`workload` is the last that the shell told; `admission` and `evicted` include what was decided since.

    `reason` is its own; without one it shares that of its group. `told` is the reason last given to the shell.
    """

    __slots__ = (
        "admission", "charges", "claim", "claimed_by", "entry", "evicted", "group", "holder", "home", "key", "placed",
        "progress", "queue", "ready", "reason", "shape", "stage", "told", "uid", "workload",
    )  # fmt: skip

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.uid = workload.uid
        self.stage = HELD
        self.admission: Admission | None = None
        self.evicted = False
        self.ready = False
        #: What it is charged in `holder`, and what it takes of nodes, as charged.
        self.charges: dict[FlavorResource, int] = NO_CHARGES
        self.placed: tuple[tuple[FlavorName, Placed], ...] = ()
        self.holder: QueueRecord | None = None
        #: The ClusterQueue that it waits in, and the LocalQueue that counts it.
        self.queue: QueueRecord | None = None
        self.home: LocalQueueRecord | None = None
        self.key: OrderKey = (0, 0, 0.0, workload.uid)
        #: How often it was put into a group.
        self.entry = 0
        self.shape: Shape = ()
        self.group: Group | None = None
        self.progress: dict[tuple[int, int], int] = NO_PROGRESS
        self.reason: Reason | None = None
        self.told: Reason | None = None
        self.claim: Claim | None = None
        self.claimed_by: Claim | None = None

    @property
    def priority(self) -> int:
        return self.workload.priority


class Claim:
    """What a workload waits for: quota that others were evicted for, or places alone where it holds quota already.

    Looking ahead, the victims are gone and `usage` is taken, so that nobody else gets what they give back. `is_first`:
    others were evicted for this workload itself, so it also goes before whoever would come first in its queue.
    """

    __slots__ = ("assignments", "is_first", "placed", "record", "usage", "victims")

    def __init__(
        self,
        record: WorkloadRecord,
        assignments: tuple[PodSetAssignment, ...],
        usage: dict[FlavorResource, int],
        victims: dict[Uid, WorkloadRecord],
    ) -> None:
        self.record = record
        self.assignments = assignments
        self.usage = usage
        self.victims = victims
        self.is_first = bool(victims)
        self.placed: tuple[tuple[FlavorName, Placed], ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """The head of a StrictFIFO queue that waits without victims.

    In each cycle it stands in line and keeps those behind it from taking what it waits for; `level` is how far up it
    would have to borrow.
    """

    record: WorkloadRecord
    level: int
    usage: Mapping[FlavorResource, int]


@dataclass(slots=True)
class Option:
    """One flavor of a resource group, with the queue's account for each resource."""

    flavor: FlavorName
    accounts: dict[ResourceName, Account]
    units: dict[ResourceName, FlavorResource]


@dataclass(slots=True)
class OptionGroup:
    """`resources`: those that no earlier group has."""

    resources: tuple[ResourceName, ...]
    options: list[Option]


@dataclass(slots=True)
class Options:
    """All that a queue offers. `counts_pods`: pods are one of its resources."""

    groups: list[OptionGroup]
    counts_pods: bool


@dataclass(frozen=True, slots=True)
class Activity:
    """Whether a queue takes part, with Kueue's reason and message of its condition `Active`."""

    active: bool
    reason: str
    message: str


class QueueRecord:
    """A ClusterQueue. `spec` is None while only workloads or LocalQueues speak of it."""

    __slots__ = (
        "activity", "admitted", "admitted_count", "claimants", "holding", "homes", "is_active", "is_topology_only",
        "name", "node", "options", "order", "pending", "reserved", "spec", "standing",
    )  # fmt: skip

    def __init__(self, name: ClusterQueueName, node: Node, order: PendingQueue) -> None:
        self.name = name
        self.spec: ClusterQueue | None = None
        self.node = node
        self.order = order
        #: Changed by `take_activity` only, as is `is_active`, which is asked for with every event.
        self.activity = Activity(active=False, reason="NotFound", message=f"ClusterQueue {name} not found")
        self.is_active = False
        #: The resource groups with accounts; None until they are looked up in the settled tree.
        self.options: Options | None = None
        self.is_topology_only = False
        #: The LocalQueues that point here.
        self.homes: dict[ObjectKey, LocalQueueRecord] = {}
        self.holding: dict[Uid, WorkloadRecord] = {}
        #: All that wait here, in whatever stage.
        self.pending: dict[Uid, WorkloadRecord] = {}
        #: Those of `pending` that wait for victims.
        self.claimants: dict[Uid, WorkloadRecord] = {}
        self.standing: Standing | None = None
        self.reserved: dict[FlavorResource, int] = {}
        self.admitted: dict[FlavorResource, int] = {}
        self.admitted_count = 0

    def take_activity(self, activity: Activity) -> None:
        self.activity = activity
        self.is_active = activity.active


class LocalQueueRecord:
    """A LocalQueue. `spec` is None while only workloads speak of it."""

    __slots__ = (
        "admitted", "admitted_count", "history", "key", "level", "pending", "reserved", "reserving_count", "sample",
        "spec", "used", "workloads",
    )  # fmt: skip

    def __init__(self, key: ObjectKey) -> None:
        self.key = key
        self.spec: LocalQueue | None = None
        self.workloads: dict[Uid, WorkloadRecord] = {}
        self.pending = 0
        self.reserved: dict[FlavorResource, int] = {}
        self.admitted: dict[FlavorResource, int] = {}
        self.reserving_count = 0
        self.admitted_count = 0
        #: What it used lately; None where that makes no difference. `level` is its place among the others by it.
        self.history: History | None = None
        self.level = NO_USE
        self.used = Fraction(0)
        self.sample: Sample | None = None


def labels_of(namespaces: Mapping[str, Mapping[str, str]], name: str) -> Mapping[str, str]:
    """A namespace that is not known (yet) has the one label that every namespace has."""
    return namespaces.get(name) or {"kubernetes.io/metadata.name": name}
