"""What a Workload may hold, and how it may change."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.webhook.asking import ask, container, kueue, patched, settings

TEMPLATE = {"spec": {"containers": [container({"cpu": "1"})]}}
RESERVED = {"conditions": [{"type": "QuotaReserved", "status": "True"}]}


def pod_set(template: object = None, **changes: object) -> dict:
    return {"name": "main", "count": 2, "template": TEMPLATE if template is None else template, **changes}


def workload(*pod_sets: dict, status: dict | None = None, **metadata: object) -> dict:
    made = kueue("Workload", {"podSets": list(pod_sets or [pod_set()])}, namespace="ns", **metadata)
    return {**made, "status": status} if status else made


def grouped(name: str, count: int, **request: object) -> dict:
    asked = {"podSetGroupName": "g", "required": "rack", **request}
    return pod_set(name=name, count=count, topologyRequest={key: value for key, value in asked.items() if value})


def asking(**resources: object) -> dict:
    return pod_set({"spec": {"containers": [container(), {"name": "d", "resources": resources}]}})


AT = "spec.podSets[0].template.spec.containers[1].resources"


@pytest.mark.parametrize(
    ("obj", "want"),
    [
        pytest.param(workload(asking(requests={"cpu": "-3"})), f"{AT}.requests[cpu]: Invalid value", id="no credit"),
        pytest.param(workload(asking(limits={"memory": "-1Gi"})), f"{AT}.limits[memory]", id="no credit by limits"),
        pytest.param(workload(asking(requests={"cpu": -3})), f"{AT}.requests[cpu]", id="no credit by number"),
        pytest.param(workload(asking(requests={"cpu": "lots"})), f"{AT}.requests[cpu]", id="no quantity"),
        pytest.param(workload(asking(requests={"cpu": "1" * 5000})), f"{AT}.requests[cpu]", id="a hostile quantity"),
        pytest.param(workload(asking(requests={"pods": "1"})), f"{AT}.requests[pods]", id="pods are not asked for"),
        pytest.param(
            workload(pod_set({"spec": {"initContainers": [container({"cpu": "-1"})], "containers": []}})),
            "spec.podSets[0].template.spec.initContainers[0].resources.requests[cpu]",
            id="no credit by init containers",
        ),
        pytest.param(
            workload(pod_set({"spec": {"containers": [], "resources": {"requests": {"cpu": "-1"}}}})),
            "spec.podSets[0].template.spec.resources.requests[cpu]",
            id="no credit by the pod",
        ),
        pytest.param(
            workload(pod_set({"spec": {"containers": [], "overhead": {"cpu": "-1"}}})),
            "spec.podSets[0].template.spec.overhead[cpu]",
            id="no credit by overhead",
        ),
        pytest.param(
            workload(pod_set({"metadata": {"labels": {"a b": "c"}}, "spec": {}})),
            "spec.podSets[0].template.metadata.labels",
            id="labels have keys",
        ),
        pytest.param(
            workload(pod_set({"metadata": {"labels": {"a": "!"}}, "spec": {}})),
            "spec.podSets[0].template.metadata.labels[a]",
            id="labels have values",
        ),
        pytest.param(
            workload(pod_set({"spec": {"containers": "none"}})), "spec.podSets[0].template", id="a template is one"
        ),
        pytest.param(
            workload(pod_set(topologyRequest={"podSetSliceSize": 1})),
            "topologyRequest.podSetSliceRequiredTopology: Required",
            id="a slice has a level",
        ),
        pytest.param(
            workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack"})),
            "topologyRequest.podSetSliceSize: Required",
            id="a slice has a size",
        ),
        pytest.param(
            workload(pod_set(topologyRequest={"podSetSliceRequiredTopology": "rack", "podSetSliceSize": 3})),
            "topologyRequest.podSetSliceSize: Invalid",
            id="a slice is no larger than its pod set",
        ),
        pytest.param(
            workload(*(grouped(name, 1) for name in ("a", "b", "c"))),
            "spec.podSets[2].topologyRequest.podSetGroupName: Invalid",
            id="a group has two pod sets",
        ),
        pytest.param(workload(grouped("a", 2), grouped("b", 2)), "exactly one pod", id="a group has one leader"),
        pytest.param(
            workload(grouped("a", 1), grouped("b", 2, preferred="rack", required=None)),
            "same required or preferred",
            id="a group wants one place",
        ),
        pytest.param(
            workload(pod_set(minCount=1), pod_set(name="b", minCount=1)), "minCount", id="one pod set may shrink"
        ),
        pytest.param(
            workload(pod_set(minCount=1), annotations={"kueue.x-k8s.io/elastic-job": "true"}),
            "spec.podSets[0].minCount: Forbidden",
            id="an elastic one does not shrink",
        ),
        pytest.param(
            workload(annotations={"kueue.x-k8s.io/priority-boost": ""}), "priority-boost", id="a boost is a number"
        ),
        pytest.param(
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": ","}),
            "admission-gated-by",
            id="gates have names",
        ),
    ],
)
def test_what_a_workload_may_not_hold(obj: dict, want: str) -> None:
    answer = ask("validate", obj)
    assert not answer.allowed
    assert want in answer.message
    assert len(answer.message) < 2000


@pytest.mark.parametrize(
    ("new", "old", "want"),
    [
        pytest.param(workload(pod_set(count=3)), workload(), "", id="pod sets change while it waits"),
        pytest.param(
            workload(pod_set(count=3)),
            workload(status=RESERVED),
            "spec.podSets: Forbidden",
            id="not while it has quota",
        ),
        pytest.param(
            workload(pod_set(count=1), annotations={"kueue.x-k8s.io/elastic-job": "true"}),
            workload(status=RESERVED, annotations={"kueue.x-k8s.io/elastic-job": "true"}),
            "",
            id="an elastic one gives back",
        ),
        pytest.param(
            workload(pod_set(count=3), annotations={"kueue.x-k8s.io/elastic-job": "true"}),
            workload(status=RESERVED, annotations={"kueue.x-k8s.io/elastic-job": "true"}),
            "spec.podSets",
            id="an elastic one does not take more",
        ),
        pytest.param(
            workload(annotations={"kueue.x-k8s.io/admission-gated-by": "a"}),
            workload(),
            "admission-gated-by",
            id="gates are not added",
        ),
        pytest.param(
            workload(asking(requests={"cpu": "-1"}), annotations={"a": "b"}),
            workload(asking(requests={"cpu": "-1"})),
            "",
            id="what was stored before does not stand in the way of other changes",
        ),
    ],
)
def test_how_a_workload_may_change(new: dict, old: dict, want: str) -> None:
    answer = ask("validate", new, old)
    assert answer.allowed == (not want), answer.message
    assert want in answer.message


def test_without_partial_admission_every_pod_set_starts_whole() -> None:
    before = workload(pod_set(), pod_set(name="b", minCount=1))
    off = settings(feature_gates={"PartialAdmission": False})
    after = patched(before, ask("mutate", before, with_settings=off))
    assert all("minCount" not in each for each in after["spec"]["podSets"])
    assert ask("mutate", before).patch == ()


def test_a_template_of_a_megabyte_is_judged() -> None:
    big = pod_set({"spec": {"containers": [container({"cpu": "1", "memory": "1Gi"})] * 13_000}})
    assert len(msgspec.json.encode(big)) > 1_000_000
    assert ask("validate", workload(big)).allowed
