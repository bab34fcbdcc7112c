"""Objects of all kinds, as small as the CRDs take them, for tests to say more in."""

from __future__ import annotations

from typing import Any

from tests.controlplane.cluster import KUEUE

Object = dict[str, Any]

NOW = "2026-01-02T03:04:05Z"


def obj(kind: str, spec: Object | None = None, **more: Any) -> Object:
    made: Object = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": "x"}, **more}
    if kind in {"LocalQueue", "Workload"}:
        made["metadata"]["namespace"] = "default"
    if spec is not None:
        made["spec"] = spec
    return made


def quota(name: str = "nvidia.com/gpu", **more: Any) -> Object:
    return {"name": name, "nominalQuota": 8, **more}


def group(*resources: Object, flavor: str = "h100", covered: list[str] | None = None) -> Object:
    resources = resources or (quota(),)
    return {
        "coveredResources": covered or [r["name"] for r in resources],
        "flavors": [{"name": flavor, "resources": list(resources)}],
    }


def cluster_queue(**spec: Any) -> Object:
    return obj("ClusterQueue", spec)


def pod_set(**more: Any) -> Object:
    return {"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c"}]}}, **more}


def workload(*pod_sets: Object, **spec: Any) -> Object:
    return obj("Workload", {"podSets": list(pod_sets) or [pod_set()], **spec})


def flavor(**spec: Any) -> Object:
    return obj("ResourceFlavor", spec)


def topology(*levels: str) -> Object:
    return obj("Topology", {"levels": [{"nodeLabel": level} for level in levels]})


def condition(type_: str, status: str = "True") -> Object:
    return {"type": type_, "status": status, "reason": type_, "message": "", "lastTransitionTime": NOW}


def admission(*names: str, **more: Any) -> Object:
    return {"clusterQueue": "cq", "podSetAssignments": [{"name": name, **more} for name in names or ("main",)]}


def placed(levels: list[str], *slices: Object) -> Object:
    return admission(topologyAssignment={"levels": levels, "slices": list(slices)})


def place(values: list[Object], counts: Object, domains: int = 1) -> Object:
    return {"domainCount": domains, "valuesPerLevel": values, "podCounts": counts}


def many(number: int, **more: Any) -> list[Object]:
    return [{"name": f"n{i}", **more} for i in range(number)]


PROVISIONING = {"provisioningClassName": "queued.example.com"}
REF = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_REF = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
RESERVED = {"conditions": [condition("QuotaReserved")], "admission": admission()}
ADMITTED = {"conditions": [condition("QuotaReserved"), condition("Admitted")], "admission": admission()}
