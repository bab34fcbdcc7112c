"""Follows every kind that is read, and says when all of them are known.

Kinds that nothing can be decided without are waited for; others may be missing from a cluster or be forbidden, which
counts as known and is asked again from time to time. It must never call a kind known whose listing was not delivered.
"""

from __future__ import annotations

import asyncio
import logging
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
        self._deliver = deliver
        self._informers: dict[str, Informer[Any]] = {}
        self._absent: set[str] = set()

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

        informer = Informer(self._client, resource, deliver)
        self._informers[resource.kind] = informer
        await informer.run()

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
