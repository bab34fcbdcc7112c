"""`muster controller`: follows the cluster, decides, and releases, as long as it holds the leader's Lease.

Needs an API server that has the CRDs, and nothing else: a journal whose database is down costs history, not a job. It
ends when the Lease is lost, since another may have begun to decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from admission import lifeline
from admission.commands import health, logs
from admission.commands.faults import Fault, told
from admission.commands.memory import Memory
from admission.commands.narrowing import SCHEDULER, narrowed
from admission.commands.surroundings import IDENTITY
from admission.commands.tree import until_told
from admission.settings import Settings, load

if TYPE_CHECKING:
    from admission.controllers.loop import Controller
    from admission.kube.client import Client
    from admission.kube.lease import Tenure

logger = logging.getLogger(__name__)

#: After the signal: for the last writes and to give the Lease up, and then for the journal.
_LAST_SECONDS: Final = 1.8
_JOURNAL_SECONDS: Final = 0.7
_SPANS_SECONDS: Final = 0.2
_LONGEST_START_SECONDS: Final = 5.0


def run(
    kubeconfig: str | None, config: str | None, *, verbose: bool, only: str | None = None, without: Sequence[str] = ()
) -> None:
    """Until SIGTERM or SIGINT, or until the Lease is lost."""
    logs.configure("controller", verbose=verbose)
    lifeline.die_with_parent()
    with told():
        settings = narrowed(load(config), only)
        decides = SCHEDULER not in without
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_told(lambda stop: _work(settings, kubeconfig, stop, decides=decides)))


async def _work(settings: Settings, kubeconfig: str | None, stop: asyncio.Event, *, decides: bool) -> None:
    from admission.controllers.loop import Controller, NotSyncedError
    from admission.kube.client import connect
    from admission.kube.lease import Tenure
    from admission.telemetry import Collector

    logs.gather()
    connection = settings.client_connection
    memory = Memory(settings)
    async with await connect(kubeconfig, qps=connection.qps, burst=connection.burst, component="controller") as client:
        recalled = None if settings.admission_fair_sharing is None else memory.recall()
        tenure = Tenure(settings.leader_election.lease_duration)
        controller = Controller(client, settings, memory, decides=decides, recalled=recalled)
        controller.recall_starts(memory.recall_starts)
        collector = Collector(settings.muster.tracing) if settings.muster.tracing.endpoint else None
        if collector is not None:
            controller.trace(collector.put)
        if settings.leader_election.leader_elect:
            controller.leads = lambda: tenure.is_sure
        condition = Condition()
        controller.in_doubt, controller.behind = condition.doubted, condition.fell_behind
        beside = [
            asyncio.ensure_future(_tell(controller, memory)),
            asyncio.ensure_future(_show(controller, client, settings)),
        ]
        try:
            await _lead(settings, kubeconfig, stop, lambda: controller.run(stop), tenure)
        except NotSyncedError as error:
            raise Fault(str(error)) from error
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
            if collector is not None:
                collector.end()
            if not await asyncio.to_thread(memory.close, _JOURNAL_SECONDS):
                logger.warning("the journal's last entries were not written")
            if collector is not None:
                await asyncio.to_thread(collector.close, _SPANS_SECONDS)


async def _tell(controller: Controller, memory: Memory) -> None:
    """Say that decisions are made, and only then load what is not needed for them."""
    await controller.ready.wait()
    lifeline.tell("synced")
    memory.open()


class Condition:
    """What the supervisor is told: whether this controller decides, and what keeps it from that."""

    def __init__(self) -> None:
        self._is_in_doubt = self._is_behind = False

    def doubted(self, doubt: bool) -> None:
        """A controller that cannot decide because of a fault in the core is not ready."""
        self._is_in_doubt = doubt
        self._tell()

    def fell_behind(self, behind: bool) -> None:
        """Nor is one that cannot follow the API server."""
        self._is_behind = behind
        self._tell()

    def _tell(self) -> None:
        lifeline.tell("in-doubt" if self._is_in_doubt else "behind" if self._is_behind else "synced")


async def _show(controller: Controller, client: Client, settings: Settings) -> None:
    """Serve the metrics; who stands by for the leader has them too, only later.

    Where they are turned off, what serves them (10 MiB) is not even imported.
    """
    if health.address(settings.metrics.bind_address) is None:
        return
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_LONGEST_START_SECONDS):
            await controller.ready.wait()
    from admission.commands import metrics

    serving = await metrics.serve(client, settings, controller.metrics.registry)
    try:
        await asyncio.Event().wait()
    finally:
        if serving is not None:
            await serving.cleanup()


async def _lead(
    settings: Settings,
    kubeconfig: str | None,
    stop: asyncio.Event,
    work: Callable[[], Awaitable[None]],
    tenure: Tenure,
) -> None:
    """Work while leading. Without election that is at once."""
    if not settings.leader_election.leader_elect:
        await work()
        return
    from admission.kube.client import connect
    from admission.kube.lease import LeaseLostError, lead

    started = asyncio.Event()

    async def start() -> None:
        started.set()
        lifeline.tell("catching-up")
        await work()

    lifeline.tell("standby")
    # A connection of its own: renewals must not queue behind a burst of writes.
    async with await connect(kubeconfig, timeout=settings.leader_election.renew_deadline / 2) as client:
        holder = os.environ.get(IDENTITY)
        leading = asyncio.ensure_future(
            lead(client, settings.leader_election, settings.namespace, start, holder=holder, tenure=tenure)
        )
        told_to_end = asyncio.ensure_future(stop.wait())
        try:
            await asyncio.wait({leading, told_to_end}, return_when=asyncio.FIRST_COMPLETED)
            if stop.is_set():
                # `work` ends by itself; who only waited for the Lease is cancelled.
                await asyncio.wait({leading}, timeout=_LAST_SECONDS if started.is_set() else 0)
                leading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leading
        except LeaseLostError as error:
            raise Fault(str(error)) from error
        finally:
            told_to_end.cancel()
