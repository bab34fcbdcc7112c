"""Decides whose turn it is where past use counts across whole cohort trees: whoever used least lately goes first.

It works on entries that were judged already, and on the past use of all LocalQueues, summed up the tree. Whoever stays
within its own quota still goes before whoever borrows, and it never touches the order inside of a ClusterQueue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction

from queues.core.nomination import Entry
from queues.core.records import QueueRecord, Standing
from queues.core.tree import Node
from queues.core.usage_history import Level, level_of

Contender = Entry | Standing


def by_past_use(entries: Iterable[Contender], queue_at: Mapping[Node, QueueRecord]) -> list[Contender]:
    """The entries, given in the order that decides between equals. Cost: the trees that they stand in."""
    found = list(entries)
    return sorted(found, key=_Past(queue_at).turn) if len(found) > 1 else found


class _Past:
    """Everything is summed up once."""

    def __init__(self, queue_at: Mapping[Node, QueueRecord]) -> None:
        self._queue_at = queue_at
        self._sums: dict[Node, Fraction] = {}

    def turn(self, entry: Contender) -> tuple[int, tuple[Level, ...]]:
        """From right below the root down to the ClusterQueue: where two paths part, the use on either side decides."""
        queue = entry.queue if isinstance(entry, Entry) else entry.record.queue
        assert queue is not None  # noqa: S101
        node = queue.node
        path = [above for above in node.path() if above.parent is not None]
        return entry.level, tuple([level_of(self._below(one), one.weight) for one in (*reversed(path), node)])

    def _below(self, node: Node) -> Fraction:
        found = self._sums.get(node)
        if found is None:
            if node.is_cohort:
                parts = [self._below(child) for child in node.children.values()]
            else:
                queue = self._queue_at.get(node)
                parts = [] if queue is None else [home.used for home in queue.homes.values()]
            found = self._sums[node] = sum(parts, start=Fraction(0))
        return found
