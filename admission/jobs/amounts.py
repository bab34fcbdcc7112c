"""Exact amounts of resources, as containers ask for them: fractions of base units, any size, never rounded on the way.

They are made from resource lists and end as the whole numbers that quota and nodes are counted in (cpu in milli-units).
This module rounds in one place only, upwards, and never below zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from admission.api.quantities import CPU, parse

Amounts = dict[str, Fraction]

ZERO = Fraction(0)

#: The same few texts ("1", "500m", "64Gi") come again and again; parsing costs ten times a look-up.
_parse = lru_cache(maxsize=4096)(parse)


def exact(resources: Mapping[str, str | int | float]) -> Amounts:
    """A resource list by value. Raises QuantityError for a text that is no quantity."""
    return {name: _parse(quantity) for name, quantity in resources.items()}


def total(several: Iterable[Mapping[str, Fraction]]) -> Amounts:
    """The sum, resource by resource."""
    result: Amounts = {}
    for amounts in several:
        for resource, amount in amounts.items():
            result[resource] = result.get(resource, ZERO) + amount
    return result


def largest(several: Iterable[Mapping[str, Fraction]]) -> Amounts:
    """The largest of each resource."""
    result: Amounts = {}
    for amounts in several:
        for resource, amount in amounts.items():
            result[resource] = max(result.get(resource, amount), amount)
    return result


def counted(amounts: Mapping[str, Fraction]) -> dict[str, int]:
    """In the units of quota: milli-units of cpu, whole units of the rest, rounded up; what is negative counts as 0."""
    result = {}
    for resource, amount in amounts.items():
        units = amount * 1000 if resource == CPU else amount
        result[resource] = max(0, -(-units.numerator // units.denominator))
    return result


def in_words(amount: Fraction) -> str:
    """For messages: a whole number, or a decimal with at most three places."""
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount):.3f}".rstrip("0").rstrip(".")
