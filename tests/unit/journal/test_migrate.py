"""The schema: what the migrations make is what the models say, and going up and down keeps what is there."""

from __future__ import annotations

import logging
import threading

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import insert, inspect, select

from queues.journal import migrate
from queues.journal.database import UnsupportedDatabaseError, database_url, open_database
from queues.journal.models import Base, QueueRecord


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
