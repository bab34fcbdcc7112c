"""Ray clusters, and jobs and services on clusters of their own: a head, groups of workers, and who submits the job.

Besides what the templates ask for, the head is charged what KubeRay adds to it. A RayJob that uses a cluster which is
there already is left alone; its pods are that cluster's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.api import job_kinds
from admission.api.quantities import QuantityError, parse
from admission.jobs.described import (
    Description,
    Place,
    Role,
    Seen,
    found,
    has_condition,
    mapping,
    mappings,
    number,
    template_of,
    text,
)
from admission.jobs.gang import Verdict

HEAD = "head"
SUBMITTER = "submitter"
FAULT_TOLERANT = "ray.io/ft-enabled"
K8S_JOB_MODE = "K8sJobMode"
SIDECAR_MODE = "SidecarMode"

#: What KubeRay gives the containers that it adds by itself.
_AUTOSCALER = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "512Mi"}}
_SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
#: The Job that cleans Redis up runs when the head is gone, on what was the head's.
_REDIS_CLEANUP = {"cpu": "200m", "memory": "256Mi"}


def _cluster_roles(seen: Seen, *at: str) -> tuple[Role, ...]:
    cluster = mapping(seen.spec, *at)
    head = Role(
        name=HEAD,
        count=1,
        template=_head(cluster, seen.job.metadata.annotations),
        place=(*at, "headGroupSpec", "template"),
    )
    workers = (
        Role(
            name=text(group, "groupName").lower(),
            count=_replicas(group) * max(1, number(group, "numOfHosts", default=1)),
            template=template_of(group),
            place=(*at, "workerGroupSpecs", index, "template"),
        )
        for index, group in enumerate(mappings(cluster, "workerGroupSpecs"))
    )
    return (head, *workers)


def _replicas(group: Mapping[str, Any]) -> int:
    """As many as KubeRay makes, which keeps to the limits of the group also where nothing scales it."""
    asked, least = number(group, "replicas", default=1), number(group, "minReplicas")
    return max(least, min(asked, number(group, "maxReplicas", default=asked)))


def _head(cluster: Mapping[str, Any], annotations: Mapping[str, str]) -> Mapping[str, Any]:
    template = mapping(cluster, "headGroupSpec", "template")
    if found(cluster, ("enableInTreeAutoscaling",)) is True:
        resources = mapping(cluster, "autoscalerOptions", "resources") or _AUTOSCALER
        template = _with_container(template, {"name": "autoscaler", "resources": dict(resources)})
    if mapping(cluster, "gcsFaultToleranceOptions") or annotations.get(FAULT_TOLERANT) == "true":
        template = _with_at_least(template, _REDIS_CLEANUP)
    return template


def _with_container(template: Mapping[str, Any], container: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = mapping(template, "spec")
    return {**template, "spec": {**spec, "containers": [*mappings(spec, "containers"), container]}}


def _with_at_least(template: Mapping[str, Any], least: Mapping[str, str]) -> Mapping[str, Any]:
    """The template with its first container asking for no less than this."""
    spec = mapping(template, "spec")
    first, *others = mappings(spec, "containers") or [{}]
    resources = mapping(first, "resources")
    requests = dict(mapping(resources, "requests"))
    limits = mapping(resources, "limits")
    for name, amount in least.items():
        requests[name] = _larger(requests.get(name, limits.get(name)), amount)
    container = {**first, "resources": {**resources, "requests": requests}}
    return {**template, "spec": {**spec, "containers": [container, *others]}}


def _larger(asked: Any, least: str) -> Any:
    if not isinstance(asked, str | int | float):
        return least
    try:
        return asked if parse(asked) >= parse(least) else least
    except QuantityError:  # the Workload's own look at its templates tells the user
        return asked


def _job_roles(seen: Seen) -> tuple[Role, ...]:
    roles = _cluster_roles(seen, "rayClusterSpec")
    mode = text(seen.spec, "submissionMode") or K8S_JOB_MODE
    given = mapping(seen.spec, "submitterPodTemplate")
    if mode == K8S_JOB_MODE:
        place: Place | None = ("submitterPodTemplate",) if given else None
        submitter = {"spec": {"restartPolicy": "Never", "containers": [_submitter(seen)]}}
        return (*roles, Role(SUBMITTER, 1, given or submitter, place))
    if mode == SIDECAR_MODE:
        head, *workers = roles
        container = (mappings(given, "spec", "containers") or [_submitter(seen)])[0]
        return (Role(HEAD, 1, _with_container(head.template, container), head.place), *workers)
    return roles


def _submitter(seen: Seen) -> Mapping[str, Any]:
    head = mappings(seen.spec, "rayClusterSpec", "headGroupSpec", "template", "spec", "containers")
    image = text(head[0], "image") if head else ""
    return {"name": "ray-job-submitter", "image": image, "resources": _SUBMITTER}


def _has_pods(cluster: Mapping[str, Any]) -> bool:
    """Whether a RayCluster's status speaks of pods. Its state stays what it was while they come and go."""
    if has_condition(cluster, "RayClusterSuspending"):
        return True
    if has_condition(cluster, "RayClusterSuspended"):
        return False
    counts = ("readyWorkerReplicas", "availableWorkerReplicas")
    return text(cluster, "state") == "ready" or any(number(cluster, each) for each in counts)


def _job_verdict(seen: Seen) -> Verdict | None:
    if text(seen.status, "jobDeploymentStatus") not in {"Complete", "Failed"}:
        return None
    success = text(seen.status, "jobStatus") == "SUCCEEDED"
    return Verdict(success, text(seen.status, "message") or f"The RayJob has {'succeeded' if success else 'failed'}")


def _service_has_pods(seen: Seen) -> bool:
    statuses = ("activeServiceStatus", "pendingServiceStatus")
    return any(_has_pods(mapping(seen.status, each, "rayClusterStatus")) for each in statuses)


def _never(_: Seen) -> None:
    """A cluster runs until somebody deletes it."""


RAY = (
    Description(
        kind=job_kinds.RAY_JOB,
        roles=_job_roles,
        ready=lambda seen: text(seen.status, "rayClusterStatus", "state") == "ready",
        active=lambda seen: text(seen.status, "jobDeploymentStatus") not in {"", "Suspended", "ValidationFailed"},
        verdict=_job_verdict,
        ignored=lambda seen: bool(mapping(seen.spec, "clusterSelector")),
        on_hold=lambda seen: text(seen.status, "jobDeploymentStatus") == "ValidationFailed",
    ),
    Description(
        kind=job_kinds.RAY_SERVICE,
        roles=lambda seen: _cluster_roles(seen, "rayClusterConfig"),
        ready=lambda seen: has_condition(seen.status, "Ready"),
        active=_service_has_pods,
        verdict=_never,
    ),
    Description(
        kind=job_kinds.RAY_CLUSTER,
        roles=_cluster_roles,
        ready=lambda seen: text(seen.status, "state") == "ready",
        active=lambda seen: _has_pods(seen.status),
        verdict=_never,
    ),
)
