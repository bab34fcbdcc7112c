"""Kueue's counters and times of Workloads: reserved, admitted, ready, evicted, released, finished.

Counted from the steps that the chronicle reads off a Workload and from its conditions before and after. It must never
count a step twice: what was told before is not told again.
"""

from __future__ import annotations

import msgspec

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import conditions, series
from admission.controllers.decisions import waited
from admission.controllers.series import CLUSTER_QUEUE, LOCAL_QUEUE, Labelled, Series
from admission.settings import Settings
from queues.journal.entries import Decision, Kind

_CLASS = "priority_class"
_EVICTION = ("reason", "underlying_cause")


class Place(msgspec.Struct, frozen=True):
    """Where a Workload is counted. `local_queue` is (name, namespace), None where that queue has no metrics."""

    cluster_queue: str
    local_queue: tuple[str, str] | None = None
    cohorts: tuple[str, ...] = ()


class _Both:
    """The same for a ClusterQueue and, where it has metrics, for the LocalQueue."""

    def __init__(self, cluster_queue: Labelled, local_queue: Labelled | None) -> None:
        self._cluster_queue = cluster_queue
        self._local_queue = local_queue

    def inc(self, place: Place, *labels: str) -> None:
        self._cluster_queue.inc(place.cluster_queue, *labels)
        if self._local_queue is not None and place.local_queue is not None:
            self._local_queue.inc(*place.local_queue, *labels)

    def observe(self, seconds: float, place: Place, *labels: str) -> None:
        self._cluster_queue.observe(seconds, place.cluster_queue, *labels)
        if self._local_queue is not None and place.local_queue is not None:
            self._local_queue.observe(seconds, *place.local_queue, *labels)


