"""Finds out without a search that nobody could be evicted for a workload under fair sharing, where queues are flat.

It works from what each ClusterQueue would keep of its share with its least workload gone. It never says that a search
would be in vain where it would not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from queues.core.books import Books
from queues.core.borrowers import NOTHING_TO_GIVE, is_ranked
from queues.core.fairness import Measure, measure_of
from queues.core.model import FlavorResource, PreemptionPolicy
from queues.core.policy import FairSharing, FairStrategy
from queues.core.preemption.candidates import Need, holders, may_evict
from queues.core.quantities import add_up, fits
from queues.core.tree import Node

_FINAL_SHARE: Final = (FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
_NEVER: Final = PreemptionPolicy.NEVER


class Standing(NamedTuple):
    """What a preemptor could do at best.

    `freed` is what it could evict in its own queue. It evicts others only if these keep at least `share`, which is what
    its own queue would have with the request and without all of these; None: others never.
    """

    freed: dict[FlavorResource, int]
    share: Measure | None


def is_plain(root: Node, rules: FairSharing) -> bool:
    """Whether others have to give only what leaves them with no less than the preemptor, and queues are flat."""
    return rules.strategies == _FINAL_SHARE and is_ranked(root)


def standing_of(need: Need, rules: FairSharing) -> Standing:
    """Cost: the workloads of the own queue."""
    queue, node = need.queue, need.queue.node
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    freed: dict[FlavorResource, int] = {}
    if policies.within_cluster_queue is not _NEVER:
        for record in holders(queue, need.short):
            if may_evict(policies.within_cluster_queue, need.record, record):
                add_up(freed, record.charges, 1)
    if policies.reclaim_within_cohort is _NEVER:
        return Standing(freed, None)
    accounts = [(node.account(unit).ahead, amount) for unit, amount in need.usage.items()]
    for account, amount in accounts:
        account.charge(amount)
    takes_back = rules.preempt_within_nominal and node.is_within_quota(need.short)
    for unit, amount in freed.items():
        node.account(unit).ahead.release(amount)
    share = NOTHING_TO_GIVE if takes_back else measure_of(node)
    for unit, amount in freed.items():
        node.account(unit).ahead.charge(amount)
    for account, amount in accounts:
        account.release(amount)
    return Standing(freed, share)


def is_in_vain(need: Need, books: Books, rules: FairSharing) -> bool:
    """Whether its own queue does not have enough to give, and others would be left with less than it asks for.

    Cost: the workloads of the own queue, and the queues that changed since the last time.
    """
    node = need.queue.node
    if not is_plain(node.root, rules):
        return False
    freed, share = standing_of(need, rules)
    is_enough = True
    for unit in need.short:
        account = node.account(unit).ahead
        amount = need.usage.get(unit, 0) - freed.get(unit, 0)
        if amount > account.available:
            is_enough = False
            if not fits(account.usage + amount, account.potential):
                return True  # it may not borrow so much, whoever goes
    if is_enough:
        return False
    return share is None or share > books.borrowers.below(node.root).most_kept
