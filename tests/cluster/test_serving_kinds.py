"""What serves, seen from outside: Deployments by their pods, StatefulSets whole, LeaderWorkerSets group by group.

Kubernetes' own controllers make the pods of the first two. The CRD of the third is a permissive one of ours, and its
pods are made here as its controller makes them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import town as towns
from tests.cluster.town import QUEUE, Town, gates, is_true, template
from tests.controlplane.cluster import ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {
    "controllers": [*towns.CONTROLLERS, "deployment-controller", "replicaset-controller", "statefulset-controller"],
    "scheduler": True,
    "kwok": True,
}
ADMISSION = "kueue.x-k8s.io/admission"
PARENT = "kueue.x-k8s.io/pod-suspending-parent"
LWS = "leaderworkerset.x-k8s.io/leaderworkerset"
LWS_LABELS = "leaderworkerset.sigs.k8s.io"
FRAMEWORKS = {"integrations": {"frameworks": ["batch/job", "deployment", "statefulset", LWS]}}


@pytest.fixture(scope="module")
def town(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Town]:
    control_plane.api.create(crd())
    eventually(lambda: control_plane.api.list("LeaderWorkerSet") == [], message="LeaderWorkerSets are served")
    with towns.town(control_plane, Path(tmp_path_factory.mktemp("muster")), FRAMEWORKS) as one:
        yield one
        one.all_razed()
        assert one.muster.complaints() == []


def crd() -> dict[str, Any]:
    """Anything goes: what is judged here is Muster."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}}
    names = {"plural": "leaderworkersets", "singular": "leaderworkerset", "kind": "LeaderWorkerSet"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "leaderworkersets.leaderworkerset.x-k8s.io"},
        "spec": {
            "group": "leaderworkerset.x-k8s.io",
            "names": names,
            "scope": "Namespaced",
            "versions": [version],
        },
    }


def serving(kind: str, namespace: str, name: str, replicas: int, gpus: int, *, queue: str = "") -> dict[str, Any]:
    """A Deployment or StatefulSet."""
    pods = template(gpus, labels={"app": name})
    pods["spec"] |= {"restartPolicy": "Always"}
    spec: dict[str, Any] = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": pods}
    if kind == "StatefulSet":
        spec |= {"serviceName": name}
    labels = {QUEUE: queue} if queue else {}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def run(town: Town, namespace: str, count: int) -> None:
    eventually(lambda: len(town.running(namespace)) == count, seconds=60, message=f"{count} pods of {namespace} run")


def reason(town: Town, namespace: str) -> str:
    [workload] = town.workloads(namespace)
    return str(towns.condition(workload, "QuotaReserved").get("reason"))


def scale(town: Town, namespace: str, name: str, replicas: int) -> None:
    town.api.patch("StatefulSet", name, {"spec": {"replicas": replicas}}, namespace)


# ------------------------------------------------------------------ Deployments


def test_the_pods_of_a_deployment_are_queued_one_by_one(town: Town) -> None:
    team = town.team(4)
    made = town.api.create(serving("Deployment", team, "web", 3, 2))
    assert made["metadata"]["labels"][QUEUE] == "default", "it asks for GPUs"
    assert made["spec"]["template"]["metadata"]["annotations"] == {PARENT: "deployment"}
    run(town, team, 2)
    eventually(lambda: len(town.workloads(team)) == 3)
    [waiting] = [pod for pod in town.pods(team) if ADMISSION in gates(pod)]
    assert not waiting["metadata"].get("finalizers"), "its owner replaces it"
    eventually(lambda: town.api.get("Deployment", "web", team)["status"].get("readyReplicas"))
    with pytest.raises(ApiError, match="immutable while replicas are ready"):
        town.api.patch("Deployment", "web", {"metadata": {"labels": {QUEUE: "other"}}}, team)
    town.api.patch("Deployment", "web", {"spec": {"replicas": 1}}, team)
    run(town, team, 1)
    eventually(lambda: len(town.workloads(team)) == 1, message="a pod that is gone has no Workload")
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    town.raze(team)


# ------------------------------------------------------------------ StatefulSets


def test_a_stateful_set_starts_whole_and_keeps_its_workload_on_hold_at_zero(town: Town) -> None:
    team = town.team(4)
    made = town.api.create(serving("StatefulSet", team, "db", 2, 2, queue="default"))
    assert made["spec"]["template"]["metadata"]["annotations"] == {PARENT: "statefulset"}
    run(town, team, 2)
    [workload] = town.workloads(team)
    assert [(each["name"], each["count"]) for each in workload["spec"]["podSets"]] == [("main", 2)]
    assert towns.held(workload) == 4
    assert all(pod["metadata"]["labels"][QUEUE] == "default" for pod in town.pods(team))
    with pytest.raises(ApiError, match="scale to 0 first"):
        scale(town, team, "db", 1)
    elsewhere = {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}}
    with pytest.raises(ApiError, match="may not change while pods of it are queued"):
        town.api.patch("StatefulSet", "db", elsewhere, team)
    scale(town, team, "db", 0)
    eventually(lambda: reason(town, team) == "OnHold", seconds=30, message="it is on hold")
    [held] = town.workloads(team)
    assert held["metadata"]["uid"] == workload["metadata"]["uid"]
    assert towns.held(held) == 0
    eventually(lambda: not town.api.get("StatefulSet", "db", team)["status"].get("replicas"))
    scale(town, team, "db", 1)
    run(town, team, 1)
    [again] = town.workloads(team)
    assert (again["metadata"]["uid"], towns.held(again)) == (workload["metadata"]["uid"], 2)
    town.api.delete("StatefulSet", "db", team)
    eventually(lambda: town.workloads(team) == [], seconds=30, message="its Workload goes with it")
    assert town.trails.over_quota({team: 4}, {team: team}) == []
    town.raze(team)


