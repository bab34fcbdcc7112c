"""Which kinds are observed, in one table each, with the indexes that they are looked up by.

Only names: what to watch, what has to be there before anything is decided, and what may be missing from a cluster. It
must never hold an object of a kind that nothing reads.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import Any

from admission.api import core, devices, job_kinds, kueue, names
from admission.api.batch import Job
from admission.api.meta import ObjectMeta
from admission.controllers.conditions import is_finished
from admission.controllers.observe import check_names, flavor_names, workload_name
from admission.controllers.store import Table, is_newer
from admission.jobs.device_claims import measures_of_class, resource_of_class
from admission.jobs.effects import Ref
from admission.kube import resources
from admission.kube.resources import Resource
from admission.settings import Settings

#: Without these nothing can be decided; their absence is waited out.
REQUIRED: tuple[Resource[Any], ...] = (
    resources.RESOURCE_FLAVORS,
    resources.CLUSTER_QUEUES,
    resources.LOCAL_QUEUES,
    resources.WORKLOADS,
    resources.NAMESPACES,
)
#: A cluster may lack these, or forbid them: then there are none, until there are.
OPTIONAL: tuple[Resource[Any], ...] = (
    resources.TOPOLOGIES,
    resources.ADMISSION_CHECKS,
    resources.COHORTS,
    resources.WORKLOAD_PRIORITY_CLASSES,
    resources.PRIORITY_CLASSES,
    resources.RUNTIME_CLASSES,
    resources.LIMIT_RANGES,
    resources.NODES,
    resources.PODS,
    resources.JOBS,
)
#: Read only where device classes are mapped to resources.
DEVICES: tuple[Resource[Any], ...] = (
    resources.DEVICE_CLASSES,
    resources.RESOURCE_CLAIM_TEMPLATES,
    resources.RESOURCE_CLAIMS,
)

#: Objects of job kinds that are followed only where their integration is enabled.
OF_INTEGRATIONS: dict[str, Resource[Any]] = {
    names.STATEFUL_SET_INTEGRATION: resources.STATEFUL_SETS,
    names.LEADER_WORKER_SET_INTEGRATION: resources.LEADER_WORKER_SETS,
    **resources.CUSTOM_JOBS,
}

#: Everything that is written to, by kind.
WRITTEN: dict[str, Resource[Any]] = {each.kind: each for each in (*REQUIRED, *OPTIONAL, *OF_INTEGRATIONS.values())}


def optional(settings: Settings) -> tuple[Resource[Any], ...]:
    """What to follow besides `REQUIRED`, under these settings."""
    enabled = settings.integrations.enabled
    wanted = enabled | {kind.framework for kind in job_kinds.observed(enabled)}
    jobs = tuple(each for name, each in OF_INTEGRATIONS.items() if name in wanted)
    if not resource_of_class(settings):
        return (*OPTIONAL, *jobs)
    slices = (resources.RESOURCE_SLICES,) if measures_of_class(settings) else ()
    return (*OPTIONAL, *jobs, *DEVICES, *slices)


class Tables:
    """All tables. The order of `all` is that in which the core is told at the start: what is named before who names."""

    def __init__(self) -> None:
        self.flavors: Table[kueue.ResourceFlavor] = Table({"topology": _topology})
        self.topologies: Table[kueue.Topology] = Table()
        self.checks: Table[kueue.AdmissionCheck] = Table()
        self.cohorts: Table[kueue.Cohort] = Table()
        self.cluster_queues: Table[kueue.ClusterQueue] = Table({"flavor": flavor_names, "check": check_names})
        self.namespaces: Table[core.Namespace] = Table()
        self.local_queues: Table[kueue.LocalQueue] = Table({"queue": _queue, "namespace": _namespace})
        self.workload_priority_classes: Table[kueue.WorkloadPriorityClass] = Table()
        self.priority_classes: Table[core.PriorityClass] = Table()
        self.runtime_classes: Table[core.RuntimeClass] = Table()
        self.device_classes: Table[devices.DeviceClass] = Table()
        self.resource_claim_templates: Table[devices.ResourceClaimTemplate] = Table()
        self.resource_slices: Table[devices.ResourceSlice] = Table()
        self.resource_claims: Table[devices.ResourceClaim] = Table()
        self.limit_ranges: Table[core.LimitRange] = Table({"namespace": _namespace})
        self.nodes: Table[core.Node] = Table({"host": _host})
        self.jobs: Table[Job] = Table()
        self.pods: Table[core.Pod] = Table({"workload": _pod_workload})
        self.workloads: Table[kueue.Workload] = Table(
            {
                "queue": _workload_queue,
                "priority class": _priority_class,
                "holds": _holds,
                "claim": _claims,
                "claims devices": _claims_devices,
            }
        )
        self._by_kind: dict[str, Table[Any]] = {
            "ResourceFlavor": self.flavors,
            "Topology": self.topologies,
            "AdmissionCheck": self.checks,
            "Cohort": self.cohorts,
            "ClusterQueue": self.cluster_queues,
            "Namespace": self.namespaces,
            "LocalQueue": self.local_queues,
            "WorkloadPriorityClass": self.workload_priority_classes,
            "PriorityClass": self.priority_classes,
            "RuntimeClass": self.runtime_classes,
            "DeviceClass": self.device_classes,
            "ResourceSlice": self.resource_slices,
            "ResourceClaimTemplate": self.resource_claim_templates,
            "ResourceClaim": self.resource_claims,
            "LimitRange": self.limit_ranges,
            "Node": self.nodes,
            "Job": self.jobs,
            **{each.kind: Table[Any]() for each in OF_INTEGRATIONS.values()},
            "Pod": self.pods,
            "Workload": self.workloads,
        }

    def of(self, kind: str) -> Table[Any]:
        return self._by_kind[kind]

    def has_newer(self, ref: Ref, version: str) -> bool:
        """Whether this version of the object is known to be overtaken."""
        table = self._by_kind.get(ref.kind)
        known = None if table is None else table.get(ref.namespace, ref.name)
        return known is not None and is_newer(known.metadata.resource_version, version)

    def members(self, kind: str) -> Table[Any]:
        """The table of a job kind; an empty one for a kind that is not observed."""
        return self._by_kind.get(kind) or Table()

    def workloads_in(self, namespace: str) -> Iterator[kueue.Workload]:
        """Goes through all queues, since it is asked for seldom: an index of its own would cost every Workload."""
        for queue in self.workloads.values("queue"):
            if isinstance(queue, tuple) and queue[0] == namespace:
                yield from self.workloads.where("queue", queue)

    def kinds(self) -> Iterator[str]:
        return iter(self._by_kind)


def _namespace(obj: Any) -> Iterable[Hashable]:
    metadata: ObjectMeta = obj.metadata
    return (metadata.namespace,)


def _host(node: core.Node) -> Iterable[Hashable]:
    host = node.metadata.labels.get(names.HOSTNAME_LABEL)
    return () if host is None else (host,)


def _topology(flavor: kueue.ResourceFlavor) -> Iterable[Hashable]:
    return (flavor.spec.topology_name,) if flavor.spec.topology_name else ()


def _queue(queue: kueue.LocalQueue) -> Iterable[Hashable]:
    return (queue.spec.cluster_queue,)


def _workload_queue(workload: kueue.Workload) -> Iterable[Hashable]:
    return ((workload.metadata.namespace, workload.spec.queue_name or ""),)


def _priority_class(workload: kueue.Workload) -> Iterable[Hashable]:
    ref = workload.spec.priority_class_ref
    return () if ref is None else ((ref.kind, ref.name),)


def _holds(workload: kueue.Workload) -> Iterable[Hashable]:
    """A finished Workload keeps its admission as history; it holds nothing."""
    admission = workload.status.admission
    return () if admission is None or is_finished(workload) else (admission.cluster_queue,)


def _claims(workload: kueue.Workload) -> Iterable[Hashable]:
    """By kind, namespace and name; templates are raw, and what is malformed names no claim."""
    for pod_set in workload.spec.pod_sets:
        spec = pod_set.template.get("spec")
        claims = spec.get("resourceClaims") if isinstance(spec, dict) else None
        for claim in claims if isinstance(claims, list) else ():
            if not isinstance(claim, dict):
                continue
            for kind, field in (
                ("ResourceClaimTemplate", "resourceClaimTemplateName"),
                ("ResourceClaim", "resourceClaimName"),
            ):
                if isinstance(name := claim.get(field), str):
                    yield kind, workload.metadata.namespace, name


def _claims_devices(workload: kueue.Workload) -> Iterable[Hashable]:
    return (True,) if any(True for _ in _claims(workload)) else ()


def _pod_workload(pod: core.Pod) -> Iterable[Hashable]:
    name = workload_name(pod)
    return () if name is None else ((pod.metadata.namespace, name),)
