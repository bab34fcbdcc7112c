"""What claims on devices cost a Workload, and which of them nothing can be charged for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.api import devices, kueue
from admission.api.decoding import convert
from admission.jobs.pod_sets import core_pod_sets
from admission.jobs.requests import Misconfigured
from admission.settings import Settings
from tests.unit.jobs.builders import NS, World, condition, pod_template, stamp

Raw = dict[str, Any]


def settings(*, classes: dict[str, list[str]] | None = None, resources: Raw | None = None, **gates: bool) -> Settings:
    classes = {"gpus": ["gpu", "gpu-old"], "nics": ["nic"]} if classes is None else classes
    mappings = [{"name": name, "deviceClassNames": names} for name, names in classes.items()]
    raw = {"resources": {"deviceClassMappings": mappings, **(resources or {})}, "featureGates": gates}
    return convert(raw, Settings)


def exactly(device_class: str = "gpu", name: str = "r", **fields: Any) -> Raw:
    return {"name": name, "exactly": {"deviceClassName": device_class, **fields}}


def first_of(*alternatives: Raw, name: str = "r") -> Raw:
    return {"name": name, "firstAvailable": list(alternatives)}


def alternative(device_class: str = "gpu", name: str = "a", **fields: Any) -> Raw:
    return {"name": name, "deviceClassName": device_class, **fields}


def by_template(template: str = "t", name: str = "c") -> Raw:
    return {"name": name, "resourceClaimTemplateName": template}


def by_claim(claim: str = "s", name: str = "c") -> Raw:
    return {"name": name, "resourceClaimName": claim}


def device_class(name: str, extended: str = "", age: float = 0.0) -> devices.DeviceClass:
    raw = {"metadata": {"name": name, "creationTimestamp": stamp(-age)}, "spec": {"extendedResourceName": extended}}
    return convert(raw, devices.DeviceClass)


def world(templates: dict[str, list[Raw]], claims: dict[str, list[Raw]] | None = None, **more: Any) -> World:
    return World(
        settings=more.pop("settings", settings()),
        claim_templates={
            name: convert({"spec": {"spec": {"devices": {"requests": requests}}}}, devices.ResourceClaimTemplate)
            for name, requests in templates.items()
        },
        claims={
            name: convert({"spec": {"devices": {"requests": requests}}}, devices.ResourceClaim)
            for name, requests in (claims or {}).items()
        },
        **more,
    )


def workload(*pod_sets: list[Raw], count: int = 2, status: Raw | None = None, **spec: Any) -> kueue.Workload:
    """A pod set for each list of resource claims."""
    raw = [
        {"name": f"ps{index}", "count": count, "template": pod_template("1", resourceClaims=claims, **spec)}
        for index, claims in enumerate(pod_sets)
    ]
    return convert({"metadata": {"namespace": NS}, "spec": {"podSets": raw}, "status": status or {}}, kueue.Workload)


@dataclass
class Case:
    requests: list[Raw]
    want: dict[str, int]


CHARGES = {
    "a request without a count is for one": Case([exactly()], {"gpus": 1}),
    "a count is charged": Case([exactly(count=4, allocationMode="ExactCount")], {"gpus": 4}),
    "several requests add up by resource": Case(
        [exactly(count=2), exactly("gpu-old"), exactly("nic")], {"gpus": 3, "nics": 1}
    ),
    "access of an administrator takes no device": Case([exactly("unmapped", adminAccess=True), exactly()], {"gpus": 1}),
    "the dearest alternative is charged": Case(
        [first_of(alternative("gpu", count=1), alternative("gpu-old", count=3))], {"gpus": 3}
    ),
    "counts beyond 64 bits do not wrap": Case(
        [exactly(count=2**63 - 1), exactly(count=2**63 - 1)], {"gpus": 2**64 - 2}
    ),
    "no requests cost nothing": Case([], {}),
}


@pytest.mark.parametrize("case", CHARGES.values(), ids=CHARGES.keys())
def test_charge_of_a_template_is_for_each_pod(case: Case) -> None:
    got = core_pod_sets(workload([by_template()]), world({"t": case.requests}))
    assert not isinstance(got, Misconfigured), got
    assert got[0].requests == {"cpu": 1000, **case.want}
    assert got[0].node_requests == {"cpu": 1000}, "devices are no resource of nodes"
    assert not got[0].shared


@dataclass
class Refusal:
    words: str
    templates: dict[str, list[Raw]] = field(default_factory=dict)
    claim: Raw = field(default_factory=by_template)
    settings: Settings = field(default_factory=settings)


REFUSALS = {
    "a template that does not exist": Refusal('ResourceClaimTemplate "t" does not exist'),
    "a claim that does not exist": Refusal('ResourceClaim "s" does not exist', claim=by_claim()),
    "a class that is not mapped": Refusal(
        'ResourceClaimTemplate "t": request "r": device class "fpga" is mapped to no resource', {"t": [exactly("fpga")]}
    ),
    "all devices": Refusal("allocationMode All has no bound", {"t": [exactly(allocationMode="All")]}),
    "a mode of the future": Refusal("allocationMode Some is not known", {"t": [exactly(allocationMode="Some")]}),
    "an alternative of all devices": Refusal(
        'request "r/b": allocationMode All',
        {"t": [first_of(alternative(), alternative(name="b", allocationMode="All"))]},
    ),
    "an alternative that is not mapped": Refusal(
        'device class "fpga"', {"t": [first_of(alternative(), alternative("fpga"))]}
    ),
    "alternatives that count as different resources": Refusal(
        "different resources (gpus, nics)", {"t": [first_of(alternative(), alternative("nic"))]}
    ),
    "a request of nothing": Refusal('request "r" asks for nothing', {"t": [{"name": "r"}]}),
    "a claim of nothing": Refusal('"c" names neither', claim={"name": "c"}),
    "no class is mapped": Refusal("no device class is mapped", {"t": [exactly()]}, settings=settings(classes={})),
    "the integration is off": Refusal(
        "KueueDRAIntegration is off", {"t": [exactly()]}, settings=settings(KueueDRAIntegration=False)
    ),
}


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS.keys())
def test_claim_that_cannot_be_charged(case: Refusal) -> None:
    here = world(case.templates, settings=case.settings)
    got = core_pod_sets(workload([case.claim]), here)
    assert isinstance(got, Misconfigured)
    assert case.words in got.message


def test_a_shared_claim_is_charged_once_for_the_whole_workload() -> None:
    here = world({"t": [exactly()]}, {"s": [exactly(count=8)], "n": [exactly("nic")]})
    obj = workload([by_claim(), by_claim("s", "again"), by_template(name="own")], [by_claim(), by_claim("n", "nic")])
    got = core_pod_sets(obj, here)
    assert not isinstance(got, Misconfigured), got
    assert [pod_set.shared for pod_set in got] == [{"gpus": 8}, {"nics": 1}]
    assert [pod_set.requests.get("gpus") for pod_set in got] == [1, None]  # type: ignore[call-overload]


def test_who_holds_quota_is_not_refused_any_more() -> None:
    held = {"conditions": [condition("QuotaReserved")], "admission": {"clusterQueue": "cq", "podSetAssignments": []}}
    got = core_pod_sets(workload([by_template()], status=held), world({}))
    assert not isinstance(got, Misconfigured)
    assert got[0].node_requests == {"cpu": 1000}


def test_rules_about_resources_do_not_touch_claims() -> None:
    rules = {
        "excludeResourcePrefixes": ["gp"],
        "transformations": [{"input": "gpus", "strategy": "Replace", "outputs": {"credits": "10"}}],
    }
    got = core_pod_sets(workload([by_template()]), world({"t": [exactly()]}, settings=settings(resources=rules)))
    assert not isinstance(got, Misconfigured)
    assert got[0].requests == {"cpu": 1000, "gpus": 1}


# ------------------------------------------------------------------ extended resources

GPU = "example.com/gpu"


@dataclass
class Extended:
    classes: tuple[devices.DeviceClass, ...]
    want: dict[str, int]
    want_node: dict[str, int] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=lambda: {GPU: "2"})
    settings: Settings = field(default_factory=settings)


EXTENDED = {
    "a class gives an extended resource": Extended((device_class("gpu", GPU),), {"gpus": 2}),
    "a class that is not mapped leaves the name": Extended((device_class("fpga", GPU),), {GPU: 2}),
    "no class gives it: it is a resource of nodes": Extended((device_class("gpu", "a.b/c"),), {GPU: 2}, {GPU: 2}),
    "the newest class gives it": Extended(
        (device_class("nic", GPU, age=9), device_class("gpu", GPU, age=1)), {"gpus": 2}
    ),
    "of equally old classes the first by name": Extended(
        (device_class("nic", GPU), device_class("gpu", GPU)), {"gpus": 2}
    ),
    "a class can be asked for by its own name": Extended(
        (), {"gpus": 3}, asked={"deviceclass.resource.kubernetes.io/gpu": "3"}
    ),
    "the resource and the class by its name add up": Extended(
        (device_class("gpu", GPU),), {"gpus": 3}, asked={GPU: "1", "deviceclass.resource.kubernetes.io/gpu": "2"}
    ),
    "the gate leaves extended resources alone": Extended(
        (device_class("gpu", GPU),), {GPU: 2}, {GPU: 2}, settings=settings(KueueDRAIntegrationExtendedResource=False)
    ),
    "without mappings nothing changes": Extended((), {GPU: 2}, {GPU: 2}, settings=settings(classes={})),
    "it is charged by its class, whatever rules say of its name": Extended(
        (device_class("gpu", GPU),),
        {"gpus": 2, "credits": 20},
        settings=settings(resources={"transformations": [{"input": GPU, "outputs": {"credits": "10"}}]}),
    ),
}


@pytest.mark.parametrize("case", EXTENDED.values(), ids=EXTENDED.keys())
def test_extended_resource(case: Extended) -> None:
    containers = [{"name": "c", "resources": {"requests": case.asked, "limits": case.asked}}]
    got = core_pod_sets(workload([], containers=containers), world({}, settings=case.settings, classes=case.classes))
    assert not isinstance(got, Misconfigured), got
    assert (got[0].requests, got[0].node_requests) == (case.want, case.want_node)


def test_init_containers_give_their_devices_back() -> None:
    init = [{"name": "i", "resources": {"requests": {GPU: "3"}}}]
    main = [{"name": "c", "resources": {"requests": {GPU: "1"}}}]
    here = world({}, classes=(device_class("gpu", GPU),))
    got = core_pod_sets(workload([], initContainers=init, containers=main), here)
    assert not isinstance(got, Misconfigured)
    assert got[0].requests == {"gpus": 3}


def test_half_a_device_cannot_be_asked_for() -> None:
    containers = [{"name": name, "resources": {"requests": {GPU: "500m"}}} for name in ("a", "b")]
    got = core_pod_sets(workload([], containers=containers), world({}, classes=(device_class("gpu", GPU),)))
    assert isinstance(got, Misconfigured)
    assert "only comes whole" in got.message
