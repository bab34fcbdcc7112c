"""Reads the settings off their types: a JSON schema of them, and what each field is called, holds and defaults to.

Decided by `admission.settings.configuration` alone. It must never know a field of its own, so that neither the chart's
schema nor the reference can say what the code does not.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

import msgspec

from admission.settings import Seconds, Settings
from admission.settings.durations import render

#: What is no section, list or map: its schema, and the word for it.
_SIMPLE: Final[dict[Any, dict[str, str]]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    Seconds: {"type": "string", "pattern": r"^-?(0|((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))+)$"},
    Any: {},
}
_WORDS: Final = {str: "string", int: "integer", bool: "boolean", float: "number", Seconds: "duration", Any: "anything"}


@dataclass(frozen=True, slots=True)
class Field:
    """One that can be written: its path, what it may be, and what it is where it is not written."""

    path: str
    type: str
    default: str


@dataclass(frozen=True, slots=True)
class Section:
    """Fields that stand together, with what the code says about them."""

    path: str
    says: str
    fields: tuple[Field, ...]


def schema(annotation: Any = Settings) -> dict[str, Any]:
    """What a document has to look like. `null` stands for a field that is not there."""
    arms = _arms(annotation)
    if len(arms) > 1:
        return {"anyOf": [schema(arm) for arm in arms]}
    return {**_plain(arms[0]), **_nullable(annotation)}


def _plain(base: Any) -> dict[str, Any]:
    if base in _SIMPLE:
        return dict(_SIMPLE[base])
    if get_origin(base) is dict:
        return {"type": "object", "additionalProperties": schema(get_args(base)[1])}
    if get_origin(base) is tuple:
        return {"type": "array", "items": schema(get_args(base)[0])}
    if issubclass(base, Enum):
        return {"type": "string", "enum": [each.value for each in base]}
    if issubclass(base, msgspec.Struct):
        return _object(base)
    raise TypeError(f"no schema for {base!r}")


def _object(struct: type[msgspec.Struct]) -> dict[str, Any]:
    hints = get_type_hints(struct)
    fields = msgspec.structs.fields(struct)
    required = [field.encode_name for field in fields if field.required]
    return {
        "type": "object",
        "additionalProperties": False,
        **({"required": required} if required else {}),
        "properties": {field.encode_name: schema(hints[field.name]) for field in fields},
    }


def _arms(annotation: Any) -> list[Any]:
    """The types that it may have, without None."""
    if get_origin(annotation) in {Union, types.UnionType}:
        return [arm for arm in get_args(annotation) if arm is not type(None)]
    return [annotation]


def _nullable(annotation: Any) -> dict[str, Any]:
    if get_origin(annotation) not in {Union, types.UnionType} or type(None) not in get_args(annotation):
        return {}
    kind = _plain(_arms(annotation)[0]).get("type")
    return {"type": [kind, "null"]} if isinstance(kind, str) else {}


def sections(struct: type[msgspec.Struct] = Settings, path: str = "") -> Iterator[Section]:
    """All of them, each before those inside it."""
    hints = get_type_hints(struct)
    plain, inner = [], []
    for field in msgspec.structs.fields(struct):
        place = f"{path}.{field.encode_name}" if path else field.encode_name
        arm = _arms(hints[field.name])[0]
        found = _section_of(arm)
        if found is None:
            plain.append(Field(place, _words(hints[field.name]), _default(field)))
        else:
            inner.append((found, place + ("[]" if get_origin(arm) is tuple else "")))
    if plain:
        yield Section(path, _says(struct), tuple(plain))
    for found, place in inner:
        yield from sections(found, place)


def _says(struct: type[msgspec.Struct]) -> str:
    """Its own docstring: one that is inherited is about something else."""
    text = struct.__dict__.get("__doc__") or ""
    # msgspec and dataclasses make none of their own, but a signature may stand there.
    return "" if text.startswith(f"{struct.__name__}(") else inspect.cleandoc(text)


def _section_of(annotation: Any) -> type[msgspec.Struct] | None:
    if get_origin(annotation) is tuple:
        annotation = get_args(annotation)[0]
    return annotation if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct) else None


def _words(annotation: Any) -> str:
    arms = _arms(annotation)
    base = arms[0]
    if len(arms) > 1:
        return " or ".join(_words(arm) for arm in arms)
    if base in _WORDS:
        return _WORDS[base]
    if get_origin(base) is tuple:
        return f"list of {_words(get_args(base)[0])}"
    if get_origin(base) is dict:
        return f"map of {_words(get_args(base)[1])}"
    return ", ".join(f"`{each.value}`" for each in base)


def _default(field: Any) -> str:
    if field.required:
        return "has to be given"
    default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    match default:
        case None | "" | ():
            return ""
        case Seconds():
            return f"`{render(default)}`"
        case bool():
            return f"`{str(default).lower()}`"
        case tuple():
            return ", ".join(f"`{each}`" for each in default)
    return f"`{default.value if isinstance(default, Enum) else default}`" if default != {} else ""
