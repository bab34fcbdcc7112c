"""Jobs of kinds that have operators of their own, as users write them, and what their operators say of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from admission.api import names
from admission.api.decoding import convert
from admission.api.job_kinds import BY_NAME, CustomJob
from admission.jobs.described import Role, Seen
from admission.jobs.effects import Tell
from admission.jobs.registry import DESCRIPTIONS
from tests.unit.jobs.builders import NS, World, condition, flavor, pod_template, stamp

Object = dict[str, Any]


def custom_job(
    kind: str,
    spec: Object,
    name: str = "j",
    queue: str | None = "lq",
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    owner: Object | None = None,
) -> Object:
    own = {names.QUEUE_LABEL: queue} if queue else {}
    metadata: Object = {
        "name": name,
        "namespace": NS,
        "uid": f"uid-{kind}-{name}",
        "resourceVersion": "1",
        "creationTimestamp": stamp(),
        "labels": {**own, **(labels or {})},
        "annotations": annotations or {},
    }
    if owner is not None:
        metadata["ownerReferences"] = [
            {
                "apiVersion": owner["apiVersion"],
                "kind": owner["kind"],
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
            }
        ]
    return {"apiVersion": BY_NAME[kind].api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": {}}


def job_set(**changes: Any) -> Object:
    replicated = [
        {"name": "driver", "template": {"spec": {"template": pod_template("1")}}},
        {
            "name": "workers",
            "replicas": 2,
            "template": {"spec": {"parallelism": 4, "completions": 3, "template": pod_template("2")}},
        },
    ]
    return custom_job("JobSet", {"suspend": True, "replicatedJobs": replicated}, **changes)


def training_job(kind: str, replicas: str, types: dict[str, int], **policy: Any) -> Object:
    specs = {type_: {"replicas": count, "template": pod_template()} for type_, count in types.items()}
    return custom_job(kind, {"runPolicy": {"suspend": True, **policy}, replicas: specs})


def ray_cluster_spec() -> Object:
    return {
        "headGroupSpec": {"rayStartParams": {"a": "b"}, "template": pod_template("2")},
        "workerGroupSpecs": [
            {"groupName": "Small", "replicas": 3, "template": pod_template("1")},
            {"groupName": "tpu", "replicas": 2, "numOfHosts": 4, "template": pod_template("8")},
        ],
    }


def app_wrapper() -> Object:
    wrapped_job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "spec": {"parallelism": 4, "completions": 2, "template": pod_template()},
    }
    wrapped_pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": pod_template()["spec"]}
    declared = {
        "podSets": [{"replicas": 5, "path": "template.spec.groups[1].template"}],
        "template": {"kind": "Other", "spec": {"groups": [{}, {"template": pod_template("3")}]}},
    }
    training = {"template": training_job("PyTorchJob", "pytorchReplicaSpecs", {"Master": 1, "Worker": 2})}
    components = [{"template": wrapped_job}, {"template": wrapped_pod}, declared, training]
    return custom_job("AppWrapper", {"suspend": True, "components": components})


def spark_application(**changes: Any) -> Object:
    spec: Object = {
        "type": "Python",
        "suspend": True,
        "driver": {"cores": 1, "memory": "512m", "labels": {"app": "a"}},
        "executor": {"instances": 3, "cores": 2, "memory": "4g", "gpu": {"name": "nvidia.com/gpu", "quantity": 1}},
        **changes,
    }
    return custom_job("SparkApplication", spec)


def train_job() -> Object:
    patches = [{"manager": "kueue.x-k8s.io/manager", "trainingRuntimeSpec": {"template": {"spec": {}}}}]
    spec = {"suspend": True, "runtimeRef": {"name": "torch"}, "runtimePatches": patches}
    return custom_job("TrainJob", spec)


def job_set_of(train: Object) -> Object:
    """What the trainer makes of it, while it is suspended already."""
    return job_set(owner=train, queue=None)


@dataclass(frozen=True)
class Kind:
    """One kind: a job, and the status in which it is ready, runs, and has ended."""

    id: str
    make: Callable[[], Object]
    pod_sets: dict[str, int]
    ready: Object
    active: Object | None
    succeeded: Object | None
    failed: Object | None
    parts: Callable[[Object], list[Object]] = lambda _: []
    reclaimable: tuple[Object, dict[str, int]] | None = None
    not_ready: Object = field(default_factory=dict)


def _conditions(*types: str) -> Object:
    return {"conditions": [condition(type_) for type_ in types]}


def _jobs_of(**statuses: Object) -> Object:
    return {"replicatedJobsStatus": [{"name": name, **status} for name, status in statuses.items()]}


_ALL_READY = _jobs_of(driver={"ready": 1}, workers={"ready": 1, "succeeded": 1})
_ONE_READY = _jobs_of(driver={"ready": 1}, workers={"ready": 1})
_ACTIVE = _jobs_of(workers={"active": 1})


def _training(id_: str, kind: str, replicas: str, **types: int) -> Kind:
    return Kind(
        id=id_,
        make=lambda: training_job(kind, replicas, types),
        pod_sets={type_.lower(): count for type_, count in types.items()},
        ready=_conditions("Running"),
        not_ready=_conditions("Created"),
        active={"replicaStatuses": {"Worker": {"active": 1}}},
        succeeded=_conditions("Succeeded"),
        failed=_conditions("Failed"),
    )


KINDS = [
    Kind(
        id="a JobSet",
        make=job_set,
        pod_sets={"driver": 1, "workers": 6},
        ready=_ALL_READY,
        not_ready=_ONE_READY,
        active=_ACTIVE,
        succeeded=_conditions("Completed"),
        failed=_conditions("Failed"),
        reclaimable=(_jobs_of(driver={}, workers={"succeeded": 1}), {"workers": 3}),
    ),
    _training("a PyTorchJob", "PyTorchJob", "pytorchReplicaSpecs", Master=1, Worker=3),
    _training("a TFJob", "TFJob", "tfReplicaSpecs", Chief=1, Master=1, PS=2, Worker=3, Evaluator=1),
    _training("an XGBoostJob", "XGBoostJob", "xgbReplicaSpecs", Master=1, Worker=3),
    _training("a PaddleJob", "PaddleJob", "paddleReplicaSpecs", Master=1, Worker=3),
    _training("a JAXJob", "JAXJob", "jaxReplicaSpecs", Worker=3),
    _training("an MPIJob", "MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=3),
    Kind(
        id="a RayCluster",
        make=lambda: custom_job("RayCluster", {"suspend": True, **ray_cluster_spec()}),
        pod_sets={"head": 1, "small": 3, "tpu": 8},
        ready={"state": "ready"},
        not_ready={"state": "suspended"},
        active={"state": "ready", "availableWorkerReplicas": 2},
        succeeded=None,
        failed=None,
    ),
    Kind(
        id="a RayJob",
        make=lambda: custom_job("RayJob", {"suspend": True, "rayClusterSpec": ray_cluster_spec()}),
        pod_sets={"head": 1, "small": 3, "tpu": 8, "submitter": 1},
        ready={"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
        not_ready={"jobDeploymentStatus": "Initializing"},
        active={"jobDeploymentStatus": "Suspending"},
        succeeded={"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"},
        failed={"jobDeploymentStatus": "Failed", "jobStatus": "FAILED"},
    ),
    Kind(
        id="a RayService",
        make=lambda: custom_job("RayService", {"rayClusterConfig": {"suspend": True, **ray_cluster_spec()}}),
        pod_sets={"head": 1, "small": 3, "tpu": 8},
        ready=_conditions("Ready"),
        active={"activeServiceStatus": {"rayClusterStatus": {"readyWorkerReplicas": 1}}},
        succeeded=None,
        failed=None,
    ),
    Kind(
        id="a TrainJob",
        make=train_job,
        parts=lambda train: [job_set_of(train)],
        pod_sets={"driver": 1, "workers": 6},
        ready={},
        active={"jobsStatus": [{"name": "workers", "active": 1}]},
        succeeded=_conditions("Complete"),
        failed=_conditions("Failed"),
    ),
    Kind(
        id="an AppWrapper",
        make=app_wrapper,
        pod_sets={"j-0": 2, "j-1": 1, "j-2": 5, "j-3": 1, "j-4": 2},
        ready=_conditions("PodsReady"),
        active=_conditions("QuotaReserved"),
        succeeded={"phase": "Succeeded"},
        failed={"phase": "Failed"},
    ),
    Kind(
        id="a SparkApplication",
        make=spark_application,
        pod_sets={"driver": 1, "executor": 3},
        ready={
            "applicationState": {"state": "RUNNING"},
            "executorState": {"a": "RUNNING", "b": "COMPLETED", "c": "RUNNING"},
        },
        not_ready={"applicationState": {"state": "RUNNING"}, "executorState": {"a": "RUNNING", "b": "PENDING"}},
        active={"applicationState": {"state": "SUSPENDING"}},
        succeeded={"applicationState": {"state": "COMPLETED"}},
        failed={"applicationState": {"state": "FAILED", "errorMessage": "no memory"}},
    ),
]


# ------------------------------------------------------------------ a world with them

ON = flavor(labels={"pool": "a"}, tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}])


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


def requests_of(role: Role, index: int = 0) -> Any:
    return role.template["spec"]["containers"][index]["resources"]
