"""What arrived, in order, and how waiting for it ends."""

from __future__ import annotations

import asyncio

import pytest

from admission.controllers.inbox import Inbox


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
        inbox.wake()
        await waiting

    asyncio.run(waited())
