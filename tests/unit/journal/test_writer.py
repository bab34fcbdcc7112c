"""The journal writes what it is told, and outlives a database that is missing, locked, down or wiped."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from queues.journal import migrate
from queues.journal.database import open_database
from queues.journal.entries import (
    Decision,
    Entry,
    Kind,
    LocalQueueRemoved,
    PastUseRow,
    Reset,
    UsageEnded,
    WorkloadRemoved,
    WorkloadState,
)
from queues.journal.models import (
    DecisionRecord,
    LocalQueueRecord,
    PastUseRecord,
    QueueRecord,
    UsageRecord,
    WorkloadRecord,
    WriterRecord,
)
from queues.journal.writer import DAY, Health, Journal, Timing
from tests.unit.journal.postgres import Postgres
from tests.unit.journal.rows import GPU, decision, local_queue, queue, started, workload

FAST = Timing(gather=0.0, heartbeat=0.05, first_retry=0.01, longest_retry=0.02, prune_every=0.0)


@contextmanager
def journal(url: str, **more: Any) -> Iterator[Journal]:
    it = Journal(url, **{"timing": FAST, "clock": lambda: 1000.0, **more})
    it.start()
    try:
        yield it
    finally:
        it.close(5)


def written(url: str, *entries: Entry, **more: Any) -> Health:
    with journal(url, **more) as it:
        it.put(*entries)
        assert it.close(10)
        return it.health()


def until(it: Journal, question: Callable[[Health], object]) -> Health:
    deadline = time.monotonic() + 10
    while not question(health := it.health()):
        assert time.monotonic() < deadline, health
        threading.Event().wait(0.005)
    return health


def rows(url: str, record: Any, *columns: str) -> list[Any]:
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            query = select(*(getattr(record, c) for c in columns)).order_by(*record.__table__.primary_key.columns)
            return [row[0] if len(columns) == 1 else tuple(row) for row in connection.execute(query)]
    finally:
        engine.dispose()


def test_what_is_told_is_written(migrated: str) -> None:
    health = written(
        migrated,
        queue(),
        local_queue(),
        workload("a", message="nul \x00 is no text", facts={"big": 2**80}),
        decision("a", facts={"needed": 8}, remedy="free 3", cause="b"),
        started("a", 10),
    )
    assert (health.waiting, health.dropped, health.last_error, health.lag) == (0, 0, "", 0.0)
    assert rows(migrated, QueueRecord, "name", "cohort", "active") == [("cq", "research", True)]
    assert rows(migrated, LocalQueueRecord, "namespace", "name", "cluster_queue") == [("ns", "lq", "cq")]
    assert rows(migrated, WorkloadRecord, "uid", "state", "facts") == [("a", "pending", {"big": 2**80})]
    assert rows(migrated, WorkloadRecord, "message") == ["nul \N{REPLACEMENT CHARACTER} is no text"]
    assert rows(migrated, DecisionRecord, "kind", "facts", "remedy", "cause") == [
        ("held", {"needed": 8}, "free 3", "b")
    ]
    assert rows(migrated, UsageRecord, "workload", "amount", "started_at", "ended_at") == [("a", 8, 10, None)]


def test_rows_replace_and_go(migrated: str) -> None:
    written(migrated, workload("a"), workload("b"), queue("x"), local_queue("x"))
    written(migrated, workload("a", state=WorkloadState.ADMITTED, effective_priority=7), WorkloadRemoved("b"))
    assert rows(migrated, WorkloadRecord, "uid", "state", "priority", "falling_priority") == [("a", "admitted", 0, -7)]


def test_a_reset_leaves_exactly_what_it_names(migrated: str) -> None:
    written(
        migrated,
        workload("gone"),
        workload("a"),
        queue("gone"),
        local_queue("gone"),
        started("gone", 10),
        started("a", 10),
    )
    reset = Reset(90, workloads=(workload("a"), workload("new")), queues=(queue(),), usage=(started("a", 10),))
    written(migrated, reset)
    assert rows(migrated, WorkloadRecord, "uid") == ["a", "new"]
    assert rows(migrated, QueueRecord, "name") == ["cq"]
    assert rows(migrated, LocalQueueRecord, "name") == []
    assert rows(migrated, UsageRecord, "workload", "started_at", "ended_at") == [("gone", 10, 90), ("a", 10, None)]


def test_past_use_survives_a_reset_and_goes_with_its_local_queue(migrated: str) -> None:
    written(migrated, PastUseRow("ns", "a", "1", 5.0, {GPU: "1"}), PastUseRow("ns", "b", "2", 5.0, {GPU: "2500m"}))
    written(
        migrated, PastUseRow("ns", "a", "1", 6.0, {GPU: "3"}), Reset(90, past_use=(PastUseRow("ns", "c", "3", 7.0),))
    )
    columns = ("name", "uid", "at", "consumed")
    a, b, c = ("a", "1", 6.0, {GPU: "3"}), ("b", "2", 5.0, {GPU: "2500m"}), ("c", "3", 7.0, {})
    assert sorted(rows(migrated, PastUseRecord, *columns)) == [("a", "1", 5.0, {GPU: "1"}), b, c]
    written(migrated, PastUseRow("ns", "a", "1", 6.0, {GPU: "3"}), LocalQueueRemoved("ns", "b"))
    assert sorted(rows(migrated, PastUseRecord, *columns)) == [a, c]


def test_uses_in_several_batches_are_one_interval(migrated: str) -> None:
    with journal(migrated, batch_size=1) as it:
        it.put(started("a", 10), started("a", 10), UsageEnded(30, "a"), UsageEnded(31, "a"))
        assert it.close(10)
    assert rows(migrated, UsageRecord, "started_at", "ended_at") == [(10, 30)]


def test_thousands_of_rows_in_one_batch(migrated: str) -> None:
    many = [workload(f"w{n:05}") for n in range(1500)]
    written(migrated, *many, *(started(w.uid, 1) for w in many), batch_size=5000)
    written(migrated, *(WorkloadRemoved(w.uid) for w in many[1:]), *(UsageEnded(2, w.uid) for w in many))
    assert rows(migrated, WorkloadRecord, "uid") == ["w00000"]
    assert set(rows(migrated, UsageRecord, "ended_at")) == {2.0}


def test_a_database_without_tables_is_waited_for(url: str) -> None:
    open_database(url, write=True).connect().close()
    with journal(url) as it:
        it.put(decision("a"), workload("a"))
        health = until(it, lambda h: h.failures)
        assert health.last_error
        assert health.lag > 0
        migrate.upgrade(url)
        until(it, lambda h: not h.waiting)
        assert it.health().last_error == ""
    assert rows(url, DecisionRecord, "workload") == ["a"]
    assert rows(url, WorkloadRecord, "uid") == ["a"]


def test_what_did_not_fit_is_told_as_a_gap(url: str) -> None:
    open_database(url, write=True).connect().close()
    with journal(url, capacity=3) as it:
        until(it, lambda h: h.failures)
        it.put(*(decision("a", at) for at in range(10)), workload("a", priority=1), workload("a", priority=2))
        assert it.health().dropped == 7
        migrate.upgrade(url)
        until(it, lambda h: not h.waiting)
    assert rows(url, WorkloadRecord, "priority") == [2]
    kinds = rows(url, DecisionRecord, "kind", "at", "facts")
    assert kinds[0][0] == "gap"
    assert kinds[0][2] == {"since": 0, "until": 6, "decisions": 7, "usage": 0}
    assert [(kind, at) for kind, at, _ in kinds[1:]] == [("held", 7.0), ("held", 8.0), ("held", 9.0)]


def test_uses_whose_end_was_lost_do_not_run_for_ever(migrated: str) -> None:
    running = workload("runs", state=WorkloadState.ADMITTED)
    written(
        migrated, started("ended", 10), started("runs", 10), running, workload("ended", state=WorkloadState.ADMITTED)
    )
    engine = open_database(migrated, write=True)
    with engine.connect() as blocker:
        blocker.execute(text("UPDATE workloads SET pods = 2"))
        if blocker.dialect.name == "postgresql":
            blocker.execute(text("LOCK TABLE workloads, journal_writers"))
        with journal(migrated, capacity=2) as it:
            it.put(WorkloadRemoved("ended"), UsageEnded(40, "ended"), UsageEnded(50, "x"), UsageEnded(60, "y"))
            assert it.health().dropped == 1
            blocker.rollback()
            until(it, lambda h: not h.waiting)
    engine.dispose()
    assert rows(migrated, UsageRecord, "workload", "ended_at") == [("ended", 40), ("runs", None)]


def test_a_poisoned_entry_costs_only_itself(migrated: str, caplog: pytest.LogCaptureFixture) -> None:
    poison = decision("bad", facts={"no": object()})
    too_big = workload("big", priority=2**70)
    with caplog.at_level(logging.ERROR, "muster.journal"):
        health = written(migrated, decision("a"), poison, decision("b"), too_big, workload("c"), started("d", 1))
    assert health.dropped == 2
    assert rows(migrated, DecisionRecord, "workload") == ["a", "b"]
    assert rows(migrated, WorkloadRecord, "uid") == ["c"]
    assert rows(migrated, UsageRecord, "workload") == ["d"]
    assert "bad" in caplog.text


def test_a_batch_whose_commit_was_not_confirmed_counts_once(migrated: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection breaks just after the commit: the writer cannot know, and writes the batch again."""
    with journal(migrated, timing=Timing(gather=0, heartbeat=60, first_retry=0.01)) as it:
        until(it, lambda h: h.last_written_at)
        write, tries = it._write, []

        def interrupted(batch: Any) -> None:
            write(batch)
            tries.append(batch)
            if len(tries) == 1:
                raise OSError("connection reset")

        monkeypatch.setattr(it, "_write", interrupted)
        it.put(decision("a"), started("a", 1))
        until(it, lambda h: not h.waiting)
        assert len(tries) == 2
    assert rows(migrated, DecisionRecord, "workload") == ["a"]
    assert rows(migrated, UsageRecord, "workload") == ["a"]


