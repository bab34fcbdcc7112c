"""The journal's schema where there is nothing to migrate: made whole in an empty database, and known where it is there.

Only a database of an earlier version needs migrations, and with them Alembic (10 MiB, half a second): that is said, and
left to `migrate`. It must never touch a database that has anything of the journal's but the newest schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, insert, inspect, select, text

from queues.journal.database import open_database
from queues.journal.models import Base

#: The newest revision in `migrations/`: what the models say. A test compares all three.
REVISION: Final = "0003"

#: Any number that no one else uses for an advisory lock in the same PostgreSQL database.
LOCK: Final = 0x6D757374
#: Seconds for which a replica lets another one migrate before it gives up; PostgreSQL's lock has no limit.
_TURN: Final = 60

#: Where Alembic keeps the revision, as it makes it itself.
_REVISIONS: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(url: str) -> bool:
    """Makes the schema in an empty database; False where only `migrate` can make it the newest."""
    with locked(url) as connection:
        there = set(inspect(connection).get_table_names())
        if _REVISIONS.name in there:
            return connection.scalar(select(_REVISIONS.c.version_num)) == REVISION
        if there & set(Base.metadata.tables):
            return False
        Base.metadata.create_all(connection)
        _REVISIONS.create(connection)
        connection.execute(insert(_REVISIONS).values(version_num=REVISION))
        return True


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """A transaction that no other replica which changes the schema is in at the same time."""
    engine = open_database(url, write=True, patience=_TURN)
    try:
        with engine.begin() as connection:
            # On SQLite the transaction itself, begun as a writing one, is the lock.
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL statement_timeout = 0"))
                connection.execute(text("SET LOCAL lock_timeout = 0"))
                connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})
            yield connection
    finally:
        engine.dispose()
