"""Keeps a consumer up to date with all objects of one resource: a list, then every change, for ever.

It follows the API server's rules for watching (pages, bookmarks, 410, servers that go away) and tells through
`synced` and `last_contact` how far it can be trusted. It keeps no objects itself and never delivers out of order.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from admission.kube.client import Client, WatchEvent, readable
from admission.kube.errors import ApiError, Gone
from admission.kube.resources import Resource

T = TypeVar("T")
logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 30.0


@dataclass(frozen=True, slots=True)
class Replaced(Generic[T]):
    """After a list: these objects exist and no others."""

    items: tuple[T, ...]


@dataclass(frozen=True, slots=True)
class Upserted(Generic[T]):
    """An object was created or changed."""

    obj: T


@dataclass(frozen=True, slots=True)
class Deleted(Generic[T]):
    """An object is gone (or does not match the selector any more); `obj` is its last state."""

    obj: T


Delta = Replaced[T] | Upserted[T] | Deleted[T]


class _Meta(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Versioned(msgspec.Struct):
    metadata: _Meta


_VERSIONS: Final = msgspec.json.Decoder(_Versioned)


class Informer(Generic[T]):
    """Delivers deltas of one resource on the event loop, one after the other. `deliver` must not raise."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        deliver: Callable[[Delta[T]], None],
        label_selector: str | None = None,
        field_selector: str | None = None,
    ) -> None:
        self.resource = resource
        self._client = client
        self._deliver = deliver
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._listed = asyncio.Event()
        self._version: str | None = None
        self.last_contact: float | None = None
        """Monotonic time at which the API server last said something about this resource."""

    @property
    def synced(self) -> bool:
        """Whether the first list has been delivered."""
        return self._listed.is_set()

    async def wait_synced(self) -> None:
        await self._listed.wait()

    async def run(self) -> None:
        """List and watch until cancelled. Every fault of the API server is waited out."""
        pause = _FIRST_PAUSE
        while True:
            started = time.monotonic()
            try:
                if self._version is None:
                    await self._list()
                await self._watch(self._version or "")
            except Gone:
                logger.info("the watch is too old, listing again", extra={"kind": self.resource.kind})
                self._version = None
            except ApiError as error:
                if error.status in {400, 401, 403, 404, 410}:
                    self._version = None
                wait = max(random.uniform(pause / 2, pause), error.retry_after or 0.0)  # noqa: S311  # jitter
                level = logging.INFO if pause == _FIRST_PAUSE else logging.WARNING
                logger.log(
                    level,
                    "the API server cannot be followed, trying again",
                    extra={"kind": self.resource.kind, "error": str(error), "seconds": round(wait, 2)},
                )
                await asyncio.sleep(wait)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            if time.monotonic() - started < _FIRST_PAUSE:
                # A server or proxy that ends every watch at once must not be asked in a tight loop.
                await asyncio.sleep(random.uniform(_FIRST_PAUSE / 2, _FIRST_PAUSE))  # noqa: S311  # jitter

    async def _list(self) -> None:
        listing = await self._client.list(
            self.resource, label_selector=self._label_selector, field_selector=self._field_selector
        )
        self._version = listing.resource_version
        self.last_contact = time.monotonic()
        self._deliver(Replaced(listing.items))
        self._listed.set()

    async def _watch(self, version: str) -> None:
        events = self._client.watch(
            self.resource, version, label_selector=self._label_selector, field_selector=self._field_selector
        )
        try:
            async for event in events:
                self.last_contact = time.monotonic()
                self._take(event)
        finally:
            await events.aclose()

    def _take(self, event: WatchEvent) -> None:
        self._version = _VERSIONS.decode(event.object).metadata.resource_version or self._version
        if event.type == "BOOKMARK":
            return
        obj = readable(self.resource, event.object)
        if obj is None:
            return
        delta: Delta[Any] = Deleted(obj) if event.type == "DELETED" else Upserted(obj)
        self._deliver(delta)
