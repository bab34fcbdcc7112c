"""The slow look at everything: the safety net under the events, in slices that nobody notices.

It compares what the core was told with what the objects say now, and asks of each gang, Workload, queue and finalizer
whether something is owed that nobody was going to do; at its end everybody who waits is judged anew. What only this
found is counted, since each such find is a bug somewhere. It must never take more than a short slice of a turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from admission.controllers import conditions, finalizers, lifecycle, observe, status
from admission.controllers.act import Errand
from admission.controllers.cluster import FINALIZED, Cluster
from admission.controllers.errands import Errands
from admission.controllers.store import Key
from admission.controllers.tokens import OfDecision, OfFinalizer, OfStatus, OfSweep, OfUnit, OfWorkload
from admission.controllers.wakes import Wakes
from admission.jobs.effects import Effect, Tell
from queues.core import audit, events, model
from queues.core.readings import Told
from queues.core.state import State

#: Seconds of one turn.
_SLICE: Final = 0.004

#: What the core is told of objects whose value is all that counts.
_VALUES: Final[Mapping[str, Callable[[Any], Told]]] = {
    "ResourceFlavor": observe.flavor,
    "Topology": observe.topology,
    "AdmissionCheck": observe.check,
    "Cohort": observe.cohort,
    "ClusterQueue": observe.cluster_queue,
    "Namespace": observe.namespace,
    "LocalQueue": observe.local_queue,
}


@dataclass(frozen=True, slots=True)
class Find:
    """What only the sweep found, by kind and for the log."""

    kind: str
    name: str


class Sweep:
    """Every so many seconds. `found` is told of each find."""

    def __init__(self, cluster: Cluster, errands: Errands, wakes: Wakes, found: Callable[[Find], None]) -> None:
        self._cluster = cluster
        self._errands = errands
        self._wakes = wakes
        self._found = found
        self._period = cluster.settings.muster.controller.sweep_period
        self._looks_left: Iterator[Callable[[float], None]] | None = None
        self._doubts = False

    @property
    def is_under_way(self) -> bool:
        return self._looks_left is not None

    @property
    def has_doubts(self) -> bool:
        """Whether all that is left of a sweep is to judge everybody anew."""
        return self._doubts

    def plan(self, now: float) -> None:
        self._wakes.at(OfSweep(), now + self._period)

    def begin(self, now: float) -> None:
        """Everything, in the order in which the core hears of it."""
        if self._looks_left is None:
            self._looks_left = self._looks()
        self.plan(now)

    def slice(self, now: float) -> None:
        """Goes on for a moment."""
        if self._looks_left is None:
            return
        until = time.perf_counter() + _SLICE
        for look in self._looks_left:
            look(now)
            if time.perf_counter() > until:
                return
        self._looks_left, self._doubts = None, True

    def doubts(self) -> bool:
        """Whether everybody who waits is to be judged anew: once, at the end of a sweep."""
        doubts, self._doubts = self._doubts, False
        return doubts

    def _looks(self) -> Iterator[Callable[[float], None]]:
        tables, cluster = self._cluster.tables, self._cluster
        yield from self._looks_at_core()
        for key in tables.pods.keys():  # noqa: SIM118  # not a mapping, and it changes while this goes on
            yield partial(self._pod, key)
        for key in tables.workloads.keys():  # noqa: SIM118
            yield partial(self._workload, key)
        for unit in cluster.units.all():
            yield partial(self._unit, OfUnit(unit))
        for kind in ("ClusterQueue", "LocalQueue"):
            for key in tables.of(kind).keys():  # noqa: SIM118
                yield partial(self._status, OfStatus(kind, key))
        for kind in FINALIZED:
            for key in tables.of(kind).keys():  # noqa: SIM118
                yield partial(self._finalizer, OfFinalizer(kind, key.name))

    def _looks_at_core(self) -> Iterator[Callable[[float], None]]:
        tables, cluster = self._cluster.tables, self._cluster
        for kind in _VALUES:
            for key in tables.of(kind).keys():  # noqa: SIM118  # not a mapping, and it changes while this goes on
                yield partial(self._value, kind, key)
        for name in cluster.state.queue_names():
            yield partial(self._gone_queue, name)
        for name in cluster.state.queue_names():
            yield partial(self._usage, f"ClusterQueue/{name}", partial(audit.wrong_in_queue, name=name))
        for cohort in list(cluster.state.cohorts()):
            yield partial(self._usage, f"Cohort/{cohort}", partial(audit.wrong_in_cohort, name=cohort))
        for uid in list(cluster.told):
            yield partial(self._gone_workload, uid)

    # ------------------------------------------------------------------ what the core knows

    def _value(self, kind: str, key: Key, now: float) -> None:
        del now
        obj: Any = self._cluster.tables.of(kind).get(*key)
        if obj is not None and not self._cluster.state.knows(_VALUES[kind](obj)):
            self._find(kind, key)
            self._cluster.tell_again(kind, obj)

    def _gone_queue(self, name: model.ClusterQueueName, now: float) -> None:
        del now
        if self._cluster.tables.cluster_queues.get("", name) is None and self._cluster.state.queue(name) is not None:
            self._find("ClusterQueue", Key("", name))
            self._cluster.apply(events.ClusterQueueGone(name))

    def _gone_workload(self, uid: str, now: float) -> None:
        del now
        if uid in self._cluster.told and self._cluster.tables.workloads.by_uid(uid) is None:
            told = self._cluster.told.pop(uid)
            self._find("Workload", Key(*told.key))
            self._cluster.apply(events.WorkloadGone(model.Uid(uid)))

    def _usage(self, name: str, wrong: Callable[[State], Iterator[str]], now: float) -> None:
        """What is counted as used has to be what is held; where it is not, the whole state is in doubt."""
        del now
        state = self._cluster.state
        state.settle()
        if differences := tuple(wrong(state)):
            self._find("Usage", Key("", name))
            self._cluster.doubted("adding up", ValueError("; ".join(differences)), None)

    def _pod(self, key: Key, now: float) -> None:
        del now
        pod = self._cluster.tables.pods.get(*key)
        if pod is not None and self._cluster.occupancy.tell(pod, there=True):
            self._find("Pod", key)

    # ------------------------------------------------------------------ what is owed

    def _workload(self, key: Key, now: float) -> None:
        cluster = self._cluster
        workload = cluster.tables.workloads.get(*key)
        token = OfWorkload(key)
        if workload is None or key in cluster.dirty.workloads or self._errands.wait_for(("Workload", *key), token):
            return
        told = cluster.told.get(workload.metadata.uid)
        is_stale = told is not None if conditions.is_finished(workload) else told != cluster.value(workload)
        if is_stale:
            if self._is_owed(token, ()):
                self._find("Workload", key)
        elif told is not None and not audit.is_charged_right(cluster.state, told.uid):
            if self._errands.is_idle(Errand(OfDecision(told.uid), ())):
                # Either it holds quota that is not counted, or quota counts that it was never given.
                self._find("HeldQuota", key)
                cluster.apply(events.WriteRefused(told.uid))
        else:
            effects = lifecycle.reconcile(workload, cluster.facts(workload), now).effects
            if any(not isinstance(effect, Tell) for effect in effects) and self._is_owed(token, effects):
                self._find("WorkloadRules", key)
        cluster.dirty.workloads[key] = None

    def _unit(self, token: OfUnit, now: float) -> None:
        del now
        cluster, key = self._cluster, token.unit
        if key in cluster.dirty.units:
            return
        unit = cluster.units.unit(key)
        if unit.members or unit.workloads:
            effects = cluster.units.adapter(key).reconcile(unit, cluster.look).effects
            if any(not isinstance(effect, Tell) for effect in effects) and self._is_owed(token, effects):
                self._find("Gang", Key(key.namespace, key.name))
        cluster.dirty.units[key] = None

    def _status(self, token: OfStatus, now: float) -> None:
        cluster = self._cluster
        is_cluster_queue = token.kind == "ClusterQueue"
        dirty: Mapping[Any, None] = cluster.dirty.cluster_queues if is_cluster_queue else cluster.dirty.local_queues
        obj: Any = cluster.tables.of(token.kind).get(*token.key)
        if obj is None or (token.key.name if is_cluster_queue else token.key) in dirty or self._wakes.has(token):
            return
        if (patch := status.patch(obj, cluster, now)) is not None:
            if self._is_owed(token, (patch,)):
                self._find(f"{token.kind}Status", token.key)
            if is_cluster_queue:
                cluster.dirty.cluster_queues[token.key.name] = None
            else:
                cluster.dirty.local_queues[token.key] = None

    def _finalizer(self, token: OfFinalizer, now: float) -> None:
        del now
        cluster = self._cluster
        obj: Any = cluster.tables.of(token.kind).get("", token.name)
        if obj is None or (token.kind, token.name) in cluster.dirty.finalizers:
            return
        patch = finalizers.reconcile(token.kind, obj, in_use=cluster.is_in_use(token.kind, token.name))
        if patch is not None:
            if self._is_owed(token, (patch,)):
                self._find("Finalizer", Key("", token.name))
            cluster.dirty.finalizers[token.kind, token.name] = None

    def _is_owed(self, token: OfWorkload | OfUnit | OfStatus | OfFinalizer, effects: tuple[Effect, ...]) -> bool:
        """Whether nothing is under way, or to be tried again, that would have led to it."""
        return self._errands.is_idle(Errand(token, effects))

    def _find(self, kind: str, key: Key) -> None:
        self._found(Find(kind, f"{key.namespace}/{key.name}" if key.namespace else key.name))
