"""The kinds that the webhook answers for, each with its path, and the paths of those that are let through.

Paths are Kueue's: `/mutate-` or `/validate-`, then group, version and kind in lower case with dashes for dots. Adding
a kind is a module and one line here. Every job kind that Kueue knows has its paths, so that a configuration made for
it does not refuse jobs of kinds that are not enabled.
"""

from __future__ import annotations

from typing import Any, Final

from admission.api import names
from admission.api.batch import Job
from admission.api.core import Pod
from admission.api.kueue import ClusterQueue, Cohort, LocalQueue, ResourceFlavor, Workload
from admission.webhook import flavors, jobs, pods, queues, workloads
from admission.webhook.handling import Kind
from admission.webhook.review import GroupVersionKind


def _kueue(kind: str) -> GroupVersionKind:
    return GroupVersionKind(names.GROUP, names.VERSION, kind)


KINDS: Final[tuple[Kind[Any], ...]] = (
    Kind(GroupVersionKind("", "v1", "Pod"), Pod, mutate=pods.mutate),
    Kind(GroupVersionKind("batch", "v1", "Job"), Job, mutate=jobs.mutate, validate=jobs.validate),
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

#: Let through: what their CRDs say is all there is to check, or there is no adapter for them.
LET_THROUGH: Final = (
    _kueue("AdmissionCheck"),
    _kueue("Topology"),
    GroupVersionKind("apps", "v1", "Deployment"),
    GroupVersionKind("apps", "v1", "StatefulSet"),
    GroupVersionKind("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    GroupVersionKind("kubeflow.org", "v1", "JAXJob"),
    GroupVersionKind("kubeflow.org", "v1", "PaddleJob"),
    GroupVersionKind("kubeflow.org", "v1", "PyTorchJob"),
    GroupVersionKind("kubeflow.org", "v1", "TFJob"),
    GroupVersionKind("kubeflow.org", "v1", "XGBoostJob"),
    GroupVersionKind("kubeflow.org", "v2beta1", "MPIJob"),
    GroupVersionKind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet"),
    GroupVersionKind("ray.io", "v1", "RayCluster"),
    GroupVersionKind("ray.io", "v1", "RayJob"),
    GroupVersionKind("ray.io", "v1", "RayService"),
    GroupVersionKind("sparkoperator.k8s.io", "v1beta2", "SparkApplication"),
    GroupVersionKind("trainer.kubeflow.org", "v1alpha1", "TrainJob"),
    GroupVersionKind("workload.codeflare.dev", "v1beta2", "AppWrapper"),
)


def path(verb: str, kind: GroupVersionKind) -> str:
    """`verb` is "mutate" or "validate"."""
    group = kind.group.replace(".", "-")
    return f"/{verb}-{group}-{kind.version}-{kind.kind.lower()}"
