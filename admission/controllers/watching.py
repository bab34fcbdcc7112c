"""Follows every kind that is read, and says when all of them are known.

Kinds that nothing can be decided without are waited for; others may be missing from a cluster or be forbidden, which
counts as known and is asked again from time to time. It must never call a kind known whose listing was not delivered,
nor say that all is seen while a watch is broken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from admission.controllers.inbox import Observed
from admission.kube.client import Client
from admission.kube.errors import ApiError, Forbidden, NotFound
from admission.kube.informers import Delta, Informer
from admission.kube.resources import Resource

log = logging.getLogger(__name__)

_ASK_AGAIN = 15.0
_TROUBLE = 1.0
#: Seconds between two times that all others are told that one kind can be followed again.
_NUDGE_EVERY = 2.0


class Watching:
    """One informer for each kind, all on the event loop that delivers."""

    def __init__(
        self,
        client: Client,
        required: Iterable[Resource[Any]],
        optional: Iterable[Resource[Any]],
        deliver: Callable[[Observed], None],
    ) -> None:
        self._client = client
        self._required = tuple(required)
        self._optional = tuple(optional)
        self._dispensable = {resource.kind for resource in self._optional}
        self._deliver = deliver
        self._informers: dict[str, Informer[Any]] = {}
        self._absent: set[str] = set()
        self._nudged_at = float("-inf")

    @property
    def synced(self) -> bool:
        return all(self._is_known(each.kind) for each in (*self._required, *self._optional))

    @property
    def unknown(self) -> tuple[str, ...]:
        """The kinds that decisions wait for."""
        return tuple(each.kind for each in (*self._required, *self._optional) if not self._is_known(each.kind))

    def silence(self, now: float) -> dict[str, float]:
        """For each kind that is followed, the seconds since the API server last said something. `now` is monotonic."""
        known = {kind: informer.last_contact for kind, informer in self._informers.items()}
        return {kind: now - last for kind, last in known.items() if last is not None}

    def lost(self, now: float) -> dict[str, float]:
        """For each kind whose changes may go unseen, for how many seconds now. `now` is monotonic."""
        return {kind: now - informer.lost_at for kind, informer in self._informers.items() if informer.lost_at}

    @property
    def sees_all(self) -> bool:
        """Whether changes of every kind are told at this moment; what a cluster does not serve (any more) is none."""
        return all(
            informer.lost_at is None or (informer.is_refused and kind in self._dispensable)
            for kind, informer in self._informers.items()
        )

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for resource in self._required:
                group.create_task(self._follow(resource))
            for resource in self._optional:
                group.create_task(self._follow_where_served(resource))

    def _is_known(self, kind: str) -> bool:
        informer = self._informers.get(kind)
        return kind in self._absent or (informer is not None and informer.synced)

    async def _follow(self, resource: Resource[Any]) -> None:
        def deliver(delta: Delta[Any]) -> None:
            self._deliver(Observed(resource.kind, delta))

        informer = Informer(self._client, resource, deliver, found=self._found_again)
        self._informers[resource.kind] = informer
        await informer.run()

    def _found_again(self) -> None:
        """The API server is back for one kind: no other waits until its pause is over.

        Not every time: one that opens watches and breaks them must not be asked without any pause.
        """
        now = time.monotonic()
        if now - self._nudged_at < _NUDGE_EVERY:
            return
        self._nudged_at = now
        for informer in self._informers.values():
            if informer.lost_at is not None:
                informer.nudge()

    async def _follow_where_served(self, resource: Resource[Any]) -> None:
        while True:
            try:
                await self._client.raw("GET", resource.path(), query={"limit": "1"})
            except (NotFound, Forbidden) as error:
                if resource.kind not in self._absent:
                    log.info("a kind is not served", extra={"kind": resource.kind, "why": error.message})
                self._absent.add(resource.kind)
                await asyncio.sleep(_ASK_AGAIN)
            except ApiError:
                await asyncio.sleep(_TROUBLE)
            else:
                break
        await self._follow(resource)
