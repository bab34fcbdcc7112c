"""Finds out without a search that nobody could be evicted for a workload under fair sharing, where queues are flat.

It works from what each ClusterQueue would keep of its share with its least workload gone. It never says that a search
would be in vain where it would not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from queues.core.books import Books
from queues.core.borrowers import NOTHING_TO_GIVE, Ranking, is_ranked
from queues.core.fairness import Measure, least_with, measure_of
from queues.core.lacks import Prospect
from queues.core.model import UNLIMITED, FlavorResource, PreemptionPolicy
from queues.core.policy import FairSharing, FairStrategy
from queues.core.preemption.candidates import Need, holders, may_evict, who_may_go
from queues.core.quantities import add_up, fits
from queues.core.records import QueueRecord, WorkloadRecord
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
    missing: dict[FlavorResource, int] = {}
    for unit in need.short:
        account = node.account(unit).ahead
        amount = need.usage.get(unit, 0) - freed.get(unit, 0)
        available = account.available
        if amount > available:
            missing[unit] = amount - available
            if not fits(account.usage + amount, account.potential):
                return True  # it may not borrow so much, whoever goes
    if not missing:
        return False
    return share is None or not _could_give(need, missing, share, books.borrowers.below(node.root))


def prospect(
    record: WorkloadRecord, queue: QueueRecord, unit: FlavorResource, amount: int, rules: FairSharing
) -> Prospect | None:
    """What preemption could add where it was tried in vain; None where queues are not flat, or that can be anything.

    What the queue would have with the request falls only when it uses less itself. Cost: the workloads of the own
    queue.
    """
    node = queue.node
    if not is_plain(node.root, rules):
        return None
    freed, share = standing_of(Need(record, queue, {unit: amount}, frozenset((unit,)), _anywhere), rules)
    own = freed.get(unit, 0)
    account = node.account(unit).ahead
    if amount - own <= account.available:
        return None
    if not fits(account.usage + amount - own, account.potential):
        share = None
    turns = [(each.ahead, each.ahead.usage - 1) for each in node.accounts.values() if each.ahead.usage > 0]
    return Prospect(own, tuple(turns), share)


def _anywhere() -> bool:
    return True


def _could_give(need: Need, missing: dict[FlavorResource, int], share: Measure, ranking: Ranking) -> bool:
    """Whether all others together have so much that they could give.

    Whoever has as much as the preemptor's own queue gives before that does, and has to keep as much; whoever has less,
    once the own queue has come down to that. Cost: the workloads of the own queue, and the queues with larger shares.
    """
    if share > ranking.most_kept:
        return False
    if share == NOTHING_TO_GIVE:
        return True
    left = dict(missing)
    steps = _own_steps(need)
    step = 0
    for one in reversed(ranking.by_share):
        while one.share < steps[step]:
            step += 1
            if step == len(steps):
                return False
        if one.queue is need.queue or one.keeps < steps[step]:
            continue
        for unit in missing:
            left[unit] -= could_give(one.queue.node, unit, steps[step])
        if max(left.values()) <= 0:
            return True
    return False


def _own_steps(need: Need) -> list[Measure]:
    """The share of the own queue with the request, and after each of its own workloads that has to go, in turn."""
    node, freed = need.queue.node, who_may_go(need.queue, need)
    for unit, amount in need.usage.items():
        node.account(unit).ahead.charge(amount)
    steps = [measure_of(node)]
    for record in freed:
        for unit, amount in record.charges.items():
            node.account(unit).ahead.release(amount)
        steps.append(measure_of(node))
    for record in freed:
        for unit, amount in record.charges.items():
            node.account(unit).ahead.charge(amount)
    for unit, amount in need.usage.items():
        node.account(unit).ahead.release(amount)
    return steps


def could_give(node: Node, unit: FlavorResource, share: Measure) -> int:
    """At most so much of the unit goes before the node's share is below this one.

    Where it borrows one resource alone, that has to stay large enough.
    """
    account = node.accounts.get(unit)
    if account is None:
        return 0
    usage = account.ahead.usage
    if not share.parts:
        return usage
    borrowed: int | None = None
    for other, its in node.accounts.items():
        beyond = its.ahead.usage - its.subtree
        if beyond > 0 and its.subtree < UNLIMITED:
            if other.resource != unit.resource:
                return usage
            borrowed = (borrowed or 0) + beyond
    if borrowed is None:
        return 0
    over = max(0, usage - account.subtree)
    spare = borrowed - least_with(node, unit.resource, share)
    return usage if over <= spare else max(0, spare)
