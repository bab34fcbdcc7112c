"""What users do that nobody expects: deletions in odd orders, edits at odd moments, forged owners, strange sizes.

Nothing may stay Terminating for ever, nothing may run without an admission, and what can go on goes on.
"""

from __future__ import annotations

import concurrent.futures
import itertools
import time
from typing import Any

import pytest

from tests.cluster import town as towns
from tests.cluster.town import FINALIZER, GPU, GROUP, QUEUE, TOTAL, Town, gates, is_true, job, kueue, pod
from tests.controlplane.cluster import ApiError, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

CONTROL_PLANE = {"controllers": towns.CONTROLLERS, "scheduler": True, "kwok": True, "users": {"researcher": []}}


def runs(town: Town, namespace: str, count: int, seconds: float = 60) -> None:
    eventually(
        lambda: len(town.running(namespace)) == count, seconds=seconds, message=f"{count} pods of {namespace} run"
    )


def goes(town: Town, kind: str, name: str, namespace: str | None = None, seconds: float = 90) -> None:
    eventually(lambda: town.api.find(kind, name, namespace) is None, seconds=seconds, message=f"{kind} {name} goes")


def said(town: Town, namespace: str, text: str, seconds: float = 30) -> None:
    def ask() -> bool:
        return any(text in event["message"] for event in town.api.list("Event", namespace))

    eventually(ask, seconds=seconds, message=f"an event says {text}")


def occupy(town: Town, team: str) -> None:
    """A running Job and group, a waiting Job and group, an incomplete group, a single pod."""
    town.api.create(job(team, "runs", 2, 1, queue="default"))
    for i in range(2):
        town.api.create(pod(team, f"runs-{i}", 1, queue="default", group="runs", total=2))
    runs(town, team, 4)
    town.api.create(job(team, "waits", 2, 2, queue="default"))
    for i in range(2):
        town.api.create(pod(team, f"waits-{i}", 2, queue="default", group="waits", total=2))
    town.api.create(pod(team, "part-0", 1, queue="default", group="part", total=2))
    town.api.create(pod(team, "single", 3))
    eventually(lambda: len(town.workloads(team)) == 5)


# ------------------------------------------------------------------ deletions


def delete_all(town: Town, kind: str, team: str) -> None:
    for obj in town.api.list(kind, team):
        town.api.delete(kind, obj["metadata"]["name"], team)


DELETIONS = {
    "the namespace": ["Namespace"],
    "the cluster queue, then the namespace": ["ClusterQueue", "Namespace"],
    "the local queue, then the jobs and pods": ["LocalQueue", "Job", "Pod"],
    "the workloads, then all else": ["Workload", "LocalQueue", "ClusterQueue", "Job", "Pod"],
    "the pods, then the jobs, then the queues": ["Pod", "Job", "LocalQueue", "ClusterQueue"],
    "the flavor first": ["ResourceFlavor", "ClusterQueue", "Workload", "Pod", "Job", "LocalQueue"],
}


@pytest.mark.parametrize("order", DELETIONS.values(), ids=DELETIONS.keys())
def test_whatever_is_deleted_first_nothing_stays_terminating(town: Town, order: list[str]) -> None:
    team = town.plane.namespace(prefix="team")
    town.api.create(kueue("ResourceFlavor", team, {}))
    quotas = [{"name": GPU, "nominalQuota": "4"}, {"name": "cpu", "nominalQuota": "1k"}]
    groups = [{"coveredResources": [GPU, "cpu"], "flavors": [{"name": team, "resources": quotas}]}]
    town.api.create(kueue("ClusterQueue", team, {"namespaceSelector": {}, "resourceGroups": groups}))
    town.api.create(kueue("LocalQueue", "default", {"clusterQueue": team}, team))
    eventually(lambda: town.api.get("LocalQueue", "default", team)["status"]["conditions"])
    occupy(town, team)
    for kind in order:
        if kind in {"Namespace", "ClusterQueue", "ResourceFlavor"}:
            town.api.delete(kind, team)
        else:
            delete_all(town, kind, team)
        time.sleep(0.5)
    if "Namespace" not in order:
        for kind in ("Pod", "Job"):
            eventually(lambda kind=kind: town.api.list(kind, team) == [], seconds=90, message=f"every {kind} goes")
        town.api.delete("Namespace", team)
    town.api.delete("ClusterQueue", team)
    town.api.delete("ResourceFlavor", team)
    town.razed.add(team)
    goes(town, "ClusterQueue", team)
    goes(town, "ResourceFlavor", team)