def test_a_stateful_set_made_anew_takes_up_the_pods_of_the_last_one(town: Town) -> None:
    team = town.team(4)
    made = serving("StatefulSet", team, "db", 2, 2)
    town.api.create(made)
    run(town, team, 2)
    before = {pod["metadata"]["uid"] for pod in town.pods(team)}
    body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Orphan"}
    town.api.request("DELETE", town.api.path("StatefulSet", team, "db"), body)
    eventually(lambda: town.api.find("StatefulSet", "db", team) is None)
    uid = town.api.create(made)["metadata"]["uid"]
    eventually(lambda: uid in towns.owners(town.workloads(team)[0]), message="the Workload is taken up")
    eventually(lambda: all(uid in towns.owners(pod) for pod in town.pods(team)))
    assert {pod["metadata"]["uid"] for pod in town.running(team)} == before
    assert towns.held(town.workloads(team)[0]) == 4
    assert len(town.trails.of("Workload", team)) == 1
    town.raze(team)


def test_a_stateful_set_without_room_for_all_starts_nothing(town: Town) -> None:
    team = town.team(4)
    town.api.create(serving("StatefulSet", team, "big", 3, 2))
    eventually(lambda: towns.condition(town.workloads(team)[0], "QuotaReserved").get("status") == "False")
    [first] = eventually(lambda: town.pods(team))
    assert ADMISSION in gates(first)
    assert towns.held(town.workloads(team)[0]) == 0
    town.raze(team)


# ------------------------------------------------------------------ LeaderWorkerSets


def leader_worker_set(namespace: str, name: str, replicas: int, size: int) -> dict[str, Any]:
    templates = {"size": size, "leaderTemplate": template(1), "workerTemplate": template(2)}
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "leaderWorkerTemplate": templates},
    }


def group_pod(owner: dict[str, Any], group: int, worker: int) -> dict[str, Any]:
    """As the controller and the StatefulSets between make it."""
    templates = owner["spec"]["leaderWorkerTemplate"]
    made = templates["workerTemplate" if worker else "leaderTemplate"]
    name = owner["metadata"]["name"]
    labels = {"name": name, "group-index": str(group), "worker-index": str(worker)}
    metadata = {
        **made["metadata"],
        "name": f"{name}-{group}-{worker}" if worker else f"{name}-{group}",
        "namespace": owner["metadata"]["namespace"],
        "labels": {**made["metadata"].get("labels", {}), **{f"{LWS_LABELS}/{key}": v for key, v in labels.items()}},
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


def test_a_leader_worker_set_starts_group_by_group(town: Town) -> None:
    team = town.team(5)
    made = town.api.create(leader_worker_set(team, "llm", 2, 3))
    for each in ("leaderTemplate", "workerTemplate"):
        metadata = made["spec"]["leaderWorkerTemplate"][each]["metadata"]
        assert metadata["labels"][QUEUE] == "default"
        assert metadata["annotations"][PARENT] == LWS
        assert metadata["annotations"]["kueue.x-k8s.io/pod-group-serving"] == "true"
    workers = made["spec"]["leaderWorkerTemplate"]["workerTemplate"]["metadata"]["annotations"]
    assert workers["kueue.x-k8s.io/pod-index-offset"] == "1"
    for group, worker in itertools.product(range(2), range(3)):
        town.api.create(group_pod(made, group, worker))
    run(town, team, 3)
    workloads = eventually(lambda: found if len(found := town.workloads(team)) == 2 else None)
    assert [[(s["name"], s["count"]) for s in w["spec"]["podSets"]] for w in workloads] == [
        [("leader", 1), ("worker", 2)],
        [("leader", 1), ("worker", 2)],
    ]
    [admitted] = [workload for workload in workloads if is_true(workload, "Admitted")]
    index = admitted["metadata"]["annotations"]["kueue.x-k8s.io/component-workload-index"]
    indexes = {pod["metadata"]["labels"][f"{LWS_LABELS}/group-index"] for pod in town.running(team)}
    assert indexes == {index}
    larger = {"spec": {"leaderWorkerTemplate": {"size": 4}}}
    with pytest.raises(ApiError, match="size"):
        town.api.patch("LeaderWorkerSet", "llm", larger, team)
    town.api.delete("LeaderWorkerSet", "llm", team)
    for pod in town.pods(team):
        town.api.delete("Pod", pod["metadata"]["name"], team)
    eventually(lambda: town.workloads(team) == [], seconds=30, message="its Workloads go with it")
    assert town.trails.over_quota({team: 5}, {team: team}) == []
    town.raze(team)
