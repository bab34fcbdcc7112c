"""Every state that a test plays with is checked after each decision and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from queues.core.policy import Policy
from tests.builders import Play
from tests.unit.core.invariants import check_invariants

MakePlay = Callable[..., Play]


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
