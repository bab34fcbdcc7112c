"""Whether the topology annotations of a pod template say something that can be done.

Looks at the annotations and, where it is known, at how many pods the pod set has. It never looks at a Topology: a
level that does not exist is told to the user while the workload waits, since it may be created later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Final

import msgspec

from admission.api import names
from admission.webhook import fields, syntax
from admission.webhook.fields import FieldError

_ONE_OF: Final = (
    names.PODSET_REQUIRED_TOPOLOGY,
    names.PODSET_PREFERRED_TOPOLOGY,
    names.PODSET_UNCONSTRAINED_TOPOLOGY,
)
_LEVELS: Final = (
    names.PODSET_REQUIRED_TOPOLOGY,
    names.PODSET_PREFERRED_TOPOLOGY,
    names.PODSET_SLICE_REQUIRED_TOPOLOGY,
)
_SLICES: Final = (
    names.PODSET_SLICE_REQUIRED_TOPOLOGY,
    names.PODSET_SLICE_SIZE,
    names.PODSET_SLICE_CONSTRAINTS,
)
_MOST_CONSTRAINTS: Final = 3


class _Constraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topology: str
    size: int


def errors(path: str, annotations: Mapping[str, str], count: int | None = None) -> Iterator[FieldError]:
    """`path` is that of the annotations; `count` the pods in the pod set, None where it is not known."""
    given = [name for name in _ONE_OF if name in annotations]
    if len(given) > 1:
        yield fields.invalid(path, ", ".join(given), f"must not contain more than one of {', '.join(_ONE_OF)}")
    for name in _LEVELS:
        if name in annotations and (problem := syntax.label_key(annotations[name])):
            yield fields.invalid(fields.key(path, name), annotations[name], problem)
    unconstrained = annotations.get(names.PODSET_UNCONSTRAINED_TOPOLOGY)
    if unconstrained is not None and syntax.boolean(unconstrained) is None:
        at = fields.key(path, names.PODSET_UNCONSTRAINED_TOPOLOGY)
        yield fields.invalid(at, unconstrained, "must be true or false")
    yield from _slice_errors(path, annotations, count)
    yield from _constraints_errors(path, annotations, count)
    yield from _group_errors(path, annotations)
    offset = annotations.get(names.POD_INDEX_OFFSET)
    if offset is not None and ((number := syntax.integer(offset)) is None or number < 0):
        yield fields.invalid(fields.key(path, names.POD_INDEX_OFFSET), offset, "must be an integer of at least 0")


def _slice_errors(path: str, annotations: Mapping[str, str], count: int | None) -> Iterator[FieldError]:
    level = annotations.get(names.PODSET_SLICE_REQUIRED_TOPOLOGY)
    size = annotations.get(names.PODSET_SLICE_SIZE)
    if level is not None and size is None:
        at = fields.key(path, names.PODSET_SLICE_SIZE)
        yield fields.required(at, f"must be set when {names.PODSET_SLICE_REQUIRED_TOPOLOGY} is")
    if size is None:
        return
    at = fields.key(path, names.PODSET_SLICE_SIZE)
    if level is None:
        yield fields.forbidden(at, f"may not be set when {names.PODSET_SLICE_REQUIRED_TOPOLOGY} is not")
    number = syntax.integer(size)
    if number is None or number < 1:
        yield fields.invalid(at, size, "must be an integer of at least 1")
    elif count is not None and number > count:
        yield fields.invalid(at, size, f"must not be greater than the number of pods ({count})")


def _constraints_errors(path: str, annotations: Mapping[str, str], count: int | None) -> Iterator[FieldError]:
    text = annotations.get(names.PODSET_SLICE_CONSTRAINTS)
    if text is None:
        return
    at = fields.key(path, names.PODSET_SLICE_CONSTRAINTS)
    for other in (names.PODSET_SLICE_REQUIRED_TOPOLOGY, names.PODSET_SLICE_SIZE):
        if other in annotations:
            yield fields.forbidden(at, f"may not be set together with {other}")
    try:
        constraints = msgspec.json.decode(text, type=list[_Constraint])
    except (msgspec.DecodeError, RecursionError):
        yield fields.invalid(at, text, 'must be a JSON list of {"topology": LEVEL, "size": NUMBER}')
        return
    if not 1 <= len(constraints) <= _MOST_CONSTRAINTS:
        yield fields.invalid(at, text, f"must have 1 to {_MOST_CONSTRAINTS} entries")
        return
    for position, constraint in enumerate(constraints):
        if problem := syntax.label_key(constraint.topology):
            yield fields.invalid(f"{fields.index(at, position)}.topology", constraint.topology, problem)
        if constraint.size < 1:
            yield fields.invalid(f"{fields.index(at, position)}.size", constraint.size, "must be at least 1")
    if len({constraint.topology for constraint in constraints}) < len(constraints):
        yield fields.invalid(at, text, "must not name a level twice")
    for position, (outer, inner) in enumerate(pairwise(constraints)):
        if inner.size >= 1 and outer.size % inner.size:
            yield fields.invalid(
                f"{fields.index(at, position)}.size", outer.size, f"must be divisible by the next size ({inner.size})"
            )
    if count is not None and constraints[0].size > count:
        yield fields.invalid(
            f"{fields.index(at, 0)}.size", constraints[0].size, f"must not be greater than the number of pods ({count})"
        )


def _group_errors(path: str, annotations: Mapping[str, str]) -> Iterator[FieldError]:
    group = annotations.get(names.PODSET_GROUP_NAME)
    if group is None:
        return
    at = fields.key(path, names.PODSET_GROUP_NAME)
    if group.isdecimal():
        yield fields.invalid(at, group, "must not be a number")
    if not any(name in annotations for name in (names.PODSET_REQUIRED_TOPOLOGY, names.PODSET_PREFERRED_TOPOLOGY)):
        yield fields.forbidden(
            at, f"may not be set without {names.PODSET_REQUIRED_TOPOLOGY} or {names.PODSET_PREFERRED_TOPOLOGY}"
        )
    for name in _SLICES:
        if name in annotations:
            yield fields.forbidden(at, f"may not be set together with {name}")
