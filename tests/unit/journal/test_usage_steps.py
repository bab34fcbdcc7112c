"""Use of quota step by step: each step says what asking for its times alone says."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest
from sqlalchemy import Connection

from queues.journal.database import open_database
from queues.journal.entries import Entry, UsageEnded
from queues.journal.usage import MOST_STEPS, By, usage, usage_by_step
from tests.unit.journal.rows import started
from tests.unit.journal.test_read import remember

NOW = 95_000.0


@pytest.fixture
def connection(migrated: str) -> Iterator[Connection]:
    chance = random.Random(7)
    told: list[Entry] = []
    for number in range(60):
        begin = chance.uniform(0, 90_000)
        queue, namespace = chance.choice("ab"), chance.choice("xy")
        told.append(started(f"w{number}", begin, chance.randint(1, 9), cluster_queue=queue, namespace=namespace))
        if chance.random() < 0.8:
            told.append(UsageEnded(begin + chance.uniform(1, 20_000), f"w{number}"))
    remember(migrated, *told)
    engine = open_database(migrated)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def test_steps_are_parts_of_the_whole(connection: Connection) -> None:
    bounds = [0.0, 10_000.0, 33_333.3, 60_000.0, 100_000.0, 120_000.0]
    for by in By:
        for namespace in (None, "x"):
            found = usage_by_step(connection, bounds, by=by, now=NOW, namespace=namespace)
            for number, (start, stop) in enumerate(pairwise(bounds)):
                want = usage(connection, start, stop, by=by, now=NOW, namespace=namespace)
                got = [each.total for each in found if each.step == number]
                assert [(t.key, t.flavor, t.workloads) for t in got] == [(t.key, t.flavor, t.workloads) for t in want]
                assert [t.amount_seconds for t in got] == pytest.approx([t.amount_seconds for t in want])


def test_nothing_of_what_is_yet_to_come(connection: Connection) -> None:
    assert usage_by_step(connection, [100_000.0, 120_000.0], now=NOW) == []


def test_as_many_steps_as_one_statement_may_have(connection: Connection) -> None:
    every = NOW / MOST_STEPS
    assert usage_by_step(connection, [every * n for n in range(MOST_STEPS + 1)], now=NOW)
    with pytest.raises(ValueError, match="steps"):
        usage_by_step(connection, [float(n) for n in range(MOST_STEPS + 2)], now=NOW)
