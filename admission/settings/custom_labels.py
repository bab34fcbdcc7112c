"""Decides which labels of people's own for metrics cannot be used.

Works from the settings alone, with Kueue's bounds. Never lets a label pass that no metric would have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission.settings.configuration import Settings

_PATH: Final = "metrics.customLabels"
_GATE: Final = "CustomMetricLabels"
_KINDS: Final = ("ClusterQueue", "LocalQueue", "Cohort")
_MOST: Final = 20
_MOST_OF_KIND: Final = 6
_NAME: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9_]*", re.ASCII)


def problems(settings: Settings) -> Iterator[str]:
    """What cannot be used of `metrics.customLabels`."""
    labels = settings.metrics.custom_labels
    if labels and not settings.gate(_GATE):
        yield f"{_PATH}: needs the feature gate {_GATE}; switch it on or remove this"
    if len(labels) > _MOST:
        yield f"{_PATH}: {len(labels)} are too many; at most {_MOST}"
    for kind, number in Counter(label.source_kind for label in labels).items():
        if number > _MOST_OF_KIND:
            yield f"{_PATH}: {number} of {kind} are too many; at most {_MOST_OF_KIND}"
    seen = set()
    for index, label in enumerate(labels):
        path = f"{_PATH}[{index}]"
        if not _NAME.fullmatch(label.name):
            yield f"{path}.name: {label.name!r} is not the name of a label; write letters, digits and _"
        if (label.source_kind, label.name) in seen:
            yield f"{path}.name: {label.name!r} is there twice for {label.source_kind}; remove one"
        seen.add((label.source_kind, label.name))
        if label.source_kind == "Workload":
            yield (
                f"{path}.sourceKind: Workloads are summed up by queue, and their labels are not kept; "
                "label the queue instead, or remove this"
            )
        elif label.source_kind not in _KINDS:
            yield f"{path}.sourceKind: {label.source_kind!r} is not known; write {', '.join(_KINDS)}"
        if label.source_label_key and label.source_annotation_key:
            yield f"{path}: write one of sourceLabelKey and sourceAnnotationKey"
