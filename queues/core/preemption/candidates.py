"""Finds who could be evicted for a workload under classical preemption, in the order in which they would have to go.

It works from the ClusterQueue's preemption policies, from who holds what, and from which parts of the cohort tree use
more than their own. It never tests whether evicting them would be enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from operator import itemgetter
from typing import NamedTuple, TypeVar

from queues.core.model import FlavorResource, Preemption, PreemptionPolicy, Timestamp, Uid
from queues.core.quantities import beyond
from queues.core.reasons import Preempted
from queues.core.records import QueueRecord, WorkloadRecord
from queues.core.tree import Node
from queues.core.usage_history import NO_USE, Level

Found = TypeVar("Found")


class Kind(Enum):
    """On what ground a candidate may be evicted."""

    SAME_QUEUE = auto()
    #: The quota belongs to the preemptor's part of the tree.
    HIERARCHICAL = auto()
    #: Only as long as the preemptor itself borrows nothing.
    WITHOUT_BORROWING = auto()
    #: Also while the preemptor borrows.
    WHILE_BORROWING = auto()


REASONS = {
    Kind.SAME_QUEUE: Preempted.IN_CLUSTER_QUEUE,
    Kind.HIERARCHICAL: Preempted.IN_COHORT_RECLAMATION,
    Kind.WITHOUT_BORROWING: Preempted.IN_COHORT_RECLAMATION,
    Kind.WHILE_BORROWING: Preempted.IN_COHORT_RECLAIM_WHILE_BORROWING,
}


@dataclass(slots=True)
class Candidate:
    """`meeting` is the lowest node whose subtree holds both queues; None in the same queue."""

    record: WorkloadRecord
    queue: QueueRecord
    kind: Kind
    meeting: Node | None = None


@dataclass(slots=True)
class Candidates:
    ordered: list[Candidate]
    any_from_others: bool
    any_hierarchical: bool


#: Bound once: see `fungibility`.
_NEVER, _ANY, _OR_NEWER = (
    PreemptionPolicy.NEVER, PreemptionPolicy.ANY, PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
)  # fmt: skip

Queues = dict[Node, QueueRecord]

#: Whether the pods would find their place on the nodes as they are in the simulation.
NodesFit = Callable[[], bool]


@dataclass(frozen=True, slots=True)
class Target:
    """One who has to go, and on what ground; `without_borrowing`: so that the preemptor need not borrow."""

    record: WorkloadRecord
    queue: QueueRecord
    reason: Preempted
    without_borrowing: bool = False


@dataclass(slots=True)
class Need:
    """`usage` is all that the workload takes; `short` what of it is missing."""

    record: WorkloadRecord
    queue: QueueRecord
    usage: dict[FlavorResource, int]
    short: frozenset[FlavorResource]
    nodes_fit: NodesFit


def may_evict(policy: PreemptionPolicy, preemptor: WorkloadRecord, candidate: WorkloadRecord) -> bool:
    if policy is _ANY:
        return True
    if policy is _NEVER:
        return False
    one, other = preemptor.workload, candidate.workload
    if one.priority > other.priority:
        return True
    return policy is _OR_NEWER and one.priority == other.priority and one.queued_at < other.queued_at


def find_candidates(need: Need, queue_at: Queues, *, without_borrowing: bool = True) -> Candidates | None:
    """None when all together would not be enough.

    Cost: the workloads of the own queue and of all queues in the tree that use more than their own.
    `without_borrowing` False leaves out those who only have to go for a preemptor that does not borrow.
    """
    preemptor, queue, short = need.record, need.queue, need.short
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    own = [
        Candidate(record, queue, Kind.SAME_QUEUE)
        for record in holders(queue, short)
        if may_evict(policies.within_cluster_queue, preemptor, record)
    ]
    hierarchical: list[Candidate] = []
    by_priority: list[Candidate] = []
    if policies.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        for found in _in_cohorts(need, queue_at, without_borrowing=without_borrowing):
            (hierarchical if found.kind is Kind.HIERARCHICAL else by_priority).append(found)
    if not _could_be_enough(need, (hierarchical, by_priority, own)):
        return None
    classes = [
        in_turn(one, lambda found: rank(found.record, is_own=found.queue is queue))
        for one in (hierarchical, by_priority, own)
    ]
    ordered = [found for one in classes for found in one]
    return Candidates(ordered, any_from_others=bool(hierarchical or by_priority), any_hierarchical=bool(hierarchical))


def _could_be_enough(need: Need, classes: Iterable[Iterable[Candidate]]) -> bool:
    """Whether what is short could be had from all of them: what one gives back frees that much at most."""
    records = [found.record for one in classes for found in one]
    for unit in need.short:
        missing = need.usage.get(unit, 0) - need.queue.node.account(unit).ahead.available
        for record in records:
            missing -= record.charges.get(unit, 0)
        if missing > 0:
            return False
    return bool(records)


class Rank(NamedTuple):
    """Ends in the uid, as far as it is compared. `shared` is the queue where `past_use` decides between LocalQueues."""

    is_own: bool
    priority: int
    newest: Timestamp
    uid: Uid
    past_use: Level
    shared: QueueRecord | None


def rank(record: WorkloadRecord, *, is_own: bool) -> Rank:
    """Other queues before the own one, low priority, short run, uid."""
    reserved_at = record.admission.reserved_at if record.admission is not None else 0.0
    level = NO_USE if record.home is None else record.home.level
    shared = record.holder if record.holder is not None and record.holder.order.by_usage else None
    return Rank(is_own, record.priority, -reserved_at, record.uid, level, shared)


def in_turn(found: Iterable[Found], rank_of: Callable[[Found], Rank]) -> list[Found]:
    """By rank; where past use counts in a queue, its turns go to those first whose LocalQueue used most.

    That keeps the order a total one, whatever candidates of other queues stand in between.
    """
    ranked = sorted([(rank_of(each), each) for each in found], key=itemgetter(0))
    turns: dict[QueueRecord, list[int]] = {}
    for turn, (rank, _) in enumerate(ranked):
        if rank.shared is not None:
            turns.setdefault(rank.shared, []).append(turn)
    for mine in turns.values():
        by_use = sorted([ranked[turn] for turn in mine], key=lambda pair: pair[0].past_use, reverse=True)
        for turn, pair in zip(mine, by_use, strict=True):
            ranked[turn] = pair
    return [each for _, each in ranked]


def holders(queue: QueueRecord, short: frozenset[FlavorResource]) -> Iterator[WorkloadRecord]:
    """Who holds any of these and is not leaving already, whoever asked for that."""
    for record in queue.holding.values():
        if not record.evicted and not short.isdisjoint(record.charges):
            yield record


def who_may_go(holder: QueueRecord, need: Need) -> list[WorkloadRecord]:
    """Those of a queue in the order in which they would have to go; others only where it borrows what is short."""
    queue = need.queue
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    if holder is queue:
        policy = policies.within_cluster_queue
    elif policies.reclaim_within_cohort is _NEVER or holder.node.is_within_quota(need.short):
        return []
    else:
        policy = policies.reclaim_within_cohort
    if policy is _NEVER:
        return []
    records = [record for record in holders(holder, need.short) if may_evict(policy, need.record, record)]
    return in_turn(records, partial(rank, is_own=holder is queue)) if records else records


def _in_cohorts(need: Need, queue_at: Queues, *, without_borrowing: bool) -> Iterator[Candidate]:
    """Walk up from the queue, collecting what uses more than its own on the way.

    Once the request fits into a subtree's own quota, what lies outside of that subtree is reclaimed as its right
    (hierarchical); what lies inside is a matter of priority and of borrowing.
    """
    preemptor, queue, short = need.record, need.queue, need.short
    assert queue.spec is not None  # noqa: S101
    policies = queue.spec.preemption
    inside = without_borrowing or policies.borrow_within_cohort is not PreemptionPolicy.NEVER
    node = queue.node
    below: Node | None = None
    has_advantage, rest = _fits_own(node, need.usage)
    for ancestor in node.path():
        for other in _above_quota(ancestor, below, queue.node, short) if inside or has_advantage else ():
            holder = queue_at[other]
            for record in holders(holder, short):
                if may_evict(policies.reclaim_within_cohort, preemptor, record):
                    kind = Kind.HIERARCHICAL if has_advantage else _kind(policies, preemptor, record)
                    yield Candidate(record, holder, kind, ancestor)
        fits, rest = _fits_own(ancestor, rest)
        has_advantage = has_advantage or fits
        below = ancestor


def _kind(policies: Preemption, preemptor: WorkloadRecord, candidate: WorkloadRecord) -> Kind:
    if policies.borrow_within_cohort is PreemptionPolicy.NEVER or candidate.priority >= preemptor.priority:
        return Kind.WITHOUT_BORROWING
    threshold = policies.max_priority_threshold
    if threshold is not None and candidate.priority > threshold:
        return Kind.WITHOUT_BORROWING
    return Kind.WHILE_BORROWING


def _fits_own(node: Node, amounts: dict[FlavorResource, int]) -> tuple[bool, dict[FlavorResource, int]]:
    """Whether the node's own quota covers these on top of its usage, and what of them does not fit privately in it."""
    fits, rest = True, {}
    for unit, amount in amounts.items():
        ahead = node.account(unit).ahead
        fits = fits and beyond(ahead.usage + amount, ahead.subtree) == 0
        rest[unit] = max(0, amount - ahead.free_privately)
    return fits, rest


def _above_quota(top: Node, without: Node | None, own: Node, short: frozenset[FlavorResource]) -> Iterator[Node]:
    """The ClusterQueues below `top` that use more than their own; a cohort within its quota hides its children."""
    pending = [top]
    while pending:
        cohort = pending.pop()
        for child in cohort.children.values():
            if child is without or child is own or child.is_within_quota(short):
                continue
            if child.is_cohort:
                pending.append(child)
            else:
                yield child
