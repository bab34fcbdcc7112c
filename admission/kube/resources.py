"""The API resources that Muster reads and writes: where each lives and as which type it is decoded.

A `Resource` is a plain value made from the API's conventions. It never talks to anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from admission.api import apps, batch, core, devices, kueue, leader_worker_sets
from admission.api.job_kinds import JOB_KINDS, CustomJob

T = TypeVar("T")
_PLAIN: Final = re.compile(r"[A-Za-z0-9/._-]+").fullmatch


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """One resource of one API version; `group` is empty for the core API."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    type: type[T]

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """The request path of the collection, of one object, or of an object's subresource."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        path = "/" + "/".join(parts)
        # Names need no escapes, but a caller's mistake must not become a path of its own.
        if _PLAIN(path) and path.count("/") == len(parts):
            return path
        return "/" + "/".join(quote(part, safe="") for part in parts)


_KUEUE: Final = "kueue.x-k8s.io"
_DEVICES: Final = "resource.k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"

PODS: Final = Resource("", "v1", "pods", "Pod", True, core.Pod)
NODES: Final = Resource("", "v1", "nodes", "Node", False, core.Node)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", False, core.Namespace)
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange", True, core.LimitRange)
EVENTS: Final = Resource("", "v1", "events", "Event", True, core.Event)
RUNTIME_CLASSES: Final = Resource("node.k8s.io", "v1", "runtimeclasses", "RuntimeClass", False, core.RuntimeClass)
PRIORITY_CLASSES: Final = Resource(
    "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", False, core.PriorityClass
)
DEVICE_CLASSES: Final = Resource(_DEVICES, "v1", "deviceclasses", "DeviceClass", False, devices.DeviceClass)
RESOURCE_CLAIMS: Final = Resource(_DEVICES, "v1", "resourceclaims", "ResourceClaim", True, devices.ResourceClaim)
RESOURCE_SLICES: Final = Resource(_DEVICES, "v1", "resourceslices", "ResourceSlice", False, devices.ResourceSlice)
RESOURCE_CLAIM_TEMPLATES: Final = Resource(
    _DEVICES, "v1", "resourceclaimtemplates", "ResourceClaimTemplate", True, devices.ResourceClaimTemplate
)
JOBS: Final = Resource("batch", "v1", "jobs", "Job", True, batch.Job)
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", True, apps.StatefulSet)
LEADER_WORKER_SETS: Final = Resource(
    leader_worker_sets.GROUP, "v1", "leaderworkersets", "LeaderWorkerSet", True, leader_worker_sets.LeaderWorkerSet
)
#: Jobs with operators of their own, by framework.
CUSTOM_JOBS: Final = {
    each.framework: Resource(each.group, each.version, each.plural, each.kind, True, CustomJob) for each in JOB_KINDS
}

WORKLOADS: Final = Resource(_KUEUE, "v1beta2", "workloads", "Workload", True, kueue.Workload)
CLUSTER_QUEUES: Final = Resource(_KUEUE, "v1beta2", "clusterqueues", "ClusterQueue", False, kueue.ClusterQueue)
COHORTS: Final = Resource(_KUEUE, "v1beta2", "cohorts", "Cohort", False, kueue.Cohort)
LOCAL_QUEUES: Final = Resource(_KUEUE, "v1beta2", "localqueues", "LocalQueue", True, kueue.LocalQueue)
RESOURCE_FLAVORS: Final = Resource(_KUEUE, "v1beta2", "resourceflavors", "ResourceFlavor", False, kueue.ResourceFlavor)
ADMISSION_CHECKS: Final = Resource(_KUEUE, "v1beta2", "admissionchecks", "AdmissionCheck", False, kueue.AdmissionCheck)
TOPOLOGIES: Final = Resource(_KUEUE, "v1beta2", "topologies", "Topology", False, kueue.Topology)
WORKLOAD_PRIORITY_CLASSES: Final = Resource(
    _KUEUE, "v1beta2", "workloadpriorityclasses", "WorkloadPriorityClass", False, kueue.WorkloadPriorityClass
)

# What only the process tree touches is read and written as plain dicts.
SECRETS: Final = Resource("", "v1", "secrets", "Secret", True, dict[str, Any])
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease", True, dict[str, Any])
CUSTOM_RESOURCE_DEFINITIONS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", False, dict[str, Any]
)
MUTATING_WEBHOOKS: Final = Resource(
    _ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", False, dict[str, Any]
)
VALIDATING_WEBHOOKS: Final = Resource(
    _ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", False, dict[str, Any]
)
ADMISSION_POLICIES: Final = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", False, dict[str, Any]
)
ADMISSION_POLICY_BINDINGS: Final = Resource(
    _ADMISSION, "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False, dict[str, Any]
)
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", False, dict[str, Any])
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", False, dict[str, Any]
)
