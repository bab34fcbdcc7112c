"""Why a workload waits, moves or goes: an enum, the facts with their numbers, and what would help.

A `Reason` is data. Its words are made here, in one place, so that conditions, events, the journal and the pages say
the same; nothing ever parses them. This module never decides anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from queues.core.model import FlavorName, ResourceName


class Code(Enum):
    """Kueue's machine-readable reasons of `QuotaReserved=False`, as `kueue-contract` lists them."""

    NO_MATCHING_FLAVOR = "NoMatchingFlavor"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
    TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
    WAITING_FOR_PREEMPTED_WORKLOADS = "WaitingForPreemptedWorkloads"
    WAITING_FOR_PODS_READY = "WaitingForPodsReady"
    MISCONFIGURED = "Misconfigured"
    SUSPENDED = "Suspended"
    PENDING_EVALUATION = "PendingEvaluation"


class Preempted(Enum):
    """Why a victim has to go: the reason of the `Preempted` condition."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True)
class Shortage:
    """One resource of one flavor that does not suffice; quantities as in `model`.

    `needed` is what the workload asks for, `free` what it could take now, `maximum` the most that it could ever have
    there, `held_by_borrowers` what others borrow and preemption may not take back for this workload.
    """

    flavor: FlavorName
    resource: ResourceName
    needed: int
    free: int
    maximum: int
    held_by_borrowers: int = 0


@dataclass(frozen=True, slots=True)
class Near:
    """A topology domain that takes some of the pods: `fits` of the `wanted` ones.

    `level` is the node label of its level, `path` its labels' values from the topology's root down; `missing` is what
    the other pods take of nodes. Quantities as in `model`.
    """

    level: str
    path: tuple[str, ...]
    fits: int
    wanted: int
    missing: tuple[tuple[ResourceName, int], ...]


@dataclass(frozen=True, slots=True)
class Reason:
    """`message` says the facts in words; `shortages` are the numbers; `remedy` the smallest change that would help.

    `is_preemption_gated`: it would start by evicting others, which its preemption gates do not allow. `closest` are the
    domains that come closest to taking pods that have no place, the closest first.
    """

    code: Code
    message: str
    shortages: tuple[Shortage, ...] = ()
    remedy: str | None = None
    is_preemption_gated: bool = False
    closest: tuple[Near, ...] = ()