class WorkloadMetrics:
    def __init__(self, made: Series, settings: Settings) -> None:
        self._made = made
        local = settings.metrics.local_queue_metrics
        self._with_local = local is not None and local.enable and settings.gate("LocalQueueMetrics")
        self._reserved = self._counters("quota_reserved_workloads_total", "Reservations of quota", _CLASS)
        self._admitted = self._counters("admitted_workloads_total", "Admissions", _CLASS)
        self._finished = self._counters("finished_workloads_total", "Workloads that ended", _CLASS)
        self._evicted = self._counters("evicted_workloads_total", "Evictions", *_EVICTION, _CLASS)
        self._evicted_once = made.counter(
            "kueue_evicted_workloads_once_total",
            "Workloads that were evicted for this for the first time",
            *CLUSTER_QUEUE,
            *_EVICTION,
            _CLASS,
        )
        self._preempted = made.counter(
            "kueue_preempted_workloads_total",
            "Preemptions, by the queue of the preemptor",
            "preempting_cluster_queue",
            "reason",
        )
        self._reserved_wait = self._times("quota_reserved_wait_time_seconds", "From being queued to a reservation")
        self._admission_wait = self._times(
            "admission_wait_time_seconds", "From being queued to the admission", buckets=series.LONG
        )
        self._checks_wait = self._times("admission_checks_wait_time_seconds", "From the reservation to the admission")
        self._ready_wait = self._times("ready_wait_time_seconds", "From being queued until all pods were ready")
        self._until_ready = self._times(
            "admitted_until_ready_wait_time_seconds", "From the admission until all pods were ready"
        )
        self._execution = self._times(
            "execution_time_seconds", "From the admission to the end", buckets=series.LONG, local=series.LONG
        )
        self._ready_to_evicted = made.histogram(
            "kueue_pods_ready_to_evicted_time_seconds",
            "From all pods being ready to the eviction",
            series.WAIT,
            *CLUSTER_QUEUE,
            *_EVICTION,
        )
        self._eviction_latency = made.histogram(
            "kueue_workload_eviction_latency_seconds",
            "From the eviction until the quota was given back",
            series.WAIT,
            *CLUSTER_QUEUE,
            "reason",
        )
        self._in_cohort: Labelled | None = None
        if settings.gate("MetricsForCohorts"):
            self._in_cohort = made.counter(
                "kueue_cohort_subtree_admitted_workloads_total", "Admissions below this cohort", "cohort", _CLASS
            )
        self._creation: Labelled | None = None
        if settings.gate("MetricForWorkloadCreationLatency"):
            self._creation = made.histogram(
                "kueue_workload_creation_latency_seconds",
                "From the creation of a job to that of its Workload",
                series.LATENCY,
                "job_kind",
            )
        self._gate_removal = made.histogram(
            "kueue_pod_scheduling_gate_removal_seconds",
            "From the admission until a gate came off a pod",
            None,
            "name",
            *CLUSTER_QUEUE,
            "is_group",
        )

    def step(self, decision: Decision, before: Workload | None, workload: Workload, place: Place) -> None:
        """One step in the life of a Workload, which turned it from `before` into `workload`."""
        priority_class = _priority_class(workload)
        at = decision.at
        match decision.kind:
            case Kind.RESERVED:
                self._reserved.inc(place, priority_class)
                self._reserved_wait.observe(waited(workload, at), place, priority_class)
            case Kind.ADMITTED:
                self._admit(workload, at, place, priority_class)
            case Kind.FINISHED:
                self._finished.inc(place, priority_class)
                since = conditions.since(workload, names.ADMITTED)
                if since is not None and conditions.is_admitted(workload):
                    self._execution.observe(at - since, place, priority_class)
            case Kind.EVICTED | Kind.PREEMPTED | Kind.DEACTIVATED:
                self._evict(decision, before, workload, place)
            case Kind.RELEASED:
                since = conditions.since(workload, names.EVICTED)
                found = conditions.condition(workload, names.EVICTED)
                if since is not None and found is not None and conditions.is_evicted(workload):
                    reason, _, _ = found.reason.partition("DueTo")
                    self._eviction_latency.observe(at - since, place.cluster_queue, reason)
            case _:
                pass

    def _admit(self, workload: Workload, at: float, place: Place, priority_class: str) -> None:
        self._admitted.inc(place, priority_class)
        self._admission_wait.observe(waited(workload, at), place, priority_class)
        reserved_at = conditions.since(workload, names.QUOTA_RESERVED)
        if workload.status.admission_checks and reserved_at is not None:
            self._checks_wait.observe(at - reserved_at, place, priority_class)
        if self._in_cohort is not None:
            for cohort in place.cohorts:
                self._in_cohort.inc(cohort, priority_class)

    def _evict(self, decision: Decision, before: Workload | None, workload: Workload, place: Place) -> None:
        reason, _, cause = decision.code.partition("DueTo")
        counts = _evictions(workload)
        new = {key: count for key, count in counts.items() if count > _evictions(before).get(key, 0)}
        cause = cause or next((each for known, each in new if known == reason), "")
        priority_class = _priority_class(workload)
        self._evicted.inc(place, reason, cause, priority_class)
        if new.get((reason, cause)) == 1:
            self._evicted_once.inc(place.cluster_queue, reason, cause, priority_class)
        if before is not None and conditions.is_true(before, names.PODS_READY):
            ready_at = conditions.since(before, names.PODS_READY) or decision.at
            self._ready_to_evicted.observe(decision.at - ready_at, place.cluster_queue, reason, cause)

    def became_ready(self, before: Workload, workload: Workload, place: Place) -> None:
        """All pods of a Workload are ready for the first time since it was admitted."""
        found = conditions.condition(workload, names.PODS_READY)
        ready_at = conditions.since(workload, names.PODS_READY)
        if found is None or ready_at is None or not conditions.is_true(workload, names.PODS_READY):
            return
        if conditions.is_true(before, names.PODS_READY) or found.reason == names.REASON_RECOVERED:
            return
        priority_class = _priority_class(workload)
        self._ready_wait.observe(waited(workload, ready_at), place, priority_class)
        admitted_at = conditions.since(workload, names.ADMITTED)
        if admitted_at is not None:
            self._until_ready.observe(ready_at - admitted_at, place, priority_class)

    def created(self, job_kind: str, seconds: float) -> None:
        if self._creation is not None:
            self._creation.observe(seconds, job_kind)

    def preemption(self, preemptor_queue: str, reason: str) -> None:
        self._preempted.inc(preemptor_queue, reason)

    def ungated(self, gate: str, cluster_queue: str, seconds: float, *, is_group: bool) -> None:
        self._gate_removal.observe(seconds, gate, cluster_queue, str(is_group).lower())

    # ------------------------------------------------------------------ making

    def _counters(self, name: str, words: str, *labels: str) -> _Both:
        return _Both(
            self._made.counter(f"kueue_{name}", words, *CLUSTER_QUEUE, *labels),
            self._made.counter(f"kueue_local_queue_{name}", words, *LOCAL_QUEUE, *labels) if self._with_local else None,
        )

    def _times(
        self,
        name: str,
        words: str,
        *,
        buckets: tuple[float, ...] = series.WAIT,
        local: tuple[float, ...] = series.WAIT,
    ) -> _Both:
        """By queue and priority class; a LocalQueue's need not have the buckets of its ClusterQueue's."""
        histogram = self._made.histogram
        return _Both(
            histogram(f"kueue_{name}", words, buckets, *CLUSTER_QUEUE, _CLASS),
            histogram(f"kueue_local_queue_{name}", words, local, *LOCAL_QUEUE, _CLASS) if self._with_local else None,
        )


def _priority_class(workload: Workload) -> str:
    ref = workload.spec.priority_class_ref
    return "" if ref is None else ref.name


def _evictions(workload: Workload | None) -> dict[tuple[str, str], int]:
    stats = None if workload is None else workload.status.scheduling_stats
    return {} if stats is None else {(each.reason, each.underlying_cause): each.count for each in stats.evictions}
