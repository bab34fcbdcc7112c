"""A Workload's life on a real API server: readiness, preemption gates, gates of others, retention, failed starts.

The controller runs alone; Jobs have no controller here, so the tests say what their pods do.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from admission.settings import WaitForPodsReady
from admission.settings.configuration import ObjectRetentionPolicies, RequeuingStrategy, WorkloadRetention
from admission.settings.durations import Seconds
from tests.cluster.controller_rig import (
    SETTINGS,
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

CHECK = "example.com/check"
GATED_BY = "kueue.x-k8s.io/admission-gated-by"
_names = itertools.count()
#: Every state that a Job's Workload has had, by the uid of the Job.
_past: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)


@pytest.fixture(scope="module", autouse=True)
def controller(control_plane: ControlPlane) -> Iterator[Running]:
    install_crds(control_plane)
    control_plane.api.create(flavor(nodeLabels={"zone": "a"}))
    settings = msgspec.structs.replace(
        SETTINGS,
        wait_for_pods_ready=WaitForPodsReady(
            timeout=Seconds(60),
            recovery_timeout=Seconds(1),
            requeuing_strategy=RequeuingStrategy(backoff_limit_count=3, backoff_base_seconds=1, backoff_max_seconds=1),
        ),
        object_retention_policies=ObjectRetentionPolicies(
            workloads=WorkloadRetention(after_finished=Seconds(2), after_deactivated_by_kueue=Seconds(1))
        ),
    )
    with running(control_plane, settings) as controller:
        yield controller


@pytest.fixture
def watched(api: Api) -> Watched:
    return Watched(api)


@pytest.fixture(scope="module", autouse=True)
def past(control_plane: ControlPlane) -> Iterator[None]:
    """Follows the Workloads, so that a test can ask for a state that lasts for a moment."""
    over = threading.Event()

    def keep(_event: str, obj: dict[str, Any]) -> None:
        _past[obj["metadata"].get("labels", {}).get("kueue.x-k8s.io/job-uid", "")].append(obj)

    follower = threading.Thread(
        target=control_plane.api.follow, args=("Workload", keep, lambda: not over.is_set()), daemon=True
    )
    follower.start()
    yield
    over.set()


@pytest.fixture
def queue(api: Api) -> str:
    """A ClusterQueue of 2 cpu in which the higher priority preempts, and its LocalQueue, both of this name."""
    name = f"l{next(_names)}"
    api.create(cluster_queue(name, 2, preemption={"withinClusterQueue": "LowerPriority"}))
    api.create(local_queue(name, name))
    return name


class Job:
    """A Job whose pods do what the test says."""

    def __init__(self, api: Api, name: str, queue: str, cpu: int = 1, **metadata: Any) -> None:
        self.api, self.name = api, name
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
        labels = {"kueue.x-k8s.io/queue-name": queue, **metadata.pop("labels", {})}
        made = api.create(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "default", "labels": labels, **metadata},
                "spec": {"suspend": True, "parallelism": 1, "completions": 1, "template": template},
            }
        )
        self.uid: str = made["metadata"]["uid"]

    @property
    def now(self) -> dict[str, Any]:
        return self.api.get("Job", self.name, "default")

    @property
    def workload(self) -> dict[str, Any]:
        found = self.api.list("Workload", "default", f"kueue.x-k8s.io/job-uid={self.uid}")
        return found[0] if found else {}

    def is_started(self) -> bool:
        return not self.now["spec"]["suspend"]

    def pods(self, active: int, ready: int = 0) -> None:
        began = self.now["status"].get("startTime") or _stamp()
        status = {"active": active, "ready": ready, "startTime": began if active else None}
        self.api.patch("Job", self.name, {"status": status}, "default", sub="status")

    def ends(self) -> None:
        conditions = [
            {"type": kind, "status": "True", "reason": "Test", "message": "", "lastTransitionTime": _stamp()}
            for kind in ("SuccessCriteriaMet", "Complete")
        ]
        began = self.now["status"].get("startTime") or _stamp()
        status = {"active": 0, "ready": 0, "succeeded": 1, "completionTime": _stamp(), "startTime": began}
        body = {"status": {**status, "conditions": conditions}}
        self.api.patch("Job", self.name, body, "default", sub="status")

    def says(self, type_: str) -> tuple[str, str]:
        """Status and reason of a condition of its Workload."""
        return _said(self.workload, type_)

    def once(self, question: Callable[[dict[str, Any]], bool]) -> bool:
        """Whether its Workload was like this at any time."""
        return any(question(state) for state in list(_past[self.uid]))

    def once_said(self, type_: str, status: str, reason: str) -> bool:
        return self.once(lambda state: _said(state, type_) == (status, reason))


def _said(workload: dict[str, Any], type_: str) -> tuple[str, str]:
    conditions = workload.get("status", {}).get("conditions") or []
    found = next((each for each in conditions if each["type"] == type_), {})
    return found.get("status", ""), found.get("reason", "")


def _stamp() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def test_readiness_from_the_start_to_the_second_start(api: Api, queue: str) -> None:
    """Started, lost, not recovered in time: evicted; and the next start has its whole time again."""
    job = Job(api, queue, queue)
    eventually(job.is_started)
    eventually(lambda: job.says("PodsReady") == ("False", "WaitForStart"))
    job.pods(active=1, ready=1)
    eventually(lambda: job.says("PodsReady") == ("True", "Started"))
    job.pods(active=1, ready=0)
    eventually(lambda: job.once_said("PodsReady", "False", "WaitForRecovery"))
    eventually(lambda: job.says("Evicted") == ("True", "PodsReadyTimeout") and not job.is_started())
    assert job.says("QuotaReserved")[0] == "True", "quota stays while pods run"
    job.pods(active=0)
    eventually(lambda: job.once(_waits_again), message="its quota is free until the next start")
    stats = job.workload["status"]["schedulingStats"]["evictions"]
    assert stats == [{"reason": "PodsReadyTimeout", "underlyingCause": "WaitForRecovery", "count": 1}]
    eventually(lambda: job.says("Admitted")[0] == "True" and job.is_started())
    job.pods(active=1, ready=0)
    time.sleep(1.5)
    assert job.says("Evicted")[0] == "False", "it waits for the start, and not for a recovery that is long over"
    job.pods(active=1, ready=1)
    eventually(lambda: job.says("PodsReady") == ("True", "Started"))
    job.ends()


def _waits_again(state: dict[str, Any]) -> bool:
    is_free = _said(state, "Evicted")[0] == "True" and "admission" not in state["status"]
    return is_free and _said(state, "PodsReady") == ("False", "WaitForStart")


def test_preemption_waits_for_its_gate(api: Api, watched: Watched, queue: str) -> None:
    low, high = f"{queue}-low", f"{queue}-high"
    api.create(workload(low, queue, cpu=2))
    watched.admitted(low)
    api.create(workload(high, queue, cpu=2, priority=5, preemptionGates=[{"name": "example.com/gate"}]))
    eventually(lambda: watched.condition("Workload", high, "BlockedOnPreemptionGates").get("status") == "True")
    assert watched.condition("Workload", high, "BlockedOnPreemptionGates")["reason"] == "PreemptionGated"
    assert not watched.is_true(low, "Evicted")
    gate = {"name": "example.com/gate", "position": "Open", "lastTransitionTime": _stamp()}
    api.patch("Workload", high, {"status": {"preemptionGates": [gate]}}, "default", sub="status")
    watched.admitted(high)
    assert watched.is_true(low, "Evicted")
    blocked = watched.condition("Workload", high, "BlockedOnPreemptionGates")
    assert (blocked["status"], blocked["reason"]) == ("False", "QuotaReserved")


def test_a_gate_of_others_is_lifted_through_the_job(api: Api, queue: str) -> None:
    job = Job(api, queue, queue, annotations={GATED_BY: "example.com/a,example.com/b"})
    eventually(lambda: job.says("QuotaReserved") == ("False", "AdmissionGated"))
    api.patch("Job", job.name, {"metadata": {"annotations": {GATED_BY: None}}}, "default")
    eventually(job.is_started)
    job.ends()


def test_the_value_of_a_priority_class_reaches_the_waiting(api: Api, watched: Watched, queue: str) -> None:
    for name, value in (("slow", 1), ("fast", 2)):
        api.create(
            {
                "apiVersion": "kueue.x-k8s.io/v1beta2",
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": f"{queue}-{name}"},
                "value": value,
            }
        )
    api.create(workload(f"{queue}-first", queue, cpu=2, priority=1000))
    watched.admitted(f"{queue}-first")
    label = "kueue.x-k8s.io/priority-class"
    slow = Job(api, f"{queue}-slow", queue, cpu=2, labels={label: f"{queue}-slow"})
    fast = Job(api, f"{queue}-fast", queue, cpu=2, labels={label: f"{queue}-fast"})
    eventually(lambda: slow.workload["spec"]["priority"] == 1 and fast.workload["spec"]["priority"] == 2)
    api.patch("WorkloadPriorityClass", f"{queue}-slow", {"value": 900})
    eventually(lambda: slow.workload["spec"]["priority"] == 900)
    watched.finish(f"{queue}-first")
    eventually(slow.is_started)
    api.patch("Job", fast.name, {"metadata": {"labels": {label: f"{queue}-slow"}}}, "default")
    eventually(lambda: fast.workload["spec"]["priority"] == 900)
    assert not fast.is_started()
    slow.ends()
    eventually(fast.is_started)
    fast.ends()


def test_a_job_that_was_rejected_is_deleted_after_its_time(api: Api, queue: str) -> None:
    check = _checked(api, queue)
    job = Job(api, queue, queue)
    eventually(lambda: job.says("Admitted") == ("False", "UnsatisfiedAdmissionChecks"))
    _answer(api, job, check, "Rejected")
    eventually(lambda: job.once_said("Evicted", "True", "DeactivatedDueToAdmissionCheck"))
    eventually(lambda: api.find("Job", job.name, "default") is None)
    eventually(lambda: not [w for w in api.list("Workload", "default") if w["spec"].get("queueName") == queue])


def test_updates_that_contradict_the_flavor_fail_the_start(api: Api, queue: str) -> None:
    """And what failed is finished: it holds no quota, and is deleted when its time is over."""
    check = _checked(api, queue)
    job = Job(api, queue, queue)
    eventually(lambda: job.says("QuotaReserved")[0] == "True")
    _answer(api, job, check, "Ready", podSetUpdates=[{"name": "main", "nodeSelector": {"zone": "b"}}])
    eventually(lambda: job.once_said("Finished", "True", "FailedToStart"))
    assert not job.is_started()
    eventually(lambda: api.get("ClusterQueue", queue)["status"].get("reservingWorkloads") == 0)
    api.delete("Job", job.name, "default")


def test_updates_of_checks_are_merged_at_the_start_and_taken_out_at_the_stop(api: Api, queue: str) -> None:
    check = _checked(api, queue)
    job = Job(api, queue, queue)
    eventually(lambda: job.says("QuotaReserved")[0] == "True")
    update = {"name": "main", "nodeSelector": {"rack": "r"}, "labels": {"l": "x"}, "annotations": {"a": "y"}}
    _answer(api, job, check, "Ready", podSetUpdates=[update])
    eventually(job.is_started)
    template = job.now["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"zone": "a", "rack": "r"}
    assert (template["metadata"]["labels"]["l"], template["metadata"]["annotations"]["a"]) == ("x", "y")
    _answer(api, job, check, "Retry", requeueAfterSeconds=600)
    eventually(lambda: not job.is_started() and "requeueAt" in job.workload["status"].get("requeueState", {}))
    eventually(lambda: "nodeSelector" not in job.now["spec"]["template"]["spec"])
    assert "l" not in job.now["spec"]["template"]["metadata"].get("labels", {})

    def is_asked_anew() -> bool:
        (state,) = job.workload["status"]["admissionChecks"]
        return (state["state"], state["retryCount"], state["requeueAfterSeconds"]) == ("Pending", 1, 600)

    eventually(is_asked_anew)
    eventually(lambda: job.says("QuotaReserved")[0] == "False", message="it is not tried again before its time")
    api.delete("Job", job.name, "default")


def test_finished_work_goes_when_its_time_is_over(api: Api, queue: str) -> None:
    job = Job(api, queue, queue)
    eventually(job.is_started)
    job.ends()
    eventually(lambda: job.once_said("Finished", "True", "Succeeded"))
    eventually(lambda: not job.workload)
    time.sleep(1)
    assert not job.workload, "it is not made anew"


def _checked(api: Api, queue: str) -> str:
    """Gives the queue a check that is active, and returns once the controller knows."""
    name = f"{queue}-check"
    api.patch("ClusterQueue", queue, {"spec": {"admissionChecksStrategy": {"admissionChecks": [{"name": name}]}}})
    watched = Watched(api)
    eventually(lambda: watched.condition("ClusterQueue", queue, "Active")["reason"] == "AdmissionCheckNotFound")
    api.create(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "AdmissionCheck",
            "metadata": {"name": name},
            "spec": {"controllerName": CHECK},
        }
    )
    active = {"type": "Active", "status": "True", "reason": "Test", "message": "", "lastTransitionTime": _stamp()}
    api.patch("AdmissionCheck", name, {"status": {"conditions": [active]}}, sub="status")
    eventually(lambda: watched.condition("ClusterQueue", queue, "Active")["status"] == "True")
    return name


def _answer(api: Api, job: Job, check: str, state: str, **more: Any) -> None:
    def answered() -> bool:
        found = job.workload
        state_ = {"name": check, "state": state, "message": "", "lastTransitionTime": _stamp(), **more}
        body = {
            "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
            "status": {"admissionChecks": [state_]},
        }
        api.patch("Workload", found["metadata"]["name"], body, "default", sub="status")
        return True

    eventually(answered)
