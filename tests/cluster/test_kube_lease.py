"""Several controllers, one Lease: exactly one works, and the next takes over."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from admission.kube.client import Client, connect
from admission.kube.lease import LeaseLostError, lead
from admission.settings import LeaderElection, Seconds
from tests.controlplane.cluster import ControlPlane

pytestmark = pytest.mark.cluster

NAMESPACE = "muster-lease"


def quick(name: str) -> LeaderElection:
    """Yet not so quick that a busy machine is too late to renew."""
    return LeaderElection(
        resource_name=name, lease_duration=Seconds(8), renew_deadline=Seconds(6), retry_period=Seconds(1)
    )


class Candidate:
    def __init__(self, client: Client, settings: LeaderElection, holder: str) -> None:
        self.leading = asyncio.Event()
        self.stopped_at: float | None = None
        self.task = asyncio.ensure_future(lead(client, settings, NAMESPACE, self.work, holder=holder))

    async def work(self) -> None:
        self.leading.set()
        try:
            await asyncio.sleep(3600)
        finally:
            self.stopped_at = time.monotonic()

    async def stop(self) -> None:
        self.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self.task


def lease(plane: ControlPlane, name: str) -> dict[str, Any]:
    return plane.api.get("Lease", name, NAMESPACE)["spec"]


async def soon(question: Callable[[], bool], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(question):  # noqa: ASYNC110  # the API server is asked
            await asyncio.sleep(0.05)


def test_an_orderly_stop_hands_over_at_once(control_plane: ControlPlane) -> None:
    async def work() -> None:
        settings = quick("orderly")
        async with await connect(control_plane.kubeconfig) as client:
            first = Candidate(client, settings, "first")
            await asyncio.wait_for(first.leading.wait(), 30)
            second = Candidate(client, settings, "second")
            await asyncio.sleep(2)
            assert not second.leading.is_set()
            assert lease(control_plane, "orderly")["holderIdentity"] == "first"

            def is_renewed() -> bool:
                renewed = datetime.fromisoformat(lease(control_plane, "orderly")["renewTime"])
                return abs((datetime.now(UTC) - renewed).total_seconds()) < 2

            await soon(is_renewed)
            await first.stop()
            assert first.stopped_at is not None
            assert not lease(control_plane, "orderly").get("holderIdentity")
            started = time.monotonic()
            await asyncio.wait_for(second.leading.wait(), 30)
            assert time.monotonic() - started < settings.lease_duration
            await second.stop()

    asyncio.run(work())


def test_a_holder_that_died_is_replaced_when_its_lease_ran_out(control_plane: ControlPlane) -> None:
    async def work() -> None:
        settings = quick("died")
        async with await connect(control_plane.kubeconfig) as client:
            first = Candidate(client, settings, "first")
            await asyncio.wait_for(first.leading.wait(), 30)
            await first.stop()
            # As it would stand there after a kill: held, and never renewed again.
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            held = {"spec": {"holderIdentity": "dead", "leaseDurationSeconds": 8, "renewTime": now}}
            control_plane.api.patch("Lease", "died", held, NAMESPACE)
            second = Candidate(client, settings, "second")
            started = time.monotonic()
            await asyncio.wait_for(second.leading.wait(), 60)
            assert time.monotonic() - started > 7
            await second.stop()

    asyncio.run(work())


def test_work_ends_when_the_lease_is_lost(control_plane: ControlPlane) -> None:
    async def work() -> None:
        settings = quick("lost")
        async with await connect(control_plane.kubeconfig) as client:
            first = Candidate(client, settings, "first")
            await asyncio.wait_for(first.leading.wait(), 30)
            await asyncio.to_thread(control_plane.kill, "kube-apiserver")
            try:
                with pytest.raises(LeaseLostError):
                    await asyncio.wait_for(first.task, 60)
                assert first.stopped_at is not None
            finally:
                await asyncio.to_thread(control_plane.restart, "kube-apiserver")

    asyncio.run(work())


def test_the_work_ending_gives_the_lease_up(control_plane: ControlPlane) -> None:
    async def work() -> None:
        async def fail() -> None:
            raise RuntimeError("broken")

        async with await connect(control_plane.kubeconfig) as client:
            with pytest.raises(RuntimeError, match="broken"):
                await lead(client, quick("broken"), NAMESPACE, fail, holder="first")
            assert not lease(control_plane, "broken").get("holderIdentity")

    asyncio.run(work())
