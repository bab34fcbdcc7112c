"""Reads query parameters: a value within its bounds, or a problem that names the parameter and says what it may be.

It looks at the query string alone. Nothing that a client sends may reach the database unchecked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import TypeVar

E = TypeVar("E", bound=Enum)

#: Longer values name nothing that exists in a cluster.
LONGEST = 253
#: Everything that has a name in a cluster has one of visible ASCII characters.
NAME = re.compile(r"[!-~]+", re.ASCII)
INTEGER = re.compile(r"[+-]?[0-9]{1,30}", re.ASCII)
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
LARGEST = 2**63 - 1
#: The first and the last second that four digits of a year can say.
EARLIEST, LATEST = -62_135_596_800.0, 253_402_300_799.0


class ParameterError(ValueError):
    """A query parameter is wrong; the message begins with its name."""

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"{parameter}: {problem}")
        self.parameter = parameter


def is_name(value: str, *, longest: int = LONGEST) -> bool:
    """Whether anything in a cluster can be called so; a database may choke on other values."""
    return len(value) <= longest and NAME.fullmatch(value) is not None


def known(query: Mapping[str, str], names: Collection[str]) -> None:
    """A misspelt filter must not look like an answer to the question that was meant."""
    for name in query:
        if name not in names:
            known_names = ", ".join(sorted(names)) or "none"
            raise ParameterError(name[:LONGEST], f"is not a parameter of this endpoint (known: {known_names})")


def integer(query: Mapping[str, str], name: str, *, default: int, low: int, high: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if not INTEGER.fullmatch(text) or not low <= int(text) <= high:
        raise ParameterError(name, f"has to be a whole number from {low} to {high}, not {text[:40]!r}")
    return int(text)


def offset(query: Mapping[str, str]) -> int:
    """How many of a list to leave out."""
    return integer(query, "offset", default=0, low=0, high=LARGEST)


def text(query: Mapping[str, str], name: str, *, longest: int = LONGEST) -> str | None:
    """None where it is not given; an empty value is a mistake."""
    value = query.get(name)
    if value is None:
        return None
    if not is_name(value, longest=longest):
        raise ParameterError(name, f"has to be a name of 1 to {longest} visible ASCII characters")
    return value


def choice(query: Mapping[str, str], name: str, values: type[E], default: E | None) -> E | None:
    value = query.get(name)
    if value is None:
        return default
    for member in values:
        if member.value == value:
            return member
    known_values = ", ".join(str(member.value) for member in values)
    raise ParameterError(name, f"has to be one of {known_values}, not {value[:40]!r}")


def moment(query: Mapping[str, str], name: str) -> float | None:
    """An RFC 3339 time or a date (its midnight, UTC), as seconds since the epoch."""
    value = query.get(name)
    if value is None:
        return None
    try:
        # A plus sign that was not quoted arrives as a space.
        parsed = datetime.fromisoformat(value.replace(" ", "+"))
        if parsed.tzinfo is None and DATE.fullmatch(value):
            parsed = parsed.replace(tzinfo=UTC)
        at = parsed.timestamp() if parsed.tzinfo is not None else None
    except (ValueError, OverflowError):
        at = None
    if at is None or not EARLIEST <= at < LATEST:
        raise ParameterError(
            name, f"has to be a time such as 2026-01-31T12:00:00Z or a date such as 2026-01-31, not {value[:40]!r}"
        )
    return at
