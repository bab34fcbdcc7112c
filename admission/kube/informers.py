"""Keeps a consumer up to date with all objects of one resource: a list, then every change, for ever.

It follows the API server's rules for watching (pages, bookmarks, 410, servers that go away) and tells through
`synced`, `lost_at` and `last_contact` how far it can be trusted. It keeps no objects itself and never delivers out of
order.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar

import msgspec

from admission.kube.client import Client, WatchEvent, readable
from admission.kube.errors import ApiError, Gone
from admission.kube.resources import Resource

T = TypeVar("T")
logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.2
#: Nothing is decided during a pause, so it may not be long.
_LONGEST_PAUSE: Final = 10.0
#: A watch that was open for so many seconds breaks as if it were the first to do so.
_STEADY: Final = 1.0


class Replaced(msgspec.Struct, Generic[T], frozen=True):
    """After a list: these objects exist and no others, as of this version."""

    items: tuple[T, ...]
    resource_version: str = ""


class Upserted(msgspec.Struct, Generic[T], frozen=True):
    """An object was created or changed."""

    obj: T


class Deleted(msgspec.Struct, Generic[T], frozen=True):
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
        found: Callable[[], None] = lambda: None,
    ) -> None:
        """`found` is called when the API server can be followed again."""
        self.resource = resource
        self._client = client
        self._deliver = deliver
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._found = found
        self._nudged = asyncio.Event()
        self._opened_at: float | None = None
        self._listed = asyncio.Event()
        self._version: str | None = None
        self.last_contact: float | None = None
        """Monotonic time at which the API server last said something about this resource."""
        self.lost_at: float | None = None
        """Monotonic time since which changes may go unseen: the watch broke, or is too old; None while it is open."""
        self.is_refused = False
        """Whether that is because this resource is not served, or may not be read."""

    @property
    def synced(self) -> bool:
        """Whether the first list has been delivered."""
        return self._listed.is_set()

    async def wait_synced(self) -> None:
        await self._listed.wait()

    def nudge(self) -> None:
        """Try now, and not only after a pause: others have found the API server again."""
        self._nudged.set()

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
                self._lose()
                self._version = None
            except (ApiError, msgspec.DecodeError) as error:
                if self._followed_for() > _STEADY:
                    pause = _FIRST_PAUSE
                self._lose()
                asked = 0.0
                if isinstance(error, ApiError):
                    self.is_refused = error.status in {403, 404}
                    asked = error.retry_after or 0.0
                if not isinstance(error, ApiError) or error.status in {400, 401, 403, 404, 410}:
                    # What is no answer of an API server, as from a proxy before it, says nothing of what there is.
                    self._version = None
                wait = max(random.uniform(pause / 2, pause), asked)  # noqa: S311  # jitter
                level = logging.INFO if pause == _FIRST_PAUSE else logging.WARNING
                logger.log(
                    level,
                    "the API server cannot be followed, trying again",
                    extra={"kind": self.resource.kind, "error": str(error), "seconds": round(wait, 2)},
                )
                # Where the API server asks for a pause, it gets it.
                await self._rest(wait, may_be_nudged=not asked)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            if time.monotonic() - started < _FIRST_PAUSE:
                # A server or proxy that ends every watch at once must not be asked in a tight loop.
                await asyncio.sleep(random.uniform(_FIRST_PAUSE / 2, _FIRST_PAUSE))  # noqa: S311  # jitter

    def _followed_for(self) -> float:
        """Seconds for which the watch that has just broken was open."""
        return 0.0 if self._opened_at is None else time.monotonic() - self._opened_at

    def _lose(self) -> None:
        self._opened_at = None
        if self.lost_at is None:
            self.lost_at = time.monotonic()

    def _followed(self) -> None:
        self.last_contact = self._opened_at = time.monotonic()
        self.is_refused = False
        if self.lost_at is not None:
            self.lost_at = None
            self._found()

    async def _rest(self, seconds: float, *, may_be_nudged: bool) -> None:
        if not may_be_nudged:
            await asyncio.sleep(seconds)
            return
        self._nudged.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._nudged.wait()

    async def _list(self) -> None:
        listing = await self._client.list(
            self.resource, label_selector=self._label_selector, field_selector=self._field_selector
        )
        self._version = listing.resource_version
        self.last_contact = time.monotonic()
        self._deliver(Replaced(listing.items, listing.resource_version))
        self._listed.set()

    async def _watch(self, version: str) -> None:
        events = self._client.watch(
            self.resource,
            version,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            opened=self._followed,
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
