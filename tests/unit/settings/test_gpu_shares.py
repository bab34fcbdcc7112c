"""Shares of GPUs as quota: what each costs, that sums are exact, and which settings cannot be."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
import yaml

from admission.api.core import Container, PodSpec, ResourceRequirements
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests
from admission.settings import Settings, SettingsError, dump, gpu_shares, parse
from admission.settings.configuration import PricedBy

PARTS = "muster.dev/gpu-parts"


def read(shares: dict[str, Any], **fields: Any) -> Settings:
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **fields}
    return parse(yaml.safe_dump({**document, "muster": {"gpuShares": shares}}))


def charge(settings: Settings, **limits: str) -> dict[str, int]:
    """Of one pod; `_` stands for what no keyword can have in it."""
    named = {name.replace("__", "-").replace("_", "."): amount for name, amount in limits.items()}
    resources = ResourceRequirements(
        limits={(f"nvidia.com/{name}" if name != "cpu" else name): amount for name, amount in named.items()}
    )
    found = pod_requests(
        PodSpec(containers=(Container(name="c", resources=resources),)), Surroundings(resources=settings.resources)
    )
    assert not isinstance(found, Misconfigured)
    return dict(found.charge)


@dataclass(frozen=True)
class Price:
    id: str
    limits: dict[str, str]
    want: dict[str, int]
    shares: dict[str, Any] = field(default_factory=lambda: {"presets": ["mig-h100-80gb"]})


PRICES = [
    Price("a whole GPU", {"gpu": "1"}, {PARTS: 840}),
    Price("a slice of seven sevenths costs a GPU", {"mig__7g_80gb": "1"}, {PARTS: 840}),
    Price("a slice of one seventh costs a seventh", {"mig__1g_10gb": "1"}, {PARTS: 120}),
    Price("media engines cost nothing more", {"mig__1g_10gb_me": "1"}, {PARTS: 120}),
    Price("one seventh with twice the memory costs a seventh", {"mig__1g_20gb": "1"}, {PARTS: 120}),
    Price("two sevenths", {"mig__2g_20gb": "1"}, {PARTS: 240}),
    Price("three sevenths", {"mig__3g_40gb": "1"}, {PARTS: 360}),
    Price("four sevenths", {"mig__4g_40gb": "1"}, {PARTS: 480}),
    Price(
        "several slices and a whole GPU add up",
        {"mig__1g_10gb": "3", "gpu": "2", "mig__3g_40gb": "1"},
        {PARTS: 360 + 1680 + 360},
    ),
    Price(
        "by memory: eighths",
        {"mig__1g_10gb": "1", "mig__3g_40gb": "1"},
        {PARTS: 105 + 420},
        {"presets": ["mig-h100-80gb"], "by": "Memory"},
    ),
    Price(
        "by the larger of both: a quarter of the memory, half of the memory, four sevenths",
        {"mig__1g_20gb": "1", "mig__3g_40gb": "1", "mig__4g_40gb": "1", "mig__1g_10gb": "1"},
        {PARTS: 210 + 420 + 480 + 120},
        {"presets": ["mig-h100-80gb"], "by": "Larger"},
    ),
    Price("the rest of the pod is charged as ever", {"mig__1g_10gb": "1", "cpu": "2"}, {PARTS: 120, "cpu": 2000}),
    Price(
        "a slice of another GPU is left as it is",
        {"mig__1g_5gb": "1"},
        {"nvidia.com/mig-1g.5gb": 1},
    ),
    Price("replicas share a GPU", {"gpu_shared": "1"}, {PARTS: 210}, {"replicas": {"nvidia.com/gpu.shared": 4}}),
    Price(
        "replicas that kept the name of the GPU",
        {"gpu": "1"},
        {PARTS: 105},
        {"replicas": {"nvidia.com/gpu": 8}},
    ),
    Price(
        "replicas of a slice",
        {"mig__1g_10gb_shared": "1"},
        {PARTS: 60},
        {"presets": ["mig-h100-80gb"], "replicas": {"nvidia.com/mig-1g.10gb.shared": 2}},
    ),
    Price(
        "what is priced may be charged by its own name too",
        {"mig__1g_10gb": "2"},
        {PARTS: 240, "nvidia.com/mig-1g.10gb": 2},
        {"presets": ["mig-h100-80gb"], "strategy": "Retain"},
    ),
    Price(
        "another resource and another number of parts",
        {"mig__2g_10gb": "1", "gpu": "1"},
        {"example.com/sevenths": 36},
        {"presets": ["mig-a100-40gb"], "resource": "example.com/sevenths", "partsPerGpu": 28},
    ),
    Price(
        "a GB200: seven of the smallest cost what the largest does",
        {"mig__1g_23gb": "7", "mig__7g_186gb": "1"},
        {PARTS: 2 * 840},
        {"presets": ["mig-gb200-186gb"]},
    ),
    Price(
        "GPUs of several generations in one cluster",
        {"mig__1g_34gb": "1", "mig__3g_71gb": "1", "mig__7g_278gb": "1"},
        {PARTS: 120 + 360 + 840},
        {"presets": ["mig-h200-141gb", "mig-b300-269gb", "mig-gb300-278gb"]},
    ),
    Price("four slices of an A30 are the GPU", {"mig__1g_6gb": "4"}, {PARTS: 840}, {"presets": ["mig-a30-24gb"]}),
]


@pytest.mark.parametrize("case", PRICES, ids=lambda case: case.id)
def test_what_a_pod_is_charged(case: Price) -> None:
    assert charge(read(case.shares), **case.limits) == case.want


@pytest.mark.parametrize("preset", sorted(gpu_shares.PRESETS))
def test_a_full_slice_costs_seven_of_the_smallest(preset: str) -> None:
    """On an A30, which has four slices, four."""
    prices = [part.price(PricedBy.MULTIPROCESSORS) for part in gpu_shares.PRESETS[preset].values()]
    assert max(prices) == 1
    assert max(prices) / min(prices) == (4 if "a30" in preset else 7)


@pytest.mark.parametrize("preset", sorted(gpu_shares.PRESETS))
def test_a_slice_takes_what_its_name_says(preset: str) -> None:
    """The multiprocessors by the number before the g, the memory in eighths of the whole (an A30: in quarters)."""
    parts, memory = (4, 4) if "a30" in preset else (7, 8)
    whole = int(preset.rpartition("-")[2].removesuffix("gb"))
    for profile, part in gpu_shares.PRESETS[preset].items():
        slices, size = profile.removesuffix(".me").removesuffix("gb").split("g.")
        assert part.multiprocessors == Fraction(int(slices), parts), profile
        assert part.memory == Fraction(round(int(size) / whole * memory), memory), profile


#: Layouts that an A100 of 40 GB can have and that leave nothing for another slice.
LAYOUTS = (
    "7g.40gb", "4g.20gb 3g.20gb", "4g.20gb 2g.10gb 1g.5gb", "4g.20gb 1g.10gb 1g.10gb", "4g.20gb 1g.5gb 1g.5gb 1g.5gb",
    "3g.20gb 3g.20gb", "3g.20gb 2g.10gb 2g.10gb", "3g.20gb 2g.10gb 1g.5gb 1g.5gb",
    "3g.20gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb",
    "2g.10gb 2g.10gb 2g.10gb 1g.10gb", "2g.10gb 2g.10gb 1g.10gb 1g.5gb 1g.5gb", "1g.10gb 1g.10gb 1g.10gb 1g.10gb",
    "1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb 1g.5gb",
)  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("by", [PricedBy.MULTIPROCESSORS, PricedBy.MEMORY])
def test_no_layout_of_a_gpu_costs_more_than_the_gpu(layout: str, by: PricedBy) -> None:
    """So a quota of as many GPUs as there are never keeps out what fits them."""
    prices = gpu_shares.PRESETS["mig-a100-40gb"]
    assert sum(prices[profile].price(by) for profile in layout.split()) <= 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_by_the_larger_share_a_gpu_that_is_full_is_paid_for(layout: str) -> None:
    """So a quota never takes more GPUs than it says, but for seventh or eighth parts that no slice can have."""
    prices = gpu_shares.PRESETS["mig-a100-40gb"]
    assert sum(prices[profile].price(PricedBy.LARGER) for profile in layout.split()) >= 1


@pytest.mark.parametrize("preset", sorted(gpu_shares.PRESETS))
def test_any_number_of_slices_is_counted_exactly(preset: str) -> None:
    settings = read({"presets": [preset]})
    for (profile, part), count in itertools.product(gpu_shares.PRESETS[preset].items(), (1, 3, 7, 1000, 10**15)):
        name = f"mig__{profile.replace('.', '_')}"
        assert charge(settings, **{name: str(count)}) == {PARTS: part.multiprocessors * 840 * count}


def test_settings_with_prices_are_read_back_the_same() -> None:
    settings = read(
        {"presets": ["mig-h200-141gb"], "replicas": {"nvidia.com/gpu.shared": 2}},
        resources={"transformations": [{"input": "cpu", "outputs": {"a/b": "1"}}]},
    )
    assert parse(dump(settings)) == settings
    assert len(settings.resources.transformations) == 1 + 7 + 2


def test_without_shares_nothing_is_transformed() -> None:
    assert read({}).resources.transformations == ()


@dataclass(frozen=True)
class Refusal:
    id: str
    shares: dict[str, Any]
    want: str
    fields: dict[str, Any] = field(default_factory=dict)


REFUSALS = [
    Refusal("a preset is known", {"presets": ["mig-h100"]}, "presets[0]: 'mig-h100' is not known; write mig-a30-24gb"),
    Refusal("a preset is there once", {"presets": ["mig-h100-80gb"] * 2}, "presets[1]: 'mig-h100-80gb' is there tw"),
    Refusal(
        "a profile has one price",
        {"presets": ["mig-a100-40gb", "mig-a100-80gb"], "by": "Memory"},
        "presets[1]: 1g.10gb is 1/8 of a GPU, and 1/4 in mig-a100-40gb",
    ),
    Refusal("only GPUs are shared", {"replicas": {"cpu": 2}}, "replicas: 'cpu' is not shared; write nvidia.com/gpu."),
    Refusal(
        "replicas of a slice need its price",
        {"replicas": {"nvidia.com/mig-1g.10gb.shared": 2}},
        "replicas.nvidia.com/mig-1g.10gb.shared: no preset prices its profile",
    ),
    Refusal("there are replicas", {"replicas": {"nvidia.com/gpu.shared": 0}}, "0 is not a number of replicas"),
    Refusal(
        "parts are whole",
        {"presets": ["mig-h100-80gb"], "partsPerGpu": 10},
        "nvidia.com/mig-1g.10gb is 1/7 of a GPU, which is no whole number of parts; write a multiple of 7",
    ),
    Refusal(
        "replicas count as well",
        {"presets": ["mig-h100-80gb"], "replicas": {"nvidia.com/gpu.shared": 48}},
        "write a multiple of 336",
    ),
    Refusal("there are parts", {"presets": ["mig-h100-80gb"], "partsPerGpu": 0}, "partsPerGpu: 0 is too little"),
    Refusal(
        "the parts have a name of their own",
        {"presets": ["mig-h100-80gb"], "resource": "nvidia.com/gpu"},
        "resource: 'nvidia.com/gpu' cannot hold the parts",
    ),
    Refusal(
        "the parts are an extended resource", {"presets": ["mig-a30-24gb"], "resource": "cpu"}, "resource: 'cpu' can"
    ),
    Refusal(
        "what is priced is not left out",
        {"presets": ["mig-h100-80gb"]},
        "excludeResourcePrefixes[0]: 'nvidia.com/' leaves out what muster.gpuShares prices",
        {"resources": {"excludeResourcePrefixes": ["nvidia.com/"]}},
    ),
    Refusal(
        "what is priced has no other transformation",
        {"presets": ["mig-h100-80gb"]},
        "transformations[0].input: 'nvidia.com/gpu' is there twice; muster.gpuShares prices it as well",
        {"resources": {"transformations": [{"input": "nvidia.com/gpu", "outputs": {"a/b": "1"}}]}},
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_prices_that_cannot_be_are_refused(case: Refusal) -> None:
    with pytest.raises(SettingsError) as refused:
        read(case.shares, **case.fields)
    assert case.want in str(refused.value)


def test_by_multiprocessors_gpus_of_all_sizes_go_together() -> None:
    """1g.10gb is a seventh of an A100 of 40 GB and of one of 80 GB."""
    settings = read({"presets": list(gpu_shares.PRESETS)})
    assert charge(settings, mig__1g_10gb="1") == {PARTS: 120}


def test_two_gpus_with_the_same_slices_are_one_price() -> None:
    """A100 and H100 of 80 GB have profiles of the same names and fractions."""
    both = read({"presets": ["mig-a100-80gb", "mig-h100-80gb"]})
    assert both.resources == read({"presets": ["mig-h100-80gb"]}).resources
