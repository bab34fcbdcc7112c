"""StatefulSets and LeaderWorkerSets: one gang each, or one for each group, led from their owners."""

from __future__ import annotations

from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.api.kueue import PodSet
from admission.jobs import composing
from admission.jobs.serving import shape
from admission.settings import Settings
from tests.unit.jobs.builders import NS, World, pod, pod_template, stamp

GPU = "nvidia.com/gpu"
LWS = "leaderworkerset.x-k8s.io/leaderworkerset"
LWS_LABELS = "leaderworkerset.sigs.k8s.io"


def parent(template: dict[str, Any], framework: str) -> dict[str, Any]:
    """The template after the webhook."""
    annotations = {**template["metadata"].get("annotations", {}), names.POD_SUSPENDING_PARENT: framework}
    return {**template, "metadata": {**template["metadata"], "annotations": annotations}}


def owner(kind: str, api_version: str, name: str, spec: dict[str, Any], **labels: str) -> dict[str, Any]:
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": stamp(),
            "labels": {names.QUEUE_LABEL: "lq", **labels},
        },
        "spec": spec,
        "status": {},
    }


def stateful(replicas: int = 3, name: str = "s", template: dict[str, Any] | None = None, **labels: str) -> Any:
    spec = {"replicas": replicas, "template": parent(template or pod_template(), "statefulset")}
    return owner("StatefulSet", "apps/v1", name, spec, **labels)


