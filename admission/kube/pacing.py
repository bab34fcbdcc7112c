"""Decides when a request may leave, so that Muster alone cannot flood the API server.

A token bucket (`qps` tokens a second, at most `burst` saved up) over a clock that is handed in. It never drops a
request and never reorders them: each is told how long to wait.
"""

from __future__ import annotations

from collections.abc import Callable


class Pace:
    """One bucket; used from one event loop, so it needs no lock."""

    def __init__(self, qps: float, burst: int, clock: Callable[[], float]) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._clock = clock
        self._tokens = float(burst)
        self._at = clock()

    def wait(self) -> float:
        """Take a token, on credit if there is none; the seconds until it is earned."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._qps)
        self._at = now
        self._tokens -= 1.0
        return max(0.0, -self._tokens / self._qps)
