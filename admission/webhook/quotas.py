"""Quantities in manifests: what is no quantity or less than nothing, and the resource groups of queues and cohorts.

Looks at the groups of one object and at whether it has a parent in the quota tree; what other objects say is decided
when the tree is built. Sizes are checked first, so that a manifest of any size is judged quickly.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from admission.api.kueue import FairSharing, FlavorQuotas, ResourceGroup
from admission.api.quantities import QuantityError, parse
from admission.webhook import fields, syntax
from admission.webhook.fields import FieldError

_MOST_FLAVORS: Final = 256
_MOST_RESOURCES: Final = 256
_MOST_PAIRS_IN_A_GROUP: Final = 512
_SMALLEST_WEIGHT: Final = Fraction(1, 10**9)

Number = str | int | float


def quantity_errors(path: str, value: Number) -> Iterator[FieldError]:
    """Not a quantity, or a negative one."""
    try:
        if parse(value) < 0:
            yield fields.invalid(path, value, "must be greater than or equal to 0")
    except QuantityError:
        yield fields.invalid(path, value, "must be a quantity, such as 500m, 4 or 16Gi")


def weight_errors(path: str, fair_sharing: FairSharing | None) -> Iterator[FieldError]:
    """A weight is 0, or large enough to be divided by."""
    if fair_sharing is None:
        return
    at = f"{path}.weight"
    bad = list(quantity_errors(at, fair_sharing.weight))
    yield from bad
    if not bad and 0 < parse(fair_sharing.weight) <= _SMALLEST_WEIGHT:
        yield fields.invalid(at, fair_sharing.weight, "must be 0 or greater than 1n")


def group_errors(
    path: str, groups: tuple[ResourceGroup, ...], *, parent: str | None, parent_kind: str, lends_at_most_nominal: bool
) -> Iterator[FieldError]:
    """`parent` is the cohort that the quota belongs to; without one there is nobody to borrow from or lend to."""
    flavors = [flavor.name for group in groups for flavor in group.flavors]
    resources = [resource for group in groups for resource in group.covered_resources]
    if len(flavors) > _MOST_FLAVORS:
        yield fields.too_many(f"{path}.flavors", len(flavors), _MOST_FLAVORS)
        return
    if len(resources) > _MOST_RESOURCES:
        yield fields.too_many(f"{path}.coveredResources", len(resources), _MOST_RESOURCES)
        return
    seen_resources: set[str] = set()
    seen_flavors: set[str] = set()
    for position, group in enumerate(groups):
        at = fields.index(path, position)
        for place, resource in enumerate(group.covered_resources):
            where = fields.index(f"{at}.coveredResources", place)
            if problem := syntax.label_key(resource):
                yield fields.invalid(where, resource, problem)
            if resource in seen_resources:
                yield fields.duplicate(where, resource)
            seen_resources.add(resource)
        pairs = sum(len(flavor.resources) for flavor in group.flavors)
        if pairs > _MOST_PAIRS_IN_A_GROUP:
            yield fields.too_many(f"{at}.flavors", pairs, _MOST_PAIRS_IN_A_GROUP)
            continue
        for place, flavor in enumerate(group.flavors):
            where = fields.index(f"{at}.flavors", place)
            if problem := syntax.subdomain(flavor.name):
                yield fields.invalid(f"{where}.name", flavor.name, problem)
            if flavor.name in seen_flavors:
                yield fields.duplicate(f"{where}.name", flavor.name)
            seen_flavors.add(flavor.name)
            yield from _flavor_errors(
                where,
                flavor,
                group.covered_resources,
                parent=parent,
                parent_kind=parent_kind,
                lends_at_most_nominal=lends_at_most_nominal,
            )


def _flavor_errors(
    path: str,
    flavor: FlavorQuotas,
    covered: tuple[str, ...],
    *,
    parent: str | None,
    parent_kind: str,
    lends_at_most_nominal: bool,
) -> Iterator[FieldError]:
    if len(flavor.resources) != len(covered):
        yield fields.invalid(
            f"{path}.resources", len(flavor.resources), f"must be as many as coveredResources ({len(covered)})"
        )
        return
    for position, (resource, name) in enumerate(zip(flavor.resources, covered, strict=True)):
        at = fields.index(f"{path}.resources", position)
        if resource.name != name:
            yield fields.invalid(
                f"{at}.name", resource.name, f"must be the resource of this place in coveredResources ({name})"
            )
        bad = list(quantity_errors(f"{at}.nominalQuota", resource.nominal_quota))
        for field, limit in (("borrowingLimit", resource.borrowing_limit), ("lendingLimit", resource.lending_limit)):
            if limit is None:
                continue
            bad += quantity_errors(f"{at}.{field}", limit)
            if not parent:
                yield fields.invalid(f"{at}.{field}", limit, f"must be nil when {parent_kind} is empty")
        yield from bad
        if (
            lends_at_most_nominal
            and not bad
            and resource.lending_limit is not None
            and parse(resource.lending_limit) > parse(resource.nominal_quota)
        ):
            yield fields.invalid(
                f"{at}.lendingLimit",
                resource.lending_limit,
                f"must be less than or equal to the nominalQuota ({resource.nominal_quota})",
            )
