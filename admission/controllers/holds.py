"""When the reason why a Workload waits is written to it: soon while it is quiet, later or not at all in a burst.

Decided from the reason that the condition has, when it was last written, and how much else is being written. A Workload
that is admitted in the meantime is never written to; people who look at the queues have every reason in any case.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from admission.api.kueue import Workload
from admission.controllers import decisions
from queues.core.reasons import Reason

#: So many of those who wait no longer may stand in the line, and as many as wait: during a burst it does not move.
_GONE = 1_000


@dataclass(frozen=True, slots=True)
class Pace:
    """Writes a second and at once after a quiet time; seconds between two writes that only change the words.

    `patience`: seconds that a Workload waits before it is told why. Most start sooner, and the write is saved.
    While more than `busy` Workloads a second start, have to go or begin to wait, going by the last `memory` seconds,
    whoever waits is told only after `busy_patience`.
    """

    rate: float = 20.0
    burst: int = 100
    same_reason: float = 30.0
    crowded: float = 1.0
    patience: float = 1.0
    busy: float = 2.0
    memory: float = 3.0
    busy_patience: float = 300.0

    @property
    def busiest(self) -> float:
        """However much happened in a burst, its end is noticed within some seconds."""
        return 3 * self.busy


class Holds:
    """The present reason of each Workload that waits, and those that are to be told in the order of their waiting.

    Costs O(log n) for each that begins to wait and for each that is told; a crowd costs nothing while it waits.
    """

    def __init__(self, pace: Pace = Pace()) -> None:
        self._pace = pace
        self._reasons: dict[str, Reason] = {}
        self._since: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._line: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._serial = count()
        self._not_before = 0.0
        self._tokens = float(pace.burst)
        self._at = 0.0
        self._rate, self._decided_at = 0.0, 0.0

    def put(self, uid: str, reason: Reason, now: float) -> None:
        """It waits, for this reason."""
        if uid not in self._since:
            self.stirred(now)
        self._reasons[uid] = reason
        self.look_at(uid, self._since.setdefault(uid, now) + self._pace.patience)

    def reason(self, uid: str) -> Reason | None:
        return self._reasons.get(uid)

    def forget(self, uid: str) -> None:
        """It waits no longer."""
        self._reasons.pop(uid, None)
        self._since.pop(uid, None)
        self._written.pop(uid, None)
        if self._due.pop(uid, None) is not None and len(self._line) > 2 * len(self._due) + _GONE:
            self._line = [entry for entry in self._line if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._line)

    def stirred(self, now: float) -> None:
        """Somebody starts, has to go or begins to wait: that goes before every reason."""
        self._rate = min(self._pace.busiest, 1.0 / self._pace.memory + self._rate_now(now))
        self._decided_at = now

    def is_busy(self, now: float) -> bool:
        """Whether so much happened lately that what can wait has to stand back."""
        return self._rate_now(now) > self._pace.busy

    def _rate_now(self, now: float) -> float:
        """How much happens in a second; what is past fades."""
        return self._rate * math.exp(min(0.0, self._decided_at - now) / self._pace.memory)

    # ------------------------------------------------------------------ whose turn it is

    def look_at(self, uid: str, due: float) -> None:
        """Comes up at `due`, or sooner where that was asked for before."""
        known = self._due.get(uid)
        if uid in self._reasons and (known is None or due < known):
            self._due[uid] = due
            heapq.heappush(self._line, (due, next(self._serial), uid))

    def next(self) -> float | None:
        """When to ask for `turns` again; None while there is nobody to be told."""
        first = self._first()
        return None if first is None else max(first, self._not_before)

    def turns(self, now: float, *, crowded: bool) -> Iterator[str]:
        """Those whose reason may be due. Each is forgotten here; `written` or `look_at` has to follow."""
        if now < self._not_before:
            return
        if crowded:
            self._not_before = now + self._pace.crowded
            return
        self._tokens = min(float(self._pace.burst), self._tokens + (now - self._at) * self._pace.rate)
        self._at = now
        busy = self.is_busy(now)
        while (due := self._first()) is not None and due <= now:
            uid = self._line[0][2]
            if busy and now - self._since.get(uid, now) < self._pace.busy_patience:
                self._not_before = now + self._pace.crowded
                return
            if self._tokens < 1.0:
                self._not_before = now + max(0.2, (1.0 - self._tokens) / self._pace.rate)
                return
            heapq.heappop(self._line)
            del self._due[uid]
            yield uid

    def _first(self) -> float | None:
        while self._line:
            due, _, uid = self._line[0]
            if self._due.get(uid) == due:
                return due
            heapq.heappop(self._line)
        return None

    def when(self, uid: str, workload: Workload, now: float) -> float | None:
        """When to write the reason: now, later, or None when the Workload says it already."""
        reason = self._reasons.get(uid)
        if reason is None or decisions.hold(workload, reason, now) is workload:
            return None
        if decisions.says_the_same(workload, reason):
            return max(now, self._written.get(uid, now - self._pace.same_reason) + self._pace.same_reason)
        return now

    def written(self, uid: str, now: float) -> None:
        self._tokens -= 1.0
        self._written[uid] = now
