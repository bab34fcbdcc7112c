"""The kinds that the webhook answers for, each with its path, and the paths of those that are let through.

Paths are Kueue's: `/mutate-` or `/validate-`, then group, version and kind in lower case with dashes for dots. Adding
a kind is a module and one line here. Every job kind that Kueue knows has its paths, so that a configuration made for
it does not refuse jobs of kinds that are not enabled.
"""

from __future__ import annotations

from typing import Any, Final

from admission.api import names
from admission.api.apps import Deployment, StatefulSet
from admission.api.batch import Job
from admission.api.core import Pod
from admission.api.kueue import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload
from admission.api.leader_worker_sets import LeaderWorkerSet
from admission.webhook import (
    custom_jobs,
    deployments,
    flavors,
    jobs,
    leader_worker_sets,
    pods,
    queues,
    stateful_sets,
    workloads,
)
from admission.webhook.context import Rules
from admission.webhook.handling import Kind
from admission.webhook.review import GroupVersionKind


def _kueue(kind: str) -> GroupVersionKind:
    return GroupVersionKind(names.GROUP, names.VERSION, kind)


KINDS: Final[tuple[Kind[Any], ...]] = (
    Kind(GroupVersionKind("", "v1", "Pod"), Pod, mutate=pods.mutate),
    Kind(GroupVersionKind("batch", "v1", "Job"), Job, mutate=jobs.mutate, validate=jobs.validate),
    Kind(
        GroupVersionKind("apps", "v1", "Deployment"),
        Deployment,
        mutate=deployments.mutate,
        validate=deployments.validate,
    ),
    Kind(
        GroupVersionKind("apps", "v1", "StatefulSet"),
        StatefulSet,
        mutate=stateful_sets.mutate,
        validate=stateful_sets.validate,
    ),
    Kind(
        GroupVersionKind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
        LeaderWorkerSet,
        mutate=leader_worker_sets.mutate,
        validate=leader_worker_sets.validate,
    ),
    *custom_jobs.KINDS,
    Kind(_kueue("Workload"), Workload, mutate=workloads.mutate, validate=workloads.validate),
    Kind(
        _kueue("ClusterQueue"),
        ClusterQueue,
        mutate=queues.mutate_cluster_queue,
        validate=queues.validate_cluster_queue,
    ),
    Kind(_kueue("Cohort"), Cohort, validate=queues.validate_cohort),
    Kind(_kueue("LocalQueue"), LocalQueue, validate=queues.validate_local_queue),
    Kind(_kueue("ResourceFlavor"), ResourceFlavor, mutate=flavors.mutate, validate=flavors.validate),
)

#: Let through: what their CRDs say is all there is to check.
LET_THROUGH: Final = (
    _kueue("AdmissionCheck"),
    _kueue("Topology"),
)


def answered(rules: Rules) -> tuple[Kind[Any], ...]:
    """The kinds that are looked at under these rules."""
    return tuple(kind for kind in KINDS if kind.gvk not in _disabled(rules))


def let_through(rules: Rules) -> tuple[GroupVersionKind, ...]:
    return (*LET_THROUGH, *sorted(_disabled(rules), key=str))


def _disabled(rules: Rules) -> set[GroupVersionKind]:
    enabled = {(kind.group, kind.kind) for kind in rules.custom}
    return {kind.gvk for kind in custom_jobs.KINDS if (kind.gvk.group, kind.gvk.kind) not in enabled}


def path(verb: str, kind: GroupVersionKind) -> str:
    """`verb` is "mutate" or "validate"."""
    group = kind.group.replace(".", "-")
    return f"/{verb}-{group}-{kind.version}-{kind.kind.lower()}"
