"""Every kind whose operator takes a suspend field, led by one adapter: one table of kinds, one test for each step."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.api.job_kinds import JOB_KINDS, CustomJob
from admission.jobs.described import Role, Seen
from admission.jobs.effects import Patch, Tell
from admission.jobs.registry import DESCRIPTIONS
from admission.settings import WaitForPodsReady
from tests.unit.jobs.builders import World, condition, flavor, pod_template
from tests.unit.jobs.custom_jobs import (
    KINDS,
    Kind,
    Object,
    app_wrapper,
    custom_job,
    job_set,
    job_set_of,
    ray_cluster_spec,
    spark_application,
    train_job,
    training_job,
)

ON = flavor(labels={"pool": "a"}, tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}])

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.id)


def world(*objects: Object, **changes: Any) -> World:
    return World(flavors={"df": ON}, **changes).put(*objects)


def of(kind: Kind) -> tuple[World, str]:
    """A world with one such job whose Workload is made, and its plain kind."""
    job = kind.make()
    return world(job, *kind.parts(job)).settle(), job["kind"]


def spec(w: World, kind: str, name: str = "j") -> Object:
    found: Object = w.objects[kind, name]["spec"]
    return found


def suspended(w: World, kind: str) -> bool:
    return convert(w.objects[kind, "j"], CustomJob).is_suspended


def roles(raw: Object, *parts: Object) -> dict[str, Role]:
    description = next(each for each in DESCRIPTIONS if each.kind.kind == raw["kind"])
    seen = Seen(convert(raw, CustomJob), tuple(convert(each, CustomJob) for each in parts))
    return {role.name: role for role in description.roles(seen) or ()}


def is_true(w: World, type_: str) -> bool:
    return any(each["type"] == type_ and each["status"] == "True" for each in w.wl["status"].get("conditions", []))


def events(w: World) -> set[str]:
    return {effect.reason for effect in w.done if isinstance(effect, Tell)}


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


def _requests(role: Role, index: int = 0) -> Any:
    return role.template["spec"]["containers"][index]["resources"]


def test_the_head_is_charged_what_kuberay_adds_to_it() -> None:
    cluster = {**ray_cluster_spec(), "enableInTreeAutoscaling": True}
    head = roles(custom_job("RayCluster", cluster))["head"]
    assert _requests(head, 1)["requests"] == {"cpu": "500m", "memory": "512Mi"}
    cluster["autoscalerOptions"] = {"resources": {"requests": {"cpu": "1"}}}
    assert _requests(roles(custom_job("RayCluster", cluster))["head"], 1) == {"requests": {"cpu": "1"}}
    cluster = {**ray_cluster_spec(), "gcsFaultToleranceOptions": {"redisAddress": "r"}}
    cluster["headGroupSpec"]["template"] = pod_template("100m")
    assert _requests(roles(custom_job("RayCluster", cluster))["head"])["requests"] == {"cpu": "200m", "memory": "256Mi"}
    cluster["headGroupSpec"]["template"] = pod_template("4")
    assert _requests(roles(custom_job("RayCluster", cluster))["head"])["requests"] == {"cpu": "4", "memory": "256Mi"}


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        pytest.param({}, {"head": 1, "submitter": 1}, id="a Job submits it unless another mode is named"),
        pytest.param({"submissionMode": "HTTPMode"}, {"head": 1}, id="nobody's pods submit it"),
        pytest.param({"submissionMode": "SidecarMode"}, {"head": 2}, id="the head has a container more"),
    ],
)
def test_who_submits_a_ray_job(mode: Object, want: dict[str, int]) -> None:
    found = roles(custom_job("RayJob", {**mode, "rayClusterSpec": {**ray_cluster_spec(), "workerGroupSpecs": []}}))
    assert {name: len(role.template["spec"]["containers"]) for name, role in found.items()} == want


def test_a_submitter_of_ones_own_is_charged_and_placed_like_the_others() -> None:
    job = custom_job("RayJob", {"suspend": True, "rayClusterSpec": ray_cluster_spec()})
    job["spec"]["submitterPodTemplate"] = pod_template("3")
    w = world(job).settle()
    w.admit()
    w.settle()
    assert spec(w, "RayJob")["submitterPodTemplate"]["spec"]["nodeSelector"] == {"pool": "a"}


def test_a_ray_job_on_a_cluster_that_is_there_already_is_left_alone() -> None:
    w = world(custom_job("RayJob", {"suspend": True, "clusterSelector": {"ray.io/cluster": "c"}})).settle()
    assert w.workloads() == []


def test_a_ray_job_that_kuberay_refuses_holds_no_quota_until_it_is_mended() -> None:
    w = world(custom_job("RayJob", {"suspend": True, "rayClusterSpec": ray_cluster_spec()})).settle()
    w.admit()
    w.settle()
    w.change("RayJob", "j", {"status": {"jobDeploymentStatus": "ValidationFailed"}})
    w.settle()
    assert suspended(w, "RayJob"), "mending it must not start it"
    [held] = [each for each in w.wl["status"]["conditions"] if each["type"] == "QuotaReserved"]
    assert (held["status"], held["reason"]) == ("False", "OnHold")
    w.change("RayJob", "j", {"status": {"jobDeploymentStatus": "Suspended"}})
    w.settle()
    [held] = [each for each in w.wl["status"]["conditions"] if each["type"] == "QuotaReserved"]
    assert held["reason"] == "PendingEvaluation"


def test_the_cluster_of_a_ray_job_is_not_queued_by_itself() -> None:
    job = custom_job("RayJob", {"suspend": True, "rayClusterSpec": ray_cluster_spec()})
    w = world(job).settle()
    cluster = custom_job("RayCluster", {"suspend": False, **ray_cluster_spec()}, "j-c", owner=job)
    w.put(cluster).settle()
    assert len(w.workloads()) == 1
    assert spec(w, "RayCluster", "j-c")["suspend"] is True, "it must not run ahead of its job"
    w.admit()
    w.settle()
    w.change("RayCluster", "j-c", {"spec": {"suspend": False}})
    w.settle()
    assert spec(w, "RayCluster", "j-c")["suspend"] is False


def test_a_train_job_waits_until_the_trainer_has_made_its_job_set() -> None:
    job = train_job()
    w = world(job).settle()
    assert w.workloads() == []
    w.put(job_set_of(job)).settle()
    assert [each["name"] for each in w.wl["spec"]["podSets"]] == ["driver", "workers"]


def test_a_train_job_gets_its_patches_before_it_is_let_go() -> None:
    job = train_job()
    w = world(job, job_set_of(job)).settle()
    w.admit()
    w.settle()
    written = [effect.body for effect in w.done if isinstance(effect, Patch) and effect.ref.kind == "TrainJob"]
    assert ["runtimePatches" in each["spec"] for each in written if isinstance(each, dict)] == [True, False]
    [entry] = spec(w, "TrainJob")["runtimePatches"]
    [driver, _] = entry["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    pods = driver["template"]["spec"]["template"]
    assert pods["spec"]["nodeSelector"] == {"pool": "a"}
    assert pods["metadata"]["labels"][names.PODSET_LABEL] == "driver"
    assert "app" not in pods["metadata"]["labels"], "what the runtime says already is not said again"


def test_patches_of_others_stay_with_a_train_job() -> None:
    job = train_job()
    others = {"manager": "someone", "trainingRuntimeSpec": {"template": {}}}
    job["spec"]["runtimePatches"] = [others]
    w = world(job, job_set_of(job)).settle()
    w.admit()
    w.settle()
    assert spec(w, "TrainJob")["runtimePatches"][0] == others
    assert len(spec(w, "TrainJob")["runtimePatches"]) == 2


def test_what_the_trainer_has_not_taken_out_yet_is_not_taken_for_the_runtimes() -> None:
    job = train_job()
    made = job_set_of(job)
    for each in made["spec"]["replicatedJobs"]:
        template = each["template"]["spec"]["template"]
        template["metadata"]["labels"][names.PODSET_LABEL] = each["name"]
        template["spec"]["nodeSelector"] = {"pool": "old"}
    w = world(job, made).settle()
    assert w.workloads() == []


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({}, {"cpu": "1", "memory": str(896 * 2**20)}, id="at least 384 MiB beside the memory"),
        pytest.param(
            {"type": "Scala", "driver": {"memory": "10g"}}, {"cpu": "1", "memory": str(11 * 2**30)}, id="a tenth"
        ),
        pytest.param({"driver": {"memory": "10g"}}, {"cpu": "1", "memory": str(14 * 2**30)}, id="more for Python"),
        pytest.param(
            {"memoryOverheadFactor": "0.5", "driver": {"memory": "2g"}},
            {"cpu": "1", "memory": str(3 * 2**30)},
            id="the factor that is named",
        ),
        pytest.param(
            {"driver": {"coreRequest": "500m", "memory": "1g", "memoryOverhead": "1g"}},
            {"cpu": "500m", "memory": str(2 * 2**30)},
            id="an overhead and cores of one's own",
        ),
        pytest.param(
            {"driver": {}, "sparkConf": {"spark.driver.memory": "2g", "spark.driver.memoryOverhead": "1g"}},
            {"cpu": "1", "memory": str(3 * 2**30)},
            id="what only sparkConf says",
        ),
        pytest.param(
            {"driver": {"memory": "a lot"}}, {"cpu": "1", "memory": str(1433 * 2**20)}, id="the default for nonsense"
        ),
    ],
)
def test_a_spark_driver_is_charged_what_spark_will_ask_for(changes: Object, want: Object) -> None:
    assert _requests(roles(spark_application(**changes))["driver"])["requests"] == want


def test_spark_executors_are_charged_their_devices() -> None:
    resources = _requests(roles(spark_application())["executor"])
    assert resources["limits"] == {"nvidia.com/gpu": 1}
    assert resources["requests"]["cpu"] == "2"


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


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        pytest.param({"replicas": 0, "minReplicas": 8}, 8, id="no fewer than the least"),
        pytest.param({"replicas": 9, "maxReplicas": 4}, 4, id="no more than the most"),
        pytest.param({"replicas": 3, "minReplicas": 1, "maxReplicas": 4, "numOfHosts": 2}, 6, id="between them"),
    ],
)
def test_workers_of_ray_are_as_many_as_kuberay_makes(limits: Object, want: int) -> None:
    group = {"groupName": "w", "template": pod_template(), **limits}
    made = custom_job("RayCluster", {"headGroupSpec": {"template": pod_template()}, "workerGroupSpecs": [group]})
    assert roles(made)["w"].count == want


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
