"""Says what has to be given back before a workload that was judged in vain could do better than wait.

It works from the accounts that were too low for it, and from what preemption could add. Where it cannot tell it says
so, and then everything that is given back in the tree counts; it never says that less would help than does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from queues.core.accounts import Account, Ceiling
from queues.core.demand import counts_of
from queues.core.fairness import Measure
from queues.core.flavors import Assignment, Lack
from queues.core.model import FlavorResource, PreemptionPolicy
from queues.core.partial import can_be_reduced
from queues.core.records import QueueRecord, WorkloadRecord

_NEVER: Final = PreemptionPolicy.NEVER

#: What preemption could add for so much of a unit, and what would change that; None: anything could.
Prospects = Callable[[WorkloadRecord, QueueRecord, FlavorResource, int], "Prospect | None"]


@dataclass(frozen=True, slots=True)
class Prospect:
    """`own` can be had from the own queue. Where one of `turns` is kept, others could be had from as well.

    So could they once somebody in the tree who gives keeps that `share`; None: not by that.
    """

    own: int
    turns: tuple[Ceiling, ...]
    share: Measure | None = None


@dataclass(frozen=True, slots=True)
class Lacks:
    """The workload is looked at again once the usage of one of these accounts is no more than that.

    And once somebody in the tree would keep that `share` after giving something (None: that is no matter). `asks` is
    what it would take of the only flavor that there is for it; None where there are several. `may_evict`: what starts
    in its own queue meanwhile may be evicted for it, and so is as good as free.
    """

    ceilings: tuple[Ceiling, ...]
    asks: tuple[tuple[Account, int], ...] | None
    may_evict: bool
    share: Measure | None = None


def lacks_of(record: WorkloadRecord, queue: QueueRecord, assignment: Assignment, prospects: Prospects) -> Lacks | None:
    """None: anything that is given back may help. Cost: the height of the tree for each account that was too low."""
    workload = record.workload
    assert queue.spec is not None  # noqa: S101
    if (
        len(assignment.searches) != 1
        or assignment.watches_nodes
        or queue.order.is_strict
        or can_be_reduced(workload.pod_sets, counts_of(workload))
    ):
        return None
    rules = queue.spec.preemption
    may_evict = rules.within_cluster_queue is not _NEVER or rules.reclaim_within_cohort is not _NEVER
    ceilings: list[Ceiling] = []
    share: Measure | None = None
    for lack in assignment.lacking:
        prospect = prospects(record, queue, lack.unit, lack.amount) if may_evict else None
        if may_evict and prospect is None:
            return None
        found = _without(lack) if prospect is None else _with_preemption(lack, prospect)
        if not found or any(account.usage <= most for account, most in found):
            return None
        ceilings += found
        if prospect is not None and prospect.share is not None:
            share = prospect.share if share is None else min(share, prospect.share)
    return Lacks(tuple(ceilings), assignment.searches[0].only_choice(), may_evict, share) if ceilings else None


def _without(lack: Lack) -> list[Ceiling]:
    """Free now and looking ahead: one that is missing is enough to watch."""
    return lack.account.ceilings_for(lack.amount) or lack.account.ahead.ceilings_for(lack.amount)


def _with_preemption(lack: Lack, prospect: Prospect) -> list[Ceiling] | None:
    missing = lack.account.ahead.ceilings_for(lack.amount - prospect.own)
    return [*missing, *prospect.turns] if missing else None
