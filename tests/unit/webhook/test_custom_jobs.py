"""Jobs with operators of their own: who is suspended as it is created, and what may be written on one."""

from __future__ import annotations

from typing import Any

import pytest

from admission.api import names
from admission.api.decoding import convert
from admission.api.job_kinds import BY_NAME, JOB_KINDS, CustomJob
from admission.settings import GpuPods, Integrations, Settings, WithoutQueue
from admission.settings.configuration import LabelSelector
from admission.settings.problems import FRAMEWORKS
from admission.webhook.configuration import ByService, manifests, webhooks
from tests.unit.webhook.asking import DEFAULT_QUEUE, GPU, QUEUE, ask, patched, settings

Object = dict[str, Any]
SERVICE = ByService("muster-system", "kueue-webhook-service")


def every(gpu_pods: GpuPods | None = None, **changes: Any) -> Settings:
    return settings(gpu_pods, **{"integrations": Integrations(frameworks=FRAMEWORKS), **changes})


def template(gpus: int = 0, annotations: dict[str, str] | None = None) -> Object:
    limits = {GPU: gpus} if gpus else {}
    containers = [{"name": "c", "image": "i", "resources": {"limits": limits}}]
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": containers}}


def cluster(gpus: int = 0) -> Object:
    return {
        "headGroupSpec": {"template": template()},
        "workerGroupSpecs": [{"groupName": "w", "template": template(gpus)}],
    }


def replicas(field: str, type_: str = "Worker", **policy: Any) -> Any:
    return lambda gpus: {field: {type_: {"template": template(gpus)}}, **({"runPolicy": policy} if policy else {})}


