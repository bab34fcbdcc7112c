"""Makes every log line of every process one JSON object on standard error.

Fields come from the record and its `extra`; times are UTC. It never lets a value that JSON cannot hold lose a line.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Final

import msgspec

from admission.commands import levels

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
_ENCODER: Final = msgspec.json.Encoder(enc_hook=str)


class JsonLines(logging.Formatter):
    """`ts`, `level`, `logger`, `process`, `msg`, then what the call gave as `extra`, then the traceback."""

    def __init__(self, process: str) -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": self._process,
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line.update((key, value) for key, value in record.__dict__.items() if key not in _STANDARD)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return _ENCODER.encode(line).decode()
        except (TypeError, ValueError, UnicodeError):
            return _ENCODER.encode({key: repr(value) for key, value in line.items()}).decode()


def configure(process: str, *, verbose: bool = False) -> None:
    """Send all logging of this process to standard error; how much can be changed while it runs (`levels`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines(process))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    levels.listen(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "asyncio", "kubernetes", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
