"""Jobs and clusters of Ray: what KubeRay adds to the head, makes of workers, and does in a job's name."""

from __future__ import annotations

import pytest

from tests.unit.jobs.builders import pod_template
from tests.unit.jobs.custom_jobs import (
    Object,
    custom_job,
    ray_cluster_spec,
    requests_of,
    roles,
    spec,
    suspended,
    world,
)


def test_the_head_is_charged_what_kuberay_adds_to_it() -> None:
    cluster = {**ray_cluster_spec(), "enableInTreeAutoscaling": True}
    head = roles(custom_job("RayCluster", cluster))["head"]
    assert requests_of(head, 1)["requests"] == {"cpu": "500m", "memory": "512Mi"}
    cluster["autoscalerOptions"] = {"resources": {"requests": {"cpu": "1"}}}
    assert requests_of(roles(custom_job("RayCluster", cluster))["head"], 1) == {"requests": {"cpu": "1"}}
    cluster = {**ray_cluster_spec(), "gcsFaultToleranceOptions": {"redisAddress": "r"}}
    cluster["headGroupSpec"]["template"] = pod_template("100m")
    assert requests_of(roles(custom_job("RayCluster", cluster))["head"])["requests"] == {
        "cpu": "200m",
        "memory": "256Mi",
    }
    cluster["headGroupSpec"]["template"] = pod_template("4")
    head = roles(custom_job("RayCluster", cluster))["head"]
    assert requests_of(head)["requests"] == {"cpu": "4", "memory": "256Mi"}


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
