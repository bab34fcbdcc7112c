"""Whatever could make a waiting gang fit wakes it: the slow sweep, here every second, finds nothing forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from admission.settings import Settings, parse
from tests.cluster.controller_rig import (
    Object,
    Running,
    Watched,
    cluster_queue,
    flavor,
    install_crds,
    local_queue,
    running,
    workload,
)
from tests.controlplane.cluster import KUEUE, Api, ControlPlane, eventually

pytestmark = pytest.mark.cluster

_names = itertools.count()

SETTINGS: Settings = parse("""
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: muster-system
leaderElection: {leaderElect: false}
integrations: {frameworks: [batch/job, pod]}
muster: {controller: {sweepPeriod: 1s}}
""")


@pytest.fixture(scope="module")
def controller(control_plane: ControlPlane) -> Iterator[Running]:
    install_crds(control_plane)
    control_plane.api.create(flavor())
    with running(control_plane, SETTINGS) as controller:
        yield controller


def counted(controller: Running, name: str) -> dict[str, float]:
    """The samples of one of Muster's own counters, by kind."""
    families = text_string_to_metric_families(controller.metrics())
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {sample.labels.get("kind", ""): sample.value for sample in samples}


@pytest.fixture(autouse=True)
def nothing_found(controller: Running) -> Iterator[None]:
    """The sweep went over everything twice after the test, and only found what events had brought up before."""
    yield
    before = counted(controller, "muster_sweeps_total").get("", 0)
    eventually(lambda: counted(controller, "muster_sweeps_total").get("", 0) >= before + 2)
    assert counted(controller, "muster_sweep_found_total") == {}


@pytest.fixture
def watched(api: Api) -> Watched:
    return Watched(api)


@pytest.fixture
def name() -> str:
    return f"n{next(_names)}"


def queues(api: Api, name: str, cpu: int = 4, **spec: Any) -> None:
    api.create(cluster_queue(name, cpu, **spec))
    api.create(local_queue(name, name))


def job(name: str, cpu: int = 1, labels: dict[str, str] | None = None, **pod: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu)}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": name, **(labels or {})},
        },
        "spec": {"suspend": True, "template": {"spec": {"containers": [container], "restartPolicy": "Never", **pod}}},
    }


def runs(api: Api, name: str) -> bool:
    return not api.get("Job", name, "default")["spec"].get("suspend")


def limits(name: str, namespace: str, most: int) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": str(most)}}]},
    }


def namespaced(api: Api, name: str, cpu: int = 4, **spec: Any) -> Watched:
    """Queues in a namespace of their own."""
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    api.create(cluster_queue(name, cpu, **spec))
    api.create(local_queue(name, name, namespace=name))
    return Watched(api, name)


def keeps_out(watched: Watched, body: Object, reason: str) -> None:
    """Creates it, and anew as long as it is admitted: the controller may hear of it before it hears of what forbids it.

    The two come by watches of their own, and only the watch of one kind has an order.
    """
    api, name = watched.api, body["metadata"]["name"]

    def is_kept_out() -> bool:
        found = watched.condition("Workload", name, "QuotaReserved")
        if found.get("status") == "True":
            api.delete("Workload", name, watched.namespace)
            watched.gone("Workload", name)
            api.create(body)
        return (found.get("status"), found.get("reason")) == ("False", reason)

    api.create(body)
    eventually(is_kept_out, message=f"{name} waits for {reason}")


def with_quota(name: str, cpu: int, flavor_name: str = "default") -> Object:
    return {"spec": {"resourceGroups": cluster_queue(name, cpu, flavors=flavor_name)["spec"]["resourceGroups"]}}


def assigned(api: Api, name: str) -> Object:
    """What the Workload holds for its only pod set."""
    (found,) = api.get("Workload", name, "default")["status"]["admission"]["podSetAssignments"]
    return found


def test_more_quota(api: Api, watched: Watched, name: str) -> None:
    queues(api, name, cpu=1)
    api.create(workload(name, name, cpu=3))
    watched.waits(name, "ExceedsMaxQuota")
    api.patch("ClusterQueue", name, with_quota(name, 3))
    watched.admitted(name)
    assert assigned(api, name)["resourceUsage"] == {"cpu": "3"}


