"""What a Workload says of its Job as that one changes, runs and ends."""

import copy
from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.jobs.batch_job import index_count
from admission.settings import Settings
from tests.unit.jobs.batch_jobs import running, stopped
from tests.unit.jobs.builders import NOW, World, condition, flavor, job, pod_template, stamp

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
    world.now = NOW + 3
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
