"""What becomes of a Job as its Workload: made of it, made by others, nested in another job's."""

import copy
from typing import Any

import pytest

from admission.api import names
from admission.api.core import PriorityClass
from admission.api.decoding import convert
from admission.api.meta import ObjectMeta
from admission.jobs.batch_job import BatchJobs
from admission.jobs.composing import workload_name
from admission.jobs.effects import Create, Tell
from admission.settings import Settings
from tests.unit.jobs.builders import World, condition, job, pod_template

# ------------------------------------------------------------------ to a Workload


def test_a_job_becomes_a_workload() -> None:
    world = World(settings=convert({"integrations": {"labelKeysToCopy": ["team", "none"]}}, Settings))
    raw = job(
        labels={"team": "x", names.MAX_EXEC_TIME_LABEL: "60"},
        annotations={"provreq.kueue.x-k8s.io/zone": "a", "else": "where"},
    )
    world.put(raw).settle()
    wl = world.wl
    assert wl["metadata"]["name"] == workload_name("Job", "batch", "j", "uid-j")
    assert wl["metadata"]["labels"] == {"team": "x", names.JOB_UID_LABEL: "uid-j"}
    assert wl["metadata"]["annotations"] == {"provreq.kueue.x-k8s.io/zone": "a"}
    assert wl["metadata"]["finalizers"] == [names.RESOURCE_IN_USE_FINALIZER]
    assert wl["metadata"]["ownerReferences"] == [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "j",
            "uid": "uid-j",
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]
    assert wl["spec"] == {
        "queueName": "lq",
        "podSets": [{"name": "main", "count": 2, "template": pod_template()}],
        "priority": 0,
        "maximumExecutionTimeSeconds": 60,
    }
    assert len(world.writes()) == 1


def test_workload_names_are_kueues() -> None:
    name = workload_name("Job", "batch", "a" * 300, "u")
    assert name == f"job-{'a' * 243}-{name[-5:]}"
    assert len(name) == 253
    assert workload_name("Job", "batch", "a", "u") != workload_name("Job", "batch", "a", "v")
    assert len(workload_name("Job", "batch", "a" * 300, "u", short=True)) == 63, "the value of a label"


def test_workload_names_may_be_short() -> None:
    short = convert({"featureGates": {"ShortWorkloadNames": True}}, Settings)
    world = World(settings=short).put(job("a" * 60)).settle()
    name = world.wl["metadata"]["name"]
    assert name == f"job-{'a' * 53}-{name[-5:]}"


COUNTS = {
    "parallelism without completions": ({"parallelism": 3, "completions": None}, 3),
    "fewer completions than parallelism": ({"parallelism": 3, "completions": 2}, 2),
    "neither": ({"parallelism": None, "completions": None}, 1),
    "nothing to run": ({"parallelism": 0, "completions": 2}, 0),
}


@pytest.mark.parametrize(("spec", "want"), COUNTS.values(), ids=COUNTS.keys())
def test_count(spec: dict[str, Any], want: int) -> None:
    raw = job()
    raw["spec"] |= spec
    assert World().put(raw).settle().wl["spec"]["podSets"][0]["count"] == want


def classes(*entries: tuple[str, int, bool]) -> tuple[PriorityClass, ...]:
    return tuple(PriorityClass(metadata=ObjectMeta(name=n), value=v, global_default=d) for n, v, d in entries)


PRIORITIES = {
    "label": ({names.PRIORITY_CLASS_LABEL: "high"}, "pods", (100, "high")),
    "class of the pods": ({}, "pods", (7, "pods")),
    "lowest global default": ({}, "", (3, "low-default")),
}


@pytest.mark.parametrize(("labels", "pod_class", "want"), PRIORITIES.values(), ids=PRIORITIES.keys())
def test_priority_comes_from(labels: dict[str, str], pod_class: str, want: tuple[int, str]) -> None:
    template = pod_template(priorityClassName=pod_class) if pod_class else pod_template()
    world = World(
        workload_classes={"high": 100},
        pod_classes=classes(("pods", 7, False), ("default", 5, True), ("low-default", 3, True)),
    )
    world.put(job(labels=labels, template=template)).settle()
    spec = world.wl["spec"]
    assert (spec["priority"], spec["priorityClassRef"]["name"]) == want


def test_missing_priority_class_is_told() -> None:
    world = World().put(job(labels={names.PRIORITY_CLASS_LABEL: "none"})).settle()
    assert world.workloads() == []
    assert world.told("j") == ['WorkloadPriorityClassNotFound: WorkloadPriorityClass "none" does not exist']


def test_topology_annotations_become_a_request() -> None:
    template = pod_template()
    template["metadata"]["annotations"] = {names.PODSET_REQUIRED_TOPOLOGY: "rack"}
    world = World().put(job(template=template)).settle()
    assert world.wl["spec"]["podSets"][0]["topologyRequest"] == {
        "required": "rack",
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
    }


NOT_MANAGED = {
    "no queue": job(queue=None),
    "running without queue": job(queue=None, suspend=False),
}


@pytest.mark.parametrize("raw", NOT_MANAGED.values(), ids=NOT_MANAGED.keys())
def test_is_left_alone(raw: dict[str, Any]) -> None:
    world = World().put(copy.deepcopy(raw)).settle()
    assert world.done == []


def test_unmanaged_namespace_is_left_alone() -> None:
    selector = {"managedJobsNamespaceSelector": {"matchLabels": {"kueue": "on"}}}
    world = World(settings=convert(selector, Settings)).put(job()).settle()
    assert world.done == []


