"""Log lines."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from admission.commands.logs import JsonLines


def line(message: str, *arguments: Any, exc_info: Any = None, **extra: Any) -> dict[str, Any]:
    record = logging.getLogger("a.b").makeRecord(
        "a.b", logging.WARNING, "file", 1, message, arguments, exc_info, extra=extra
    )
    written = JsonLines("webhook").format(record)
    assert "\n" not in written
    found: dict[str, Any] = json.loads(written)
    return found


def test_a_line_is_one_object_with_its_fields() -> None:
    found = line("refused %s", "x", kind="Pod", seconds=1.5)
    assert found.pop("ts").endswith("+00:00")
    assert found == {
        "level": "warning",
        "process": "webhook",
        "logger": "a.b",
        "msg": "refused x",
        "kind": "Pod",
        "seconds": 1.5,
    }


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan"), b"\xff", "\ud800", {("a", "b"): 1}])
def test_no_value_loses_a_line(value: Any) -> None:
    assert "told" in line("told", value=value)["msg"]


def test_a_traceback_stays_in_its_line() -> None:
    try:
        int("broken")
    except ValueError:
        found = line("failed", exc_info=sys.exc_info())
    assert "ValueError: invalid literal" in found["traceback"]
