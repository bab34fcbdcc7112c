"""The schema: what the migrations make is what the models say, and going up and down keeps what is there."""

from __future__ import annotations

import itertools
import logging
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import insert, inspect, select, text

from queues.journal import migrate
from queues.journal.database import UnsupportedDatabaseError, database_url, open_database
from queues.journal.entries import PastUseRow, UsageEnded, WorkloadState
from queues.journal.models import Base, QueueRecord, UsageRecord
from queues.journal.writer import Journal, Timing
from tests.unit.journal.rows import GPU, decision, local_queue, queue, started, workload


def test_the_models_say_what_the_migrations_make(url: str) -> None:
    migrate.upgrade(url)
    engine = open_database(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
        names = {i["name"] for t in Base.metadata.tables for i in inspect(connection).get_indexes(t)}
        assert names == {i.name for t in Base.metadata.tables.values() for i in t.indexes}
    engine.dispose()


def test_upgrading_again_keeps_what_is_there(url: str) -> None:
    assert migrate.current(url) is None
    migrate.upgrade(url)
    assert migrate.current(url) == migrate.head()
    engine = open_database(url, write=True)
    row = {"name": "q", "cohort": "", "strategy": "", "stop_policy": "", "active": True, "reason": "", "message": ""}
    with engine.begin() as connection:
        connection.execute(insert(QueueRecord).values(quotas=[], **row))
    migrate.upgrade(url)
    with engine.connect() as connection:
        assert connection.scalars(select(QueueRecord.name)).all() == ["q"]
    engine.dispose()


def test_down_to_nothing_with_data_and_up_again(url: str) -> None:
    test_upgrading_again_keeps_what_is_there(url)
    migrate.downgrade(url, "base")
    assert migrate.current(url) is None
    engine = open_database(url)
    with engine.connect() as connection:
        assert set(inspect(connection).get_table_names()) <= {"alembic_version"}
    engine.dispose()
    migrate.upgrade(url)
    assert migrate.current(url) == migrate.head()


def held(url: str) -> dict[str, int]:
    """Rows of each table."""
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names()) - {"alembic_version"}
            return {name: connection.execute(text(f"SELECT count(*) FROM {name}")).scalar_one() for name in tables}
    finally:
        engine.dispose()


def test_every_step_down_and_up_keeps_what_both_sides_know(url: str) -> None:
    """History, uses and the read model stay; only a table that the older version does not know goes."""
    migrate.upgrade(url)
    journal = Journal(url, timing=Timing(gather=0.0), clock=lambda: 1000.0)
    journal.start()
    journal.put(
        queue(),
        local_queue(),
        workload("w", state=WorkloadState.ADMITTED),
        PastUseRow("ns", "lq", "1", 5.0, {GPU: "1"}),
        decision("w", cause="v"),
        started("w", 10),
    )
    assert journal.close(10)
    full = held(url)
    assert {"decisions", "usage", "workloads", "cluster_queues", "local_queues"} <= {k for k, n in full.items() if n}
    revisions = migrate.revisions()
    assert revisions[-1] == migrate.head()
    for older, newer in reversed(list(itertools.pairwise(revisions))):
        migrate.downgrade(url, older)
        assert migrate.current(url) == older
        below = held(url)
        assert below == {name: full[name] for name in below}, older
        migrate.upgrade(url, newer)
        again = held(url)
        assert {name: again[name] for name in below} == below, newer
        migrate.downgrade(url, older)
    migrate.upgrade(url)
    # What was there goes on where it was: the use is open, and ends.
    journal = Journal(url, timing=Timing(gather=0.0), clock=lambda: 1000.0)
    journal.start()
    journal.put(UsageEnded(20, "w"))
    assert journal.close(10)
    engine = open_database(url)
    with engine.connect() as connection:
        assert connection.scalars(select(UsageRecord.ended_at)).all() == [20]
    engine.dispose()


def test_replicas_that_start_together_migrate_once(url: str) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            migrate.upgrade(url)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert migrate.current(url) == migrate.head()


def test_migrating_leaves_logging_and_the_terminal_alone(url: str, capfd: pytest.CaptureFixture[str]) -> None:
    root, before = logging.getLogger(), list(logging.getLogger().handlers)
    disabled = logging.getLogger("muster.before")
    migrate.upgrade(url)
    assert root.handlers == before
    assert not disabled.disabled
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("postgres://u@h/d", "postgresql+psycopg://u@h/d"),
        ("postgresql://u@h/d", "postgresql+psycopg://u@h/d"),
        ("sqlite:////var/lib/j.sqlite3", "sqlite+pysqlite:////var/lib/j.sqlite3"),
        ("/var/lib/j.sqlite3", "sqlite+pysqlite:////var/lib/j.sqlite3"),
    ],
)
def test_urls_name_their_driver(given: str, want: str) -> None:
    assert database_url(given).render_as_string() == want


def test_another_database_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedDatabaseError, match="mysql"):
        database_url("mysql://h/d")
