"""Kueue's gauges of ClusterQueues, LocalQueues and Cohorts, read from the core at the moment of a scrape.

Nothing is kept up for them and no series of what is gone can stay; a scrape costs the queues and cohorts, never the
Workloads. It must never be read from another thread than the controller's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.core import GaugeMetricFamily

from admission.api import kueue, meta
from admission.controllers.cluster import Cluster
from admission.controllers.series import CLUSTER_QUEUE, LOCAL_QUEUE, ROLE
from admission.controllers.tallies import Tallies
from admission.settings import Settings
from queues.core.fairness import Share
from queues.core.model import UNLIMITED, ClusterQueue, FlavorResource, ObjectKey

_QUEUE_STATES: Final = ("pending", "active", "terminating")
_UNIT: Final = ("flavor", "resource")
_QUOTA: Final = ("cohort", *CLUSTER_QUEUE, *_UNIT)


class QueueMetrics:
    """`read` is registered for scrapes."""

    def __init__(self, cluster: Cluster, tallies: Tallies, settings: Settings, role: str) -> None:
        self._cluster = cluster
        self._tallies = tallies
        self._settings = settings
        self._role = role

    def read(self) -> Iterable[GaugeMetricFamily]:
        gauges = _Gauges(self._role)
        self._cluster_queues(gauges)
        if self._settings.gate("MetricsForCohorts"):
            self._cohorts(gauges)
        shown = list(self._shown_local_queues())
        for queue in shown:
            self._local_queue(gauges, queue)
        self._unadmitted(gauges, {(each.metadata.namespace, each.metadata.name) for each in shown})
        return gauges.families()

    def shows(self, namespace: str, name: str) -> bool:
        """Whether this LocalQueue has metrics."""
        found = self._cluster.tables.local_queues.get(namespace, name)
        return found is not None and self._is_shown(found)

    # ------------------------------------------------------------------ ClusterQueues

    def _cluster_queues(self, gauges: _Gauges) -> None:
        state, settings = self._cluster.state, self._settings
        for name in state.queue_names():
            queue = state.queue(name)
            if queue is None:
                continue
            counts, shapes = state.counts(name), state.shapes(name)
            pending = gauges.named("kueue_pending_workloads", "Workloads that wait", *CLUSTER_QUEUE, "status")
            pending(counts.active, name, "active")
            pending(counts.inadmissible, name, "inadmissible")
            if settings.gate("SchedulingEquivalenceHashing"):
                hashes = gauges.named(
                    "kueue_pending_scheduling_hashes", "Different shapes that wait", *CLUSTER_QUEUE, "status"
                )
                hashes(shapes.active, name, "active")
                hashes(shapes.inadmissible, name, "inadmissible")
            one = gauges.named
            one("kueue_reserving_active_workloads", "Workloads that hold quota", *CLUSTER_QUEUE)(counts.reserving, name)
            one("kueue_admitted_active_workloads", "Admitted Workloads", *CLUSTER_QUEUE)(counts.admitted, name)
            one("kueue_finished_workloads", "Finished Workloads that are still there", *CLUSTER_QUEUE)(
                self._tallies.finished.get(name, 0), name
            )
            # Those whose victims somebody else took are judged again in the same cycle: never is anybody skipped.
            one("kueue_admission_cycle_preemption_skips", "Skipped for preemptions of others", *CLUSTER_QUEUE)(0, name)
            self._state(gauges, queue)
            if settings.metrics.enable_cluster_queue_resources:
                self._resources(gauges, queue)
            if settings.gate("MetricsForCohorts"):
                above = state.cohorts_above(name)
                info = one("kueue_cluster_queue_info", "Where it is", *CLUSTER_QUEUE, "parent_cohort", "root_cohort")
                info(1, name, *_ends(above))

    def _state(self, gauges: _Gauges, queue: ClusterQueue) -> None:
        is_active = self._cluster.state.queue_status(queue.name).active
        state = "terminating" if queue.terminating else "active" if is_active else "pending"
        status = gauges.named("kueue_cluster_queue_status", "1 for the state that it is in", *CLUSTER_QUEUE, "status")
        for each in _QUEUE_STATES:
            status(each == state, queue.name, each)

    def _resources(self, gauges: _Gauges, queue: ClusterQueue) -> None:
        cohort, name = queue.cohort or "", queue.name
        for unit, used in self._cluster.state.usage(name).items():
            labels = (cohort, name, unit.flavor, unit.resource)
            gauges.named("kueue_cluster_queue_resource_reservation", "Reserved quota", *_QUOTA)(
                base(unit.resource, used.reserved), *labels
            )
            gauges.named("kueue_cluster_queue_resource_usage", "Quota of admitted Workloads", *_QUOTA)(
                base(unit.resource, used.admitted), *labels
            )
        for group in queue.groups:
            for flavor in group.flavors:
                for resource, quota in flavor.quotas.items():
                    labels = (cohort, name, flavor.flavor, resource)
                    for which, words, amount in (
                        ("nominal_quota", "Nominal quota", quota.nominal),
                        ("borrowing_limit", "Borrowing limit", quota.borrowing_limit),
                        ("lending_limit", "Lending limit", quota.lending_limit),
                    ):
                        gauges.named(f"kueue_cluster_queue_{which}", words, *_QUOTA)(base(resource, amount), *labels)
        pending: Mapping[str, int] = self._tallies.pending.get(name, {})
        covered = {str(resource): 0 for group in queue.groups for flavor in group.flavors for resource in flavor.quotas}
        waits = gauges.named(
            "kueue_cluster_queue_resource_pending", "What Workloads wait for", *CLUSTER_QUEUE, "resource"
        )
        for resource_name, amount in sorted({**covered, **pending}.items()):
            waits(base(resource_name, amount), name, resource_name)
        if self._settings.fair_sharing is not None:
            share = self._cluster.state.share(name)
            gauges.named("kueue_cluster_queue_weighted_share", "Dominant resource share", *CLUSTER_QUEUE, "cohort")(
                unrounded(share), name, cohort
            )

    # ------------------------------------------------------------------ Cohorts

    def _cohorts(self, gauges: _Gauges) -> None:
        state = self._cluster.state
        reserved: dict[str, Counter[FlavorResource]] = defaultdict(Counter)
        admitted: Counter[str] = Counter()
        for name in state.queue_names():
            above = state.cohorts_above(name)
            if above:
                counts, usage = state.counts(name), state.usage(name)
                for cohort in above:
                    admitted[cohort] += counts.admitted
                    for unit, used in usage.items():
                        reserved[cohort][unit] += used.reserved
        for cohort, above in state.cohorts().items():
            gauges.named("kueue_cohort_info", "Where it is", "cohort", "parent_cohort", "root_cohort")(
                1, cohort, *_ends(above, cohort)
            )
            if self._settings.fair_sharing is not None:
                gauges.named("kueue_cohort_weighted_share", "Dominant resource share", "cohort")(
                    unrounded(state.cohort_share(cohort)), cohort
                )
            gauges.named("kueue_cohort_subtree_admitted_active_workloads", "Admitted Workloads below it", "cohort")(
                admitted[cohort], cohort
            )
            for unit, reading in state.cohort(cohort).items():
                labels = (cohort, unit.flavor, unit.resource)
                gauges.named("kueue_cohort_subtree_quota", "Quota of it and of all below", "cohort", *_UNIT)(
                    base(unit.resource, reading.quota), *labels
                )
                gauges.named("kueue_cohort_subtree_resource_reservations", "Reserved quota below it", "cohort", *_UNIT)(
                    base(unit.resource, reserved[cohort][unit]), *labels
                )

    # ------------------------------------------------------------------ LocalQueues

    def _shown_local_queues(self) -> Iterator[kueue.LocalQueue]:
        return (queue for queue in self._cluster.tables.local_queues if self._is_shown(queue))

    def _is_shown(self, queue: kueue.LocalQueue) -> bool:
        options = self._settings.metrics.local_queue_metrics
        if options is None or not options.enable or not self._settings.gate("LocalQueueMetrics"):
            return False
        return options.local_queue_selector is None or meta.selects(options.local_queue_selector, queue.metadata.labels)

    def _local_queue(self, gauges: _Gauges, queue: kueue.LocalQueue) -> None:
        state = self._cluster.state
        namespace, name = queue.metadata.namespace, queue.metadata.name
        key, labels = ObjectKey(namespace, name), (name, namespace)
        counts = state.local_counts(key)
        pending = gauges.named("kueue_local_queue_pending_workloads", "Workloads that wait", *LOCAL_QUEUE, "status")
        pending(counts.active, *labels, "active")
        pending(counts.inadmissible, *labels, "inadmissible")
        for which, words, number in (
            ("reserving_active_workloads", "Workloads that hold quota", counts.reserving),
            ("admitted_active_workloads", "Admitted Workloads", counts.admitted),
            (
                "finished_workloads",
                "Finished Workloads that are still there",
                self._tallies.local_finished.get((namespace, name), 0),
            ),
        ):
            gauges.named(f"kueue_local_queue_{which}", words, *LOCAL_QUEUE)(number, *labels)
        level = state.past_level(key)
        if level is not None:
            gauges.named("kueue_local_queue_admission_fair_sharing_usage", "Use lately", *LOCAL_QUEUE, *CLUSTER_QUEUE)(
                float("inf") if level.is_last else float(level.value), *labels, queue.spec.cluster_queue
            )
        active = str(state.local_queue_status(key).active)
        status = gauges.named("kueue_local_queue_status", "1 for the state that it is in", *LOCAL_QUEUE, "active")
        for each in ("True", "False", "Unknown"):
            status(each == active, *labels, each)
        for unit, used in state.local_usage(key).items():
            for which, words, amount in (
                ("reservation", "Reserved quota", used.reserved),
                ("usage", "Quota of admitted Workloads", used.admitted),
            ):
                gauges.named(f"kueue_local_queue_resource_{which}", words, *LOCAL_QUEUE, *_UNIT)(
                    base(unit.resource, amount), *labels, unit.flavor, unit.resource
                )

    def _unadmitted(self, gauges: _Gauges, shown: set[tuple[str, str]]) -> None:
        why = ("reason", "underlying_cause")
        words = "Workloads that are not admitted, by what they wait for"
        if not self._settings.gate("UnadmittedWorkloadsObservability"):
            return
        of_queue = gauges.named("kueue_unadmitted_workloads", words, *CLUSTER_QUEUE, *why)
        for (queue, reason, cause), number in self._tallies.unadmitted.items():
            of_queue(number, queue, reason, cause)
        if shown:
            of_local = gauges.named("kueue_local_queue_unadmitted_workloads", words, *LOCAL_QUEUE, *CLUSTER_QUEUE, *why)
            for (local, queue, reason, cause), number in self._tallies.local_unadmitted.items():
                if local in shown:
                    of_local(number, local[1], local[0], queue, reason, cause)


def base(resource: str, amount: int | None) -> float:
    """In base units, cpu in cores; no limit is infinite."""
    if amount is None or amount >= UNLIMITED:
        return float("inf")
    return amount / 1000 if resource == "cpu" else float(amount)


def unrounded(share: Share) -> float:
    """Of who borrows at weight 0 there is no number."""
    return float("nan") if share.is_unbounded else float(share.value)


def _ends(above: tuple[str, ...], top: str = "") -> tuple[str, str]:
    """The nearest cohort above and the topmost one, which for a cohort without a parent is itself."""
    return (above[0], above[-1]) if above else ("", top)


class _Gauges:
    """The metrics of one scrape, each made when it has its first value."""

    def __init__(self, role: str) -> None:
        self._role = role
        self._made: dict[str, _Gauge] = {}

    def named(self, name: str, words: str, *labels: str) -> _Gauge:
        found = self._made.get(name)
        if found is None:
            found = self._made[name] = _Gauge(GaugeMetricFamily(name, words, labels=(*labels, ROLE)), self._role)
        return found

    def families(self) -> list[GaugeMetricFamily]:
        return [gauge.family for gauge in self._made.values()]


class _Gauge:
    __slots__ = ("_role", "family")

    def __init__(self, family: GaugeMetricFamily, role: str) -> None:
        self.family = family
        self._role = role

    def __call__(self, value: float, *labels: str) -> None:
        self.family.add_metric((*labels, self._role), float(value))
