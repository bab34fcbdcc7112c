"""Jobs with operators of their own, from creation to their end, with the real webhook and controller and no operators.

What an operator would write into a status is written by the test; everything else is Muster's and the API server's.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from admission.api.job_kinds import JOB_KINDS
from admission.settings import Integrations, WaitForPodsReady
from tests.cluster import custom_kinds
from tests.cluster.account import kubeconfig_of_muster
from tests.cluster.controller_rig import SETTINGS, Running
from tests.cluster.webhook_process import WebhookProcess, serving
from tests.controlplane.cluster import KUEUE, Api, ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

OPERATOR = "operator"
TENANT = "tenant"
CONTROL_PLANE = {"users": {"tenant": ("tenants",), "operator": ("operators",)}}

Object = dict[str, Any]
GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
PODSET = "kueue.x-k8s.io/podset"
FRAMEWORKS = ("batch/job", "pod", *(kind.framework for kind in JOB_KINDS))
INTEGRATIONS = Integrations(frameworks=FRAMEWORKS)
GATES = {"SparkApplicationIntegration": True}
#: Where each of the kinds has it; what a kind does not know is pruned or kept, and says nothing.
STARTED: Object = {"spec": {"suspend": False, "runPolicy": {"suspend": False}}}
TOLERATION = {"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}


def grant(api: Api, group: str, rules: list[Object]) -> None:
    version = "rbac.authorization.k8s.io/v1"
    api.apply({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": group}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": group}
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}
    binding = {"metadata": {"name": group}, "roleRef": reference, "subjects": [subject]}
    api.apply({"apiVersion": version, "kind": "ClusterRoleBinding", **binding})


@pytest.fixture(scope="module")
def muster(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebhookProcess]:
    api = control_plane.api
    custom_kinds.serve(control_plane)
    groups = sorted({kind.group for kind in JOB_KINDS})
    work = [
        {"apiGroups": groups, "resources": [kind.plural for kind in JOB_KINDS], "verbs": ["*"]},
        {"apiGroups": ["", "batch"], "resources": ["pods", "jobs"], "verbs": ["*"]},
    ]
    statuses = [f"{kind.plural}/status" for kind in JOB_KINDS]
    grant(api, "tenants", work)
    grant(api, "operators", [*work, {"apiGroups": groups, "resources": statuses, "verbs": ["update"]}])
    folder = tmp_path_factory.mktemp("webhook")
    with serving(control_plane, folder, integrations=INTEGRATIONS, feature_gates=GATES) as webhook:
        settings = msgspec.structs.replace(
            SETTINGS, integrations=INTEGRATIONS, feature_gates=GATES, wait_for_pods_ready=WaitForPodsReady()
        )
        controller = Running(kubeconfig_of_muster(control_plane), settings).start()
        try:
            yield webhook
        finally:
            controller.stop()


@pytest.fixture(scope="module")
def queues(control_plane: ControlPlane, muster: WebhookProcess) -> None:  # it has to run
    api = control_plane.api
    flavor = {"nodeLabels": {"pool": "h100"}, "tolerations": [TOLERATION]}
    api.create({"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "h100"}, "spec": flavor})


def team(plane: ControlPlane, local: str = "default") -> str:
    """A namespace with a queue of its own name that has room for everything."""
    name = plane.namespace()
    covered = ["cpu", "memory", GPU]
    flavor = {"name": "h100", "resources": [{"name": each, "nominalQuota": "1T"} for each in covered]}
    spec = {"namespaceSelector": {}, "resourceGroups": [{"coveredResources": covered, "flavors": [flavor]}]}
    plane.api.create({"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
    metadata = {"name": local, "namespace": name}
    plane.api.create({"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata, "spec": {"clusterQueue": name}})
    eventually(lambda: plane.api.get("LocalQueue", local, name)["status"]["conditions"])
    return name


def hold(api: Api, queue: str) -> None:
    """Returns once the controller knows: it may hear of a job that is created now before it hears of this."""
    api.patch("ClusterQueue", queue, {"spec": {"stopPolicy": "Hold"}})

    def is_held() -> bool:
        conditions = api.get("ClusterQueue", queue)["status"]["conditions"]
        return any(each["type"] == "Active" and each["status"] == "False" for each in conditions)

    eventually(is_held, message=f"{queue} is on hold")


def template(gpus: int = 0) -> Object:
    limits = {GPU: str(gpus)} if gpus else {}
    resources = {"requests": {"cpu": "1"}, "limits": limits}
    return {
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]},
    }


def job_set(gpus: int = 0) -> Object:
    workers = {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template(gpus)}}}
    return {"replicatedJobs": [workers]}


def pytorch_job(gpus: int = 0) -> Object:
    types = {"Master": 1, "Worker": 3}
    return {"pytorchReplicaSpecs": {each: {"replicas": n, "template": template(gpus)} for each, n in types.items()}}


def ray_job(gpus: int = 0) -> Object:
    cluster = {
        "headGroupSpec": {"rayStartParams": {}, "template": template()},
        "workerGroupSpecs": [{"groupName": "w", "replicas": 2, "template": template(gpus)}],
    }
    return {"entrypoint": "python", "shutdownAfterJobFinishes": True, "rayClusterSpec": cluster}


def metadata(name: str, namespace: str, queue: str = "", owner: Object | None = None) -> Object:
    found: Object = {"name": name, "namespace": namespace}
    if queue:
        found["labels"] = {QUEUE: queue}
    if owner is not None:
        reference = {key: owner[key] for key in ("apiVersion", "kind")}
        reference |= {key: owner["metadata"][key] for key in ("name", "uid")}
        found["ownerReferences"] = [{**reference, "controller": True}]
    return found


def custom(kind: str, spec: Object, name: str, namespace: str, queue: str = "", owner: Object | None = None) -> Object:
    version = next(each.api_version for each in JOB_KINDS if each.kind == kind)
    return {"apiVersion": version, "kind": kind, "metadata": metadata(name, namespace, queue, owner), "spec": spec}


def is_suspended(obj: Object) -> bool:
    value: Any = obj["spec"]
    for part in next(each.suspend for each in JOB_KINDS if each.kind == obj["kind"]):
        value = value.get(part) or {}
    return value is True


def is_true(workload: Object, type_: str) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any(each["type"] == type_ and each["status"] == "True" for each in conditions)


@dataclass(frozen=True)
class Life:
    """A kind, a spec of it, and what its operator says while it runs and at its end."""

    kind: str
    spec: Callable[[], Object]
    pod_sets: dict[str, int]
    runs: Object
    ended: Object


LIVES = [
    Life(
        "JobSet",
        job_set,
        {"w": 4},
        {"replicatedJobsStatus": [{"name": "w", "ready": 2, "active": 2, "succeeded": 0}]},
        {"conditions": [{"type": "Completed", "status": "True", "message": "all Jobs have ended"}]},
    ),
    Life(
        "PyTorchJob",
        pytorch_job,
        {"master": 1, "worker": 3},
        {
            "replicaStatuses": {"Worker": {"active": 3}},
            "conditions": [{"type": "Running", "status": "True", "message": "runs"}],
        },
        {"conditions": [{"type": "Succeeded", "status": "True", "message": "done"}]},
    ),
    Life(
        "RayJob",
        ray_job,
        {"head": 1, "w": 2, "submitter": 1},
        {"jobDeploymentStatus": "Running", "rayClusterStatus": {"state": "ready"}},
        {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED", "message": "done"},
    ),
]


@pytest.fixture(scope="module")
def policies(control_plane: ControlPlane, queues: None) -> None:  # it has to run
    """In effect: the API server takes some seconds until it judges objects of kinds that are new to it by them."""
    api, ns = control_plane.api, team(control_plane, "lq")
    hold(api, ns)
    for life in LIVES:
        api.create(custom(life.kind, life.spec(), "probe", ns, "lq"))

        def is_refused(kind: str = life.kind) -> bool:
            try:
                control_plane.api_of(TENANT).patch(kind, "probe", STARTED, ns)
            except ApiError as error:
                return "is started when it is admitted" in error.message
            return False

        # Until then a start goes through, and the controller stops the job again.
        eventually(is_refused, seconds=60, every=0.5)
        api.delete(life.kind, "probe", ns)


@pytest.mark.parametrize("life", LIVES, ids=lambda life: life.kind)
def test_from_creation_over_an_eviction_to_the_end(control_plane: ControlPlane, policies: None, life: Life) -> None:
    api, ns = control_plane.api, team(control_plane, "lq")

    def job() -> Object:
        return api.get(life.kind, "j", ns)

    def workload() -> Object:
        [found] = api.list("Workload", ns)
        return found

    def says(status: Object) -> None:
        api.patch(life.kind, "j", {"status": status}, ns, sub="status")

    def stop(policy: str) -> None:
        api.patch("ClusterQueue", ns, {"spec": {"stopPolicy": policy}})

    hold(api, ns)
    made = api.create(custom(life.kind, life.spec(), "j", ns, "lq"))
    assert is_suspended(made)
    waiting = copy.deepcopy(made["spec"])
    eventually(lambda: len(api.list("Workload", ns)) == 1, message="a Workload is made")
    assert {each["name"]: each["count"] for each in workload()["spec"]["podSets"]} == life.pod_sets
    with pytest.raises(ApiError, match="is started when it is admitted"):
        control_plane.api_of(TENANT).patch(life.kind, "j", STARTED, ns)

    stop("None")
    eventually(lambda: not is_suspended(job()), message="the job is let go")
    said = str(job()["spec"])
    assert "'pool': 'h100'" in said
    assert str(TOLERATION["key"]) in said
    assert all(f"'{PODSET}': '{name}'" in said for name in life.pod_sets if name != "submitter")
    with pytest.raises(ApiError, match="immutable while the job is not suspended"):
        api.patch(life.kind, "j", {"metadata": {"labels": {QUEUE: "other"}}}, ns)
    says(life.runs)
    eventually(lambda: is_true(workload(), "PodsReady"), message="the pods are ready")

    stop("HoldAndDrain")
    eventually(lambda: is_suspended(job()), message="the job is suspended again")
    assert is_true(workload(), "QuotaReserved"), "its pods still hold what they were given"
    api.patch(life.kind, "j", {"status": None}, ns, sub="status")
    eventually(lambda: not is_true(workload(), "QuotaReserved"), message="the quota is given back")
    eventually(lambda: job()["spec"] == waiting, message="nothing is left of the start")

    stop("None")
    eventually(lambda: not is_suspended(job()), message="the job is let go again")
    says(life.ended)
    eventually(lambda: is_true(workload(), "Finished"), message="its Workload is finished")
    assert (
        next(each for each in workload()["status"]["conditions"] if each["type"] == "Finished")["reason"] == "Succeeded"
    )
    api.delete(life.kind, "j", ns)
    eventually(lambda: api.list("Workload", ns) == [], message="its Workload goes with it")


def test_gpus_cannot_get_into_a_job_that_nobody_queues(control_plane: ControlPlane, queues: None) -> None:
    ns, tenant = team(control_plane), control_plane.api_of(TENANT)
    for kind, spec in (("PyTorchJob", pytorch_job), ("RayJob", ray_job), ("JobSet", job_set)):
        tenant.create(custom(kind, spec(0), "j", ns))
        with pytest.raises(ApiError, match="GPUs are asked for now"):
            tenant.patch(kind, "j", {"spec": spec(1)}, ns)


GPU_JOBS = [
    pytest.param("JobSet", job_set, id="a JobSet"),
    pytest.param("PyTorchJob", pytorch_job, id="a PyTorchJob"),
    pytest.param("RayJob", ray_job, id="a RayJob"),
    pytest.param("TrainJob", lambda gpus: {"trainer": {"resourcesPerNode": {"limits": {GPU: gpus}}}}, id="a TrainJob"),
    pytest.param(
        "AppWrapper",
        lambda gpus: {"components": [{"template": {"apiVersion": "v1", "kind": "Pod", **template(gpus)}}]},
        id="an AppWrapper",
    ),
    pytest.param(
        "SparkApplication",
        lambda gpus: {"driver": {}, "executor": {"gpu": {"name": GPU, "quantity": gpus}}},
        id="a SparkApplication",
    ),
]


@pytest.mark.parametrize(("kind", "spec"), GPU_JOBS)
def test_a_job_that_asks_for_gpus_is_queued_whole_without_a_queues_name(
    control_plane: ControlPlane,
    queues: None,
    kind: str,
    spec: Callable[[int], Object],
) -> None:
    ns = team(control_plane)
    tenant = control_plane.api_of(TENANT)
    made = tenant.create(custom(kind, spec(1), "gpus", ns), dry_run=True)
    assert is_suspended(made)
    assert made["metadata"]["labels"][QUEUE] == "default"
    made = tenant.create(custom(kind, spec(0), "none", ns), dry_run=True)
    assert not is_suspended(made)
    assert QUEUE not in made["metadata"].get("labels", {})


def test_what_an_operator_makes_of_a_job_is_not_queued_again_and_what_a_user_pretends_is(
    control_plane: ControlPlane,
    queues: None,
) -> None:
    api, ns = control_plane.api, team(control_plane)
    training = api.create(custom("PyTorchJob", pytorch_job(1), "train", ns))
    ray = api.create(custom("RayJob", ray_job(1), "ray", ns))
    several = api.create(custom("JobSet", job_set(1), "set", ns))
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata("p", ns, owner=training),
        "spec": template(1)["spec"],
    }
    spec = {"template": {"spec": {**template(1)["spec"], "restartPolicy": "Never"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata("j", ns, owner=several), "spec": spec}
    cluster = custom("RayCluster", ray_job(1)["rayClusterSpec"], "c", ns, owner=ray)

    operator, tenant = control_plane.api_of(OPERATOR), control_plane.api_of(TENANT)
    assert "schedulingGates" not in operator.create(pod, dry_run=True)["spec"]
    assert not operator.create(job, dry_run=True)["spec"].get("suspend")
    assert not is_suspended(operator.create(cluster, dry_run=True))

    assert tenant.create(pod, dry_run=True)["spec"]["schedulingGates"]
    assert tenant.create(job, dry_run=True)["spec"]["suspend"] is True
    assert is_suspended(tenant.create(cluster, dry_run=True))


def test_a_suspended_job_of_a_job_set_is_started_by_its_operator_only(
    control_plane: ControlPlane, queues: None
) -> None:
    api, ns = control_plane.api, team(control_plane)
    several = api.create(custom("JobSet", job_set(1), "set", ns))
    spec = {"suspend": True, "template": {"spec": {**template(1)["spec"], "restartPolicy": "Never"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata("j", ns, owner=several), "spec": spec}
    control_plane.api_of(OPERATOR).create(job)
    start = {"spec": {"suspend": False}}
    with pytest.raises(ApiError, match="is started when it is admitted"):
        control_plane.api_of(TENANT).patch("Job", "j", start, ns)
    assert control_plane.api_of(OPERATOR).patch("Job", "j", start, ns)["spec"]["suspend"] is False


def test_what_cannot_be_queued_as_it_stands_is_refused(control_plane: ControlPlane, queues: None) -> None:
    ns = team(control_plane, "lq")
    scaling = {"enableInTreeAutoscaling": True, **ray_job()["rayClusterSpec"]}
    with pytest.raises(ApiError, match="enableInTreeAutoscaling"):
        control_plane.api.create(custom("RayCluster", scaling, "c", ns, "lq"))
    assert control_plane.api.create(custom("RayCluster", scaling, "c", ns), dry_run=True)
    staying = {**ray_job(), "shutdownAfterJobFinishes": False}
    with pytest.raises(ApiError, match="shutdownAfterJobFinishes"):
        control_plane.api.create(custom("RayJob", staying, "r", ns, "lq"))
