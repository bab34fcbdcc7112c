"""Prices of shares of GPUs, in equal parts of one GPU: MIG slices, replicas by time-slicing or MPS, and whole GPUs.

Made from the presets and replicas that the settings name, as resource transformations with whole numbers, so that no
sum of shares is ever rounded. What a preset does not price is left as it is requested.

What a slice takes of its GPU are the fractions of multiprocessors and memory in the tables "Supported MIG Profiles" of
NVIDIA's Multi-Instance GPU User Guide. By its multiprocessors, which is the default, 7g costs seven times 1g, and no
layout that a GPU can have costs more than the GPU. By the larger of both a slice costs what nobody else can have.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from admission.settings.configuration import GpuShares, PricedBy, ResourceTransformation

if TYPE_CHECKING:
    from admission.settings.configuration import Settings

WHOLE_GPU: Final = "nvidia.com/gpu"


class Slice(NamedTuple):
    """What a profile takes of its GPU."""

    multiprocessors: Fraction
    memory: Fraction

    def price(self, by: PricedBy) -> Fraction:
        match by:
            case PricedBy.MULTIPROCESSORS:
                return self.multiprocessors
            case PricedBy.MEMORY:
                return self.memory
            case PricedBy.LARGER:
                return max(self)
            case _:
                assert_never(by)


def _slice(multiprocessors: int, memory: int, *, of: tuple[int, int] = (7, 8)) -> Slice:
    return Slice(Fraction(multiprocessors, of[0]), Fraction(memory, of[1]))


def _slices(single: str, double: str, half: str, full: str) -> dict[str, Slice]:
    """The profiles of a GPU of seven slices of multiprocessors and eight of memory, by the names of their memory.

    The guide's table for the A100 says 1/8 of the memory for 1g with a double share (1g.10gb of 40 GB). By its name, by
    the four of it that fit and by the same profile of other GPUs that is 2/8.
    """
    return {
        f"1g.{single}": _slice(1, 1),
        f"1g.{single}.me": _slice(1, 1),
        f"1g.{double}": _slice(1, 2),
        f"2g.{double}": _slice(2, 2),
        f"3g.{half}": _slice(3, 4),
        f"4g.{half}": _slice(4, 4),
        f"7g.{full}": _slice(7, 8),
    }


#: What each MIG profile takes of its GPU, by the name of the preset. The device plugin writes `+me` as `.me`.
#: The guide lists no GB200, B300, GB300 and GH200 of 144 GB: their names are those of NVIDIA's MIG Manager, their
#: fractions those of every GPU of seven slices.
PRESETS: Final[Mapping[str, Mapping[str, Slice]]] = {
    "mig-a30-24gb": {
        "1g.6gb": _slice(1, 1, of=(4, 4)),
        "1g.6gb.me": _slice(1, 1, of=(4, 4)),
        "2g.12gb": _slice(2, 2, of=(4, 4)),
        "2g.12gb.me": _slice(2, 2, of=(4, 4)),
        "4g.24gb": _slice(4, 4, of=(4, 4)),
    },
    "mig-a100-40gb": _slices("5gb", "10gb", "20gb", "40gb"),
    "mig-a100-80gb": _slices("10gb", "20gb", "40gb", "80gb"),
    "mig-h100-80gb": _slices("10gb", "20gb", "40gb", "80gb"),
    "mig-h100-94gb": _slices("12gb", "24gb", "47gb", "94gb"),
    "mig-h100-96gb": _slices("12gb", "24gb", "48gb", "96gb"),
    "mig-gh200-144gb": _slices("18gb", "36gb", "72gb", "144gb"),
    "mig-h200-141gb": _slices("18gb", "35gb", "71gb", "141gb"),
    "mig-b200-180gb": _slices("23gb", "45gb", "90gb", "180gb"),
    "mig-gb200-186gb": _slices("23gb", "47gb", "93gb", "186gb"),
    "mig-b300-269gb": _slices("34gb", "67gb", "135gb", "269gb"),
    "mig-gb300-278gb": _slices("35gb", "70gb", "139gb", "278gb"),
}

_REPLICATED: Final = re.compile(r"nvidia\.com/(gpu|mig-(?P<profile>.+?))(\.shared)?")


def prices(shares: GpuShares) -> dict[str, Fraction]:
    """What each resource costs, in GPUs. Of two prices the first counts; `problems` refuses such settings."""
    found: dict[str, Fraction] = {}
    for name in shares.presets:
        for profile, part in PRESETS.get(name, {}).items():
            found.setdefault(f"nvidia.com/mig-{profile}", part.price(shares.by))
    whole = {**found, WHOLE_GPU: Fraction(1)}
    for resource, replicas in shares.replicas.items():
        of = whole.get(resource.removesuffix(".shared"))
        if of is not None and replicas > 0:
            found[resource] = of / replicas
    if found:
        found.setdefault(WHOLE_GPU, Fraction(1))
    return found


def transformations(shares: GpuShares) -> tuple[ResourceTransformation, ...]:
    """Kueue's form of the prices: so many parts for each unit."""
    return tuple(
        ResourceTransformation(
            input=resource,
            strategy=shares.strategy,
            outputs={shares.resource: str((fraction * shares.parts_per_gpu).__ceil__())},
        )
        for resource, fraction in prices(shares).items()
    )


