"""Object metadata, owner references, label selectors, conditions and kinds of patches, and plain functions over them.

Timestamps stay the RFC 3339 strings that the API server sent; `epoch` and `rfc3339` convert them.
This module never reads a clock and never changes a value in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from typing import Annotated

import msgspec

from admission.api.schema import REQUIRED, Int64, Object, Schema, Time, always

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"


class PatchKind(Enum):
    """Content type of a patch."""

    MERGE = "application/merge-patch+json"
    JSON = "application/json-patch+json"
    STRATEGIC = "application/strategic-merge-patch+json"


class OwnerReference(Object, frozen=True):
    api_version: str = always("")
    kind: str = always("")
    name: str = always("")
    uid: str = always("")
    controller: bool = False
    block_owner_deletion: bool = False

    def is_of(self, group: str, kind: str) -> bool:
        """Whether it names an object of this kind, in any version."""
        return self.kind == kind and self.api_version.startswith(f"{group}/")


class ObjectMeta(Object, frozen=True):
    """Managed fields are not read: they are half the bytes of an object and nothing depends on them."""

    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object, of which there is at most one."""
        return next((owner for owner in self.owner_references if owner.controller), None)

    @property
    def controller_uid(self) -> str:
        """Empty where there is none."""
        owner = self.controller
        return "" if owner is None else owner.uid

    @property
    def created_at(self) -> float:
        """Epoch seconds; 0 for an object that was never stored."""
        return epoch(self.creation_timestamp) if self.creation_timestamp else 0.0

    @property
    def is_deleting(self) -> bool:
        return self.deletion_timestamp is not None


class ListMeta(Object, frozen=True):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


def whole_number(text: str) -> int | None:
    """What a label or an annotation counts; None for any other text, and for more than nine digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


# ------------------------------------------------------------------ label selectors


class LabelSelectorRequirement(Object, frozen=True):
    key: Annotated[str, REQUIRED] = always("")
    operator: Annotated[str, REQUIRED] = always("")
    values: Annotated[tuple[str, ...], Schema(list_type="atomic")] = ()


class LabelSelector(Object, frozen=True):
    match_labels: dict[str, str] = msgspec.field(default_factory=dict)
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], Schema(list_type="atomic")] = ()


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether the selector matches: none matches nothing, an empty one everything, an unknown operator nothing."""
    if selector is None:
        return False
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(_meets(requirement, labels) for requirement in selector.match_expressions)


def _meets(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return False


# ------------------------------------------------------------------ conditions


class Condition(Object, frozen=True):
    type: Annotated[
        str,
        Schema(
            required=True,
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
        ),
    ] = always("")
    status: Annotated[str, Schema(required=True, enum=(TRUE, FALSE, UNKNOWN))] = always("")
    reason: Annotated[
        str, Schema(required=True, min_length=1, max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    ] = always("")
    message: Annotated[str, Schema(required=True, max_length=32768)] = always("")
    last_transition_time: Annotated[Time, REQUIRED] = always("")
    observed_generation: Annotated[Int64 | None, Schema(minimum=0)] = None


Conditions = Annotated[tuple[Condition, ...], Schema(max_items=16, list_type="map", list_keys=("type",))]


def find_condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    for condition in conditions:
        if condition.type == type_:
            return condition
    return None


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition is there and True."""
    condition = find_condition(conditions, type_)
    return condition is not None and condition.status == TRUE


def is_false(conditions: Iterable[Condition], type_: str) -> bool:
    """Whether the condition is there and False; one that is missing is neither."""
    condition = find_condition(conditions, type_)
    return condition is not None and condition.status == FALSE


def set_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """The conditions with `new` in its place.

    The transition time of the old one is kept where the status stays the same. The very same tuple comes back when
    nothing changed, so `is` tells whether there is anything to write.
    """
    old = find_condition(conditions, new.type)
    if old is None:
        return (*conditions, new)
    if old.status == new.status and old.last_transition_time:
        new = msgspec.structs.replace(new, last_transition_time=old.last_transition_time)
    if old == new:
        return conditions
    return tuple(new if condition is old else condition for condition in conditions)


def without_condition(conditions: tuple[Condition, ...], type_: str) -> tuple[Condition, ...]:
    """The conditions but for one; the very same tuple when it was not there."""
    if find_condition(conditions, type_) is None:
        return conditions
    return tuple(condition for condition in conditions if condition.type != type_)


# ------------------------------------------------------------------ time


@lru_cache(maxsize=8_192)
def epoch(timestamp: str) -> float:
    """Seconds since the epoch of an RFC 3339 timestamp, to the microsecond. Raises ValueError on anything else."""
    moment = datetime.fromisoformat(timestamp)
    if moment.tzinfo is None:
        raise ValueError(f"timestamp without a time zone: {timestamp!r}")
    return moment.timestamp()


def rfc3339(seconds: float) -> str:
    """A timestamp in whole seconds, as `metav1.Time` is written."""
    return _in_whole_seconds(int(seconds))


@lru_cache(maxsize=1_024)
def _in_whole_seconds(seconds: int) -> str:
    """Thousands of conditions are written within one second."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(seconds: float) -> str:
    """A timestamp with microseconds, as `metav1.MicroTime` is written (in Leases)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
