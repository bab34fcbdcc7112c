"""Values of CEL expressions that Python has not: quantities and semantic versions, and the patterns that are allowed.

Made from text, compared exactly. A pattern that could take long on a short text is refused: whoever may write a claim
must not be able to keep the controller busy.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, total_ordering
from typing import Final

from admission.api.cel_syntax import CelError
from admission.api.quantities import QuantityError, parse

_VERSION: Final = re.compile(
    r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?", re.ASCII
)
_MOST_REPEATS: Final = 3
_LONGEST_PATTERN: Final = 256
#: One character, a class of characters, or a group of alternatives of such.
_REPEAT: Final = re.compile(r"(?<!\\)(?:\\\\)*[*+?{]")


@dataclass(frozen=True, order=True, slots=True)
class Amount:
    """A Kubernetes quantity."""

    value: Fraction


@total_ordering
@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version; what is behind a `+` does not count."""

    numbers: tuple[int, int, int]
    pre_release: tuple[str, ...] = ()

    def __lt__(self, other: Version) -> bool:
        return self._key() < other._key()

    def _key(self) -> tuple[object, ...]:
        # Without a pre-release it is newer; numbers come before words.
        parts = tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.pre_release)
        return (self.numbers, not self.pre_release, parts)


def amount(text: str) -> Amount | None:
    """None for what is no quantity."""
    try:
        return Amount(parse(text))
    except QuantityError:
        return None


def version(text: str) -> Version | None:
    """None for what is no semantic version."""
    found = _VERSION.fullmatch(text)
    if found is None or len(text) > _LONGEST_PATTERN:
        return None
    major, minor, patch, rest = found.groups()
    return Version((int(major), int(minor), int(patch)), tuple(rest.split(".")) if rest else ())


def effort(text: object, searched: object) -> int:
    """How many characters a search for the pattern looks at, at most: each repetition may begin and end anywhere."""
    if not isinstance(text, str) or not isinstance(searched, str):
        return 0
    return int(len(text) ** (1 + min(len(_REPEAT.findall(searched)), _MOST_REPEATS)))


@lru_cache(maxsize=256)
def pattern(text: str) -> re.Pattern[str]:
    """The pattern, if it is one that ends soon on a short text: few repetitions, none of a group, no references."""
    repeats = _REPEAT.findall(text)
    if (
        len(text) > _LONGEST_PATTERN
        or len(repeats) > _MOST_REPEATS
        or re.search(r"\)[*+?{]|\(\?|\\[1-9kKpPQCxzZ]", text)
    ):
        raise CelError(f"matches the pattern {text!r}, which is not understood here")
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise CelError(f"matches {text!r}, which is no pattern") from error
