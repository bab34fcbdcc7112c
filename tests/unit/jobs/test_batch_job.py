"""Jobs through their Workloads and back."""

import copy
from typing import Any

import pytest

from admission.api import names
from admission.api.core import PriorityClass
from admission.api.decoding import convert
from admission.api.meta import ObjectMeta
from admission.jobs.batch_job import BatchJobs, index_count
from admission.jobs.composing import workload_name
from admission.jobs.effects import Create, Patch, Tell
from admission.settings import Settings
from tests.unit.jobs.builders import NOW, World, condition, flavor, job, pod_template, stamp

TOLERATION = {"key": "gpu", "operator": "Exists"}


def admitted(raw: dict[str, Any] | None = None, **world: Any) -> World:
    result = World(**world).put(raw or job()).settle()
    result.admit()
    return result.settle()


def running(raw: dict[str, Any] | None = None, active: int = 2, **world: Any) -> World:
    result = admitted(raw, **world)
    result.change("Job", "j", {"status": {"active": active, "ready": active, "startTime": stamp()}})
    return result.settle()


def stopped(world: World) -> None:
    world.change("Job", "j", {"status": {"active": 0, "ready": 0}})


# ------------------------------------------------------------------ to a Workload


def test_a_job_becomes_a_workload() -> None:
    world = World(settings=convert({"integrations": {"labelKeysToCopy": ["team", "none"]}}, Settings))
    raw = job(
        labels={"team": "x", names.MAX_EXEC_TIME_LABEL: "60"},
        annotations={"provreq.kueue.x-k8s.io/zone": "a", "else": "where"},
    )
    world.put(raw).settle()
    wl = world.wl
    assert wl["metadata"]["name"] == workload_name("Job", "batch", "j", "uid-j")
    assert wl["metadata"]["labels"] == {"team": "x", names.JOB_UID_LABEL: "uid-j"}
    assert wl["metadata"]["annotations"] == {"provreq.kueue.x-k8s.io/zone": "a"}
    assert wl["metadata"]["finalizers"] == [names.RESOURCE_IN_USE_FINALIZER]
    assert wl["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "uid-j",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert wl["spec"] == {
        "queueName": "lq",
        "podSets": [{"name": "main", "count": 2, "template": pod_template()}],
        "priority": 0,
        "maximumExecutionTimeSeconds": 60,
    }
    assert len(world.writes()) == 1


def test_workload_names_are_kueues() -> None:
    name = workload_name("Job", "batch", "a" * 300, "u")
    assert name == f"job-{'a' * 243}-{name[-5:]}"
    assert len(name) == 253
    assert workload_name("Job", "batch", "a", "u") != workload_name("Job", "batch", "a", "v")
    assert len(workload_name("Job", "batch", "a" * 300, "u", short=True)) == 63, "the value of a label"


def test_workload_names_may_be_short() -> None:
    short = convert({"featureGates": {"ShortWorkloadNames": True}}, Settings)
    world = World(settings=short).put(job("a" * 60)).settle()
    name = world.wl["metadata"]["name"]
    assert name == f"job-{'a' * 53}-{name[-5:]}"


COUNTS = {
    "parallelism without completions": ({"parallelism": 3, "completions": None}, 3),
    "fewer completions than parallelism": ({"parallelism": 3, "completions": 2}, 2),
    "neither": ({"parallelism": None, "completions": None}, 1),
    "nothing to run": ({"parallelism": 0, "completions": 2}, 0),
}


@pytest.mark.parametrize(("spec", "want"), COUNTS.values(), ids=COUNTS.keys())
def test_count(spec: dict[str, Any], want: int) -> None:
    raw = job()
    raw["spec"] |= spec
    assert World().put(raw).settle().wl["spec"]["podSets"][0]["count"] == want


def classes(*entries: tuple[str, int, bool]) -> tuple[PriorityClass, ...]:
    return tuple(PriorityClass(metadata=ObjectMeta(name=n), value=v, global_default=d) for n, v, d in entries)


PRIORITIES = {
    "label": ({names.PRIORITY_CLASS_LABEL: "high"}, "pods", (100, "high")),
    "class of the pods": ({}, "pods", (7, "pods")),
    "lowest global default": ({}, "", (3, "low-default")),
}


