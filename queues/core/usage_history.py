"""What one LocalQueue used lately: an average that forgets with a half-life, and what was charged for entering.

It works from the amounts held and from times as told, in whole numbers only: amounts are counted in parts of 2^32, and
powers of one half come from integer square roots, so that every machine finds the same. It never reads a clock and
never decides whose turn it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import isqrt
from typing import Final, NamedTuple

from queues.core.model import ResourceName, Timestamp, Uid
from queues.core.quantities import add_up

#: Amounts are counted in parts of this: a GPU held for a second, forgotten within weeks, is still some thousands.
PARTS: Final = 2**32
#: What is left over after some time is a whole number out of this.
WHOLE: Final = 2**64
#: Weights are whole thousandths.
WEIGHT_ONE: Final = 1000
_BITS: Final = 32
_MICROS: Final = 1_000_000


def _roots() -> tuple[int, ...]:
    """One half to the power of 1/2, 1/4, 1/8, ..."""
    found = []
    power = WHOLE // 2
    for _ in range(_BITS):
        power = isqrt(power * WHOLE)
        found.append(power)
    return tuple(found)


_ROOTS: Final = _roots()

Amounts = Mapping[ResourceName, int]


class Level(NamedTuple):
    """Compares as it should: the lowest goes first. Whoever has weight 0 comes last (`is_last`), less use first there.

    `value` is the weighted use, divided by the queue's weight unless that is 0.
    """

    is_last: bool
    value: Fraction


NO_USE: Final = Level(is_last=False, value=Fraction(0))


def level_of(used: Fraction, weight: int) -> Level:
    """`weight` in thousandths."""
    return Level(is_last=False, value=used * WEIGHT_ONE / weight) if weight > 0 else Level(is_last=True, value=used)


def left_after(elapsed: int, half_life: int) -> int:
    """Out of `WHOLE`, what remains of a past use after this time. Both in microseconds; `half_life` above 0."""
    halvings, rest = divmod(max(0, elapsed), half_life)
    if halvings > WHOLE.bit_length():
        return 0
    left = WHOLE
    fraction = (rest << _BITS) // half_life
    for place, root in enumerate(_ROOTS):
        if fraction >> (_BITS - 1 - place) & 1:
            left = left * root // WHOLE
    return left >> halvings


def micros(seconds: Timestamp) -> int:
    return round(seconds * _MICROS)


class History:
    """`consumed` is the average as of `updated_at` (microseconds); `held` is what has been held since then.

    What somebody is charged for entering counts at once, but becomes part of the average only when it is settled; until
    then it can be dropped without a trace.
    """

    __slots__ = ("consumed", "due", "entries", "held", "pending", "updated_at")

    def __init__(self) -> None:
        self.consumed: dict[ResourceName, int] = {}
        self.held: dict[ResourceName, int] = {}
        self.updated_at: int | None = None
        self.entries: dict[Uid, dict[ResourceName, int]] = {}
        #: The sum of `entries` and of what is due to be settled.
        self.pending: dict[ResourceName, int] = {}
        self.due: dict[ResourceName, int] = {}

    @property
    def is_empty(self) -> bool:
        return not (self.consumed or self.held or self.pending)

    def restore(self, consumed: Amounts, at: int, held: Amounts) -> None:
        """As it was written down at that time; what is held now is taken to have been held since."""
        self.consumed = {name: amount for name, amount in consumed.items() if amount > 0}
        self.updated_at = at
        self.held = dict(held)

    def advance(self, now: int, held: Amounts, half_life: int) -> None:
        """Up to now what was held counts, from now on `held`. Time never runs backwards."""
        since = now if self.updated_at is None else self.updated_at
        if half_life == 0:
            self.consumed, self.due = {}, {}
            self.entries, self.pending = {}, {}
        elif now > since:
            left = left_after(now - since, half_life)
            names = dict.fromkeys((*self.consumed, *self.held))
            amounts = {
                name: (left * self.consumed.get(name, 0) + (WHOLE - left) * self.held.get(name, 0) * PARTS) // WHOLE
                for name in names
            }
            self.consumed = {name: amount for name, amount in amounts.items() if amount > 0}
        add_up(self.consumed, self.due, 1)
        add_up(self.pending, self.due, -1)
        self.due = {}
        self.updated_at = max(now, since)
        self.held = dict(held)

    # ------------------------------------------------------------------ entering

    def enter(self, uid: Uid, amounts: Amounts, interval: int, half_life: int) -> None:
        """Charge a workload what it would have used after one sampling interval. Charging it again changes nothing."""
        if half_life == 0 or uid in self.entries:
            return
        part = WHOLE - left_after(interval, half_life)
        charged = {name: part * amount * PARTS // WHOLE for name, amount in amounts.items() if amount > 0}
        self.entries[uid] = charged
        add_up(self.pending, charged, 1)

    def settle(self, uid: Uid) -> bool:
        """It was admitted: with the next `advance` the charge becomes part of the average. Whether there was one."""
        charged = self.entries.pop(uid, None)
        if charged is None:
            return False
        add_up(self.due, charged, 1)
        return True

    def drop(self, uid: Uid) -> bool:
        """It was not admitted after all. Whether that changes anything."""
        charged = self.entries.pop(uid, None)
        if charged is None:
            return False
        add_up(self.pending, charged, -1)
        return True

    # ------------------------------------------------------------------ reading

    def used(self, factors: Mapping[ResourceName, Fraction], default: Fraction = Fraction(1)) -> Fraction:
        """The weighted sum of what was used and charged; `factors` say what one unit of a resource counts."""
        names: Iterable[ResourceName] = dict.fromkeys((*self.consumed, *self.pending))
        total = sum(
            (factors.get(name, default) * (self.consumed.get(name, 0) + self.pending.get(name, 0)) for name in names),
            start=Fraction(0),
        )
        return total / PARTS