def of_set(index: int, of: str = "s", uid: str = "", **more: Any) -> dict[str, Any]:
    """A pod as the StatefulSet controller makes it and the webhook gates it."""
    made = pod(f"{of}-{index}", None, finalizers=(), annotations={names.POD_SUSPENDING_PARENT: "statefulset"}, **more)
    reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": of, "uid": uid or f"uid-{of}"}
    made["metadata"]["ownerReferences"] = [{**reference, "controller": True}]
    made["metadata"]["labels"]["apps.kubernetes.io/pod-index"] = str(index)
    made["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = f"{of}-{index}"
    return made


def serving(replicas: int = 3) -> World:
    """A StatefulSet all of whose pods run."""
    world = World().put(stateful(replicas)).settle()
    world.admit()
    for index in range(replicas):
        world.put(of_set(index)).settle()
        world.run_pod(f"s-{index}")
    return world.settle()


def reason(world: World) -> str:
    return next(each["reason"] for each in world.wl["status"]["conditions"] if each["type"] == "QuotaReserved")


# ------------------------------------------------------------------ StatefulSets


def test_its_workload_is_made_before_there_are_pods() -> None:
    world = World().put(stateful(3)).settle()
    workload = world.wl
    assert workload["metadata"]["name"] == composing.workload_name("StatefulSet", "apps", "s", "uid-s")
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("main", 3)]
    [reference] = workload["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["uid"], reference["controller"]) == ("StatefulSet", "uid-s", True)
    assert workload["metadata"]["annotations"][names.JOB_OWNER_NAME] == "s"
    assert workload["spec"]["queueName"] == "lq"


def test_pods_that_come_one_after_the_other_are_let_go_as_they_come() -> None:
    world = World().put(stateful(2), of_set(0)).settle()
    assert names.ADMISSION_GATE in world.gates("s-0"), "nothing is admitted yet"
    assert world.pods()["s-0"]["metadata"]["labels"][names.QUEUE_LABEL] == "lq"
    world.admit()
    world.settle()
    assert world.gates("s-0") == []
    world.run_pod("s-0")
    world.put(of_set(1)).settle()
    assert world.gates("s-1") == []
    assert world.pods()["s-1"]["metadata"]["labels"][names.PODSET_LABEL] == "main"


def test_scaled_to_zero_it_keeps_its_workload_on_hold() -> None:
    world = serving(2)
    world.change("StatefulSet", "s", {"spec": {"replicas": 0}})
    world.settle()
    assert world.is_true("QuotaReserved"), "pods still run"
    world.delete("Pod", "s-1")
    world.delete("Pod", "s-0")
    world.settle()
    assert world.is_true("QuotaReserved"), "pods still end"
    world.end_pod("s-1")
    world.end_pod("s-0")
    world.settle()
    assert (world.status_of("QuotaReserved"), reason(world)) == ("False", "OnHold")
    assert "admission" not in world.wl["status"]
    assert world.status_of("Admitted") == "False"


def test_scaled_up_from_zero_it_waits_again_with_its_new_size() -> None:
    world = World().put(stateful(2)).settle()
    world.admit()
    world.change("StatefulSet", "s", {"spec": {"replicas": 0}})
    world.settle()
    assert reason(world) == "OnHold"
    before = world.wl["metadata"]["uid"]
    world.change("StatefulSet", "s", {"spec": {"replicas": 5}})
    world.settle()
    assert reason(world) == "PendingEvaluation"
    assert world.wl["metadata"]["uid"] == before
    assert world.wl["spec"]["podSets"][0]["count"] == 5


def test_one_that_waits_is_put_on_hold_too() -> None:
    world = World().put(stateful(2)).settle()
    world.change("StatefulSet", "s", {"spec": {"replicas": 0}})
    world.settle()
    assert reason(world) == "OnHold"


def test_made_without_pods_it_has_no_workload() -> None:
    assert World().put(stateful(0)).settle().workloads() == []


def test_another_size_is_admitted_anew_while_nothing_runs() -> None:
    """Scaled to zero and up again faster than anybody saw."""
    world = World().put(stateful(2)).settle()
    world.admit()
    world.change("StatefulSet", "s", {"spec": {"replicas": 4}})
    world.put(of_set(0)).settle()
    assert not world.is_true("QuotaReserved")
    assert world.wl["spec"]["podSets"][0]["count"] == 4
    assert names.ADMISSION_GATE in world.gates("s-0")


def test_more_pods_than_were_admitted_stay_gated_and_are_told() -> None:
    world = serving(2)
    world.change("StatefulSet", "s", {"spec": {"replicas": 3}})
    world.put(of_set(2)).settle()
    assert names.ADMISSION_GATE in world.gates("s-2")
    assert "s-2" in world.pods(), "its controller would make it again"
    assert any("Scale to 0 first" in told for told in world.told("s-2"))
    assert world.is_true("Admitted")


def test_an_evicted_one_gives_its_quota_back_when_its_pods_are_gone() -> None:
    world = serving(2)
    world.evict()
    world.settle()
    assert all(each["metadata"].get("deletionTimestamp") for each in world.pods().values())
    assert world.is_true("QuotaReserved")
    for name in list(world.pods()):
        world.end_pod(name)
    world.settle()
    assert not world.is_true("QuotaReserved")
    world.put(of_set(0)).settle()
    assert names.ADMISSION_GATE in world.gates("s-0")
    assert len(world.workloads()) == 1


def test_a_pod_that_is_replaced_is_let_go_at_once() -> None:
    world = serving(2)
    world.delete("Pod", "s-1")
    world.end_pod("s-1")
    world.put(of_set(1)).settle()
    assert world.gates("s-1") == []
    assert world.is_true("Admitted")


def test_deleted_it_gives_its_quota_back_when_its_pods_are_gone() -> None:
    world = serving(2)
    del world.objects["StatefulSet", "s"]
    world.settle()
    assert len(world.workloads()) == 1, "pods still run"
    for name in list(world.pods()):
        world.delete("Pod", name)
        world.end_pod(name)
    world.settle()
    assert world.workloads() == []


def test_another_one_of_its_name_does_not_inherit() -> None:
    world = serving(1)
    world.objects["StatefulSet", "s"]["metadata"]["uid"] = "uid-2"
    world.settle()
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in world.workloads()} == {"uid-s", "uid-2"}
    world.delete("Pod", "s-0")
    world.end_pod("s-0")
    world.settle()
    assert world.wl["metadata"]["ownerReferences"][0]["uid"] == "uid-2"


def test_its_finalizers_alone_do_not_take_it_out_of_the_queue() -> None:
    """Whoever writes the one that is there while pods are left behind would never be evicted."""
    world = serving(1)
    world.change("StatefulSet", "s", {"metadata": {"finalizers": ["orphan"]}})
    world.evict()
    world.settle()
    assert world.pods()["s-0"]["metadata"].get("deletionTimestamp")


