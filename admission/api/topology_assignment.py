"""The compact form of a topology assignment: from a list of domains to slices of shared values, and back.

At each level a slice has either one value for all its domains or a prefix, a suffix and one root per domain, and the
same for the counts. Encoding is one pass over the domains for each level and must never change their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import msgspec

from admission.api.names import HOSTNAME_LABEL
from admission.api.workloads import (
    LevelValues,
    SliceLevelValues,
    SlicePodCounts,
    TopologyAssignment,
    TopologyAssignmentSlice,
)

#: Bound of the lists in one slice.
MAX_DOMAINS = 100_000
MAX_SLICES = 1_000


@dataclass(frozen=True, slots=True, order=True)
class Domain:
    """`count` pods where the node labels have these values, one for each level."""

    values: tuple[str, ...]
    count: int


def encode(levels: Sequence[str], domains: Iterable[Domain]) -> TopologyAssignment:
    """As few slices as the bound on their size allows, or those of hosts with one prefix where that is shorter.

    There has to be a domain, and a level.
    """
    ordered = list(domains)
    if not levels or not ordered:
        raise ValueError("a topology assignment has at least one level and one domain")
    if any(len(domain.values) != len(levels) for domain in ordered):
        raise ValueError("a domain has as many values as there are levels")
    slices = tuple(_slice(ordered[start : start + MAX_DOMAINS]) for start in range(0, len(ordered), MAX_DOMAINS))
    if levels[-1] == HOSTNAME_LABEL:
        split = _by_prefix(ordered)
        if 1 < len(split) <= MAX_SLICES and len(msgspec.json.encode(split)) < len(msgspec.json.encode(slices)):
            slices = split
    return TopologyAssignment(levels=tuple(levels), slices=slices)


def _by_prefix(domains: Sequence[Domain]) -> tuple[TopologyAssignmentSlice, ...]:
    """A slice for each run of hosts whose names differ only in the number at their end."""
    runs = groupby(domains, key=lambda domain: domain.values[-1].rstrip("0123456789"))
    return tuple(_slice(list(run)) for _, run in runs)


def decode(assignment: TopologyAssignment) -> tuple[Domain, ...]:
    """The domains in their order. A slice whose lists are too short ends where the shortest does."""
    return tuple(domain for piece in assignment.slices for domain in _domains(piece))


def _slice(domains: Sequence[Domain]) -> TopologyAssignmentSlice:
    counts = [domain.count for domain in domains]
    return TopologyAssignmentSlice(
        domain_count=len(domains),
        values_per_level=tuple(_level(column) for column in zip(*(domain.values for domain in domains), strict=True)),
        pod_counts=SlicePodCounts(universal=counts[0])
        if len(set(counts)) == 1
        else SlicePodCounts(individual=tuple(counts)),
    )


def _level(values: tuple[str, ...]) -> SliceLevelValues:
    if values.count(values[0]) == len(values):
        return SliceLevelValues(universal=values[0])
    prefix = _common_prefix(values)
    rests = [value[len(prefix) :] for value in values]
    suffix = _common_prefix([rest[::-1] for rest in rests])[::-1]
    return SliceLevelValues(
        individual=LevelValues(
            prefix=prefix or None,
            suffix=suffix or None,
            roots=tuple(rest[: len(rest) - len(suffix)] for rest in rests),
        )
    )


def _common_prefix(texts: Sequence[str]) -> str:
    first, last = min(texts), max(texts)
    length = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:length]


def _domains(piece: TopologyAssignmentSlice) -> Iterator[Domain]:
    columns = [_values(level, piece.domain_count) for level in piece.values_per_level]
    counts = piece.pod_counts.individual
    if counts is None:
        counts = (piece.pod_counts.universal or 0,) * piece.domain_count
    for *values, count in zip(*columns, counts, strict=False):
        yield Domain(tuple(values), count)


def _values(level: SliceLevelValues, count: int) -> Sequence[str]:
    if level.individual is None:
        return (level.universal or "",) * count
    prefix, suffix = level.individual.prefix or "", level.individual.suffix or ""
    return [f"{prefix}{root}{suffix}" for root in level.individual.roots]
