"""What has to be true of a state at any time, computed the slow way from its records."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from queues.core.accounts import Account
from queues.core.borrowers import NOTHING_TO_GIVE, Borrower, is_ranked, kept_by
from queues.core.demand import charges_of
from queues.core.fairness import measure_of, share_of
from queues.core.model import UNLIMITED
from queues.core.records import QueueRecord, Stage
from queues.core.shelves import Ticket
from queues.core.state import State
from queues.core.tree import Node


def check_invariants(state: State, *, within_limits: bool = True) -> None:
    """`within_limits` does not hold while quota was taken away from under running work."""
    state.settle()
    for queue in state.books.queues.values():
        _check_usage(queue)
        _check_counts(queue)
        _check_order(state, queue)
        if within_limits:
            _check_limits(queue)
    for node in state.books.forest.cohorts.values():
        if not node.is_cyclic:
            _check_cohort(node)
    _check_records(state)
    _check_homes(state)
    _check_shares(state)
    _check_shelves(state)


def _check_usage(queue: QueueRecord) -> None:
    held, ahead = Counter(), Counter()
    for record in queue.holding.values():
        assert record.admission is not None
        assert record.charges == charges_of(record.workload, record.admission), record.uid
        held.update(record.charges)
        if not record.evicted:
            ahead.update(record.charges)
    for record in queue.claimants.values():
        assert record.claim is not None
        ahead.update(record.claim.usage)
    accounts = queue.node.accounts
    assert {unit: one.usage for unit, one in accounts.items() if one.usage} == +held, queue.name
    assert {unit: one.ahead.usage for unit, one in accounts.items() if one.ahead.usage} == +ahead, queue.name


def _check_counts(queue: QueueRecord) -> None:
    reserved, admitted = Counter(), Counter()
    for record in queue.holding.values():
        reserved.update(record.charges)
        if record.admission is not None and record.admission.admitted:
            admitted.update(record.charges)
    assert queue.reserved == +reserved
    assert queue.admitted == +admitted
    assert queue.admitted_count == sum(1 for r in queue.holding.values() if r.admission and r.admission.admitted)


def _check_cohort(node: Node) -> None:
    for unit, account in node.accounts.items():
        children = [child.accounts[unit] for child in node.children.values() if unit in child.accounts]
        for at in ("now", "ahead"):
            used = sum(
                0 if one.private >= UNLIMITED else max(0, (one if at == "now" else one.ahead).usage - one.private)
                for one in children
            )
            assert (account if at == "now" else account.ahead).usage == used, (node.name, unit, at)
        lent = sum(0 if one.private >= UNLIMITED else one.subtree - one.private for one in children)
        quota = node.quotas[unit].nominal if unit in node.quotas else 0
        assert account.subtree == min(quota + lent, UNLIMITED), (node.name, unit)


def _check_limits(queue: QueueRecord) -> None:
    for unit, account in queue.node.accounts.items():
        if account.usage:
            assert account.available >= 0, (queue.name, unit)
            assert account.usage <= account.potential or account.potential >= UNLIMITED, (queue.name, unit)


def _check_shares(state: State) -> None:
    """What is remembered of a tree is what it is, and shares compare as the numbers do by which they are compared."""
    forest = state.books.forest
    nodes = [*forest.queues.values(), *forest.cohorts.values()]
    for node in nodes:
        if node.lendable is not None:
            lendable = Counter()
            for unit in node.root.accounts:
                lendable[unit.resource] += node.account(unit).potential
            found = {name: amount for name, amount in node.lendable.items() if amount}
            assert found == {name: min(amount, UNLIMITED) for name, amount in lendable.items() if amount}
    shares = sorted((share_of(node), measure_of(node)) for node in nodes)
    for root in {node.root for node in nodes if is_ranked(node.root)}:
        queues = [queue for queue in state.books.queues.values() if queue.node.root is root]
        ranked = [Borrower(measure_of(queue.node), queue.name, kept_by(queue), queue) for queue in queues]
        ranking = state.books.borrowers.below(root)
        assert ranking.by_share == sorted(ranked)
        assert ranking.most_kept == max((one.keeps for one in ranked), default=NOTHING_TO_GIVE)
    for (share, measure), (next_share, next_measure) in pairwise(shares):
        assert (share < next_share) == (measure < next_measure)


def _check_shelves(state: State) -> None:
    """Whoever may come forward can be found, at a turn that is not too late, or stands behind somebody who may too."""
    waiting, books = state.waiting, state.books
    filed: dict[tuple[Account, Ticket], list[tuple[int, int]]] = {}
    for shelves in waiting._shelves._of_tree.values():
        for account, shelf in shelves.items():
            assert shelf._keys == sorted(shelf._heaps)
            for key, heap in shelf._heaps.items():
                for turn, serial, ticket in heap:
                    if ticket.entries[shelf, key[0]] != serial:
                        continue
                    filed.setdefault((account, ticket), []).append(key)
                    is_to_be_hastened = ticket.queue in books.freed or ticket.queue in books.lightened
                    if ticket.is_valid and not is_to_be_hastened:
                        assert turn <= ticket.turn_by(waiting.turn_of)
    for queue in books.queues.values():
        assert queue.is_active == queue.activity.active
        tickets = [group.ticket for group in queue.order.groups.values() if group.ticket is not None]
        for ticket in tickets if queue.is_active else ():
            for account, most in ticket.lacks.ceilings:
                above = [each for at_most, each in filed[account, ticket] if at_most == most]
                assert len(above) == 1
                assert (
                    account.usage > most
                    or above[0] < account.usage
                    or any(other.may_come and other.place < ticket.place for other in tickets)
                )


def _check_order(state: State, queue: QueueRecord) -> None:
    heads = []
    for shape, group in queue.order.groups.items():
        members = group.members()
        assert group.shape == shape
        assert group.size == len(members) > 0
        assert all(one.group is group and one.queue is queue for one in members)
        assert group.homes == Counter(one.home for one in members)
        assert group.is_open
        assert group.is_parked or group.ticket is None
        if queue.order.is_strict or not group.is_parked:
            heads.append((group.level, members[0].key, members[0], group))
        if queue.order.by_usage:
            home = members[0].home
            assert home is not None
            assert set(group.homes) == {home}
            assert group.level == home.level
    _, _, first, group = min(heads, key=lambda head: head[:2], default=(None, None, None, None))
    assert queue.order.first() is first
    if group is not None and group.is_parked:
        first = None
    assert queue.order.head() is first
    assert first is None or not queue.is_active or queue in state.waiting.active, f"{queue.name} is not looked at"


def _check_records(state: State) -> None:
    leaving = {uid for uid, record in state.workloads.items() if record.evicted}
    assert set(state.books.leaving) == leaving
    for uid, record in state.workloads.items():
        assert uid == record.uid
        is_holding = record.stage is Stage.HOLDING
        assert is_holding or not record.evicted, f"{uid} was asked to give back what it does not hold"
        assert is_holding == (record.admission is not None) == (record.holder is not None), uid
        assert (record.group is not None) == (record.stage is Stage.QUEUED), uid
        assert not (is_holding and record.queue is not None), uid
        if record.queue is not None:
            assert record.queue.pending[uid] is record
        if record.claimed_by is not None:
            assert record.evicted, "a victim that was not asked to go"
            assert record.claimed_by.victims[uid] is record
            assert record.claimed_by.record.claim is record.claimed_by
        if record.claim is not None:
            assert record.stage is Stage.QUEUED or (is_holding and not record.claim.usage)
            assert all(victim.claimed_by is record.claim for victim in record.claim.victims.values())


def _check_homes(state: State) -> None:
    for key, home in state.books.local_queues.items():
        members = list(home.workloads.values())
        assert home.spec is not None or members, f"LocalQueue {key} is remembered for nobody"
        assert all(record.home is home for record in members)
        waiting = [r for r in members if r.stage in (Stage.QUEUED, Stage.BACKING_OFF, Stage.BARRED)]
        assert home.pending == len(waiting), key
        holding = [r for r in members if r.stage is Stage.HOLDING]
        assert home.reserving_count == len(holding), key
        reserved = Counter()
        for record in holding:
            reserved.update(record.charges)
        assert home.reserved == +reserved, key
