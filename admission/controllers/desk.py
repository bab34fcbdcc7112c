"""Where dirty things become errands: Workloads, gangs, decisions, queue statuses, finalizers.

It asks the rules, the adapters and the decisions' writers what is to be done and starts that, one errand at a time for
each object, and takes in how errands ended. It must never start two writes to one object, nor tell the core about a
Workload while a write of Muster's own to it is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from itertools import islice
from typing import Any, ParamSpec, assert_never

from admission.api.kueue import Workload
from admission.controllers import conditions, decisions, finalizers, lifecycle, status
from admission.controllers.act import Actor, Errand, Fate, Report
from admission.controllers.changes import workload_patches
from admission.controllers.cluster import Cluster
from admission.controllers.errands import Errands, delay
from admission.controllers.holds import Holds
from admission.controllers.inbox import Item
from admission.controllers.metrics import Metrics
from admission.controllers.reporting import Reporting
from admission.controllers.store import Key, key_of
from admission.controllers.tokens import OfDecision, OfFinalizer, OfHold, OfHolds, OfStatus, OfUnit, OfWorkload
from admission.controllers.wakes import Wakes
from admission.jobs.effects import Effect
from admission.jobs.interface import UnitKey
from queues.core import events, model
from queues.core.plan import Admit, Decision, Evict, GiveUp, Hold, Place, Plan

log = logging.getLogger(__name__)
Arguments = ParamSpec("Arguments")

#: How much rarer the statuses of queues are written while many other writes are under way.
_CROWDED = 5.0
#: Reasons for waiting are gathered for so many seconds before the journal is told.
_HOLDS_TOLD_EVERY = 1.0
_AFTER_A_BUG = 30.0
#: So many Workloads are looked at in one turn; of more than that, the second number in each.
_AT_ONCE = 2_000
_A_SLICE = 500
#: How often an admission is written again that got no answer; with the pauses between them more than two minutes.
_REPEATED = 8

#: Decisions that become writes at once.
Written = Admit | Evict | Place | GiveUp

LookedAt = OfWorkload | OfUnit | OfDecision | OfHold | OfHolds | OfStatus | OfFinalizer


class Desk:
    def __init__(
        self,
        cluster: Cluster,
        errands: Errands,
        wakes: Wakes,
        reporting: Reporting,
        metrics: Metrics,
        actor: Actor,
    ) -> None:
        self._cluster = cluster
        self._errands = errands
        self._wakes = wakes
        self._reporting = reporting
        self._metrics = metrics
        self._actor = actor
        self._holds = Holds()
        self._holds_told = 0.0
        self._holds_to_tell: dict[str, None] = {}
        self._deferred: dict[str, Written] = {}
        #: Admissions that are being written.
        self._admitting: dict[str, Admit] = {}
        #: The objects whose writes come before that of an eviction.
        self._after: dict[str, list[Hashable]] = {}
        self._kept_until: dict[str, float] = {}
        self._failed_admissions: dict[str, int] = {}
        self._status_written: dict[OfStatus, float] = {}
        self._status_every = cluster.settings.muster.controller.status_interval

    # ------------------------------------------------------------------ what comes back

    def take(self, item: Item, now: float) -> None:
        """The end of an errand; objects were taken in before."""
        if isinstance(item, Report):
            self._ended(item, now)

    def look_at(self, token: LookedAt, now: float) -> None:
        dirty = self._cluster.dirty
        match token:
            case OfWorkload(key):
                dirty.workloads[key] = None
            case OfUnit(unit):
                dirty.units[unit] = None
            case OfFinalizer(kind, name):
                dirty.finalizers[kind, name] = None
            case OfStatus():
                self._write_status(token, now)
            case OfHold(uid):
                self._holds.look_at(uid, now)
                self.holds(now)
            case OfHolds():
                self.holds(now)
            case OfDecision(uid):
                decision = self._deferred.pop(uid, None)
                if decision is not None:
                    self._guarded(token, now, self._start_decision, decision, now)
            case _:
                assert_never(token)

    def _ended(self, report: Report, now: float) -> None:
        decision = report.errand.purpose
        if isinstance(decision, Admit):
            self._admitting.pop(decision.uid, None)
        if report.fate is not Fate.DONE:
            self._metrics.failed(report.fate.value)
            level = logging.DEBUG if report.fate in {Fate.CONFLICT, Fate.GONE} else logging.WARNING
            log.log(
                level,
                "an errand was not done",
                extra={"owner": str(report.errand.owner), "fate": report.fate.value, "why": report.message},
            )
            if isinstance(decision, Admit | Evict | Place | GiveUp):
                self._refused(decision, report, now)
        elif isinstance(decision, Admit):
            self._failed_admissions.pop(decision.uid, None)
        for token in self._errands.ended(report, now):
            if isinstance(token, LookedAt):
                self.look_at(token, now)

    def _refused(self, decision: Written, report: Report, now: float) -> None:
        """The core forgets what could not be written. What fails again and again is left alone for a while."""
        uid = decision.uid
        if report.fate is Fate.UNAVAILABLE and self._is_repeated(decision):
            self._deferred[uid] = decision
            return
        workload = self._cluster.tables.workloads.by_uid(uid)
        self._cluster.apply(events.WriteRefused(model.Uid(uid)))
        self._cluster.values.decided_at.pop(uid, None)
        if workload is None:
            return
        if report.fate in {Fate.REFUSED, Fate.UNAVAILABLE}:
            failures = self._failed_admissions.get(uid, 0) + 1
            self._failed_admissions[uid] = failures
            message = f"The admission could not be written: {report.message}"
            self.keep_out(uid, message, now + delay(report.fate, failures))
        self._cluster.dirty.workloads[key_of(workload)] = None

    def promised(self) -> tuple[Admit, ...]:
        """Admissions that are being written, or of which nobody knows yet whether they were."""
        waiting = (decision for decision in self._deferred.values() if isinstance(decision, Admit))
        return (*self._admitting.values(), *waiting)

    def keep_out(self, uid: str, message: str, until: float) -> None:
        """It does not wait for quota until then, and is told why."""
        self._kept_until[uid] = until
        self._cluster.kept_back[uid] = message
        workload = self._cluster.tables.workloads.by_uid(uid)
        if workload is not None:
            self._wakes.at(OfWorkload(key_of(workload)), until)

    def _is_repeated(self, decision: Written) -> bool:
        """Whether to write it once more when nobody can say what became of it.

        A write without an answer may still be stored. As long as that can be, the quota of an admission is not given
        to anybody else; the same write again, on the same version, finds out. What never gets an answer is given up.
        """
        if isinstance(decision, Evict):
            return True
        failures = self._failed_admissions.get(decision.uid, 0) + 1
        if not isinstance(decision, Admit) or failures > _REPEATED:
            return False
        self._failed_admissions[decision.uid] = failures
        return True

    # ------------------------------------------------------------------ Workloads

    def catch_up(self, now: float) -> None:
        """At the start: the core hears of every Workload that is not finished before anything is written."""
        for workload in self._cluster.tables.workloads:
            if not conditions.is_finished(workload):
                self._guarded(OfWorkload(key_of(workload)), now, self._tell, workload, now)

    def workloads(self, now: float) -> None:
        """Those that changed. Where everything did, as at the start, some at a time: decisions need not wait for it."""
        ended, self._cluster.ended = self._cluster.ended, []
        for uid in ended:
            self._forget(uid)
        dirty = self._cluster.dirty.workloads
        if len(dirty) <= _AT_ONCE:
            keys, self._cluster.dirty.workloads = list(dirty), {}
        else:
            keys = list(islice(dirty, _A_SLICE))
            for key in keys:
                del dirty[key]
        for key in keys:
            self._guarded(OfWorkload(key), now, self._workload, key, now)

    def _workload(self, key: Key, now: float) -> None:
        token = OfWorkload(key)
        workload = self._cluster.tables.workloads.get(*key)
        if workload is None:
            self._reporting.workload(key, None, now)
            self._errands.forget(token)
            return
        if self._errands.wait_for(("Workload", *key), token):
            return
        self._tell(workload, now)
        if not self._errands.may_look(token, now):
            return
        verdict = lifecycle.reconcile(workload, self._cluster.facts(workload), now)
        if verdict.wake_at is not None:
            self._wakes.at(token, verdict.wake_at)
        elif conditions.is_finished(workload):
            # What was to be looked at while it ran, as whether its pods are ready in time, would be kept until then.
            self._wakes.cancel(token)
        self._start(token, verdict.effects)

    def _tell(self, workload: Workload, now: float) -> None:
        uid = workload.metadata.uid
        if self._kept_until.get(uid, now) <= now:
            self._kept_until.pop(uid, None)
            self._cluster.kept_back.pop(uid, None)
        self._cluster.tell(workload)
        if conditions.is_finished(workload) or conditions.holds_quota(workload):
            self._holds.forget(uid)
        self._reporting.workload(self._cluster.tables.workloads.key(workload), workload, now, self._holds.reason(uid))

    def _forget(self, uid: str) -> None:
        self._holds.forget(uid)
        self._deferred.pop(uid, None)
        self._after.pop(uid, None)
        self._kept_until.pop(uid, None)
        self._failed_admissions.pop(uid, None)
        for token in (OfDecision(uid), OfHold(uid)):
            self._errands.forget(token)

    # ------------------------------------------------------------------ gangs

    def units(self, now: float) -> None:
        dirty = self._cluster.dirty.units
        units, self._cluster.dirty.units = list(dirty), {}
        for unit in units:
            self._guarded(OfUnit(unit), now, self._unit, unit, now)

    def _unit(self, key: UnitKey, now: float) -> None:
        token = OfUnit(key)
        if not self._errands.may_look(token, now):
            return
        unit = self._cluster.units.unit(key)
        if not unit.members and not unit.workloads:
            self._errands.forget(token)
            return
        outcome = self._cluster.units.adapter(key).reconcile(unit, self._cluster.look)
        if outcome.requeue_after is not None:
            self._wakes.at(token, now + outcome.requeue_after)
        self._start(token, outcome.effects)

    # ------------------------------------------------------------------ decisions

    def carry_out(self, plan: Plan, now: float) -> bool:
        """Starts what the core decided; whether anybody starts or has to go.

        An eviction is written after the admissions that were decided before it, for these may be why it is needed:
        whoever follows the Workloads never sees anybody go while there still seems to be room. Those of earlier plans
        may still be on their way as well.
        """
        success = False
        admitted: list[Hashable] | None = None
        for decision in plan:
            success = success or not isinstance(decision, Hold)
            if isinstance(decision, Evict):
                if admitted is None:
                    admitted = [key for one in self.promised() if (key := self._key_of(one)) is not None]
                if admitted:
                    self._after[decision.uid] = list(admitted)
            token = OfDecision(decision.uid)
            self._guarded(token, now, self._start_decision, decision, now)
            if isinstance(decision, Admit) and admitted is not None and (key := self._key_of(decision)) is not None:
                admitted.append(key)
        return success

    def _key_of(self, decision: Admit) -> Hashable | None:
        """Of its Workload's object; None where that is gone."""
        workload = self._cluster.tables.workloads.by_uid(decision.uid)
        return None if workload is None else ("Workload", *key_of(workload))

    def _start_decision(self, decision: Decision, now: float) -> None:
        uid = decision.uid
        workload = self._cluster.tables.workloads.by_uid(uid)
        if workload is None:
            self._cluster.apply(events.WorkloadGone(uid))
            return
        if not self._cluster.stands_by(decision):
            return
        match decision:
            case Hold(_, reason):
                self._holds.put(uid, reason, now)
                self._holds_to_tell[uid] = None
            case Admit() | Evict() | Place() | GiveUp():
                token = OfDecision(uid)
                is_busy = self._waits_for_others(uid) or self._errands.wait_for(("Workload", *key_of(workload)), token)
                if is_busy or not self._errands.may_look(token, now):
                    self._deferred[uid] = decision
                    return
                self._after.pop(uid, None)
                if isinstance(decision, Evict):
                    # An admission that was just written is told first. Otherwise the Workload could wait again, as when
                    # the core last heard of it, and the core would count its quota as held for ever.
                    self._tell(workload, now)
                after, effects = self._written(workload, decision, now)
                if after is None:
                    self._cluster.apply(events.WriteRefused(uid))
                    self._cluster.dirty.workloads[key_of(workload)] = None
                    return
                self._holds.stirred(now)
                is_on_its_way = self._start(token, (*workload_patches(workload, after), *effects), decision)
                if is_on_its_way and isinstance(decision, Admit):
                    self._admitting[uid] = decision
            case _:
                assert_never(decision)

    def _waits_for_others(self, uid: str) -> bool:
        """Whether a write that comes before this decision's is not done; then it comes up again when that one is."""
        left = self._after.get(uid, [])
        while left and not self._errands.wait_for(left[-1], OfDecision(uid)):
            left.pop()
        return bool(left)

    def _written(self, workload: Workload, decision: Written, now: float) -> tuple[Workload | None, tuple[Effect, ...]]:
        """The Workload as decided and what is told about it; None where the decision does not fit it any more."""
        match decision:
            case Admit():
                if not decisions.is_current(workload) or self._cluster.value(workload) != self._cluster.told.get(
                    decision.uid
                ):
                    return None, ()
                self._cluster.values.decided_at[decision.uid] = decision.admission.reserved_at
                self._holds.forget(decision.uid)
                after = decisions.admit(
                    workload, decision, now, reports_readiness=self._cluster.reports_readiness(workload)
                )
                return after, decisions.admission_events(workload, after, now)
            case Evict():
                if not conditions.holds_quota(workload) or conditions.is_finished(workload):
                    return None, ()
                preemptor = self._cluster.tables.workloads.by_uid(decision.preemptor)
                self._metrics.workloads.preemption(decision.preemptor_queue, decision.reason.value)
                after = decisions.preempt(workload, decision, self._cluster.ownership(workload), now)
                return after, decisions.preemption_events(workload, preemptor, decision)
            case Place() | GiveUp():
                return self._moved(workload, decision, now)
            case _:
                assert_never(decision)

    def _moved(
        self, workload: Workload, decision: Place | GiveUp, now: float
    ) -> tuple[Workload | None, tuple[Effect, ...]]:
        """What becomes of one that holds quota and lacked places; None when it is another one by now."""
        if self._cluster.value(workload) != self._cluster.told.get(decision.uid):
            return None, ()
        if isinstance(decision, Place):
            return decisions.place(workload, decision), ()
        after = decisions.give_up(workload, decision, self._cluster.ownership(workload), now)
        return after, (decisions.give_up_event(workload, decision),)

    # ------------------------------------------------------------------ reasons

    def holds(self, now: float) -> None:
        """Why Workloads wait goes to the journal at once or a moment later, and to those whose turn it is."""
        if self._holds_to_tell and now >= self._holds_told + _HOLDS_TOLD_EVERY:
            self._holds_told = now
            told, self._holds_to_tell = self._holds_to_tell, {}
            for uid in told:
                self._guarded(OfHold(uid), now, self._tell_hold, uid, now)
        for uid in self._holds.turns(now, crowded=self._actor.is_crowded):
            self._guarded(OfHold(uid), now, self._write_hold, uid, now)
        if self._holds_to_tell:
            self._wakes.at(OfHolds(), self._holds_told + _HOLDS_TOLD_EVERY)
        if (due := self._holds.next()) is not None:
            self._wakes.at(OfHolds(), due)

    def _tell_hold(self, uid: str, now: float) -> None:
        """Many a reason is overtaken before it is told: by another one, or by an admission."""
        workload, reason = self._cluster.tables.workloads.by_uid(uid), self._holds.reason(uid)
        if workload is not None and reason is not None:
            self._reporting.held(workload, reason, now)

    def _write_hold(self, uid: str, now: float) -> None:
        workload = self._cluster.tables.workloads.by_uid(uid)
        reason = self._holds.reason(uid)
        if workload is None or conditions.is_finished(workload):
            self._holds.forget(uid)
            return
        due = self._holds.when(uid, workload, now)
        told = self._cluster.told.get(uid)
        if due is None or reason is None or told is None or told.held is not None:
            return
        token = OfHold(uid)
        if due > now:
            self._holds.look_at(uid, due)
            return
        if not self._errands.may_look(token, now):
            return
        after = decisions.hold(workload, reason, now, told)
        if self._start(token, (*workload_patches(workload, after), decisions.hold_event(workload, reason))):
            self._holds.written(uid, now)

    # ------------------------------------------------------------------ queues

    def queues(self, now: float) -> None:
        """Statuses are written at the first change and then as often as the settings allow."""
        dirty = self._cluster.dirty
        changed = self._cluster.state.dirty_queues()
        names = dict.fromkeys((*dirty.cluster_queues, *changed.cluster_queues))
        keys = dict.fromkeys((*dirty.local_queues, *(Key(*key) for key in changed.local_queues)))
        dirty.cluster_queues, dirty.local_queues = {}, {}
        tokens = [OfStatus("ClusterQueue", Key("", name)) for name in names]
        tokens += [OfStatus("LocalQueue", key) for key in keys]
        tokens += [OfStatus("Cohort", Key("", name)) for name in self._cohorts_told(names, changed.cohorts)]
        crowded = self._actor.is_crowded or self._holds.is_busy(now)
        every = self._status_every * (_CROWDED if crowded else 1.0)
        for token in tokens:
            due = self._status_written.get(token, 0.0) + every
            if due > now:
                self._wakes.at(token, due)
            else:
                self._write_status(token, now)

    def _cohorts_told(self, queues: Iterable[str], cohorts: Iterable[str]) -> Iterable[str]:
        """The cohorts whose status may be another: those that changed, and with shares those above changed queues."""
        dirty, self._cluster.dirty.cohorts = self._cluster.dirty.cohorts, {}
        if self._cluster.settings.fair_sharing is not None:
            dirty.update(dict.fromkeys(cohorts))
            for name in queues:
                dirty.update(dict.fromkeys(self._cluster.state.cohorts_above(model.ClusterQueueName(name))))
        return dirty

    def _write_status(self, token: OfStatus, now: float) -> None:
        self._guarded(token, now, self._status, token, now)

    def _status(self, token: OfStatus, now: float) -> None:
        if token.kind == "ClusterQueue":
            self._reporting.cluster_queue(token.key.name)
        elif token.kind == "LocalQueue":
            self._reporting.local_queue(token.key)
        obj: Any = self._cluster.tables.of(token.kind).get(*token.key)
        if obj is None:
            self._status_written.pop(token, None)
            self._errands.forget(token)
            return
        self._status_written[token] = now
        if not self._errands.may_look(token, now):
            return
        patch = status.patch(obj, self._cluster, now)
        if patch is not None:
            self._start(token, (patch,))

    def finalizers(self, now: float) -> None:
        dirty = self._cluster.dirty.finalizers
        found, self._cluster.dirty.finalizers = list(dirty), {}
        for kind, name in found:
            token = OfFinalizer(kind, name)
            self._guarded(token, now, self._finalizer, token, now)

    def _finalizer(self, token: OfFinalizer, now: float) -> None:
        obj: Any = self._cluster.tables.of(token.kind).get("", token.name)
        if obj is None:
            self._errands.forget(token)
            return
        if not self._errands.may_look(token, now):
            return
        patch = finalizers.reconcile(token.kind, obj, in_use=self._cluster.is_in_use(token.kind, token.name))
        if patch is not None:
            self._start(token, (patch,))

    # ------------------------------------------------------------------ starting

    def _start(self, token: Hashable, effects: tuple[Effect, ...], purpose: object = None) -> bool:
        return bool(effects) and self._errands.start(Errand(token, effects, purpose))

    def _guarded(
        self,
        token: Hashable,
        now: float,
        work: Callable[Arguments, object],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> None:
        """A fault that one object brings to light is that object's alone: it is looked at again later."""
        try:
            work(*args, **kwargs)
        except Exception:  # whatever it is, the other objects must not wait for a restart
            log.exception("a look at one object failed", extra={"token": str(token)})
            self._metrics.failed("bug")
            self._wakes.at(token, now + _AFTER_A_BUG)