def test_quota_of_the_cohort(api: Api, watched: Watched, name: str) -> None:
    queues(api, name, cpu=1, cohort=name)
    api.create(workload(name, name, cpu=3))
    watched.waits(name, "ExceedsMaxQuota")
    api.create({**flavor(name), "kind": "Cohort", **with_quota(name, 2)})
    watched.admitted(name)
    assert assigned(api, name)["resourceUsage"] == {"cpu": "3"}


def test_a_flavor_that_comes_late(api: Api, watched: Watched, name: str) -> None:
    queues(api, name, flavors=name)
    api.create(workload(name, name))
    eventually(lambda: watched.condition("ClusterQueue", name, "Active").get("reason") == "FlavorNotFound")
    api.create(flavor(name))
    watched.admitted(name)


def test_a_taint_that_is_taken_off_a_flavor(api: Api, watched: Watched, name: str) -> None:
    api.create(flavor(name, nodeTaints=[{"key": "k", "value": "v", "effect": "NoSchedule"}]))
    queues(api, name, flavors=name)
    api.create(workload(name, name))
    watched.waits(name, "NoMatchingFlavor")
    api.patch("ResourceFlavor", name, {"spec": {"nodeTaints": None}})
    watched.admitted(name)
    assert assigned(api, name)["flavors"] == {"cpu": name}


@pytest.mark.parametrize("how", ["relaxed", "deleted"])
def test_a_limit_range(api: Api, name: str, how: str) -> None:
    watched = namespaced(api, name)
    api.create(limits(name, name, 1))
    keeps_out(watched, workload("w", name, cpu=2, namespace=name), "Misconfigured")
    if how == "deleted":
        api.delete("LimitRange", name, name)
    else:
        api.patch("LimitRange", name, limits(name, name, 2), name)
    watched.admitted("w")


def test_a_limit_range_that_comes_keeps_what_waits_out(api: Api, name: str) -> None:
    watched = namespaced(api, name, cpu=2)
    api.create(workload("first", name, cpu=2, namespace=name))
    watched.admitted("first")
    api.create(workload("second", name, cpu=2, namespace=name))
    watched.waits("second", "WaitingForQuota")
    api.create(limits(name, name, 1))
    assert "requests more cpu than its limit: 2, limit 1" in watched.waits("second", "Misconfigured")


def test_a_label_of_the_namespace(api: Api, name: str) -> None:
    watched = namespaced(api, name, namespaceSelector={"matchLabels": {"team": name}})
    api.create(workload("w", name, namespace=name))
    watched.waits("w", "Misconfigured")
    api.patch("Namespace", name, {"metadata": {"labels": {"team": name}}})
    watched.admitted("w")
    assert api.get("Workload", "w", name)["status"]["admission"]["clusterQueue"] == name


def test_a_check_that_becomes_active(api: Api, watched: Watched, name: str) -> None:
    queues(api, name, admissionChecksStrategy={"admissionChecks": [{"name": name}]})
    api.create(workload(name, name))
    eventually(lambda: watched.condition("ClusterQueue", name, "Active").get("reason") == "AdmissionCheckNotFound")
    api.create({**flavor(name), "kind": "AdmissionCheck", "spec": {"controllerName": "example.com/check"}})
    active = {
        "type": "Active",
        "status": "True",
        "reason": "A",
        "message": "",
        "lastTransitionTime": "2026-01-02T03:04:05Z",
    }
    api.patch("AdmissionCheck", name, {"status": {"conditions": [active]}}, sub="status")
    eventually(lambda: watched.is_true(name, "QuotaReserved"))


def test_queues_that_come_late(api: Api, watched: Watched, name: str) -> None:
    api.create(workload(name, name))
    watched.waits(name, "Misconfigured")
    api.create(local_queue(name, name))
    api.create(cluster_queue(name, 4))
    watched.admitted(name)
    assert api.get("Workload", name, "default")["status"]["admission"]["clusterQueue"] == name


def test_a_local_queue_that_comes_late_for_a_job(api: Api, name: str) -> None:
    api.create(job(name))
    queues(api, name)
    eventually(lambda: runs(api, name))


