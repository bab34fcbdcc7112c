"""Who of a tree comes forward once somebody there could give something and keep a share as large as theirs.

It works from the shares that those who wait would have themselves, lowest first. It never says whether anybody would
really be evicted.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from queues.core.fairness import Measure

if TYPE_CHECKING:
    from queues.core.shelves import Ticket

_SLACK: Final = 64


class Thresholds:
    """Whoever comes forward for another reason is out of date here, and dropped in time."""

    __slots__ = ("_heap", "_serial", "_tidy_at")

    def __init__(self) -> None:
        self._heap: list[tuple[Measure, int, Ticket]] = []
        self._serial = 0
        self._tidy_at = _SLACK

    def put(self, share: Measure, ticket: Ticket) -> None:
        if len(self._heap) >= self._tidy_at:
            self._heap = [entry for entry in self._heap if entry[2].is_valid]
            heapify(self._heap)
            self._tidy_at = 2 * len(self._heap) + _SLACK
        self._serial += 1
        heappush(self._heap, (share, self._serial, ticket))

    def reached(self, most: Measure) -> Iterator[Ticket]:
        """All who want no more than that; they are forgotten."""
        while self._heap and self._heap[0][0] <= most:
            ticket = heappop(self._heap)[2]
            if ticket.is_valid:
                yield ticket
