"""Databases for the tests of journal and inspection: `databases` makes a test run on SQLite and on PostgreSQL.

One PostgreSQL server serves the whole run, and is started by the first test that needs it.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from queues.journal import migrate
from tests.unit.journal.databases import Databases, PostgresDatabases, SqliteDatabases
from tests.unit.journal.postgres import Postgres, running


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running() as server:
        yield server


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    if request.param == "sqlite":
        return SqliteDatabases(tmp_path_factory.mktemp("databases"))
    return PostgresDatabases(request.getfixturevalue("postgres"))


@pytest.fixture(scope="session")
def template(databases: Databases) -> str:
    made = databases.empty()
    migrate.upgrade(made)
    return made
