"""Claims that count by what devices consume or give: counters of partitions, and capacity that can be shared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from admission.api import devices
from admission.api.decoding import convert
from admission.jobs.pod_sets import core_pod_sets
from admission.jobs.requests import Misconfigured
from admission.settings import Settings
from tests.unit.jobs.builders import World
from tests.unit.jobs.test_device_claims import alternative, by_claim, by_template, exactly, first_of, workload, world

Raw = dict[str, Any]
DRIVER = "gpu.example.com"
ANY = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}


def cel(text: str) -> list[Raw]:
    return [{"cel": {"expression": text.replace("GPU", f'device.attributes["{DRIVER}"]')}}]


def settings(**more: Any) -> Settings:
    """A partition of class gpu counts by memory and cores, a shared one of class vram by memory."""
    counters = [
        {
            "name": name,
            "deviceClassNames": ["gpu"],
            "sources": [{"counter": {"name": counter, "driver": DRIVER, "deviceSelector": ANY}}],
        }
        for name, counter in (("gpu-memory", "memory"), ("gpu-cores", "cores"))
    ]
    capacity = {
        "name": "vram",
        "deviceClassNames": ["vram"],
        "sources": [{"capacity": {"name": "memory", "driver": DRIVER, "deviceSelector": ANY}}],
    }
    raw = {
        "resources": {"deviceClassMappings": [*counters, capacity, {"name": "nics", "deviceClassNames": ["nic"]}]},
        "featureGates": {"KueueDRAIntegrationConsumableCapacity": True, **more},
    }
    return convert(raw, Settings)


def partition(name: str, profile: str, memory: str, cores: int) -> Raw:
    counters = {"memory": {"value": memory}, "cores": {"value": str(cores)}}
    return {
        "name": name,
        "attributes": {"profile": {"string": profile}, "index": {"int": int(name[-1])}},
        "consumesCounters": [{"counterSet": f"set-{name}", "counters": counters}],
    }


def shared(name: str, memory: str = "80Gi", policy: Raw | None = None) -> Raw:
    capacity = {"value": memory, **({"requestPolicy": policy} if policy else {})}
    return {
        "name": name,
        "attributes": {"profile": {"string": "whole"}},
        "capacity": {"memory": capacity},
        "allowMultipleAllocations": True,
    }


def only(*values: str) -> Raw:
    return {"validValues": list(values)}


def a_slice(
    *found: Raw, pool: str = "p", generation: int = 1, count: int = 1, name: str = "s"
) -> devices.ResourceSlice:
    spec = {
        "driver": DRIVER,
        "pool": {"name": pool, "generation": generation, "resourceSliceCount": count},
        "devices": list(found),
    }
    return convert({"metadata": {"name": name}, "spec": spec}, devices.ResourceSlice)


PARTITIONS = a_slice(
    partition("a0", "1g", "10Gi", 16), partition("a1", "1g", "10Gi", 16), partition("b0", "3g", "40Gi", 60),
    partition("c0", "7g", "80Gi", 132),
)  # fmt: skip


def a_class(name: str, selectors: list[Raw] | None = None, extended: str = "") -> devices.DeviceClass:
    spec = {"selectors": selectors or [], "extendedResourceName": extended}
    return convert({"metadata": {"name": name}, "spec": spec}, devices.DeviceClass)


def town(requests: list[Raw], *slices: devices.ResourceSlice, **more: Any) -> World:
    classes = more.pop("classes", (a_class("gpu"), a_class("vram"), a_class("nic")))
    given: Settings = more.pop("settings", settings())
    return world({"t": requests}, {"s": requests}, settings=given, classes=classes, slices=slices, **more)


@dataclass(frozen=True)
class Charge:
    id: str
    requests: list[Raw]
    want: dict[str, int]
    slices: tuple[devices.ResourceSlice, ...] = (PARTITIONS,)
    classes: tuple[devices.DeviceClass, ...] = field(
        default_factory=lambda: (a_class("gpu"), a_class("vram"), a_class("nic"))
    )


GI = 1024**3
CHARGES = [
    Charge(
        "the partition that the request selects",
        [exactly("gpu", selectors=cel('GPU.profile == "3g"'))],
        {"gpu-memory": 40 * GI, "gpu-cores": 60},
    ),
    Charge(
        "several of a kind",
        [exactly("gpu", count=2, selectors=cel('GPU.profile == "1g"'))],
        {"gpu-memory": 20 * GI, "gpu-cores": 32},
    ),
    Charge(
        "without a selector the largest that it may get", [exactly("gpu")], {"gpu-memory": 80 * GI, "gpu-cores": 132}
    ),
    Charge(
        "the class selects as well",
        [exactly("gpu")],
        {"gpu-memory": 10 * GI, "gpu-cores": 16},
        classes=(a_class("gpu", cel('GPU.profile == "1g"')),),
    ),
    Charge(
        "requests of several classes add up",
        [exactly("gpu", selectors=cel('GPU.profile == "1g"')), exactly("nic", count=3)],
        {"gpu-memory": 10 * GI, "gpu-cores": 16, "nics": 3},
    ),
    Charge(
        "the dearest alternative",
        [
            first_of(
                alternative("gpu", selectors=cel('GPU.profile == "1g"'), count=2),
                alternative("gpu", selectors=cel('GPU.profile == "3g"')),
            )
        ],
        {"gpu-memory": 40 * GI, "gpu-cores": 60},
    ),
    Charge("access of an administrator takes nothing", [exactly("gpu", adminAccess=True)], {}),
    Charge(
        "a shared device that nobody asks an amount of counts whole",
        [exactly("vram")],
        {"vram": 80 * GI},
        (a_slice(shared("a")),),
    ),
    Charge(
        "the amount that is asked for",
        [exactly("vram", count=2, capacity={"requests": {"memory": "10Gi"}})],
        {"vram": 20 * GI},
        (a_slice(shared("a"), shared("b")),),
    ),
    Charge(
        "a default of the device",
        [exactly("vram")],
        {"vram": 8 * GI},
        (a_slice(shared("a", policy={"default": "8Gi"})),),
    ),
    Charge(
        "the next value that the device can give",
        [exactly("vram", capacity={"requests": {"memory": "11Gi"}})],
        {"vram": 20 * GI},
        (a_slice(shared("a", policy={"validValues": ["10Gi", "20Gi", "40Gi"]})),),
    ),
    Charge(
        "the next step of a range",
        [exactly("vram", capacity={"requests": {"memory": "11Gi"}})],
        {"vram": 12 * GI},
        (a_slice(shared("a", policy={"validRange": {"min": "4Gi", "step": "4Gi", "max": "80Gi"}})),),
    ),
    Charge(
        "the least of a range",
        [exactly("vram", capacity={"requests": {"memory": "1Gi"}})],
        {"vram": 4 * GI},
        (a_slice(shared("a", policy={"validRange": {"min": "4Gi"}})),),
    ),
    Charge(
        "of devices that round in different ways the one that takes most",
        [exactly("vram", capacity={"requests": {"memory": "5Gi"}})],
        {"vram": 16 * GI},
        (a_slice(shared("a"), shared("b", policy=only("16Gi")), shared("c", policy=only("4Gi"))),),
    ),
    Charge(
        "the newest generation of a pool",
        [exactly("gpu")],
        {"gpu-memory": 10 * GI, "gpu-cores": 16},
        (
            a_slice(partition("z0", "7g", "80Gi", 132)),
            a_slice(partition("a0", "1g", "10Gi", 16), generation=2, name="t"),
        ),
    ),
]


@pytest.mark.parametrize("case", CHARGES, ids=lambda case: case.id)
def test_charge_of_a_template_is_for_each_pod(case: Charge) -> None:
    got = core_pod_sets(workload([by_template()]), town(case.requests, *case.slices, classes=case.classes))
    assert not isinstance(got, Misconfigured), got
    assert got[0].requests == {"cpu": 1000, **case.want}
    assert not got[0].shared


def test_charge_of_a_claim_is_shared() -> None:
    got = core_pod_sets(workload([by_claim()]), town([exactly("gpu")], PARTITIONS))
    assert not isinstance(got, Misconfigured), got
    assert got[0].shared == {"gpu-memory": 80 * GI, "gpu-cores": 132}


def test_without_the_gate_devices_count_one_by_one() -> None:
    off = settings(KueueDRAIntegrationPartitionableDevices=False)
    got = core_pod_sets(workload([by_template()]), town([exactly("gpu", count=3)], PARTITIONS, settings=off))
    assert not isinstance(got, Misconfigured), got
    assert got[0].requests == {"cpu": 1000, "gpu-memory": 3}


@dataclass(frozen=True)
class Refusal:
    id: str
    requests: list[Raw]
    words: str
    slices: tuple[devices.ResourceSlice, ...] = (PARTITIONS,)
    classes: tuple[devices.DeviceClass, ...] = field(default_factory=lambda: (a_class("gpu"), a_class("vram")))


REFUSALS = [
    Refusal("there are no devices", [exactly("gpu")], "1 devices are asked for and 0 match (driver gpu.example", ()),
    Refusal("too few devices match", [exactly("gpu", count=5)], "5 devices are asked for and 4 match"),
    Refusal(
        "a pool of which a slice is missing does not count",
        [exactly("gpu")],
        "0 match",
        (a_slice(partition("a0", "1g", "1", 1), count=2),),
    ),
    Refusal("the class is gone", [exactly("gpu")], 'device class "gpu" does not exist', classes=()),
    Refusal("no device has the counter", [exactly("gpu")], 'has the counter "memory"', (a_slice({"name": "a"}),)),
    Refusal("no device has the capacity", [exactly("vram")], 'has the capacity "memory"', (a_slice({"name": "a"}),)),
    Refusal(
        "no device can give so much",
        [exactly("vram", capacity={"requests": {"memory": "90Gi"}})],
        'can give 90Gi of its capacity "memory"',
        (a_slice(shared("a", policy={"validRange": {"min": "1Gi", "max": "80Gi"}})),),
    ),
    Refusal(
        "a selector asks for what devices lack", [exactly("gpu", selectors=cel("GPU.other == 1"))], "there is no other"
    ),
    Refusal(
        "a selector is not understood",
        [exactly("gpu", selectors=cel("GPU.profile.reverse() == ''"))],
        "a selector calls reverse()",
    ),
    Refusal("all devices have no bound", [exactly("gpu", allocationMode="All")], "allocationMode All has no bound"),
    Refusal(
        "alternatives that count differently",
        [first_of(alternative("gpu"), alternative("vram", name="b"))],
        "counted as different resources",
        (a_slice(shared("a")), a_slice(partition("a0", "1g", "1", 1), pool="q", name="t")),
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_what_cannot_be_charged_waits_with_the_reason(case: Refusal) -> None:
    got = core_pod_sets(workload([by_template()]), town(case.requests, *case.slices, classes=case.classes))
    assert isinstance(got, Misconfigured), got
    assert case.words in got.message


def test_an_extended_resource_of_such_a_class_is_refused() -> None:
    asks = workload([])
    pod = asks.spec.pod_sets[0].template["spec"]
    pod["containers"][0]["resources"]["requests"]["example.com/gpu"] = "1"
    classes = (a_class("gpu", extended="example.com/gpu"),)
    got = core_pod_sets(asks, town([], PARTITIONS, classes=classes))
    assert isinstance(got, Misconfigured)
    assert 'of the device class "gpu", whose devices are counted by sources' in got.message


def test_devices_that_a_selector_cannot_tell_apart_are_judged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand partitions of three kinds: three evaluations."""
    from admission.api.cel import Selector

    judged = []
    real = Selector.matches
    monkeypatch.setattr(Selector, "matches", lambda self, device: judged.append(device) or real(self, device))
    many = a_slice(*(partition(f"d{index}", f"{index % 3}g", "1Gi", 1) for index in range(999)))
    asks = [exactly("gpu", count=333, selectors=cel('GPU.profile == "1g"'))]
    got = core_pod_sets(workload([by_template()]), town(asks, many))
    assert not isinstance(got, Misconfigured), got
    assert got[0].requests["gpu-memory"] == 333 * GI
    assert len(judged) <= 2 * 2 * 3, "two counters, two selectors"
