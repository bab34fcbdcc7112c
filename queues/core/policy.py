"""The settings that `decide` takes: policies that choose a rule at its edge, and the budget of one call.

Plain values; the shell makes them from the configuration. Nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from queues.core.model import ResourceName


class QuotaCheck(Enum):
    """What happens to a requested resource that no resource group of the queue covers."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


class FairStrategy(Enum):
    """When preemption between queues makes shares more equal: by what the victim's side has left, or had before."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


@dataclass(frozen=True, slots=True)
class FairSharing:
    """`strategies` are tried in this order. The other two are Kueue's feature gates of these names, both on there."""

    strategies: tuple[FairStrategy, ...] = (FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
    prioritize_non_borrowing: bool = True
    preempt_within_nominal: bool = True


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """How past use is remembered: with this half-life (0: not at all), sampled this often, both in seconds.

    `resource_weights` are for one whole unit (a core, a byte, a device); those that are not named weigh 1.
    `across_cohorts`: whoever used least goes first among the ClusterQueues of a cohort tree as well.
    """

    half_life: float
    sampling_interval: float = 300.0
    resource_weights: tuple[tuple[ResourceName, Fraction], ...] = ()
    across_cohorts: bool = False


@dataclass(frozen=True, slots=True)
class DomainReservation:
    """A workload without a place for `after` seconds has a domain kept for it, for at most `lasting` seconds."""

    after: float
    lasting: float


@dataclass(frozen=True, slots=True)
class TopologyRules:
    """Kueue's feature gates of these names, and Muster's `reservation` of domains (None: never).

    `is_balanced`: TASBalancedPlacement. `respects_preferences`: TASRespectNodeAffinityPreferred. `fails_fast`:
    TASFailedNodeReplacementFailFast, without which pods of a failed node wait for another one. `mixes_profiles`:
    TASProfileMixed, without which everything is placed as BestFit.
    """

    is_balanced: bool = False
    respects_preferences: bool = False
    fails_fast: bool = True
    mixes_profiles: bool = True
    reservation: DomainReservation | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """`fair_sharing` None: the classical rules. `admission_fair_sharing` None: past use does not count.

    `max_rounds` bounds the cycles that one `decide` repeats in memory before it lets its caller write.
    """

    quota_check: QuotaCheck = QuotaCheck.BLOCK_UNDECLARED
    priority_sorting_within_cohort: bool = True
    partial_admission: bool = True
    flavor_fungibility: bool = True
    block_admission_until_pods_ready: bool = False
    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    topology: TopologyRules = TopologyRules()
    max_rounds: int = 10_000
