"""How long a process that dies again and again stays away."""

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
    ("more", "expected"),
    [
        pytest.param({}, [0.5, 1, 2, 4, 8, 16, 30], id="it is tried less and less often"),
        pytest.param({"longest_pause": 2}, [0.5, 1, 2, 2, 2, 2, 2], id="but as often as it has to be"),
    ],
)
def test_pauses(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float], more: dict[str, float], expected: list[float]
) -> None:
    async def once(_: children.Child) -> int:
        return -9

    monkeypatch.setattr(children.Child, "_once", once)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(children.Child("webhook", [], **more)._run())
    assert pauses == expected
