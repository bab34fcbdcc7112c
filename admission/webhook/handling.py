"""How a kind is handled: its type, its mutate and validate functions, and how their results become an answer.

A `Handler` decodes the objects of a review, calls one pure function and turns what it returns into a response. What it
cannot decode is refused with the place of the fault; it must never let an object pass that it has not understood.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from admission.api import decoding
from admission.webhook import fields, review
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.review import GroupVersionKind, Operation, Request, Response

T = TypeVar("T")

Validate = Callable[[T, T | None, Context], Iterator[FieldError]]
Mutate = Callable[[Mapping[str, Any], T, Context], list[Operation]]


class Refusal(Exception):  # noqa: N818  # an answer to the user, raised where the mutation finds it
    """The object may not be created."""

    def __init__(self, *errors: FieldError) -> None:
        self.errors = errors
        super().__init__(fields.listed(errors))


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """A kind that the webhook knows. `mutate` gets the object as it came as well, for what is not typed."""

    gvk: GroupVersionKind
    type: type[T]
    mutate: Mutate[T] | None = None
    validate: Validate[T] | None = None


def mutated(kind: Kind[T], context: Context) -> Response:
    if kind.mutate is None or context.request.operation not in {review.CREATE, review.UPDATE}:
        return review.allowed()
    if problem := _mismatch(kind, context.request):
        return problem
    try:
        raw, typed = _read(context.request.object, kind.type)
        patch = kind.mutate(raw, typed, context)
        if not isinstance(raw.get("spec"), dict) and any(each["path"].startswith("/spec/") for each in patch):
            return review.denied(str(fields.required("spec", "there is nothing to be queued without one")))
        return review.allowed(patch)
    except (msgspec.ValidationError, RecursionError) as error:
        return _unreadable(kind, error)
    except Refusal as refusal:
        return review.denied(str(refusal))


def validated(kind: Kind[T], context: Context) -> Response:
    if kind.validate is None or context.request.operation not in {review.CREATE, review.UPDATE}:
        return review.allowed()
    if problem := _mismatch(kind, context.request):
        return problem
    try:
        _, new = _read(context.request.object, kind.type)
        old = _read(context.request.old_object, kind.type)[1] if context.request.operation == review.UPDATE else None
        errors = list(kind.validate(new, old, context))
    except (msgspec.ValidationError, RecursionError) as error:
        return _unreadable(kind, error)
    return review.denied(fields.listed(errors)) if errors else review.allowed()


def _read(raw: msgspec.Raw, type_: type[T]) -> tuple[dict[str, Any], T]:
    plain = msgspec.json.decode(raw)
    if not isinstance(plain, dict):
        raise msgspec.ValidationError("Expected `object`, got nothing")
    return plain, decoding.convert(plain, type_)


def _mismatch(kind: Kind[Any], request: Request) -> Response | None:
    if request.kind == kind.gvk:
        return None
    return review.denied(
        f"this path answers for {kind.gvk}, not for {request.kind}; check the webhook configuration",
        code=400,
        reason="BadRequest",
    )


def _unreadable(kind: Kind[Any], error: Exception) -> Response:
    what = "is nested too deeply" if isinstance(error, RecursionError) else str(error)
    return review.denied(f"the {kind.gvk.kind} cannot be read: {what}", code=422, reason="Invalid")
