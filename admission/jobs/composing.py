"""Composes the Workload of a gang: its name, owners, labels and spec, as one manifest to create.

Names and labels follow Kueue's rules, which outside tools rely on. It works from what the gang says of itself and never
looks at the cluster.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.api import names
from admission.api.decoding import plain
from admission.api.kueue import PodSet
from admission.api.meta import OwnerReference
from admission.jobs.effects import Create, Ref
from admission.jobs.priority import Priority

_LONGEST_PREFIX = 247
#: With the gate ShortWorkloadNames: the name is a label value then.
_SHORT_PREFIX = 57
_HASH = 5
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


def workload_name(kind: str, group: str, name: str, uid: str, *, short: bool = False) -> str:
    """The name of the Workload of one object, unique to that object and not only to its name."""
    longest = _SHORT_PREFIX if short else _LONGEST_PREFIX
    digest = hashlib.sha1(f"{kind}\n{group}\n{name}\n{uid}".encode(), usedforsecurity=False).hexdigest()
    return f"{f'{kind.lower()}-{name}'[:longest]}-{digest[:_HASH]}"


@dataclass(frozen=True, slots=True)
class Composition:
    """Everything a new Workload is made of. `job_uid` is empty for gangs without a single owner."""

    namespace: str
    name: str
    queue: str
    pod_sets: tuple[PodSet, ...]
    priority: Priority
    owners: tuple[OwnerReference, ...]
    job_uid: str = ""
    maximum_execution_time_seconds: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


def create(parts: Composition) -> Create:
    """The Workload, held by a finalizer until its quota is accounted for."""
    labels = dict(parts.labels)
    if parts.job_uid and is_label_value(parts.job_uid):
        labels[names.JOB_UID_LABEL] = parts.job_uid
    metadata = {
        "name": parts.name,
        "namespace": parts.namespace,
        "labels": labels,
        "annotations": dict(parts.annotations),
        "finalizers": [names.RESOURCE_IN_USE_FINALIZER],
        "ownerReferences": plain(parts.owners),
    }
    spec: dict[str, Any] = {
        "queueName": parts.queue,
        "podSets": plain(parts.pod_sets),
        "priority": parts.priority.value,
    }
    if parts.priority.ref is not None:
        spec["priorityClassRef"] = plain(parts.priority.ref)
    if parts.maximum_execution_time_seconds is not None:
        spec["maximumExecutionTimeSeconds"] = parts.maximum_execution_time_seconds
    body = {
        "apiVersion": names.API_VERSION,
        "kind": "Workload",
        "metadata": {key: value for key, value in metadata.items() if value},
        "spec": spec,
    }
    return Create(Ref("Workload", parts.namespace, parts.name), body)


def copied_labels(labels: Mapping[str, str], keys: Iterable[str]) -> dict[str, str]:
    """The labels of the job that the settings want on its Workload."""
    return {key: labels[key] for key in keys if key in labels}


def copied_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """What a job's annotations say to admission checks and about gates of its admission."""
    return {
        key: value
        for key, value in annotations.items()
        if key.startswith(names.PROVREQ_PREFIX) or key == names.ADMISSION_GATED_BY
    }


def admission_gates(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """The gates of others that hold the admission back, in their order."""
    text = annotations.get(names.ADMISSION_GATED_BY, "")
    return tuple(name for part in text.split(",") if (name := part.strip()))


def maximum_execution_time(labels: Mapping[str, str]) -> int | None:
    """Seconds; None where there is no limit, or a text that the webhook would have refused."""
    text = labels.get(names.MAX_EXEC_TIME_LABEL, "")
    if not (text.isascii() and text.isdecimal()) or len(text) > 10:
        return None
    return int(text) or None


def prebuilt_name(labels: Mapping[str, str], annotations: Mapping[str, str]) -> str:
    """The Workload that the job wants to use instead of one of its own; empty for none."""
    return annotations.get(names.PREBUILT_WORKLOAD) or labels.get(names.PREBUILT_WORKLOAD, "")


def is_label_value(text: str) -> bool:
    return len(text) <= 63 and _LABEL_VALUE.fullmatch(text) is not None
