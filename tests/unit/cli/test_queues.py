"""`muster queues` and `muster explain`: from objects to what is shown."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from admission.api.core import Event
from admission.api.decoding import convert
from admission.api.kueue import ClusterQueue, LocalQueue, Workload
from admission.commands import explain, queues


def cluster_queue(name: str, *, active: bool = True) -> ClusterQueue:
    return convert(
        {
            "metadata": {"name": name},
            "spec": {
                "cohortName": "research",
                "resourceGroups": [
                    {
                        "coveredResources": ["nvidia.com/gpu"],
                        "flavors": [
                            {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "16"}]},
                            {"name": "a100", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": "8"}]},
                        ],
                    }
                ],
            },
            "status": {
                "pendingWorkloads": 2,
                "reservingWorkloads": 1,
                "admittedWorkloads": 1,
                "conditions": [
                    {"type": "Active", "status": str(active), "reason": "Ready", "message": "flavor a100 is missing"}
                ],
                "flavorsReservation": [
                    {"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "18", "borrowed": "2"}]}
                ],
                "flavorsUsage": [{"name": "h100", "resources": [{"name": "nvidia.com/gpu", "total": "10"}]}],
            },
        },
        ClusterQueue,
    )


def local_queue(name: str, of: str) -> LocalQueue:
    return convert({"metadata": {"name": name, "namespace": "team"}, "spec": {"clusterQueue": of}}, LocalQueue)


def workload(name: str, *conditions: dict[str, Any], owner: str = "", **spec: Any) -> Workload:
    owners = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": "u", "controller": True}] if owner else []
    return convert(
        {
            "metadata": {"name": name, "namespace": "team", "ownerReferences": owners, **spec.pop("metadata", {})},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 4, "template": {}}], **spec},
            "status": {"conditions": list(conditions)},
        },
        Workload,
    )


def condition(kind: str, status: str, reason: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": ""}


WAITS = condition("QuotaReserved", "False", "WaitingForQuota", "needs 8 nvidia.com/gpu in flavor h100: 5 free")


def test_a_queue_shows_its_quota_and_who_waits_for_what() -> None:
    workloads = [
        workload("a", WAITS),
        workload("b", WAITS),
        workload("c"),
        workload("d", condition("QuotaReserved", "True", "QuotaReserved")),
        workload("e", WAITS, condition("Finished", "True", "Succeeded")),
        workload("f", WAITS, queueName="elsewhere"),
    ]
    (view,) = queues.views([cluster_queue("cq")], [local_queue("lq", "cq")], workloads)
    assert view.waiting == {"PendingEvaluation": 1, "WaitingForQuota": 2}
    assert view.local_queues == ("team/lq",)
    assert (view.pending, view.reserving, view.admitted, view.active) == (2, 1, 1, True)
    assert view.quotas[0] == queues.Quota("h100", "nvidia.com/gpu", "16", "10", "18", "2")
    assert view.quotas[1] == queues.Quota("a100", "nvidia.com/gpu", "8")


def shown(renderable: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=200).print(renderable)
    return out.getvalue()


def test_the_table_says_why_a_queue_is_not_active() -> None:
    text = shown(queues.page(queues.views([cluster_queue("cq", active=False), cluster_queue("b")], [], [])))
    assert "cq: not active, flavor a100 is missing" in text
    assert text.index("\nb ") < text.index("\ncq ")


def test_the_inspection_api_adds_how_long_somebody_waits() -> None:
    waiting = [workload("w", WAITS)]
    found = queues.views([cluster_queue("cq")], [local_queue("lq", "cq")], waiting)
    assert "longest" not in shown(queues.page(queues.with_waits(found, {})))
    told = queues.with_waits(found, {"items": [{"name": "cq", "longestWaitSeconds": 3700}]})
    assert "WaitingForQuota 1 (longest 61m)" in shown(queues.page(told))


def test_the_inspection_api_adds_the_place_and_what_would_help() -> None:
    found = explain.explanation(workload("w", WAITS), "cq")
    answer = {
        "position": {"inClusterQueue": 2, "inLocalQueue": 0},
        "reason": {"remedy": "3 more cpu"},
        "ahead": [
            {"namespace": "team", "name": "first", "priority": 5, "pods": 8},
            {"namespace": None, "name": None, "priority": 0, "pods": 4},
        ],
    }
    told = explain.inspected(found, answer)
    assert told is not None
    assert (told.position_in_cluster_queue, told.position_in_local_queue) == (2, 0)
    text = shown(explain.page(told))
    assert "3 more cpu" in text
    assert "team/first (priority 5), a workload of 4 pods (priority 0)" in text
    assert explain.inspected(found, {"position": None}) is None


def test_a_pending_workload_says_why() -> None:
    event = Event(reason="Pending", message="no", last_timestamp="2026-01-01T00:00:00Z")
    found = explain.explanation(workload("w", WAITS, owner="train"), "cq", [event])
    assert (found.state, found.reason, found.owner) == ("Pending", "WaitingForQuota", "Job/train")
    assert found.pod_sets == (explain.PodSetView("main", 4),)
    text = shown(explain.page(found))
    assert "needs 8 nvidia.com/gpu in flavor h100: 5 free" in text
    assert "lq -> cq" in text
    assert "2026-01-01T00:00:00Z Pending: no" in text


def test_states_are_told_apart() -> None:
    reserved, admitted = (condition(kind, "True", kind) for kind in ("QuotaReserved", "Admitted"))
    evicted = condition("Evicted", "True", "Preempted", "Preempted to accommodate a workload")
    states = {
        "Pending": workload("w"),
        "QuotaReserved": workload("w", reserved),
        "Admitted": workload("w", reserved, admitted),
        "Evicted": workload("w", reserved, admitted, evicted),
        "Finished": workload("w", reserved, admitted, condition("Finished", "True", "Succeeded")),
        "Inactive": workload("w", active=False),
    }
    assert {name: explain.explanation(each, "").state for name, each in states.items()} == {n: n for n in states}


def test_a_name_of_a_job_finds_its_unfinished_workload() -> None:
    old = workload("old", owner="j", metadata={"creationTimestamp": "2026-01-01T00:00:00Z"})
    new = workload(
        "new", condition("Finished", "True", "x"), owner="j", metadata={"creationTimestamp": "2026-01-02T00:00:00Z"}
    )
    other = workload("other", owner="k")
    assert explain.newest([new, old, other], "j") is old
    assert explain.newest([new, other], "j") is new
    assert explain.newest([other], "j") is None
