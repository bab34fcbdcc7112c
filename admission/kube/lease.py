"""Decides which of several controllers works: the one that holds the Lease, by the official client's election.

The election's rules and timing are the official client's; the lock is stored through Muster's client, whose times are
UTC and whose faults (a lost connection, a timeout) count as a renewal that failed. On an orderly end the Lease is
given up, so that the next takes over at once. The work never goes on without the Lease, and a process that stood still
knows that it may have lost it before it learns so: `Tenure`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.electionconfig import Config
from kubernetes.aio.leaderelection.leaderelection import LeaderElection as Election
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from kubernetes.aio.leaderelection.resourcelock.baselock import BaseLock

from admission.api.meta import rfc3339_micro
from admission.kube.client import Client
from admission.kube.errors import ApiError, NotFound
from admission.kube.resources import LEASES, NAMESPACES
from admission.settings import LeaderElection

logger = logging.getLogger(__name__)

#: Seconds after which a task that goes on although it was cancelled is cancelled again.
_CANCELLED_AGAIN = 1.0


class LeaseLostError(Exception):
    """The Lease could not be renewed in time: another may hold it, so the work was stopped."""


class Tenure:
    """How long the Lease is surely held: for `seconds` after the last renewal was sent, by a clock that nobody sets.

    Nobody else may take it before that. Who was stopped, or got no time to run, asks before every decision and write,
    since what ends the work may get its turn only later.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._renewed_at: float | None = None

    @property
    def is_sure(self) -> bool:
        return self._renewed_at is not None and self._clock() - self._renewed_at < self._seconds

    def began(self) -> float:
        """The moment from which on a renewal that is being sent will count."""
        return self._clock()

    def renewed(self, began: float) -> None:
        self._renewed_at = began

    def ended(self) -> None:
        self._renewed_at = None


def identity() -> str:
    """A name for this process that no other has."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4()}"


class _LeaseLock(BaseLock):  # type: ignore[misc]
    """The election record in the spec of a Lease."""

    def __init__(self, client: Client, namespace: str, name: str, holder: str, timeout: float, tenure: Tenure) -> None:
        super().__init__(name, namespace, holder)
        self._client = client
        self._timeout = timeout
        self._tenure = tenure
        self._lease: dict[str, Any] = {}

    async def get(self, name: str, namespace: str) -> tuple[bool, Any]:
        try:
            async with asyncio.timeout(self._timeout):
                self._lease = await self._client.get(LEASES, namespace, name)
        except (ApiError, TimeoutError) as error:
            status = error.status if isinstance(error, ApiError) else 0
            return False, ApiException(status=status, reason=str(error), body=json.dumps({"code": status}))
        spec = self._lease.get("spec") or {}
        return True, LeaderElectionRecord(
            spec.get("holderIdentity") or None,
            str(spec["leaseDurationSeconds"]) if spec.get("leaseDurationSeconds") else None,
            _election_time(spec.get("acquireTime")),
            _election_time(spec.get("renewTime")),
        )

    async def create(self, name: str, namespace: str, election_record: Any) -> bool:
        self._lease = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": _spec(election_record) | {"leaseTransitions": 0},
        }
        return await self._write(self._create(namespace))

    async def _create(self, namespace: str) -> dict[str, Any]:
        try:
            return await self._client.create(LEASES, self._lease, namespace)
        except NotFound:
            # Run from outside a cluster, Muster's own namespace need not be there.
            await self._client.create(NAMESPACES, {"metadata": {"name": namespace}})
            return await self._client.create(LEASES, self._lease, namespace)

    async def update(self, name: str, namespace: str, updated_record: Any) -> bool:
        old = self._lease.get("spec") or {}
        spec = old | _spec(updated_record)
        if old.get("holderIdentity") != spec["holderIdentity"]:
            spec["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + 1
        body = self._lease | {"spec": spec}
        return await self._write(self._client.replace(LEASES, namespace, name, body))

    async def release(self) -> None:
        """Give the Lease up if it is still this holder's. Failing to is no fault: it runs out."""
        self._tenure.ended()
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(self._timeout):
                lease = await self._client.get(LEASES, self.namespace, self.name)
                spec = lease.get("spec") or {}
                if spec.get("holderIdentity") == self.identity:
                    now = rfc3339_micro(time.time())
                    lease["spec"] = spec | {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": now}
                    await self._client.replace(LEASES, self.namespace, self.name, lease)

    async def _write(self, request: Awaitable[dict[str, Any]]) -> bool:
        """The election only writes to take the Lease or to keep it."""
        began = self._tenure.began()
        try:
            async with asyncio.timeout(self._timeout):
                self._lease = await request
        except (ApiError, TimeoutError) as error:
            logger.warning("the lease cannot be written", extra={"lease": self.name, "error": str(error)})
            return False
        self._tenure.renewed(began)
        return True


async def lead(
    client: Client,
    settings: LeaderElection,
    namespace: str,
    work: Callable[[], Awaitable[None]],
    *,
    holder: str | None = None,
    tenure: Tenure | None = None,
) -> None:
    """Wait for the Lease, then run `work` for as long as it is held; `tenure` says at any moment whether it surely is.

    Returns when `work` does, raises what it raises, and `LeaseLostError` when the Lease was lost. Cancelled, it ends
    `work` first and gives the Lease up after that.
    """
    holder = holder or identity()
    lock = _LeaseLock(
        client,
        settings.resource_namespace or namespace,
        settings.resource_name,
        holder,
        settings.renew_deadline / 2,
        tenure or Tenure(settings.lease_duration),
    )
    leading: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def started() -> None:
        logger.info("leading", extra={"lease": lock.name, "holder": holder})
        leading.set_result(None)

    config = Config(lock, settings.lease_duration, settings.renew_deadline, settings.retry_period, started, None)
    election = asyncio.ensure_future(Election(config).run())
    working: asyncio.Future[None] | None = None
    try:
        await asyncio.wait({election, leading}, return_when=asyncio.FIRST_COMPLETED)
        if leading.done():
            working = asyncio.ensure_future(work())
            await asyncio.wait({election, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
                return
        election.result()
        raise LeaseLostError(f"the lease {lock.namespace}/{lock.name} was not renewed in time")
    finally:
        await _ended(working)
        await _ended(election)
        await lock.release()


async def _ended(task: asyncio.Future[None] | None) -> None:
    """Cancels the task until it has ended: whatever it waits for may have taken a single cancellation for its own."""
    while task is not None and not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCELLED_AGAIN)
    if task is not None and not task.cancelled():
        task.exception()  # who waits for the task's end does not want its fault


def _spec(record: Any) -> dict[str, Any]:
    return {
        "holderIdentity": record.holder_identity,
        "leaseDurationSeconds": max(1, int(float(record.lease_duration))),
        "acquireTime": _api_time(record.acquire_time),
        "renewTime": _api_time(record.renew_time),
    }


def _api_time(local: str) -> str:
    """The election keeps its times as the text of a naive local datetime; the API wants UTC."""
    return rfc3339_micro(datetime.fromisoformat(local).timestamp())


def _election_time(text: str | None) -> str | None:
    return None if not text else str(datetime.fromisoformat(text).astimezone().replace(tzinfo=None))
