"""Where everything that happens arrives: deltas of the informers and answers of the writes, in their order.

It decides only when the controller is woken: at once for a lone event, a few milliseconds later while events keep
coming, so that a burst is taken in together. It must never lose or reorder anything.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import Any

from admission.controllers.act import Answer
from admission.kube.informers import Delta


@dataclass(frozen=True, slots=True)
class Observed:
    """A delta of one kind."""

    kind: str
    delta: Delta[Any]


Item = Observed | Answer

#: More than this in one turn counts as a burst.
_BURST = 20


class Inbox:
    """Used from one event loop. A burst is gathered for `gather` seconds."""

    def __init__(self, most: int = 2_000, gather: float = 0.004) -> None:
        self._items: deque[Item] = deque()
        self._arrived = asyncio.Event()
        self._most = most
        self._gather = gather
        self._last = 0

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
        elif not self._items:
            try:
                # Not `wait_for`: until Python 3.12 it forgets that it was cancelled when something arrives just then.
                async with asyncio.timeout(seconds):
                    await self._arrived.wait()
            except TimeoutError:
                return
        if self._last > _BURST and len(self._items) < self._most:
            await asyncio.sleep(self._gather)

    def drain(self) -> list[Item]:
        """What arrived, at most `most` at once so that timers keep their time."""
        self._arrived.clear()
        taken = [self._items.popleft() for _ in range(min(len(self._items), self._most))]
        self._last = len(taken)
        return taken
