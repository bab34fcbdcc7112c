"""Every kind whose operator takes a suspend field, led by one adapter: one table of kinds, one test for each step."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.api.job_kinds import JOB_KINDS, CustomJob
from admission.jobs.described import Seen
from admission.jobs.effects import Patch
from admission.jobs.registry import DESCRIPTIONS
from admission.settings import WaitForPodsReady
from tests.unit.jobs.builders import condition
from tests.unit.jobs.custom_jobs import (
    KINDS,
    Kind,
    Object,
    app_wrapper,
    events,
    is_true,
    job_set,
    job_set_of,
    of,
    roles,
    spec,
    suspended,
    train_job,
    training_job,
    world,
)

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)


def test_every_kind_is_described_once() -> None:
    assert sorted(each.kind.kind for each in DESCRIPTIONS) == sorted(each.kind for each in JOB_KINDS)
    assert sorted({kind.make()["kind"] for kind in KINDS}) == sorted(each.kind for each in JOB_KINDS)


# ------------------------------------------------------------------ waiting


@every_kind
def test_a_suspended_job_gets_one_workload_with_its_pod_sets(kind: Kind) -> None:
    w, name = of(kind)
    assert {each["name"]: each["count"] for each in w.wl["spec"]["podSets"]} == kind.pod_sets
    assert w.wl["metadata"]["name"].startswith(f"{name.lower()}-j-")
    assert w.wl["spec"]["queueName"] == "lq"
    [owner] = w.wl["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == (name, f"uid-{name}-j", True)
    assert suspended(w, name)


@every_kind
def test_a_job_without_a_queue_is_left_alone(kind: Kind) -> None:
    job = kind.make()
    job["metadata"]["labels"].pop(names.QUEUE_LABEL)
    w = world(job, *kind.parts(job)).settle()
    assert w.workloads() == []
    assert w.done == []


@every_kind
def test_a_job_that_runs_without_an_admission_is_suspended(kind: Kind) -> None:
    job = kind.make()
    w = world(job, *kind.parts(job))
    w.change(job["kind"], "j", {"spec": _with_suspend(job["kind"], value=False)})
    w.settle()
    assert suspended(w, job["kind"])
    assert names.EVENT_STOPPED in events(w)


def _with_suspend(kind: str, *, value: bool) -> Object:
    path = next(each.suspend for each in JOB_KINDS if each.kind == kind)
    body: Any = value
    for part in reversed(path):
        body = {part: body}
    assert isinstance(body, dict)
    return body


# ------------------------------------------------------------------ started and stopped


@every_kind
def test_an_admitted_job_is_let_go_with_the_admission_in_its_templates(kind: Kind) -> None:
    w, name = of(kind)
    before = copy.deepcopy(spec(w, name))
    w.admit()
    w.settle()
    assert not suspended(w, name)
    text = str(spec(w, name))
    assert "'pool': 'a'" in text
    assert "'operator': 'Exists'" in text
    for pod_set in kind.pod_sets:
        assert pod_set == "submitter" or f"'{names.PODSET_LABEL}': '{pod_set}'" in text
    assert f"'{names.WORKLOAD_ANNOTATION}': '{w.wl['metadata']['name']}'" in text
    assert spec(w, name) != before
    assert len(w.workloads()) == 1, "what a start changes is not taken for an edit"


@every_kind
def test_an_evicted_job_is_suspended_and_becomes_what_it_was(kind: Kind) -> None:
    w, name = of(kind)
    before = copy.deepcopy(spec(w, name))
    w.admit()
    w.settle()
    w.evict()
    w.settle()
    assert suspended(w, name)
    assert spec(w, name) == before
    assert not is_true(w, "QuotaReserved")
    w.admit()
    w.settle()
    assert not suspended(w, name), "and it can be let go again"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.active], ids=lambda kind: kind.id)
def test_quota_is_kept_until_nothing_of_the_job_runs(kind: Kind) -> None:
    w, name = of(kind)
    w.admit()
    w.settle()
    w.change(name, "j", {"status": kind.active})
    w.evict()
    w.settle()
    assert suspended(w, name)
    assert is_true(w, "QuotaReserved")
    w.objects[name, "j"]["status"] = {}
    w.settle()
    assert not is_true(w, "QuotaReserved")


@every_kind
@pytest.mark.parametrize("writes", range(6))
def test_a_controller_that_dies_anywhere_on_the_way_leaves_nothing_behind(kind: Kind, writes: int) -> None:
    w, name = of(kind)
    before = copy.deepcopy(spec(w, name))
    w.admit()
    w.settle(stop_after=writes)
    w.settle()
    w.evict()
    w.settle(stop_after=writes)
    w.settle()
    assert suspended(w, name)
    assert spec(w, name) == before


@every_kind
def test_an_edit_of_a_waiting_job_gets_into_its_workload(kind: Kind) -> None:
    w, name = of(kind)
    place = ("JobSet", "j") if name == "TrainJob" else (name, "j")
    w.objects[place]["spec"] = _edited(w.objects[place]["spec"])
    w.settle()
    assert "'disk': 'fast'" in str(w.wl["spec"]["podSets"])
    assert names.EVENT_UPDATED_WORKLOAD in events(w)


def _edited(value: Any) -> Any:
    """The spec with a node selector in every pod spec."""
    if isinstance(value, list):
        return [_edited(each) for each in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _edited(each) for key, each in value.items()}
    if "containers" in value or "cores" in value:
        changed["nodeSelector"] = {"disk": "fast"}
    return changed


def test_a_job_that_is_run_by_another_cluster_is_not_started_here() -> None:
    job = job_set()
    job["spec"]["managedBy"] = names.MULTIKUEUE_CONTROLLER
    w = world(job).settle()
    w.admit()
    w.settle()
    assert suspended(w, "JobSet")


def test_an_admission_that_contradicts_a_template_ends_the_workload() -> None:
    job = job_set()
    job["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "b"}
    w = world(job).settle()
    w.admit()
    w.settle()
    assert suspended(w, "JobSet")
    assert [each["reason"] for each in w.wl["status"]["conditions"] if each["type"] == "Finished"] == ["FailedToStart"]


# ------------------------------------------------------------------ what is reported


@every_kind
def test_readiness_is_what_the_operator_says(kind: Kind) -> None:
    w, name = of(kind)
    w.admit()
    w.settle()
    if name == "TrainJob":
        name, kind = "JobSet", KINDS[0]
    w.settings = _waiting_for_pods()
    w.objects[name, "j"]["status"] = kind.not_ready
    w.settle()
    assert not is_true(w, "PodsReady")
    w.objects[name, "j"]["status"] = kind.ready
    w.settle()
    assert is_true(w, "PodsReady")


def _waiting_for_pods() -> Any:
    from admission.settings import Settings

    return Settings(wait_for_pods_ready=WaitForPodsReady())


@pytest.mark.parametrize(
    ("kind", "success"),
    [
        pytest.param(kind, success, id=f"{kind.id} that has {'succeeded' if success else 'failed'}")
        for kind in KINDS
        for success in (True, False)
        if kind.succeeded is not None
    ],
)
def test_a_job_that_has_ended_finishes_its_workload(kind: Kind, success: bool) -> None:
    w, name = of(kind)
    w.admit()
    w.settle()
    w.objects[name, "j"]["status"] = kind.succeeded if success else kind.failed
    w.settle()
    [finished] = [each for each in w.wl["status"]["conditions"] if each["type"] == "Finished"]
    assert finished["reason"] == ("Succeeded" if success else "Failed")
    assert finished["message"]
    assert not w.wl["metadata"].get("finalizers")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.succeeded is None], ids=lambda kind: kind.id)
def test_what_serves_never_ends(kind: Kind) -> None:
    w, name = of(kind)
    w.admit()
    w.settle()
    w.objects[name, "j"]["status"] = {"state": "failed", "conditions": [condition("Failed"), condition("Complete")]}
    w.settle()
    assert not is_true(w, "Finished")


@pytest.mark.parametrize(
    ("make", "at"),
    [
        pytest.param(job_set, "JobSet", id="the Jobs of a JobSet that have succeeded"),
        pytest.param(train_job, "JobSet", id="those of the JobSet of a TrainJob"),
    ],
)
def test_pods_that_never_start_again_give_their_quota_back(make: Any, at: str) -> None:
    job = make()
    parts = [job_set_of(job)] if at != job["kind"] else []
    w = world(job, *parts).settle()
    w.admit()
    w.settle()
    w.objects[at, "j"]["status"] = {"replicatedJobsStatus": [{"name": "workers", "succeeded": 1, "active": 1}]}
    w.settle()
    assert w.wl["status"]["reclaimablePods"] == [{"name": "workers", "count": 3}]


def test_an_app_wrapper_has_failed_when_its_resources_are_gone() -> None:
    w = world(app_wrapper()).settle()
    w.admit()
    w.settle()
    w.objects["AppWrapper", "j"]["status"] = {"phase": "Failed", "conditions": [condition("ResourcesDeployed")]}
    w.settle()
    assert not is_true(w, "Finished")
    w.objects["AppWrapper", "j"]["status"] = {"phase": "Failed"}
    w.settle()
    assert is_true(w, "Finished")


@every_kind
def test_a_deleted_job_takes_its_workload_along_when_nothing_runs(kind: Kind) -> None:
    w, name = of(kind)
    w.admit()
    w.settle()
    w.change(name, "j", {"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}, "status": kind.active})
    w.settle()
    assert len(w.workloads()) == 1
    del w.objects[name, "j"]
    w.settle()
    assert w.workloads() == []


# ------------------------------------------------------------------ priorities


def test_the_scheduling_policy_comes_before_the_templates() -> None:
    from admission.api import core, meta

    classes = tuple(
        core.PriorityClass(metadata=meta.ObjectMeta(name=name), value=value) for name, value in (("hi", 9), ("lo", 1))
    )
    job = training_job("TFJob", "tfReplicaSpecs", {"Worker": 1, "Chief": 1})
    job["spec"]["tfReplicaSpecs"]["Chief"]["template"]["spec"]["priorityClassName"] = "lo"
    w = world(job, pod_classes=classes).settle()
    assert w.wl["spec"]["priority"] == 1
    job = training_job("TFJob", "tfReplicaSpecs", {"Worker": 1}, schedulingPolicy={"priorityClass": "hi"})
    job["spec"]["tfReplicaSpecs"]["Worker"]["template"]["spec"]["priorityClassName"] = "lo"
    w = world(job, pod_classes=classes).settle()
    assert w.wl["spec"]["priority"] == 9


# ------------------------------------------------------------------ particular to a kind


def test_pods_of_a_job_set_are_numbered_within_their_jobs() -> None:
    job = job_set()
    template = job["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]
    template["metadata"]["annotations"] = {names.PODSET_REQUIRED_TOPOLOGY: "rack"}
    w = world(job).settle()
    assert w.wl["spec"]["podSets"][1]["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
        "subGroupCount": 2,
    }


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)
@pytest.mark.parametrize("nonsense", [None, [], "text", 7, {"a": [None]}, [[]], {"template": []}])
def test_nonsense_is_read_as_nothing(kind: Kind, nonsense: Any) -> None:
    raw = kind.make()
    for key in raw["spec"]:
        changed = {**raw, "spec": {**raw["spec"], key: nonsense}, "status": {key: nonsense, "conditions": nonsense}}
        roles(changed, *kind.parts(raw))
        description = next(each for each in DESCRIPTIONS if each.kind.kind == raw["kind"])
        seen = Seen(convert(changed, CustomJob))
        description.ready(seen)
        description.active(seen)
        description.reclaimable(seen)
        assert description.verdict(seen) is None or raw["kind"] == "AppWrapper"


def test_replica_types_of_any_spelling_are_charged() -> None:
    """The operator mends the spelling, and makes pods of types that it does not know."""
    found = roles(training_job("TFJob", "tfReplicaSpecs", {"zebra": 1, "worker": 4, "Chief": 1}))
    assert [(name, role.count) for name, role in found.items()] == [("chief", 1), ("worker", 4), ("zebra", 1)]


def test_a_job_that_runs_with_other_claims_is_stopped() -> None:
    """Templates of these kinds can be changed while they run, and claims cost what their own templates say."""
    job = training_job("PyTorchJob", "pytorchReplicaSpecs", {"Worker": 1})
    pod = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]
    pod["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    w = world(job).settle()
    w.admit()
    w.settle()
    assert not suspended(w, "PyTorchJob")
    replicas = copy.deepcopy(spec(w, "PyTorchJob")["pytorchReplicaSpecs"])
    replicas["Worker"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "eight"
    w.change("PyTorchJob", "j", {"spec": {"pytorchReplicaSpecs": replicas}})
    w.settle()
    assert suspended(w, "PyTorchJob")


@every_kind
def test_a_job_is_let_go_only_as_it_was_looked_at(kind: Kind) -> None:
    """Who changes it in the same moment would run with what was not admitted."""
    w, name = of(kind)
    w.admit()
    w.settle()
    starts = [
        each for each in w.done if isinstance(each, Patch) and each.ref.kind == name and "False" in str(each.body)
    ]
    assert starts
    assert all(each.resource_version for each in starts)
