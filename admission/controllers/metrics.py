"""Kueue's metrics, under its names and labels, and a few of Muster's own about the controller itself.

Counted from the steps that the chronicle reads off the Workloads and from the core's readings of the queues. Nothing
here may decide anything or cost more than the queues that changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from admission.api.kueue import Workload
from admission.controllers.decisions import waited
from admission.settings import Settings
from queues.core.model import UNLIMITED, ClusterQueue, ClusterQueueName, FlavorResource, ObjectKey
from queues.core.readings import Readings
from queues.journal.entries import Decision, Kind

_WAIT_BUCKETS = (1.0, *(2.5 * 2.0**exponent for exponent in range(13)))
_LONG_BUCKETS = (1.0, *(2.5 * 2.0**exponent for exponent in range(15)))
_ROLE = "replica_role"
_QUEUE_STATES = ("pending", "active", "terminating")


class Metrics:
    """One set in one registry. `role` is leader or standalone: who does not lead does not count."""

    def __init__(self, settings: Settings, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry if registry is not None else CollectorRegistry()
        self._role = "leader" if settings.leader_election.leader_elect else "standalone"
        self._with_resources = settings.metrics.enable_cluster_queue_resources
        local = settings.metrics.local_queue_metrics
        self._with_local = local is not None and local.enable and settings.gate("LocalQueueMetrics")
        queue, classed = ("cluster_queue",), ("cluster_queue", "priority_class")
        unit = ("cohort", "cluster_queue", "flavor", "resource")
        local_queue = ("name", "namespace")
        self.attempts = self._counter("kueue_admission_attempts_total", "Rounds of decisions", "result")
        self.attempt_seconds = self._histogram(
            "kueue_admission_attempt_duration_seconds", "Duration of a round of decisions", None, "result"
        )
        self.pending = self._gauge("kueue_pending_workloads", "Workloads that wait", "cluster_queue", "status")
        self.reserving = self._gauge("kueue_reserving_active_workloads", "Workloads that hold quota", *queue)
        self.admitted_active = self._gauge("kueue_admitted_active_workloads", "Admitted Workloads", *queue)
        self.queue_status = self._gauge(
            "kueue_cluster_queue_status", "1 for the state that the queue is in", "cluster_queue", "status"
        )
        self.reserved = self._counter("kueue_quota_reserved_workloads_total", "Reservations", *classed)
        self.admitted = self._counter("kueue_admitted_workloads_total", "Admissions", *classed)
        self.finished = self._counter("kueue_finished_workloads_total", "Finished Workloads", *classed)
        self.evicted = self._counter(
            "kueue_evicted_workloads_total",
            "Evictions",
            "cluster_queue",
            "reason",
            "underlying_cause",
            "priority_class",
        )
        self.preempted = self._counter(
            "kueue_preempted_workloads_total",
            "Preemptions by the preemptor's queue",
            "preempting_cluster_queue",
            "reason",
        )
        self.reserved_wait = self._histogram(
            "kueue_quota_reserved_wait_time_seconds", "From being queued to a reservation", _WAIT_BUCKETS, *classed
        )
        self.admission_wait = self._histogram(
            "kueue_admission_wait_time_seconds", "From being queued to admission", _LONG_BUCKETS, *classed
        )
        self.reservation = self._gauge("kueue_cluster_queue_resource_reservation", "Reserved quota", *unit)
        self.usage = self._gauge("kueue_cluster_queue_resource_usage", "Used quota", *unit)
        self.nominal = self._gauge("kueue_cluster_queue_nominal_quota", "Nominal quota", *unit)
        self.borrowing_limit = self._gauge("kueue_cluster_queue_borrowing_limit", "Borrowing limit", *unit)
        self.lending_limit = self._gauge("kueue_cluster_queue_lending_limit", "Lending limit", *unit)
        self.local_pending = self._gauge(
            "kueue_local_queue_pending_workloads", "Workloads that wait", *local_queue, "status"
        )
        self.local_reserving = self._gauge(
            "kueue_local_queue_reserving_active_workloads", "Workloads that hold quota", *local_queue
        )
        self.local_admitted = self._gauge(
            "kueue_local_queue_admitted_active_workloads", "Admitted Workloads", *local_queue
        )
        self.local_status = self._gauge(
            "kueue_local_queue_status", "1 for the state that the queue is in", *local_queue, "active"
        )
        self.sweep_found = self._counter(
            "muster_sweep_found_total", "What only the slow sweep found to be out of date", "kind"
        )
        self.write_failures = self._counter("muster_write_failures_total", "Errands that were not done", "fate")
        self.turn_seconds = self._histogram("muster_turn_duration_seconds", "Duration of one turn of the loop", None)
        self.events_dropped = self._gauge("muster_events_dropped", "Kubernetes Events that were left out")
        self.journal_dropped = self._gauge("muster_journal_dropped", "Journal entries that were left out")
        self.journal_lag = self._gauge("muster_journal_lag_seconds", "Age of the oldest entry not yet written")

    # ------------------------------------------------------------------ what happens

    def step(self, decision: Decision, workload: Workload) -> None:
        """One step in the life of a Workload."""
        ref = workload.spec.priority_class_ref
        classed = (decision.cluster_queue, "" if ref is None else ref.name)
        match decision.kind:
            case Kind.RESERVED:
                self._of(self.reserved, *classed).inc()
                self._of(self.reserved_wait, *classed).observe(waited(workload, decision.at))
            case Kind.ADMITTED:
                self._of(self.admitted, *classed).inc()
                self._of(self.admission_wait, *classed).observe(waited(workload, decision.at))
            case Kind.FINISHED:
                self._of(self.finished, *classed).inc()
            case Kind.EVICTED | Kind.PREEMPTED | Kind.DEACTIVATED:
                reason, _, cause = decision.code.partition("DueTo")
                self._of(self.evicted, classed[0], reason, cause, classed[1]).inc()
            case _:
                pass

    def preemption(self, preemptor_queue: str, reason: str) -> None:
        self._of(self.preempted, preemptor_queue, reason).inc()

    def attempt(self, seconds: float, *, success: bool) -> None:
        result = "success" if success else "inadmissible"
        self._of(self.attempts, result).inc()
        self._of(self.attempt_seconds, result).observe(seconds)

    def failed(self, fate: str) -> None:
        self._of(self.write_failures, fate).inc()

    def swept(self, kind: str) -> None:
        self._of(self.sweep_found, kind).inc()

    def turn(self, seconds: float) -> None:
        self._of(self.turn_seconds).observe(seconds)

    def health(self, *, events_dropped: int, journal_dropped: int, journal_lag: float) -> None:
        self._of(self.events_dropped).set(events_dropped)
        self._of(self.journal_dropped).set(journal_dropped)
        self._of(self.journal_lag).set(journal_lag)

    # ------------------------------------------------------------------ what is

    def cluster_queue(self, queue: ClusterQueue, readings: Readings) -> None:
        name = queue.name
        counts = readings.counts(name)
        self._of(self.pending, name, "active").set(counts.active)
        self._of(self.pending, name, "inadmissible").set(counts.inadmissible)
        self._of(self.reserving, name).set(counts.reserving)
        self._of(self.admitted_active, name).set(counts.admitted)
        active = readings.queue_status(name).active
        state = "terminating" if queue.terminating else "active" if active else "pending"
        for each in _QUEUE_STATES:
            self._of(self.queue_status, name, each).set(each == state)
        if self._with_resources:
            self._resources(queue, readings)

    def _resources(self, queue: ClusterQueue, readings: Readings) -> None:
        cohort = queue.cohort or ""
        usage = readings.usage(queue.name)
        for group in queue.groups:
            for flavor in group.flavors:
                for resource, quota in flavor.quotas.items():
                    labels = (cohort, queue.name, flavor.flavor, resource)
                    unit = usage.get(FlavorResource(flavor.flavor, resource))
                    self._of(self.reservation, *labels).set(_base(resource, 0 if unit is None else unit.reserved))
                    self._of(self.usage, *labels).set(_base(resource, 0 if unit is None else unit.admitted))
                    self._of(self.nominal, *labels).set(_base(resource, quota.nominal))
                    self._of(self.borrowing_limit, *labels).set(_base(resource, quota.borrowing_limit))
                    self._of(self.lending_limit, *labels).set(_base(resource, quota.lending_limit))

    def local_queue(self, key: ObjectKey, readings: Readings) -> None:
        if not self._with_local:
            return
        counts = readings.local_counts(key)
        self._of(self.local_pending, key.name, key.namespace, "active").set(counts.active)
        self._of(self.local_pending, key.name, key.namespace, "inadmissible").set(counts.inadmissible)
        self._of(self.local_reserving, key.name, key.namespace).set(counts.reserving)
        self._of(self.local_admitted, key.name, key.namespace).set(counts.admitted)
        active = str(readings.local_queue_status(key).active)
        for each in ("True", "False", "Unknown"):
            self._of(self.local_status, key.name, key.namespace, each).set(each == active)

    def forget_cluster_queue(self, name: ClusterQueueName) -> None:
        """Series of what is gone go as well."""
        self._forget({"cluster_queue": name})

    def forget_local_queue(self, key: ObjectKey) -> None:
        self._forget({"name": key.name, "namespace": key.namespace})

    def _forget(self, labels: Mapping[str, str]) -> None:
        for metric in vars(self).values():
            if isinstance(metric, Counter | Gauge | Histogram) and set(labels) <= set(metric._labelnames):  # noqa: SLF001  # the library has no other way to ask
                metric.remove_by_labels(dict(labels))

    # ------------------------------------------------------------------ making

    def _counter(self, name: str, words: str, *labels: str) -> Counter:
        return Counter(name, words, (*labels, _ROLE), registry=self.registry)

    def _gauge(self, name: str, words: str, *labels: str) -> Gauge:
        return Gauge(name, words, (*labels, _ROLE), registry=self.registry)

    def _histogram(self, name: str, words: str, buckets: tuple[float, ...] | None, *labels: str) -> Histogram:
        chosen = Histogram.DEFAULT_BUCKETS if buckets is None else buckets
        return Histogram(name, words, (*labels, _ROLE), registry=self.registry, buckets=chosen)

    def _of(self, metric: Any, *labels: str) -> Any:
        return metric.labels(*labels, self._role)


def _base(resource: str, amount: int | None) -> float:
    """In base units, cpu in cores; no limit is infinite."""
    if amount is None or amount >= UNLIMITED:
        return float("inf")
    return amount / 1000 if resource == "cpu" else float(amount)
