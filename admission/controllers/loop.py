"""The controller: one task that takes in what happens, decides, and sends out what follows.

It decides nothing itself: the core says who starts and who has to go, the adapters and the lifecycle rules what a gang
and a Workload need. It must never decide before all informers are synced, while one of them may miss changes, or when
it is not sure that it still leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future

from admission.api.quantities import parse
from admission.controllers.act import Actor
from admission.controllers.cluster import Cluster
from admission.controllers.desk import Desk
from admission.controllers.errands import Errands
from admission.controllers.events import Pace, Recorder
from admission.controllers.inbox import Inbox
from admission.controllers.judging import Judge
from admission.controllers.metrics import Health, Metrics
from admission.controllers.reporting import Reporting, Sink
from admission.controllers.starts import Recall, Starts
from admission.controllers.sweep import Find, Sweep
from admission.controllers.tables import REQUIRED, WRITTEN, optional
from admission.controllers.tokens import (
    OfDecision,
    OfFinalizer,
    OfHealth,
    OfHold,
    OfHolds,
    OfStatus,
    OfSweep,
    OfUnit,
    OfWorkload,
)
from admission.controllers.traces import Traces
from admission.controllers.wakes import Wakes
from admission.controllers.watching import Watching
from admission.jobs.interface import Adapter
from admission.jobs.registry import adapters as enabled_adapters
from admission.kube.client import Client
from admission.settings import Settings
from admission.settings.configuration import QuotaCheckStrategy
from admission.telemetry import Span
from queues.core.model import ResourceName
from queues.core.plan import Hold
from queues.core.policy import (
    AdmissionFairSharing,
    DomainReservation,
    FairSharing,
    FairStrategy,
    Policy,
    QuotaCheck,
    TopologyRules,
)
from queues.journal.entries import PastUseRow

log = logging.getLogger(__name__)

_LONGEST_SLEEP = 30.0
_HEALTH_EVERY = 10.0
#: What is made here is mostly kept, or freed without the collector's help.
_GARBAGE = (5_000, 20, 20)
#: After each round of decisions the next one waits so many times as long as it took, so that deciding takes a fifth of
#: the time at most: what frees or needs quota meanwhile is decided together. The limit is in seconds.
_REST = 4.0
_LONGEST_REST = 0.1
_LAST_WRITES = 1.5
_LONGEST_RECALL = 3.0
#: Seconds between two looks at whether decisions can be made again, and after which it is said that they cannot.
_LOOK_AGAIN = 0.2
_BEHIND = 5.0


class NotSyncedError(Exception):
    """The cluster is not known in time; a new start lists everything anew."""

    def __init__(self, kinds: Iterable[str], seconds: float) -> None:
        super().__init__(
            f"after {seconds:g}s (controller.cacheSyncTimeout) these kinds are not listed yet: {', '.join(kinds)}"
        )


class Controller:
    """`journal` gets everything that is told; `metrics` has the registry that is served.

    Who does not decide (`decides`) keeps statuses, finalizers, lifecycle and gangs going, and gives no quota.
    `recalled` is what the journal remembers of past use; where it does not come in time, the statuses have to do.
    `in_doubt` is told when a fault in the core keeps it from deciding for longer than a moment, and when no longer.
    """

    def __init__(
        self,
        client: Client,
        settings: Settings,
        journal: Sink | None = None,
        *,
        adapters: Iterable[Adapter] | None = None,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
        decides: bool = True,
        recalled: Future[Sequence[PastUseRow]] | None = None,
    ) -> None:
        self.metrics = metrics if metrics is not None else Metrics(settings)
        self.ready = asyncio.Event()
        self.in_doubt: Callable[[bool], None] = lambda _: None
        self.behind: Callable[[bool], None] = lambda _: None
        self.leads: Callable[[], bool] = lambda: True
        self._clock = clock
        self._decides = decides
        self._patience = settings.controller.cache_sync_timeout
        self._policy = policy(settings)
        self._recalled = recalled
        control = settings.muster.controller
        self._inbox = Inbox(gather=control.batch_window)
        self._wakes = Wakes()
        self._cluster = Cluster(settings, enabled_adapters(settings) if adapters is None else adapters, clock)
        self._watching = Watching(client, REQUIRED, optional(settings), self._inbox.put)
        self._recorder = Recorder(client, Pace(control.events_per_second, control.event_burst), clock)
        self._actor = Actor(
            client,
            WRITTEN,
            self._recorder,
            self._inbox.put,
            control.api_concurrency,
            self.metrics.wrote,
            self._may_write,
            self._cluster.tables.has_newer,
        )
        self._reporting = Reporting(self._cluster, self.metrics, journal)
        errands = Errands(self._actor, self._wakes)
        self._desk = Desk(self._cluster, errands, self._wakes, self._reporting, self.metrics, self._actor)
        self._sweep = Sweep(self._cluster, errands, self._wakes, self._found)
        self._judge = Judge(self._cluster, self._desk, self.metrics, self._say_doubt)
        self._traces: Traces | None = None
        self._starts: Starts | None = None
        self._again = False
        self._rests_until = 0.0
        self.metrics.health_at_scrape(self._health)

    def trace(self, send: Callable[[Span], None]) -> None:
        """From now on each gang's life is told as spans."""
        self._traces = Traces(self._cluster, send, self._cluster.settings.muster.tracing.sample_ratio, self._clock)

    def recall_starts(self, recall: Recall) -> None:
        """The journal, as far as it remembers what started before; it is asked once a flavor wants to know."""
        self._starts = Starts(self._cluster, recall)

    @property
    def is_synced(self) -> bool:
        """Whether the whole cluster is known and decisions are made."""
        return self.ready.is_set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop. What is being written then gets a moment to end."""
        around = [
            asyncio.create_task(self._watching.run()),
            asyncio.create_task(self._recorder.run()),
            asyncio.create_task(self._wake_when(stop)),
            asyncio.create_task(self._say_when_behind()),
        ]
        try:
            with _much_is_kept():
                await self._learn(stop, around)
            while not stop.is_set():
                await self._inbox.wait(self._until_next())
                _raise_failed(around)
                self.turn(self._clock())
            await self._actor.drain(_LAST_WRITES)
        finally:
            for task in around:
                task.cancel()
            await asyncio.gather(*around, return_exceptions=True)
            await self._actor.close()

    async def _learn(self, stop: asyncio.Event, around: list[asyncio.Task[None]]) -> None:
        """Lists everything before anything is decided, or quota that is held would look free."""
        until = time.monotonic() + self._patience
        while not self._watching.synced and not stop.is_set():
            await self._inbox.wait(0.2)
            _raise_failed(around)
            if time.monotonic() > until:
                raise NotSyncedError(self._watching.unknown, self._patience)
            for item in self._inbox.drain():
                self._cluster.fill(item)
        if stop.is_set():
            return
        while len(self._inbox):
            for item in self._inbox.drain():
                self._cluster.fill(item)
        await self._recall()
        now = self._clock()
        self._cluster.tell_everything()
        self._desk.catch_up(now)
        self._reporting.begin()
        self._sweep.plan(now)
        if self._starts is not None:
            self._starts.look(now)
        self._wakes.at(OfHealth(), now + _HEALTH_EVERY)
        self.ready.set()
        log.info("all informers are synced", extra={"workloads": len(self._cluster.tables.workloads)})

    async def _recall(self) -> None:
        """What the journal remembers of LocalQueues that are still there; the newest counts, here or in a status."""
        if self._recalled is None:
            return
        try:
            async with asyncio.timeout(_LONGEST_RECALL):
                rows = await asyncio.wrap_future(self._recalled)
        except TimeoutError:
            log.warning("the journal does not say in time what was used lately; the statuses of LocalQueues do")
            return
        for row in rows:
            self._cluster.recall(row)

    def turn(self, now: float) -> None:
        """One look at everything that happened since the last one, and what follows from it."""
        began = time.perf_counter()
        cluster, desk = self._cluster, self._desk
        # 1. What came in goes into the tables; the core hears of queues, nodes and pods at once.
        for item in self._inbox.drain():
            cluster.take(item)
            desk.take(item, now)
            if self._traces is not None:
                self._traces.take(item)
        # 2. What has its time comes up again.
        for token in self._wakes.due(now):
            self._look_at(token, now)
        # 3. The core hears of Workloads that changed, and their own rules look at them.
        desk.workloads(now)
        # 4. The adapters look at gangs that changed.
        desk.units(now)
        if self._starts is not None:
            self._starts.look(now)
        # 5. Who starts, who has to go, who waits, and
        # 6. the writes that say so. A core in doubt is mended first, and while it is not, nothing is asked of it.
        if self._judge.mend(now):
            self._judge.look(self._decide_or_doubt, now)
        # 7. Queues say what changed, and what is no longer used may go.
        self._judge.look(desk.holds, now)
        self._judge.look(desk.queues, now)
        desk.finalizers(now)
        # 8. A slice of the slow look at everything, while nothing else is to be done.
        if not len(self._inbox):
            self._judge.look(self._sweep.slice, now)
            self._judge.look(self._reporting.catch_up, now)
        self._reporting.ungated()
        self._judge.look(self._reporting.surroundings, now)
        self.metrics.turn(time.perf_counter() - began)

    def _may_write(self) -> bool:
        return self.leads()

    @property
    def _is_sure(self) -> bool:
        """Whether what is known is all that there is, as far as it can be known, and this is the one to decide."""
        return self._watching.sees_all and self.leads()

    def _decide_or_doubt(self, now: float) -> None:
        if not self._is_sure:
            return
        if self._is_to_decide(now):
            self._decide(now)
        elif self._sweep.doubts():
            self._doubt(now)

    def _decide(self, now: float) -> None:
        began = time.perf_counter()
        self._cluster.stirred = False
        plan = self._judge.plan(now, self._policy)
        if plan is None:
            return
        seconds = time.perf_counter() - began
        self._rests_until = now + min(_LONGEST_REST, seconds * _REST)
        self.metrics.decided(seconds)
        if self._traces is not None:
            ended = self._clock()
            self._traces.decided(plan, ended - seconds, ended)
        success = self._desk.carry_out(plan, now)
        self._again = success
        self.metrics.attempt(time.perf_counter() - began, success=success)

    def _doubt(self, now: float) -> None:
        """Everybody who waits is judged anew, though nothing has happened. Whoever can start now was forgotten."""
        self.metrics.swept_through()
        if not self._decides:
            return
        self._cluster.state.look_again()
        plan = self._judge.plan(now, self._policy)
        for decision in plan or ():
            if not isinstance(decision, Hold):
                self._found(Find("Decision", decision.uid))
        self._again = self._desk.carry_out(plan or (), now)

    def _found(self, find: Find) -> None:
        self.metrics.swept(find.kind)
        log.warning("only the sweep found this", extra={"kind": find.kind, "object": find.name})

    def _say_doubt(self, doubt: bool) -> None:
        self.in_doubt(doubt)

    def _health(self) -> Health:
        dropped, lag = self._reporting.journal_health()
        clock = time.monotonic()
        return Health(
            self._recorder.dropped,
            dropped,
            lag,
            self._watching.silence(clock),
            is_in_doubt=self._judge.is_in_doubt,
            behind=self._watching.lost(clock),
        )

    def _is_to_decide(self, now: float) -> bool:
        """Not while it rests, unless the clock was set back."""
        if not self._decides or self._rests_until - _LONGEST_REST <= now < self._rests_until:
            return False
        wakeup = self._cluster.state.next_wakeup()
        return self._cluster.stirred or self._again or (wakeup is not None and wakeup <= now)

    def _look_at(self, token: object, now: float) -> None:
        """What a timer or a freed object brings up again."""
        match token:
            case OfSweep():
                self._sweep.begin(now)
            case OfHealth():
                self._reporting.health(now)
                self._wakes.at(OfHealth(), now + _HEALTH_EVERY)
            case OfWorkload() | OfUnit() | OfDecision() | OfHold() | OfHolds() | OfStatus() | OfFinalizer():
                self._desk.look_at(token, now)
            case _:
                raise TypeError(f"nothing to look at: {token!r}")

    def _until_next(self) -> float:
        """Seconds until something is due."""
        if self._judge.mends_at is not None:
            return max(0.0, min(self._judge.mends_at - self._clock(), _LONGEST_SLEEP))
        if self._sweep.is_under_way or self._cluster.dirty.workloads or self._reporting.is_behind:
            return 0.0
        soonest = 0.0 if self._is_sure else _LOOK_AGAIN
        if self._sweep.has_doubts:
            return soonest
        if self._decides and (self._again or self._cluster.stirred):
            return max(soonest, min(self._rests_until - self._clock(), _LONGEST_REST))
        wakeup = self._cluster.state.next_wakeup() if self._decides else None
        times = [time for time in (self._wakes.next(), wakeup, self._reporting.owes()) if time is not None]
        wait = min(times) - self._clock() if times else _LONGEST_SLEEP
        return max(soonest, min(wait, _LONGEST_SLEEP))

    async def _say_when_behind(self) -> None:
        """A moment without a watch is nothing to speak of; more than that is told, and when it is over."""
        said = False
        while True:
            await asyncio.sleep(1.0)
            lost = self._watching.lost(time.monotonic())
            is_behind = not self._watching.sees_all and max(lost.values()) > _BEHIND
            if is_behind != said:
                said = is_behind
                self.behind(said)
                log.warning(
                    "nothing is decided until the API server can be followed" if said else "decisions go on",
                    extra={"kinds": sorted(lost)},
                )

    async def _wake_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._inbox.wake()
        await asyncio.Event().wait()


@contextlib.contextmanager
def _much_is_kept() -> Iterator[None]:
    """What is learnt at the start stays: to look for garbage in it, again and again, takes longer than to learn it."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.set_threshold(*_GARBAGE)
        gc.enable()