def test_a_deleted_workload_is_made_again_and_its_job_goes_on(town: Town) -> None:
    team = town.team(4)
    town.api.create(job(team, "train", 2, 2, queue="default"))
    runs(town, team, 2)
    before = town.workloads(team)[0]
    town.api.delete("Workload", before["metadata"]["name"], team)
    eventually(lambda: [w["metadata"]["uid"] for w in town.workloads(team)] != [before["metadata"]["uid"]])
    eventually(lambda: is_true(town.workloads(team)[0], "Admitted"), seconds=30)
    runs(town, team, 2)
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    assert town.trails.admitted_twice(team) == []
    town.raze(team)


def test_a_waiting_job_that_is_deleted_leaves_nothing(town: Town) -> None:
    team = town.team(0)
    town.api.create(job(team, "waits", 1, 1, queue="default"))
    eventually(lambda: len(town.workloads(team)) == 1)
    town.api.delete("Job", "waits", team)
    eventually(lambda: town.workloads(team) == [])
    town.raze(team)


def test_a_job_made_again_at_once_under_its_name_is_a_job_of_its_own(town: Town) -> None:
    team = town.team(4)
    for gpus in (4, 2, 4, 1):
        town.api.create(job(team, "same", 1, gpus, queue="default"))
        runs(town, team, 1)
        assert [towns.gpus(one) for one in town.running(team)] == [gpus]
        town.api.delete("Job", "same", team)
        eventually(lambda: town.pods(team) == [])
    # Without waiting for anything.
    for _ in range(5):
        town.api.create(job(team, "quick", 1, 4, queue="default"))
        town.api.delete("Job", "quick", team)
    town.api.create(job(team, "quick", 1, 4, queue="default"))
    runs(town, team, 1)
    eventually(lambda: len(town.workloads(team)) == 1)
    assert town.trails.bound_early(team) == []
    town.raze(team)


# ------------------------------------------------------------------ edits


def test_quota_cut_below_its_use_stops_nobody_and_admits_nobody(town: Town) -> None:
    team = town.team(4)
    town.api.create(job(team, "runs", 2, 2, queue="default"))
    runs(town, team, 2)
    spec = town.api.get("ClusterQueue", team)["spec"]
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = "1"
    town.api.patch("ClusterQueue", team, {"spec": spec})
    town.api.create(job(team, "small", 1, 1, queue="default"))
    eventually(lambda: any(towns.condition(w, "QuotaReserved").get("status") == "False" for w in town.workloads(team)))
    assert len(town.running(team)) == 2
    town.api.delete("Job", "runs", team)
    eventually(lambda: [p["metadata"]["labels"]["job-name"] for p in town.running(team)] == ["small"])
    town.raze(team)


def test_a_user_who_suspends_a_running_job_gets_it_started_again(town: Town) -> None:
    """As in Kueue: while the Workload is admitted the job is to run."""
    team = town.team(4)
    town.api.create(job(team, "train", 2, 2, queue="default"))
    runs(town, team, 2)
    for _ in range(3):
        town.api.patch("Job", "train", {"spec": {"suspend": True}}, team)
        eventually(lambda: town.api.get("Job", "train", team)["spec"]["suspend"] is False)
    runs(town, team, 2)
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    town.raze(team)


