"""Which pod goes to which topology domain."""

from typing import Any

import pytest

from admission.api import names
from admission.api.core import Pod
from admission.api.decoding import convert
from admission.api.kueue import PodSet, TopologyAssignment
from admission.jobs.placement import group_offset, place
from tests.unit.jobs.builders import World, job, pod, pod_template

INDEX = "batch.kubernetes.io/job-completion-index"


def assignment(**counts: int) -> dict[str, Any]:
    piece = {
        "domainCount": len(counts),
        "valuesPerLevel": [{"individual": {"roots": list(counts)}}],
        "podCounts": {"individual": list(counts.values())},
    }
    return {"levels": ["rack"], "slices": [piece]}


def of_job(name: str, index: int | None = None, rack: str = "", phase: str = "Pending", **kw: Any) -> dict[str, Any]:
    """As the Job controller makes it from a started template."""
    raw = pod(name, gated=False, finalizers=(), phase=phase, **kw)
    raw["metadata"]["labels"] = {names.PODSET_LABEL: "main", **({INDEX: str(index)} if index is not None else {})}
    raw["metadata"]["annotations"] = {names.WORKLOAD_ANNOTATION: "w"}
    if rack:
        raw["spec"]["nodeSelector"] = {"rack": rack}
    else:
        raw["spec"]["schedulingGates"] = [{"name": names.TOPOLOGY_GATE}]
    return raw


INDEXED = {"name": "main", "count": 3, "topologyRequest": {"required": "zone", "podIndexLabel": INDEX}}
PLAIN = {"name": "main", "count": 3}

CASES: dict[str, tuple[list[Any], list[Any], dict[str, int], Any, dict[str, str]]] = {
    "by rank": (
        [of_job("x", 2), of_job("y", 0), of_job("z", 1)],
        [],
        {"a": 2, "b": 1},
        INDEXED,
        {"x": "b", "y": "a", "z": "a"},
    ),
    "without ranks in order of age": (
        [of_job("x", age=1), of_job("y", age=2), of_job("z", age=3)],
        [],
        {"a": 2, "b": 1},
        PLAIN,
        {"z": "a", "y": "a", "x": "b"},
    ),
    "double rank: greedily": ([of_job("x", 1), of_job("y", 1)], [], {"a": 1, "b": 1}, INDEXED, {"x": "a", "y": "b"}),
    "rank out of range: greedily": ([of_job("x", 7)], [], {"a": 1, "b": 1}, INDEXED, {"x": "a"}),
    "placed ones are counted": (
        [of_job("x"), of_job("y")],
        [of_job("p", rack="a")],
        {"a": 1, "b": 1},
        PLAIN,
        {"x": "b"},
    ),
    "a failed one makes room": ([of_job("x")], [of_job("p", rack="a", phase="Failed")], {"a": 1}, PLAIN, {"x": "a"}),
    "one that has succeeded makes room for the next": (
        [of_job("x")],
        [of_job("p", rack="a", phase="Succeeded"), of_job("q", rack="b", phase="Running")],
        {"a": 1, "b": 1},
        PLAIN,
        {"x": "a"},
    ),
    "an assignment after a second start is for those who had not succeeded before": (
        [of_job("x", 1)],
        [of_job("p", 0, rack="a", phase="Succeeded")],
        {"a": 1},
        INDEXED,
        {"x": "a"},
    ),
    "placed against its rank: greedily": (
        [of_job("x", 1)],
        [of_job("p", 0, rack="b")],
        {"a": 1, "b": 1},
        INDEXED,
        {"x": "a"},
    ),
}


@pytest.mark.parametrize(("waiting", "placed", "counts", "pod_set", "want"), CASES.values(), ids=CASES.keys())
def test_place(waiting: Any, placed: Any, counts: dict[str, int], pod_set: Any, want: dict[str, str]) -> None:
    got = place(
        [convert(raw, Pod) for raw in waiting],
        [convert(raw, Pod) for raw in placed],
        convert(assignment(**counts), TopologyAssignment),
        convert(pod_set, PodSet),
    )
    assert got == {f"uid-{name}": {"rack": rack} for name, rack in want.items()}


def test_sub_groups_and_offset() -> None:
    request = {"required": "zone", "podIndexLabel": "i", "subGroupIndexLabel": "g", "subGroupCount": 2}
    pods = []
    for group in range(2):
        for index in range(2):
            raw = of_job(f"{group}{index}")
            raw["metadata"]["labels"] |= {"i": str(index + 1), "g": str(group)}
            raw["metadata"]["annotations"][names.POD_INDEX_OFFSET] = "1"
            pods.append(convert(raw, Pod))
    got = place(
        pods,
        (),
        convert(assignment(a=1, b=1, c=1, d=1), TopologyAssignment),
        convert({"name": "main", "count": 4, "topologyRequest": request}, PodSet),
    )
    assert [got[f"uid-{name}"]["rack"] for name in ("00", "01", "10", "11")] == ["a", "b", "c", "d"]


