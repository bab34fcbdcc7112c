"""Exact amounts, and quotas that may be unlimited.

Amounts are whole numbers of any size, so that what was taken is exactly what is given back; a quota at or above
`UNLIMITED` has no end, and nothing taken from it makes it smaller. It never rounds and never wraps.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar

from queues.core.model import UNLIMITED, ResourceName

T = TypeVar("T")

CPU: Final = ResourceName("cpu")

_BINARY_UNITS: Final = (("Ei", 2**60), ("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_BYTES: Final = ("memory", "ephemeral-storage", "storage")


def total(one: int, other: int) -> int:
    """The sum of two quotas: without end when one of them is."""
    return UNLIMITED if one >= UNLIMITED or other >= UNLIMITED else min(one + other, UNLIMITED)


def add_up(amounts: dict[T, int], others: Mapping[T, int], sign: int) -> None:
    """Add them, or with a `sign` of -1 take them away; what comes to nothing is left out."""
    for name, amount in others.items():
        left = amounts.get(name, 0) + sign * amount
        if left:
            amounts[name] = left
        else:
            amounts.pop(name, None)


def lendable(quota: int, kept: int) -> int:
    """What is left of a quota for others when `kept` of it stays private; an endless private part leaves nothing."""
    if kept >= UNLIMITED:
        return 0
    return UNLIMITED if quota >= UNLIMITED else quota - kept


def private(quota: int, lending_limit: int | None) -> int:
    """The part of a quota that others never get. Without a lending limit there is none."""
    if lending_limit is None or lending_limit >= UNLIMITED:
        return 0
    return UNLIMITED if quota >= UNLIMITED else max(0, quota - lending_limit)


def beyond(usage: int, quota: int) -> int:
    """How much of the usage the quota does not cover."""
    return 0 if quota >= UNLIMITED or usage <= quota else usage - quota


def left(quota: int, usage: int) -> int:
    """What is left of a quota; negative when more than that is in use."""
    return UNLIMITED if quota >= UNLIMITED else quota - usage


def fits(amount: int, room: int) -> bool:
    return room >= UNLIMITED or amount <= room


def text(resource: ResourceName, amount: int) -> str:
    """The amount as Kubernetes writes it: `1500m` cpu, `3Gi` memory, `8` GPUs."""
    if amount >= UNLIMITED:
        return "unlimited"
    if resource == CPU:
        whole, milli = divmod(amount, 1000)
        return f"{amount}m" if milli else str(whole)
    if amount and (resource in _BYTES or resource.startswith("hugepages-")):
        for unit, size in _BINARY_UNITS:
            if amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)
