"""Makes every log line of every process one JSON object on standard error.

Fields come from the record and its `extra`; times are UTC. A process that says a lot may write its lines in bundles, a
tenth of a second later at most. It never lets a value that JSON cannot hold lose a line.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Final, TextIO

import msgspec

from admission.commands import levels

_STANDARD: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}
#: Seconds that a line may wait for others.
_LATEST: Final = 0.1
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


class Lines(logging.StreamHandler[TextIO]):
    """Writes each line at once, unless it was told to `gather`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._lines: list[str] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def gather(self) -> None:
        """What the running event loop says from now on is written in bundles: a write costs more than its line.

        A warning takes along what waits, and so does the end of the process.
        """
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))
        loop = self._loop
        waits = record.levelno < logging.WARNING and threading.get_ident() == self._thread
        if loop is None or not waits or loop.is_closed():
            self.flush()
        elif len(self._lines) == 1:
            loop.call_later(_LATEST, self.flush)

    def flush(self) -> None:
        self.acquire()
        try:
            lines, self._lines = self._lines, []
            # Where standard error is closed there is nobody to be told, not even of that.
            with contextlib.suppress(OSError, ValueError):
                if lines:
                    self.stream.write("\n".join(lines) + "\n")
                self.stream.flush()
        finally:
            self.release()


def gather() -> None:
    """Let the lines of the running event loop be written in bundles."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, Lines):
            handler.gather()


def configure(process: str, *, verbose: bool = False) -> None:
    """Send all logging of this process to standard error; how much can be changed while it runs (`levels`)."""
    handler = Lines(sys.stderr)
    handler.setFormatter(JsonLines(process))
    # No line has them, and to find them out costs as much as the rest; this is how the library's manual says it.
    logging._srcfile = None  # noqa: SLF001
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root = logging.getLogger()
    root.handlers[:] = [handler]
    levels.listen(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "asyncio", "kubernetes", "alembic"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
