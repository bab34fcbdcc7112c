"""All metrics of the controller in one registry: Kueue's under its names and labels, and Muster's own about itself.

What happens is counted as it happens; what is, is read at the moment of a scrape. Nothing here may decide anything or
cost more than the queues.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from admission.controllers.custom_labels import LabellingRegistry, Look
from admission.controllers.series import ROLE, Family, Series
from admission.controllers.workload_metrics import WorkloadMetrics
from admission.settings import Settings
from queues.core.model import ClusterQueueName, ObjectKey

_DECISION_BUCKETS: Final = tuple(0.0001 * 4.0**exponent for exponent in range(9))


@dataclass(frozen=True, slots=True)
class Health:
    """How the controller's own parts are. `silence` is for each kind the seconds since its watch last spoke.

    `is_in_doubt`: the core raised, and nothing is decided until it was told everything anew. `behind` is for each kind
    whose changes may go unseen for how many seconds now.
    """

    events_dropped: int = 0
    journal_dropped: int = 0
    journal_lag: float = 0.0
    silence: Mapping[str, float] = field(default_factory=dict)
    is_in_doubt: bool = False
    behind: Mapping[str, float] = field(default_factory=dict)


class Metrics:
    """`role` is leader or standalone: who does not lead does not count."""

    def __init__(self, settings: Settings, registry: CollectorRegistry | None = None) -> None:
        labelled = LabellingRegistry(settings)
        self.registry = registry if registry is not None else labelled
        self._labelled = labelled
        self.role = "leader" if settings.leader_election.leader_elect else "standalone"
        made = Series(self.registry, self.role)
        self._made = made
        self.workloads = WorkloadMetrics(made, settings)
        self._attempts = made.counter("kueue_admission_attempts_total", "Rounds of decisions", "result")
        self._attempt_seconds = made.histogram(
            "kueue_admission_attempt_duration_seconds", "Duration of a round of decisions", None, "result"
        )
        self._decision_seconds = made.histogram(
            "muster_decision_duration_seconds", "Duration of the decision alone, without its writes", _DECISION_BUCKETS
        )
        self._turn_seconds = made.histogram("muster_turn_duration_seconds", "Duration of one turn of the loop", None)
        self._sweep_found = made.counter(
            "muster_sweep_found_total", "What only the slow sweep found to be out of date", "kind"
        )
        self._sweeps = made.counter("muster_sweeps_total", "Slow looks at everything that came to their end")
        self._writes = made.counter(
            "muster_writes_total", "Calls that write, by their result", "verb", "kind", "result"
        )
        self._failures = made.counter("muster_write_failures_total", "Errands that were not done", "fate")
        self._faults = made.counter("muster_core_faults_total", "Faults in the core, by what it was doing", "during")
        _build_info(self.registry)

    # ------------------------------------------------------------------ what happens

    def attempt(self, seconds: float, *, success: bool) -> None:
        result = "success" if success else "inadmissible"
        self._attempts.inc(result)
        self._attempt_seconds.observe(seconds, result)

    def decided(self, seconds: float) -> None:
        self._decision_seconds.observe(seconds)

    def wrote(self, verb: str, kind: str, result: str) -> None:
        self._writes.inc(verb, kind, result)

    def failed(self, fate: str) -> None:
        self._failures.inc(fate)

    def faulted(self, during: str) -> None:
        self._faults.inc(during)

    def swept(self, kind: str) -> None:
        self._sweep_found.inc(kind)

    def swept_through(self) -> None:
        self._sweeps.inc()

    def turn(self, seconds: float) -> None:
        self._turn_seconds.observe(seconds)

    # ------------------------------------------------------------------ what is

    def at_scrape(self, read: Callable[[], Iterable[Family]]) -> None:
        """Read these when somebody asks."""
        self._made.at_scrape(read)

    def label_from(self, look: Look) -> None:
        """Where the labels of people's own are found."""
        self._labelled.look = look

    def health_at_scrape(self, ask: Callable[[], Health]) -> None:
        self._made.at_scrape(lambda: _health(ask(), self.role))

    def forget_cluster_queue(self, name: ClusterQueueName) -> None:
        """Series of what is gone go as well."""
        self._made.forget({"cluster_queue": name})
        self._made.forget({"preempting_cluster_queue": name})

    def forget_local_queue(self, key: ObjectKey) -> None:
        self._made.forget({"name": key.name, "namespace": key.namespace})

    def forget_cohort(self, name: str) -> None:
        self._made.forget({"cohort": name})


def _health(health: Health, role: str) -> Iterator[Family]:
    for name, words, number in (
        ("muster_events_dropped", "Kubernetes Events that were left out", health.events_dropped),
        ("muster_journal_dropped_entries", "Journal entries that were left out", health.journal_dropped),
    ):
        counter = CounterMetricFamily(name, words, labels=(ROLE,))
        counter.add_metric((role,), number)
        yield counter
    lag = GaugeMetricFamily("muster_journal_lag_seconds", "Age of the oldest entry not yet written", labels=(ROLE,))
    lag.add_metric((role,), health.journal_lag)
    yield lag
    doubt = GaugeMetricFamily(
        "muster_core_in_doubt", "1 while nothing is decided because of a fault in the core", labels=(ROLE,)
    )
    doubt.add_metric((role,), float(health.is_in_doubt))
    yield doubt
    silence = GaugeMetricFamily(
        "muster_informer_silence_seconds", "Since the API server last said something of a kind", labels=("kind", ROLE)
    )
    behind = GaugeMetricFamily(
        "muster_informer_behind_seconds",
        "How long changes of a kind may have gone unseen; nothing is decided while that is above 0",
        labels=("kind", ROLE),
    )
    for kind, seconds in health.silence.items():
        silence.add_metric((kind, role), seconds)
        behind.add_metric((kind, role), health.behind.get(kind, 0.0))
    yield silence
    yield behind


def _build_info(registry: CollectorRegistry) -> None:
    """Kueue's, with what there is of it here."""
    try:
        git_version = version("muster-queue")
    except PackageNotFoundError:
        git_version = ""
    values = {
        "git_version": git_version,
        "git_commit": "",
        "build_date": "",
        "go_version": "",
        "compiler": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": f"{sys.platform}/{platform.machine()}",
    }
    Gauge("kueue_build_info", "Which build runs", tuple(values), registry=registry).labels(**values).set(1)
