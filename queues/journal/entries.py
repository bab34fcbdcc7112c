"""What the controllers tell the journal: decisions, the present rows of the read model, and uses of quota.

Each entry is a whole, frozen value made from what the controllers know at that moment; a row replaces the row with the
same key, so only the newest one counts. Nothing here talks to a database, and nothing that decides may read it back.

Times are seconds since the epoch. Quantities are integers as in `queues.core.model` (cpu in milli-units).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from msgspec import Struct, field

from queues.core.reasons import Reason


class Kind(Enum):
    """What happened to a workload. A `GAP` is written by the journal itself, where it had to drop entries."""

    CREATED = "created"
    HELD = "held"
    RESERVED = "reserved"
    ADMITTED = "admitted"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    RELEASED = "released"
    REQUEUED = "requeued"
    DEACTIVATED = "deactivated"
    FINISHED = "finished"
    REMOVED = "removed"
    GAP = "gap"


class WorkloadState(Enum):
    """Where a live workload stands.

    `PENDING`: in its ClusterQueue's order, parked and backing-off ones included. `HELD`: kept out of the order
    (inactive, gated, on hold, without a queue). `RESERVING`: quota reserved, checks outstanding. `ADMITTED`: may run.
    An evicted workload keeps its state until its quota is given back.
    """

    PENDING = "pending"
    HELD = "held"
    RESERVING = "reserving"
    ADMITTED = "admitted"


def shortages(reason: Reason) -> list[dict[str, Any]]:
    """The numbers of a reason, as the `shortages` of a row or the facts of a decision."""
    return [
        {
            "flavor": shortage.flavor,
            "resource": shortage.resource,
            "needed": shortage.needed,
            "free": shortage.free,
            "maximum": shortage.maximum,
            "heldByBorrowers": shortage.held_by_borrowers,
        }
        for shortage in reason.shortages
    ]


# ------------------------------------------------------------------ history


class Decision(Struct, frozen=True):
    """One step in the life of a workload; append-only, kept for the retention time.

    `code` is the machine-readable reason (`Preempted`, `WaitingForQuota`, `Succeeded`, ...), `facts` what can be put
    into JSON, `cause` the uid of what made it happen (the preemptor of an eviction), empty where nothing else did.
    """

    at: float
    workload: str
    namespace: str
    name: str
    kind: Kind
    cluster_queue: str = ""
    local_queue: str = ""
    code: str = ""
    message: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    remedy: str | None = None
    cause: str = ""


# ------------------------------------------------------------------ read model


class Owner(Struct, frozen=True):
    api_version: str
    kind: str
    name: str
    uid: str


class PodSetRow(Struct, frozen=True):
    """`count` equal pods of a workload; `requests` is what one of them takes of a node.

    `closeness` is how near to each other they have to be (`required`, `preferred`, `unconstrained`, or empty: anywhere)
    and `level` the node label that this is said of. `domains` are the places that they were given: the values of
    `levels`, and how many pods go there.
    """

    name: str
    count: int
    requests: Mapping[str, int] = field(default_factory=dict)
    closeness: str = ""
    level: str = ""
    flavors: Mapping[str, str] = field(default_factory=dict)
    levels: tuple[str, ...] = ()
    domains: tuple[tuple[tuple[str, ...], int], ...] = ()


class WorkloadRow(Struct, frozen=True):
    """A workload that is not finished. Key: `uid`.

    The place in the order of `cluster_queue` (empty while its LocalQueue does not exist) comes from `sticky`,
    `effective_priority` (None: the same as `priority`), `queued_at` and `uid`, as in the queue itself. `state_since`
    is when `state` began, so that waiting times count from the last time it was queued. `owners` has the controlling
    owner first. `requests` are totals over all pods. `code`, `message`, `remedy` and `shortages` are the present
    reason; `facts` further numbers of it.
    """

    uid: str
    namespace: str
    name: str
    local_queue: str
    cluster_queue: str
    state: WorkloadState
    created_at: float
    queued_at: float
    state_since: float
    priority: int = 0
    effective_priority: int | None = None
    sticky: bool = False
    evicted: bool = False
    owners: tuple[Owner, ...] = ()
    pods: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    flavors: Mapping[str, str] = field(default_factory=dict)
    code: str = ""
    message: str = ""
    remedy: str | None = None
    shortages: tuple[Mapping[str, Any], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    pod_sets: tuple[PodSetRow, ...] = ()


class WorkloadRemoved(Struct, frozen=True):
    """It finished or was deleted."""

    uid: str


class QuotaRow(Struct, frozen=True):
    """One resource of one flavor of a ClusterQueue.

    Limits None: no limit. `reserved` is the quota held by workloads with a reservation, `admitted` the part of it by
    admitted ones, `borrowed` what of it lies above `nominal`.
    """

    flavor: str
    resource: str
    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None
    reserved: int = 0
    admitted: int = 0
    borrowed: int = 0


class QueueRow(Struct, frozen=True):
    """A ClusterQueue. Key: `name`. `reason` and `message` are those of its Active condition.

    Pending workloads are not counted here: the read model counts its workload rows, so that both always agree.
    """

    name: str
    cohort: str = ""
    strategy: str = "BestEffortFIFO"
    stop_policy: str = "None"
    active: bool = True
    reason: str = "Ready"
    message: str = ""
    quotas: tuple[QuotaRow, ...] = ()


class QueueRemoved(Struct, frozen=True):
    name: str


class LocalQueueRow(Struct, frozen=True):
    """A LocalQueue. Key: `namespace` and `name`. Its ClusterQueue need not exist.

    `past_use` comes before everything else in the order of its ClusterQueue, the least first; None where it does not
    count there.
    """

    namespace: str
    name: str
    cluster_queue: str
    active: bool = True
    reason: str = "Ready"
    message: str = ""
    past_use: float | None = None


class LocalQueueRemoved(Struct, frozen=True):
    namespace: str
    name: str


class PastUseRow(Struct, frozen=True):
    """What a LocalQueue used lately, as of `at`. Key: `namespace` and `name`.

    It survives a `Reset`, as it is read back after a restart; `uid` tells LocalQueues of one name apart. `consumed` are
    quantities.
    """

    namespace: str
    name: str
    uid: str
    at: float
    consumed: Mapping[str, str] = field(default_factory=dict)


# ------------------------------------------------------------------ what lies around the queues


class CohortRow(Struct, frozen=True):
    """A Cohort that exists as an object. Key: `name`. `quotas` are its own, beside those of its members."""

    name: str
    parent: str = ""
    quotas: tuple[QuotaRow, ...] = ()


class CohortRemoved(Struct, frozen=True):
    name: str


class FlavorRow(Struct, frozen=True):
    """A ResourceFlavor. Key: `name`. `levels` are the node labels of its Topology, the largest domain first."""

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    topology: str = ""
    levels: tuple[str, ...] = ()


class FlavorRemoved(Struct, frozen=True):
    name: str


class NodeState(Enum):
    READY = "ready"
    CORDONED = "cordoned"
    NOT_READY = "notReady"


class NodeRow(Struct, frozen=True):
    """A node. Key: `name`. `labels` are those that flavors and topologies refer to.

    `free` is what is left of `capacity` after everything that is known to hold some of it: below 0 where that is more
    than there is.
    """

    name: str
    state: NodeState = NodeState.READY
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, int] = field(default_factory=dict)
    free: Mapping[str, int] = field(default_factory=dict)


class NodeRemoved(Struct, frozen=True):
    name: str


# ------------------------------------------------------------------ usage ledger


class Amount(Struct, frozen=True):
    flavor: str
    resource: str
    amount: int


class UsageStarted(Struct, frozen=True):
    """From `at` on the workload holds exactly these amounts, until the next `UsageStarted` or `UsageEnded` of it.

    To be told when quota is reserved and whenever the amounts change (reclaimable pods). Telling the same again
    changes nothing, so it is safe after a restart.
    """

    at: float
    workload: str
    namespace: str
    name: str
    cluster_queue: str
    local_queue: str
    amounts: tuple[Amount, ...]


class UsageEnded(Struct, frozen=True):
    """The workload gave its quota back at `at`."""

    at: float
    workload: str


# ------------------------------------------------------------------ rebuild


class Reset(Struct, frozen=True):
    """The whole truth at `at`, told once the state was rebuilt after a start or a change of leader.

    Rows that are not named here go away, but for past use; open uses of workloads that are not in `usage` are closed at
    `at`. (Where the true end is known, for instance from a Finished condition, tell a `UsageEnded` first.)
    """

    at: float
    workloads: tuple[WorkloadRow, ...] = ()
    queues: tuple[QueueRow, ...] = ()
    local_queues: tuple[LocalQueueRow, ...] = ()
    past_use: tuple[PastUseRow, ...] = ()
    usage: tuple[UsageStarted, ...] = ()
    surroundings: tuple[CohortRow | FlavorRow | NodeRow, ...] = ()


Removed = WorkloadRemoved | QueueRemoved | LocalQueueRemoved | CohortRemoved | FlavorRemoved | NodeRemoved

Row = WorkloadRow | QueueRow | LocalQueueRow | PastUseRow | CohortRow | FlavorRow | NodeRow | Removed

UsageEntry = UsageStarted | UsageEnded

Entry = Decision | Row | UsageEntry | Reset
