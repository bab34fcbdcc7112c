"""`muster controller`: follows the cluster, decides, and releases, as long as it holds the leader's Lease.

Needs an API server that has the CRDs, and nothing else: a journal whose database is down costs history, not a job. It
ends when the Lease is lost, since another may have begun to decide.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Final

from admission.commands import lifeline, logs
from admission.commands.faults import Fault, told
from admission.commands.surroundings import IDENTITY, journal_url
from admission.commands.tree import until_told
from admission.settings import Settings, load

if TYPE_CHECKING:
    from admission.controllers.loop import Controller
    from queues.journal.writer import Journal

logger = logging.getLogger(__name__)

#: After the signal: for the last writes and to give the Lease up, and then for the journal.
_LAST_SECONDS: Final = 1.8
_JOURNAL_SECONDS: Final = 0.7
_MIGRATION_PAUSE: Final = 10.0


def run(kubeconfig: str | None, config: str | None, *, verbose: bool) -> None:
    """Until SIGTERM or SIGINT, or until the Lease is lost."""
    logs.configure("controller", verbose=verbose)
    lifeline.die_with_parent()
    with told():
        settings = load(config)
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(until_told(lambda stop: _work(settings, kubeconfig, stop)))


async def _work(settings: Settings, kubeconfig: str | None, stop: asyncio.Event) -> None:
    from admission.commands import metrics
    from admission.controllers.loop import Controller
    from admission.kube.client import connect

    connection = settings.client_connection
    async with (
        await connect(kubeconfig, qps=connection.qps, burst=connection.burst, component="controller") as client,
        _told_of(settings) as journal,
    ):
        controller = Controller(client, settings, journal)
        serving = await metrics.serve(client, settings, controller.metrics.registry)
        telling = asyncio.ensure_future(_tell(controller))
        try:
            await _lead(settings, kubeconfig, stop, lambda: controller.run(stop))
        finally:
            telling.cancel()
            if serving is not None:
                await serving.cleanup()


async def _tell(controller: Controller) -> None:
    await controller.ready.wait()
    lifeline.tell("synced")


async def _lead(
    settings: Settings, kubeconfig: str | None, stop: asyncio.Event, work: Callable[[], Awaitable[None]]
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
        await work()

    lifeline.tell("standby")
    # A connection of its own: renewals must not queue behind a burst of writes.
    async with await connect(kubeconfig, timeout=settings.leader_election.renew_deadline / 2) as client:
        holder = os.environ.get(IDENTITY)
        leading = asyncio.ensure_future(
            lead(client, settings.leader_election, settings.namespace, start, holder=holder)
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


@contextlib.asynccontextmanager
async def _told_of(settings: Settings) -> AsyncIterator[Journal]:
    """The journal, open. What is told before its database is ready waits in its buffer."""
    from queues.journal.writer import Journal

    options = settings.muster.journal
    url = journal_url(settings)
    journal = Journal(url, capacity=options.capacity, retention=options.retention)
    ended = threading.Event()

    def start() -> None:
        if not options.migrate_at_start or _migrated(url, ended):
            journal.start()

    threading.Thread(target=start, name="migration", daemon=True).start()
    try:
        yield journal
    finally:
        ended.set()
        if not await asyncio.to_thread(journal.close, _JOURNAL_SECONDS):
            logger.warning("the journal's last entries were not written")


def _migrated(url: str, ended: threading.Event) -> bool:
    """Bring the schema up to date, however long the database takes to be there; False when it is too late."""
    from queues.journal import migrate

    while not ended.is_set():
        try:
            migrate.upgrade(url)
        except Exception as error:  # noqa: BLE001  # drivers, files and migrations fail in many ways; none may stop us
            logger.warning("the journal cannot be migrated, trying again", extra={"error": str(error)[:500]})
            ended.wait(_MIGRATION_PAUSE)
        else:
            return True
    return False