def test_deleted_without_its_pods_it_leaves_them_and_its_workload_to_the_next_one() -> None:
    world = serving(2)
    world.change("StatefulSet", "s", {"metadata": {"deletionTimestamp": stamp(), "finalizers": ["orphan"]}})
    for name in ("s-0", "s-1"):
        world.change("Pod", name, {"metadata": {"ownerReferences": None}})
    world.settle()
    del world.objects["StatefulSet", "s"]
    world.settle()
    assert world.is_true("Admitted")
    assert not world.wl["metadata"].get("ownerReferences"), "it would be collected with its owner"
    assert not any(each["metadata"].get("deletionTimestamp") for each in world.pods().values())
    again = stateful(2)
    again["metadata"]["uid"] = "uid-2"
    for index in range(2):
        owners = of_set(index, uid="uid-2")["metadata"]["ownerReferences"]
        world.change("Pod", f"s-{index}", {"metadata": {"ownerReferences": owners}})
    world.put(again).settle()
    assert world.wl["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
    assert world.is_true("Admitted")
    assert len(world.pods()) == 2


def test_pods_that_nobody_takes_up_hold_their_quota_until_they_are_gone() -> None:
    world = serving(1)
    world.change("Pod", "s-0", {"metadata": {"ownerReferences": None}})
    del world.objects["StatefulSet", "s"]
    world.settle()
    assert world.is_true("Admitted")
    world.delete("Pod", "s-0")
    world.end_pod("s-0")
    world.settle()
    assert world.workloads() == []


def test_pods_that_nobody_takes_up_are_stopped_for_others() -> None:
    world = serving(1)
    world.change("Pod", "s-0", {"metadata": {"ownerReferences": None}})
    del world.objects["StatefulSet", "s"]
    world.settle()
    world.evict()
    world.settle()
    assert world.pods()["s-0"]["metadata"].get("deletionTimestamp")
    world.end_pod("s-0")
    world.settle()
    assert world.workloads() == []


def test_a_workload_of_other_pods_does_not_let_these_go() -> None:
    world = World().put(stateful(1), of_set(0)).settle()
    world.admit()
    spec = world.wl["spec"]["podSets"][0]["template"]["spec"]
    spec["containers"][0]["resources"]["requests"]["cpu"] = "1m"
    world.settle()
    assert names.ADMISSION_GATE in world.gates("s-0")
    assert not world.is_true("Admitted")


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        pytest.param(
            pod_template(), False, id="a pod that asks for devices that the template does not have is not let go"
        ),
        pytest.param(
            {**pod_template(), "spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "2"}}}]}},
            True,
            id="a pod that asks for as many devices as the template is let go",
        ),
    ],
)
def test_devices(template: dict[str, Any], wanted: bool) -> None:
    asking = [{"name": "c", "image": "i", "resources": {"requests": {GPU: "2"}, "limits": {GPU: "2"}}}]
    world = World().put(stateful(1, template=template), of_set(0, containers=asking)).settle()
    world.admit()
    world.settle()
    assert (world.gates("s-0") == []) is wanted


