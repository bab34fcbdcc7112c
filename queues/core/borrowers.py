"""Who borrows most of a tree whose ClusterQueues all stand right below the root, kept in order as usage changes.

It works on shares looking ahead and on what each ClusterQueue holds. Whoever changes these says so; what changed is
looked at again when somebody asks, and nothing else is. It never decides who has to give.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final, NamedTuple

from queues.core.fairness import Measure, measure_of
from queues.core.model import ClusterQueueName, FlavorResource
from queues.core.records import QueueRecord
from queues.core.tree import Node

#: Of a queue that has nobody to give.
NOTHING_TO_GIVE: Final = Measure(is_unbounded=False, parts=-1)


class Borrower(NamedTuple):
    """`keeps`: the largest share that the queue could be left with when one of its workloads goes."""

    share: Measure
    name: ClusterQueueName
    keeps: Measure
    queue: QueueRecord


class Ranking:
    """The queues of one tree: `by_share`, the largest last, and what they would keep, likewise."""

    __slots__ = ("_kept", "by_share")

    def __init__(self) -> None:
        self.by_share: list[Borrower] = []
        self._kept: list[tuple[Measure, ClusterQueueName]] = []

    @property
    def most_kept(self) -> Measure:
        return self._kept[-1][0] if self._kept else NOTHING_TO_GIVE

    def put(self, one: Borrower) -> None:
        insort(self.by_share, one)  # no two have the same name, so that it is decided before queues are compared
        insort(self._kept, (one.keeps, one.name))

    def take_out(self, one: Borrower) -> None:
        del self.by_share[bisect_left(self.by_share, one)]
        del self._kept[bisect_left(self._kept, (one.keeps, one.name))]


class Borrowers:
    """`touched` are the queues that changed since somebody last cleared it."""

    __slots__ = ("_changed", "_known", "_rankings", "touched")

    def __init__(self) -> None:
        self.touched: dict[QueueRecord, None] = {}
        self._rankings: dict[Node, Ranking] = {}
        self._known: dict[QueueRecord, tuple[Node, Borrower]] = {}
        self._changed: dict[QueueRecord, None] = {}

    def changed(self, queue: QueueRecord) -> None:
        """It holds, or is going to hold, something else than before."""
        self.touched[queue] = None
        self._changed[queue] = None

    def forget(self, root: Node) -> None:
        """The tree is another one from now on; its queues are told of as changed."""
        ranking = self._rankings.pop(root, None)
        for one in () if ranking is None else ranking.by_share:
            del self._known[one.queue]

    def drop(self, queue: QueueRecord) -> None:
        """There is no such queue any more."""
        self._changed.pop(queue, None)
        self.touched.pop(queue, None)
        self._take_out(queue)

    def below(self, root: Node) -> Ranking:
        """Cost: the queues that changed, each times the logarithm of the tree, and what these hold."""
        if self._changed:
            changed, self._changed = self._changed, {}
            for queue in changed:
                self._take_out(queue)
                self._put(queue)
        ranking = self._rankings.get(root)
        return Ranking() if ranking is None else ranking

    def _take_out(self, queue: QueueRecord) -> None:
        known = self._known.pop(queue, None)
        if known is not None:
            self._rankings[known[0]].take_out(known[1])

    def _put(self, queue: QueueRecord) -> None:
        root = queue.node.root
        if not is_ranked(root):
            return
        one = Borrower(measure_of(queue.node), queue.name, kept_by(queue), queue)
        ranking = self._rankings.get(root)
        if ranking is None:
            ranking = self._rankings[root] = Ranking()
        ranking.put(one)
        self._known[queue] = root, one


def is_ranked(root: Node) -> bool:
    """Whether it is a cohort with nothing but ClusterQueues, and cohorts that have none, below."""
    return root.height == 1


def kept_by(queue: QueueRecord) -> Measure:
    """Cost: the workloads that the queue holds."""
    least: dict[FlavorResource, int] | None = None
    for record in queue.holding.values():
        if record.evicted:
            continue
        charges = record.charges
        if least is None:
            least = dict(charges)
        elif least != charges:
            least = {unit: min(amount, charges.get(unit, 0)) for unit, amount in least.items()}
    if least is None:
        return NOTHING_TO_GIVE
    accounts = [(queue.node.account(unit).ahead, amount) for unit, amount in least.items()]
    for account, amount in accounts:
        account.release(amount)
    kept = measure_of(queue.node)
    for account, amount in accounts:
        account.charge(amount)
    return kept
