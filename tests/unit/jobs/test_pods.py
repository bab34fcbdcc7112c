"""Single pods: told, gated, let go, stopped, and never held longer than they run."""

from typing import Any

import pytest

from admission.api import names
from admission.api.core import Pod
from admission.api.decoding import convert
from admission.jobs import pod_states
from admission.jobs.composing import workload_name
from admission.jobs.effects import Delete, Patch, PatchKind
from admission.settings import Settings
from tests.unit.jobs.builders import NOW, World, flavor, job, pod, stamp

TOLERATION = {"key": "gpu", "operator": "Exists"}


def running(**world: Any) -> World:
    result = World(**world).put(pod()).settle()
    result.admit()
    result.settle()
    result.run_pod("p")
    return result.settle()


def test_becomes_a_workload_of_one() -> None:
    world = World().put(pod(nodeSelector={"a": "b"})).settle()
    wl = world.wl
    assert wl["metadata"]["name"] == workload_name("Pod", "", "p", "uid-p")
    assert wl["metadata"]["ownerReferences"][0]["controller"] is True
    (pod_set,) = wl["spec"]["podSets"]
    assert (pod_set["name"], pod_set["count"]) == ("main", 1)
    assert pod_set["template"]["spec"]["nodeSelector"] == {"a": "b"}
    assert "schedulingGates" not in pod_set["template"]["spec"]


def test_is_let_go_with_one_patch() -> None:
    world = World(flavors={"df": flavor(labels={"pool": "a"}, tolerations=[TOLERATION])}).put(pod()).settle()
    foreign = {"name": "example.com/mine"}
    world.objects["Pod", "p"]["spec"]["schedulingGates"].insert(0, foreign)
    world.admit()
    world.done.clear()
    world.settle()
    (patch,) = world.writes()
    assert isinstance(patch, Patch)
    assert patch.body == {
        "metadata": {
            "labels": {names.PODSET_LABEL: "main", names.CLUSTER_QUEUE_LABEL: "cq", names.LOCAL_QUEUE_LABEL: "lq"},
            "annotations": {names.WORKLOAD_ANNOTATION: world.wl["metadata"]["name"]},
        },
        "spec": {"schedulingGates": [foreign], "nodeSelector": {"pool": "a"}, "tolerations": [TOLERATION]},
    }


def test_goes_to_its_topology_domain() -> None:
    world = World().put(pod()).settle()
    piece = {"domainCount": 1, "valuesPerLevel": [{"universal": "r1"}], "podCounts": {"universal": 1}}
    world.admit(topology={"levels": ["rack"], "slices": [piece]})
    world.settle()
    assert world.pods()["p"]["spec"]["nodeSelector"] == {"rack": "r1"}
    assert world.gates("p") == []


@pytest.mark.parametrize("why", ["not admitted", "evicted"])
def test_stays_gated_without_an_admission(why: str) -> None:
    world = World().put(pod()).settle()
    if why == "evicted":
        world.admit()
        world.evict()
    world.settle()
    assert names.ADMISSION_GATE in world.gates("p")


def test_pod_that_wants_another_node_than_it_was_admitted_to_has_failed() -> None:
    world = World(flavors={"df": flavor(labels={"pool": "a"})}).put(pod(nodeSelector={"pool": "b"})).settle()
    world.admit()
    world.settle()
    assert world.is_true("Finished")
    assert names.ADMISSION_GATE in world.gates("p")


def test_unknown_queue_is_told_on_the_pod_and_the_pod_can_go() -> None:
    world = World(queues=()).put(pod(queue="nope")).settle()
    assert world.told("p")[0] == "Misconfigured: LocalQueue nope does not exist in namespace team"
    world.delete("Pod", "p")
    assert world.settle().objects == {}


def test_no_queue_at_all_is_told_on_the_pod() -> None:
    world = World(settings=Settings(manage_jobs_without_queue_name=True)).put(pod(queue=None)).settle()
    assert "no queue" in world.told("p")[0]
    assert world.workloads() == []


def test_pod_on_its_way_out_gets_no_workload() -> None:
    world = World().put(pod())
    world.delete("Pod", "p")
    assert world.settle().objects == {}
    assert [type(effect) for effect in world.writes()] == [Patch]


def test_is_stopped_by_condition_and_delete() -> None:
    world = running()
    world.evict(message="make room")
    world.done.clear()
    world.settle()
    said, deleted = world.writes()
    assert isinstance(said, Patch)
    assert (said.kind, said.subresource) == (PatchKind.STRATEGIC, "status")
    assert said.body["status"]["conditions"][0]["type"] == names.TERMINATION_TARGET
    assert deleted == Delete(pod_states.ref(convert(pod(), Pod)))
    assert world.is_true("QuotaReserved"), "quota is kept while it runs"
    world.end_pod("p")
    assert world.settle().objects == {}, "nothing replaces a single pod"


