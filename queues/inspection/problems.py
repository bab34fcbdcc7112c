"""How the inspection server says no: the refusals it knows, and their two shapes, plain JSON and Kubernetes' Status.

Made from a code and a sentence. It must never carry what a caller may not know.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from queues.inspection.access import Access, User

#: Kubernetes' machine-readable words for HTTP codes.
REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    503: "ServiceUnavailable",
}


class ForbiddenError(Exception):
    """The caller is known and may not see this."""

    def __init__(self, user: User, *any_of: Access) -> None:
        rights = " or to ".join(str(access) for access in any_of)
        super().__init__(f"{user.name!r} may not see this; it takes the right to {rights}")


def problem(code: int, message: str, parameter: str | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": code, "message": message}
    if parameter is not None:
        error["parameter"] = parameter
    return {"error": error}


def as_status(code: int, message: str, reason: str = "", details: dict[str, str] | None = None) -> dict[str, Any]:
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason or REASONS.get(code, HTTPStatus(code).phrase.replace(" ", "")),
    }
    if details:
        status["details"] = details
    return {**status, "code": code}
