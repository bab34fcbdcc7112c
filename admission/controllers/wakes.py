"""When to look again without anything having happened: one earliest time per thing, handed out as they pass.

It decides nothing; it keeps for each key the earliest time that was asked for, in a heap. It never reads a clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from itertools import count

#: Entries that nobody waits for any more are put up with until there are so many of them, and more than others.
_DEAD = 1_000


class Wakes:
    """A heap with one live entry per key. Setting costs O(log n); an overtaken entry is skipped when it surfaces."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Hashable]] = []
        self._times: dict[Hashable, float] = {}
        self._serial = count()

    def at(self, key: Hashable, time: float) -> None:
        """Wakes `key` at `time`, or earlier where that was asked for before."""
        known = self._times.get(key)
        if known is None or time < known:
            self._times[key] = time
            heapq.heappush(self._heap, (time, next(self._serial), key))

    def has(self, key: Hashable) -> bool:
        return key in self._times

    def __len__(self) -> int:
        """How many entries are kept, dead ones too."""
        return len(self._heap)

    def cancel(self, key: Hashable) -> None:
        """Nobody waits for this any more. Costs one step on average: half of the heap goes whenever it is looked at."""
        if self._times.pop(key, None) is None:
            return
        if len(self._heap) > 2 * len(self._times) + _DEAD:
            self._heap = [entry for entry in self._heap if self._times.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)

    def next(self) -> float | None:
        """The earliest time that is asked for."""
        while self._heap:
            time, _, key = self._heap[0]
            if self._times.get(key) == time:
                return time
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> list[Hashable]:
        """The keys whose time has come, earliest first; each is forgotten."""
        keys = []
        while (time := self.next()) is not None and time <= now:
            _, _, key = heapq.heappop(self._heap)
            del self._times[key]
            keys.append(key)
        return keys
