"""A schema that was made at once is the one that the migrations make, and nothing else is ever touched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from sqlalchemy import insert, inspect, select

from queues.journal import migrate, schema
from queues.journal.database import open_database
from queues.journal.models import Base, QueueRecord


def plain(index: Any) -> dict[str, Any]:
    """Conditions as text; as objects they are never the same."""
    return {**index, "dialect_options": {name: str(value) for name, value in index["dialect_options"].items()}}


def description(url: str) -> dict[str, Any]:
    """Everything that the database says of its tables."""
    engine = open_database(url)
    found = inspect(engine)
    described = {
        name: (
            [{**column, "type": str(column["type"])} for column in found.get_columns(name)],
            found.get_pk_constraint(name),
            sorted(map(plain, found.get_indexes(name)), key=lambda index: str(index["name"])),
            found.get_unique_constraints(name),
            found.get_check_constraints(name),
        )
        for name in sorted(found.get_table_names())
    }
    engine.dispose()
    return described


def test_what_is_made_at_once_is_what_the_migrations_make(url: str, migrated: str) -> None:
    assert schema.prepare(url)
    assert description(url) == description(migrated)
    assert migrate.current(url) == schema.REVISION


def test_the_revision_is_the_newest() -> None:
    assert migrate.head() == schema.REVISION


def test_what_is_there_stays(url: str) -> None:
    assert schema.prepare(url)
    engine = open_database(url, write=True)
    row = {"name": "q", "cohort": "", "strategy": "", "stop_policy": "", "active": True, "reason": "", "message": ""}
    with engine.begin() as connection:
        connection.execute(insert(QueueRecord).values(quotas=[], **row))
    assert schema.prepare(url)
    with engine.connect() as connection:
        assert connection.scalars(select(QueueRecord.name)).all() == ["q"]
    engine.dispose()


def test_an_earlier_version_is_left_to_the_migrations(url: str) -> None:
    migrate.upgrade(url, "0002")
    before = description(url)
    assert not schema.prepare(url)
    assert description(url) == before
    migrate.upgrade(url)
    assert schema.prepare(url)


def test_so_is_one_that_went_back_to_nothing(url: str) -> None:
    migrate.upgrade(url)
    migrate.downgrade(url, "base")
    assert not schema.prepare(url)


def test_and_one_whose_version_nobody_knows(url: str) -> None:
    engine = open_database(url, write=True)
    with engine.begin() as connection:
        Base.metadata.create_all(connection, tables=[Base.metadata.tables[QueueRecord.__tablename__]])
    engine.dispose()
    before = description(url)
    assert not schema.prepare(url)
    assert description(url) == before


#: A new journal, and the same one again.
OPENED = """
import sys
from queues.journal import schema, writer
for _ in range(2):
    assert schema.prepare(sys.argv[1])
    journal = writer.Journal(sys.argv[1])
    journal.start()
    assert journal.close()
found = sorted(name for name in sys.modules if name.partition(".")[0] in {"alembic", "mako"})
assert not found, found
"""


def test_alembic_is_not_imported_for_it(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", OPENED, f"sqlite:///{tmp_path / 'journal.sqlite3'}"], check=True)