def test_a_workload_may_not_be_made_for_a_job_that_is_not_its_own(town: Town) -> None:
    """A Workload that says it is admitted is worth nothing to a Job whose pods it does not describe."""
    team = town.team(0)
    made = town.api.create(job(team, "train", 1, 4, queue="default"))
    eventually(lambda: len(town.workloads(team)) == 1)
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}]}}
    forged = kueue(
        "Workload",
        "forged",
        {"queueName": "default", "podSets": [{"name": "main", "count": 1, "template": template}]},
        team,
    )
    uid = made["metadata"]["uid"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    forged["metadata"]["ownerReferences"] = [owner]
    town.api.create(forged)
    goes(town, "Workload", "forged", team)
    time.sleep(1)
    assert town.api.get("Job", "train", team)["spec"]["suspend"] is True
    assert town.pods(team) == []
    town.raze(team)


def test_pods_with_forged_owners_are_gated_all_the_same(town: Town) -> None:
    """Who is no controller of the cluster may say of a pod that it is a Job's or a DaemonSet's; it is queued."""
    team = town.team(0)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "researcher", "namespace": team},
        "rules": [{"apiGroups": ["", "batch"], "resources": ["pods", "jobs"], "verbs": ["*"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "researcher", "namespace": team},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "researcher"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "researcher"}],
    }
    town.api.create(role)
    town.api.create(binding)
    user = town.plane.api_of("researcher")
    uid = eventually(lambda: user.create(job(team, "free", 1, 0)))["metadata"]["uid"]
    for i, (api_version, kind) in enumerate((("batch/v1", "Job"), ("apps/v1", "DaemonSet"))):
        body = pod(team, f"forged-{i}", 1)
        owner = {"apiVersion": api_version, "kind": kind, "name": "free", "uid": uid, "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
        assert gates(user.create(body))
    waiting = user.create(job(team, "waits", 1, 1))
    assert waiting["spec"]["suspend"] is True
    with pytest.raises(ApiError):
        user.patch("Job", "waits", {"spec": {"suspend": False}}, team)
    town.api.create(pod(team, "waits", 1))
    with pytest.raises(ApiError):
        user.patch("Pod", "waits", {"spec": {"schedulingGates": []}}, team)
    town.raze(team)


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        pytest.param({"total": 2}, {"total": 3}, "do not agree", id="two totals"),
        pytest.param({"queue": "default"}, {"queue": "other"}, "different queues", id="two queues"),
    ],
)
def test_pods_of_a_group_that_disagree_wait_and_are_told(town: Town, first: Any, second: Any, text: str) -> None:
    team = town.team(8)
    town.api.create(kueue("LocalQueue", "other", {"clusterQueue": team}, team))
    for i, more in enumerate((first, second)):
        town.api.create(pod(team, f"g-{i}", 1, **{"queue": "default", "group": "g", "total": 2, **more}))
    said(town, team, text)
    assert town.running(team) == []
    town.api.delete("Pod", "g-1", team)
    goes(town, "Pod", "g-1", team)
    town.api.create(pod(team, "g-2", 1, queue="default", group="g", total=2))
    runs(town, team, 2)
    town.raze(team)


