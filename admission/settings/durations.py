"""Reads and writes lengths of time the way Kubernetes configurations do ("5m", "1h30m", "300ms").

A length is a `Seconds`, a float with a type of its own, so that a bare number in a settings file is seen as the
mistake it is. Works from the text alone. Never guesses a unit.
"""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


class Seconds(float):
    """A length of time."""

    __slots__ = ()


def parse(text: str) -> Seconds:
    """Read a Go duration; ValueError with the allowed form when it is none."""
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if rest == "0":
        return Seconds(0.0)
    parts = _PART.findall(rest)
    if not parts or "".join(number + unit for number, unit in parts) != rest:
        raise ValueError(f"{text!r} is not a duration; write a number with its unit, like 30s, 5m or 1h30m")
    return Seconds(sign * sum(float(number) * _UNITS[unit] for number, unit in parts))


def render(length: float) -> str:
    """The shortest text that `parse` reads back as the same length (to the millisecond)."""
    if length < 0:
        return "-" + render(-length)
    whole = math.floor(length)
    thousandths = round((length - whole) * 1000)
    hours, minutes, seconds = whole // 3600, whole % 3600 // 60, whole % 60
    text = "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (seconds, "s")) if n)
    return text + (f"{thousandths}ms" if thousandths else "") or "0s"
