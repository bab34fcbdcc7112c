"""Opens the journal behind the controller's back: its libraries and its schema must not keep a gang waiting.

What is told meanwhile waits here, up to the journal's own bound. Whatever the database does, this neither blocks nor
raises; losing it costs history, never a job.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from admission.commands.surroundings import journal_url
from admission.settings import Settings

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from admission.controllers.reporting import Health
    from queues.journal.entries import Decision, Entry, PastUseRow
    from queues.journal.writer import Journal

logger = logging.getLogger(__name__)

T = TypeVar("T")

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class NotOpen:
    """The health of a journal that is still being opened. Seconds, as in the journal's own."""

    dropped: int
    lag: float
    reset_wanted: bool = False


class Memory:
    """A journal from the first moment on; `open` makes it a real one."""

    def __init__(self, settings: Settings) -> None:
        self._url = journal_url(settings)
        self._options = settings.muster.journal
        self._lock = threading.Lock()
        self._told: deque[Entry] = deque(maxlen=self._options.capacity)
        self._dropped = 0
        self._since = time.monotonic()
        self._journal: Journal | None = None
        self._ended = threading.Event()

    def put(self, *entries: Entry) -> None:
        with self._lock:
            if self._journal is not None:
                self._journal.put(*entries)
                return
            self._dropped += max(0, len(self._told) + len(entries) - self._options.capacity)
            self._told.extend(entries)

    def health(self) -> Health:
        with self._lock:
            if self._journal is not None:
                return self._journal.health()
            lag = time.monotonic() - self._since if self._told else 0.0
            # Whatever was dropped before the journal could take it has to be told again.
            return NotOpen(self._dropped, lag)

    def open(self) -> None:
        """Begin to open it, in a thread."""
        threading.Thread(target=self._open, name="journal opening", daemon=True).start()

    def recall(self) -> Future[Sequence[PastUseRow]]:
        """What LocalQueues used lately, as far as it is remembered; nothing where the database does not say."""

        def past_use(connection: Connection) -> Sequence[PastUseRow]:
            from queues.journal import read

            return read.past_use(connection)

        return self._asked("past use", past_use)

    def recall_starts(self, until: float) -> Future[Sequence[Decision]]:
        """Who started before then and with which sizes, the oldest first; nobody where the database does not say."""

        def starts(connection: Connection) -> Sequence[Decision]:
            from queues.journal import read

            return read.starts(connection, until=until)

        return self._asked("starts", starts)

    def _asked(self, what: str, question: Callable[[Connection], Sequence[T]]) -> Future[Sequence[T]]:
        """The answer, from a thread of its own."""
        found: Future[Sequence[T]] = Future()
        found.set_running_or_notify_cancel()  # whoever does not wait for it any more must not break the thread
        threading.Thread(
            target=lambda: found.set_result(self._answer(what, question)), name="journal recall", daemon=True
        ).start()
        return found

    def _answer(self, what: str, question: Callable[[Connection], Sequence[T]]) -> Sequence[T]:
        try:
            from queues.journal.database import open_database

            engine = open_database(self._url)
            try:
                with engine.connect() as connection:
                    return question(connection)
            finally:
                engine.dispose()
        except Exception as error:  # noqa: BLE001  # as above; a journal that is new, or a version behind, is one of them
            logger.info("the journal does not remember", extra={"what": what, "error": str(error)[:500]})
            return ()

    def close(self, timeout: float) -> bool:
        """Write what waits, for at most `timeout` seconds; False where something is left behind."""
        self._ended.set()
        with self._lock:
            journal, waiting = self._journal, len(self._told)
        return journal.close(timeout) if journal is not None else not waiting

    def _open(self) -> None:
        pause = _FIRST_PAUSE
        while not self._ended.is_set():
            try:
                journal = self._opened()
            except Exception as error:  # noqa: BLE001  # drivers, files and migrations fail in many ways; all are waited out
                logger.warning("the journal cannot be opened, trying again", extra={"error": str(error)[:500]})
                self._ended.wait(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            with self._lock:
                journal.put(*self._told)
                self._told.clear()
                self._journal = journal
            return

    def _opened(self) -> Journal:
        from queues.journal.writer import Journal

        if self._options.migrate_at_start:
            from queues.journal import schema

            if not schema.prepare(self._url):
                from queues.journal import migrate

                migrate.upgrade(self._url)
        journal = Journal(self._url, capacity=self._options.capacity, retention=self._options.retention)
        journal.start()
        return journal
