"""What an object of one version is in the other, and what has no form there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from admission.webhook import conversion

Object = dict[str, Any]

V1BETA1, V1BETA2 = "kueue.x-k8s.io/v1beta1", "kueue.x-k8s.io/v1beta2"


def convert(obj: Object, version: str) -> Object:
    review = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "request": {"uid": "u", "desiredAPIVersion": version, "objects": [obj]},
    }
    response = msgspec.json.decode(conversion.answer(msgspec.json.encode(review)))["response"]
    assert response["result"]["status"] == "Success", response["result"]
    (converted,) = response["convertedObjects"]
    return converted


def up(obj: Object) -> Object:
    return convert(obj, V1BETA2)


def down(obj: Object) -> Object:
    return convert(obj, V1BETA1)


def old(kind: str, **parts: Any) -> Object:
    return {"apiVersion": V1BETA1, "kind": kind, "metadata": {"name": "x"}, **parts}


def new(kind: str, **parts: Any) -> Object:
    return {**old(kind, **parts), "apiVersion": V1BETA2}


# ------------------------------------------------------------------ by table


@dataclass(frozen=True)
class Case:
    """One object in both versions; `one_way` ones do not come back the same."""

    id: str
    old: Object
    new: Object
    one_way: str | None = None


def both(id: str, old: Object, new: Object) -> Case:  # noqa: A002
    return Case(id, old, new)


def only_up(id: str, old: Object, new: Object) -> Case:  # noqa: A002
    return Case(id, old, new, "up")


def only_down(id: str, old: Object, new: Object) -> Case:  # noqa: A002
    return Case(id, old, new, "down")


def placed(**assignment: Any) -> Object:
    names = {"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "4"}, "count": 4}
    return {"admission": {"clusterQueue": "cq", "podSetAssignments": [{**names, "topologyAssignment": assignment}]}}


RULES = {"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [{"name": "cpu", "nominalQuota": "9"}]}]}
STRATEGY = {"admissionChecks": [{"name": "a", "onFlavors": ["f"]}, {"name": "b"}]}
USAGE = [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]
QUEUE_REF = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
POD_REF = {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "high"}
PODS = {"name": "main", "count": 2, "template": {"metadata": {"creationTimestamp": None}, "spec": {"x": [1.5, None]}}}

CASES = [
    # ---- ClusterQueue
    both("a queue without a spec", old("ClusterQueue"), new("ClusterQueue")),
    both("a null spec stays null", old("ClusterQueue", spec=None), new("ClusterQueue", spec=None)),
    both("the cohort has another name", old("ClusterQueue", spec={"cohort": "co", "resourceGroups": [RULES]}),
         new("ClusterQueue", spec={"cohortName": "co", "resourceGroups": [RULES]})),
    both("no cohort is no cohort", old("ClusterQueue", spec={"stopPolicy": "Hold"}),
         new("ClusterQueue", spec={"stopPolicy": "Hold"})),
    both("a strategy of checks is the same in both", old("ClusterQueue", spec={"admissionChecksStrategy": STRATEGY}),
         new("ClusterQueue", spec={"admissionChecksStrategy": STRATEGY})),
    only_up("plain checks are for all flavors", old("ClusterQueue", spec={"admissionChecks": ["b", "a"]}),
            new("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "b"}, {"name": "a"}]}})),
    only_up("plain checks win over a strategy",
            old("ClusterQueue", spec={"admissionChecks": ["c"], "admissionChecksStrategy": STRATEGY}),
            new("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}]}})),
    only_up("no plain checks leave the strategy",
            old("ClusterQueue", spec={"admissionChecks": [], "admissionChecksStrategy": STRATEGY}),
            new("ClusterQueue", spec={"admissionChecksStrategy": STRATEGY})),
    only_up("a check that is named twice is one check", old("ClusterQueue", spec={"admissionChecks": ["a", "b", "a"]}),
            new("ClusterQueue", spec={"admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b"}]}})),
    only_up("Borrow and Preempt may stop the search",
            old("ClusterQueue", spec={"flavorFungibility": {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}}),
            new("ClusterQueue", spec={"flavorFungibility": {
                "whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}})),
    both("other fungibility stays",
         old("ClusterQueue", spec={"flavorFungibility": {
             "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor",
             "preference": "BorrowingOverPreemption"}}),
         new("ClusterQueue", spec={"flavorFungibility": {
             "whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor",
             "preference": "BorrowingOverPreemption"}})),
    only_up("the status of pending workloads is dropped",
            old("ClusterQueue", status={"pendingWorkloads": 1, "pendingWorkloadsStatus": {"lastChangeTime": "t"}}),
            new("ClusterQueue", status={"pendingWorkloads": 1})),
    only_down("concurrent admission is dropped", old("ClusterQueue", spec={"cohort": "c"}),
              new("ClusterQueue", spec={"cohortName": "c", "concurrentAdmissionPolicy": {"migration": {"mode": "m"}}})),
    # ---- Cohort and others without a difference
    *(
        both(f"a {kind} is the same in both", old(kind, spec={"parentName": "p", "anything": [1]}, value=3),
             new(kind, spec={"parentName": "p", "anything": [1]}, value=3))
        for kind in ("Cohort", "ResourceFlavor", "WorkloadPriorityClass", "Topology", "ProvisioningRequestConfig")
    ),
    # ---- LocalQueue
    both("the usage of a local queue has another name",
         old("LocalQueue", spec={"clusterQueue": "cq"}, status={"flavorUsage": USAGE, "flavorsReservation": USAGE}),
         new("LocalQueue", spec={"clusterQueue": "cq"}, status={"flavorsUsage": USAGE, "flavorsReservation": USAGE})),
    both("fair sharing of a local queue stays",
         old("LocalQueue", status={"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {
             "consumedResources": {"cpu": "1"}, "lastUpdate": "t"}}}),
         new("LocalQueue", status={"fairSharing": {"weightedShare": 1, "admissionFairSharingStatus": {
             "consumedResources": {"cpu": "1"}, "lastUpdate": "t"}}})),
    only_up("the flavors of a local queue are dropped",
            old("LocalQueue", status={"flavorUsage": USAGE, "flavors": [{"name": "f"}]}),
            new("LocalQueue", status={"flavorsUsage": USAGE})),
    # ---- Workload
    both("a priority of the queues",
         old("Workload", spec={"priorityClassName": "high", "priority": 3,
                               "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}),
         new("Workload", spec={"priorityClassRef": QUEUE_REF, "priority": 3})),
    both("a priority of pods",
         old("Workload", spec={"priorityClassName": "high", "priority": 0,
                               "priorityClassSource": "scheduling.k8s.io/priorityclass"}),
         new("Workload", spec={"priorityClassRef": POD_REF, "priority": 0})),
    only_up("a name without a source is no priority class",
            old("Workload", spec={"priorityClassName": "high", "priority": 3, "priorityClassSource": ""}),
            new("Workload", spec={"priority": 3})),
    only_up("a name with no word on its source is no priority class",
            old("Workload", spec={"priorityClassName": "high", "priority": 3}), new("Workload", spec={"priority": 3})),
    only_up("a source without a name is no priority class",
            old("Workload", spec={"priorityClassSource": "scheduling.k8s.io/priorityclass"}), new("Workload", spec={})),
    both("pod sets go through as they are", old("Workload", spec={"podSets": [PODS], "active": False}),
         new("Workload", spec={"podSets": [PODS], "active": False})),
    only_down("gates of preemption are dropped",
              old("Workload", spec={"active": True}, status={"clusterName": "c"}),
              new("Workload", spec={"active": True, "preemptionGates": [{"name": "g"}]},
                  status={"clusterName": "c", "preemptionGates": [{"name": "g", "position": "Open"}]})),
    only_down("constraints of several slice levels are dropped, and nothing beside them",
              old("Workload", spec={"podSets": [{**PODS, "topologyRequest": {"required": "rack"}}, PODS]}),
              new("Workload", spec={"podSets": [{**PODS, "topologyRequest": {
                  "required": "rack", "podsetSliceRequiredTopologyConstraints": [{"topology": "r", "size": 2}]}},
                  PODS]})),
    both("the misspelled time", old("Workload", status={"accumulatedPastExexcutionTimeSeconds": 0}),
         new("Workload", status={"accumulatedPastExecutionTimeSeconds": 0})),
    both("an admission without topology", old("Workload", status={"admission": {"clusterQueue": "cq"}}),
         new("Workload", status={"admission": {"clusterQueue": "cq"}})),
    both("no admission any more", old("Workload", status={"admission": None}),
         new("Workload", status={"admission": None})),
    both("domains are compact now",
         old("Workload", status=placed(levels=["block", "rack"], domains=[
             {"values": ["b1", "r-1-x"], "count": 1}, {"values": ["b1", "r-2-x"], "count": 3}])),
         new("Workload", status=placed(levels=["block", "rack"], slices=[{
             "domainCount": 2, "podCounts": {"individual": [1, 3]}, "valuesPerLevel": [
                 {"universal": "b1"}, {"individual": {"prefix": "r-", "suffix": "-x", "roots": ["1", "2"]}}]}]))),
    both("one domain is universal",
         old("Workload", status=placed(levels=["host"], domains=[{"values": ["n1"], "count": 8}])),
         new("Workload", status=placed(levels=["host"], slices=[{
             "domainCount": 1, "podCounts": {"universal": 8}, "valuesPerLevel": [{"universal": "n1"}]}]))),
    only_down("slices are told apart by no one",
              old("Workload", status=placed(levels=["host"], domains=[
                  {"values": ["n1"], "count": 2}, {"values": ["n2"], "count": 2}, {"values": ["m"], "count": 1}])),
              new("Workload", status=placed(levels=["host"], slices=[
                  {"domainCount": 2, "podCounts": {"universal": 2},
                   "valuesPerLevel": [{"individual": {"prefix": "n", "roots": ["1", "2"]}}]},
                  {"domainCount": 1, "podCounts": {"universal": 1}, "valuesPerLevel": [{"universal": "m"}]}]))),
    both("a placement nowhere", old("Workload", status=placed(levels=["host"], domains=[])),
         new("Workload", status=placed(levels=["host"], slices=[]))),
    # ---- AdmissionCheck, MultiKueue
    only_up("the retry delay is dropped",
            old("AdmissionCheck", spec={"controllerName": "c", "retryDelayMinutes": 15}),
            new("AdmissionCheck", spec={"controllerName": "c"})),
    only_down("who manages the quota is dropped", old("MultiKueueConfig", spec={"clusters": ["b", "a"]}),
              new("MultiKueueConfig", spec={"clusters": ["b", "a"], "quotaManagement": "Automated"})),
    both("a kubeconfig is a source",
         old("MultiKueueCluster", spec={"kubeConfig": {"location": "l", "locationType": "Path"}}),
         new("MultiKueueCluster", spec={"clusterSource": {"kubeConfig": {"location": "l", "locationType": "Path"}}})),
    both("a profile is a source", old("MultiKueueCluster", spec={"clusterProfileRef": {"name": "p"}}),
         new("MultiKueueCluster", spec={"clusterSource": {"clusterProfileRef": {"name": "p"}}})),
    only_up("an empty location is no kubeconfig",
            old("MultiKueueCluster", spec={"kubeConfig": {"location": "", "locationType": "Secret"},
                                           "clusterProfileRef": {"name": "p"}}),
            new("MultiKueueCluster", spec={"clusterSource": {"clusterProfileRef": {"name": "p"}}})),
    only_up("no source at all", old("MultiKueueCluster", spec={"kubeConfig": {"location": ""}}),
            new("MultiKueueCluster", spec={})),
]  # fmt: skip


@pytest.mark.parametrize("case", [case for case in CASES if case.one_way != "down"], ids=lambda case: case.id)
def test_up(case: Case) -> None:
    assert up(case.old) == case.new


@pytest.mark.parametrize("case", [case for case in CASES if case.one_way != "up"], ids=lambda case: case.id)
def test_down(case: Case) -> None:
    assert down(case.new) == case.old


@dataclass(frozen=True)
class Refusal:
    id: str
    object: Object
    want: str


REFUSALS = [
    Refusal("a spec is an object", old("ClusterQueue", spec=[]), "ClusterQueue x: spec: expected an object"),
    Refusal("checks are a list", old("ClusterQueue", spec={"admissionChecks": "a"}), "spec.admissionChecks: expected"),
    Refusal("checks are names", old("ClusterQueue", spec={"admissionChecks": [{}]}), "spec.admissionChecks: expected"),
    Refusal("fungibility is an object", old("ClusterQueue", spec={"flavorFungibility": "Borrow"}),
            "spec.flavorFungibility: expected an object, got 'Borrow'"),
    Refusal("an unknown source", old("Workload", spec={"priorityClassName": "a", "priorityClassSource": "b"}),
            "spec.priorityClassSource: 'b' is not one of kueue.x-k8s.io/workloadpriorityclass, scheduling"),
    Refusal("a source that is no text", old("Workload", spec={"priorityClassName": "a", "priorityClassSource": ["b"]}),
            "spec.priorityClassSource: a list is not one of"),
    Refusal("an unknown reference", new("Workload", spec={"priorityClassRef": {"group": "g", "kind": "k"}}),
            "spec.priorityClassRef: v1beta1 has no word for kind 'k' of group 'g'"),
    Refusal("a reference to nowhere", new("Workload", spec={"priorityClassRef": {"group": ["g"], "kind": {}}}),
            "spec.priorityClassRef: v1beta1 has no word"),
    Refusal("pod sets are a list", new("Workload", spec={"podSets": {}}), "spec.podSets: expected a list, got an obj"),
    Refusal("a pod set is an object", new("Workload", spec={"podSets": [{}, None]}), "spec.podSets[1]: expected an ob"),
    Refusal("a request is an object", new("Workload", spec={"podSets": [{"topologyRequest": 7}]}),
            "spec.podSets[0].topologyRequest: expected an object, got 7"),
    Refusal("an admission is an object", old("Workload", status={"admission": []}), "status.admission: expected"),
    Refusal("a domain has a value for each level",
            old("Workload", status=placed(levels=["a", "b"], domains=[{"values": ["x"], "count": 1}])),
            "status.admission.podSetAssignments[0].topologyAssignment: a domain has as many values as"),
    Refusal("a count is a number",
            old("Workload", status=placed(levels=["a"], domains=[{"values": ["x"], "count": "1"}])),
            "topologyAssignment: Expected `int`, got `str` - at `$.domains[0].count`"),
    Refusal("a slice is an object", new("Workload", status=placed(levels=["a"], slices=[1])), "$.slices[0]"),
    Refusal("a kubeconfig is an object", old("MultiKueueCluster", spec={"kubeConfig": "l"}), "spec.kubeConfig: expe"),
    Refusal("a source is an object", new("MultiKueueCluster", spec={"clusterSource": "l"}), "spec.clusterSource: expe"),
    Refusal("another version", {**old("Workload"), "apiVersion": "kueue.x-k8s.io/v1alpha1"}, "v1alpha1 is not one of"),
    Refusal("another group", {**old("Workload"), "apiVersion": "example.com/v1beta1"}, "example.com/v1beta1 is not"),
    Refusal("no version", {"kind": "Workload"}, "Workload: no version is not one of"),
    Refusal("another kind", old("Pod"), "Pod x: there is no such kind"),
    Refusal("a list", old("WorkloadList", items=[]), "WorkloadList x: there is no such kind"),
    Refusal("no kind", {"apiVersion": V1BETA1}, "an object of no kind: there is no such kind"),
    Refusal("a version that is no text", {**old("Workload"), "apiVersion": 1}, "no version"),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_what_cannot_be_said_is_a_failure_that_says_where(case: Refusal) -> None:
    wanted = V1BETA1 if case.object.get("apiVersion") == V1BETA2 else V1BETA2
    with pytest.raises(AssertionError) as failure:
        convert(case.object, wanted)
    assert case.want in str(failure.value).replace('\\"', '"')


def test_the_same_version_is_the_same_object() -> None:
    for obj in (old("Workload", spec=7), new("Workload", status=[])):
        assert convert(obj, obj["apiVersion"]) == obj