def test_old_decisions_and_uses_go(migrated: str) -> None:
    now = 1000 * DAY
    with journal(migrated, clock=lambda: now, retention=30 * DAY, usage_retention=400 * DAY, batch_size=3) as it:
        it.put(*(decision("old", now - 31 * DAY) for _ in range(8)), decision("new", now - 29 * DAY))
        it.put(started("old", 1), UsageEnded(now - 401 * DAY, "old"), started("open", 2))
        until(it, lambda h: not h.waiting)
        deadline = time.monotonic() + 10  # pruning goes on beside heartbeats
        while len(rows(migrated, DecisionRecord, "id")) > 1 or len(rows(migrated, UsageRecord, "id")) > 1:
            assert time.monotonic() < deadline
    assert rows(migrated, DecisionRecord, "workload") == ["new"]
    assert rows(migrated, UsageRecord, "workload") == ["open"]


def test_without_retention_everything_stays(migrated: str) -> None:
    written(
        migrated,
        decision("old", 1),
        started("old", 1),
        UsageEnded(2, "old"),
        clock=time.time,
        retention=None,
        usage_retention=None,
    )
    assert rows(migrated, DecisionRecord, "workload") == ["old"]
    assert rows(migrated, UsageRecord, "workload") == ["old"]


def test_an_idle_writer_says_that_it_is_alive(migrated: str) -> None:
    times = iter(range(10**6))
    with journal(migrated, clock=lambda: float(next(times))) as it:
        first = until(it, lambda h: h.last_written_at).last_written_at
        until(it, lambda h: h.last_written_at > first + 3)
        assert len(rows(migrated, WriterRecord, "writer")) == 1