@pytest.mark.parametrize(("labels", "pod_class", "want"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_priority_comes_from(labels: dict[str, str], pod_class: str, want: tuple[int, str]) -> None:
    template = pod_template(priorityClassName=pod_class) if pod_class else pod_template()
    world = World(
        workload_classes={"high": 100},
        pod_classes=classes(("pods", 7, False), ("default", 5, True), ("low-default", 3, True)),
    )
    world.put(job(labels=labels, template=template)).settle()
    spec = world.wl["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == want


def test_missing_priority_class_is_told() -> None:
    world = World().put(job(labels={names.PRIORITY_CLASS_LABEL: "none"})).settle()
    assert world.workloads() == []
    assert world.told("j") == ['WorkloadPriorityClassNotFound: WorkloadPriorityClass "none" does not exist']


def test_topology_annotations_become_a_request() -> None:
    template = pod_template()
    template["metadata"]["annotations"] = {names.PODSET_REQUIRED_TOPOLOGY: "rack"}
    world = World().put(job(template=template)).settle()
    assert world.wl["spec"]["podSets"][0]["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
    }


NOT_MANAGED = {
    "no queue": job(queue=None),
    "running without queue": job(queue=None, suspend=False),
}


@pytest.mark.parametrize("raw", NOT_MANAGED.values(), ids=NOT_MANAGED.keys())
def test_is_left_alone(raw: dict[str, Any]) -> None:
    world = World().put(copy.deepcopy(raw)).settle()
    assert world.done == []


def test_unmanaged_namespace_is_left_alone() -> None:
    selector = {"managedJobsNamespaceSelector": {"matchLabels": {"kueue": "on"}}}
    world = World(settings=convert(selector, Settings)).put(job()).settle()
    assert world.done == []


def test_managed_namespace_without_any_queue_is_told() -> None:
    world = World(settings=Settings(manage_jobs_without_queue_name=True)).put(job(queue=None)).settle()
    assert world.workloads() == []
    assert "There is no queue" in world.told("j")[0]


def test_unknown_queue_is_told_and_waited_for() -> None:
    world = World(queues=()).put(job()).settle()
    assert world.wl["spec"]["queueName"] == "lq"
    assert world.told("j")[0] == "Misconfigured: LocalQueue lq does not exist in namespace team"


# ------------------------------------------------------------------ start


def test_starts_with_one_patch() -> None:
    template = pod_template(nodeSelector={"disk": "ssd"})
    world = World(flavors={"df": flavor(labels={"pool": "a"}, tolerations=[TOLERATION])})
    world.put(job(template=template)).settle()
    world.admit()
    world.done.clear()
    world.settle()
    (patch,) = world.writes()
    assert isinstance(patch, Patch)
    assert patch.body == {
        "spec": {
            "suspend": False,
            "template": {
                "metadata": {
                    "labels": {
                        names.PODSET_LABEL: "main",
                        names.CLUSTER_QUEUE_LABEL: "cq",
                        names.LOCAL_QUEUE_LABEL: "lq",
                    },
                    "annotations": {names.WORKLOAD_ANNOTATION: world.wl["metadata"]["name"]},
                },
                "spec": {"nodeSelector": {"pool": "a"}, "tolerations": [TOLERATION]},
            },
        }
    }
    assert patch.resource_version == "1"
    assert world.told("j") == ["Started: Admitted by clusterQueue cq"]


def domains(*roots: str, counts: Any = None) -> dict[str, Any]:
    level = {"universal": roots[0]} if len(roots) == 1 else {"individual": {"roots": list(roots)}}
    piece = {"domainCount": len(roots), "valuesPerLevel": [level], "podCounts": counts or {"universal": 1}}
    return {"levels": ["rack"], "slices": [piece]}


def test_one_domain_goes_into_the_template() -> None:
    world = World().put(job()).settle()
    world.admit(topology=domains("r1", counts={"universal": 2}))
    world.settle()
    spec = world.get("Job", "j")["spec"]["template"]
    assert spec["spec"]["nodeSelector"] == {"rack": "r1"}
    assert "schedulingGates" not in spec["spec"]
    assert spec["metadata"]["annotations"][names.PODSET_UNCONSTRAINED_TOPOLOGY] == "true"


def test_several_domains_leave_it_to_the_gate() -> None:
    world = World().put(job()).settle()
    world.admit(topology=domains("r1", "r2"))
    world.settle()
    spec = world.get("Job", "j")["spec"]["template"]["spec"]
    assert spec["schedulingGates"] == [{"name": names.TOPOLOGY_GATE}]
    assert "nodeSelector" not in spec


CONTRADICTIONS = {
    "flavor against template": {"df": flavor(labels={"disk": "hdd"})},
}


@pytest.mark.parametrize("flavors", CONTRADICTIONS.values(), ids=CONTRADICTIONS.keys())
def test_contradiction_fails_for_good(flavors: Any) -> None:
    world = World(flavors=flavors).put(job(template=pod_template(nodeSelector={"disk": "ssd"}))).settle()
    world.admit()
    world.settle()
    assert world.is_true("Finished")
    assert "wants disk" in world.wl["status"]["conditions"][-1]["message"]
    assert world.get("Job", "j")["spec"]["suspend"]


def test_missing_flavor_is_waited_for() -> None:
    world = World(flavors={}).put(job()).settle()
    world.admit()
    world.settle()
    assert world.last.requeue_after is not None
    assert not world.is_true("Finished")
    world.flavors = {"df": flavor()}
    world.settle()
    assert not world.get("Job", "j")["spec"]["suspend"]


def test_ready_checks_update_the_pods() -> None:
    world = World().put(job()).settle()
    world.admit()
    update = {"name": "main", "nodeSelector": {"zone": "z"}, "annotations": {"a": "b"}}
    states = [
        {"name": "ready", "state": "Ready", "podSetUpdates": [update]},
        {"name": "pending", "state": "Pending", "podSetUpdates": [{"name": "main", "nodeSelector": {"zone": "y"}}]},
    ]
    world.change("Workload", world.wl["metadata"]["name"], {"status": {"admissionChecks": states}})
    world.settle()
    template = world.get("Job", "j")["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "z"}
    assert template["metadata"]["annotations"]["a"] == "b"


def test_user_suspending_an_admitted_job_has_no_effect_for_long() -> None:
    world = running()
    world.change("Job", "j", {"spec": {"suspend": True}})
    stopped(world)
    world.settle()
    assert not world.get("Job", "j")["spec"]["suspend"]


# ------------------------------------------------------------------ stop


def test_eviction_stops_then_releases_then_restores() -> None:
    raw = job(template=pod_template(nodeSelector={"disk": "ssd"}, tolerations=[{"key": "mine", "operator": "Exists"}]))
    before = copy.deepcopy(raw["spec"])
    world = running(raw, flavors={"df": flavor(labels={"pool": "a"}, tolerations=[TOLERATION])})
    world.evict()
    world.settle()
    assert world.get("Job", "j")["spec"]["suspend"]
    assert world.get("Job", "j")["metadata"]["annotations"][names.STOPPING] == "true"
    assert world.is_true("QuotaReserved"), "quota is kept while pods run"

    stopped(world)
    world.now = NOW + 30
    world.settle()
    assert world.get("Job", "j")["spec"] == before | {"suspend": True}
    assert names.STOPPING not in world.get("Job", "j")["metadata"]["annotations"]
    status = world.wl["status"]
    assert "admission" not in status
    assert status["accumulatedPastExecutionTimeSeconds"] == 30
    found = {entry["type"]: (entry["status"], entry["reason"]) for entry in status["conditions"]}
    assert found == {
        "QuotaReserved": ("False", "PendingEvaluation"),
        "Admitted": ("False", "NoReservation"),
        "Evicted": ("True", "Preempted"),
        "Requeued": ("True", "Preempted"),
    }


def test_quota_is_kept_until_the_last_pod_is_gone() -> None:
    world = running()
    world.evict()
    world.settle()
    world.change("Job", "j", {"status": {"active": 0, "ready": 0, "terminating": 2}})
    world.settle()
    assert world.is_true("QuotaReserved"), "the pods still occupy their nodes"
    world.change("Job", "j", {"status": {"terminating": 0}})
    world.settle()
    assert world.status_of("QuotaReserved") == "False"


def test_requeued_at_once_only_after_some_evictions() -> None:
    world = running()
    world.evict(reason="ClusterQueueStopped")
    world.settle()
    stopped(world)
    world.settle()
    assert world.status_of("Requeued") == "False"


def test_job_without_pods_is_stopped_and_released_without_waiting() -> None:
    world = admitted()
    world.evict()
    world.settle()
    assert world.status_of("QuotaReserved") == "False"
    assert world.get("Job", "j")["spec"]["template"] == pod_template() | {"metadata": {"labels": {"app": "a"}}}


def test_evicted_before_it_was_started() -> None:
    world = World().put(job()).settle()
    world.admit()
    world.evict()
    world.settle()
    assert world.status_of("QuotaReserved") == "False"
    assert world.get("Job", "j")["spec"]["suspend"]


@pytest.mark.parametrize("writes", range(8))
def test_eviction_cut_short_anywhere_is_completed(writes: int) -> None:
    world = running(flavors={"df": flavor(labels={"pool": "a"})})
    world.evict()
    world.settle(stop_after=writes)
    stopped(world)
    world.settle(stop_after=max(0, writes - 1))
    world.settle()
    raw = world.get("Job", "j")
    assert raw["spec"] == job()["spec"] | {"suspend": True}
    assert world.status_of("QuotaReserved") == "False"
    world.admit()
    world.settle()
    assert world.get("Job", "j")["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "a"}
    assert len(world.workloads()) == 1


def test_started_again_elsewhere_before_it_was_restored() -> None:
    world = running(flavors={"df": flavor(labels={"pool": "a"}), "other": flavor("other", {"pool": "b"})})
    world.evict()
    world.settle()
    stopped(world)
    world.settle(stop_after=1)  # released, not restored
    world.admit(flavors={"cpu": "other"})
    world.settle()
    raw = world.get("Job", "j")
    assert raw["spec"]["template"]["spec"]["nodeSelector"] == {"pool": "b"}
    assert not raw["spec"]["suspend"]
    assert names.STOPPING not in raw["metadata"]["annotations"]


def test_partial_admission_and_back() -> None:
    raw = job(parallelism=10, annotations={names.JOB_MIN_PARALLELISM: "9"}, completionMode="Indexed")
    world = World().put(raw).settle()
    assert world.wl["spec"]["podSets"][0]["minCount"] == 9
    world.admit(count=9)
    world.settle()
    assert world.get("Job", "j")["spec"]["parallelism"] == 9
    world.change("Job", "j", {"status": {"active": 9, "startTime": stamp()}})
    world.settle()
    world.evict(reason="ClusterQueueStopped")
    world.settle()
    stopped(world)
    world.settle()
    spec = world.get("Job", "j")["spec"]
    assert (spec["parallelism"], spec["completions"], spec["suspend"]) == (10, 10, True)
    assert world.status_of("QuotaReserved") == "False"


def test_completions_follow_parallelism_where_that_is_asked_for() -> None:
    annotations = {names.JOB_MIN_PARALLELISM: "2", names.JOB_COMPLETIONS_EQUAL_PARALLELISM: "true"}
    world = World().put(job(parallelism=4, annotations=annotations, completionMode="Indexed")).settle()
    world.admit(count=3)
    world.settle()
    spec = world.get("Job", "j")["spec"]
    assert (spec["parallelism"], spec["completions"]) == (3, 3)
    world.evict()
    world.settle()
    spec = world.get("Job", "j")["spec"]
    assert (spec["parallelism"], spec["completions"]) == (4, 4)


def test_running_without_admission_is_stopped() -> None:
    world = World().put(job()).settle()
    world.change("Job", "j", {"spec": {"suspend": False}})
    world.settle()
    assert world.get("Job", "j")["spec"]["suspend"]
    assert names.STOPPING not in world.get("Job", "j")["metadata"]["annotations"]


# ------------------------------------------------------------------ following the job


def test_queue_change_is_followed_while_it_waits() -> None:
    world = World().put(job()).settle()
    world.change("Job", "j", {"metadata": {"labels": {names.QUEUE_LABEL: "lq2"}}})
    world.settle()
    assert world.wl["spec"]["queueName"] == "lq2"


def test_priority_class_is_followed_at_any_time() -> None:
    world = running(job(labels={names.PRIORITY_CLASS_LABEL: "low"}), workload_classes={"low": 1, "high": 100})
    world.change("Job", "j", {"metadata": {"labels": {names.PRIORITY_CLASS_LABEL: "high"}}})
    world.settle()
    assert world.wl["spec"]["priority"] == 100
    assert world.wl["spec"]["priorityClassRef"]["name"] == "high"
    assert not world.get("Job", "j")["spec"]["suspend"]


EDITS = {
    "node selector": {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
    "parallelism": {"spec": {"parallelism": 1}},
    "topology": {"spec": {"template": {"metadata": {"annotations": {names.PODSET_REQUIRED_TOPOLOGY: "rack"}}}}},
    "time limit": {"metadata": {"labels": {names.MAX_EXEC_TIME_LABEL: "5"}}},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS.keys())
def test_edit_of_a_waiting_job_changes_its_workload_in_place(edit: dict[str, Any]) -> None:
    world = World().put(job()).settle()
    before = copy.deepcopy(world.wl)
    world.change("Job", "j", edit)
    world.settle()
    assert world.wl["metadata"]["uid"] == before["metadata"]["uid"]
    assert world.wl["spec"] != before["spec"]
    name = before["metadata"]["name"]
    assert f"UpdatedWorkload: Workload team/{name} was updated to what the job is now" in world.told("j")
    fresh = World().put(copy.deepcopy(world.get("Job", "j"))).settle()
    assert world.wl["spec"] == fresh.wl["spec"]


def test_change_of_a_running_job_stops_it_and_makes_the_workload_anew() -> None:
    world = running()
    old = world.wl["metadata"]["uid"]
    world.change("Job", "j", {"spec": {"parallelism": 1}})
    world.settle()
    assert world.get("Job", "j")["spec"]["suspend"]
    assert world.wl["metadata"]["uid"] == old, "quota is kept while pods run"
    stopped(world)
    world.settle()
    assert world.wl["metadata"]["uid"] != old
    assert world.wl["spec"]["podSets"][0]["count"] == 1
    assert world.wl["spec"]["podSets"][0]["template"] == pod_template()


def test_only_one_workload_is_kept() -> None:
    world = running()
    twin = copy.deepcopy(world.wl)
    twin["metadata"] |= {"name": "twin", "uid": "twin"}
    twin["status"] = {}
    world.put(twin).settle()
    assert world.get("Workload", "twin") is None
    assert world.is_true("Admitted")
    assert "DeletedWorkload: Workload team/twin was deleted: it is not what the job is" in world.told("j")


# ------------------------------------------------------------------ the end


ENDS = {
    "complete": ([condition("Complete", message="all done")], "Succeeded", "all done"),
    "failed": ([condition("Failed", message="gave up")], "Failed", "gave up"),
}


@pytest.mark.parametrize(("conditions", "reason", "message"), ENDS.values(), ids=ENDS.keys())
def test_end_of_the_job_finishes_the_workload(conditions: Any, reason: str, message: str) -> None:
    world = running()
    world.change("Job", "j", {"status": {"active": 0, "conditions": conditions}})
    world.settle()
    found = next(entry for entry in world.wl["status"]["conditions"] if entry["type"] == "Finished")
    assert (found["status"], found["reason"], found["message"]) == ("True", reason, message)
    assert world.wl["metadata"]["finalizers"] == []
    world.done.clear()
    assert world.settle().done == [], "finished work is never written to again"


def test_finished_job_whose_workload_is_gone_gets_no_other() -> None:
    world = running()
    world.change("Job", "j", {"status": {"active": 0, "conditions": [condition("Complete")]}})
    world.settle()
    world.delete("Workload", world.wl["metadata"]["name"])
    assert world.settle().workloads() == []


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_deleted_job_takes_its_workload_along(state: str) -> None:
    world = running() if state == "running" else World().put(job()).settle()
    world.delete("Job", "j")
    world.settle()
    assert world.objects == {}


def test_job_made_again_under_the_same_name_gets_its_own() -> None:
    world = running()
    world.put(job(uid="another"))
    world.settle()
    assert world.wl["metadata"]["labels"][names.JOB_UID_LABEL] == "another"


def test_job_being_deleted_does_not_wait_for_its_own_workload() -> None:
    world = running()
    world.change("Job", "j", {"metadata": {"deletionTimestamp": stamp(), "finalizers": ["foregroundDeletion"]}})
    world.settle()
    assert world.workloads() == []


def test_deleted_workload_stops_the_job_and_comes_again() -> None:
    world = running(flavors={"df": flavor(labels={"pool": "a"})})
    name, uid = world.wl["metadata"]["name"], world.wl["metadata"]["uid"]
    world.delete("Workload", name)
    world.settle()
    assert world.get("Job", "j")["spec"]["suspend"]
    assert world.wl["metadata"]["uid"] == uid, "quota is kept while pods run"
    stopped(world)
    world.settle()
    assert world.wl["metadata"]["uid"] != uid
    assert world.get("Job", "j")["spec"]["template"] == pod_template()
    assert world.wl["spec"]["podSets"][0]["template"] == pod_template()


def test_workload_that_vanishes_under_a_running_job_stops_it() -> None:
    world = running()
    del world.objects["Workload", world.wl["metadata"]["name"]]
    world.settle()
    assert world.get("Job", "j")["spec"]["suspend"]
    assert world.workloads() == []
    stopped(world)
    world.settle()
    template = world.wl["spec"]["podSets"][0]["template"]
    assert template == pod_template(), "Muster's own labels are not taken for the user's"


def test_label_removed_from_a_waiting_job_leaves_the_queue() -> None:
    world = World().put(job()).settle()
    world.change("Job", "j", {"metadata": {"labels": {names.QUEUE_LABEL: None}}})
    world.settle()
    assert world.workloads() == []


def test_label_removed_from_a_running_job_changes_nothing() -> None:
    world = running()
    world.change("Job", "j", {"metadata": {"labels": {names.QUEUE_LABEL: None}}})
    world.settle()
    assert world.is_true("Admitted")
    assert not world.get("Job", "j")["spec"]["suspend"]


# ------------------------------------------------------------------ reports


def test_pods_ready_is_written_when_it_is_true_and_not_before() -> None:
    settings = convert({"waitForPodsReady": {}}, Settings)
    world = running(settings=settings, active=1)
    world.change("Job", "j", {"status": {"ready": 1}})
    world.settle()
    assert world.status_of("PodsReady") is None
    world.change("Job", "j", {"status": {"active": 2, "ready": 2}})
    world.settle()
    assert world.is_true("PodsReady")
    world.change("Job", "j", {"status": {"active": 2, "ready": 1}})
    world.settle()
    lost = world.wl["status"]["conditions"][-1]
    assert (lost["status"], lost["reason"]) == ("False", "WaitForRecovery")
    world.change("Job", "j", {"status": {"ready": 2}})
    world.settle()
    assert world.wl["status"]["conditions"][-1]["reason"] == "Recovered"


RECLAIMABLE = {
    "nothing ended": ({"succeeded": 0}, {}, None),
    "more left than run at once": ({"succeeded": 3}, {"completions": 6}, None),
    "fewer left than run at once": ({"succeeded": 2}, {"completions": 4}, 1),
    "failed indexes end as well": (
        {"succeeded": 1, "completedIndexes": "0", "failedIndexes": "2-3"},
        {"completions": 4, "completionMode": "Indexed"},
        2,
    ),
}


@pytest.mark.parametrize(("status", "spec", "want"), RECLAIMABLE.values(), ids=RECLAIMABLE.keys())
def test_reclaimable_pods(status: dict[str, Any], spec: dict[str, Any], want: int | None) -> None:
    world = running(job(parallelism=3, **spec), active=3)
    world.change("Job", "j", {"status": status})
    world.settle()
    got = world.wl["status"].get("reclaimablePods")
    assert got == (None if want is None else [{"name": "main", "count": want}])


INDEXES = {"none": (("",), 0), "ranges": (("0-2,5",), 4), "overlap": (("0-2,5", "2-3"), 5), "beyond": (("8-200",), 2)}


@pytest.mark.parametrize(("lists", "want"), INDEXES.values(), ids=INDEXES.keys())
def test_index_count(lists: tuple[str, ...], want: int) -> None:
    assert index_count(lists, 10) == want


# ------------------------------------------------------------------ prebuilt and nested


def prebuilt() -> dict[str, Any]:
    world = World().put(job()).settle()
    raw = world.wl
    raw["metadata"] = {"name": "mine", "namespace": "team", "uid": "mine", "resourceVersion": "5"}
    return raw


def test_prebuilt_workload_is_taken_over() -> None:
    world = World().put(job(labels={names.PREBUILT_WORKLOAD: "mine"}))
    world.settle()
    assert world.workloads() == []
    assert "does not exist" in world.told("j")[0]
    world.put(prebuilt()).settle()
    assert [owner["uid"] for owner in world.wl["metadata"]["ownerReferences"]] == ["uid-j"]
    world.admit()
    world.settle()
    assert not world.get("Job", "j")["spec"]["suspend"]


def test_prebuilt_workload_that_says_something_else_is_out_of_sync() -> None:
    world = World().put(job(labels={names.PREBUILT_WORKLOAD: "mine"}, parallelism=3), prebuilt()).settle()
    assert world.wl["status"]["conditions"][0]["reason"] == "OutOfSync"
    assert world.get("Job", "j")["spec"]["suspend"]


def test_part_of_a_queued_job_only_must_not_run_ahead() -> None:
    parent = job("parent")
    child = job("child", suspend=False)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "uid-parent", "controller": True}
    child["metadata"]["ownerReferences"] = [owner]
    world = World().put(parent, child).settle()
    assert world.get("Job", "child")["spec"]["suspend"]
    assert [text.split(":")[0] for text in world.told("child")] == ["Suspended"]
    assert [effect.ref.name for effect in world.writes() if isinstance(effect, Create)] == [
        world.wl["metadata"]["name"]
    ]
    assert world.wl["metadata"]["ownerReferences"][0]["name"] == "parent"


def test_an_owner_that_comes_later_keeps_nobody_from_being_evicted() -> None:
    """A tenant may write owner references, and own a small job that is admitted."""
    world = World().put(job("child")).settle()
    world.admit()
    world.settle()
    assert not world.get("Job", "child")["spec"]["suspend"]
    name = world.wl["metadata"]["name"]
    parent = job("parent")
    world.put(parent).settle()
    world.admit(workload_name("Job", "batch", "parent", "uid-parent"))
    world.settle()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "uid-parent", "controller": True}
    world.change("Job", "child", {"metadata": {"ownerReferences": [owner]}})
    raw = world.get("Workload", name)
    conditions = [*raw["status"]["conditions"], condition("Evicted", reason="Preempted", message="make room")]
    world.change("Workload", name, {"status": {"conditions": conditions}})
    world.settle()
    assert world.get("Job", "child")["spec"]["suspend"]


# ------------------------------------------------------------------ gates of others


def gates_of(world: World) -> str | None:
    found: str | None = world.wl["metadata"].get("annotations", {}).get(names.ADMISSION_GATED_BY)
    return found


@pytest.mark.parametrize(
    ("left", "want"),
    [
        pytest.param("b", "b", id="one is lifted"),
        pytest.param(None, None, id="all are lifted"),
        pytest.param("b,c", "b", id="none is ever added"),
    ],
)
def test_gates_lifted_on_the_job_are_lifted_on_its_workload(left: str | None, want: str | None) -> None:
    world = World().put(job(annotations={names.ADMISSION_GATED_BY: "a,b"})).settle()
    assert gates_of(world) == "a,b"
    world.change("Job", "j", {"metadata": {"annotations": {names.ADMISSION_GATED_BY: left}}})
    world.settle()
    assert gates_of(world) == want


def test_a_gate_lifted_on_the_workload_stays_lifted() -> None:
    world = World().put(job(annotations={names.ADMISSION_GATED_BY: "a"})).settle()
    world.change("Workload", world.wl["metadata"]["name"], {"metadata": {"annotations": None}})
    world.settle()
    assert gates_of(world) is None


def test_in_a_namespace_that_is_being_deleted_no_workload_is_made() -> None:
    world = World(is_ending=True).put(job())
    assert world.settle().workloads() == []


def test_what_is_nested_too_deeply_is_told_and_left_alone() -> None:
    world = World()
    for depth in range(12):
        raw = job(f"j{depth}", suspend=False)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"j{depth + 1}", "uid": f"uid-j{depth + 1}"}
        raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}] if depth < 11 else []
        world.put(raw)
    (unit,) = [each for each in world.units() if each.key.name == "j0"]
    effects = BatchJobs().reconcile(unit, world).effects
    assert [(effect.reason, effect.ref.name) for effect in effects if isinstance(effect, Tell)] == [
        ("JobNestingTooDeep", "j0")
    ]
    assert len(effects) == 1
