"""Opens the journal's database from its URL, for writing or for reading, SQLite or PostgreSQL.

What differs between the two (drivers, pragmas, time limits) is decided here and nowhere else.
It must never create the schema: that is what `migrate` does.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
from sqlalchemy import URL, Engine, create_engine, event, make_url

#: Seconds after which a statement that is locked out or stuck gives up, so that the caller can retry or say so.
PATIENCE = 5


class UnsupportedDatabaseError(ValueError):
    """The URL names a database other than SQLite and PostgreSQL."""


def database_url(url: str) -> URL:
    """The URL with its driver; `postgres://` and `postgresql://` mean psycopg, a bare path a SQLite file."""
    parsed = make_url(url if "://" in url else f"sqlite:///{url}")
    match parsed.get_backend_name():
        case "postgresql" | "postgres":
            return parsed.set(drivername="postgresql+psycopg")
        case "sqlite":
            return parsed.set(drivername="sqlite+pysqlite")
        case other:
            raise UnsupportedDatabaseError(f"journal database {other!r} is not supported: use sqlite or postgresql")


def open_database(url: str, *, write: bool = False, patience: int = PATIENCE) -> Engine:
    """An engine; connecting is left to the first use, so a database that is down is no error here.

    `patience`: seconds to wait for another writer of a SQLite file.
    """
    parsed = database_url(url)
    if parsed.get_backend_name() == "postgresql":
        options = f"-c lock_timeout={PATIENCE}s -c statement_timeout={PATIENCE * 6}s"
        if not write:
            options += " -c default_transaction_read_only=on"
        return create_engine(
            parsed,
            json_serializer=_json,
            pool_size=4,
            max_overflow=4,
            pool_timeout=PATIENCE,
            pool_pre_ping=True,
            connect_args={
                "connect_timeout": PATIENCE,
                "options": options,
                "application_name": "muster",
                "tcp_user_timeout": PATIENCE * 6000,
            },
        )
    if parsed.database and parsed.database != ":memory:":
        path = Path(parsed.database)
        if write:
            path.parent.mkdir(parents=True, exist_ok=True)
        else:
            # A reader must not make an empty file where there is none.
            parsed = parsed.set(database=f"file:{quote(str(path))}").update_query_dict({"mode": "rw", "uri": "true"})
    engine = create_engine(parsed, json_serializer=_json, connect_args={"timeout": patience})
    begin = "BEGIN IMMEDIATE" if write else "BEGIN"

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, _record: Any) -> None:
        # The driver's own transaction handling leaves DDL outside of transactions; `_begun` takes its place.
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout={patience * 1000}")
        if write:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
        else:
            connection.execute("PRAGMA query_only=ON")

    @event.listens_for(engine, "begin")
    def _begun(connection: Any) -> None:
        connection.exec_driver_sql(begin)

    return engine


def _json(value: Any) -> str:
    """Ten times as fast as the standard library, which takes what is left: whole numbers of more than 64 bits."""
    try:
        return msgspec.json.encode(value).decode()
    except (OverflowError, TypeError, ValueError):
        return json.dumps(value)
