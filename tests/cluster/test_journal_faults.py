"""A journal whose database is stopped, full, slow, locked, or not there yet: decisions go on, history resumes.

Workloads come while the database is in trouble; afterwards each has its whole history, or a gap says what is missing,
in the history and in a metric.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from prometheus_client import generate_latest
from sqlalchemy import event, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import Pool

from admission.commands.memory import Memory
from admission.settings import Journal, Muster, Settings
from queues.journal.database import open_database
from queues.journal.models import DecisionRecord
from tests.cluster.account import kubeconfig_of_muster
from tests.cluster.controller_rig import (
    SETTINGS,
    Running,
    Watched,
    cluster_queue,
    flavor,
    install_crds,
    local_queue,
    workload,
)
from tests.cluster.faulty import sample
from tests.controlplane.cluster import Api, ControlPlane, eventually
from tests.unit.journal.postgres import Postgres
from tests.unit.journal.postgres import running as postgres_running

pytestmark = pytest.mark.cluster

Tell = Callable[[str, object], None]
COUNT = 4


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    with postgres_running() as server:
        yield server


@pytest.fixture(scope="module")
def installed(control_plane: ControlPlane) -> Api:
    install_crds(control_plane)
    control_plane.api.create(flavor())
    return control_plane.api


def settings(url: str, capacity: int = 100_000) -> Settings:
    return msgspec.structs.replace(SETTINGS, muster=Muster(journal=Journal(url=url, capacity=capacity)))


class Case:
    """A controller with a journal at `url`, and a queue of its own."""

    def __init__(self, plane: ControlPlane, url: str, name: str, capacity: int = 100_000) -> None:
        self.api, self.url, self.name = plane.api, url, name
        self.memory = Memory(settings(url, capacity))
        self.running = Running(kubeconfig_of_muster(plane), settings(url, capacity), self.memory)
        self.api.create(cluster_queue(name, 1000))
        self.api.create(local_queue(name, name))
        self._made = 0

    def come(self) -> list[str]:
        """So many Workloads, which are admitted whatever the database does; their uids."""
        names = [f"{self.name}-{self._made + number}" for number in range(COUNT)]
        self._made += COUNT
        uids = [self.api.create(workload(each, self.name))["metadata"]["uid"] for each in names]
        Watched(self.api).admitted(*names, seconds=30)
        return uids

    def caught_up(self, record_property: Tell) -> list[str]:
        """Who comes once the fault is over; how long it takes until all is written is recorded."""
        began = time.monotonic()
        came = self.come()
        eventually(self.written, seconds=60, message="all is written")
        took = time.monotonic() - began
        record_property(f"seconds_until_{self.name}_is_written", round(took, 1))
        print(f"{self.name}: all was written {took:.1f} s after the fault")
        return came

    def written(self) -> bool:
        health = self.memory.health()
        return not health.lag and not getattr(health, "waiting", 0)

    def metric(self, name: str) -> float:
        assert self.running.controller is not None
        return sample(generate_latest(self.running.controller.metrics.registry).decode(), name)

    def history(self, kind: str) -> list[str]:
        """Who has such an entry, in their order."""
        engine = open_database(self.url)
        try:
            with engine.connect() as connection:
                query = select(DecisionRecord.workload).where(DecisionRecord.kind == kind).order_by(DecisionRecord.id)
                return list(connection.scalars(query))
        finally:
            engine.dispose()

    def tells(self, kind: str, uids: list[str]) -> bool:
        """Whether these and no others have such an entry. The journal hears of it after the API server."""
        with contextlib.suppress(DBAPIError):  # there may be no tables yet
            return sorted(self.history(kind)) == sorted(uids)
        return False

    def gaps(self) -> list[dict[str, Any]]:
        engine = open_database(self.url)
        try:
            with engine.connect() as connection:
                return list(connection.scalars(select(DecisionRecord.facts).where(DecisionRecord.kind == "gap")))
        finally:
            engine.dispose()


@contextlib.contextmanager
def case(plane: ControlPlane, url: str, name: str, capacity: int = 100_000) -> Iterator[Case]:
    made = Case(plane, url, name, capacity)
    made.running.start()
    made.memory.open()
    try:
        yield made
    finally:
        made.running.stop()
        made.memory.close(5)


# ------------------------------------------------------------------ faults


@contextlib.contextmanager
def stopped(server: Postgres) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@contextlib.contextmanager
def triggered(url: str, body: str) -> Iterator[None]:
    """PostgreSQL does this before every statement that writes history."""
    make = f"CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(make.encode())
        connection.execute(
            b"CREATE TRIGGER trouble BEFORE INSERT OR UPDATE ON decisions FOR EACH STATEMENT EXECUTE FUNCTION trouble()"
        )
    try:
        yield
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(b"DROP FUNCTION trouble CASCADE")


@contextlib.contextmanager
def full_file() -> Iterator[None]:
    """SQLite may not take another page."""

    def limit(connection: Any, _record: Any, _proxy: Any) -> None:
        connection.execute("PRAGMA max_page_count=1")  # which means: as many as there are

    event.listen(Pool, "checkout", limit)
    try:
        yield
    finally:
        event.remove(Pool, "checkout", limit)


@contextlib.contextmanager
def slow_file() -> Iterator[None]:
    """Each transaction with SQLite begins two seconds late."""

    def wait(_connection: Any, _record: Any, _proxy: Any) -> None:
        time.sleep(2)

    event.listen(Pool, "checkout", wait)
    try:
        yield
    finally:
        event.remove(Pool, "checkout", wait)


@contextlib.contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Somebody else has begun to write, and does not end."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        connection.close()


def unlimited(connection: Any, _record: Any, _proxy: Any) -> None:
    connection.execute("PRAGMA max_page_count=1073741823")


POSTGRES: dict[str, Callable[[Postgres, str], contextlib.AbstractContextManager[None]]] = {
    "stopped": lambda server, _url: stopped(server),
    "full": lambda _server, url: triggered(url, "RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'"),
    "slow": lambda _server, url: triggered(url, "PERFORM pg_sleep(2)"),
}


@pytest.mark.parametrize("name", POSTGRES)
def test_decisions_go_on_while_postgresql_is(
    control_plane: ControlPlane, installed: Api, postgres: Postgres, name: str, record_property: Tell
) -> None:
    url = postgres.create_database()
    with case(control_plane, url, f"postgres-{name}") as one:
        before = one.come()
        eventually(one.written, seconds=30)
        with POSTGRES[name](postgres, url):
            during = one.come()
            eventually(lambda: one.metric("muster_journal_lag_seconds") > 0)
        after = one.caught_up(record_property)
        eventually(lambda: one.tells("admitted", [*before, *during, *after]), seconds=60)
        assert one.tells("created", [*before, *during, *after])
        assert one.gaps() == []
        assert one.metric("muster_journal_dropped_entries_total") == 0


def test_what_does_not_fit_while_postgresql_is_away_is_a_gap(
    control_plane: ControlPlane, installed: Api, postgres: Postgres
) -> None:
    url = postgres.create_database()
    with case(control_plane, url, "gap", capacity=40) as one:
        before = one.come()
        eventually(lambda: one.tells("admitted", before), message="what came before is safe")
        with stopped(postgres):
            during = one.come() + one.come() + one.come() + one.come()
            eventually(lambda: one.metric("muster_journal_dropped_entries_total") > 0)
        after = one.come()
        eventually(lambda: set(after) <= set(one.history("admitted")), seconds=60)
        eventually(one.written, seconds=60)
        (gap,) = one.gaps()
        told = one.history("created") + one.history("admitted")
        assert set(before) | set(after) <= set(told)
        assert len([uid for uid in told if uid in during]) < 2 * len(during)
        assert gap["decisions"] > 0
        assert one.metric("muster_journal_dropped_entries_total") >= gap["decisions"] + gap["usage"]


def test_a_database_that_is_there_later_than_the_controller_gets_all_of_it(
    control_plane: ControlPlane, installed: Api, postgres: Postgres
) -> None:
    url = postgres.create_database()
    postgres.stop()
    try:
        with case(control_plane, url, "late") as one:
            early = one.come()
            postgres.start()
            eventually(one.written, seconds=60)
            eventually(lambda: one.tells("admitted", early), seconds=60)
    finally:
        with contextlib.suppress(Exception):
            postgres.stop()
        postgres.start()


FILE: dict[str, Callable[[Path], contextlib.AbstractContextManager[None]]] = {
    "full": lambda _: full_file(),
    "slow": lambda _: slow_file(),
    "locked": locked_file,
}


@pytest.mark.parametrize("name", FILE)
def test_decisions_go_on_while_sqlite_is(
    control_plane: ControlPlane, installed: Api, tmp_path: Path, name: str, record_property: Tell
) -> None:
    path = tmp_path / "journal.sqlite3"
    with case(control_plane, f"sqlite:///{path}", f"sqlite-{name}") as one:
        before = one.come()
        eventually(one.written, seconds=30)
        with FILE[name](path):
            during = one.come() + one.come() + one.come()
            eventually(lambda: one.metric("muster_journal_lag_seconds") > 0)
            if name != "slow":
                why = "full" if name == "full" else "locked"
                eventually(lambda: why in getattr(one.memory.health(), "last_error", ""), seconds=60)
        event.listen(Pool, "checkout", unlimited)
        try:
            after = one.caught_up(record_property)
        finally:
            event.remove(Pool, "checkout", unlimited)
        eventually(lambda: one.tells("admitted", [*before, *during, *after]), seconds=60)
        assert one.gaps() == []
