"""What the API server lets others write into the status of a Workload, on one that has the policies and no Muster."""

from __future__ import annotations

from typing import Any

import pytest

from admission.webhook.configuration import PART_OF, installed_settings, labelled
from admission.webhook.context import Rules
from admission.webhook.policies import policies
from tests.cluster.controller_rig import install_crds, workload
from tests.controlplane.cluster import Api, ApiError, ControlPlane, eventually

pytestmark = pytest.mark.cluster

STAMP = "2024-01-01T00:00:00Z"
RESERVED = {
    "type": "QuotaReserved",
    "status": "True",
    "reason": "QuotaReserved",
    "message": "",
    "lastTransitionTime": STAMP,
}


def assignment(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}, "count": 2, **more}


def admission(*assignments: dict[str, Any], queue: str = "q") -> dict[str, Any]:
    return {"clusterQueue": queue, "podSetAssignments": list(assignments) or [assignment("main")]}


def check(state: str, *updates: dict[str, Any]) -> dict[str, Any]:
    return {"name": "ac", "state": state, "message": "", "lastTransitionTime": STAMP, "podSetUpdates": list(updates)}


HELD = {"conditions": [RESERVED], "admission": admission()}
TOPOLOGY = {
    "levels": ["kubernetes.io/hostname"],
    "slices": [
        {"domainCount": 1, "valuesPerLevel": [{"universal": "n"}], "podCounts": {"universal": 2}},
    ],
}

#: What was there, what is written, and what the refusal says (empty: there is none).
CASES: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("quota is reserved with an admission", {}, HELD, ""),
    ("quota reserved without one", {}, {"conditions": [RESERVED]}, "must be set while quota is reserved"),
    ("an admission of unknown pod sets", {}, {"admission": admission(assignment("x"))}, "must name pod sets"),
    (
        "half a device for each pod",
        {},
        {"admission": admission(assignment("main", resourceUsage={"g": 3}))},
        "multiple of",
    ),
    ("as text", {}, {"admission": admission(assignment("main", resourceUsage={"g": "3"}))}, "multiple of"),
    (
        "bytes that nobody could share",
        {},
        {"admission": admission(assignment("main", resourceUsage={"m": "1025"}))},
        "multiple of",
    ),
    (
        "half a thousandth of a core",
        {},
        {"admission": admission(assignment("main", resourceUsage={"cpu": "3m"}))},
        "multiple of",
    ),
    ("half a core", {}, {"admission": admission(assignment("main", resourceUsage={"cpu": 1, "m": "1Ki"}))}, ""),
    ("more than can be counted", {}, {"admission": admission(assignment("main", resourceUsage={"m": "9E19"}))}, ""),
    ("nothing for no pods", {}, {"admission": admission(assignment("main", count=0, resourceUsage={"g": 3}))}, ""),
    ("an admission is given back", HELD, {"conditions": [], "admission": None}, ""),
    ("another queue", HELD, {"admission": admission(queue="other")}, "is immutable while it is set"),
    (
        "another flavor",
        HELD,
        {"admission": admission(assignment("main", flavors={"cpu": "g"}))},
        "is immutable while it is set",
    ),
    ("another count", HELD, {"admission": admission(assignment("main", count=1))}, "is immutable while it is set"),
    ("a topology", HELD, {"admission": admission(assignment("main", topologyAssignment=TOPOLOGY))}, ""),
    ("pods given back", HELD, {"reclaimablePods": [{"name": "main", "count": 1}]}, ""),
    ("more pods than there are", HELD, {"reclaimablePods": [{"name": "main", "count": 3}]}, "at most all"),
    ("pods of nobody given back", HELD, {"reclaimablePods": [{"name": "x", "count": 1}]}, "must name pod sets"),
    (
        "fewer pods given back",
        {**HELD, "reclaimablePods": [{"name": "main", "count": 2}]},
        {"reclaimablePods": [{"name": "main", "count": 1}]},
        "may only grow",
    ),
    (
        "pods given back are forgotten with the admission",
        {**HELD, "reclaimablePods": [{"name": "main", "count": 2}]},
        {"reclaimablePods": [], "conditions": [], "admission": None},
        "",
    ),
    ("updates", HELD, {"admissionChecks": [check("Ready", {"name": "main", "labels": {"a": "b"}})]}, ""),
    ("updates of nobody", HELD, {"admissionChecks": [check("Ready", {"name": "x"})]}, "must name pod sets"),
    (
        "updates after the answer",
        {"admissionChecks": [check("Ready", {"name": "main"})]},
        {"admissionChecks": [check("Ready", {"name": "main", "labels": {"a": "b"}})]},
        "immutable while their admission check stays Ready",
    ),
    (
        "updates with a new answer",
        {"admissionChecks": [check("Pending")]},
        {"admissionChecks": [check("Ready", {"name": "main"})]},
        "",
    ),
    (
        "a cluster that was nominated",
        {"nominatedClusterNames": ["a"]},
        {"nominatedClusterNames": None, "clusterName": "a"},
        "",
    ),
    (
        "a cluster that was not",
        {"nominatedClusterNames": ["a"]},
        {"nominatedClusterNames": None, "clusterName": "b"},
        "must be one of",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def policy(control_plane: ControlPlane) -> None:
    """The policy, once the API server goes by it."""
    install_crds(control_plane)
    api = control_plane.api
    for manifest in labelled(policies(Rules.of(installed_settings()))):
        if "statuses" in manifest["metadata"]["name"]:
            assert manifest["metadata"]["labels"] == PART_OF
            api.create(manifest)
    api.create(workload("probe", "q"))

    def is_enforced() -> bool:
        try:
            api.patch("Workload", "probe", {"status": {"conditions": [RESERVED]}}, "default", sub="status")
        except ApiError as error:
            return "must be set while quota is reserved" in error.message
        api.patch("Workload", "probe", {"status": {"conditions": []}}, "default", sub="status")
        return False

    eventually(is_enforced, seconds=30)


@pytest.mark.parametrize(("before", "after", "want"), [pytest.param(*case[1:], id=case[0]) for case in CASES])
def test_status(api: Api, request: pytest.FixtureRequest, before: Any, after: Any, want: str) -> None:
    name = f"w-{request.node.callspec.id.replace(' ', '-')}"
    api.create(workload(name, "q", count=2))
    if before:
        api.patch("Workload", name, {"status": before}, "default", sub="status")
    if not want:
        api.patch("Workload", name, {"status": after}, "default", sub="status")
        return
    with pytest.raises(ApiError, match=want) as refused:
        api.patch("Workload", name, {"status": after}, "default", sub="status")
    assert refused.value.status == 422


def test_muster_itself_is_not_judged(api: Api) -> None:
    """The rule is for others; what Muster writes is tested where it is made."""
    api.create(workload("own", "q"))
    path = api.path("Workload", "default", "own", "status")
    answer = api.session().patch(
        api.server + path,
        json={"status": {"conditions": [RESERVED]}},
        headers={
            "Content-Type": "application/merge-patch+json",
            "Impersonate-User": "system:serviceaccount:muster-system:muster",
            "Impersonate-Group": "system:masters",
        },
        timeout=40,
    )
    assert answer.status_code == 200, answer.text
