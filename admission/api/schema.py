"""The words in which the API types say what the API server has to check: bounds, defaults, enums, list types, CEL.

`admission.api.crds` makes the CRDs from these annotations; they stand beside the fields that they are about.
Decoding must never enforce them: an object that an older or another schema let in still has to be readable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec


class Object(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """Base of every API type: camelCase names, unknown fields ignored, empty fields left out.

    What is read from JSON is never part of a circle, so the collector need not look at any of it.
    """


def always(default: Any) -> Any:
    """Give a default to a field that is written even where it has that default (it is required in the API)."""
    return msgspec.field(default_factory=lambda: default)


@dataclass(frozen=True, slots=True)
class Cel:
    """A validation rule in CEL. A rule that uses `oldSelf` only runs on updates where both values exist.

    `field` is the path of the field to blame, from the object that the rule stands on.
    """

    rule: str
    message: str
    field: str | None = None


@dataclass(frozen=True, slots=True)
class Schema:
    """What the API server checks of a field, or of every value of a type (its class variable `SCHEMA`).

    `opaque` values are kept as they are and not looked into; of the fields named in `one_of` exactly one is set.
    """

    required: bool = False
    default: Any = None
    enum: tuple[str, ...] = ()
    pattern: str | None = None
    format: str | None = None
    minimum: int | None = None
    maximum: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None
    max_items: int | None = None
    max_properties: int | None = None
    list_type: Literal["atomic", "set", "map"] | None = None
    list_keys: tuple[str, ...] = ()
    atomic: bool = False
    opaque: bool = False
    quantity: bool = False
    cel: tuple[Cel, ...] = ()
    one_of: tuple[str, ...] = ()
    description: str | None = None


REQUIRED = Schema(required=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`; a wide one only shows with `-o wide`."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Definition:
    """What a CRD says of its kind beside the schema."""

    plural: str
    namespaced: bool = False
    short_names: tuple[str, ...] = ()
    has_status: bool = False
    columns: tuple[Column, ...] = ()
    selectable: tuple[str, ...] = ()


SUBDOMAIN_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
DNS_LABEL_PATTERN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
LABEL_KEY_PATTERN = (
    r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
)
QUANTITY_PATTERN = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$"

Subdomain = Annotated[str, Schema(max_length=253, pattern=SUBDOMAIN_PATTERN)]
LabelKey = Annotated[str, Schema(min_length=1, max_length=316, pattern=LABEL_KEY_PATTERN)]
Int32 = Annotated[int, Schema(format="int32")]
Int64 = Annotated[int, Schema(format="int64")]
Time = Annotated[str, Schema(format="date-time")]

#: As it stands in the JSON; `admission.api.quantities` reads it.
Quantity = Annotated[str | int | float, Schema(quantity=True)]
