"""The journal: takes entries from the controllers at once and writes them from a thread of its own.

It batches, retries with back-off while the database is down, locked or slow, and says by counters and by a gap in the
history what it could not keep. Whatever happens to the database, `put` neither blocks nor raises.
"""

from __future__ import annotations

import logging
import random
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, insert, select, update
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, SQLAlchemyError, StatementError

from queues.journal.buffer import Batch, Buffer
from queues.journal.database import open_database
from queues.journal.entries import Entry
from queues.journal.models import WriterRecord
from queues.journal.store import prune, write_batch

log = logging.getLogger("muster.journal")

DAY = 86_400.0

_GATHER_MORE = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds.

    `gather`: how long entries are collected before they are written; five times as long while they keep coming, since
    most of what a batch costs does not depend on its size. `heartbeat`: how often an idle writer says that it
    is alive, so that readers know how old the read model is.
    """

    gather: float = 0.2
    heartbeat: float = 10.0
    first_retry: float = 0.1
    longest_retry: float = 10.0
    prune_every: float = 600.0


@dataclass(frozen=True, slots=True)
class Health:
    """Counters of one journal.

    `lag`: seconds since the oldest entry that is not written yet was told. `reset_wanted`: the read model may be
    incomplete until a `Reset` is told.
    """

    waiting: int
    dropped: int
    lag: float
    written: int
    failures: int
    last_error: str
    last_written_at: float
    reset_wanted: bool


class Journal:
    """One for each process that decides. Retention in seconds (None: for ever), counted from when something ended."""

    def __init__(
        self,
        url: str,
        *,
        capacity: int = 100_000,
        batch_size: int = 2_000,
        retention: float | None = 30 * DAY,
        usage_retention: float | None = 400 * DAY,
        timing: Timing = Timing(),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._engine: Engine = open_database(url, write=True)
        self._batch_size = batch_size
        self._retention = (retention, usage_retention)
        self._timing = timing
        self._clock = clock
        self._buffer = Buffer(capacity)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closing: float | None = None
        self._writing: Batch | None = None
        self._waiting_since: float | None = None
        self._writing_since: float | None = None
        self._writer = uuid.uuid4().hex
        self._batch = 0
        self._taken_at = 0.0
        self._dropped = self._written = self._failures = 0
        self._last_error = ""
        self._last_written_at = 0.0
        self._next_prune = 0.0
        self._registered = self._reset_wanted = False

    # ---- for the controllers

    def start(self) -> None:
        """Entries told before are kept and written now."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
            self._thread.start()

    def put(self, *entries: Entry) -> None:
        with self._changed:
            if self._closing is not None:
                self._dropped += len(entries)
                return
            for entry in entries:
                self._buffer.add(entry)
            if self._waiting_since is None and entries:
                self._waiting_since = time.monotonic()
                self._changed.notify_all()
            elif len(self._buffer) >= self._batch_size:
                self._changed.notify_all()

    def health(self) -> Health:
        with self._changed:
            oldest = self._writing_since or self._waiting_since
            return Health(
                waiting=len(self._buffer) + len(self._writing or ()),
                dropped=self._dropped + self._buffer.dropped,
                lag=0.0 if oldest is None else time.monotonic() - oldest,
                written=self._written,
                failures=self._failures,
                last_error=self._last_error,
                last_written_at=self._last_written_at,
                reset_wanted=self._reset_wanted or self._buffer.removals_lost,
            )

    def close(self, timeout: float = 5.0) -> bool:
        """Writes what waits, for at most `timeout` seconds; False where something is left behind. `put` drops then."""
        with self._changed:
            self._closing = time.monotonic() + timeout
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        with self._changed:
            return not len(self._buffer) and self._writing is None

    # ---- the thread

    def _run(self) -> None:
        retry = self._timing.first_retry
        try:
            while (batch := self._next()) is not None:
                try:
                    self._write(batch)
                except (SQLAlchemyError, OSError) as error:
                    self._failed(error)
                    if not self._pause(retry * random.uniform(0.75, 1.25)):  # noqa: S311 - spreads retries, no secret
                        return
                    retry = min(retry * 2, self._timing.longest_retry)
                else:
                    retry = self._timing.first_retry
                    self._succeeded(batch)
        finally:
            self._engine.dispose()

    def _next(self) -> Batch | None:
        """The batch that failed, or a new one, which is empty when just a heartbeat is due; None: closed and done."""
        with self._changed:
            if self._writing is not None:
                return self._writing
            self._changed.wait_for(
                lambda: len(self._buffer) or self._closing is not None,
                self._timing.heartbeat if self._registered else 0.0,
            )
            if self._closing is not None and not len(self._buffer) and self._buffer.gap is None:
                return None
            if self._closing is None and len(self._buffer):
                gather = self._timing.gather
                more = self._taken_at + _GATHER_MORE * gather - time.monotonic()
                self._changed.wait_for(
                    lambda: len(self._buffer) >= self._batch_size or self._closing is not None, max(gather, more)
                )
            self._taken_at = time.monotonic()
            self._batch += 1
            self._writing = self._buffer.take(self._batch_size)
            self._writing_since = self._waiting_since
            self._waiting_since = time.monotonic() if len(self._buffer) else None
            return self._writing

    def _pause(self, seconds: float) -> bool:
        """False where closing leaves no time to try again."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing is not None, seconds)
            if self._closing is None:
                return True
        left = self._closing - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, self._timing.first_retry))
        return True

    def _write(self, batch: Batch) -> None:
        now = self._clock()
        try:
            with self._engine.begin() as connection:
                if self._mark(connection, now):
                    write_batch(connection, batch, now)
        except Exception as error:  # a value without JSON can raise anything, and must not end the thread
            if not _is_poisoned(error):
                raise
            self._write_singly(batch, error)
        if len(self._buffer) == 0 and time.monotonic() >= self._next_prune:
            self._next_prune = time.monotonic() + self._timing.prune_every
            self._prune(now)

    def _mark(self, connection: Connection, now: float) -> bool:
        """False where this batch was written before, but its commit was not confirmed."""
        health = self.health()
        row = {"written_at": now, "batch": self._batch, "dropped": health.dropped}
        mine = WriterRecord.writer == self._writer
        if connection.scalar(select(WriterRecord.batch).where(mine)) == self._batch:
            return False
        if connection.execute(update(WriterRecord).where(mine).values(row)).rowcount == 0:
            if self._registered:
                # Someone emptied or replaced the database: what was written before is not there any more.
                self._reset_wanted = True
            connection.execute(insert(WriterRecord).values(writer=self._writer, started_at=now, **row))
        return True

    def _write_singly(self, batch: Batch, error: Exception) -> None:
        """Some entry is not acceptable to the database at all: find it and do without, or nothing is written again."""
        log.warning("the journal's database refuses an entry, writing one by one: %s", _brief(error))
        parts = [
            *(Batch(rows=(row,)) for row in batch.rows),
            *(Batch(usage=(use,)) for use in batch.usage),
            *(Batch(decisions=(decision,)) for decision in batch.decisions),
        ]
        if batch.replace:
            parts.insert(0, Batch(replace=True))
        if batch.gap is not None:
            parts.append(Batch(gap=batch.gap))
        now = self._clock()
        with self._engine.begin() as connection:
            if not self._mark(connection, now):
                return
            for part in parts:
                try:
                    with connection.begin_nested():
                        write_batch(connection, part, now)
                except Exception as refused:
                    if not _is_poisoned(refused):
                        raise
                    log.error("the journal dropped an entry: %s: %.500r", _brief(refused), part)  # noqa: TRY400 - the entry matters, not our stack
                    self._dropped += 1
                    self._last_error = _brief(refused)

    def _prune(self, now: float) -> None:
        decisions, usage = (None if kept is None else now - kept for kept in self._retention)
        more = True
        while more and len(self._buffer) == 0:
            with self._engine.begin() as connection:
                more = prune(connection, decisions_before=decisions, usage_before=usage, limit=self._batch_size)

    # ---- counters

    def _failed(self, error: BaseException) -> None:
        with self._changed:
            first, self._last_error = not self._last_error, _brief(error)
            self._failures += 1
        if first:
            log.warning("the journal's database is not available, decisions go on and are kept: %s", self._last_error)

    def _succeeded(self, batch: Batch) -> None:
        with self._changed:
            recovered, self._last_error = self._last_error, ""
            self._written += len(batch)
            self._last_written_at = self._clock()
            self._writing = None
            self._registered = True
            if batch.replace:
                self._reset_wanted = False
            self._writing_since = None
        if recovered:
            log.info("the journal's database is available again")


def _is_poisoned(error: Exception) -> bool:
    """Whether the values are at fault and not the database: the same would happen again."""
    match error:
        case DataError() | IntegrityError():
            return True
        case DBAPIError():
            return False
        case StatementError():
            return True
        case SQLAlchemyError() | OSError():
            return False
        case _:
            # Raised before the database was asked, for instance by a value that has no JSON.
            return True


def _brief(error: BaseException) -> str:
    cause = getattr(error, "orig", None) or error
    return f"{type(cause).__name__}: {str(cause).strip().splitlines()[0] if str(cause).strip() else ''}"