def test_quota_is_given_back_when_its_grace_is_over() -> None:
    world = running()
    world.evict()
    world.settle()
    assert world.last.requeue_after == 30
    world.now = NOW + 31
    world.settle()
    assert world.status_of("QuotaReserved") == "False"


@pytest.mark.parametrize(("phase", "reason"), [("Succeeded", "Succeeded"), ("Failed", "Failed")])
def test_its_end_finishes_the_workload(phase: str, reason: str) -> None:
    world = running()
    world.end_pod("p", phase)
    world.settle()
    assert world.wl["status"]["conditions"][-1]["reason"] == reason
    assert world.pods()["p"]["metadata"]["finalizers"] == []
    assert world.wl["metadata"]["finalizers"] == []


def test_foreign_finalizers_stay() -> None:
    world = World().put(pod(finalizers=["example.com/keep", names.POD_FINALIZER])).settle()
    world.delete("Pod", "p")
    world.settle()
    assert world.pods()["p"]["metadata"]["finalizers"] == ["example.com/keep"]


def test_ungated_by_hand_is_stopped() -> None:
    world = World().put(pod()).settle()
    world.change("Pod", "p", {"spec": {"schedulingGates": []}})
    world.settle()
    assert world.objects == {}


def test_unmanaged_pods_are_left_alone() -> None:
    raw = pod(finalizers=(), gated=False, labels={names.MANAGED_LABEL: ""})
    assert World().put(raw).settle().done == []


HOLDING = {
    "waits": (pod(), True),
    "runs": (pod(gated=False, node="n", phase="Running"), True),
    "has succeeded": (pod(gated=False, node="n", phase="Succeeded"), True),
    "has failed": (pod(gated=False, node="n", phase="Failed"), False),
}


@pytest.mark.parametrize(("raw", "want"), HOLDING.values(), ids=HOLDING.keys())
def test_holds_its_place(raw: dict[str, Any], want: bool) -> None:
    assert pod_states.holds_place(convert(raw, Pod)) is want


@pytest.mark.parametrize("raw", [pod(), pod(gated=False, node="n", phase="Running")], ids=["gated", "running"])
def test_terminating_pod_holds_no_place(raw: dict[str, Any]) -> None:
    raw = {**raw, "metadata": {**raw["metadata"], "deletionTimestamp": stamp(30)}}
    assert not pod_states.holds_place(convert(raw, Pod))


def test_its_workload_takes_no_quota_again_once_it_was_stopped() -> None:
    world = running()
    world.evict()
    world.settle()
    world.now = NOW + 31
    world.settle()
    assert world.status_of("Requeued") == "False"


@pytest.mark.parametrize("at_once", [False, True])
def test_a_deleted_pod_gives_back_its_quota_at_once_where_the_gate_wants_it(at_once: bool) -> None:
    """FastQuotaReleaseInPodIntegration, for single pods and for groups."""
    gates = convert({"featureGates": {"FastQuotaReleaseInPodIntegration": at_once}}, Settings)
    world = running(settings=gates)
    world.evict()
    world.settle()
    assert world.get("Pod", "p") is not None, "it still has time to end"
    assert world.is_true("QuotaReserved") is not at_once


def prebuilt() -> dict[str, Any]:
    """For one pod of one cpu."""
    raw = World().put(job(parallelism=1)).settle().wl
    raw["metadata"] = {"name": "mine", "namespace": "team", "uid": "mine", "resourceVersion": "5"}
    return raw


@pytest.mark.parametrize(
    ("requests", "wanted"),
    [
        pytest.param({"cpu": "1"}, True, id="a pod like that of its prebuilt workload is let go"),
        pytest.param({"cpu": "500m"}, True, id="so is one that asks for less"),
        pytest.param({"nvidia.com/gpu": "8"}, False, id="one that asks for more is not"),
    ],
)
def test_prebuilt(requests: dict[str, str], wanted: bool) -> None:
    containers = [{"name": "c", "image": "i", "resources": {"requests": requests}}]
    annotations = {names.PREBUILT_WORKLOAD: "mine"}
    world = World().put(prebuilt(), pod(containers=containers, annotations=annotations)).settle()
    if not world.is_true("Finished"):
        world.admit()
    world.settle()
    assert (world.gates("p") == []) is wanted


def test_a_workload_that_somebody_made_cheaper_is_made_anew() -> None:
    """Its spec can be written until it holds quota."""
    world = World().put(pod()).settle()
    before = world.wl["metadata"]["uid"]
    world.wl["spec"]["podSets"][0]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
    world.admit()
    world.settle()
    assert names.ADMISSION_GATE in world.gates("p")
    assert world.wl["metadata"]["uid"] != before
    assert not world.is_true("Admitted")