def test_a_runtime_class_that_comes_late(api: Api, watched: Watched, name: str) -> None:
    queues(api, name, cpu=2)
    first = workload(f"{name}-first", name, cpu=2)
    api.create(first)
    watched.admitted(f"{name}-first")
    second = workload(name, name, cpu=2)
    second["spec"]["podSets"][0]["template"]["spec"]["runtimeClassName"] = name
    api.create(second)
    eventually(lambda: watched.condition("Workload", name, "QuotaReserved").get("status") == "False")
    overhead = {"podFixed": {"cpu": "1"}}
    api.create(
        {
            "apiVersion": "node.k8s.io/v1",
            "kind": "RuntimeClass",
            "metadata": {"name": name},
            "handler": "h",
            "overhead": overhead,
        }
    )
    watched.waits(name, "ExceedsMaxQuota")
    api.patch("ClusterQueue", name, with_quota(name, 5))
    watched.admitted(name)


def test_a_priority_class_that_comes_late(api: Api, name: str) -> None:
    queues(api, name)
    api.create(job(name, priorityClassName=name))
    api.create({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": 7})
    eventually(lambda: runs(api, name))


def test_a_workload_priority_class_that_comes_late(api: Api, name: str) -> None:
    queues(api, name)
    api.create(job(name, labels={"kueue.x-k8s.io/priority-class": name}))
    api.create({"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": 7})
    eventually(lambda: runs(api, name))


def test_a_workload_that_ends(api: Api, watched: Watched, name: str) -> None:
    queues(api, name, cpu=1)
    api.create(workload(f"{name}-a", name))
    watched.admitted(f"{name}-a")
    assert assigned(api, f"{name}-a")["resourceUsage"] == {"cpu": "1"}, "all that there is"
    api.create(workload(f"{name}-b", name))
    watched.waits(f"{name}-b", "WaitingForQuota")
    watched.finish(f"{name}-a")
    watched.admitted(f"{name}-b")
    api.create(workload(f"{name}-c", name))
    watched.waits(f"{name}-c", "WaitingForQuota")
    api.delete("Workload", f"{name}-b", "default")
    watched.admitted(f"{name}-c")


# ------------------------------------------------------------------ nodes


def node(name: str, cpu: int) -> Object:
    resources = {"cpu": str(cpu), "pods": "100"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "pool": name}},
        "status": {
            "allocatable": resources,
            "capacity": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "R", "message": ""}],
        },
    }


def on_nodes(api: Api, name: str, cpu: int = 8) -> None:
    """Queues whose flavor places by host."""
    topology = {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    api.create({**flavor(name), "kind": "Topology", "spec": topology})
    api.create(flavor(name, nodeLabels={"pool": name}, topologyName=name))
    queues(api, name, cpu=cpu, flavors=name)


def on_one_host(name: str, cpu: int) -> Object:
    body = workload(name, name, cpu=cpu)
    body["spec"]["podSets"][0]["topologyRequest"] = {"required": "kubernetes.io/hostname"}
    return body


def test_a_node_that_comes_and_one_that_grows(api: Api, watched: Watched, name: str) -> None:
    on_nodes(api, name)
    api.create(on_one_host(name, 2))
    watched.waits(name, "TopologyPlacementFailed")
    api.create(node(name, 1))
    api.patch("Node", name, {"spec": {"taints": None}})
    watched.waits(name, "TopologyPlacementFailed")
    api.patch("Node", name, {"status": node(name, 4)["status"]}, sub="status")
    watched.admitted(name)
    assert name in str(assigned(api, name)["topologyAssignment"]), "on that node"


def test_a_foreign_pod_that_ends(api: Api, watched: Watched, name: str) -> None:
    on_nodes(api, name)
    api.create(node(name, 2))
    api.patch("Node", name, {"spec": {"taints": None}})
    pod = job(name, cpu=1)["spec"]["template"]["spec"]
    metadata = {"name": name, "namespace": "default"}
    api.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**pod, "nodeName": name}})
    assert api.get("Pod", name, "default")["spec"].get("nodeName") == name
    keeps_out(watched, on_one_host(name, 2), "TopologyPlacementFailed")
    api.patch("Pod", name, {"status": {"phase": "Succeeded"}}, "default", sub="status")
    watched.admitted(name)


def test_a_topology_that_comes_late(api: Api, watched: Watched, name: str) -> None:
    api.create(node(name, 4))
    api.patch("Node", name, {"spec": {"taints": None}})
    api.create(flavor(name, nodeLabels={"pool": name}, topologyName=name))
    queues(api, name, flavors=name)
    api.create(on_one_host(name, 2))
    eventually(lambda: watched.condition("ClusterQueue", name, "Active").get("reason") == "TopologyNotFound")
    api.create({**flavor(name), "kind": "Topology", "spec": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}})
    watched.admitted(name)
