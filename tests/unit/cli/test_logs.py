"""Log lines."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import threading
from typing import Any

import pytest

from admission.commands.logs import JsonLines, Lines


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


class Stream(io.StringIO):
    """Keeps what each write brought."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[str] = []
        self.is_written = asyncio.Event()

    def write(self, text: str) -> int:
        self.writes.append(text)
        self.is_written.set()
        return len(text)


def logger_to(handler: logging.Handler) -> logging.Logger:
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger(f"apart.{id(handler)}")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(handler)
    return logger


def test_lines_of_an_event_loop_are_written_together_and_in_order_and_a_warning_takes_them_along() -> None:
    stream = Stream()
    handler = Lines(stream)
    logger = logger_to(handler)
    logger.info("before")

    async def work() -> None:
        handler.gather()
        logger.info("one")
        logger.info("two")
        assert stream.writes == ["before\n"]
        logger.warning("three")
        assert stream.writes == ["before\n", "one\ntwo\nthree\n"]
        logger.info("four")
        other = threading.Thread(target=logger.info, args=["of another thread"])
        other.start()
        other.join()
        assert stream.writes[2:] == ["four\nof another thread\n"]
        logger.info("last")

    asyncio.run(work())
    assert stream.writes[3:] == []
    handler.flush()
    logger.info("afterwards")
    assert stream.writes[3:] == ["last\n", "afterwards\n"]


def test_gathered_lines_are_written_soon_though_nothing_more_is_said() -> None:
    stream = Stream()
    handler = Lines(stream)
    logger = logger_to(handler)

    async def work() -> None:
        handler.gather()
        logger.info("one")
        await stream.is_written.wait()

    asyncio.run(asyncio.wait_for(work(), 10))
    assert stream.writes == ["one\n"]


def test_a_closed_stream_ends_nothing() -> None:
    stream = io.StringIO()
    handler = Lines(stream)
    stream.close()
    logger_to(handler).warning("nobody hears this")
    assert handler._lines == []
