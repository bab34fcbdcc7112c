"""Kubernetes Events, as many as the API server can bear: merged, paced, and dropped when there are too many.

Events are for people who look at one object; the journal has everything. So they never wait, never fail anything and
give way to every other write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from admission.api import core, meta
from admission.jobs.effects import Severity, Tell
from admission.kube.client import Client
from admission.kube.errors import ApiError
from admission.kube.resources import EVENTS

log = logging.getLogger(__name__)

COMPONENT = "muster"
_API_VERSIONS = {"Pod": "v1", "Job": "batch/v1"}
_KUEUE = "kueue.x-k8s.io/v1beta2"
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Pace:
    """Events a second, how many may go at once after a quiet time, and how many may wait."""

    rate: float = 5.0
    burst: int = 50
    waiting: int = 500


class Recorder:
    """`tell` queues; `run` writes. The same event about the same object is written once while it waits."""

    def __init__(self, client: Client, pace: Pace = Pace(), clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._pace = pace
        self._clock = clock
        self._waiting: OrderedDict[tuple[str, str, str, str], tuple[Tell, int]] = OrderedDict()
        self._more = asyncio.Event()
        self._serial = 0
        self.dropped = 0

    def tell(self, event: Tell) -> None:
        key = (event.ref.kind, event.ref.uid or f"{event.ref.namespace}/{event.ref.name}", event.reason, event.message)
        known = self._waiting.get(key)
        self._waiting[key] = (event, 1 if known is None else known[1] + 1)
        if len(self._waiting) > self._pace.waiting:
            self._drop_one()
        self._more.set()

    async def run(self) -> None:
        """Until cancelled."""
        tokens, at = float(self._pace.burst), time.monotonic()
        while True:
            while not self._waiting:
                self._more.clear()
                await self._more.wait()
            now = time.monotonic()
            tokens, at = min(float(self._pace.burst), tokens + (now - at) * self._pace.rate), now
            if tokens < 1.0:
                await asyncio.sleep((1.0 - tokens) / self._pace.rate)
                continue
            tokens -= 1.0
            _, (event, count) = self._waiting.popitem(last=False)
            try:
                await self._client.create(EVENTS, self._event(event, count), namespace=event.ref.namespace or "default")
            except ApiError as error:
                self.dropped += 1
                log.debug("an event was not written", extra={"error": str(error)})

    def _drop_one(self) -> None:
        """The oldest of the ordinary ones, warnings last."""
        key = next((key for key, (event, _) in self._waiting.items() if event.severity is Severity.NORMAL), None)
        if key is None:
            self._waiting.popitem(last=False)
        else:
            del self._waiting[key]
        self.dropped += 1

    def _event(self, event: Tell, count: int) -> core.Event:
        ref = event.ref
        now = self._clock()
        self._serial += 1
        return core.Event(
            metadata=meta.ObjectMeta(
                name=f"{ref.name[:220]}.{int(now * 1e6):x}.{self._serial:x}",
                namespace=ref.namespace or "default",
                annotations=event.annotations,
            ),
            involved_object=core.ObjectReference(
                api_version=_API_VERSIONS.get(ref.kind, _KUEUE),
                kind=ref.kind,
                namespace=ref.namespace,
                name=ref.name,
                uid=ref.uid,
            ),
            reason=event.reason,
            message=event.message[:_LONGEST_MESSAGE],
            type=event.severity.value,
            count=count,
            first_timestamp=meta.rfc3339(now),
            last_timestamp=meta.rfc3339(now),
            source=core.EventSource(component=COMPONENT),
            reporting_component=COMPONENT,
        )
