"""Which unit a resource is counted in, which resources are devices, and quota totals over many queues.

It works from rows of the read model. It must never round: these are the integers that the queues decide by.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from queues.journal.entries import QuotaRow

Json = dict[str, Any]

#: What is added up of quotas.
ADDED = ("nominal", "reserved", "admitted", "borrowed")


def unit(resource: str) -> str:
    """Of the integers: thousandths for cpu, whole units (bytes, devices) for everything else."""
    return "milli" if resource == "cpu" else "one"


def is_device(resource: str) -> bool:
    """GPUs and whatever else has a vendor's name, rather than processors and memory."""
    return "/" in resource and not resource.startswith("hugepages-")


def idle_to_lend(quota: QuotaRow) -> int:
    """What of the nominal quota is not held and may be lent: limited lending keeps a part back even while idle."""
    kept_back = 0 if quota.lending_limit is None else max(0, quota.nominal - quota.lending_limit)
    return max(0, quota.nominal - max(quota.reserved, kept_back))


def totals(own: Iterable[QuotaRow], members: Iterable[QuotaRow]) -> list[Json]:
    """By flavor and resource. `own` belongs to cohorts themselves: nobody holds it but by borrowing.

    `borrowed` is what queues hold above their nominal quota, `idle` the quota that nobody holds.
    """
    found: dict[tuple[str, str], Json] = {}

    def at(quota: QuotaRow) -> Json:
        return found.setdefault(
            (quota.flavor, quota.resource),
            {
                "flavor": quota.flavor,
                "resource": quota.resource,
                "unit": unit(quota.resource),
                **dict.fromkeys(ADDED, 0),
                "idle": 0,
            },
        )

    for quota in own:
        at(quota)["nominal"] += quota.nominal
    for quota in members:
        total = at(quota)
        for name in ADDED:
            total[name] += getattr(quota, name)
    for total in found.values():
        total["idle"] = max(0, total["nominal"] - total["reserved"])
    return [found[key] for key in sorted(found, key=lambda key: (not is_device(key[1]), key[1], key[0]))]


def by_resource(quotas: Iterable[Mapping[str, Any]]) -> list[Json]:
    """Totals over flavors, devices first."""
    found: dict[str, Json] = {}
    for quota in quotas:
        resource = quota["resource"]
        total = found.setdefault(resource, {"resource": resource, **dict.fromkeys(ADDED, 0)})
        for name in ADDED:
            total[name] += quota[name]
    return [
        found[name] for name in sorted(found, key=lambda name: (not is_device(name), -found[name]["nominal"], name))
    ]
