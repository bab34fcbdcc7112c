"""What a pod is charged and takes from a node, and which templates are refused beforehand."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.api.core import LimitRange, PodSpec, RuntimeClass
from admission.api.decoding import convert
from admission.jobs.requests import Misconfigured, PodRequests, Surroundings, pod_requests
from admission.settings import Resources


def container(name: str = "c", requests: Any = None, limits: Any = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


def limit_range(name: str = "lr", **item: Any) -> LimitRange:
    return convert({"metadata": {"name": name}, "spec": {"limits": [{"type": "Container", **item}]}}, LimitRange)


SIDECAR = container("side", {"cpu": "100m", "memory": "100Mi"}, restartPolicy="Always")
INIT = container("init", {"cpu": "200m", "memory": "10Mi"})
APP = container("app", {"cpu": "100m", "memory": "300Mi"})
OVERHEAD = convert({"metadata": {"name": "oh"}, "handler": "x", "overhead": {"podFixed": {"cpu": "50m"}}}, RuntimeClass)
MI = 2**20


@dataclass
class Case:
    spec: dict[str, Any]
    want: dict[str, int]
    around: Surroundings = field(default_factory=Surroundings)
    want_node: dict[str, int] | None = None


def resources(**raw: Any) -> Surroundings:
    return Surroundings(resources=convert(raw, Resources))


CASES = {
    "containers add up": Case({"containers": [APP, APP]}, {"cpu": 200, "memory": 600 * MI}),
    "a sidecar runs beside the init containers that follow it": Case(
        {"initContainers": [SIDECAR, INIT], "containers": [APP], "runtimeClassName": "oh"},
        {"cpu": 350, "memory": 400 * MI},
        Surroundings(runtime_class=OVERHEAD),
    ),
    "an init container before the sidecar runs alone": Case(
        {"initContainers": [INIT, SIDECAR], "containers": [APP], "runtimeClassName": "oh"},
        {"cpu": 250, "memory": 400 * MI},
        Surroundings(runtime_class=OVERHEAD),
    ),
    "the overhead in the pod stands for that of its RuntimeClass": Case(
        {"containers": [APP], "overhead": {"cpu": "1"}},
        {"cpu": 1100, "memory": 300 * MI},
        Surroundings(runtime_class=OVERHEAD),
    ),
    "a limit without request is the request, whatever a LimitRange would give by default": Case(
        {"containers": [container(limits={"cpu": "2"})]},
        {"cpu": 2000},
        Surroundings(limit_ranges=(limit_range(defaultRequest={"cpu": "500m"}, default={"cpu": "1"}),)),
    ),
    "a LimitRange gives what a container does not ask for": Case(
        {"containers": [container()]},
        {"cpu": 500, "ephemeral-storage": 1000},
        Surroundings(
            limit_ranges=(limit_range(defaultRequest={"cpu": "500m", "ephemeral-storage": "1k"}, default={"cpu": "1"}),)
        ),
    ),
    "pod-level requests stand for the containers'": Case(
        {"containers": [APP, APP], "resources": {"requests": {"cpu": "3"}}}, {"cpu": 3000, "memory": 600 * MI}
    ),
    "a pod-level limit without request counts as what the containers ask for": Case(
        {"containers": [container(requests={"cpu": "1"})], "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}},
        {"cpu": 1000, "memory": 2**30},
    ),
    "a negative request earns no credit": Case(
        {"containers": [container(requests={"cpu": "-3"}), container(requests={"cpu": "1"})]}, {"cpu": 1000}
    ),
    "amounts beyond 64 bits are exact": Case(
        {"containers": [container(requests={"memory": "8E"}), container(requests={"memory": "8E"})]},
        {"memory": 16 * 10**18},
    ),
    "fractions are rounded up once, after the sum": Case(
        {"containers": [container(requests={"cpu": "0.1m"})] * 3}, {"cpu": 1}
    ),
    "excluded prefixes cost no quota, but room on the node": Case(
        {"containers": [container(requests={"cpu": "1", "example.com/a": "2"})]},
        {"cpu": 1000},
        resources(excludeResourcePrefixes=["example.com/"]),
        {"cpu": 1000, "example.com/a": 2},
    ),
    "a transformation of a fraction: 300m x 1000 = 300": Case(
        {"containers": [container(requests={"cpu": "300m"})]},
        {"cpu": 300, "credits": 300},
        resources(transformations=[{"input": "cpu", "outputs": {"credits": "1000"}}]),
        {"cpu": 300},
    ),
    "a transformation by a fraction: 300M x 1m = 300k": Case(
        {"containers": [container(requests={"blob": "300M"})]},
        {"units": 300_000},
        resources(transformations=[{"input": "blob", "strategy": "Replace", "outputs": {"units": "1m"}}]),
        {"blob": 300_000_000},
    ),
    "what is made is added to what is asked for by the same name": Case(
        {"containers": [container(requests={"gpu-memory": "5", "gpu": "2"})]},
        {"gpu-memory": 85},
        resources(transformations=[{"input": "gpu", "strategy": "Replace", "outputs": {"gpu-memory": "40"}}]),
        {"gpu-memory": 5, "gpu": 2},
    ),
    "multiplyBy multiplies where it is asked for": Case(
        {"containers": [container(requests={"gpu": "2", "slices": "3"})]},
        {"slices": 3, "gpu": 2, "credits": 60},
        resources(transformations=[{"input": "gpu", "outputs": {"credits": "10"}, "multiplyBy": "slices"}]),
        {"gpu": 2, "slices": 3},
    ),
    "a transformation to less than nothing is nothing": Case(
        {"containers": [container(requests={"cpu": "1"})]},
        {"cpu": 1000, "credits": 0},
        resources(transformations=[{"input": "cpu", "outputs": {"credits": "-5"}}]),
        {"cpu": 1000},
    ),
    "several inputs make one output": Case(
        {"containers": [container(requests={"cpu": "2", "gpu": "1"})]},
        {"credits": 32},
        resources(
            transformations=[
                {"input": "cpu", "strategy": "Replace", "outputs": {"credits": "1"}},
                {"input": "gpu", "strategy": "Replace", "outputs": {"credits": "30"}},
            ]
        ),
        {"cpu": 2000, "gpu": 1},
    ),
    "a total is floored, not each part of it": Case(
        {"containers": [container(requests={"cpu": "2", "gpu": "1"})]},
        {"cpu": 2000, "gpu": 1, "credits": 20},
        resources(
            transformations=[
                {"input": "cpu", "outputs": {"credits": "-5"}},
                {"input": "gpu", "outputs": {"credits": "30"}},
            ]
        ),
        {"cpu": 2000, "gpu": 1},
    ),
    "less than nothing does not lower what is asked for by the same name": Case(
        {"containers": [container(requests={"cpu": "1", "credits": "7"})]},
        {"cpu": 1000, "credits": 7},
        resources(transformations=[{"input": "cpu", "outputs": {"credits": "-5"}}]),
        {"cpu": 1000, "credits": 7},
    ),
    "what is replaced by itself is what the output says": Case(
        {"containers": [container(requests={"gpu": "2"})]},
        {"gpu": 20},
        resources(transformations=[{"input": "gpu", "strategy": "Replace", "outputs": {"gpu": "10"}}]),
        {"gpu": 2},
    ),
    "one output does not become the input of another rule": Case(
        {"containers": [container(requests={"a": "1"})]},
        {"b": 2},
        resources(
            transformations=[
                {"input": "a", "strategy": "Replace", "outputs": {"b": "2"}},
                {"input": "b", "strategy": "Replace", "outputs": {"c": "3"}},
            ]
        ),
        {"a": 1},
    ),
    "multiplyBy of what is not asked for multiplies by nothing": Case(
        {"containers": [container(requests={"gpu": "2"})]},
        {"gpu": 2, "credits": 20},
        resources(transformations=[{"input": "gpu", "outputs": {"credits": "10"}, "multiplyBy": "slices"}]),
        {"gpu": 2},
    ),
    "multiplyBy cpu counts cores, not milli-units": Case(
        {"containers": [container(requests={"gpu": "2", "cpu": "1500m"})]},
        {"cpu": 1500, "credits": 30},
        resources(
            transformations=[{"input": "gpu", "strategy": "Replace", "outputs": {"credits": "10"}, "multiplyBy": "cpu"}]
        ),
        {"gpu": 2, "cpu": 1500},
    ),
    "an excluded resource is no input": Case(
        {"containers": [container(requests={"example.com/a": "2", "cpu": "1"})]},
        {"cpu": 1000},
        resources(
            excludeResourcePrefixes=["example.com/"],
            transformations=[{"input": "example.com/a", "outputs": {"credits": "1"}}],
        ),
        {"example.com/a": 2, "cpu": 1000},
    ),
    "several prefixes, and only as prefixes": Case(
        {"containers": [container(requests={"a.b/c": "1", "d.e/f": "1", "x.a.b/c": "1"})]},
        {"x.a.b/c": 1},
        resources(excludeResourcePrefixes=["a.b/", "d.e/"]),
        {"a.b/c": 1, "d.e/f": 1, "x.a.b/c": 1},
    ),
    "zero of a resource is asked for as zero": Case({"containers": [container(requests={"gpu": "0"})]}, {"gpu": 0}),
    "each resource has its own order of init containers and sidecars": Case(
        {
            "initContainers": [
                container("big", {"cpu": "1", "memory": "1Gi"}),
                container("side", {"cpu": "2", "memory": "1Mi"}, restartPolicy="Always"),
                container("late", {"cpu": "3", "memory": "2Mi"}),
            ],
            "containers": [container("app", {"cpu": "2", "memory": "4Mi"})],
        },
        {"cpu": 5000, "memory": 1024 * MI},
    ),
    "a sidecar runs beside the sidecars before it": Case(
        {"initContainers": [SIDECAR, SIDECAR, INIT], "containers": [container("app")]},
        {"cpu": 400, "memory": 210 * MI},
    ),
    "overhead comes on top of pod-level requests": Case(
        {"containers": [APP], "resources": {"requests": {"cpu": "1"}}, "overhead": {"cpu": "250m", "memory": "1Mi"}},
        {"cpu": 1250, "memory": 301 * MI},
    ),
    "a RuntimeClass without overhead adds nothing": Case(
        {"containers": [APP], "runtimeClassName": "plain"},
        {"cpu": 100, "memory": 300 * MI},
        Surroundings(runtime_class=convert({"metadata": {"name": "plain"}, "handler": "x"}, RuntimeClass)),
    ),
    "pod-level requests are not lowered by a small container": Case(
        {"initContainers": [INIT], "containers": [APP], "resources": {"requests": {"cpu": "2", "memory": "1Gi"}}},
        {"cpu": 2000, "memory": 1024 * MI},
    ),
    "a pod-level limit counts as what the init containers need": Case(
        {
            "initContainers": [container("i", {"cpu": "2"})],
            "containers": [container(requests={"cpu": "1"})],
            "resources": {"limits": {"cpu": "4"}},
        },
        {"cpu": 2000},
    ),
    "a pod-level limit counts before a LimitRange gives defaults": Case(
        {"containers": [container()], "resources": {"limits": {"cpu": "4"}}},
        {"cpu": 4000},
        Surroundings(limit_ranges=(limit_range(defaultRequest={"cpu": "500m"}, default={"cpu": "1"}),)),
    ),
    "huge pages of a pod are its limit": Case(
        {
            "containers": [container(requests={"hugepages-2Mi": "2Mi"}, limits={"hugepages-2Mi": "2Mi"})],
            "resources": {"limits": {"hugepages-2Mi": "8Mi"}},
        },
        {"hugepages-2Mi": 8 * MI},
    ),
    "a pod-level request of another resource counts for nothing": Case(
        {"containers": [container(requests={"gpu": "1"})], "resources": {"requests": {"gpu": "9"}}}, {"gpu": 1}
    ),
    "of several LimitRanges the first that gives a default counts": Case(
        {"containers": [container()]},
        {"cpu": 500, "ephemeral-storage": 1000},
        Surroundings(
            limit_ranges=(
                limit_range("a", defaultRequest={"cpu": "500m"}),
                limit_range("b", defaultRequest={"cpu": "2", "ephemeral-storage": "1k"}),
            )
        ),
    ),
    "a LimitRange of pods or volumes gives no container a default": Case(
        {"containers": [container(requests={"cpu": "1"})]},
        {"cpu": 1000},
        Surroundings(
            limit_ranges=(
                limit_range(type="PersistentVolumeClaim", min={"storage": "1Gi"}),
                limit_range(type="Pod", defaultRequest={"memory": "1Gi"}),
            )
        ),
    ),
    "init containers get defaults too": Case(
        {"initContainers": [container("i")], "containers": [container(requests={"cpu": "1"})]},
        {"cpu": 3000},
        Surroundings(limit_ranges=(limit_range(defaultRequest={"cpu": "3"}),)),
    ),
    "an exponent far beyond any node is a number like others": Case(
        {"containers": [container(requests={"memory": "1e30"}), container(requests={"memory": "1"})]},
        {"memory": 10**30 + 1},
    ),
    "whole units are rounded up": Case({"containers": [container(requests={"memory": "1500m"})]}, {"memory": 2}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_requests(case: Case) -> None:
    got = pod_requests(convert(case.spec, PodSpec), case.around)
    assert got == PodRequests(case.want, case.want if case.want_node is None else case.want_node)


BIG = {"containers": [container("big", {"cpu": "2"}, {"cpu": "2"})]}
REFUSED = {
    "a request above its limit": ({"containers": [container("c", {"cpu": "2"}, {"cpu": "1"})]}, (), "than its limit"),
    "above a maximum": (BIG, (limit_range(max={"cpu": "1"}),), 'LimitRange "lr"'),
    "below a minimum": (BIG, (limit_range(min={"cpu": "3"}),), "minimum of cpu"),
    "no limit where there is a maximum": ({"containers": [APP]}, (limit_range(max={"cpu": "1"}),), "has no limit"),
    "limit too far above the request": (
        {"containers": [container("c", {"cpu": "1"}, {"cpu": "4"})]},
        (limit_range(maxLimitRequestRatio={"cpu": "2"}),),
        "at most 2 times",
    ),
    "the whole pod above a maximum": (
        {"containers": [BIG["containers"][0]] * 2},
        (limit_range(type="Pod", max={"cpu": "3"}),),
        "the limit of the pod is 4",
    ),
    "the whole pod below a minimum": (BIG, (limit_range(type="Pod", min={"cpu": "3"}),), "the pod requests 2"),
    "a pod without a limit where pods have a maximum": (
        {"containers": [APP]},
        (limit_range(type="Pod", max={"memory": "1Gi"}),),
        "the pod has no limit",
    ),
    "the whole pod's limit too far above its request": (
        {"containers": [container("a", {"cpu": "1"}, {"cpu": "1"}), container("b", {"cpu": "1"}, {"cpu": "5"})]},
        (limit_range(type="Pod", maxLimitRequestRatio={"cpu": "2"}),),
        "the pod has 6 to 2",
    ),
    "an init container counts in the pod's maximum": (
        {"initContainers": [container("i", limits={"cpu": "4"})], "containers": [container(limits={"cpu": "1"})]},
        (limit_range(type="Pod", max={"cpu": "3"}),),
        "the limit of the pod is 4",
    ),
    "a ratio needs both": (
        {"containers": [container("c", {"cpu": "1"})]},
        (limit_range(maxLimitRequestRatio={"cpu": "2"}),),
        "does not have both",
    ),
    "the second of several LimitRanges": (
        BIG,
        (limit_range("wide", max={"cpu": "8"}), limit_range("narrow", max={"cpu": "1"})),
        'LimitRange "narrow"',
    ),
    "a default of a LimitRange above the container's own limit": (
        {"containers": [container("c", limits={"memory": "1"}), container("d", {}, {"cpu": "1"})]},
        (limit_range(defaultRequest={"cpu": "2"}, default={"cpu": "1"}),),
        'container "c" requests more cpu than its limit',
    ),
    "a pod-level request above the pod-level limit": (
        {"containers": [APP], "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
        (),
        "the pod requests more cpu than its limit",
    ),
    "containers that need more than the pod": (
        {"containers": [APP, APP], "resources": {"requests": {"cpu": "150m"}}},
        (),
        "the containers request more cpu than the pod: 0.2, pod 0.15",
    ),
    "no quantity": ({"containers": [container("c", {"cpu": "many"})]}, (), "not a quantity"),
}


@pytest.mark.parametrize(("spec", "ranges", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_template_that_no_api_server_would_take(spec: Any, ranges: Any, words: str) -> None:
    got = pod_requests(convert(spec, PodSpec), Surroundings(limit_ranges=ranges))
    assert isinstance(got, Misconfigured)
    assert words in got.message


def test_a_limit_range_that_allows_it_says_nothing() -> None:
    ranges = (limit_range(max={"cpu": "2"}, min={"cpu": "1"}, maxLimitRequestRatio={"cpu": "1"}),)
    assert isinstance(pod_requests(convert(BIG, PodSpec), Surroundings(limit_ranges=ranges)), PodRequests)


def test_pods_that_are_admitted_are_not_refused_any_more() -> None:
    around = Surroundings(limit_ranges=(limit_range(max={"cpu": "1"}),), are_admitted=True)
    assert pod_requests(convert(BIG, PodSpec), around) == PodRequests({"cpu": 2000}, {"cpu": 2000})
