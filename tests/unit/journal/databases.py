"""Makes databases for tests: empty ones, and copies of one that was prepared, which is faster than preparing again."""

from __future__ import annotations

import shutil
import sqlite3
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import psycopg

from queues.journal.models import Base
from tests.unit.journal.postgres import Postgres


class Databases(Protocol):
    def empty(self) -> str: ...

    def copy(self, template: str) -> str:
        """Of a database that nobody is connected to."""
        ...

    def emptied(self, template: str) -> str:
        """A database with the schema of this one and without rows; may be this one itself."""
        ...


@dataclass(frozen=True)
class SqliteDatabases:
    folder: Path

    def empty(self) -> str:
        return f"sqlite:///{self.folder}/{uuid.uuid4().hex}.sqlite3"

    def copy(self, template: str) -> str:
        source = Path(template.removeprefix("sqlite:///"))
        made = self.empty()
        # What is still in the write-ahead log belongs to the database too.
        with sqlite3.connect(source) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.close()
        shutil.copy(source, made.removeprefix("sqlite:///"))
        return made

    def emptied(self, template: str) -> str:
        return self.copy(template)


@dataclass(frozen=True)
class PostgresDatabases:
    server: Postgres

    def empty(self) -> str:
        return self.server.create_database()

    def copy(self, template: str) -> str:
        return self.server.create_database(template)

    def emptied(self, template: str) -> str:
        # Another database takes longer, and 8 MB of disk each.
        tables = ", ".join(Base.metadata.tables)
        with psycopg.connect(template) as connection:
            connection.execute(f"TRUNCATE {tables} RESTART IDENTITY".encode())
        return template
