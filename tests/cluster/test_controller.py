"""The controller alone on an API server with the CRDs: Workloads that are created directly, queues that come and go."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster.controller_rig import (
    Running,
    Watched,
    cluster_queue,
    flavor,
    install_crds,
    local_queue,
    running,
    workload,
)
from tests.controlplane.cluster import Api, ControlPlane, eventually

pytestmark = pytest.mark.cluster

_names = itertools.count()


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane) -> Iterator[Running]:
    install_crds(control_plane)
    control_plane.api.create(flavor())
    with running(control_plane) as controller:
        yield controller


@pytest.fixture
def watched(api: Api) -> Watched:
    return Watched(api)


@pytest.fixture
def queue(api: Api) -> str:
    """A ClusterQueue of 4 cpu and its LocalQueue, both of this name."""
    name = f"q{next(_names)}"
    api.create(cluster_queue(name, 4))
    api.create(local_queue(name, name))
    return name


def test_a_workload_is_admitted_by_one_write(api: Api, watched: Watched, queue: str) -> None:
    for kind in ("ClusterQueue", "LocalQueue"):  # or it might be told to wait for a queue that is not known yet
        eventually(lambda kind=kind: watched.condition(kind, queue, "Active").get("status") == "True")
    name = f"{queue}-w"
    writes = record_versions(api, name)
    api.create(workload(name, queue, cpu=2, count=2))
    watched.admitted(name)
    found = api.get("Workload", name, "default")
    time.sleep(1)
    # A watch of a second may see less, but never more than there was.
    seen = eventually(lambda: len(found := writes()) >= 2 and found)
    assert len(seen) == 2, "the creation and the admission"
    assignment = found["status"]["admission"]["podSetAssignments"][0]
    assert found["status"]["admission"]["clusterQueue"] == queue
    assert assignment == {
        "name": "main",
        "flavors": {"cpu": "default"},
        "resourceUsage": {"cpu": "4"},
        "count": 2,
    }
    assert not found["metadata"].get("finalizers")


def record_versions(api: Api, name: str) -> Callable[[], set[str]]:
    """All versions of a Workload that a watch from now on sees."""
    start = api.request("GET", api.path("Workload"))["metadata"]["resourceVersion"]

    def seen() -> set[str]:
        params = {"watch": "1", "resourceVersion": start, "timeoutSeconds": "1"}
        answer = api.session().get(api.server + api.path("Workload", "default"), params=params, timeout=10)
        objects = [json.loads(line)["object"]["metadata"] for line in answer.text.splitlines()]
        return {each["resourceVersion"] for each in objects if each["name"] == name}

    return seen


def test_what_does_not_fit_is_told_why_and_starts_when_there_is_room(api: Api, watched: Watched, queue: str) -> None:
    first, second, never = (f"{queue}-{name}" for name in ("first", "second", "never"))
    api.create(workload(first, queue, cpu=3))
    watched.admitted(first)
    api.create(workload(second, queue, cpu=2))
    api.create(workload(never, queue, cpu=5))
    assert "cpu" in watched.waits(second, "WaitingForQuota")
    assert "cpu" in watched.waits(never, "ExceedsMaxQuota")
    eventually(lambda: watched.status("ClusterQueue", queue).get("pendingWorkloads") == 2)
    watched.finish(first)
    watched.admitted(second)
    eventually(
        lambda: (
            {
                "flavorsUsage": [{"name": "default", "resources": [{"name": "cpu", "total": "2", "borrowed": "0"}]}],
                "pendingWorkloads": 1,
                "reservingWorkloads": 1,
                "admittedWorkloads": 1,
            }.items()
            <= watched.status("ClusterQueue", queue).items()
        )
    )
    eventually(lambda: watched.status("LocalQueue", queue).get("admittedWorkloads") == 1)


def test_borrowed_quota_is_reclaimed_and_the_borrower_waits_again(api: Api, watched: Watched) -> None:
    tag = f"r{next(_names)}"
    owner, borrower = f"{tag}-owner", f"{tag}-borrower"
    for name, cpu in ((owner, 4), (borrower, 0)):
        api.create(cluster_queue(name, cpu, cohort=tag, preemption={"reclaimWithinCohort": "Any"}))
        api.create(local_queue(name, name))
    api.create(workload(f"{tag}-b", borrower, cpu=3))
    watched.admitted(f"{tag}-b")
    eventually(lambda: watched.status("ClusterQueue", borrower)["flavorsUsage"][0]["resources"][0]["borrowed"] == "3")
    api.create(workload(f"{tag}-o", owner, cpu=4))
    watched.admitted(f"{tag}-o")
    victim = api.get("Workload", f"{tag}-b", "default")
    conditions = {each["type"]: (each["status"], each["reason"]) for each in victim["status"]["conditions"]}
    assert conditions["Evicted"] == ("True", "Preempted")
    assert conditions["Preempted"] == ("True", "InCohortReclamation")
    assert conditions["Requeued"] == ("True", "Preempted")
    assert conditions["Admitted"] == ("False", "NoReservation")
    assert "admission" not in victim["status"]
    watched.finish(f"{tag}-o")
    watched.admitted(f"{tag}-b")
    assert not watched.is_true(f"{tag}-b", "Evicted")


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_hold_and_drain_gives_quota_back_and_none_starts_again(
    api: Api, watched: Watched, queue: str, kind: str
) -> None:
    name = f"{queue}-w"
    api.create(workload(name, queue))
    watched.admitted(name)
    namespace = "default" if kind == "LocalQueue" else None
    api.patch(kind, queue, {"spec": {"stopPolicy": "HoldAndDrain"}}, namespace)
    eventually(lambda: watched.is_true(name, "Evicted") and not watched.is_true(name, "QuotaReserved"))
    assert watched.condition("Workload", name, "Evicted")["reason"] == f"{kind}Stopped"
    eventually(lambda: watched.condition(kind, queue, "Active").get("reason") == "Stopped")
    api.patch(kind, queue, {"spec": {"stopPolicy": "None"}}, namespace)
    watched.admitted(name)


def test_a_deactivated_workload_stays_out_until_it_is_activated(api: Api, watched: Watched, queue: str) -> None:
    name = f"{queue}-w"
    api.create(workload(name, queue))
    watched.admitted(name)
    api.patch("Workload", name, {"spec": {"active": False}}, "default")
    eventually(lambda: watched.is_true(name, "Evicted") and not watched.is_true(name, "QuotaReserved"))
    eventually(lambda: watched.status("ClusterQueue", queue).get("reservingWorkloads") == 0)
    api.patch("Workload", name, {"spec": {"active": True}}, "default")
    watched.admitted(name)
    assert watched.condition("Workload", name, "Requeued")["reason"] == "Reactivated"


def test_a_check_is_listed_asked_again_after_retry_and_admits_when_ready(
    api: Api, watched: Watched, queue: str
) -> None:
    check, name = checked(api, watched, queue), f"{queue}-w"
    api.create(workload(name, queue))
    eventually(lambda: watched.is_true(name, "QuotaReserved"))
    assert not watched.is_true(name, "Admitted")
    answer(api, name, check, "Retry")
    eventually(
        lambda: watched.condition("Workload", name, "Evicted").get("reason") in {"AdmissionCheck", "QuotaReserved"}
    )
    eventually(
        lambda: (
            watched.is_true(name, "QuotaReserved")
            and not watched.is_true(name, "Evicted")
            and api.get("Workload", name, "default")["status"]["admissionChecks"][0]["state"] == "Pending"
        )
    )
    answer(api, name, check, "Ready")
    watched.admitted(name)
    # There is no webhook here that would have set it from the start.
    eventually(lambda: api.get("AdmissionCheck", check)["metadata"].get("finalizers"))
    api.delete("AdmissionCheck", check)
    time.sleep(0.5)
    assert api.find("AdmissionCheck", check), "a queue refers to it"


def checked(api: Api, watched: Watched, queue: str) -> str:
    """Gives the queue a check that is active. Its status tells when the controller knows of both."""
    check = f"{queue}-check"
    api.create({**flavor(check), "kind": "AdmissionCheck", "spec": {"controllerName": "example.com/check"}})
    api.patch("ClusterQueue", queue, {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": check}]}}})
    eventually(lambda: watched.condition("ClusterQueue", queue, "Active").get("reason") == "AdmissionCheckInactive")
    set_active(api, check)
    eventually(lambda: watched.condition("ClusterQueue", queue, "Active").get("status") == "True")
    return check


def set_active(api: Api, check: str) -> None:
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    api.patch("AdmissionCheck", check, {"status": {"conditions": [condition]}}, sub="status")


def answer(api: Api, name: str, check: str, state: str) -> None:
    entry = {"name": check, "state": state, "message": "", "lastTransitionTime": "2026-01-02T03:04:05Z"}
    api.patch("Workload", name, {"status": {"admissionChecks": [entry]}}, "default", sub="status")


@pytest.mark.parametrize(
    "order", list(itertools.permutations(["ResourceFlavor", "ClusterQueue", "LocalQueue"])), ids="-".join
)
def test_everything_can_be_deleted_in_any_order(api: Api, watched: Watched, order: tuple[str, ...]) -> None:
    name = f"d{next(_names)}"
    api.create(flavor(name))
    api.create(cluster_queue(name, 2, flavors=name))
    api.create(local_queue(name, name))
    api.create(workload(name, name))
    watched.admitted(name)
    for kind in ("ClusterQueue", "ResourceFlavor"):  # there is no webhook here that would have set it from the start
        eventually(lambda kind=kind: api.get(kind, name)["metadata"].get("finalizers"))
    for kind in order:
        api.delete(kind, name, "default" if kind == "LocalQueue" else None)
    eventually(lambda: watched.condition("ClusterQueue", name, "Active").get("reason") == "Terminating")
    assert api.find("ResourceFlavor", name), "a queue uses it"
    assert watched.is_true(name, "Admitted"), "running work is left alone"
    watched.finish(name)
    for kind in order:
        watched.gone(kind, name)


def test_a_mere_reservation_does_not_keep_its_queue(api: Api, watched: Watched, queue: str) -> None:
    checked(api, watched, queue)
    name = f"{queue}-w"
    api.create(workload(name, queue))
    eventually(lambda: watched.is_true(name, "QuotaReserved"))
    eventually(lambda: api.get("ClusterQueue", queue)["metadata"].get("finalizers"))
    api.delete("ClusterQueue", queue)
    watched.gone("ClusterQueue", queue)
    assert not watched.is_true(name, "QuotaReserved")


def test_a_recreated_local_queue_takes_its_waiting_work_along(api: Api, watched: Watched) -> None:
    tag = f"m{next(_names)}"
    api.create(cluster_queue(f"{tag}-a", 0))
    api.create(cluster_queue(f"{tag}-b", 4))
    api.create(local_queue(tag, f"{tag}-a"))
    api.create(workload(tag, tag))
    eventually(lambda: watched.status("ClusterQueue", f"{tag}-a").get("pendingWorkloads") == 1)
    api.delete("LocalQueue", tag, "default")
    watched.gone("LocalQueue", tag)
    api.create(local_queue(tag, f"{tag}-b"))
    watched.admitted(tag)
    eventually(lambda: watched.status("ClusterQueue", f"{tag}-a").get("pendingWorkloads") == 0)
    eventually(lambda: watched.status("ClusterQueue", f"{tag}-b").get("pendingWorkloads") == 0)


def test_a_workload_without_a_queue_is_told_so(api: Api, watched: Watched) -> None:
    name = f"n{next(_names)}"
    api.create(workload(name, "no-such-queue"))
    assert "no-such-queue" in watched.waits(name, "Misconfigured")
    api.delete("Workload", name, "default")
    watched.gone("Workload", name)


def test_in_a_namespace_that_is_being_deleted_nothing_is_made_again(
    control_plane: ControlPlane, controller: Running, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody ends the namespace here, so it stays as it is: given up once, quietly, and not tried for ever."""
    api, ending, other = control_plane.api, control_plane.namespace(), control_plane.namespace()
    queue = f"q{next(_names)}"
    api.create(cluster_queue(queue, 4))
    for namespace in (ending, other):
        api.create(local_queue(queue, queue, namespace))
    api.create(suspended_job(ending, queue))
    eventually(lambda: api.list("Workload", ending), message="the job has its Workload")
    api.delete("Namespace", ending)
    (made,) = api.list("Workload", ending)
    api.delete("Workload", made["metadata"]["name"], ending)
    eventually(lambda: not api.list("Workload", ending), message="the Workload goes, and no finalizer keeps it")
    api.create(suspended_job(other, queue))
    eventually(lambda: api.list("Workload", other), message="elsewhere all goes on")
    assert not api.list("Workload", ending)
    samples = [each for family in text_string_to_metric_families(controller.metrics()) for each in family.samples]
    tried = [
        each.value
        for each in samples
        if each.name == "muster_writes_total"
        and (each.labels["verb"], each.labels["kind"]) == ("create", "Workload")
        and each.labels["result"] != "done"
    ]
    assert sum(tried) <= 1, "at most one that was under way when the namespace began to end"
    assert not [record for record in caplog.records if record.levelname == "WARNING" and ending in record.getMessage()]


def suspended_job(namespace: str, queue: str) -> dict[str, Any]:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "1"}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": namespace, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {"suspend": True, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }
