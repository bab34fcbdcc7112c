"""What a real API server makes of the generated CRDs: accepted, refused with the field named, defaulted, printed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from admission.resources import webhook_config
from tests.controlplane.cluster import KUEUE, Api, ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
NOW = "2026-01-02T03:04:05Z"


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "--server-side", "-k", str(webhook_config() / "crds"))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    # The handlers of a new CRD come up a moment after it is established.
    eventually(lambda: control_plane.api.list("Topology") == [] and control_plane.api.list("Workload") == [])


# ------------------------------------------------------------------ builders


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


PROVISIONING = {"provisioningClassName": "queued.example.com"}
REF = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_REF = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
RESERVED = {"conditions": [condition("QuotaReserved")], "admission": admission()}
ADMITTED = {"conditions": [condition("QuotaReserved"), condition("Admitted")], "admission": admission()}


def many(number: int, **more: Any) -> list[Object]:
    return [{"name": f"n{i}", **more} for i in range(number)]


# ------------------------------------------------------------------ creates


@dataclass(frozen=True)
class Create:
    """`want` are parts of the refusal; none: it is accepted. `status` is written after the create."""

    id: str
    object: Object
    want: tuple[str, ...] = ()
    status: Object | None = None


def refused(id: str, object: Object, *want: str) -> Create:  # noqa: A002
    return Create(id, object, want)


def status(id: str, status: Object, *want: str, of: Object | None = None) -> Create:  # noqa: A002
    return Create(id, of or workload(), want, status)


CREATES = [
    # ---- ClusterQueue
    Create("a cluster queue needs nothing", cluster_queue()),
    Create("a cluster queue may say everything", cluster_queue(
        resourceGroups=[group(quota(borrowingLimit="4", lendingLimit="0.5"))], cohortName="all.of-us",
        queueingStrategy="StrictFIFO", namespaceSelector={}, stopPolicy="Hold", fairSharing={"weight": "500m"},
        flavorFungibility={"whenCanBorrow": "TryNextFlavor", "preference": "PreemptionOverBorrowing"},
        preemption={"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerOrNewerEqualPriority",
                    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": -5}},
        admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["h100"]}]},
        admissionScope={"admissionMode": "UsageBasedAdmissionFairSharing"},
        concurrentAdmissionPolicy={"migration": {
            "mode": "TryPreferredFlavors", "constraints": {"lastAcceptableFlavorName": "h100"}}},
    )),
    refused("seventeen resource groups are too many",
            cluster_queue(resourceGroups=[group(quota(f"r{i}")) for i in range(17)]), "spec.resourceGroups", "16"),
    refused("a group covers at least one resource",
            cluster_queue(resourceGroups=[{"coveredResources": [], "flavors": group()["flavors"]}]),
            "spec.resourceGroups[0].coveredResources"),
    refused("a group has at least one flavor",
            cluster_queue(resourceGroups=[{"coveredResources": ["cpu"], "flavors": []}]),
            "spec.resourceGroups[0].flavors"),
    refused("a group has at most 64 flavors",
            cluster_queue(resourceGroups=[
                {"coveredResources": ["cpu"], "flavors": many(65, resources=[quota("cpu")])}
            ]),
            "spec.resourceGroups[0].flavors", "64"),
    refused("a group covers at most 64 resources",
            cluster_queue(resourceGroups=[group(*(quota(f"r{i}") for i in range(65)))]),
            "spec.resourceGroups[0].coveredResources", "64"),
    refused("a flavor stands once in a group",
            cluster_queue(resourceGroups=[{**group(), "flavors": group()["flavors"] * 2}]),
            "spec.resourceGroups[0].flavors[1]", "Duplicate"),
    refused("a resource stands once in a flavor",
            cluster_queue(resourceGroups=[group(quota(), quota())]),
            "spec.resourceGroups[0].flavors[0].resources[1]", "Duplicate"),
    refused("a flavor lists as many resources as are covered",
            cluster_queue(resourceGroups=[group(covered=["cpu", "memory"])]), "spec.resourceGroups[0].flavors",
            "flavors must have the same number of resources as the coveredResources"),
    refused("a flavor's name is a subdomain",
            cluster_queue(resourceGroups=[group(flavor="H_100")]), "spec.resourceGroups[0].flavors[0].name"),
    refused("a flavor's name has at most 253 characters",
            cluster_queue(resourceGroups=[group(flavor="x" * 254)]), "spec.resourceGroups[0].flavors[0].name", "253"),
    refused("a nominal quota is required",
            cluster_queue(resourceGroups=[group({"name": "cpu"})]),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
    refused("a nominal quota is a quantity",
            cluster_queue(resourceGroups=[group({"name": "cpu", "nominalQuota": "eight"})]),
            "spec.resourceGroups[0].flavors[0].resources[0].nominalQuota"),
    refused("without a cohort there is no borrowing limit",
            cluster_queue(resourceGroups=[group(quota(borrowingLimit=1))]), "spec.resourceGroups",
            "borrowingLimit must be nil when cohort is empty"),
    refused("a cohort's name is a subdomain", cluster_queue(cohortName="-a"), "spec.cohortName"),
    refused("an unknown queueing strategy", cluster_queue(queueingStrategy="LIFO"), "spec.queueingStrategy",
            "StrictFIFO", "BestEffortFIFO"),
    refused("an unknown stop policy", cluster_queue(stopPolicy="Now"), "spec.stopPolicy", "HoldAndDrain"),
    refused("the old fungibility values are gone", cluster_queue(flavorFungibility={"whenCanBorrow": "Borrow"}),
            "spec.flavorFungibility.whenCanBorrow", "MayStopSearch"),
    refused("the old preemption value is gone", cluster_queue(flavorFungibility={"whenCanPreempt": "Preempt"}),
            "spec.flavorFungibility.whenCanPreempt", "TryNextFlavor"),
    refused("an unknown preference",
            cluster_queue(flavorFungibility={"whenCanBorrow": "TryNextFlavor", "preference": "Luck"}),
            "spec.flavorFungibility.preference"),
    refused("a preference needs both policies to try the next flavor",
            cluster_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
            "spec.flavorFungibility.preference", "TryNextFlavor"),
    refused("an unknown reclaim policy", cluster_queue(preemption={"reclaimWithinCohort": "Some"}),
            "spec.preemption.reclaimWithinCohort"),
    refused("an unknown policy within the queue", cluster_queue(preemption={"withinClusterQueue": "Any"}),
            "spec.preemption.withinClusterQueue"),
    refused("an unknown policy of borrowing",
            cluster_queue(preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "Any"}}),
            "spec.preemption.borrowWithinCohort.policy"),
    refused("a threshold is an int32",
            cluster_queue(preemption={"reclaimWithinCohort": "Any", "borrowWithinCohort": {
                "policy": "LowerPriority", "maxPriorityThreshold": 2**31}}),
            "spec.preemption.borrowWithinCohort.maxPriorityThreshold"),
    refused("borrowing preempts only where reclaim may",
            cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
            "spec.preemption.borrowWithinCohort", "reclaimWithinCohort"),
    refused("a strategy has at least one check", cluster_queue(admissionChecksStrategy={"admissionChecks": []}),
            "spec.admissionChecksStrategy.admissionChecks"),
    refused("a strategy has at most 64 checks", cluster_queue(admissionChecksStrategy={"admissionChecks": many(65)}),
            "spec.admissionChecksStrategy.admissionChecks", "64"),
    refused("a check stands once",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a"}, {"name": "a"}]}),
            "spec.admissionChecksStrategy.admissionChecks[1]", "Duplicate"),
    refused("a check has a name", cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": ""}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].name"),
    refused("a check's name has at most 316 characters",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a" * 317}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].name", "316"),
    refused("a check names a flavor once",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["f", "f"]}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[1]", "Duplicate"),
    refused("a check names at most 64 flavors",
            cluster_queue(admissionChecksStrategy={"admissionChecks": [
                {"name": "a", "onFlavors": [f"f{i}" for i in range(65)]}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors", "64"),
    refused("a weight is a quantity", cluster_queue(fairSharing={"weight": "heavy"}), "spec.fairSharing.weight"),
    refused("an admission scope has a mode", cluster_queue(admissionScope={}), "spec.admissionScope.admissionMode"),
    refused("an unknown admission mode", cluster_queue(admissionScope={"admissionMode": "Luck"}),
            "spec.admissionScope.admissionMode"),
    refused("concurrent admission says how to migrate", cluster_queue(concurrentAdmissionPolicy={}),
            "spec.concurrentAdmissionPolicy.migration"),
    refused("a migration has a mode", cluster_queue(concurrentAdmissionPolicy={"migration": {}}),
            "spec.concurrentAdmissionPolicy.migration.mode"),
    refused("an unknown migration", cluster_queue(concurrentAdmissionPolicy={"migration": {"mode": "Both"}}),
            "spec.concurrentAdmissionPolicy.migration.mode"),
    status("a cluster queue's status", {
        "conditions": [condition("Active")], "pendingWorkloads": 0, "reservingWorkloads": 0, "admittedWorkloads": 0,
        "flavorsReservation": [{"name": "h100", "resources": [{"name": "cpu", "total": "1500m", "borrowed": "0"}]}],
        "flavorsUsage": [{"name": "h100", "resources": [{"name": "cpu", "total": 1, "borrowed": 0}]}],
        "fairSharing": {"weightedShare": 2**63 - 1}}, of=cluster_queue()),
    status("usage of a flavor stands once", {"flavorsUsage": [{"name": "a", "resources": []}] * 2},
           "status.flavorsUsage[1]", "Duplicate", of=cluster_queue()),
    status("usage of at most 64 flavors", {"flavorsUsage": many(65, resources=[])},
           "status.flavorsUsage", "64", of=cluster_queue()),
    status("reservation of at most 64 resources",
           {"flavorsReservation": [{"name": "a", "resources": many(65)}]},
           "status.flavorsReservation[0].resources", "64", of=cluster_queue()),
    status("a queue has at most 16 conditions", {"conditions": [condition(f"C{i}") for i in range(17)]},
           "status.conditions", "16", of=cluster_queue()),
    # ---- Cohort
    Create("a cohort needs nothing", obj("Cohort")),
    Create("a cohort has a parent, quota and a weight", obj("Cohort", {
        "parentName": "root", "fairSharing": {"weight": 2}, "resourceGroups": [group(quota(borrowingLimit=1))]})),
    refused("a parent's name is a subdomain", obj("Cohort", {"parentName": "A"}), "spec.parentName"),
    refused("a cohort has at most 16 groups",
            obj("Cohort", {"resourceGroups": [group(quota(f"r{i}")) for i in range(17)]}), "spec.resourceGroups", "16"),
    refused("a cohort's flavors list what is covered",
            obj("Cohort", {"resourceGroups": [group(covered=["cpu", "memory"])]}), "spec.resourceGroups[0].flavors",
            "same number of resources"),
    status("a cohort's share", {"fairSharing": {"weightedShare": 250}}, of=obj("Cohort")),
    status("a cohort's share is a number", {"fairSharing": {}}, "status.fairSharing.weightedShare", of=obj("Cohort")),
    # ---- LocalQueue
    Create("a local queue", obj("LocalQueue", {"clusterQueue": "cq", "fairSharing": {"weight": "0"}})),
    refused("a cluster queue's name is a subdomain", obj("LocalQueue", {"clusterQueue": "a b"}), "spec.clusterQueue"),
    refused("an unknown stop policy of a local queue",
            obj("LocalQueue", {"clusterQueue": "cq", "stopPolicy": "Drain"}), "spec.stopPolicy"),
    status("a local queue's status", {
        "conditions": [condition("Active")], "pendingWorkloads": 1, "reservingWorkloads": 0, "admittedWorkloads": 0,
        "flavorsReservation": [{"name": "h100", "resources": [{"name": "cpu", "total": "1"}]}],
        "flavorsUsage": [{"name": "h100", "resources": [{"name": "cpu", "total": "1"}]}],
        "fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": {
            "consumedResources": {"cpu": "1500m"}, "lastUpdate": NOW}}}, of=obj("LocalQueue", {"clusterQueue": "cq"})),
    status("a local queue's share is a number", {"fairSharing": {}}, "status.fairSharing.weightedShare",
           of=obj("LocalQueue", {"clusterQueue": "cq"})),
    status("a local queue uses at most 64 flavors", {"flavorsUsage": many(65, resources=[])}, "status.flavorsUsage",
           "64", of=obj("LocalQueue", {"clusterQueue": "cq"})),
    status("a local queue reserves at most 64 flavors", {"flavorsReservation": many(65, resources=[])},
           "status.flavorsReservation", "64", of=obj("LocalQueue", {"clusterQueue": "cq"})),
    # ---- ResourceFlavor
    Create("a flavor needs nothing", obj("ResourceFlavor")),
    Create("a flavor may say everything", flavor(
        nodeLabels={"gpu": "h100"}, nodeTaints=[{"key": "gpu", "value": "a", "effect": "NoSchedule"}],
        topologyName="racks", tolerations=[
            {"key": "gpu", "operator": "Equal", "value": "a", "effect": "NoSchedule"}, {"operator": "Exists"},
            {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}, {"key": "b"}])),
    refused("at most 8 node labels", flavor(nodeLabels={f"l{i}": "" for i in range(9)}), "spec.nodeLabels", "8"),
    refused("at most 8 node taints",
            flavor(nodeTaints=[{"key": f"k{i}", "effect": "NoSchedule"} for i in range(9)]), "spec.nodeTaints", "8"),
    refused("an unknown effect of a taint", flavor(nodeTaints=[{"key": "k", "effect": "NoRun"}]),
            "spec.nodeTaints[0].effect", "NoExecute"),
    refused("at most 8 tolerations", flavor(tolerations=[{"key": f"k{i}"} for i in range(9)]), "spec.tolerations", "8"),
    refused("a toleration without a key tolerates all", flavor(tolerations=[{"operator": "Equal"}]),
            "spec.tolerations[0].operator", "Exists"),
    refused("toleration seconds are for NoExecute",
            flavor(tolerations=[{"key": "k", "effect": "NoSchedule", "tolerationSeconds": 1}]),
            "spec.tolerations[0].effect", "NoExecute"),
    refused("an unknown operator of a toleration", flavor(tolerations=[{"key": "k", "operator": "In"}]),
            "spec.tolerations[0].operator"),
    refused("what exists has no value", flavor(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
            "spec.tolerations[0].value"),
    refused("an unknown effect of a toleration", flavor(tolerations=[{"key": "k", "effect": "NoRun"}]),
            "spec.tolerations[0].effect"),
    refused("a topology needs node labels", flavor(topologyName="racks"), "spec.nodeLabels", "topologyName"),
    refused("an empty map is no node label", flavor(topologyName="racks", nodeLabels={}), "spec.nodeLabels"),
    refused("a topology's name is a subdomain", flavor(topologyName="R", nodeLabels={"a": "b"}), "spec.topologyName"),
    # ---- Workload: spec
    Create("a workload", workload()),
    Create("a workload may say everything", workload(
        pod_set(minCount=1, topologyRequest={
            "required": "rack", "unconstrained": False, "podIndexLabel": "i", "subGroupIndexLabel": "j",
            "subGroupCount": 0, "podSetGroupName": "g", "podSetSliceRequiredTopology": "rack", "podSetSliceSize": 1,
            "podsetSliceRequiredTopologyConstraints": [
                {"topology": "rack", "size": 4}, {"topology": "host", "size": 2}],
        }), queueName="q", priorityClassRef=REF, priority=7, active=False, maximumExecutionTimeSeconds=1,
        preemptionGates=[{"name": "kueue.x-k8s.io/multikueue"}])),
    Create("a template is kept as it is", workload(pod_set(template={
        "metadata": {"creationTimestamp": None}, "spec": {"containers": None, "unheardOf": [1, {"a": None}]}}))),
    refused("a workload has pod sets", workload() | {"spec": {"podSets": []}}, "spec.podSets"),
    refused("a workload has at most 18 pod sets", workload(*(pod_set(name=f"p{i}") for i in range(19))),
            "spec.podSets", "18"),
    refused("a pod set stands once", workload(pod_set(), pod_set()), "spec.podSets[1]", "Duplicate"),
    refused("a pod set's name is lower case", workload(pod_set(name="Main")), "spec.podSets[0].name"),
    refused("a pod set's name is a label, not a subdomain", workload(pod_set(name="a.b")), "spec.podSets[0].name"),
    refused("a pod set's name has at most 63 characters", workload(pod_set(name="a" * 64)),
            "spec.podSets[0].name", "63"),
    refused("a pod set has a template", workload({"name": "main", "count": 1}), "spec.podSets[0].template"),
    refused("a template is an object", workload(pod_set(template="x")), "spec.podSets[0].template"),
    refused("a count is not negative", workload(pod_set(count=-1)), "spec.podSets[0].count"),
    refused("a count is an int32", workload(pod_set(count=2**31)), "spec.podSets[0].count"),
    refused("a minimal count is at least 1", workload(pod_set(minCount=0)), "spec.podSets[0].minCount"),
    refused("a minimal count is at most the count", workload(pod_set(minCount=3)), "spec.podSets[0].minCount",
            "minCount"),
    refused("a queue's name is a subdomain", workload(queueName="Q"), "spec.queueName"),
    refused("a class needs a priority", workload(priorityClassRef=REF), "spec.priority"),
    refused("a class is of a known group", workload(priority=1, priorityClassRef={**REF, "group": "x.y"}),
            "spec.priorityClassRef.group"),
    refused("a class is of a known kind", workload(priority=1, priorityClassRef={**REF, "kind": "Priority"}),
            "spec.priorityClassRef.kind"),
    refused("a kind belongs to its group", workload(priority=1, priorityClassRef={**REF, "kind": "PriorityClass"}),
            "spec.priorityClassRef.kind"),
    refused("a pod priority class is not Kueue's",
            workload(priority=1, priorityClassRef={**POD_REF, "kind": "WorkloadPriorityClass"}),
            "spec.priorityClassRef.kind"),
    refused("a class has a name", workload(priority=1, priorityClassRef={**REF, "name": ""}),
            "spec.priorityClassRef.name"),
    refused("a class's name has at most 253 characters",
            workload(priority=1, priorityClassRef={**REF, "name": "a" * 254}), "spec.priorityClassRef.name", "253"),
    refused("a priority is an int32", workload(priority=2**31), "spec.priority"),
    refused("an execution time is at least a second", workload(maximumExecutionTimeSeconds=0),
            "spec.maximumExecutionTimeSeconds"),
    refused("at most 8 preemption gates", workload(preemptionGates=many(9)), "spec.preemptionGates", "8"),
    refused("a preemption gate stands once", workload(preemptionGates=[{"name": "a"}] * 2), "spec.preemptionGates[1]"),
    refused("a preemption gate has a name", workload(preemptionGates=[{"name": ""}]), "spec.preemptionGates[0].name"),
    refused("a preemption gate's name has at most 63 characters", workload(preemptionGates=[{"name": "a" * 64}]),
            "spec.preemptionGates[0].name", "63"),
    *(
        refused(f"{name} is bounded", workload(pod_set(topologyRequest={name: value})),
                f"spec.podSets[0].topologyRequest.{name}")
        for name, value in {
            "required": "a" * 64, "preferred": "a" * 64, "podIndexLabel": "a" * 318, "subGroupIndexLabel": "a" * 318,
            "subGroupCount": -1, "podSetGroupName": "a" * 257, "podSetSliceRequiredTopology": "a" * 64,
            "podSetSliceSize": 0,
            "podsetSliceRequiredTopologyConstraints": [{"topology": f"l{i}", "size": 1} for i in range(4)],
        }.items()
    ),
    refused("a constraint has a topology",
            workload(pod_set(topologyRequest={
                "podsetSliceRequiredTopologyConstraints": [{"topology": "", "size": 1}]})),
            "spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[0].topology"),
    refused("a constraint has a size of at least 1",
            workload(pod_set(topologyRequest={
                "podsetSliceRequiredTopologyConstraints": [{"topology": "a", "size": 0}]})),
            "spec.podSets[0].topologyRequest.podsetSliceRequiredTopologyConstraints[0].size"),
    # ---- Workload: status
    status("a workload's status", {
        "conditions": [condition("QuotaReserved"), condition("Admitted", "False")],
        "admission": {"clusterQueue": "cq", "podSetAssignments": [{
            "name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "1500m", "nvidia.com/gpu": 8}, "count": 2,
            "delayedTopologyRequest": "Pending", "topologyAssignment": {"levels": ["rack", "host"], "slices": [
                place([{"universal": "r1"}, {"individual": {"prefix": "n", "suffix": "x", "roots": ["", "1"]}}],
                      {"individual": [1, 3]}, 2),
                place([{"universal": "r2"}, {"universal": "h"}], {"universal": 2})]}}]},
        "requeueState": {"count": 1, "requeueAt": NOW}, "reclaimablePods": [{"name": "main", "count": 0}],
        "admissionChecks": [{
            "name": "ac", "state": "Ready", "lastTransitionTime": NOW, "message": "", "requeueAfterSeconds": 0,
            "retryCount": 0, "podSetUpdates": [{"name": "main", "labels": {"a": "b"}, "annotations": {"a": "b"},
                                                "nodeSelector": {"a": "b"}, "tolerations": [{"key": "a"}]}]}],
        "resourceRequests": [{"name": "main", "resources": {"cpu": 1}}], "accumulatedPastExecutionTimeSeconds": 5,
        "schedulingStats": {"evictions": [
            {"reason": "Preempted", "underlyingCause": "", "count": 1},
            {"reason": "Preempted", "underlyingCause": "x", "count": 1}]},
        "nominatedClusterNames": ["a", "b"], "unhealthyNodes": [{"name": "n1"}],
        "preemptionGates": [{"name": "g", "position": "Open", "lastTransitionTime": NOW}]}),
    status("a condition stands once", {"conditions": [condition("Finished")] * 2}, "status.conditions[1]", "Duplicate"),
    status("at most 16 conditions", {"conditions": [condition(f"C{i}") for i in range(17)]}, "status.conditions", "16"),
    status("a condition has a known status", {"conditions": [condition("Finished", "Yes")]},
           "status.conditions[0].status"),
    status("a condition has a reason", {"conditions": [{**condition("Finished"), "reason": ""}]},
           "status.conditions[0].reason"),
    status("a condition has a time", {"conditions": [{**condition("Finished"), "lastTransitionTime": "now"}]},
           "status.conditions[0].lastTransitionTime"),
    status("with quota every pod set has an assignment",
           {"conditions": [condition("QuotaReserved")], "admission": admission("main", "other")},
           "status.admission.podSetAssignments", "podSetAssignments must have the same number of podSets as the spec"),
    status("without quota the assignments do not matter",
           {"conditions": [condition("QuotaReserved", "False")], "admission": admission("main", "other")}),
    status("at most 18 assignments", {"admission": admission(*(f"p{i}" for i in range(19)))},
           "status.admission.podSetAssignments", "18"),
    status("an assignment stands once", {"admission": admission("a", "a")}, "status.admission.podSetAssignments[1]"),
    status("an admission names a cluster queue", {"admission": {"podSetAssignments": [{"name": "main"}]}},
           "status.admission.clusterQueue"),
    status("an assignment names flavors", {"admission": admission(flavors={"cpu": "F"})},
           "status.admission.podSetAssignments[0].flavors"),
    status("an assignment's usage is a quantity", {"admission": admission(resourceUsage={"cpu": "much"})},
           "status.admission.podSetAssignments[0].resourceUsage"),
    status("an assignment's count is not negative", {"admission": admission(count=-1)},
           "status.admission.podSetAssignments[0].count"),
    status("a delayed topology is pending or ready", {"admission": admission(delayedTopologyRequest="Soon")},
           "status.admission.podSetAssignments[0].delayedTopologyRequest"),
    status("a placement has levels", {"admission": placed([], place([{"universal": "a"}], {"universal": 1}))},
           "topologyAssignment.levels"),
    status("a placement has at most 16 levels",
           {"admission": placed(["l"] * 17, place([{"universal": "a"}] * 17, {"universal": 1}))},
           "topologyAssignment.levels", "16"),
    status("a placement has slices", {"admission": placed(["l"])}, "topologyAssignment.slices"),
    status("a placement has at most 1000 slices",
           {"admission": placed(["l"], *([place([{"universal": "a"}], {"universal": 1})] * 1001))},
           "topologyAssignment.slices", "1000"),
    status("a slice has a value for each level",
           {"admission": placed(["a", "b"], place([{"universal": "a"}], {"universal": 1}))},
           "topologyAssignment.slices", "valuesPerLevel must be as many as levels"),
    status("values are universal or individual, not both",
           {"admission": placed(["a"], place([{"universal": "a", "individual": {"roots": ["a"]}}], {"universal": 1}))},
           "topologyAssignment.slices[0].valuesPerLevel[0]"),
    status("values are universal or individual, not neither",
           {"admission": placed(["a"], place([{}], {"universal": 1}))},
           "topologyAssignment.slices[0].valuesPerLevel[0]"),
    status("a universal value has at most 63 characters",
           {"admission": placed(["a"], place([{"universal": "a" * 64}], {"universal": 1}))},
           "topologyAssignment.slices[0].valuesPerLevel[0].universal", "63"),
    status("there are as many roots as domains",
           {"admission": placed(["a"], place([{"individual": {"roots": ["a", "b"]}}], {"universal": 1}, 3))},
           "topologyAssignment.slices[0].valuesPerLevel", "individual values must be as many as domainCount"),
    status("there are as many counts as domains",
           {"admission": placed(["a"], place([{"universal": "a"}], {"individual": [1]}, 2))},
           "topologyAssignment.slices[0].podCounts", "individual pod counts must be as many as domainCount"),
    status("counts are universal or individual, not both",
           {"admission": placed(["a"], place([{"universal": "a"}], {"individual": [1], "universal": 1}))},
           "topologyAssignment.slices[0].podCounts"),
    status("a universal count is at least 1",
           {"admission": placed(["a"], place([{"universal": "a"}], {"universal": 0}))},
           "topologyAssignment.slices[0].podCounts.universal"),
    status("an individual count is at least 1",
           {"admission": placed(["a"], place([{"universal": "a"}], {"individual": [0]}))},
           "topologyAssignment.slices[0].podCounts.individual[0]"),
    status("a slice has at least one domain",
           {"admission": placed(["a"], place([{"universal": "a"}], {"universal": 1}, 0))},
           "topologyAssignment.slices[0].domainCount"),
    status("reclaimable pods are not negative", {"reclaimablePods": [{"name": "main", "count": -1}]},
           "status.reclaimablePods[0].count"),
    status("reclaimable pods of at most 18 pod sets", {"reclaimablePods": many(19, count=1)},
           "status.reclaimablePods", "18"),
    status("at most 8 checks", {"admissionChecks": many(9, state="Ready", message="", lastTransitionTime=NOW)},
           "status.admissionChecks", "8"),
    status("a check's state is known",
           {"admissionChecks": [{"name": "a", "state": "Maybe", "message": "", "lastTransitionTime": NOW}]},
           "status.admissionChecks[0].state"),
    status("a check has a message", {"admissionChecks": [{"name": "a", "state": "Ready", "lastTransitionTime": NOW}]},
           "status.admissionChecks[0].message"),
    status("a check's message is bounded", {"admissionChecks": [
        {"name": "a", "state": "Ready", "message": "a" * 32769, "lastTransitionTime": NOW}]},
        "status.admissionChecks[0].message", "32768"),
    status("an update's tolerations are checked as a flavor's", {"admissionChecks": [
        {"name": "a", "state": "Ready", "message": "", "lastTransitionTime": NOW, "podSetUpdates": [
            {"name": "main", "tolerations": [{"operator": "Equal"}]}]}]},
        "status.admissionChecks[0].podSetUpdates[0].tolerations[0].operator"),
    status("at most 8 tolerations in an update", {"admissionChecks": [
        {"name": "a", "state": "Ready", "message": "", "lastTransitionTime": NOW, "podSetUpdates": [
            {"name": "main", "tolerations": [{"key": f"k{i}"} for i in range(9)]}]}]},
        "status.admissionChecks[0].podSetUpdates[0].tolerations", "8"),
    status("at most 18 updates in a check", {"admissionChecks": [
        {"name": "a", "state": "Ready", "message": "", "lastTransitionTime": NOW, "podSetUpdates": many(19)}]},
        "status.admissionChecks[0].podSetUpdates", "18"),
    status("requests of at most 18 pod sets", {"resourceRequests": many(19, resources={})},
           "status.resourceRequests", "18"),
    status("an eviction stands once for its reason and cause", {"schedulingStats": {"evictions": [
        {"reason": "Preempted", "underlyingCause": "", "count": 1}] * 2}},
        "status.schedulingStats.evictions[1]", "Duplicate"),
    status("at most 256 kinds of evictions", {"schedulingStats": {"evictions": [
        {"reason": f"R{i}", "underlyingCause": "", "count": 1} for i in range(257)]}},
        "status.schedulingStats.evictions", "256"),
    status("at most 20 nominated clusters", {"nominatedClusterNames": [f"c{i}" for i in range(21)]},
           "status.nominatedClusterNames", "20"),
    status("a cluster's name has at most 256 characters", {"clusterName": "a" * 257}, "status.clusterName", "256"),
    status("a cluster is nominated or chosen", {"clusterName": "a", "nominatedClusterNames": ["a"]},
           "status.clusterName", "mutually exclusive"),
    status("a chosen cluster with an empty list", {"clusterName": "a", "nominatedClusterNames": []}),
    status("at most 8 unhealthy nodes", {"unhealthyNodes": many(9)}, "status.unhealthyNodes", "8"),
    status("an unhealthy node stands once", {"unhealthyNodes": [{"name": "a"}] * 2}, "status.unhealthyNodes[1]"),
    status("at most 8 states of preemption gates",
           {"preemptionGates": many(9, position="Open", lastTransitionTime=NOW)}, "status.preemptionGates", "8"),
    status("a preemption gate is open or closed",
           {"preemptionGates": [{"name": "a", "position": "Ajar", "lastTransitionTime": NOW}]},
           "status.preemptionGates[0].position"),
    # ---- WorkloadPriorityClass
    Create("a priority class", obj("WorkloadPriorityClass", value=-5, description="a" * 2048)),
    refused("a priority class has a value", obj("WorkloadPriorityClass"), "value"),
    refused("a class's value is an int32", obj("WorkloadPriorityClass", value=2**31), "value"),
    refused("a description has at most 2048 characters",
            obj("WorkloadPriorityClass", value=1, description="a" * 2049), "description", "2048"),
    # ---- AdmissionCheck
    Create("a check with parameters", obj("AdmissionCheck", {
        "controllerName": "example.com/c", "parameters": {"apiGroup": "example.com", "kind": "Config", "name": "a"}})),
    Create("a check without parameters", obj("AdmissionCheck", {"controllerName": "c"})),
    refused("a check has a controller", obj("AdmissionCheck", {}), "spec.controllerName"),
    refused("a controller has a name", obj("AdmissionCheck", {"controllerName": ""}), "spec.controllerName"),
    refused("a controller's name has at most 253 characters", obj("AdmissionCheck", {"controllerName": "a" * 254}),
            "spec.controllerName", "253"),
    *(
        refused(f"parameters: {name} is checked",
                obj("AdmissionCheck", {"controllerName": "c", "parameters": {
                    "apiGroup": "example.com", "kind": "Config", "name": "a", name: value}}), f"spec.parameters.{name}")
        for name, value in (("apiGroup", ""), ("apiGroup", "a" * 254), ("apiGroup", "A b"), ("kind", ""),
                            ("kind", "K" * 64), ("name", ""), ("name", "a" * 64))
    ),
    status("a check's condition", {"conditions": [condition("Active")]},
           of=obj("AdmissionCheck", {"controllerName": "c"})),
    # ---- Topology
    Create("a topology", topology("cloud.example.com/block", "rack", "kubernetes.io/hostname")),
    refused("a topology has levels", topology(), "spec.levels"),
    refused("a topology has at most 16 levels", topology(*(f"l{i}" for i in range(17))), "spec.levels", "16"),
    refused("levels are unique", topology("rack", "rack"), "spec.levels", "must be unique"),
    refused("the host is the lowest level", topology("kubernetes.io/hostname", "rack"), "spec.levels",
            "kubernetes.io/hostname"),
    refused("a level is a label key", topology("a b"), "spec.levels[0].nodeLabel"),
    refused("a level has a label", topology(""), "spec.levels[0].nodeLabel"),
    refused("a level's label has at most 316 characters", topology("a" * 317), "spec.levels[0].nodeLabel", "316"),
    # ---- ProvisioningRequestConfig
    Create("a provisioning config", obj("ProvisioningRequestConfig", {
        **PROVISIONING, "parameters": {"a": "b"}, "managedResources": ["cpu"],
        "podSetUpdates": {"nodeSelector": [{"key": "a/b", "valueFromProvisioningClassDetail": "d"}]},
        "podSetMergePolicy": "IdenticalPodTemplates"})),
    *(
        refused(f"provisioning: {path}", obj("ProvisioningRequestConfig", {**PROVISIONING, **spec}), f"spec.{path}")
        for path, spec in (
            ("provisioningClassName", {"provisioningClassName": "A"}),
            ("parameters", {"parameters": {f"p{i}": "" for i in range(101)}}),
            ("parameters.a", {"parameters": {"a": "b" * 256}}),
            ("managedResources", {"managedResources": [f"r{i}" for i in range(101)]}),
            ("managedResources[1]", {"managedResources": ["cpu", "cpu"]}),
            ("podSetUpdates.nodeSelector", {"podSetUpdates": {"nodeSelector": [
                {"key": f"k{i}", "valueFromProvisioningClassDetail": "d"} for i in range(9)]}}),
            ("podSetUpdates.nodeSelector[0].key", {"podSetUpdates": {"nodeSelector": [
                {"key": "a b", "valueFromProvisioningClassDetail": "d"}]}}),
            ("podSetUpdates.nodeSelector[0].valueFromProvisioningClassDetail",
             {"podSetUpdates": {"nodeSelector": [{"key": "a"}]}}),
            ("podSetMergePolicy", {"podSetMergePolicy": "All"}),
        )
    ),
    refused("a provisioning class is required", obj("ProvisioningRequestConfig", {}), "spec.provisioningClassName"),
    # ---- MultiKueue
    Create("a config of worker clusters",
           obj("MultiKueueConfig", {"clusters": ["b", "a"], "quotaManagement": "Manual"})),
    refused("a config has clusters", obj("MultiKueueConfig", {"clusters": []}), "spec.clusters"),
    refused("a config has at most 20 clusters", obj("MultiKueueConfig", {"clusters": [f"c{i}" for i in range(21)]}),
            "spec.clusters", "20"),
    refused("clusters are unique", obj("MultiKueueConfig", {"clusters": ["a", "b", "a"]}), "spec.clusters", "unique"),
    refused("an unknown quota management", obj("MultiKueueConfig", {"clusters": ["a"], "quotaManagement": "Mixed"}),
            "spec.quotaManagement"),
    Create("a worker cluster by kubeconfig",
           obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Path"}}})),
    Create("a worker cluster by profile",
           obj("MultiKueueCluster", {"clusterSource": {"clusterProfileRef": {"name": "p"}}})),
    refused("a cluster has one source, not two", obj("MultiKueueCluster", {"clusterSource": {
        "clusterProfileRef": {"name": "p"}, "kubeConfig": {"location": "s"}}}), "spec.clusterSource", "exactly one"),
    refused("a cluster has one source, not none", obj("MultiKueueCluster", {"clusterSource": {}}),
            "spec.clusterSource", "exactly one"),
    refused("a kubeconfig is somewhere", obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": ""}}}),
            "spec.clusterSource.kubeConfig.location"),
    refused("a location has at most 256 characters",
            obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "a" * 257}}}),
            "spec.clusterSource.kubeConfig.location", "256"),
    refused("an unknown kind of location", obj("MultiKueueCluster", {"clusterSource": {
        "kubeConfig": {"location": "s", "locationType": "URL"}}}), "spec.clusterSource.kubeConfig.locationType"),
    status("a worker cluster's condition", {"conditions": [condition("Active")]},
           of=obj("MultiKueueCluster", {"clusterSource": {"clusterProfileRef": {"name": "p"}}})),
]  # fmt: skip


Put = Callable[..., Object]


@pytest.fixture
def put(api: Api) -> Iterator[Put]:
    """Creates an object, with its status, and takes it away after the test: all cases use the same names."""
    made: list[Object] = []

    def create(wanted: Object, status: Object | None = None) -> Object:
        made.append(api.create(wanted))
        return made[-1] if status is None else change(api, made[-1], {"status": status}, "status")

    yield create
    for stored in made:
        api.delete(stored["kind"], stored["metadata"]["name"], stored["metadata"].get("namespace"))


def change(api: Api, old: Object, patch: Object, sub: str | None = None) -> Object:
    meta = old["metadata"]
    return api.patch(old["kind"], meta["name"], patch, meta.get("namespace"), sub=sub)


@pytest.mark.parametrize("case", CREATES, ids=lambda case: case.id)
def test_create(api: Api, put: Put, case: Create) -> None:
    def write() -> Object:
        return put(case.object) if case.status is None else change(api, stored, {"status": case.status}, "status")

    stored = {} if case.status is None else put(case.object)
    if not case.want:
        assert write().get("status") == case.status
        return
    with pytest.raises(ApiError) as refusal:
        write()
    assert refusal.value.status == 422
    assert [part for part in case.want if part not in refusal.value.message] == [], refusal.value.message


# ------------------------------------------------------------------ updates


@dataclass(frozen=True)
class Update:
    """A merge patch of an object that has this status."""

    id: str
    object: Object
    patch: Object
    want: tuple[str, ...] = ()
    status: Object | None = field(default=None)
    sub: str | None = None


HOSTS = topology("rack", "kubernetes.io/hostname")
WITH_CLASS = workload(priority=1, priorityClassRef=REF)
WITH_POD_CLASS = workload(priority=1, priorityClassRef=POD_REF)
OTHER_NAME = {"spec": {"priorityClassRef": {"name": "other"}}}

UPDATES = [
    Update("a local queue's cluster queue never changes", obj("LocalQueue", {"clusterQueue": "a"}),
           {"spec": {"clusterQueue": "b"}}, ("spec.clusterQueue", "field is immutable")),
    Update("a local queue may be stopped", obj("LocalQueue", {"clusterQueue": "a"}), {"spec": {"stopPolicy": "Hold"}}),
    Update("a queueing strategy may change", cluster_queue(), {"spec": {"queueingStrategy": "StrictFIFO"}}),
    Update("a check's controller never changes", obj("AdmissionCheck", {"controllerName": "a"}),
           {"spec": {"controllerName": "b"}}, ("spec.controllerName", "field is immutable")),
    Update("a topology may be set later", flavor(nodeLabels={"a": "b"}), {"spec": {"topologyName": "t"}}),
    Update("a topology never changes", flavor(nodeLabels={"a": "b"}, topologyName="t"),
           {"spec": {"topologyName": "u"}}, ("spec.topologyName", "immutable")),
    Update("a topology is never unset", flavor(nodeLabels={"a": "b"}, topologyName="t"),
           {"spec": {"topologyName": None}}, ("spec.topologyName", "immutable")),
    Update("other fields of a flavor with a topology may change", flavor(nodeLabels={"a": "b"}, topologyName="t"),
           {"spec": {"tolerations": [{"operator": "Exists"}]}}),
    Update("levels above hosts may change", HOSTS,
           {"spec": topology("block", "rack", "kubernetes.io/hostname")["spec"]}),
    Update("hosts may not be taken away", HOSTS, {"spec": topology("rack")["spec"]}, ("spec.levels", "immutable")),
    Update("hosts may not be added", topology("rack"), {"spec": HOSTS["spec"]}, ("spec.levels", "immutable")),
    Update("levels without hosts never change", topology("rack"), {"spec": topology("block")["spec"]},
           ("spec.levels", "immutable")),
    Update("a topology may be labelled", topology("rack"), {"metadata": {"labels": {"a": "b"}}}),
    # ---- Workload
    Update("without quota the queue may change", workload(queueName="a"), {"spec": {"queueName": "b"}}),
    Update("without quota the class may go", WITH_CLASS, {"spec": {"priorityClassRef": None}}),
    Update("with quota the queue stays", workload(queueName="a"), {"spec": {"queueName": "b"}},
           ("spec.queueName", "immutable"), RESERVED),
    Update("with quota the queue does not go", workload(queueName="a"), {"spec": {"queueName": None}},
           ("spec.queueName", "immutable"), RESERVED),
    Update("with quota a queue does not come", workload(), {"spec": {"queueName": "a"}},
           ("spec.queueName", "immutable"), RESERVED),
    Update("a workload with quota may be deactivated", workload(queueName="a"), {"spec": {"active": False}},
           (), RESERVED),
    Update("with quota a class does not come", workload(priority=1), {"spec": {"priorityClassRef": REF}},
           ("spec.priorityClassRef", "immutable"), RESERVED),
    Update("with quota a class does not go", WITH_CLASS, {"spec": {"priorityClassRef": None}},
           ("spec.priorityClassRef", "immutable"), RESERVED),
    Update("with quota the kind of a class stays", WITH_CLASS, {"spec": {"priorityClassRef": POD_REF}},
           ("spec.priorityClassRef", "immutable"), RESERVED),
    Update("with quota the name of a workload class may change", WITH_CLASS, OTHER_NAME, (), RESERVED),
    Update("with quota the name of a pod class stays", WITH_POD_CLASS, OTHER_NAME,
           ("spec.priorityClassRef", "immutable"), RESERVED),
    Update("without quota the name of a pod class may change", WITH_POD_CLASS, OTHER_NAME),
    Update("with quota the priority may change", WITH_CLASS, {"spec": {"priority": 9}}, (), RESERVED),
    Update("the execution time may change while quota is only reserved", workload(maximumExecutionTimeSeconds=5),
           {"spec": {"maximumExecutionTimeSeconds": 6}}, (), RESERVED),
    Update("the execution time stays while admitted", workload(maximumExecutionTimeSeconds=5),
           {"spec": {"maximumExecutionTimeSeconds": 6}}, ("spec.maximumExecutionTimeSeconds", "immutable"), ADMITTED),
    Update("an execution time does not come while admitted", workload(),
           {"spec": {"maximumExecutionTimeSeconds": 6}}, ("spec.maximumExecutionTimeSeconds", "immutable"), ADMITTED),
    Update("quota may be taken back", workload(queueName="a"),
           {"status": {"conditions": [condition("QuotaReserved", "False")], "admission": None}}, (), ADMITTED,
           "status"),
    Update("a chosen cluster stays", workload(), {"status": {"clusterName": "b"}},
           ("status.clusterName", "immutable"), {"clusterName": "a"}, "status"),
    Update("a chosen cluster may be cleared", workload(), {"status": {"clusterName": None}}, (),
           {"clusterName": "a"}, "status"),
    Update("a nominated cluster is chosen", workload(),
           {"status": {"clusterName": "a", "nominatedClusterNames": None}}, (), {"nominatedClusterNames": ["a"]},
           "status"),
    Update("a spec write leaves the status", workload(), {"spec": {"active": False}, "status": {"clusterName": "z"}},
           (), {"clusterName": "a"}),
]  # fmt: skip


@pytest.mark.parametrize("case", UPDATES, ids=lambda case: case.id)
def test_update(api: Api, put: Put, case: Update) -> None:
    stored = put(case.object, case.status)
    if not case.want:
        changed = change(api, stored, case.patch, case.sub)
        assert changed["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"]
        if case.sub is None and case.status is not None:
            assert changed["status"] == case.status
        return
    with pytest.raises(ApiError) as refusal:
        change(api, stored, case.patch, case.sub)
    assert refusal.value.status == 422
    assert [part for part in case.want if part not in refusal.value.message] == [], refusal.value.message


# ------------------------------------------------------------------ defaults, columns, names

RETRY = {"backoffLimitCount": 3, "backoffBaseSeconds": 60, "backoffMaxSeconds": 1800}
PREEMPTION = {
    "reclaimWithinCohort": "Never",
    "withinClusterQueue": "Never",
    "borrowWithinCohort": {"policy": "Never"},
}
FUNGIBILITY = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"}
BARE = {"spec": {"containers": []}}

DEFAULTS = [
    ("a cluster queue", cluster_queue(), {
        "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None", "flavorFungibility": FUNGIBILITY,
        "preemption": PREEMPTION}),
    ("half a fungibility", cluster_queue(flavorFungibility={"whenCanBorrow": "TryNextFlavor"}), {
        "queueingStrategy": "BestEffortFIFO", "stopPolicy": "None", "preemption": PREEMPTION,
        "flavorFungibility": {**FUNGIBILITY, "whenCanBorrow": "TryNextFlavor"}}),
    ("a weight", obj("Cohort", {"fairSharing": {}}), {"fairSharing": {"weight": 1}}),
    ("a local queue", obj("LocalQueue", {"clusterQueue": "a"}), {"clusterQueue": "a", "stopPolicy": "None"}),
    ("a pod set", workload({"template": BARE}), {
        "active": True, "podSets": [{"name": "main", "count": 1, "template": BARE}]}),
    ("a count of none", workload(pod_set(count=0, template=BARE)), {
        "active": True, "podSets": [{"name": "main", "count": 0, "template": BARE}]}),
    ("a retry strategy", obj("ProvisioningRequestConfig", PROVISIONING), {**PROVISIONING, "retryStrategy": RETRY}),
    ("half a retry strategy",
     obj("ProvisioningRequestConfig", {**PROVISIONING, "retryStrategy": {"backoffLimitCount": 0}}),
     {**PROVISIONING, "retryStrategy": {**RETRY, "backoffLimitCount": 0}}),
    ("a location", obj("MultiKueueCluster", {"clusterSource": {"kubeConfig": {"location": "s"}}}),
     {"clusterSource": {"kubeConfig": {"location": "s", "locationType": "Secret"}}}),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "spec"), [case[1:] for case in DEFAULTS], ids=[case[0] for case in DEFAULTS])
def test_default_as_stored(api: Api, put: Put, wanted: Object, spec: Object) -> None:
    put(wanted)
    assert api.get(wanted["kind"], "x", wanted["metadata"].get("namespace"))["spec"] == spec


def test_an_assignment_is_of_the_main_pod_set_by_default(api: Api, put: Put) -> None:
    stored = put(workload(), {"admission": {"clusterQueue": "cq", "podSetAssignments": [{"count": 2}]}})
    assert stored["status"]["admission"]["podSetAssignments"] == [{"name": "main", "count": 2}]


def test_a_template_is_stored_as_it_came(api: Api, put: Put) -> None:
    template = {
        "metadata": {"creationTimestamp": None, "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": 0.5}}}], "future": {"deep": [1, None]}},
    }
    put(workload(pod_set(template=copy.deepcopy(template))))
    assert api.get("Workload", "x", "default")["spec"]["podSets"][0]["template"] == template


def test_unknown_fields_are_pruned(api: Api, put: Put) -> None:
    put(cluster_queue(unheardOf=1))
    assert "unheardOf" not in api.get("ClusterQueue", "x")["spec"]


COLUMNS = {
    "ClusterQueue": (cluster_queue(cohortName="co"), {"pendingWorkloads": 3, "admittedWorkloads": 2},
                     {"COHORT": "co", "PENDING": "3"}, {"STRATEGY": "BestEffortFIFO", "ADMITTED": "2"}),
    "LocalQueue": (obj("LocalQueue", {"clusterQueue": "cq"}), {"pendingWorkloads": 3, "admittedWorkloads": 2},
                   {"CLUSTERQUEUE": "cq", "PENDING": "3", "ADMITTED": "2"}, {}),
    "Workload": (workload(queueName="q"),
                 {**ADMITTED, "conditions": [*ADMITTED["conditions"], condition("Finished")]},
                 {"QUEUE": "q", "RESERVED": "cq", "ADMITTED": "True", "FINISHED": "True", "AGE": "s"}, {}),
    "WorkloadPriorityClass": (obj("WorkloadPriorityClass", value=42), None, {"VALUE": "42"}, {}),
    "MultiKueueCluster": (obj("MultiKueueCluster", {"clusterSource": {"clusterProfileRef": {"name": "p"}}}),
                          {"conditions": [condition("Active")]}, {"CONNECTED": "True", "AGE": "s"}, {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", COLUMNS)
def test_printer_columns(control_plane: ControlPlane, put: Put, kind: str) -> None:
    wanted, status, plain, wide = COLUMNS[kind]
    put(wanted, status)
    for columns, flags in ((plain, ()), (plain | wide, ("-o", "wide"))):
        header, row = control_plane.kubectl("get", kind, *flags).stdout.splitlines()
        for column, value in columns.items():
            at = header.index(column)
            assert row[at:].split()[0].endswith(value), (header, row)
        if columns is plain:
            assert [column for column in wide if column in header.split() and column not in plain] == []


SHORT = {
    "ClusterQueue": ["cq"], "Cohort": ["co"], "LocalQueue": ["queue", "queues", "lq"],
    "ResourceFlavor": ["flavor", "flavors", "rf"], "Workload": ["kwl", "kueueworkload", "kueueworkloads"],
    "WorkloadPriorityClass": ["wpc"], "AdmissionCheck": ["ac"], "Topology": ["topo"],
    "ProvisioningRequestConfig": ["prc"], "MultiKueueConfig": ["mkconf"], "MultiKueueCluster": ["mkc"],
}  # fmt: skip
WITH_STATUS = {"ClusterQueue", "Cohort", "LocalQueue", "Workload", "AdmissionCheck", "MultiKueueCluster"}


def test_discovery(api: Api) -> None:
    resources = api.request("GET", f"/apis/{KUEUE}")["resources"]
    kinds = {entry["kind"]: entry for entry in resources if "/" not in entry["name"]}
    assert {kind: entry.get("shortNames", []) for kind, entry in kinds.items()} == SHORT
    assert {kind for kind, entry in kinds.items() if entry["namespaced"]} == {"LocalQueue", "Workload"}
    assert {entry["kind"] for entry in resources if entry["name"].endswith("/status")} == WITH_STATUS
    assert [kind for kind, entry in kinds.items() if entry.get("categories")] == []


def test_one_version_is_served(api: Api) -> None:
    versions = api.request("GET", "/apis/kueue.x-k8s.io")["versions"]
    assert [entry["version"] for entry in versions] == ["v1beta2"]


def test_workloads_are_selected_by_their_cluster_queue(api: Api, put: Put) -> None:
    put(workload(), RESERVED)
    other = workload()
    other["metadata"]["name"] = "pending"
    put(other)
    path = Api.path("Workload", "default")
    for queue, want in (("cq", ["x"]), ("nobody", [])):
        found = api.request("GET", path, params={"fieldSelector": f"status.admission.clusterQueue={queue}"})["items"]
        assert [entry["metadata"]["name"] for entry in found] == want


def test_a_create_does_not_set_the_status(api: Api, put: Put) -> None:
    assert "status" not in put(workload() | {"status": {"clusterName": "a"}})


def test_admission_checks_of_several_writers_merge(api: Api, put: Put) -> None:
    """Server-side apply: each check's controller owns its own entry."""
    put(workload())
    path = Api.path("Workload", "default", "x", "status")
    for name in ("a", "b"):
        entry = {"name": name, "state": "Ready", "message": "", "lastTransitionTime": NOW}
        body = {"apiVersion": KUEUE, "kind": "Workload", "status": {"admissionChecks": [entry]}}
        api.request("PATCH", path, body, params={"fieldManager": name}, content_type="application/apply-patch+yaml")
    checks = api.get("Workload", "x", "default")["status"]["admissionChecks"]
    assert [entry["name"] for entry in checks] == ["a", "b"]


def test_kinds_of_the_files_and_of_the_kustomization_agree() -> None:
    folder = webhook_config() / "crds"
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    kinds = {yaml.safe_load((folder / name).read_text())["spec"]["names"]["kind"] for name in listed}
    assert kinds == set(SHORT)