def test_labels_and_annotations_can_be_changed_without_harm(town: Town) -> None:
    team = town.team(2)
    town.api.create(pod(team, "runs", 2))
    runs(town, team, 1)
    town.api.create(pod(team, "waits", 2))
    eventually(lambda: len(town.workloads(team)) == 2)
    refused = [
        {"labels": {"kueue.x-k8s.io/managed": None}},
        {"labels": {GROUP: "joined"}},
        {"labels": {"kueue.x-k8s.io/managed": "false"}},
    ]
    for metadata, name in itertools.product(refused, ("runs", "waits")):
        with pytest.raises(ApiError):
            town.api.patch("Pod", name, {"metadata": metadata}, team)
    with pytest.raises(ApiError):
        town.api.patch("Pod", "runs", {"metadata": {"labels": {QUEUE: "elsewhere"}}}, team)
    harmless = [
        {"annotations": {TOTAL: "nonsense"}},
        {"annotations": {"kueue.x-k8s.io/role-hash": "0"}},
        {"annotations": {"kueue.x-k8s.io/role-hash": None, TOTAL: None}},
        {"labels": {QUEUE: None}},
        {"labels": {QUEUE: "nowhere"}},
        {"labels": {QUEUE: "default"}},
        {"finalizers": None},
    ]
    for metadata in harmless:
        town.api.patch("Pod", "waits", {"metadata": metadata}, team)
        time.sleep(0.2)
    town.api.delete("Pod", "runs", team)
    goes(town, "Pod", "runs", team)
    eventually(lambda: [p["metadata"]["name"] for p in town.running(team)] == ["waits"])
    town.api.delete("Pod", "waits", team)
    goes(town, "Pod", "waits", team)
    town.raze(team)


# ------------------------------------------------------------------ sizes


def test_a_crowd_of_pods_created_at_once_is_admitted_as_far_as_it_fits(town: Town) -> None:
    team = town.team(64)
    bodies = [pod(team, f"p-{i}", 1, run_for="100ms") for i in range(300)]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(town.api.create, bodies))
    eventually(
        lambda: all(p["status"].get("phase") == "Succeeded" for p in town.pods(team)), seconds=120, message="all finish"
    )
    eventually(lambda: not any(FINALIZER in p["metadata"].get("finalizers", []) for p in town.pods(team)), seconds=60)
    assert town.trails.over_quota({team: 64}, {team: team}) == []
    assert town.trails.bound_early(team) == []
    town.raze(team)


def test_pods_of_forty_containers_and_names_of_the_greatest_length(town: Town) -> None:
    team = town.team(40)
    long = ".".join(["a" * 62] * 4)[:253]
    body = pod(team, long, 1)
    assert len(body["metadata"]["name"]) > 250
    town.api.create(body)
    many = pod(team, "many", 0)
    many["spec"]["containers"] = [
        {"name": f"c{i}", "image": "x", "resources": {"limits": {GPU: "0" if i else "1", "cpu": "10m"}}}
        for i in range(40)
    ]
    town.api.create(many)
    for i in range(2):
        one = pod(team, f"g-{i}", 1, queue="default", total=2)
        one["metadata"]["annotations"]["kueue.x-k8s.io/pod-group-name"] = long
        town.api.create(one)
    runs(town, team, 4)
    long_job = "j" * 63
    town.api.create(job(team, long_job, 1, 1, queue="default"))
    runs(town, team, 5)
    town.raze(team)


@pytest.mark.parametrize(
    ("change", "pods"),
    [
        pytest.param({"parallelism": 0}, 0, id="a Job of no pods"),
        pytest.param({"parallelism": 4, "completions": 2}, 2, id="fewer completions than parallelism"),
        pytest.param({"parallelism": 2, "completions": None}, 2, id="no completions"),
        pytest.param({"parallelism": 2, "completions": 0}, 0, id="nothing to complete"),
    ],
)
def test_jobs_of_strange_sizes(town: Town, change: dict[str, Any], pods: int) -> None:
    team = town.team(2)
    body = job(team, "strange", 1, 1, queue="default")
    body["spec"] |= change
    body["spec"] = {name: value for name, value in body["spec"].items() if value is not None}
    town.api.create(body)

    def goes_on() -> bool:
        """A Job with nothing to complete is complete before anybody starts it."""
        now = town.api.get("Job", "strange", team)
        return now["spec"]["suspend"] is False or is_true(now, "Complete")

    eventually(goes_on)
    runs(town, team, pods)
    town.api.create(job(team, "rest", 1, 2 - pods or 2, queue="default"))
    if pods == 0:
        runs(town, team, 1)
    town.raze(team)
