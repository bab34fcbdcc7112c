"""The main job seen from outside: intercepted when created, held by quota, released whole; judged by what is stored.

Everything is real: Kubernetes' own job controller, garbage collector and scheduler, fake kubelets, and Muster as the
processes that a user starts.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster import town as towns
from tests.cluster.town import GROUP, QUEUE, RACK, REQUIRED, Town, gates, is_bound, is_true, job, kueue, pod
from tests.controlplane.cluster import ApiError, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {"controllers": towns.CONTROLLERS, "scheduler": True, "kwok": True}


def admitted(town: Town, namespace: str, count: int = 1, seconds: float = 30) -> list[dict[str, Any]]:
    def ask() -> list[dict[str, Any]]:
        found = [w for w in town.workloads(namespace) if is_true(w, "Admitted")]
        return found if len(found) == count else []

    return eventually(ask, seconds=seconds, message=f"{count} Workloads of {namespace} are admitted")


def all_running(town: Town, namespace: str, count: int, seconds: float = 30) -> list[dict[str, Any]]:
    def ask() -> list[dict[str, Any]]:
        found = town.running(namespace)
        return found if len(found) == count else []

    return eventually(ask, seconds=seconds, message=f"{count} pods of {namespace} run")


def waits(town: Town, namespace: str, name_part: str = "") -> dict[str, Any]:
    def ask() -> Any:
        found = [w for w in town.workloads(namespace) if name_part in w["metadata"]["name"]]
        return next((w for w in found if towns.condition(w, "QuotaReserved").get("status") == "False"), None)

    return eventually(ask, message=f"a Workload of {namespace} is told to wait")


# ------------------------------------------------------------------ intercepted as they are created


def knows_its_queue(town: Town, team: str) -> None:
    """The webhook may hear of a LocalQueue later than the controller; then it gives it to who names none."""
    probe = pod(team, "probe", 1)
    eventually(lambda: town.api.create(probe, dry_run=True)["metadata"]["labels"][QUEUE] == "default")


def test_a_gpu_pod_that_names_no_queue_is_gated_and_let_go_when_it_is_admitted(town: Town) -> None:
    team = town.team(4)
    knows_its_queue(town, team)
    made = town.api.create(pod(team, "plain", 4))
    assert "kueue.x-k8s.io/admission" in gates(made)
    assert made["metadata"]["labels"][QUEUE] == "default"
    all_running(town, team, 1)
    second = town.api.create(pod(team, "second", 4))
    waits(town, team, "second")
    assert not is_bound(town.api.get("Pod", "second", team))
    assert gates(second)
    town.api.delete("Pod", "plain", team)
    eventually(lambda: is_bound(town.api.get("Pod", "second", team)))
    assert town.trails.bound_early(team) == []
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    town.raze(team)


def test_a_gpu_job_that_names_no_queue_is_queued_whole(town: Town) -> None:
    team = town.team(8)
    knows_its_queue(town, team)
    made = town.api.create(job(team, "train", 4, 2, run_for="1s"))
    assert made["spec"]["suspend"] is True
    assert made["metadata"]["labels"][QUEUE] == "default"
    eventually(lambda: is_true(town.api.get("Job", "train", team), "Complete"), seconds=30)
    eventually(lambda: all(is_true(w, "Finished") for w in town.workloads(team)))
    assert len(town.trails.of("Workload", team)) == 1
    assert len(town.trails.of("Pod", team)) == 4
    # Only its nodes are still to be chosen for each pod, so that a failed one can be replaced.
    assert {gate for t in town.trails.of("Pod", team) for gate in gates(t.first)} <= {"kueue.x-k8s.io/topology"}
    assert town.trails.bound_early(team) == []
    town.raze(team)


def test_a_cpu_job_is_queued_when_it_names_a_queue_and_only_then(town: Town) -> None:
    team = town.team(0)
    assert town.api.create(job(team, "queued", 1, 0, queue="default"))["spec"]["suspend"] is True
    assert not town.api.create(job(team, "free", 1, 0))["spec"].get("suspend")
    all_running(town, team, 2)
    assert len(town.workloads(team)) == 1
    town.raze(team)


def test_without_a_queue_to_go_to_a_gpu_pod_stays_gated_until_there_is_one(town: Town) -> None:
    team = town.team(8, local="")
    town.api.create(pod(team, "early", 1))
    town.api.create(job(team, "early", 1, 1))
    eventually(lambda: town.api.list("Event", team), message="the user is told")
    assert town.running(team) == []
    town.api.create(kueue("LocalQueue", "default", {"clusterQueue": team}, team))
    all_running(town, team, 2)
    town.raze(team)


# ------------------------------------------------------------------ pod groups


def test_a_group_starts_only_when_all_of_it_is_there(town: Town) -> None:
    team = town.team(8)
    for i in range(3):
        town.api.create(pod(team, f"g-{i}", 2, queue="default", group="g", total=4))
    eventually(lambda: any("3 of 4" in e["message"] for e in town.api.list("Event", team)))
    assert town.workloads(team) == []
    town.api.create(pod(team, "g-3", 2, queue="default", group="g", total=4))
    all_running(town, team, 4)
    [workload] = town.trails.of("Workload", team)
    admitted_at = towns.spans(workload)[0][0]
    bound = [t.first_that(is_bound) for t in town.trails.of("Pod", team)]
    assert all(revision is not None and revision > admitted_at for revision in bound)
    assert len(bound) == 4
    town.raze(team)


def test_a_failed_pod_of_a_group_is_replaced_and_one_too_many_is_deleted(town: Town) -> None:
    team = town.team(4)
    for i in range(4):
        town.api.create(pod(team, f"g-{i}", 1, queue="default", group="g", total=4))
    all_running(town, team, 4)
    town.api.patch("Pod", "g-2", {"status": {"phase": "Failed"}}, team, sub="status")
    town.api.create(pod(team, "g-new", 1, queue="default", group="g", total=4))
    eventually(lambda: is_bound(town.api.get("Pod", "g-new", team)))
    town.api.create(pod(team, "g-extra", 1, queue="default", group="g", total=4))
    eventually(lambda: town.api.find("Pod", "g-extra", team) is None)
    [workload] = town.trails.of("Workload", team)
    assert len(towns.spans(workload)) == 1, "it kept its admission all the while"
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    town.raze(team)


# ------------------------------------------------------------------ borrowing and reclaim


def test_a_borrowing_job_gives_back_and_comes_back_as_it_was(town: Town) -> None:
    cohort = "job-reclaim"
    lender, borrower = town.team(8, cohort=cohort), town.team(8, cohort=cohort)
    spec = {"annotations": {"example.com/mine": "kept", REQUIRED: RACK}}
    written = town.api.create(job(borrower, "big", 4, 4, queue="default", **spec))["spec"]["template"]
    all_running(town, borrower, 4)
    for i in range(2):
        town.api.create(pod(lender, f"mine-{i}", 4))
    all_running(town, lender, 2, seconds=40)
    eventually(lambda: town.api.get("Job", "big", borrower)["spec"]["suspend"] is True)
    eventually(lambda: town.pods(borrower) == [])
    eventually(lambda: town.api.get("Job", "big", borrower)["spec"]["template"] == written, message="as it was written")
    [evicted] = town.workloads(borrower)
    assert is_true(evicted, "Preempted")
    assert not evicted["status"].get("admission")
    for i in range(2):
        town.api.delete("Pod", f"mine-{i}", lender)
    all_running(town, borrower, 4, seconds=40)
    started = town.api.get("Job", "big", borrower)["spec"]["template"]
    assert started["spec"]["nodeSelector"] == {"example.com/gpu": "h100"}
    groups = {lender: cohort, borrower: cohort}
    assert town.trails.over_quota({cohort: 16}, groups) == []
    assert town.trails.bound_early(borrower) == []
    assert town.trails.admitted_twice(borrower) == []
    assert len(town.trails.of("Workload", borrower)) == 1
    town.raze(lender, borrower)


def test_a_group_is_preempted_by_a_group_and_starts_again_with_new_pods(town: Town) -> None:
    cohort = "group-reclaim"
    lender, borrower = town.team(8, cohort=cohort), town.team(0, cohort=cohort)
    for i in range(4):
        town.api.create(pod(borrower, f"b-{i}", 2, queue="default", group="b", total=4))
    all_running(town, borrower, 4)
    for i in range(4):
        town.api.create(pod(lender, f"l-{i}", 2, queue="default", group="l", total=4))
    all_running(town, lender, 4, seconds=40)
    assert town.running(borrower) == []
    for i in range(4):
        town.api.create(pod(borrower, f"again-{i}", 2, queue="default", group="b", total=4))
    waits(town, borrower)
    for i in range(4):
        town.api.delete("Pod", f"l-{i}", lender)
    all_running(town, borrower, 4, seconds=40)
    assert {p["metadata"]["name"] for p in town.running(borrower)} == {f"again-{i}" for i in range(4)}
    assert town.trails.over_quota({cohort: 8}, {lender: cohort, borrower: cohort}) == []
    assert town.trails.bound_early(borrower) == []
    town.raze(lender, borrower)


# ------------------------------------------------------------------ order and place


def test_the_higher_priority_starts_first_and_preempts_the_lower(town: Town) -> None:
    team = town.team(4)
    town.api.create(job(team, "low", 1, 4, queue="default", priority="low"))
    all_running(town, team, 1)
    time.sleep(1.1)  # creation times have whole seconds
    town.api.create(job(team, "next-low", 1, 4, queue="default", priority="low"))
    waits(town, team, "next-low")
    town.api.create(job(team, "high", 1, 4, queue="default", priority="high"))
    eventually(lambda: town.api.get("Job", "high", team)["status"].get("active") == 1, seconds=30)
    eventually(lambda: [p["metadata"]["labels"]["job-name"] for p in town.running(team)] == ["high"])
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    town.api.delete("Job", "high", team)
    eventually(lambda: [p["metadata"]["labels"]["job-name"] for p in town.running(team)] == ["low"], seconds=30)
    town.raze(team)


@pytest.mark.parametrize("form", ["job", "group"])
def test_a_gang_that_must_be_in_one_rack_is(town: Town, form: str) -> None:
    team = town.team(64)
    rack_of = {n["metadata"]["name"]: n["metadata"]["labels"][RACK] for n in town.api.list("Node")}
    if form == "job":
        for gang in range(3):
            town.api.create(job(team, f"j{gang}", 4, 4, queue="default", annotations={REQUIRED: RACK}))
    else:
        for gang in range(3):
            for i in range(4):
                more: dict[str, Any] = {"queue": "default", "group": f"g{gang}", "total": 4}
                town.api.create(pod(team, f"g{gang}-{i}", 4, annotations={REQUIRED: RACK}, **more))
    running = all_running(town, team, 12, seconds=30)
    racks: dict[str, set[str]] = {}
    for one in running:
        labels = one["metadata"]["labels"]
        racks.setdefault(labels.get(GROUP) or labels["job-name"], set()).add(rack_of[one["spec"]["nodeName"]])
    assert [len(found) for found in racks.values()] == [1, 1, 1]
    assert len(set.union(*racks.values())) == 3
    assert not any(gates(p) for p in town.pods(team))
    # A rack has 16 GPUs: this one never fits.
    town.api.create(job(team, "too-big", 5, 4, queue="default", annotations={REQUIRED: RACK}))
    waits(town, team, "too-big")
    assert town.trails.bound_early(team) == []
    town.raze(team)


def test_a_queued_job_that_is_started_around_its_queue_is_stopped(town: Town) -> None:
    """Only who may write Workloads' status can: the test is the administrator."""
    team = town.team(0)
    town.api.create(job(team, "waiting", 1, 1))
    waits(town, team)
    town.api.patch("Job", "waiting", {"spec": {"suspend": False}}, team)
    eventually(lambda: town.api.get("Job", "waiting", team)["spec"]["suspend"] is True, message="suspended again")
    eventually(lambda: town.pods(team) == [])
    town.raze(team)


def test_a_queued_pod_cannot_name_its_node(town: Town) -> None:
    team = town.team(8)
    bound = pod(team, "bound", 1)
    bound["spec"]["nodeName"] = "host-0"
    with pytest.raises(ApiError):
        town.api.create(bound)
    town.raze(team)


def test_the_pods_of_a_job_follow_one_another(town: Town) -> None:
    """More completions than places: whoever has ended leaves its place to the next."""
    team = town.team(16)
    one = job(team, "many", 2, 2, queue="default", run_for="200ms")
    one["spec"]["completions"] = 6
    town.api.create(one)
    eventually(lambda: is_true(town.api.get("Job", "many", team), "Complete"), message="all six have run")
    eventually(lambda: all(is_true(w, "Finished") for w in town.workloads(team)))
    assert len(town.workloads(team)) == 1
    assert town.trails.bound_early(team) == []
    town.raze(team)
