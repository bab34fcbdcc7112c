"""What arrived, in order, and how waiting for it ends."""

from __future__ import annotations

import asyncio

import pytest

from admission.controllers.act import Gone
from admission.controllers.inbox import Inbox
from admission.jobs.effects import Ref


def test_who_waits_can_be_cancelled_also_when_something_arrives_just_then() -> None:
    async def cancelled() -> None:
        inbox = Inbox()
        waiting = asyncio.ensure_future(inbox.wait(60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        inbox.wake()
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancelled())


def test_waiting_ends_when_the_time_is_over_and_when_something_arrives() -> None:
    async def waited() -> None:
        inbox = Inbox()
        await inbox.wait(0.01)
        waiting = asyncio.ensure_future(inbox.wait(60))
        await asyncio.sleep(0)
        assert not waiting.done()
        inbox.wake()
        await waiting
        assert len(inbox) == 0, "to be woken brings nothing"

    asyncio.run(waited())


class Rests:
    """Stands in for the clock: what is slept is only noted, and the time moves on by it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.taken: list[float] = []
        monkeypatch.setattr("admission.controllers.inbox.asyncio.sleep", self.sleep)

    async def sleep(self, seconds: float) -> None:
        self.taken.append(seconds)


def test_a_lone_event_is_taken_in_at_once_and_what_comes_soon_after_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    async def worked() -> None:
        rests = Rests(monkeypatch)
        inbox = Inbox(gather=30.0)
        inbox.put(Gone(Ref("Pod", "a", "first")))
        await inbox.wait(60)
        assert (rests.taken, len(inbox.drain())) == ([], 1)
        inbox.put(Gone(Ref("Pod", "a", "second")))
        await inbox.wait(60)
        assert [round(each) for each in rests.taken] == [30]

    asyncio.run(worked())


def test_what_has_its_time_and_a_crowd_do_not_wait_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    async def worked() -> None:
        rests = Rests(monkeypatch)
        inbox = Inbox(most=2, gather=30.0)
        inbox.drain()
        await inbox.wait(0)
        assert rests.taken == [0]
        for name in ("a", "b", "c"):
            inbox.put(Gone(Ref("Pod", "ns", name)))
        await inbox.wait(60)
        assert rests.taken == [0], "as many as one turn takes are there"
        first, second = inbox.drain(), inbox.drain()
        assert [each.ref.name for each in (*first, *second) if isinstance(each, Gone)] == ["a", "b", "c"]

    asyncio.run(worked())
