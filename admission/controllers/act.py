"""Carries out effects: calls to the API server, in order, one errand at a time for each thing that it touches.

It decides from the answer of the API server what became of an errand: done, overtaken, gone, refused or put off. It
must never work on state: whatever it learns goes back to the controller's inbox as a report, objects first.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Hashable, Iterator, Mapping
from enum import Enum
from itertools import groupby
from typing import Any, Protocol, assert_never

import msgspec

from admission.jobs.effects import Create, Delete, Effect, Patch, PatchKind, Ref, Tell
from admission.kube.client import Client
from admission.kube.errors import (
    ApiError,
    Conflict,
    Invalid,
    NamespaceEnding,
    NotFound,
    ServerFailed,
    TooManyRequests,
    Unreachable,
)
from admission.kube.resources import Resource

log = logging.getLogger(__name__)

_MORE_ATTEMPTS = 3
_FIRST_DELAY = 0.2
#: For so many seconds together a conflict waits for the watch to tell the newer version.
_WATCH_PAUSES = (0.02, 0.05, 0.1, 0.2, 0.4)


class Fate(Enum):
    """What became of an errand."""

    DONE = "done"
    CONFLICT = "conflict"
    GONE = "gone"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


class Errand(msgspec.Struct, frozen=True):
    """Effects for one owner (a unit, a workload, a queue). `purpose` comes back unread in the report."""

    owner: Hashable
    effects: tuple[Effect, ...]
    purpose: object = None


class Written(msgspec.Struct, frozen=True):
    """The object as a write returned it."""

    kind: str
    obj: Any


class Gone(msgspec.Struct, frozen=True):
    """The API server does not know this object (any more)."""

    ref: Ref


class Report(msgspec.Struct, frozen=True):
    """The end of an errand; `message` says what was in the way."""

    errand: Errand
    fate: Fate
    message: str = ""


Answer = Written | Gone | Report


class Outcome(msgspec.Struct, frozen=True):
    """What became of one effect; `pause` is how long the API server asks to wait."""

    fate: Fate
    message: str = ""
    pause: float = 0.0


Write = Create | Patch | Delete
_DONE = Outcome(Fate.DONE)


class Events(Protocol):
    def tell(self, event: Tell) -> None: ...


#: Is told of every call: its verb, the kind of the object and what became of it.
Count = Callable[[str, str, str], None]
#: Whether a newer version of the object than this one was observed.
Overtaken = Callable[[Ref, str], bool]


class Actor:
    """Runs errands as tasks, at most `concurrency` API calls at a time.

    An owner, and every object that a running errand writes to, is busy until its report was delivered.
    """

    def __init__(
        self,
        client: Client,
        resources: Mapping[str, Resource[Any]],
        events: Events,
        deliver: Callable[[Answer], None],
        concurrency: int = 32,
        count: Count = lambda *_: None,
        may_write: Callable[[], bool] = lambda: True,
        is_overtaken: Overtaken = lambda *_: False,
    ) -> None:
        self._client = client
        self._resources = resources
        self._events = events
        self._deliver = deliver
        self._slots = asyncio.Semaphore(concurrency)
        self._concurrency = concurrency
        self._count = count
        self._may_write = may_write
        self._is_overtaken = is_overtaken
        self._busy: dict[Hashable, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_crowded(self) -> bool:
        """Whether more is under way than the API calls that may run at once: time to leave out what can wait."""
        return len(self._tasks) >= self._concurrency

    def is_busy(self, key: Hashable) -> bool:
        return key in self._busy

    def start(self, errand: Errand) -> None:
        """The caller has seen to it that nothing that the errand touches is busy."""
        for key in touched(errand):
            self._busy[key] = self._busy.get(key, 0) + 1
        task = asyncio.create_task(self._run(errand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def settle(self, errand: Errand) -> None:
        """The controller has taken in the report: what the errand touched is free."""
        for key in touched(errand):
            left = self._busy[key] - 1
            if left:
                self._busy[key] = left
            else:
                del self._busy[key]

    async def drain(self, seconds: float) -> None:
        """Lets what is under way end, for a moment."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)

    async def close(self) -> None:
        """Lets nothing go on. Half-done errands are completed after the next start."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, errand: Errand) -> None:
        outcome = Outcome(Fate.UNAVAILABLE, "interrupted")
        try:
            outcome = await self._carry_out(errand)
        except Exception as error:  # a bug in one errand must not leave its objects busy for ever
            log.exception("an errand failed", extra={"owner": str(errand.owner)})
            outcome = Outcome(Fate.REFUSED, str(error))
        finally:
            self._deliver(Report(errand, outcome.fate, outcome.message))

    async def _carry_out(self, errand: Errand) -> Outcome:
        for together in independent(errand.effects):
            if len(together) == 1:  # as mostly; it needs no task of its own
                outcomes = [await self._insist(together[0])]
            else:
                outcomes = await asyncio.gather(*(self._insist(effect) for effect in together))
            for outcome in outcomes:
                if outcome.fate is not Fate.DONE:
                    return outcome
        return _DONE

    async def _insist(self, effect: Effect) -> Outcome:
        """Tries again while the API server is in trouble, for some seconds: longer is for the controller to decide."""
        if isinstance(effect, Tell):
            self._events.tell(effect)
            return _DONE
        delay = _FIRST_DELAY
        outcome = await self._try(effect)
        for _ in range(_MORE_ATTEMPTS):
            if outcome.fate is not Fate.UNAVAILABLE:
                break
            await asyncio.sleep(max(outcome.pause, delay * random.uniform(0.5, 1.5)))  # noqa: S311  # only jitter
            delay *= 2
            outcome = await self._try(effect)
        return outcome

    async def _try(self, effect: Write) -> Outcome:
        outcome = await self._attempt(effect)
        self._count(type(effect).__name__.lower(), effect.ref.kind, outcome.fate.value)
        return outcome

    async def _attempt(self, effect: Write) -> Outcome:
        try:
            async with self._slots:
                if (obstacle := self._in_the_way(effect)) is not None:
                    return obstacle
                await self._call(effect)
        except NotFound as error:
            self._deliver(Gone(effect.ref))
            return _DONE if isinstance(effect, Delete) else Outcome(Fate.GONE, error.message)
        except NamespaceEnding as error:
            # Whoever looks at it again will know that by then, and want nothing more.
            return Outcome(Fate.GONE, error.message)
        except ApiError as error:
            if isinstance(error, Conflict) or is_failed_test(effect, error):
                return await self._look_again(effect, error)
            return Outcome(
                Fate.UNAVAILABLE if is_passing(error) else Fate.REFUSED, error.message, error.retry_after or 0.0
            )
        return _DONE

    def _in_the_way(self, effect: Write) -> Outcome | None:
        """Why the call need not be made at all, as far as is known now that it is its turn."""
        if not self._may_write():
            return Outcome(Fate.UNAVAILABLE, "another may lead by now")
        return Outcome(Fate.CONFLICT, "the object has changed meanwhile") if self._knows_newer(effect) else None

    def _knows_newer(self, effect: Write) -> bool:
        """Whether it is known that the write would be refused: that was observed while it waited for its turn."""
        version = effect.resource_version if isinstance(effect, Patch) else None
        return version is not None and self._is_overtaken(effect.ref, version)

    async def _call(self, effect: Write) -> None:
        ref = effect.ref
        resource = self._resources[ref.kind]
        namespace = ref.namespace or None
        match effect:
            case Create():
                made = await self._client.create(resource, effect.body, namespace=namespace)
                self._deliver(Written(ref.kind, made))
            case Patch():
                changed = await self._client.patch(
                    resource,
                    namespace,
                    ref.name,
                    guarded_body(effect),
                    kind=effect.kind,
                    subresource=effect.subresource,
                )
                self._deliver(Written(ref.kind, changed))
            case Delete():
                await self._client.delete(
                    resource,
                    namespace,
                    ref.name,
                    uid=ref.uid or None,
                    resource_version=effect.resource_version,
                    grace_seconds=effect.grace_seconds,
                )
            case _:
                assert_never(effect)

    async def _look_again(self, effect: Write, error: ApiError) -> Outcome:
        """After a conflict: the object as it is now, so that the next reconcile does not run into the same.

        Mostly the watch brings it within moments, which costs the API server nothing.
        """
        ref = effect.ref
        for pause in _WATCH_PAUSES if isinstance(effect, Patch) and effect.resource_version else ():
            await asyncio.sleep(pause)
            if self._knows_newer(effect):
                return Outcome(Fate.CONFLICT, error.message)
        try:
            async with self._slots:
                found = await self._client.get(self._resources[ref.kind], ref.namespace or None, ref.name)
        except NotFound:
            self._deliver(Gone(ref))
            return _DONE if isinstance(effect, Delete) else Outcome(Fate.GONE, error.message)
        except ApiError as again:
            return Outcome(Fate.UNAVAILABLE, again.message, again.retry_after or 0.0)
        self._deliver(Written(ref.kind, found))
        if isinstance(effect, Create) and controller_uid(found) == created_controller_uid(effect):
            return _DONE
        return Outcome(Fate.CONFLICT, error.message)


def touched(errand: Errand) -> Iterator[Hashable]:
    """The owner and every object that the errand writes to."""
    seen: set[Hashable] = {errand.owner}
    yield errand.owner
    for effect in errand.effects:
        if not isinstance(effect, Tell):
            key = object_key(effect.ref)
            if key not in seen:
                seen.add(key)
                yield key


def object_key(ref: Ref) -> Hashable:
    return (ref.kind, ref.namespace, ref.name)


def independent(effects: tuple[Effect, ...]) -> Iterator[list[Effect]]:
    """Neighbours of the same sort and kind on different objects may run at once: the gates of a gang come off together.

    Everything else keeps its order.
    """
    for _, neighbours in groupby(effects, key=lambda effect: (type(effect), effect.ref.kind)):
        together: list[Effect] = []
        seen: set[Hashable] = set()
        for effect in neighbours:
            key = object_key(effect.ref)
            if key in seen:
                yield together
                together, seen = [], set()
            together.append(effect)
            seen.add(key)
        if together:
            yield together


def guarded_body(patch: Patch) -> dict[str, Any] | list[dict[str, Any]]:
    """The body with the observed resource version in it, which makes the API server refuse a stale write."""
    version = patch.resource_version
    if version is None:
        return patch.body
    if isinstance(patch.body, list):
        # Replacing the version with itself, and not testing it: a stale one then is a conflict and not a bad request.
        return [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, *patch.body]
    return {**patch.body, "metadata": {**patch.body.get("metadata", {}), "resourceVersion": version}}


def is_failed_test(effect: Effect, error: ApiError) -> bool:
    """A JSON patch whose `test` does not hold is answered as invalid, but means that the object has changed."""
    return isinstance(error, Invalid) and isinstance(effect, Patch) and effect.kind is PatchKind.JSON


def is_passing(error: ApiError) -> bool:
    """Whether the same call may succeed later without anything being changed."""
    return isinstance(error, TooManyRequests | ServerFailed | Unreachable)


def controller_uid(obj: Any) -> str:
    controller = obj.metadata.controller
    return "" if controller is None else str(controller.uid)


def created_controller_uid(effect: Create) -> str:
    owners = effect.body.get("metadata", {}).get("ownerReferences") or ()
    return next((str(owner.get("uid", "")) for owner in owners if owner.get("controller")), "")
