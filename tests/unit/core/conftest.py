"""Every state that a test plays with is checked after each decision and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from queues.core import cycle
from queues.core.nomination import Entry, nominate
from queues.core.policy import Policy
from queues.core.records import WorkloadRecord
from queues.core.state import State
from tests.builders import Play
from tests.compiled import IS_COMPILED
from tests.unit.core.invariants import check_invariants

MakePlay = Callable[..., Play]


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The uids of those who are judged, in order."""
    if IS_COMPILED:
        pytest.skip("nobody looks over the shoulder of a compiled core")
    seen: list[str] = []

    def judge(state: State, record: WorkloadRecord, *rest: Any) -> Entry:
        seen.append(record.uid)
        return nominate(state, record, *rest)

    monkeypatch.setattr(cycle, "nominate", judge)
    return seen


@pytest.fixture
def play() -> Iterator[MakePlay]:
    made: list[Play] = []

    def make(policy: Policy | None = None) -> Play:
        one = Play(policy, after_each=lambda done: check_invariants(done.state, within_limits=done.is_within_limits))
        made.append(one)
        return one

    yield make
    for one in made:
        check_invariants(one.state, within_limits=one.is_within_limits)
