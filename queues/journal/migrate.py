"""Brings the journal's schema to a revision, up or down, from the migrations of the checkout or of the wheel.

One transaction holds all steps, and a lock keeps two replicas that start together from migrating at the same time.
It must never touch the program's logging or print.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

import queues
from queues.journal.database import database_url, open_database

#: Any number that no one else uses for an advisory lock in the same PostgreSQL database.
LOCK = 0x6D757374
#: Seconds for which a replica lets another one migrate before it gives up; PostgreSQL's lock has no limit.
_TURN = 60


def migrations_folder() -> Path:
    """Beside the package in a checkout, inside it in an installed wheel."""
    package = Path(queues.__file__).parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise FileNotFoundError(f"no migrations beside {package}: the installation is incomplete")


def upgrade(url: str, revision: str = "head") -> None:
    """Creates or upgrades the schema; does nothing where it is there already."""
    with _locked(url) as (config, _connection):
        command.upgrade(config, revision)


def downgrade(url: str, revision: str) -> None:
    """Goes back to `revision`; `base` removes every table and all that they remember."""
    with _locked(url) as (config, _connection):
        command.downgrade(config, revision)


def current(url: str) -> str | None:
    """The revision of the database; None for one without a schema."""
    parsed = database_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        return None
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def revisions() -> tuple[str, ...]:
    """All that there are, the oldest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())[::-1]


def head() -> str | None:
    """The newest revision that there is."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _locked(url: str) -> Iterator[tuple[Config, Connection]]:
    engine = open_database(url, write=True, patience=_TURN)
    try:
        with engine.begin() as connection:
            # On SQLite the transaction itself, begun as a writing one, is the lock.
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(text("SET LOCAL lock_timeout = 0"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            config = _config()
            config.attributes["connection"] = connection
            yield config, connection
    finally:
        engine.dispose()
