"""Where everything that happens arrives: deltas of the informers and answers of the writes, in their order.

It decides only when the controller is woken: at once for a lone event, and not more often than each few milliseconds
while events keep coming, so that what a turn costs is shared. It must never lose or reorder anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from admission.controllers.act import Answer
from admission.kube.informers import Delta


class Observed(msgspec.Struct, frozen=True):
    """A delta of one kind."""

    kind: str
    delta: Delta[Any]


Item = Observed | Answer


class Inbox:
    """Used from one event loop. What arrives within `gather` seconds of the last turn waits until they are over."""

    def __init__(self, most: int = 2_000, gather: float = 0.01) -> None:
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._most = most
        self._gather = gather
        self._drained_at = float("-inf")

    def put(self, item: Item) -> None:
        self._items.append(item)
        self._arrived.set()

    def wake(self) -> None:
        self._arrived.set()

    def __len__(self) -> int:
        return len(self._items)

    async def wait(self, seconds: float | None) -> None:
        """Until there is something, or the time is over."""
        if seconds is not None and seconds <= 0:
            await asyncio.sleep(0)
            return
        if not self._items:
            try:
                # Not `wait_for`: until Python 3.12 it forgets that it was cancelled when something arrives just then.
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
            except TimeoutError:
                return
        rest = self._drained_at + self._gather - asyncio.get_running_loop().time()
        if rest > 0 and len(self._items) < self._most:
            await asyncio.sleep(rest)

    def drain(self) -> list[Item]:
        """What arrived, at most `most` at once so that timers keep their time."""
        self._arrived.clear()
        self._drained_at = asyncio.get_running_loop().time()
        return [self._items.popleft() for _ in range(min(len(self._items), self._most))]