def problems(settings: Settings) -> Iterator[str]:
    """What cannot be used of `muster.gpuShares`, with its path and the way out."""
    shares, path = settings.muster.gpu_shares, "muster.gpuShares"
    for index, name in enumerate(shares.presets):
        if name not in PRESETS:
            yield f"{path}.presets[{index}]: {name!r} is not known; write {', '.join(PRESETS)}"
        elif name in shares.presets[:index]:
            yield f"{path}.presets[{index}]: {name!r} is there twice; remove one"
    yield from _contradictions(shares, path)
    for resource, replicas in shares.replicas.items():
        form = _REPLICATED.fullmatch(resource)
        if form is None:
            yield f"{path}.replicas: {resource!r} is not shared; write nvidia.com/gpu.shared or nvidia.com/mig-X.shared"
        elif form["profile"] is not None and f"nvidia.com/mig-{form['profile']}" not in prices(shares):
            yield f"{path}.replicas.{resource}: no preset prices its profile; add that of the GPU to presets"
        elif replicas < 1:
            yield f"{path}.replicas.{resource}: {replicas} is not a number of replicas; write 1 or more"
    if shares.parts_per_gpu < 1:
        yield f"{path}.partsPerGpu: {shares.parts_per_gpu} is too little; 840 suits most"
        return
    costs = prices(shares)
    for resource, fraction in costs.items():
        if (fraction * shares.parts_per_gpu).denominator != 1:
            enough = lcm(*(each.denominator for each in costs.values()))
            yield (
                f"{path}.partsPerGpu: {resource} is {fraction} of a GPU, which is no whole number of parts; "
                f"write a multiple of {enough}"
            )
            return
    yield from _conflicts(settings, path, costs)


def _contradictions(shares: GpuShares, path: str) -> Iterator[str]:
    """GPUs of different sizes may give the same name to different slices."""
    first: dict[str, tuple[str, Fraction]] = {}
    for index, name in enumerate(shares.presets):
        for profile, part in PRESETS.get(name, {}).items():
            fraction = part.price(shares.by)
            known = first.setdefault(profile, (name, fraction))
            if known[1] != fraction:
                yield (
                    f"{path}.presets[{index}]: {profile} is {fraction} of a GPU, and {known[1]} in {known[0]}; "
                    "name one of the two presets, and price what the other GPUs have by resources.transformations"
                )


def _conflicts(settings: Settings, path: str, costs: Mapping[str, Fraction]) -> Iterator[str]:
    """Other settings that would undo the prices without a word."""
    shares = settings.muster.gpu_shares
    if not re.fullmatch(r"[a-z0-9.-]+/[A-Za-z0-9._-]+", shares.resource) or shares.resource in costs:
        yield f"{path}.resource: {shares.resource!r} cannot hold the parts; write a name such as muster.dev/gpu-parts"
    for index, prefix in enumerate(settings.resources.exclude_resource_prefixes):
        if prefix and any(name.startswith(prefix) for name in costs):
            yield (
                f"resources.excludeResourcePrefixes[{index}]: {prefix!r} leaves out what {path} prices; "
                "remove one of the two"
            )
