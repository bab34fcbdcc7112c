"""From the bytes or the plain objects that the API server sends to the API types, leniently.

Unknown fields are ignored and a null counts as a field that is not there, as it does in Kubernetes' own decoders.
It must never be the slow path for well-formed objects: nulls are looked for only when the strict decode refused them.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def decode(body: bytes, type_: type[T]) -> T:
    """Decode JSON. Raises `msgspec.DecodeError` (or its `ValidationError`, which names the path) when it is not one."""
    try:
        value: T = _decoder(cast("Hashable", type_)).decode(body)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(msgspec.json.decode(body)), type_)
    return value


def convert(raw: Any, type_: type[T]) -> T:
    """Read plain dicts and lists as an API type, such as a pod template as `core.PodTemplateSpec`."""
    try:
        return msgspec.convert(raw, type_)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(raw), type_)


def without_nulls(raw: Any) -> Any:
    """The same value without the dict entries that are null. Lists keep theirs: there a null is a mistake."""
    match raw:
        case dict():
            return {key: without_nulls(value) for key, value in raw.items() if value is not None}
        case list():
            return [without_nulls(value) for value in raw]
        case _:
            return raw


def encode(value: Any) -> bytes:
    """JSON as the API server expects it."""
    return msgspec.json.encode(value)


def plain(value: Any) -> Any:
    """Dicts, lists and scalars exactly as their JSON would be read, for patches, manifests and comparisons."""
    return msgspec.json.decode(msgspec.json.encode(value))
