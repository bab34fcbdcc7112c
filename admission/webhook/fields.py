"""What is wrong with a field, in the words that Kubernetes uses: the path, the kind of error, the value and what to do.

An error is a value made from what the object holds; a review that collects any is answered with all of them at once.
It must never carry a value at full length: what a user sent may be a megabyte.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_LONGEST_VALUE: Final = 128
_MOST_ERRORS: Final = 20


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that cannot stay as it is."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


def invalid(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, f"Invalid value: {_shown(value)}: {detail}")


def required(path: str, detail: str) -> FieldError:
    return FieldError(path, f"Required value: {detail}")


def forbidden(path: str, detail: str) -> FieldError:
    return FieldError(path, f"Forbidden: {detail}")


def duplicate(path: str, value: Any) -> FieldError:
    return FieldError(path, f"Duplicate value: {_shown(value)}")


def not_found(path: str, value: Any, detail: str) -> FieldError:
    return FieldError(path, f"Not found: {_shown(value)}: {detail}")


def not_supported(path: str, value: Any, supported: Iterable[str]) -> FieldError:
    return FieldError(path, f"Unsupported value: {_shown(value)}: supported values: {_listed(supported)}")


def too_many(path: str, count: int, most: int) -> FieldError:
    return FieldError(path, f"Too many: {count}: must have at most {most} items")


def immutable(path: str, value: Any) -> FieldError:
    return invalid(path, value, "field is immutable")


def listed(errors: Sequence[FieldError]) -> str:
    """All errors as one message, each once, cut short where there are very many."""
    unique = list(dict.fromkeys(str(error) for error in errors))
    if len(unique) == 1:
        return unique[0]
    shown = unique[:_MOST_ERRORS]
    more = [f"and {len(unique) - len(shown)} more"] if len(unique) > len(shown) else []
    return f"[{', '.join(shown + more)}]"


def key(path: str, name: str) -> str:
    """The path of an entry of a map."""
    return f"{path}[{name if len(name) <= _LONGEST_VALUE else name[:_LONGEST_VALUE] + '...'}]"


def index(path: str, position: int) -> str:
    """The path of an item of a list."""
    return f"{path}[{position}]"


def label(name: str) -> str:
    """The path of a label of the object itself."""
    return key("metadata.labels", name)


def annotation(name: str) -> str:
    """The path of an annotation of the object itself."""
    return key("metadata.annotations", name)


def _shown(value: Any) -> str:
    if isinstance(value, str):
        short = value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "..."
        return json.dumps(short, ensure_ascii=False)
    if isinstance(value, Mapping):
        return "{...}" if value else "{}"
    if isinstance(value, Sequence):
        return "[...]" if value else "[]"
    return json.dumps(value)[:_LONGEST_VALUE]


def _listed(values: Iterable[str]) -> str:
    return ", ".join(json.dumps(value) for value in values)