def world(*pods: dict[str, Any]) -> World:
    result = World().put(job(template=pod_template())).settle()
    raw = result.wl
    del result.objects["Workload", raw["metadata"]["name"]]
    raw["metadata"]["name"] = "w"
    result.put(raw)
    result.admit(topology=assignment(a=1, b=1))
    result.settle()
    return result.put(*pods)


def test_pods_of_an_admitted_job_are_sent_off() -> None:
    result = world(of_job("x", age=2), of_job("y", age=1))
    result.settle()
    assert result.pods()["x"]["spec"]["nodeSelector"] == {"rack": "a"}
    assert result.pods()["y"]["spec"]["nodeSelector"] == {"rack": "b"}
    assert [result.gates("x"), result.gates("y")] == [[], []]


def test_pods_of_an_evicted_job_stay_gated() -> None:
    result = world()
    result.evict()
    result.put(of_job("x")).settle()
    assert result.gates("x") == [names.TOPOLOGY_GATE]


def test_nobody_is_sent_to_an_unhealthy_node() -> None:
    result = world()
    topology = assignment(a=1, b=1)
    topology["levels"] = [names.HOSTNAME_LABEL]
    result.admit(topology=topology)
    result.change("Workload", "w", {"status": {"unhealthyNodes": [{"name": "a"}]}})
    result.put(of_job("x", age=2), of_job("y", age=1)).settle()
    assert result.gates("x") == [names.TOPOLOGY_GATE]
    assert result.pods()["y"]["spec"]["nodeSelector"] == {names.HOSTNAME_LABEL: "b"}


def test_workers_are_numbered_after_the_leader_of_their_group() -> None:
    group = {"required": "zone", "podIndexLabel": INDEX, "podSetGroupName": "g"}
    leader = convert({"name": "leader", "count": 1, "topologyRequest": group}, PodSet)
    workers = convert({"name": "workers", "count": 2, "topologyRequest": group}, PodSet)
    alone = convert({"name": "alone", "count": 2}, PodSet)
    sets = (workers, leader, alone)
    assert [group_offset(each, sets) for each in (leader, workers, alone)] == [0, 1, None]
    got = place(
        [convert(of_job("x", 2), Pod), convert(of_job("y", 1), Pod)],
        (),
        convert(assignment(a=1, b=1), TopologyAssignment),
        workers,
        group_offset(workers, sets),
    )
    assert {uid: dict(selector) for uid, selector in got.items()} == {"uid-y": {"rack": "a"}, "uid-x": {"rack": "b"}}


def on_hosts(result: World, *hosts: str) -> World:
    topology = assignment(**dict.fromkeys(hosts, 1))
    topology["levels"] = [names.HOSTNAME_LABEL]
    result.admit(topology=topology)
    return result


def pinned(name: str, host: str, **kw: Any) -> dict[str, Any]:
    raw = of_job(name, **kw)
    raw["spec"].pop("schedulingGates", None)
    raw["spec"]["nodeSelector"] = {names.HOSTNAME_LABEL: host}
    return raw


def test_a_pod_that_waits_for_a_failed_host_is_ended() -> None:
    result = on_hosts(world(), "a", "b")
    result.change("Workload", "w", {"status": {"unhealthyNodes": [{"name": "a"}]}})
    bound = pinned("bound", "a")
    bound["spec"]["nodeName"] = "a"
    result.put(pinned("x", "a"), pinned("y", "b"), bound).settle()
    pods = result.pods()
    assert pods["x"]["status"]["phase"] == "Failed"
    (condition,) = [c for c in pods["x"]["status"]["conditions"] if c["type"] == names.TERMINATED_BY_KUEUE]
    assert (condition["status"], condition["reason"]) == ("True", "UnschedulableOnAssignedNode")
    assert [pods["y"]["status"]["phase"], pods["bound"]["status"]["phase"]] == ["Pending", "Pending"]


def test_a_pod_that_waits_for_a_host_of_before_is_ended() -> None:
    result = on_hosts(world(), "a", "c")
    result.put(pinned("x", "b"), pinned("y", "a", phase="Running")).settle()
    assert result.pods()["x"]["status"]["phase"] == "Failed"
    assert result.pods()["y"]["status"]["phase"] == "Running"
