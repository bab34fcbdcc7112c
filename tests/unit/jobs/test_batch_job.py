"""Jobs are started as they were admitted, and stopped, released and restored."""

import copy
from typing import Any

import pytest

from admission.api import names
from admission.jobs.effects import Patch
from tests.unit.jobs.batch_jobs import TOLERATION, admitted, running, stopped
from tests.unit.jobs.builders import NOW, World, flavor, job, pod_template, stamp

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


def test_quota_is_kept_while_pods_may_follow_of_which_the_status_does_not_speak_yet() -> None:
    """The Job controller has not said that the Job was started: it may be making the first pods."""
    world = admitted()
    world.evict()
    world.settle()
    assert world.get("Job", "j")["spec"]["suspend"]
    assert world.status_of("QuotaReserved") == "True"
    world.now = NOW + 2
    world.settle()
    assert world.status_of("QuotaReserved") == "True"
    world.now = NOW + 3
    world.settle()
    assert world.status_of("QuotaReserved") == "False"
    assert world.get("Job", "j")["spec"]["template"] == pod_template() | {"metadata": {"labels": {"app": "a"}}}


@pytest.mark.parametrize(
    ("said", "status"),
    [pytest.param(1, "False", id="since it was admitted"), pytest.param(0, "True", id="perhaps before")],
)
def test_job_without_pods_is_released_once_its_controller_says_that_it_is_suspended(said: int, status: str) -> None:
    world = admitted()
    world.evict()
    world.settle()
    suspended = {"type": "Suspended", "status": "True", "reason": "JobSuspended", "message": ""}
    conditions = [suspended | {"lastTransitionTime": stamp(said)}]
    world.change("Job", "j", {"status": {"conditions": conditions}})
    world.settle()
    assert world.status_of("QuotaReserved") == status


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
    world.now = NOW + 3
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
