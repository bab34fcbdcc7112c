"""Labels of people's own on the metrics of ClusterQueues, LocalQueues and Cohorts: `metrics.customLabels`.

Put on at the moment of a scrape, from the labels and annotations that the object of each series has then; where it has
none, or is gone, the value is empty. Counting goes on by the object's name alone, so a changed label loses no count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric

from admission.api.meta import ObjectMeta
from admission.settings import Settings
from admission.settings.configuration import CustomLabel

#: The metadata of a ClusterQueue, LocalQueue or Cohort by kind, namespace and name; None for one that is not there.
Look = Callable[[str, str, str], ObjectMeta | None]

PREFIX: Final = "custom_"

#: By the beginning of a metric's name: the kind whose labels it has. The first one counts.
_KINDS: Final = (
    ("kueue_local_queue_", "LocalQueue"),
    ("kueue_cohort_", "Cohort"),
    ("kueue_", "ClusterQueue"),
)
#: The labels of a series that name its object: namespace and name.
_NAMED_BY: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "LocalQueue": (("namespace", "name"),),
    "Cohort": (("", "cohort"),),
    "ClusterQueue": (("", "cluster_queue"), ("", "preempting_cluster_queue")),
}


class LabellingRegistry(CollectorRegistry):
    """A registry whose metrics have the labels that the settings ask for. `look` is set once there is a cluster."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.look: Look = lambda *_: None
        self._labels: dict[str, list[CustomLabel]] = {}
        if settings.gate("CustomMetricLabels"):
            for label in settings.metrics.custom_labels:
                self._labels.setdefault(label.source_kind, []).append(label)

    def collect(self) -> Iterable[Metric]:
        if not self._labels:
            return super().collect()
        return (self._labelled(metric) for metric in super().collect())

    def _labelled(self, metric: Metric) -> Metric:
        kind = next((kind for start, kind in _KINDS if metric.name.startswith(start)), "")
        wanted = self._labels.get(kind)
        if not wanted:
            return metric
        values: dict[tuple[str, str], dict[str, str]] = {}
        for index, sample in enumerate(metric.samples):
            names = next((names for names in _NAMED_BY[kind] if names[1] in sample.labels), None)
            if names is None:
                continue
            place = (sample.labels.get(names[0], ""), sample.labels[names[1]])
            if place not in values:
                values[place] = _values(wanted, self.look(kind, *place))
            metric.samples[index] = sample._replace(labels={**sample.labels, **values[place]})
        return metric


def _values(wanted: Iterable[CustomLabel], metadata: ObjectMeta | None) -> dict[str, str]:
    return {PREFIX + label.name: "" if metadata is None else _value(label, metadata) for label in wanted}


def _value(label: CustomLabel, metadata: ObjectMeta) -> str:
    if label.source_annotation_key:
        return metadata.annotations.get(label.source_annotation_key, "")
    return metadata.labels.get(label.source_label_key or label.name, "")
