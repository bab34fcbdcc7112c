"""Kubernetes Events, as many as the API server can bear: merged, paced, and dropped when there are too many.

Events are for people who look at one object; the journal has everything. What was said of an object a short while ago
is not said again, since whoever looks at it again says it again. So they never wait, never fail anything and give way
to every other write.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from admission.api import core, meta
from admission.controllers.tables import OF_INTEGRATIONS
from admission.jobs.effects import Severity, Tell
from admission.kube.client import Client
from admission.kube.errors import ApiError
from admission.kube.resources import EVENTS

log = logging.getLogger(__name__)

COMPONENT = "muster"
_API_VERSIONS = {"Pod": "v1", "Job": "batch/v1", **{each.kind: each.api_version for each in OF_INTEGRATIONS.values()}}
_KUEUE = "kueue.x-k8s.io/v1beta2"
_LONGEST_MESSAGE = 1024


@dataclass(frozen=True, slots=True)
class Pace:
    """Events a second, how many may go at once after a quiet time, and how many may wait.

    `memory`: for so many seconds the same is not said again; of so many events it is remembered.
    """

    rate: float = 5.0
    burst: int = 50
    waiting: int = 500
    memory: float = 60.0
    remembered: int = 5_000


#: An event's object, reason and message.
_Key = tuple[str, str, str, str]


class Recorder:
    """`tell` queues; `run` writes. The same event about the same object is written once in a while, with its count."""

    def __init__(self, client: Client, pace: Pace = Pace(), clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._pace = pace
        self._clock = clock
        self._waiting: OrderedDict[_Key, tuple[Tell, int]] = OrderedDict()
        self._memory = Memory(pace.memory, pace.remembered)
        self._more = asyncio.Event()
        self._serial = 0
        self.dropped = 0

    def tell(self, event: Tell) -> None:
        key = (event.ref.kind, event.ref.uid or f"{event.ref.namespace}/{event.ref.name}", event.reason, event.message)
        known = self._waiting.get(key)
        if known is None and not self._memory.is_news(key, self._clock()):
            return
        self._waiting[key] = (event, 1 + (self._memory.unsaid(key) if known is None else known[1]))
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
            key, (event, count) = self._waiting.popitem(last=False)
            try:
                await self._client.create(EVENTS, self._event(event, count), namespace=event.ref.namespace or "default")
            except ApiError as error:
                self.dropped += 1
                self._memory.forget(key)
                log.debug("an event was not written", extra={"error": str(error)})

    def _drop_one(self) -> None:
        """The oldest of the ordinary ones, warnings last."""
        key = next((key for key, (event, _) in self._waiting.items() if event.severity is Severity.NORMAL), None)
        key = key or next(iter(self._waiting))
        del self._waiting[key]
        self._memory.forget(key)
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


class Memory:
    """What was said lately, and how often it was left unsaid since."""

    def __init__(self, seconds: float, most: int) -> None:
        self._seconds = seconds
        self._most = most
        #: When each was said and how often it came up since, the one that was said first in front.
        self._said: OrderedDict[_Key, tuple[float, int]] = OrderedDict()

    def is_news(self, key: _Key, now: float) -> bool:
        """Whether to say it now; what is not said is counted."""
        at, times = self._said.get(key, (-self._seconds, 0))
        if now - at < self._seconds:
            self._said[key] = (at, times + 1)
            return False
        self._said[key] = (now, times)
        self._said.move_to_end(key)
        while len(self._said) > self._most or (self._said and self._is_over(now)):
            self._said.popitem(last=False)
        return True

    def forget(self, key: _Key) -> None:
        """It was not said after all."""
        self._said.pop(key, None)

    def unsaid(self, key: _Key) -> int:
        """How often it was left out before it was said again."""
        at, times = self._said.get(key, (0.0, 0))
        if times:
            self._said[key] = (at, 0)
        return times

    def _is_over(self, now: float) -> bool:
        """Whether the first one is no longer of use: long ago, or nothing was left out."""
        at, times = next(iter(self._said.values()))
        return now - at >= self._seconds * (10 if times else 1)