@pytest.mark.parametrize(
    ("claim", "wanted"),
    [
        pytest.param("one", True, id="a pod with the claims of the template is let go"),
        pytest.param("eight", False, id="a pod with other claims is not let go"),
    ],
)
def test_claims(claim: str, wanted: bool) -> None:
    template = pod_template()
    template["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    member = of_set(0)
    member["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim}]
    world = World().put(stateful(1, template=template), member).settle()
    world.admit()
    world.settle()
    assert (world.gates("s-0") == []) is wanted


def test_a_set_whose_limits_grow_does_not_use_what_was_admitted() -> None:
    def limited(count: str) -> dict[str, Any]:
        resources = {"limits": {GPU: count}}
        return {**pod_template(), "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}

    world = World().put(stateful(1, template=limited("1"))).settle()
    world.admit()
    world.change("StatefulSet", "s", {"spec": {"template": parent(limited("8"), "statefulset")}})
    asking = [{"name": "c", "image": "i", "resources": {"requests": {GPU: "8"}, "limits": {GPU: "8"}}}]
    world.put(of_set(0, containers=asking)).settle()
    assert names.ADMISSION_GATE in world.gates("s-0")


def test_a_workload_that_was_taken_over_may_name_its_pod_set_otherwise() -> None:
    world = serving(1)
    raw = world.wl
    raw["spec"]["podSets"][0]["name"] = raw["status"]["admission"]["podSetAssignments"][0]["name"] = "1a2b3c4d"
    world.delete("Pod", "s-0")
    world.end_pod("s-0")
    world.put(of_set(0)).settle()
    assert world.gates("s-0") == []


def test_what_others_put_into_a_pod_does_not_matter() -> None:
    both = [{"name": name, "image": "i", "resources": {"requests": {"cpu": "1"}}} for name in ("c", "proxy")]
    world = World().put(stateful(1), of_set(0, containers=both)).settle()
    world.admit()
    world.settle()
    assert world.gates("s-0") == []


def test_without_the_webhooks_mark_it_is_left_alone() -> None:
    plain = stateful(2)
    del plain["spec"]["template"]["metadata"]["annotations"]
    assert World().put(plain).settle().workloads() == []


def test_its_priority_is_its_own_and_its_users_are_told_of_a_missing_class() -> None:
    world = World().put(stateful(2, **{names.PRIORITY_CLASS_LABEL: "absent"})).settle()
    assert world.workloads() == []
    assert any(told.startswith("WorkloadPriorityClassNotFound") for told in world.told("s"))


def test_a_run_cut_short_anywhere_is_completed() -> None:
    for stop_after in range(8):
        world = World().put(stateful(2), of_set(0), of_set(1)).settle()
        world.admit()
        world.settle(stop_after=stop_after)
        world.settle()
        assert world.gates("s-0") == world.gates("s-1") == []


# ------------------------------------------------------------------ LeaderWorkerSets


def leader_worker(replicas: int = 2, size: int = 3, *, leader: bool = True, surge: Any = None) -> dict[str, Any]:
    templates = {"size": size, "workerTemplate": parent(pod_template("2"), LWS)}
    if leader:
        templates["leaderTemplate"] = parent(pod_template("1"), LWS)
    spec: dict[str, Any] = {"replicas": replicas, "leaderWorkerTemplate": templates}
    if surge is not None:
        spec["rolloutStrategy"] = {"type": "RollingUpdate", "rollingUpdateConfiguration": {"maxSurge": surge}}
    return owner("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "l", spec)


def of_group(group: int, worker: int) -> dict[str, Any]:
    name = f"l-{group}" if worker == 0 else f"l-{group}-{worker}"
    labels = {f"{LWS_LABELS}/name": "l", f"{LWS_LABELS}/group-index": str(group)}
    labels[f"{LWS_LABELS}/worker-index"] = str(worker)
    annotations = {names.POD_SUSPENDING_PARENT: LWS, names.POD_GROUP_SERVING: "true"}
    return pod(name, "lq", finalizers=(), labels=labels, annotations=annotations)


def name_of(index: int) -> str:
    return composing.workload_name("LeaderWorkerSet", "leaderworkerset.x-k8s.io", f"l-{index}", "uid-l")


def sizes(workload: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["name"], each["count"]) for each in workload["spec"]["podSets"]]


@pytest.mark.parametrize(
    ("made", "want"),
    [
        pytest.param(leader_worker(), [("leader", 1), ("worker", 2)], id="a leader and its workers are two pod sets"),
        pytest.param(leader_worker(leader=False), [("main", 3)], id="without a leader's template all are equal"),
        pytest.param(leader_worker(size=1), [("leader", 1)], id="a leader alone has no workers"),
    ],
)
def test_each_group_has_a_workload(made: dict[str, Any], want: list[tuple[str, int]]) -> None:
    world = World().put(made).settle()
    assert sorted(each["metadata"]["name"] for each in world.workloads()) == sorted([name_of(0), name_of(1)])
    assert [sizes(each) for each in world.workloads()] == [want, want]
    indexes = {each["metadata"]["annotations"][names.COMPONENT_WORKLOAD_INDEX] for each in world.workloads()}
    assert indexes == {"0", "1"}


def test_groups_start_on_their_own() -> None:
    world = World().put(leader_worker(), *(of_group(group, worker) for group in (0, 1) for worker in range(3))).settle()
    world.admit(name_of(1))
    world.settle()
    assert [world.gates(f"l-1{rest}") for rest in ("", "-1", "-2")] == [[], [], []]
    assert all(names.ADMISSION_GATE in world.gates(f"l-0{rest}") for rest in ("", "-1", "-2"))
    assert world.pods()["l-1"]["metadata"]["labels"][names.PODSET_LABEL] == "leader"
    assert world.pods()["l-1-2"]["metadata"]["labels"][names.PODSET_LABEL] == "worker"


def test_a_leader_starts_before_there_are_workers() -> None:
    world = World().put(leader_worker(1), of_group(0, 0)).settle()
    world.admit()
    world.settle()
    assert world.gates("l-0") == []
    world.put(of_group(0, 1), of_group(0, 2)).settle()
    assert world.gates("l-0-1") == world.gates("l-0-2") == []


@pytest.mark.parametrize(
    ("surge", "groups"),
    [
        pytest.param(1, {0, 1, 2}, id="a rolling update with a surge has Workloads for the groups beyond"),
        pytest.param("25%", {0, 1, 2}, id="also where the surge is a share"),
        pytest.param(None, {0, 1}, id="without a surge there are none"),
        pytest.param("0%", {0, 1}, id="a surge of nothing is none"),
    ],
)
def test_surge(surge: Any, groups: set[int]) -> None:
    made = leader_worker(2, surge=surge)
    made["status"] = {"replicas": 3}
    world = World().put(made).settle()
    assert {each["metadata"]["name"] for each in world.workloads()} == {name_of(index) for index in groups}


def test_a_group_that_is_not_wanted_any_more_keeps_its_quota_until_its_pods_are_gone() -> None:
    world = World().put(leader_worker(2, 1), of_group(0, 0), of_group(1, 0)).settle()
    world.admit(name_of(0))
    world.admit(name_of(1))
    world.settle()
    world.run_pod("l-1")
    world.change("LeaderWorkerSet", "l", {"spec": {"replicas": 1}})
    world.settle()
    assert len(world.workloads()) == 2, "its pods still run"
    world.delete("Pod", "l-1")
    world.end_pod("l-1")
    world.settle()
    assert world.wl["metadata"]["name"] == name_of(0)


@pytest.mark.parametrize("name", ["leaderTemplate", "workerTemplate"])
@pytest.mark.parametrize("nonsense", [{"metadata": "x"}, {"metadata": {"annotations": []}}, {"spec": [1]}, {}])
def test_what_is_no_template_is_left_alone(name: str, nonsense: dict[str, Any]) -> None:
    made = leader_worker(1)
    made["spec"]["leaderWorkerTemplate"][name] = nonsense
    assert World().put(made, of_group(0, 0)).settle().workloads() == []


def test_deleted_all_of_it_goes() -> None:
    world = World().put(leader_worker()).settle()
    del world.objects["LeaderWorkerSet", "l"]
    assert world.settle().workloads() == []


def test_workers_are_numbered_by_their_label() -> None:
    made = leader_worker(1)
    template = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]
    template["metadata"]["annotations"][names.PODSET_REQUIRED_TOPOLOGY] = "rack"
    world = World().put(made).settle()
    requests = [each.get("topologyRequest") for each in world.wl["spec"]["podSets"]]
    assert requests == [None, {"required": "rack", "podIndexLabel": f"{LWS_LABELS}/worker-index"}]


def test_a_shape_is_what_decides_where_pods_run() -> None:
    def of(**spec: Any) -> str:
        return shape(convert({"name": "m", "count": 1, "template": pod_template(**spec)}, PodSet))

    assert of() == of(terminationGracePeriodSeconds=5)
    assert of() != of(nodeSelector={"a": "b"})


def test_frameworks_that_queue_pods_enable_pods() -> None:
    for framework in names.SERVING_INTEGRATIONS:
        settings = convert({"integrations": {"frameworks": [framework]}}, Settings)
        assert settings.integrations.enabled == {framework, "pod"}
