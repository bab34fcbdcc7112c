"""Counters, gauges and histograms that all carry the replica's role, and that lose the series of what is gone.

Made once at the start, in one registry. It must never invent a label value: what is counted says what it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

ROLE: Final = "replica_role"

#: Kueue's buckets, in seconds.
WAIT: Final = (1.0, *(2.5 * 2.0**exponent for exponent in range(13)))
LONG: Final = (1.0, *(2.5 * 2.0**exponent for exponent in range(15)))
LATENCY: Final = tuple(0.01 * 2.0**exponent for exponent in range(11))

CLUSTER_QUEUE: Final = ("cluster_queue",)
LOCAL_QUEUE: Final = ("name", "namespace")

Kind = TypeVar("Kind", Counter, Gauge, Histogram)
#: A metric as it was read at the moment of a scrape.
Family = CounterMetricFamily | GaugeMetricFamily


class Series:
    """Makes metrics. `of` and `Labelled` put the role behind the other labels."""

    def __init__(self, registry: CollectorRegistry, role: str) -> None:
        self.registry = registry
        self.role = role
        self._made: list[tuple[tuple[str, ...], Labelled]] = []

    def counter(self, name: str, words: str, *labels: str) -> Labelled:
        return self._kept(labels, Counter(name, words, (*labels, ROLE), registry=self.registry))

    def histogram(self, name: str, words: str, buckets: tuple[float, ...] | None, *labels: str) -> Labelled:
        chosen = Histogram.DEFAULT_BUCKETS if buckets is None else buckets
        return self._kept(labels, Histogram(name, words, (*labels, ROLE), registry=self.registry, buckets=chosen))

    def at_scrape(self, read: Callable[[], Iterable[Family]]) -> None:
        """Metrics that are read when they are asked for: nothing has to be kept up, and nothing stays behind."""
        self.registry.register(_AtScrape(read))

    def forget(self, labels: Mapping[str, str]) -> None:
        """Series of what is gone go as well: of every metric that has these labels."""
        for names, made in self._made:
            if set(labels) <= set(names):
                made.forget(labels)

    def _kept(self, labels: tuple[str, ...], metric: Any) -> Labelled:
        made = Labelled(metric, self.role)
        self._made.append((labels, made))
        return made


class Labelled:
    """One metric, with its series at hand: to look one up costs more than to count."""

    __slots__ = ("_metric", "_role", "_series")

    def __init__(self, metric: Any, role: str) -> None:
        self._metric = metric
        self._role = role
        self._series: dict[tuple[str, ...], Any] = {}

    def inc(self, *labels: str) -> None:
        self._of(labels).inc()

    def observe(self, seconds: float, *labels: str) -> None:
        """Never less than nothing: the clocks of two machines differ, and a sum that falls breaks every rate."""
        self._of(labels).observe(max(0.0, seconds))

    def forget(self, labels: Mapping[str, str]) -> None:
        """The series that have these labels."""
        self._series.clear()
        self._metric.remove_by_labels(dict(labels))

    def _of(self, labels: tuple[str, ...]) -> Any:
        found = self._series.get(labels)
        if found is None:
            found = self._series[labels] = self._metric.labels(*labels, self._role)
        return found


class _AtScrape(Collector):
    def __init__(self, read: Callable[[], Iterable[Family]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Any]:
        """Nothing is asked before there is anything to be read."""
        return ()

    def collect(self) -> Iterable[Any]:
        return self._read()
