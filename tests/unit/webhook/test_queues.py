"""What ClusterQueues, Cohorts, LocalQueues and ResourceFlavors may hold, and how they may change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.webhook.asking import ask, kueue, patched


def resource(name: str = "cpu", nominal: Any = "4", **limits: Any) -> dict:
    return {"name": name, "nominalQuota": nominal, **limits}


def group(*flavors: dict, covered: tuple[str, ...] = ("cpu",)) -> dict:
    return {"coveredResources": list(covered), "flavors": list(flavors or [flavor()])}


def flavor(name: str = "df", *resources: dict) -> dict:
    return {"name": name, "resources": list(resources or [resource()])}


def cluster_queue(*groups: dict, **spec: Any) -> dict:
    return kueue("ClusterQueue", {"resourceGroups": list(groups), **spec})


def quota(**changes: Any) -> dict:
    return group(flavor("df", resource(**changes)))


def packed(how: str) -> dict:
    obj = kueue("ResourceFlavor", {})
    return {**obj, "metadata": {**obj["metadata"], "annotations": {"muster.dev/packing": how}}}


AT = "spec.resourceGroups[0].flavors[0].resources[0]"


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(cluster_queue(quota(borrowingLimit="1")), f"{AT}.borrowingLimit: Invalid", id="borrows from whom"),
        pytest.param(cluster_queue(quota(lendingLimit="1")), "must be nil when cohort is empty", id="lends to whom"),
        pytest.param(
            cluster_queue(quota(lendingLimit="5"), cohortName="c"), f"{AT}.lendingLimit", id="lends what it has not"
        ),
        pytest.param(cluster_queue(quota(nominal="-1")), f"{AT}.nominalQuota", id="less than nothing"),
        pytest.param(cluster_queue(quota(nominal="many")), f"{AT}.nominalQuota", id="no quantity"),
        pytest.param(
            cluster_queue(quota(borrowingLimit="-1"), cohortName="c"), f"{AT}.borrowingLimit", id="borrows a debt"
        ),
        pytest.param(cluster_queue(group(), group()), "Duplicate", id="a flavor and a resource once"),
        pytest.param(
            cluster_queue(group(flavor("a", resource("memory")))), f"{AT}.name", id="resources in the order covered"
        ),
        pytest.param(
            cluster_queue(group(flavor("a"), covered=("cpu", "memory"))), ".resources", id="as many as covered"
        ),
        pytest.param(
            cluster_queue(group(flavor("a", resource("c p u")), covered=("c p u",))), "coveredResources[0]", id="names"
        ),
        pytest.param(
            cluster_queue(*(group(*(flavor(f"f{i}-{j}") for j in range(60)), covered=("cpu",)) for i in range(5))),
            "Too many: 300",
            id="flavors without end",
        ),
        pytest.param(
            cluster_queue(
                group(
                    *(flavor(f"f{j}", *(resource(f"r{i}") for i in range(20))) for j in range(30)),
                    covered=tuple(f"r{i}" for i in range(20)),
                )
            ),
            "Too many: 600",
            id="pairs without end",
        ),
        pytest.param(
            cluster_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
            "spec.namespaceSelector.matchExpressions[0].values: Required",
            id="one of nothing",
        ),
        pytest.param(
            cluster_queue(namespaceSelector={"matchExpressions": [{"key": "a", "operator": "Is", "values": ["b"]}]}),
            "Unsupported value",
            id="an operator that is none",
        ),
        pytest.param(cluster_queue(fairSharing={"weight": "-1"}), "spec.fairSharing.weight", id="a negative weight"),
        pytest.param(cluster_queue(fairSharing={"weight": "1n"}), "spec.fairSharing.weight", id="next to no weight"),
        pytest.param(
            cluster_queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
            "spec.preemption",
            id="borrows without reclaiming",
        ),
        pytest.param(
            cluster_queue(flavorFungibility={"preference": "BorrowingOverPreemption"}),
            "spec.flavorFungibility.preference",
            id="a preference without a choice",
        ),
        pytest.param(
            cluster_queue(group(), admissionChecksStrategy={"admissionChecks": [{"name": "a", "onFlavors": ["x"]}]}),
            "spec.admissionChecksStrategy.admissionChecks[0].onFlavors[0]: Not found",
            id="a check on a flavor of another",
        ),
        pytest.param(
            kueue("Cohort", {"resourceGroups": [quota(lendingLimit="1")]}),
            "must be nil when parent is empty",
            id="a root lends to whom",
        ),
        pytest.param(
            kueue("LocalQueue", {"clusterQueue": "c", "fairSharing": {"weight": "-1"}}, namespace="ns"),
            "spec.fairSharing.weight",
            id="a negative weight of a local queue",
        ),
        pytest.param(kueue("ResourceFlavor", {"nodeLabels": {"a b": "c"}}), "spec.nodeLabels", id="label keys"),
        pytest.param(kueue("ResourceFlavor", {"nodeLabels": {"a": "!"}}), "spec.nodeLabels[a]", id="label values"),
        pytest.param(
            packed("Tight"),
            'metadata.annotations[muster.dev/packing]: Unsupported value: "Tight": supported values: "Pack", "Spread"',
            id="a packing that does not exist",
        ),
        pytest.param(
            kueue("ResourceFlavor", {"nodeTaints": [{"key": "a", "effect": "NoSchedule"}] * 2}),
            "spec.nodeTaints[1]: Duplicate",
            id="a taint once",
        ),
        pytest.param(
            kueue("ResourceFlavor", {"tolerations": [{"key": "!", "operator": "Exists"}]}),
            "spec.tolerations[0].key",
            id="toleration keys",
        ),
    ],
)
def test_what_is_refused(obj: dict, want: str) -> None:
    answer = ask("validate", obj)
    assert not answer.allowed
    assert want in answer.message


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param(cluster_queue(), id="no quota"),
        pytest.param(cluster_queue(quota(borrowingLimit="0", lendingLimit="4"), cohortName="c"), id="limits"),
        pytest.param(cluster_queue(quota(nominal=4), fairSharing={"weight": 0}), id="numbers"),
        pytest.param(cluster_queue(quota(nominal="20E")), id="more than 63 bits"),
        pytest.param(
            kueue("Cohort", {"parentName": "p", "resourceGroups": [quota(lendingLimit="9")]}), id="a cohort lends on"
        ),
        pytest.param(
            kueue(
                "ResourceFlavor",
                {
                    "nodeTaints": [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}],
                    "tolerations": [{"operator": "Exists"}],
                },
            ),
            id="two effects of a key",
        ),
        pytest.param(kueue("LocalQueue", {"clusterQueue": "c"}, namespace="ns"), id="a local queue"),
    ],
)
def test_what_is_accepted(obj: dict) -> None:
    answer = ask("validate", obj)
    assert answer.allowed, answer.message


def _checked(*flavors: str, on: str = "x") -> dict:
    strategy = {"admissionChecks": [{"name": "a", "onFlavors": [on]}]}
    return cluster_queue(group(*(flavor(name) for name in flavors)), admissionChecksStrategy=strategy)


@pytest.mark.parametrize(
    ("new", "old", "want"),
    [
        pytest.param(_checked("df"), _checked("df"), "", id="a stored mistake may stay"),
        pytest.param(_checked("df", "b"), _checked("df"), "onFlavors", id="until the flavors change"),
        pytest.param(_checked("df", on="y"), _checked("df"), "onFlavors", id="or the mistake does"),
        pytest.param(
            cluster_queue(concurrentAdmissionPolicy={"migration": {"mode": "RetainFirstAdmission"}}),
            cluster_queue(),
            "spec.concurrentAdmissionPolicy",
            id="the concurrent admission policy stays",
        ),
        pytest.param(
            kueue("LocalQueue", {"clusterQueue": "b"}, namespace="ns"),
            kueue("LocalQueue", {"clusterQueue": "a"}, namespace="ns"),
            "spec.clusterQueue",
            id="a local queue stays at its ClusterQueue",
        ),
    ],
)
def test_what_may_change(new: dict, old: dict, want: str) -> None:
    answer = ask("validate", new, old)
    assert answer.allowed == (not want), answer.message
    assert want in answer.message


@pytest.mark.parametrize("kind", ["ClusterQueue", "ResourceFlavor"])
def test_what_is_in_use_is_kept(kind: str) -> None:
    before = kueue(kind, {}, finalizers=["example.com/keep"])
    after = patched(before, ask("mutate", before))
    assert after["metadata"]["finalizers"] == ["example.com/keep", "kueue.x-k8s.io/resource-in-use"]
    assert ask("mutate", after).patch == ()
