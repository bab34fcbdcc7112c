"""The process tree of `muster run`: webhook, controller and inspection as children of one small supervisor.

It starts them, answers the probes for all of them, and ends them in order: the controller first, so that the next one
takes over, and the webhook last, so that creates are answered for as long as possible. It never does their work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import ssl
from collections.abc import Awaitable, Callable, Mapping

from admission.commands import health
from admission.commands.children import Child
from admission.settings import Settings

logger = logging.getLogger(__name__)

#: Seconds after which the webhook is ended even if the others have not, and after which whatever is left is killed.
_WEBHOOK_STAYS = 1.2
_PATIENCE = 2.4
#: While the webhook is away what is queued cannot be created, and a start of it costs the API server next to nothing.
_WEBHOOK_PAUSE = 2.0
_PROBE_SECONDS = 1.0
#: What a controller says that works, and one that cannot decide: it does not know everything (yet, or any more), or
#: doubts what it knows.
_WORKING = frozenset({"synced", "standby"})
_AT_A_LOSS = frozenset({"catching-up", "behind", "in-doubt"})


class Tree:
    """`options` are passed on to every child (which kubeconfig, which settings), `besides` to the one of that name."""

    def __init__(self, settings: Settings, options: list[str], besides: Mapping[str, list[str]] | None = None) -> None:
        self._settings = settings
        self._changed = asyncio.Event()
        more = {} if besides is None else besides
        webhook = ["webhook", *options, *more.get("webhook", [])]
        self.webhook = Child("webhook", webhook, self._changed.set, _WEBHOOK_PAUSE)
        self.controller = Child("controller", ["controller", *options, *more.get("controller", [])], self._changed.set)
        self.inspection: Child | None = None
        if settings.muster.inspection.enabled or settings.gate("VisibilityOnDemand"):
            self.inspection = Child("inspection", ["inspection", *options], self._changed.set)
        self._probes: asyncio.Server | None = None

    async def start(self) -> None:
        """Start the children. Inspection comes last: with two cores the others answer sooner for it."""
        await self.webhook.start()
        await self.controller.start()
        await self._serve_probes()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set: keep everything running. Then end it in order."""
        late = asyncio.ensure_future(self.start_inspection())
        try:
            await stop.wait()
        finally:
            late.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await late
            await self.stop()

    async def stop(self) -> None:
        """End everything, within three seconds."""
        if self._probes is not None:
            self._probes.close()
        # Others answer reviews by now: the connections that are in use go over to them before this one is gone.
        self.webhook.announce_end()
        first = [self.controller, *([self.inspection] if self.inspection else [])]
        ending = [asyncio.ensure_future(child.stop(_PATIENCE)) for child in first]
        await asyncio.wait(ending, timeout=_WEBHOOK_STAYS)
        await asyncio.gather(self.webhook.stop(_PATIENCE - _WEBHOOK_STAYS), *ending)
        logger.info("ended")

    async def missing(self) -> list[str]:
        """The parts that are not ready. A controller that stands by for the one that leads is ready too."""
        parts = await self.not_serving()
        if self.controller.state in _AT_A_LOSS:
            parts.append("controller")
        return parts

    async def not_serving(self) -> list[str]:
        """The same, but a controller that decides nothing for now does not keep reviews from this replica."""
        parts = []
        if self.webhook.state != "ready" or not await self.webhook_answers():
            parts.append("webhook")
        if self.controller.state not in _WORKING | _AT_A_LOSS:
            parts.append("controller")
        return parts

    async def wait_ready(self) -> None:
        """Until nothing is missing."""
        while await self.missing():
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PROBE_SECONDS):
                    await self._changed.wait()

    async def webhook_answers(self) -> bool:
        """Whether a TLS handshake with the webhook succeeds; whose certificate it is does not matter here."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        host = self._settings.webhook.host
        target = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                _, writer = await asyncio.open_connection(target, self._settings.webhook.port, ssl=context)
                writer.close()
        except (TimeoutError, OSError):
            return False
        return True

    async def start_inspection(self) -> None:
        """When everything else is ready."""
        if self.inspection is not None:
            await self.wait_ready()
            await self.inspection.start()

    async def _serve_probes(self) -> None:
        options = self._settings.health
        where = health.address(options.health_probe_bind_address)
        if where is None:
            return
        questions = {
            f"/{options.liveness_endpoint_name}": _alive,
            f"/{options.readiness_endpoint_name}": self.missing,
            f"/{options.readiness_endpoint_name}/serving": self.not_serving,
        }
        try:
            self._probes = await health.serve(*where, questions)
        except OSError as error:
            logger.error("the probes cannot be served", extra={"address": where, "error": str(error)})  # noqa: TRY400


async def _alive() -> list[str]:
    return []


async def until_told(work: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run `work` with an event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await work(stop)
