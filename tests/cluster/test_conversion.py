"""v1beta1 on a real API server: the overlay as it is applied, the webhook that converts, and what clients of it see."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api import v1beta1
from admission.kube.client import connect
from admission.resources import webhook_config
from admission.settings import Muster
from admission.webhook.configuration import ByUrl
from admission.webhook.conversion_publishing import publish_conversion
from tests.cluster import controller_rig as rig
from tests.cluster.old_client import OVERLAY, V1BETA1, Object, Old, group, new, pod_set
from tests.cluster.webhook_process import WebhookProcess, serving
from tests.controlplane.cluster import KINDS, Api, ApiError, ControlPlane
from tests.controlplane.cluster import eventually as soon

pytestmark = pytest.mark.cluster

#: The machine may be busy with other tests.
eventually = partial(soon, seconds=30)

NOW = "2026-01-02T03:04:05Z"
WARNING = '299 - "This version is deprecated. Use v1beta2 instead."'


def point(plane: ControlPlane, address: str, authorities: bytes) -> None:
    """Tell the CRDs where the webhook is, as Muster itself does."""

    async def work() -> None:
        async with await connect(plane.kubeconfig, component="test") as client:
            await publish_conversion(client, ByUrl(address, authorities))

    asyncio.run(work())


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    folder = tmp_path_factory.mktemp("webhook")
    with serving(control_plane, folder, muster=Muster(serve_v1beta1=True)) as process:
        done = control_plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(OVERLAY), check=False)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr, done.stderr
        point(control_plane, process.address, (folder / "certificates" / "ca.crt").read_bytes())
        old = Old(control_plane.api)
        for kind in (each for each, (version, *_) in KINDS.items() if version.startswith("kueue")):
            eventually(lambda kind=kind: old.api.request("GET", old.path(kind, namespace=None)))
        # Until the API server goes by the address that it was just told, it can convert nothing.
        for kind, spec in PROBES.items():
            eventually(lambda kind=kind, spec=spec: old.create(kind, "probe", spec))
        yield process


CONVERTED = ("ClusterQueue", "Cohort", "LocalQueue", "MultiKueueCluster", "Workload")
PROBES: dict[str, Object] = {
    "ClusterQueue": {},
    "Cohort": {},
    "LocalQueue": {"clusterQueue": "probe"},
    "MultiKueueCluster": {"kubeConfig": {"location": "probe"}},
    "Workload": {"podSets": [pod_set()]},
}


@pytest.fixture
def old(api: Api, webhook: WebhookProcess) -> Old:
    return Old(api)


_number = iter(range(10_000))


@pytest.fixture
def name() -> str:
    return f"x{next(_number)}"


def refusal(action: Callable[[], Any], status: int = 422) -> str:
    """The words with which the API server refuses."""
    with pytest.raises(ApiError) as caught:
        action()
    assert caught.value.status == status, str(caught.value)
    return caught.value.message


def condition(type_: str, status: str = "True") -> Object:
    return {"type": type_, "status": status, "reason": type_, "message": "", "lastTransitionTime": NOW}


def admission(**more: Any) -> Object:
    return {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2, **more}]}


# ------------------------------------------------------------------ there and back


def test_a_cluster_queue_there_and_back(old: Old, name: str) -> None:
    fungibility = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
    spec = {"resourceGroups": [group(borrowingLimit=1)], "cohort": "all", "admissionChecks": ["b", "a"],
            "flavorFungibility": fungibility, "namespaceSelector": {}}  # fmt: skip
    made = old.create("ClusterQueue", name, spec)
    # The webhook has seen it as v1beta2 and changed it.
    assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/resource-in-use"]
    assert made["apiVersion"] == V1BETA1
    stored = new(old.api, "ClusterQueue", name)["spec"]
    assert stored["cohortName"] == "all"
    assert stored["admissionChecksStrategy"] == {"admissionChecks": [{"name": "b"}, {"name": "a"}]}
    assert stored["flavorFungibility"] == {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    assert (stored["queueingStrategy"], stored["stopPolicy"]) == ("BestEffortFIFO", "None")
    assert stored.keys().isdisjoint({"cohort", "admissionChecks"})
    read = old.get("ClusterQueue", name)["spec"]
    assert read["cohort"] == "all"
    assert read["admissionChecksStrategy"] == stored["admissionChecksStrategy"]
    assert read.keys().isdisjoint({"cohortName", "admissionChecks"})
    read["cohort"] = "other"
    old.put({**old.get("ClusterQueue", name), "spec": read})
    assert new(old.api, "ClusterQueue", name)["spec"] == {**stored, "cohortName": "other"}
    old.patch("ClusterQueue", name, {"spec": {"cohort": "third", "stopPolicy": "Hold"}})
    assert new(old.api, "ClusterQueue", name)["spec"] == {**stored, "cohortName": "third", "stopPolicy": "Hold"}


def test_a_change_that_changes_nothing_is_no_new_generation(old: Old, name: str) -> None:
    old.create("ClusterQueue", name, {"cohort": "all", "resourceGroups": [group()]})
    before = new(old.api, "ClusterQueue", name)["metadata"]
    old.put(old.get("ClusterQueue", name))
    after = new(old.api, "ClusterQueue", name)["metadata"]
    assert (after["generation"], after["resourceVersion"]) == (before["generation"], before["resourceVersion"])


def test_a_queue_is_applied_by_both_versions(old: Old, name: str) -> None:
    old.apply("ClusterQueue", name, {"cohort": "all"})
    old.api.apply({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": {"name": name},
                   "spec": {"stopPolicy": "Hold"}})  # fmt: skip
    old.apply("ClusterQueue", name, {"cohort": "other"})
    spec = new(old.api, "ClusterQueue", name)["spec"]
    assert (spec["cohortName"], spec["stopPolicy"]) == ("other", "Hold")
    old.apply("ClusterQueue", name, {})
    assert "cohortName" not in new(old.api, "ClusterQueue", name)["spec"]


def test_the_status_of_a_cluster_queue(old: Old, name: str) -> None:
    old.create("ClusterQueue", name, {})
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": "1", "borrowed": "0"}]}]
    counts = {"pendingWorkloads": 3, "reservingWorkloads": 2, "admittedWorkloads": 1}
    status = {**counts, "flavorsUsage": usage, "conditions": [condition("Active")]}
    gone = {"pendingWorkloadsStatus": {"lastChangeTime": NOW, "clusterQueuePendingWorkload": []}}
    old.patch("ClusterQueue", name, {"status": {**status, **gone}}, sub="status")
    assert new(old.api, "ClusterQueue", name)["status"] == status
    assert old.get("ClusterQueue", name)["status"] == status


def test_a_local_queue_there_and_back(old: Old, name: str) -> None:
    old.create("LocalQueue", name, {"clusterQueue": "cq"})
    usage = [{"name": "f", "resources": [{"name": "cpu", "total": "1"}]}]
    status = {"flavorUsage": usage, "flavorsReservation": usage, "flavors": [{"name": "f", "resources": ["cpu"]}]}
    old.patch("LocalQueue", name, {"status": status}, sub="status")
    stored = new(old.api, "LocalQueue", name)
    assert stored["status"] == {"flavorsUsage": usage, "flavorsReservation": usage}
    assert stored["spec"] == {"clusterQueue": "cq", "stopPolicy": "None"}
    assert old.get("LocalQueue", name)["status"] == {"flavorUsage": usage, "flavorsReservation": usage}


def test_a_cohort_there_and_back(old: Old, name: str) -> None:
    spec = {"parentName": "root", "resourceGroups": [group()], "fairSharing": {"weight": "2"}}
    old.create("Cohort", name, spec)
    assert new(old.api, "Cohort", name)["spec"] == old.get("Cohort", name)["spec"] == spec


def test_a_workload_there_and_back(old: Old, name: str) -> None:
    old.create("Workload", name, {
        "queueName": "q", "podSets": [pod_set(topologyRequest={"required": "rack"})], "priority": 5,
        "priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"})  # fmt: skip
    stored = new(old.api, "Workload", name)["spec"]
    assert stored["priorityClassRef"] == {
        "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}  # fmt: skip
    assert stored.keys() == {"queueName", "podSets", "priority", "priorityClassRef", "active"}
    assert stored["podSets"] == [pod_set(topologyRequest={"required": "rack"})]
    domains = [{"values": ["b", f"r{i}"], "count": 1} for i in (1, 2)]
    status = {
        "conditions": [condition("QuotaReserved")], "accumulatedPastExexcutionTimeSeconds": 9,
        "admission": admission(topologyAssignment={"levels": ["block", "rack"], "domains": domains})}  # fmt: skip
    old.patch("Workload", name, {"status": status}, sub="status")
    slices = [{"domainCount": 2, "podCounts": {"universal": 1}, "valuesPerLevel": [
        {"universal": "b"}, {"individual": {"prefix": "r", "roots": ["1", "2"]}}]}]  # fmt: skip
    assert new(old.api, "Workload", name)["status"] == {
        "conditions": [condition("QuotaReserved")], "accumulatedPastExecutionTimeSeconds": 9,
        "admission": admission(topologyAssignment={"levels": ["block", "rack"], "slices": slices})}  # fmt: skip
    assert old.get("Workload", name)["status"] == status
    # The whole object is written back, spec and status, by one who only adds a label.
    labelled = old.get("Workload", name)
    labelled["metadata"]["labels"] = {"seen": "yes"}
    old.put(labelled)
    assert new(old.api, "Workload", name)["spec"] == stored
    assert new(old.api, "Workload", name)["metadata"]["generation"] == 1


def test_what_v1beta1_has_no_words_for_is_not_seen_and_not_kept(old: Old, name: str) -> None:
    constraints = [{"topology": "rack", "size": 2}]
    request = {"required": "block", "podsetSliceRequiredTopologyConstraints": constraints}
    body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"podSets": [pod_set(topologyRequest=request)], "preemptionGates": [{"name": "g"}]}}  # fmt: skip
    stored = old.api.create(body)["spec"]
    seen = old.get("Workload", name)["spec"]
    assert seen["podSets"] == [pod_set(topologyRequest={"required": "block"})]
    assert "preemptionGates" not in seen
    assert new(old.api, "Workload", name)["spec"] == stored
    old.patch("Workload", name, {"metadata": {"labels": {"touched": "yes"}}})
    assert "preemptionGates" not in new(old.api, "Workload", name)["spec"]


def test_a_multikueue_cluster_there_and_back(old: Old, name: str) -> None:
    old.create("MultiKueueCluster", name, {"kubeConfig": {"location": "secret"}})
    kube_config = {"location": "secret", "locationType": "Secret"}
    assert new(old.api, "MultiKueueCluster", name)["spec"] == {"clusterSource": {"kubeConfig": kube_config}}
    profile = {"kubeConfig": {"location": ""}, "clusterProfileRef": {"name": "p"}}
    old.patch("MultiKueueCluster", name, {"spec": profile})
    assert new(old.api, "MultiKueueCluster", name)["spec"] == {"clusterSource": {"clusterProfileRef": {"name": "p"}}}
    assert old.get("MultiKueueCluster", name)["spec"] == {"clusterProfileRef": {"name": "p"}}


def test_kinds_that_the_api_server_converts_itself(old: Old, name: str) -> None:
    old.create("AdmissionCheck", name, {"controllerName": "c", "retryDelayMinutes": 3})
    assert new(old.api, "AdmissionCheck", name)["spec"] == {"controllerName": "c"}
    config = {"clusters": ["b", "a"], "quotaManagement": "Automated"}
    old.api.create({"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "MultiKueueConfig", "metadata": {"name": name},
                    "spec": config})  # fmt: skip
    assert old.get("MultiKueueConfig", name)["spec"] == {"clusters": ["b", "a"]}
    assert new(old.api, "MultiKueueConfig", name)["spec"] == config
    flavor = {"nodeLabels": {"a": "b"}, "nodeTaints": [{"key": "k", "effect": "NoSchedule"}]}
    old.create("ResourceFlavor", name, flavor)
    assert new(old.api, "ResourceFlavor", name)["spec"] == flavor
    old.create("WorkloadPriorityClass", name, value=7)
    assert new(old.api, "WorkloadPriorityClass", name)["value"] == 7
    old.create("ProvisioningRequestConfig", name, {"provisioningClassName": "p"})
    assert new(old.api, "ProvisioningRequestConfig", name)["spec"]["retryStrategy"]["backoffLimitCount"] == 3


def test_lists_and_watches_are_converted(old: Old, name: str) -> None:
    for letter in "ab":
        old.create("ClusterQueue", f"{name}{letter}", {"cohort": letter})
    found = old.api.request("GET", old.path("ClusterQueue"))
    assert found["apiVersion"] == V1BETA1
    mine = {each["metadata"]["name"]: each for each in found["items"] if each["metadata"]["name"].startswith(name)}
    assert {each["spec"]["cohort"] for each in mine.values()} == {"a", "b"}
    assert {each["apiVersion"] for each in mine.values()} == {V1BETA1}
    params = {"watch": "true", "resourceVersion": found["metadata"]["resourceVersion"], "timeoutSeconds": "60"}
    with old.api.session().get(
        old.api.server + old.path("ClusterQueue"), params=params, stream=True, timeout=70
    ) as stream:
        old.api.patch("ClusterQueue", f"{name}a", {"spec": {"cohortName": "later"}})
        event = json.loads(next(stream.iter_lines()))
    assert event["object"]["spec"]["cohort"] == "later"


# ------------------------------------------------------------------ what clients are told


@pytest.mark.parametrize("kind", [each for each, (version, *_) in KINDS.items() if version.startswith("kueue")])
def test_who_uses_v1beta1_is_warned(old: Old, kind: str) -> None:
    def headers(path: str) -> Any:
        answer = old.api.session().get(old.api.server + path)
        return answer.status_code == 200 and answer.headers

    # The storage of a version comes up a moment after the CRD was changed.
    answer = eventually(lambda: headers(old.path(kind)))
    assert answer.get("Warning") == (None if kind in v1beta1.NOT_DEPRECATED else WARNING)
    assert "Warning" not in eventually(lambda: headers(old.api.path(kind)))


def test_v1beta2_is_what_clients_get_who_name_no_version(old: Old) -> None:
    assert old.api.request("GET", "/apis/kueue.x-k8s.io")["preferredVersion"]["version"] == "v1beta2"


def test_nothing_is_ever_stored_as_v1beta1(old: Old) -> None:
    for crd in old.api.list("CustomResourceDefinition"):
        if crd["spec"]["group"] == "kueue.x-k8s.io":
            assert crd["status"]["storedVersions"] == ["v1beta2"]
            strategy = crd["spec"]["conversion"]["strategy"]
            assert strategy == ("Webhook" if crd["spec"]["names"]["kind"] in CONVERTED else "None")
            conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
            assert conditions.get("NonStructuralSchema", "False") == "False"
            assert conditions["Established"] == "True"


@dataclass(frozen=True)
class Refusal:
    """A create, with a status written after it where there is one, that is refused with these words."""

    id: str
    kind: str
    spec: Object
    want: tuple[str, ...]
    status: Object | None = None


REFUSALS = [
    Refusal("a cohort's name is a subdomain", "ClusterQueue", {"cohort": "-a"}, ("spec.cohort",)),
    Refusal("a borrowing limit takes a cohort", "ClusterQueue", {"resourceGroups": [group(borrowingLimit=1)]},
            ("borrowingLimit must be nil when cohort is empty",)),
    Refusal("a check has a name", "ClusterQueue", {"admissionChecks": [""]}, ("admissionChecks",)),
    Refusal("Preempt is no way to borrow", "ClusterQueue", {"flavorFungibility": {"whenCanBorrow": "Preempt"}},
            ("spec.flavorFungibility.whenCanBorrow", "MayStopSearch")),
    Refusal("a preference takes TryNextFlavor twice", "ClusterQueue",
            {"flavorFungibility": {"whenCanBorrow": "Borrow", "preference": "BorrowingOverPreemption"}},
            ("preference can only be set",)),
    Refusal("a priority class takes a priority", "Workload", {"podSets": [pod_set()], "priorityClassName": "p"},
            ("priority must be set when priorityClassName is set",)),
    Refusal("a source takes a name", "Workload",
            {"podSets": [pod_set()], "priorityClassSource": "scheduling.k8s.io/priorityclass"},
            ("priorityClassName must be set when priorityClassSource is set",)),
    Refusal("a source is one of two", "Workload",
            {"podSets": [pod_set()], "priority": 1, "priorityClassName": "p", "priorityClassSource": "x"},
            ("spec.priorityClassSource",)),
    Refusal("there are pod sets", "Workload", {"podSets": []}, ("spec.podSets",)),
    Refusal("a domain holds a pod", "Workload", {"podSets": [pod_set()]},
            ("topologyAssignment.domains[0].count",), {"admission": admission(topologyAssignment={
                "levels": ["l"], "domains": [{"values": ["a"], "count": 0}]})}),
    Refusal("with quota every pod set has an assignment", "Workload",
            {"podSets": [pod_set(), pod_set(name="other")]},
            ("podSetAssignments must have the same number",),
            {"conditions": [condition("QuotaReserved")], "admission": admission()}),
    Refusal("a cluster has a source", "MultiKueueCluster", {}, ("exactly one of kubeConfig and clusterProfileRef",)),
    Refusal("a cluster has one source", "MultiKueueCluster",
            {"kubeConfig": {"location": "a"}, "clusterProfileRef": {"name": "b"}}, ("exactly one of",)),
    Refusal("a config names a cluster once", "MultiKueueConfig", {"clusters": ["a", "a"]}, ("spec.clusters[1]",)),
    Refusal("levels are unique", "Topology", {"levels": [{"nodeLabel": "a"}] * 2}, ("must be unique",)),
]  # fmt: skip


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_the_schema_of_v1beta1_refuses(old: Old, name: str, case: Refusal) -> None:
    if case.status is None:
        words = refusal(lambda: old.create(case.kind, name, case.spec))
    else:
        old.create(case.kind, name, case.spec)
        words = refusal(lambda: old.patch(case.kind, name, {"status": case.status}, sub="status"))
    assert [part for part in case.want if part not in words] == [], words


def test_the_rules_of_the_webhook_hold_for_v1beta1(old: Old, name: str) -> None:
    lending = {"resourceGroups": [group(lendingLimit=1)]}
    assert "lendingLimit" in refusal(lambda: old.create("ClusterQueue", name, lending), status=403)
    boost = {"annotations": {"kueue.x-k8s.io/priority-boost": "much"}}
    pod_sets = {"podSets": [pod_set()]}
    assert "priority-boost" in refusal(lambda: old.create("Workload", name, pod_sets, metadata=boost), status=403)


def test_levels_of_a_topology_never_change(old: Old, name: str) -> None:
    old.create("Topology", name, {"levels": [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]})
    shorter = {"spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}}
    assert "field is immutable" in refusal(lambda: old.patch("Topology", name, shorter))
    # As v1beta2 they may, above the hosts.
    assert old.api.patch("Topology", name, shorter)["spec"] == shorter["spec"]


SOURCES = ("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass")


@pytest.mark.parametrize(
    ("source", "change", "is_allowed"),
    [
        pytest.param(SOURCES[0], {"priorityClassName": "low"}, True, id="the name of a class of the queues"),
        pytest.param(SOURCES[1], {"priorityClassName": "low"}, False, id="the name of a class of pods"),
        pytest.param(SOURCES[0], {"priorityClassSource": SOURCES[1]}, False, id="the source"),
        pytest.param(SOURCES[0], {"priorityClassSource": None, "priorityClassName": None}, False, id="no class"),
        pytest.param(SOURCES[1], {"priority": 6}, True, id="the priority"),
    ],
)
def test_what_may_change_of_a_priority_class_with_quota(
    old: Old, name: str, source: str, change: Object, is_allowed: bool
) -> None:
    old.create("Workload", name, {"podSets": [pod_set()], "priority": 1, "priorityClassName": "high",
                                  "priorityClassSource": source})  # fmt: skip
    status = {"conditions": [condition("QuotaReserved")], "admission": admission()}
    old.patch("Workload", name, {"status": status}, sub="status")
    if is_allowed:
        assert old.patch("Workload", name, {"spec": change})["spec"].items() >= change.items()
    else:
        words = refusal(lambda: old.patch("Workload", name, {"spec": change}))
        assert "immutable while quota is reserved" in words


def test_what_cannot_be_converted_is_said(old: Old, name: str) -> None:
    old.create("Workload", name, {"podSets": [pod_set()]})
    topology = {"levels": ["a", "b"], "domains": [{"values": ["x"], "count": 2}]}
    status = {"admission": admission(topologyAssignment=topology)}
    # Whoever converts it first says so: a policy, or the storage.
    words = f"Workload default/{name}: .*topologyAssignment: a domain has as many values as there are levels"
    with pytest.raises(ApiError, match=words):
        old.patch("Workload", name, {"status": status}, sub="status")
    assert "status" not in new(old.api, "Workload", name)


# ------------------------------------------------------------------ the controller


def test_the_controller_admits_what_was_made_as_v1beta1(control_plane: ControlPlane, old: Old, name: str) -> None:
    old.create("ResourceFlavor", "default", {})
    old.create("ClusterQueue", name, {"resourceGroups": [group()], "cohort": "team", "namespaceSelector": {}})
    old.create("LocalQueue", name, {"clusterQueue": name})
    old.create("Workload", name, {"queueName": name, "podSets": [pod_set()]})
    with rig.running(control_plane):
        rig.Watched(old.api).admitted(name, seconds=30)
        seen = old.get("Workload", name)["status"]["admission"]
        assert seen["clusterQueue"] == name
        assert seen["podSetAssignments"][0]["flavors"] == {"cpu": "default"}
        usage = [{"name": "default", "resources": [{"name": "cpu", "total": "2"}]}]
        eventually(lambda: old.get("LocalQueue", name)["status"]["flavorUsage"] == usage)
        # A controller of v1beta1 that ends the workload is heard.
        conditions = old.get("Workload", name)["status"]["conditions"]
        old.patch("Workload", name, {"status": {"conditions": [*conditions, condition("Finished")]}}, sub="status")
        eventually(lambda: old.get("LocalQueue", name)["status"]["admittedWorkloads"] == 0)


def test_v1beta2_goes_on_without_the_webhook(webhook: WebhookProcess, old: Old, name: str) -> None:
    old.create("Workload", name, {"podSets": [pod_set()]})
    webhook.end()
    try:
        status = {"status": {"requeueState": {"count": 1}}}
        old.api.patch("Workload", name, status, "default", sub="status")
        assert new(old.api, "Workload", name)["status"] == status["status"]
        assert name in {each["metadata"]["name"] for each in old.api.list("Workload", "default")}
        assert "conversion webhook" in refusal(lambda: old.get("Workload", name), status=500)
    finally:
        webhook.start()
    eventually(lambda: old.get("Workload", name)["status"] == status["status"])


# ------------------------------------------------------------------ the manifests


def test_a_kustomization_of_ones_own_takes_the_component(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "config").symlink_to(webhook_config())
    own = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ["config"],
        "components": ["config/overlays/v1beta1/component"],
    }
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
    rendered = list(yaml.safe_load_all(control_plane.kubectl("kustomize", str(tmp_path)).stdout))
    found = [each for each in rendered if each["kind"] == "CustomResourceDefinition"]
    assert {len(each["spec"]["versions"]) for each in found} == {2}
    assert "Deployment" in {each["kind"] for each in rendered}
