"""Errands on their way: what may start now, what waits for something busy, and when a failed one is tried again.

It decides from what is busy and from how often an owner failed in a row. It must never start two errands that touch the
same object, nor let one that always fails take the place of others.
"""

from __future__ import annotations

from collections.abc import Hashable

from admission.controllers.act import Actor, Errand, Fate, Report, touched
from admission.controllers.wakes import Wakes

_FIRST_DELAY = 0.5
_LONGEST_DELAY = 60.0
_CONFLICT_DELAY = 0.05


class Errands:
    """`tokens` are what the controller calls the things that it looks at; those that have to wait come back."""

    def __init__(self, actor: Actor, wakes: Wakes) -> None:
        self._actor = actor
        self._wakes = wakes
        self._waiting: dict[Hashable, dict[Hashable, None]] = {}
        self._failures: dict[Hashable, int] = {}
        self._not_before: dict[Hashable, float] = {}

    def may_look(self, token: Hashable, now: float) -> bool:
        """Whether it makes sense to look at this now; if not, it comes back by itself."""
        if self._actor.is_busy(token):
            self._wait_for(token, token)
            return False
        until = self._not_before.get(token)
        if until is not None and until > now:
            self._wakes.at(token, until)
            return False
        return True

    def start(self, errand: Errand) -> bool:
        """Starts it if nothing that it touches is busy; otherwise its owner comes back when that is free."""
        for key in touched(errand):
            if self._actor.is_busy(key):
                self._wait_for(key, errand.owner)
                return False
        self._actor.start(errand)
        return True

    def wait_for(self, key: Hashable, token: Hashable) -> bool:
        """Whether the key is busy; then the token comes back when it is free."""
        if not self._actor.is_busy(key):
            return False
        self._wait_for(key, token)
        return True

    def ended(self, report: Report, now: float) -> list[Hashable]:
        """Takes in the end of an errand; the tokens that waited for it."""
        self._actor.settle(report.errand)
        owner = report.errand.owner
        if report.fate is Fate.DONE:
            self._failures.pop(owner, None)
            self._not_before.pop(owner, None)
        else:
            failures = self._failures.get(owner, 0) + 1
            self._failures[owner] = failures
            self._not_before[owner] = now + delay(report.fate, failures)
        freed: dict[Hashable, None] = {}
        for key in touched(report.errand):
            freed.update(self._waiting.pop(key, {}))
        if report.fate is not Fate.DONE:
            freed[owner] = None
        return list(freed)

    def is_idle(self, errand: Errand) -> bool:
        """Whether nothing that it touches is busy and its owner did not fail lately: it could have been started."""
        return errand.owner not in self._failures and not any(self._actor.is_busy(key) for key in touched(errand))

    def forget(self, token: Hashable) -> None:
        """It is gone: nothing is left to try again."""
        self._failures.pop(token, None)
        self._not_before.pop(token, None)

    def _wait_for(self, key: Hashable, token: Hashable) -> None:
        self._waiting.setdefault(key, {})[token] = None


def delay(fate: Fate, failures: int) -> float:
    """How long to leave it alone: hardly at all when somebody else was faster, longer and longer otherwise."""
    first = _CONFLICT_DELAY if fate in {Fate.CONFLICT, Fate.GONE} else _FIRST_DELAY
    return float(min(first * 2 ** min(failures - 1, 20), _LONGEST_DELAY))
