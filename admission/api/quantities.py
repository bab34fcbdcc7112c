"""Kubernetes quantities as exact numbers: "1500m", "0.5", "2Gi", "1e3" to a Fraction or to whole units, and back.

cpu is counted in milli-units, everything else in whole base units, both rounded away from zero as Kubernetes does.
Nothing wraps or loses digits whatever the size; a hostile text costs no more than a short one.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache

CPU = "cpu"

_FORM = re.compile(
    r"([+-]?)([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([KMGTPE]i)|([numkMGTPE])|[eE]([+-]?[0-9]+))?", flags=re.ASCII
)
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_LONGEST = 256
_LARGEST_EXPONENT = 1024
_BINARY_RESOURCES = frozenset({"memory", "ephemeral-storage"})
_HUGE_PAGES = "hugepages-"


class QuantityError(ValueError):
    """The text is no quantity."""


@lru_cache(maxsize=4_096, typed=True)
def parse(text: str | float) -> Fraction:
    """The exact value. Numbers are read as the JSON that they came from would be.

    An exponent beyond 1024 either way counts as 1024: the API server caps such a value long before.
    """
    if isinstance(text, bool):
        raise QuantityError(f"not a quantity: {text!r}")
    if isinstance(text, int):
        return Fraction(text)
    if isinstance(text, float):
        text = repr(text)
    if len(text) > _LONGEST:
        raise QuantityError(f"not a quantity: {len(text)} characters")
    form = _FORM.fullmatch(text)
    if form is None:
        raise QuantityError(f"not a quantity: {text!r}")
    sign, digits, binary, decimal, exponent = form.groups()
    whole, _, fraction = digits.partition(".")
    value = Fraction(int(whole + fraction or "0"), 10 ** len(fraction))
    if binary:
        value *= 1024 ** _BINARY[binary]
    else:
        power = int(exponent) if exponent else _DECIMAL[decimal or ""]
        value *= Fraction(10) ** max(-_LARGEST_EXPONENT, min(_LARGEST_EXPONENT, power))
    return -value if sign == "-" else value


def amount(resource: str, text: str | float) -> int:
    """What is counted of the resource: milli-units of cpu, whole units of everything else, rounded away from zero."""
    value = parse(text)
    if resource == CPU:
        value *= 1000
    magnitude = -(-abs(value.numerator) // value.denominator)
    return -magnitude if value < 0 else magnitude


def parts(resource: str, text: str | float) -> Fraction:
    """The same unrounded: an average need not be whole."""
    return parse(text) * 1000 if resource == CPU else parse(text)


def format_parts(resource: str, counted: Fraction) -> str:
    """The canonical text of an amount that need not be whole, down to the billionth of a unit, rounded down."""
    billionths = counted * 10**9 / (1000 if resource == CPU else 1)
    return _decimal(billionths.numerator // billionths.denominator, -9)


def format_amount(resource: str, counted: int) -> str:
    """The canonical text of a counted amount, as the API server would print it."""
    if resource == CPU:
        return _decimal(counted, -3)
    if (resource in _BINARY_RESOURCES or resource.startswith(_HUGE_PAGES)) and abs(counted) >= 1024:
        return _binary(counted)
    return _decimal(counted, 0)


def _decimal(counted: int, power: int) -> str:
    if counted == 0:
        return "0"
    while power < 18 and counted % 1000 == 0:
        counted //= 1000
        power += 3
    suffix = next(name for name, exponent in _DECIMAL.items() if exponent == power)
    return f"{counted}{suffix}"


def _binary(counted: int) -> str:
    power = 0
    while power < 6 and counted % 1024 == 0:
        counted //= 1024
        power += 1
    suffix = next((name for name, exponent in _BINARY.items() if exponent == power), "")
    return f"{counted}{suffix}"
