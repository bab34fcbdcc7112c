"""The envelope: an AdmissionReview (admission.k8s.io/v1) from bytes, and the answer to one as bytes.

Reads the envelope only; the object in it stays as the bytes that came, to be decoded once, as the type that its
handler wants. What is no review is a `NotAReview`, never a guess.
"""

from __future__ import annotations

import base64
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

API_VERSION: Final = "admission.k8s.io/v1"
KIND: Final = "AdmissionReview"

CREATE: Final = "CREATE"
UPDATE: Final = "UPDATE"

#: An operation of a JSON patch.
Operation = dict[str, Any]


class NotAReview(Exception):  # noqa: N818  # reads as what it says
    """The body cannot be answered; the message says why."""


class GroupVersionKind(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.kind}.{self.version}.{self.group}".rstrip(".")


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    groups: tuple[str, ...] | None = None


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """`object` and `old_object` are JSON, "null" where there is none."""

    uid: str
    kind: GroupVersionKind = GroupVersionKind()
    operation: str = ""
    namespace: str = ""
    name: str = ""
    user_info: UserInfo = UserInfo()
    object: msgspec.Raw = msgspec.Raw(b"null")
    old_object: msgspec.Raw = msgspec.Raw(b"null")


class Asked(Protocol):
    """The request of any sort of review."""

    @property
    def uid(self) -> str: ...


R = TypeVar("R", bound=Asked)


class Envelope(msgspec.Struct, Generic[R], frozen=True, rename="camel"):
    """A review of any sort, as far as it asks."""

    api_version: str = ""
    kind: str = ""
    request: R | None = None


class Response(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`patch` operations only where allowed; `code`, `reason` and `message` only where not."""

    allowed: bool
    patch: tuple[Operation, ...] = ()
    code: int = 0
    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()


def allowed(patch: tuple[Operation, ...] | list[Operation] = (), warnings: tuple[str, ...] = ()) -> Response:
    return Response(allowed=True, patch=tuple(patch), warnings=warnings)


def denied(message: str, *, code: int = 403, reason: str = "Forbidden") -> Response:
    return Response(allowed=False, code=code, reason=reason, message=message)


_decoder: Final = msgspec.json.Decoder(Envelope[Request])


def read(body: bytes) -> Request:
    """The request in a review. Raises NotAReview."""
    return opened(body, _decoder, KIND, API_VERSION)


def opened(body: bytes, decoder: msgspec.json.Decoder[Envelope[R]], kind: str, api_version: str) -> R:
    """The request in a review of this kind. Raises NotAReview."""
    try:
        review = decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise NotAReview(f"the body is no {kind} of {api_version}: {error}") from error
    except RecursionError as error:
        raise NotAReview("the body is nested too deeply to be read") from error
    if review.kind != kind or review.api_version != api_version:
        found = f"{review.kind[:64] or 'of no kind'} of {review.api_version[:64] or 'no version'}"
        raise NotAReview(f"the body is {found}, not {kind} of {api_version}")
    if review.request is None or not review.request.uid:
        raise NotAReview("the review has no request with a uid")
    return review.request


def write(uid: str, response: Response) -> bytes:
    """The review that answers the request `uid`."""
    answer: dict[str, Any] = {"uid": uid, "allowed": response.allowed}
    if response.patch:
        answer["patchType"] = "JSONPatch"
        answer["patch"] = base64.b64encode(msgspec.json.encode(response.patch)).decode()
    if not response.allowed:
        answer["status"] = {
            "status": "Failure",
            "code": response.code,
            "reason": response.reason,
            "message": response.message,
        }
    if response.warnings:
        answer["warnings"] = response.warnings
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": KIND, "response": answer})