SPECS: dict[str, Any] = {
    "JobSet": lambda gpus: {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": template(gpus)}}}]},
    "PyTorchJob": replicas("pytorchReplicaSpecs", "Master"),
    "TFJob": replicas("tfReplicaSpecs", "Evaluator", backoffLimit=3),
    "XGBoostJob": replicas("xgbReplicaSpecs"),
    "PaddleJob": replicas("paddleReplicaSpecs", suspend=False),
    "JAXJob": replicas("jaxReplicaSpecs"),
    "MPIJob": replicas("mpiReplicaSpecs", "Launcher"),
    "RayCluster": cluster,
    "RayJob": lambda gpus: {"shutdownAfterJobFinishes": True, "rayClusterSpec": cluster(gpus)},
    "RayService": lambda gpus: {"rayClusterConfig": cluster(gpus)},
    "TrainJob": lambda gpus: {"trainer": {"resourcesPerNode": {"limits": {GPU: gpus}}}},
    "AppWrapper": lambda gpus: {"components": [{"template": {"apiVersion": "v1", "kind": "Pod", **template(gpus)}}]},
    "SparkApplication": lambda gpus: {"driver": {}, "executor": {"gpu": {"name": GPU, "quantity": gpus}}},
}
every_kind = pytest.mark.parametrize("kind", SPECS)


def job(kind: str, spec: Object, queue: str = "", annotations: dict[str, str] | None = None) -> Object:
    labels = {QUEUE: queue} if queue else {}
    metadata = {"name": "j", "namespace": "ns", "annotations": annotations or {}, "labels": labels}
    return {"apiVersion": BY_NAME[kind].api_version, "kind": kind, "metadata": metadata, "spec": spec}


def mutated(obj: Object, with_settings: Settings | None = None) -> Object:
    answer = ask("mutate", obj, with_settings=with_settings or every(), caches=DEFAULT_QUEUE)
    assert answer.allowed, answer.message
    return patched(obj, answer)


def is_suspended(obj: Object) -> bool:
    return convert(obj, CustomJob).is_suspended


def refusal(obj: Object, old: Object | None = None, with_settings: Settings | None = None) -> str:
    return ask("validate", obj, old, with_settings=with_settings or every(), caches=DEFAULT_QUEUE).message


def test_every_kind_is_in_the_table() -> None:
    assert set(SPECS) == {kind.kind for kind in JOB_KINDS}


# ------------------------------------------------------------------ who is suspended


@every_kind
def test_a_job_that_names_a_queue_is_suspended_and_nothing_else_of_it_changes(kind: str) -> None:
    made = mutated(job(kind, SPECS[kind](0), "lq"))
    assert is_suspended(made)
    assert made["metadata"]["labels"] == {QUEUE: "lq"}
    original = SPECS[kind](0)
    assert {key for key in made["spec"] if made["spec"].get(key) != original.get(key)} <= {
        "suspend",
        "runPolicy",
        "rayClusterConfig",
        "runtimePatches",
    }
    assert not ask("mutate", made, with_settings=every(), caches=DEFAULT_QUEUE).patch, "once is enough"


@every_kind
def test_a_job_that_asks_for_gpus_gets_the_default_queue(kind: str) -> None:
    made = mutated(job(kind, SPECS[kind](1)))
    assert is_suspended(made)
    assert made["metadata"]["labels"] == {QUEUE: "default"}


@every_kind
def test_a_job_without_gpus_and_queue_is_left_alone(kind: str) -> None:
    made = job(kind, SPECS[kind](0))
    assert mutated(made) == made


@every_kind
def test_a_job_that_asks_for_gpus_without_a_queue_can_be_refused(kind: str) -> None:
    denying = every(GpuPods(without_queue=WithoutQueue.DENY))
    answer = ask("mutate", job(kind, SPECS[kind](1)), with_settings=denying)
    assert "so a LocalQueue of namespace ns has to be named" in answer.message
    assert ask("mutate", job(kind, SPECS[kind](0)), with_settings=denying).allowed


@every_kind
def test_a_kind_that_is_not_enabled_is_let_through(kind: str) -> None:
    made = job(kind, SPECS[kind](1), "No Queue!")
    assert mutated(made, settings()) == made
    assert refusal(made, with_settings=settings()) == ""


def test_a_train_job_that_leaves_it_to_the_runtime_is_taken_for_one_with_gpus() -> None:
    made = mutated(job("TrainJob", {"runtimeRef": {"name": "torch"}}))
    assert is_suspended(made)
    assert made["metadata"]["labels"] == {QUEUE: "default"}
    assert mutated(job("TrainJob", {}), every(GpuPods(enabled=False)))["spec"] == {}


def test_a_train_job_gets_one_entry_to_inject_into() -> None:
    others = {"manager": "someone"}
    made = mutated(job("TrainJob", {"runtimePatches": [others]}, "lq"))
    assert [each["manager"] for each in made["spec"]["runtimePatches"]] == ["someone", "kueue.x-k8s.io/manager"]


def test_a_ray_job_on_a_cluster_that_is_there_already_is_left_alone() -> None:
    made = job("RayJob", {"clusterSelector": {"ray.io/cluster": "c"}}, "lq")
    assert mutated(made) == made
    assert refusal(made) == ""


# ------------------------------------------------------------------ what may be written on it


def ray_job(**changes: Any) -> Object:
    return {**SPECS["RayJob"](0), **changes}


BAD: list[Any] = [
    pytest.param(
        "JobSet", SPECS["JobSet"](0), {names.ELASTIC_JOB: "true"}, "not supported for this kind", id="elastic"
    ),
    pytest.param("JAXJob", SPECS["JAXJob"](0), {names.PREBUILT_WORKLOAD: "w"}, "not supported", id="prebuilt for JAX"),
    pytest.param(
        "RayCluster", {**cluster(), "enableInTreeAutoscaling": True}, {}, "enableInTreeAutoscaling", id="autoscaling"
    ),
    pytest.param(
        "RayService",
        {"rayClusterConfig": {**cluster(), "enableInTreeAutoscaling": True}},
        {},
        "spec.rayClusterConfig.enableInTreeAutoscaling",
        id="autoscaling of a service",
    ),
    pytest.param(
        "RayJob", ray_job(shutdownAfterJobFinishes=False), {}, "shutdownAfterJobFinishes", id="a cluster stays"
    ),
    pytest.param("RayJob", {"shutdownAfterJobFinishes": True}, {}, "spec.rayClusterSpec: Required", id="no cluster"),
    pytest.param(
        "RayCluster",
        {**cluster(), "workerGroupSpecs": [{"groupName": "Head", "template": template()}]},
        {},
        "spec.workerGroupSpecs[0].groupName",
        id="workers called head",
    ),
    pytest.param(
        "RayCluster", {**cluster(), "workerGroupSpecs": [{}] * 18}, {}, "Too many: 18", id="more groups than pod sets"
    ),
    pytest.param(
        "SparkApplication", {"dynamicAllocation": {"enabled": True}}, {}, "dynamicAllocation", id="dynamic allocation"
    ),
    pytest.param(
        "SparkApplication",
        {"sparkConf": {"spark.dynamicAllocation.enabled": "True"}},
        {},
        "spec.sparkConf[spark.dynamicAllocation.enabled]",
        id="dynamic allocation by Spark's own name for it",
    ),
    pytest.param(
        "AppWrapper",
        {
            "components": [
                {
                    "podSets": [{"replicas": 1, "path": "template.spec.cheap"}],
                    "template": {
                        "apiVersion": "batch/v1",
                        "kind": "Job",
                        "spec": {"cheap": template(), "template": template(8), "parallelism": 4},
                    },
                }
            ]
        },
        {},
        "spec.components[0].podSets",
        id="pod sets that leave out what is wrapped",
    ),
    pytest.param("SparkApplication", {"nodeSelector": {"a": "b"}}, {}, "spec.nodeSelector", id="a common selector"),
    pytest.param(
        "JobSet",
        {"replicatedJobs": [{"template": {"spec": {"template": template(0, {names.PODSET_SLICE_SIZE: "0"})}}}]},
        {},
        "spec.replicatedJobs[0].template.spec.template.metadata.annotations",
        id="a slice of nothing",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "annotations", "want"), BAD)
def test_what_cannot_be_queued_is_refused(kind: str, spec: Object, annotations: dict[str, str], want: str) -> None:
    assert want in refusal(job(kind, spec, "lq", annotations))


@every_kind
def test_what_is_right_is_taken(kind: str) -> None:
    assert refusal(mutated(job(kind, SPECS[kind](1), "lq"))) == ""


@every_kind
def test_the_queue_of_a_job_that_runs_stays(kind: str) -> None:
    running = job(kind, SPECS[kind](0), "lq")
    moved = job(kind, SPECS[kind](0), "other")
    assert "immutable while the job is not suspended" in refusal(moved, running)
    assert refusal(mutated(moved), mutated(running)) == ""


@every_kind
def test_gpus_cannot_get_into_a_job_that_nobody_queues(kind: str) -> None:
    without, asking = job(kind, SPECS[kind](0)), job(kind, SPECS[kind](1))
    assert "GPUs are asked for now" in refusal(asking, without)
    assert refusal(asking, asking) == "", "one that has them from before is left alone"
    assert refusal(asking, without, every(GpuPods(without_queue=WithoutQueue.ALLOW))) == ""
    assert refusal(asking, without, every(manage_jobs_without_queue_name=True)) == ""


@every_kind
def test_a_suspended_job_with_gpus_keeps_a_queue(kind: str) -> None:
    """Without one nothing would hold back who starts it."""
    queued = mutated(job(kind, SPECS[kind](1), "lq"))
    freed = {**queued, "metadata": {**queued["metadata"], "labels": {}}}
    refused = ask("validate", freed, queued, with_settings=every()).message
    assert "may be changed, but not removed from a job that asks for GPUs" in refused
    allowing = every(GpuPods(without_queue=WithoutQueue.ALLOW))
    assert ask("validate", freed, queued, with_settings=allowing).allowed


def test_a_ray_job_cannot_get_gpus_by_no_longer_using_the_cluster_of_another() -> None:
    on_another = job("RayJob", {**SPECS["RayJob"](1), "clusterSelector": {"ray.io/cluster": "c"}})
    on_its_own = job("RayJob", SPECS["RayJob"](1))
    assert mutated(on_another) == on_another
    assert "GPUs are asked for now" in refusal(on_its_own, on_another)


def test_gpus_are_found_in_replicas_whose_type_is_spelled_otherwise() -> None:
    made = mutated(job("TFJob", {"tfReplicaSpecs": {"worker": {"template": template(1)}}}))
    assert is_suspended(made)


def test_pod_sets_of_an_app_wrapper_may_be_declared_as_they_are() -> None:
    for wrapped, places in (
        ({"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": template(1)}}, ["template.spec.template"]),
        ({"apiVersion": "v1", "kind": "Pod", **template(1)}, ["template"]),
        (
            {"apiVersion": "ray.io/v1", "kind": "RayCluster", "spec": cluster(1)},
            ["template.spec.headGroupSpec.template", "template.spec.workerGroupSpecs[0].template"],
        ),
    ):
        component = {"podSets": [{"path": place} for place in places], "template": wrapped}
        assert refusal(job("AppWrapper", {"components": [component]}, "lq")) == ""


