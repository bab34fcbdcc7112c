"""The settings that `decide` takes: policies that choose a rule at its edge, and the budget of one call.

Plain values; the shell makes them from the configuration. Nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class QuotaCheck(Enum):
    """What happens to a requested resource that no resource group of the queue covers."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


@dataclass(frozen=True, slots=True)
class Policy:
    """`max_rounds` bounds the cycles that one `decide` repeats in memory before it lets its caller write."""

    quota_check: QuotaCheck = QuotaCheck.BLOCK_UNDECLARED
    priority_sorting_within_cohort: bool = True
    partial_admission: bool = True
    block_admission_until_pods_ready: bool = False
    max_rounds: int = 10_000
