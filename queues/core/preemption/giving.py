"""Finds out without a search that nobody could be evicted for a workload under fair sharing, where queues are flat.

It works from what each ClusterQueue would keep of its share with its least workload gone, which is remembered until the
queue holds something else. It never says that a search would be in vain where it would not.
"""

from __future__ import annotations

from typing import Final

from queues.core.books import Books
from queues.core.fairness import Measure, measure_of
from queues.core.model import FlavorResource, PreemptionPolicy
from queues.core.policy import FairSharing, FairStrategy
from queues.core.preemption.candidates import Need, holders, may_evict
from queues.core.quantities import add_up
from queues.core.records import QueueRecord

_FINAL_SHARE: Final = (FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)
_NEVER: Final = PreemptionPolicy.NEVER

#: Of a queue that has nobody to give.
_NOTHING_TO_GIVE: Final = Measure(is_unbounded=False, parts=-1)


def is_in_vain(need: Need, books: Books, rules: FairSharing) -> bool:
    """Whether its own queue does not have enough to give, and others would be left with less than it asks for.

    Cost: the workloads of the own queue and the queues of the tree.
    """
    queue, node = need.queue, need.queue.node
    if rules.strategies != _FINAL_SHARE or node.root.height != 1:
        return False
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    freed: dict[FlavorResource, int] = {}
    for record in holders(queue, need.short):
        if may_evict(policies.within_cluster_queue, need.record, record):
            add_up(freed, record.charges, 1)
    if all(need.usage.get(unit, 0) <= node.account(unit).ahead.available + freed.get(unit, 0) for unit in need.short):
        return False
    if policies.reclaim_within_cohort is _NEVER:
        return True
    return not _could_take(need, freed, _most_kept(queue, books), rules)


def _could_take(need: Need, freed: dict[FlavorResource, int], most_kept: Measure, rules: FairSharing) -> bool:
    """Whether it could evict somebody of another queue, be it with all gone whom it could evict in its own."""
    node = need.queue.node
    for unit, amount in need.usage.items():
        node.account(unit).ahead.charge(amount)
    takes_back = rules.preempt_within_nominal and node.is_within_quota(need.short)
    for unit, amount in freed.items():
        node.account(unit).ahead.release(amount)
    least = measure_of(node)
    for unit, amount in freed.items():
        node.account(unit).ahead.charge(amount)
    for unit, amount in need.usage.items():
        node.account(unit).ahead.release(amount)
    return takes_back or least <= most_kept


def _most_kept(queue: QueueRecord, books: Books) -> Measure:
    most = _NOTHING_TO_GIVE
    root = queue.node.root
    for node in root.children.values():
        other = books.queue_at.get(node)
        if other is None or other is queue:
            continue
        kept = other.keeps
        if kept is None:
            kept = other.keeps = kept_by(other)
        most = max(most, kept)
    return most


def kept_by(queue: QueueRecord) -> Measure:
    """The largest share that the queue could be left with when one of its workloads goes."""
    least: dict[FlavorResource, int] | None = None
    for record in queue.holding.values():
        if record.evicted:
            continue
        charges = record.charges
        if least is None:
            least = dict(charges)
        else:
            least = {unit: min(amount, charges.get(unit, 0)) for unit, amount in least.items()}
    if least is None:
        return _NOTHING_TO_GIVE
    accounts = [(queue.node.account(unit).ahead, amount) for unit, amount in least.items()]
    for account, amount in accounts:
        account.release(amount)
    kept = measure_of(queue.node)
    for account, amount in accounts:
        account.charge(amount)
    return kept