def test_a_wiped_database_asks_for_a_reset(migrated: str) -> None:
    with journal(migrated) as it:
        until(it, lambda h: h.last_written_at)
        migrate.downgrade(migrated, "base")
        migrate.upgrade(migrated)
        until(it, lambda h: h.reset_wanted)
        it.put(Reset(5, queues=(queue(),)))
        until(it, lambda h: not h.reset_wanted)
    assert rows(migrated, QueueRecord, "name") == ["cq"]


def test_a_locked_sqlite_file_delays_and_loses_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/j.sqlite3"
    migrate.upgrade(url)
    other = sqlite3.connect(tmp_path / "j.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with journal(url) as it:
        begin = time.monotonic()
        it.put(*(decision("a", n) for n in range(1000)))
        assert time.monotonic() - begin < 1, "telling never waits for the database"
        other.execute("COMMIT")
        until(it, lambda h: not h.waiting)
    assert len(rows(url, DecisionRecord, "id")) == 1000


def test_readers_do_not_wait_for_the_writer(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/j.sqlite3"
    migrate.upgrade(url)
    written(url, workload("a"))
    other = sqlite3.connect(tmp_path / "j.sqlite3", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM workloads")
    begin = time.monotonic()
    assert rows(url, WorkloadRecord, "uid") == ["a"]
    assert time.monotonic() - begin < 2
    other.execute("ROLLBACK")


def test_reading_makes_no_file_and_changes_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/j.sqlite3"
    with pytest.raises(Exception, match="unable to open"):
        open_database(url).connect()
    assert not (tmp_path / "j.sqlite3").exists()
    migrate.upgrade(url)
    with open_database(url).connect() as connection, pytest.raises(Exception, match="readonly"):
        connection.execute(text("DELETE FROM workloads"))


def test_a_postgresql_server_that_goes_away_and_comes_back(postgres: Postgres) -> None:
    url = postgres.create_database()
    migrate.upgrade(url)
    with journal(url) as it:
        it.put(decision("before"))
        until(it, lambda h: not h.waiting)
        postgres.stop()
        it.put(decision("while", 2), workload("w"))
        until(it, lambda h: h.failures)
        postgres.start()
        until(it, lambda h: not h.waiting)
    assert rows(url, DecisionRecord, "workload") == ["before", "while"]


def test_closing_gives_up_in_time_and_says_so(tmp_path: Path) -> None:
    it = Journal(f"sqlite:///{tmp_path}/never-migrated.sqlite3", timing=FAST)
    it.start()
    it.put(decision("a"))
    begin = time.monotonic()
    assert it.close(0.3) is False
    assert time.monotonic() - begin < 2
    it.put(decision("b"))
    assert it.health().dropped == 1


def test_told_before_the_start_is_kept(migrated: str) -> None:
    it = Journal(migrated, timing=FAST, clock=lambda: 1000.0)
    it.put(decision("early"))
    it.start()
    assert it.close(10)
    assert rows(migrated, DecisionRecord, "workload") == ["early"]


def test_entries_are_plain_values() -> None:
    one = Decision(at=1, workload="u", namespace="n", name="w", kind=Kind.ADMITTED)
    assert one == Decision(at=1, workload="u", namespace="n", name="w", kind=Kind.ADMITTED)
    with pytest.raises(AttributeError):
        one.at = 2  # type: ignore[misc]
