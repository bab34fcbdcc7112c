"""What the API server said no to, as exceptions that callers can tell apart.

Made from the HTTP status and the Status object of the answer. A refusal never hides: everything that goes wrong between
Muster and the API server is an `ApiError`.
"""

# ruff: noqa: N818  # the exceptions have the API's own names for its refusals
from __future__ import annotations

import contextlib
from collections.abc import Mapping
from http import HTTPStatus

import msgspec


class ApiError(Exception):
    """The API server refused, or could not be reached (`status` 0).

    `reason` is the machine-readable word of the answer, `retry_after` the seconds that it asks to wait.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class NotFound(ApiError):
    """404."""


class Conflict(ApiError):
    """409 that is not `AlreadyExists`: a resourceVersion or uid that is not the current one."""


class AlreadyExists(Conflict):
    """409 of a create."""


class Gone(ApiError):
    """410: the resource version, or the continue token, is too old to go on from."""


class Unauthorized(ApiError):
    """401."""


class Forbidden(ApiError):
    """403: RBAC, or an admission plugin or webhook that says so."""


class NamespaceEnding(Forbidden):
    """403 of a create: its namespace is being deleted, and nothing new can be made there."""


class Invalid(ApiError):
    """422 (or 400): the object or the patch is wrong; the same request will never succeed."""


class TooManyRequests(ApiError):
    """429 after all retries."""


class ServerFailed(ApiError):
    """5xx: the API server (or a webhook that it called) failed; the request may be repeated."""


class Unreachable(ApiError):
    """No answer: connection refused, reset or timed out. Whether a write arrived is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(0, "Unreachable", message)


_NAMESPACE_ENDING = "NamespaceTerminating"


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct):
    causes: tuple[_Cause, ...] = ()
    retry_after: int = msgspec.field(default=0, name="retryAfterSeconds")


class _Status(msgspec.Struct):
    code: int = 0
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_BY_STATUS: Mapping[int, type[ApiError]] = {
    HTTPStatus.BAD_REQUEST: Invalid,
    HTTPStatus.UNAUTHORIZED: Unauthorized,
    HTTPStatus.FORBIDDEN: Forbidden,
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.CONFLICT: Conflict,
    HTTPStatus.GONE: Gone,
    HTTPStatus.UNPROCESSABLE_ENTITY: Invalid,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequests,
}


def from_answer(status: int, body: bytes, retry_after: str | None = None) -> ApiError:
    """The error for an HTTP answer of 400 or more, or for the Status object of a watch (then `status` is 0)."""
    said = _Status()
    with contextlib.suppress(msgspec.DecodeError):
        said = msgspec.json.decode(body, type=_Status)
    code = status or said.code
    message = said.message or body[:500].decode("utf-8", "replace").strip() or HTTPStatus(code).phrase
    wait: float | None = None
    if retry_after is not None and retry_after.isdigit():
        wait = float(retry_after)
    elif said.details is not None and said.details.retry_after:
        wait = float(said.details.retry_after)
    if said.reason == "AlreadyExists":
        kind: type[ApiError] = AlreadyExists
    elif said.reason == "Expired":
        kind = Gone
    elif said.details is not None and any(cause.reason == _NAMESPACE_ENDING for cause in said.details.causes):
        kind = NamespaceEnding
    else:
        kind = _BY_STATUS.get(code, ServerFailed if code >= 500 else ApiError)
    return kind(code, said.reason or str(code), message, wait)
