"""How long a process that died stays away: what could not even start is tried less and less often, the rest at once."""

from __future__ import annotations

import asyncio

import pytest

from admission.commands import children


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of which takes time; the seventh ends it."""
    made: list[float] = []

    async def sleep(seconds: float) -> None:
        made.append(seconds)
        if len(made) == 7:
            raise asyncio.CancelledError

    monkeypatch.setattr(children.asyncio, "sleep", sleep)
    return made


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("", [0.5, 1, 2, 4, 8, 16, 30], id="one that never got anywhere waits longer each time"),
        pytest.param("ready", [0.5, 1, 2, 2, 2, 2, 2], id="one that was serving is back in two seconds"),
    ],
)
def test_pauses(monkeypatch: pytest.MonkeyPatch, pauses: list[float], said: str, expected: list[float]) -> None:
    async def once(child: children.Child) -> int:
        child._say(said)
        return -9

    monkeypatch.setattr(children.Child, "_once", once)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(children.Child("webhook", [])._run())
    assert pauses == expected
