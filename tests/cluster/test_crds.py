"""What a real API server makes of the generated CRDs: accepted, refused with the field named, defaulted, printed."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
import yaml

from admission.resources import webhook_config
from tests.cluster.crd_creates import CREATES, Create
from tests.cluster.crd_objects import (
    ADMITTED,
    NOW,
    POD_REF,
    PROVISIONING,
    REF,
    RESERVED,
    Object,
    cluster_queue,
    condition,
    flavor,
    obj,
    pod_set,
    topology,
    workload,
)
from tests.cluster.crd_workload_creates import WORKLOAD_CREATES
from tests.controlplane.cluster import KUEUE, Api, ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    control_plane.kubectl("apply", "--server-side", "-k", str(webhook_config() / "crds"))
    control_plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    # The handlers of a new CRD come up a moment after it is established, and so does what is said of it.
    for kind in SHORT:
        eventually(lambda kind=kind: control_plane.api.list(kind) == [])
    path = f"/apis/{KUEUE}"
    eventually(lambda: SHORT.keys() <= {each["kind"] for each in control_plane.api.request("GET", path)["resources"]})


# ------------------------------------------------------------------ creates


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


@pytest.mark.parametrize("case", [*CREATES, *WORKLOAD_CREATES], ids=lambda case: case.id)
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
