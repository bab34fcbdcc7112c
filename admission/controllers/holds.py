"""When the reason why a Workload waits is written to it: soon while it is quiet, later or not at all in a burst.

Decided from the reason that the condition has, when it was last written, and how many such writes were made lately. A
Workload that is admitted in the meantime is never written to; the journal has every reason in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.api.kueue import Workload
from admission.controllers import decisions
from queues.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Pace:
    """Writes a second and at once after a quiet time; seconds between two writes that only change the words.

    `patience`: seconds that a Workload waits before it is told why. Most start sooner, and the write is saved.
    """

    rate: float = 20.0
    burst: int = 100
    same_reason: float = 30.0
    crowded: float = 1.0
    patience: float = 1.0


class Holds:
    """The present reason of each Workload that waits."""

    def __init__(self, pace: Pace = Pace()) -> None:
        self._pace = pace
        self._reasons: dict[str, Reason] = {}
        self._since: dict[str, float] = {}
        self._written: dict[str, float] = {}
        self._tokens = float(pace.burst)
        self._at = 0.0

    def put(self, uid: str, reason: Reason, now: float) -> None:
        self._reasons[uid] = reason
        self._since.setdefault(uid, now)

    def reason(self, uid: str) -> Reason | None:
        return self._reasons.get(uid)

    def forget(self, uid: str) -> None:
        """It waits no longer."""
        self._reasons.pop(uid, None)
        self._since.pop(uid, None)
        self._written.pop(uid, None)

    def when(self, uid: str, workload: Workload, now: float, *, crowded: bool) -> float | None:
        """When to write the reason: now or before, later, or None when the Workload says it already."""
        reason = self._reasons.get(uid)
        if reason is None or decisions.hold(workload, reason, now) is workload:
            return None
        if decisions.says_the_same(workload, reason):
            due = self._written.get(uid, now - self._pace.same_reason) + self._pace.same_reason
            if due > now:
                return due
        due = self._since.get(uid, now) + self._pace.patience
        if due > now:
            return due
        if crowded:
            return now + self._pace.crowded
        self._tokens = min(float(self._pace.burst), self._tokens + (now - self._at) * self._pace.rate)
        self._at = now
        if self._tokens < 1.0:
            return now + max(0.2, (1.0 - self._tokens) / self._pace.rate)
        return now

    def written(self, uid: str, now: float) -> None:
        self._tokens -= 1.0
        self._written[uid] = now
