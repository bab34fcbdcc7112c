"""Answers of the API server as exceptions."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from admission.kube import errors


@dataclass(frozen=True)
class Case:
    id: str
    status: int
    want: type[errors.ApiError]
    reason: str = ""
    message: str = "no"
    retry_after: str | None = None


CASES = [
    Case("a missing object", 404, errors.NotFound, "NotFound"),
    Case("a version that is not the current one", 409, errors.Conflict, "Conflict"),
    Case("a name that is taken", 409, errors.AlreadyExists, "AlreadyExists"),
    Case("a version that is too old", 410, errors.Gone, "Expired"),
    Case("a bad object", 422, errors.Invalid, "Invalid"),
    Case("a bad request", 400, errors.Invalid, "BadRequest"),
    Case("no rights", 403, errors.Forbidden, "Forbidden"),
    Case("no user", 401, errors.Unauthorized, "Unauthorized"),
    Case("too many requests", 429, errors.TooManyRequests, "TooManyRequests"),
    Case("a webhook that does not answer", 500, errors.ServerFailed, "InternalError"),
    Case("a server that goes away", 503, errors.ServerFailed, "ServiceUnavailable"),
    Case("anything else", 418, errors.ApiError, ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_each_answer_is_its_own_error(case: Case) -> None:
    body = msgspec.json.encode({"kind": "Status", "code": case.status, "reason": case.reason, "message": case.message})
    error = errors.from_answer(case.status, body)
    assert type(error) is case.want
    assert (error.status, error.message) == (case.status, "no")


def test_an_error_event_of_a_watch_has_its_code_inside() -> None:
    body = msgspec.json.encode({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
    assert type(errors.from_answer(0, body)) is errors.Gone


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"\xff\xfe", b"[]"])
def test_an_answer_that_is_no_status_still_says_something(body: bytes) -> None:
    error = errors.from_answer(502, body)
    assert type(error) is errors.ServerFailed
    assert error.message


def test_the_server_says_how_long_to_wait() -> None:
    assert errors.from_answer(429, b"", "7").retry_after == 7
    body = msgspec.json.encode({"code": 429, "details": {"retryAfterSeconds": 3}})
    assert errors.from_answer(429, body).retry_after == 3
    assert errors.from_answer(429, b"", "Wed, 21 Oct 2026 07:28:00 GMT").retry_after is None


def test_a_namespace_that_is_being_deleted_takes_nothing_new() -> None:
    details = {"causes": [{"reason": "NamespaceTerminating", "field": "metadata.namespace"}]}
    body = msgspec.json.encode({"code": 403, "reason": "Forbidden", "message": "no", "details": details})
    assert type(errors.from_answer(403, body)) is errors.NamespaceEnding