# ------------------------------------------------------------------ whom the API server asks


def entries(made_for: Settings) -> dict[str, Object]:
    return {entry["name"]: entry for each in webhooks(made_for, SERVICE) for entry in each["webhooks"]}


@every_kind
def test_every_kind_is_asked_about_once_for_each_verb(kind: str) -> None:
    found = entries(every())
    for verb in ("m", "v"):
        entry = found[f"{verb}{kind.lower()}.kb.io"]
        [rule] = entry["rules"]
        assert rule["resources"] == [BY_NAME[kind].plural]
        assert rule["apiGroups"] == [BY_NAME[kind].group]
        assert rule["operations"] == (["CREATE"] if verb == "m" else ["CREATE", "UPDATE"])


def test_nothing_changes_where_no_such_kind_is_enabled() -> None:
    plain = manifests(settings(), SERVICE)
    assert "custom" not in str(plain)


def test_gpus_are_looked_for_in_some_namespaces_by_an_entry_of_their_own() -> None:
    found = entries(every(GpuPods(namespace_selector=LabelSelector(match_labels={"team": "a"}))))
    [named] = [each for each in found["mjobset.kb.io"]["matchConditions"] if each["name"] == "is-queued"]
    assert GPU not in named["expression"]
    [gpus] = [each for each in found["mgpujobset.kb.io"]["matchConditions"] if each["name"] == "is-queued"]
    assert "replicatedJobs" in gpus["expression"]
    assert found["mgpujobset.kb.io"]["namespaceSelector"]["matchExpressions"]


@pytest.mark.parametrize(
    "resource", ["pods", "jobs", "rayclusters", "jobsets", "statefulsets", "deployments", "leaderworkersets"]
)
def test_parts_are_left_out_only_for_who_may_write_their_owners_status(resource: str) -> None:
    for entry in entries(every()).values():
        if entry["rules"][0]["resources"] == [resource] and entry["name"].startswith("m"):
            [found] = [each for each in entry["matchConditions"] if "custom" in each["name"]]
            assert "ray.io/RayJob" in found["expression"]
            assert ".subresource('status')" in found["expression"]
