"""The demo's auditor: each number that has to be 0 is not 0 when what it counts has happened."""

from __future__ import annotations

from typing import Any

import pytest

from examples.demo.auditor import RELEASE_TIME, Auditor, Seen, Trail, held
from examples.demo.manifests import GANG_LABEL, GPU, KUEUE
from examples.demo.trace import Form, Gang

TEAM = "team-11cb48"
GANG = Gang("g", TEAM, arrival=0, run_for=1, pods=2, gpus_per_pod=8, form=Form.POD_GROUP)
NOBODY: Any = None


def pod(*, gated: bool = False, node: str = "", phase: str = "Pending") -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [{"resources": {"limits": {GPU: "8"}}}]}
    if gated:
        spec["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    if node:
        spec["nodeName"] = node
    metadata = {"name": "p", "namespace": TEAM, "labels": {GANG_LABEL: "g"}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def workload(*, admitted: bool, owner: str, gpus: int = 16) -> dict[str, Any]:
    owners = [{"kind": "Pod", "name": "p", "uid": owner}]
    conditions = [{"type": "Admitted", "status": "True" if admitted else "False"}]
    status: dict[str, Any] = {"conditions": conditions}
    if admitted:
        status["admission"] = {"podSetAssignments": [{"name": "main", "count": 2, "resourceUsage": {GPU: str(gpus)}}]}
    metadata = {"name": "g", "namespace": TEAM, "ownerReferences": owners}
    return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "status": status}


def audited(**trails: list[tuple[int, dict[str, Any] | None]]) -> Auditor:
    """Objects by uid, each with its states by revision; one second passes from one revision to the next."""
    auditor = Auditor(NOBODY, [GANG])
    for uid, states in trails.items():
        first = states[0][1]
        assert first is not None
        first["metadata"]["uid"] = uid
        trail = Trail(first, [Seen(revision, float(revision), obj) for revision, obj in states])
        auditor.trails[first["kind"]][uid] = trail
    return auditor


def admitted(*spans: tuple[int, int | None], gpus: int = 16) -> list[tuple[int, dict[str, Any] | None]]:
    states: list[tuple[int, dict[str, Any] | None]] = []
    for start, end in spans:
        states.append((start, workload(admitted=True, owner="a", gpus=gpus)))
        if end is not None:
            states.append((end, workload(admitted=False, owner="a")))
    return states


WAITING, FREE, BOUND = pod(gated=True), pod(), pod(node="n")
WHOLE = {"a": [(1, pod(gated=True)), (11, FREE), (13, BOUND)], "b": [(1, pod(gated=True)), (12, FREE), (14, BOUND)]}


def test_a_gang_that_starts_as_it_should() -> None:
    found = audited(**WHOLE, w=admitted((10, 100)))
    assert (found.bound_early(), found.partial()) == (0, 0)
    assert found.quota() == (0, 16 / 128)


@pytest.mark.parametrize(
    ("states", "spans", "want"),
    [
        pytest.param([(1, pod()), (2, BOUND)], [], 1, id="never admitted"),
        pytest.param([(1, pod()), (2, BOUND)], [(10, None)], 1, id="bound before the admission"),
        pytest.param([(1, pod()), (12, BOUND)], [(10, 11)], 0, id="let go, and bound a moment after the eviction"),
        pytest.param([(20, pod()), (21, BOUND)], [(10, 15)], 1, id="a replacement bound after the eviction"),
        pytest.param([(20, pod()), (31, BOUND)], [(10, 15), (30, None)], 0, id="a replacement of the next admission"),
    ],
)
def test_pods_bound_early_are_found(
    states: list[tuple[int, dict[str, Any] | None]], spans: list[tuple[int, int | None]], want: int
) -> None:
    assert audited(a=states, w=admitted(*spans) or [(5, workload(admitted=False, owner="a"))]).bound_early() == want


LONG = int(RELEASE_TIME) + 10


@pytest.mark.parametrize(
    ("one", "other", "spans", "want"),
    [
        pytest.param([(1, WAITING), (11, FREE)], [(1, WAITING)], [(10, 10 + LONG)], 1, id="half of it is let go"),
        pytest.param([(1, WAITING), (11, FREE)], [(1, WAITING)], [(10, 12)], 0, id="evicted before there was time"),
        pytest.param([(1, WAITING)], [(1, WAITING)], [(10, 10 + LONG)], 0, id="none of it is let go"),
        pytest.param(
            [(1, WAITING), (11, FREE), (16, None)],
            [(1, WAITING), (12, FREE), (16, None)],
            [(10, 15), (20, 20 + LONG)],
            0,
            id="let go once and not again",
        ),
        pytest.param(
            [(1, WAITING), (11, FREE), (13, pod(phase="Succeeded"))],
            [(17, WAITING), (21, FREE)],
            [(10, 15), (20, 20 + LONG)],
            0,
            id="what had succeeded is not started again",
        ),
    ],
)
def test_gangs_let_go_in_part_are_found(
    one: list[tuple[int, dict[str, Any] | None]],
    other: list[tuple[int, dict[str, Any] | None]],
    spans: list[tuple[int, int | None]],
    want: int,
) -> None:
    copies = {uid: [(at, None if obj is None else {**obj, "metadata": {**obj["metadata"]}}) for at, obj in states]
              for uid, states in (("a", one), ("b", other))}  # fmt: skip
    assert audited(**copies, w=admitted(*spans)).partial() == want


def test_a_second_start_in_part_is_found() -> None:
    again = [(17, pod(gated=True)), (21, FREE)]
    found = audited(**WHOLE, c=again, w=admitted((10, 15), (20, 20 + LONG)))
    assert found.partial() == 1


def test_more_than_the_cohort_has_is_found() -> None:
    assert audited(**WHOLE, w=admitted((10, None), gpus=33)).quota()[0] > 0


def test_what_ended_pods_have_given_back_is_not_held() -> None:
    assignment = {"name": "main", "count": 2, "resourceUsage": {GPU: "16"}}
    status = {"admission": {"podSetAssignments": [assignment]}}
    assert held({"status": status}) == 16
    assert held({"status": status | {"reclaimablePods": [{"name": "main", "count": 1}]}}) == 8
