"""Of equal values one is kept: what thousands of objects say alike takes the memory of one of them.

Values are told apart by their equality alone, so they must be hashable and never change. It must never grow without
limit: what it forgets is merely kept twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

_REMEMBERED: Final = 4_096


class Alike(Generic[T]):
    """The values that came lately."""

    def __init__(self) -> None:
        self._known: dict[T, T] = {}

    def one(self, value: T) -> T:
        """The first of those that are equal to this."""
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(value, value)