def policy(settings: Settings) -> Policy:
    waiting = settings.wait_for_pods_ready
    ignore = settings.resources.quota_check_strategy is QuotaCheckStrategy.IGNORE_UNDECLARED
    return Policy(
        quota_check=QuotaCheck.IGNORE_UNDECLARED if ignore else QuotaCheck.BLOCK_UNDECLARED,
        priority_sorting_within_cohort=settings.gate("PrioritySortingWithinCohort"),
        partial_admission=settings.gate("PartialAdmission"),
        flavor_fungibility=settings.gate("FlavorFungibility"),
        block_admission_until_pods_ready=waiting is not None and waiting.block_admission,
        fair_sharing=_fair_sharing(settings),
        topology=TopologyRules(
            is_balanced=settings.gate("TASBalancedPlacement"),
            respects_preferences=settings.gate("TASRespectNodeAffinityPreferred"),
            fails_fast=settings.gate("TASFailedNodeReplacementFailFast"),
            mixes_profiles=settings.gate("TASProfileMixed"),
            reservation=_reservation(settings),
        ),
        admission_fair_sharing=_admission_fair_sharing(settings),
    )


def _reservation(settings: Settings) -> DomainReservation | None:
    asked = settings.muster.domain_reservation
    return None if asked is None else DomainReservation(float(asked.after), float(asked.at_most))


def _fair_sharing(settings: Settings) -> FairSharing | None:
    sharing = settings.fair_sharing
    if sharing is None:
        return None
    return FairSharing(
        strategies=tuple(FairStrategy(strategy.value) for strategy in sharing.preemption_strategies),
        prioritize_non_borrowing=settings.gate("FairSharingPrioritizeNonBorrowing"),
        preempt_within_nominal=settings.gate("FairSharingPreemptWithinNominal"),
    )


def _admission_fair_sharing(settings: Settings) -> AdmissionFairSharing | None:
    usage = settings.admission_fair_sharing
    if usage is None:
        return None
    return AdmissionFairSharing(
        half_life=usage.usage_half_life_time,
        sampling_interval=usage.usage_sampling_interval,
        resource_weights=tuple(
            (ResourceName(name), parse(weight)) for name, weight in sorted(usage.resource_weights.items())
        ),
        across_cohorts=settings.muster.admission_fair_sharing.across_cohorts,
    )


def _raise_failed(tasks: Iterable[asyncio.Task[None]]) -> None:
    """A helper that ended by a bug ends the controller: half of it would be worse than a restart."""
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
