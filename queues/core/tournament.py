"""Decides whose turn it is under fair sharing: a tournament up each cohort tree, held anew after each turn.

It works on entries that were judged already and on the shares that their queues and cohorts would have with them. It
leaves usage as it was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from queues.core.accounts import Account
from queues.core.borrowers import Borrowers
from queues.core.fairness import Measure, borrows_any, measure_of
from queues.core.model import FlavorResource, Timestamp, Uid
from queues.core.nomination import Entry
from queues.core.records import QueueRecord, Standing, WorkloadRecord
from queues.core.tree import Node

Contender = Entry | Standing


class Score(NamedTuple):
    """The lowest wins. `share` is that of the node that competes, with the contender's request added."""

    borrows: bool
    share: Measure
    priority: int
    since: Timestamp
    uid: Uid


def winners(
    entries: Sequence[Contender], borrowers: Borrowers, *, by_priority: bool, non_borrowing_first: bool
) -> Iterator[Contender]:
    """The entries in their turn; read it while usage changes. Trees follow one another by name.

    Cost of a turn: the contenders of the tree times its height times the units that they borrow. Where all
    ClusterQueues stand right below the root, those of the queues whose usage changed with the turn.
    """
    by_root: dict[Node, list[Contender]] = {}
    for entry in entries:
        by_root.setdefault(_node(entry).root, []).append(entry)
    for root in sorted(by_root, key=lambda node: node.key):
        left = by_root[root]
        if not root.is_cohort:
            left.sort(key=lambda entry: (-entry.record.priority, entry.record.workload.queued_at, entry.record.uid))
            yield from left
            continue
        if root.height == 1:
            yield from _Flat(left, borrowers, by_priority=by_priority, non_borrowing_first=non_borrowing_first)
            continue
        while left:
            winner = _winner(root, left, by_priority=by_priority, non_borrowing_first=non_borrowing_first)
            left.remove(winner)
            yield winner


class _Flat:
    """The contenders of a tree where nobody's score depends on others, so that they stand in a heap."""

    def __init__(
        self, contenders: Sequence[Contender], borrowers: Borrowers, *, by_priority: bool, non_borrowing_first: bool
    ) -> None:
        self._borrowers = borrowers
        self._by_priority = by_priority
        self._non_borrowing_first = non_borrowing_first
        self._scores: dict[Uid, Score] = {}
        self._of_queue: dict[QueueRecord, list[Contender]] = {}
        self._heap: list[tuple[Score, int, Contender]] = []
        self._serial = 0
        for one in contenders:
            self._of_queue.setdefault(_queue(one), []).append(one)
            self._enter(one)

    def __iter__(self) -> Iterator[Contender]:
        while self._heap:
            score, _, winner = heappop(self._heap)
            if self._scores.get(winner.record.uid) is not score:
                continue  # it was scored anew since
            del self._scores[winner.record.uid]
            queue = _queue(winner)
            self._of_queue[queue].remove(winner)
            self._borrowers.touched.clear()
            yield winner
            for changed in (queue, *self._borrowers.touched):
                for one in self._of_queue.get(changed, ()):
                    self._enter(one)

    def _enter(self, one: Contender) -> None:
        node, record = _node(one), one.record
        asks = [(node.account(unit), amount) for unit, amount in _usage(one).items()]
        score = score_below_root(
            node, record, asks, by_priority=self._by_priority, non_borrowing_first=self._non_borrowing_first
        )
        self._scores[record.uid] = score
        self._serial += 1
        heappush(self._heap, (score, self._serial, one))


def score_below_root(
    node: Node,
    record: WorkloadRecord,
    asks: Sequence[tuple[Account, int]],
    *,
    by_priority: bool,
    non_borrowing_first: bool,
) -> Score:
    """How a workload would do in a tree where all ClusterQueues stand right below the root."""
    workload = record.workload
    added = () if record.claim is not None else asks
    for account, amount in added:
        account.ahead.charge(amount)
    borrows = non_borrowing_first and any(amount > 0 and not account.ahead.is_within_quota for account, amount in asks)
    share = measure_of(node)
    for account, amount in added:
        account.ahead.release(amount)
    return Score(borrows, share, -workload.priority if by_priority else 0, workload.queued_at, workload.uid)


def _winner(root: Node, left: list[Contender], *, by_priority: bool, non_borrowing_first: bool) -> Contender:
    if len(left) == 1:
        return left[0]
    scores: dict[Node, dict[Uid, Score]] = {}
    below: dict[Node, dict[Node, None]] = {}
    at: dict[Node, list[Contender]] = {}
    for entry in left:
        node = _node(entry)
        at.setdefault(node, []).append(entry)
        _enter(entry, scores, by_priority=by_priority, non_borrowing_first=non_borrowing_first)
        while node is not root:
            assert node.parent is not None  # noqa: S101
            below.setdefault(node.parent, {})[node] = None
            node = node.parent
    return _best(root, below, at, scores)


def _enter(
    entry: Contender, scores: dict[Node, dict[Uid, Score]], *, by_priority: bool, non_borrowing_first: bool
) -> None:
    """Score the entry at each node below the root, with its request added to what its queue uses."""
    node, usage, workload = _node(entry), _usage(entry), entry.record.workload
    added = {} if entry.record.claim is not None else usage  # a claim is counted already
    for unit, amount in added.items():
        node.account(unit).ahead.charge(amount)
    rank = (-workload.priority if by_priority else 0, workload.queued_at, workload.uid)
    place: Node | None = node
    while place is not None and place.parent is not None:
        borrows = non_borrowing_first and borrows_any(place, usage)
        scores.setdefault(place, {})[workload.uid] = Score(borrows, measure_of(place), *rank)
        place = place.parent
    for unit, amount in added.items():
        node.account(unit).ahead.release(amount)


def _best(
    cohort: Node,
    below: Mapping[Node, Mapping[Node, None]],
    at: Mapping[Node, list[Contender]],
    scores: Mapping[Node, Mapping[Uid, Score]],
) -> Contender:
    """The winner among the winners of the child cohorts and the entries of the child queues."""
    found: list[tuple[Score, Contender]] = []
    for child in below[cohort]:
        contenders = [_best(child, below, at, scores)] if child.is_cohort else at[child]
        found.extend((scores[child][one.record.uid], one) for one in contenders)
    return min(found, key=lambda pair: pair[0])[1]


def _queue(entry: Contender) -> QueueRecord:
    queue = entry.queue if isinstance(entry, Entry) else entry.record.queue
    assert queue is not None  # noqa: S101
    return queue


def _node(entry: Contender) -> Node:
    return _queue(entry).node


def _usage(entry: Contender) -> Mapping[FlavorResource, int]:
    return entry.assignment.usage if isinstance(entry, Entry) else entry.usage