def test_managed_namespace_without_any_queue_is_told() -> None:
    world = World(settings=Settings(manage_jobs_without_queue_name=True)).put(job(queue=None)).settle()
    assert world.workloads() == []
    assert "There is no queue" in world.told("j")[0]


def test_unknown_queue_is_told_and_waited_for() -> None:
    world = World(queues=()).put(job()).settle()
    assert world.wl["spec"]["queueName"] == "lq"
    assert world.told("j")[0] == "Misconfigured: LocalQueue lq does not exist in namespace team"


# ------------------------------------------------------------------ prebuilt and nested


def prebuilt() -> dict[str, Any]:
    world = World().put(job()).settle()
    raw = world.wl
    raw["metadata"] = {"name": "mine", "namespace": "team", "uid": "mine", "resourceVersion": "5"}
    return raw


def test_prebuilt_workload_is_taken_over() -> None:
    world = World().put(job(labels={names.PREBUILT_WORKLOAD: "mine"}))
    world.settle()
    assert world.workloads() == []
    assert "does not exist" in world.told("j")[0]
    world.put(prebuilt()).settle()
    assert [owner["uid"] for owner in world.wl["metadata"]["ownerReferences"]] == ["uid-j"]
    world.admit()
    world.settle()
    assert not world.get("Job", "j")["spec"]["suspend"]


def test_prebuilt_workload_that_says_something_else_is_out_of_sync() -> None:
    world = World().put(job(labels={names.PREBUILT_WORKLOAD: "mine"}, parallelism=3), prebuilt()).settle()
    assert world.wl["status"]["conditions"][0]["reason"] == "OutOfSync"
    assert world.get("Job", "j")["spec"]["suspend"]


def test_part_of_a_queued_job_only_must_not_run_ahead() -> None:
    parent = job("parent")
    child = job("child", suspend=False)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "uid-parent", "controller": True}
    child["metadata"]["ownerReferences"] = [owner]
    world = World().put(parent, child).settle()
    assert world.get("Job", "child")["spec"]["suspend"]
    assert [text.split(":")[0] for text in world.told("child")] == ["Suspended"]
    assert [effect.ref.name for effect in world.writes() if isinstance(effect, Create)] == [
        world.wl["metadata"]["name"]
    ]
    assert world.wl["metadata"]["ownerReferences"][0]["name"] == "parent"


def test_an_owner_that_comes_later_keeps_nobody_from_being_evicted() -> None:
    """A tenant may write owner references, and own a small job that is admitted."""
    world = World().put(job("child")).settle()
    world.admit()
    world.settle()
    assert not world.get("Job", "child")["spec"]["suspend"]
    name = world.wl["metadata"]["name"]
    parent = job("parent")
    world.put(parent).settle()
    world.admit(workload_name("Job", "batch", "parent", "uid-parent"))
    world.settle()
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "parent", "uid": "uid-parent", "controller": True}
    world.change("Job", "child", {"metadata": {"ownerReferences": [owner]}})
    raw = world.get("Workload", name)
    conditions = [*raw["status"]["conditions"], condition("Evicted", reason="Preempted", message="make room")]
    world.change("Workload", name, {"status": {"conditions": conditions}})
    world.settle()
    assert world.get("Job", "child")["spec"]["suspend"]


# ------------------------------------------------------------------ gates of others


def gates_of(world: World) -> str | None:
    found: str | None = world.wl["metadata"].get("annotations", {}).get(names.ADMISSION_GATED_BY)
    return found


@pytest.mark.parametrize(
    ("left", "want"),
    [
        pytest.param("b", "b", id="one is lifted"),
        pytest.param(None, None, id="all are lifted"),
        pytest.param("b,c", "b", id="none is ever added"),
    ],
)
def test_gates_lifted_on_the_job_are_lifted_on_its_workload(left: str | None, want: str | None) -> None:
    world = World().put(job(annotations={names.ADMISSION_GATED_BY: "a,b"})).settle()
    assert gates_of(world) == "a,b"
    world.change("Job", "j", {"metadata": {"annotations": {names.ADMISSION_GATED_BY: left}}})
    world.settle()
    assert gates_of(world) == want


def test_a_gate_lifted_on_the_workload_stays_lifted() -> None:
    world = World().put(job(annotations={names.ADMISSION_GATED_BY: "a"})).settle()
    world.change("Workload", world.wl["metadata"]["name"], {"metadata": {"annotations": None}})
    world.settle()
    assert gates_of(world) is None


def test_in_a_namespace_that_is_being_deleted_no_workload_is_made() -> None:
    world = World(is_ending=True).put(job())
    assert world.settle().workloads() == []


def test_what_is_nested_too_deeply_is_told_and_left_alone() -> None:
    world = World()
    for depth in range(12):
        raw = job(f"j{depth}", suspend=False)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": f"j{depth + 1}", "uid": f"uid-j{depth + 1}"}
        raw["metadata"]["ownerReferences"] = [{**owner, "controller": True}] if depth < 11 else []
        world.put(raw)
    (unit,) = [each for each in world.units() if each.key.name == "j0"]
    effects = BatchJobs().reconcile(unit, world).effects
    assert [(effect.reason, effect.ref.name) for effect in effects if isinstance(effect, Tell)] == [
        ("JobNestingTooDeep", "j0")
    ]
    assert len(effects) == 1
