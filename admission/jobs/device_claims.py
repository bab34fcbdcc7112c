"""What the devices that pods claim cost in quota: by which resource each device class counts, and how many of it.

It works from the claims and claim templates that a pod spec names and from the device class mappings of the settings.
It must never charge less than the scheduler may allocate: what cannot be bounded is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from admission.api.core import PodResourceClaim
from admission.api.devices import (
    ALL,
    DEVICE_CLASS_RESOURCE,
    EXACT_COUNT,
    DeviceClass,
    DeviceRequest,
    ResourceClaimSpec,
)
from admission.jobs.interface import Context
from admission.jobs.requests import Misconfigured
from admission.settings import Settings

_SETTING = "resources.deviceClassMappings"


@dataclass(frozen=True, slots=True)
class Claimed:
    """Amounts by the resources of quota: of each pod, and of claims by name, which all their users share."""

    per_pod: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)


def resource_of_class(settings: Settings) -> dict[str, str]:
    """The resource that each mapped device class counts as."""
    if not settings.gate("KueueDRAIntegration"):
        return {}
    return {
        name: mapping.name
        for mapping in settings.resources.device_class_mappings
        for name in mapping.device_class_names
    }


def claimed(
    claims: Iterable[PodResourceClaim], namespace: str, context: Context, charged: set[str]
) -> Claimed | Misconfigured:
    """What a pod set claims. `charged` are the claims that another pod set of the Workload pays for; it is added to.

    Cost: the requests of all claims.
    """
    classes = resource_of_class(context.settings)
    per_pod: dict[str, int] = {}
    shared: dict[str, int] = {}
    for claim in claims:
        if not context.settings.gate("KueueDRAIntegration"):
            return Misconfigured(f'resource claim "{claim.name}": claims are refused, KueueDRAIntegration is off')
        if not classes:
            return Misconfigured(f'resource claim "{claim.name}": no device class is mapped to a resource ({_SETTING})')
        if claim.resource_claim_template_name:
            name, into = claim.resource_claim_template_name, per_pod
            template = context.resource_claim_template(namespace, name)
            where = f'ResourceClaimTemplate "{name}"'
            spec = None if template is None else template.spec.spec
        elif claim.resource_claim_name:
            name, into = claim.resource_claim_name, shared
            if name in charged:
                continue
            found = context.resource_claim(namespace, name)
            where = f'ResourceClaim "{name}"'
            spec = None if found is None else found.spec
            charged.add(name)
        else:
            return Misconfigured(f'resource claim "{claim.name}" names neither a claim nor a template')
        if spec is None:
            return Misconfigured(f"{where} does not exist")
        charge = claim_charge(spec, classes)
        if isinstance(charge, Misconfigured):
            return Misconfigured(f"{where}: {charge.message}")
        for resource, amount in charge.items():
            into[resource] = into.get(resource, 0) + amount
    return Claimed(per_pod, shared)


def claim_charge(spec: ResourceClaimSpec, classes: Mapping[str, str]) -> Mapping[str, int] | Misconfigured:
    """What one claim costs, by the resource that each class of `classes` counts as."""
    charge: dict[str, int] = {}
    for request in spec.devices.requests:
        one = _request_charge(request, classes)
        if isinstance(one, Misconfigured):
            return one
        for resource, amount in one:
            charge[resource] = charge.get(resource, 0) + amount
    return charge


_Charge = tuple[tuple[str, int], ...]


def _request_charge(request: DeviceRequest, classes: Mapping[str, str]) -> _Charge | Misconfigured:
    if request.exactly is None:
        return _first_available(request, classes)
    exactly = request.exactly
    if exactly.admin_access:  # it looks at devices that others hold, and holds none itself
        return ()
    return _bounded(request.name, exactly.device_class_name, exactly.allocation_mode, exactly.count, classes)


def _first_available(request: DeviceRequest, classes: Mapping[str, str]) -> _Charge | Misconfigured:
    """The dearest alternative, since the scheduler may take any; they have to be counted as one resource."""
    most: dict[str, int] = {}
    for alternative in request.first_available:
        one = _bounded(
            f"{request.name}/{alternative.name}",
            alternative.device_class_name,
            alternative.allocation_mode,
            alternative.count,
            classes,
        )
        if isinstance(one, Misconfigured):
            return one
        for resource, amount in one:
            most[resource] = max(amount, most.get(resource, 0))
    if not most:
        return Misconfigured(f'request "{request.name}" asks for nothing')
    if len(most) > 1:
        names = ", ".join(sorted(most))
        return Misconfigured(f'request "{request.name}": its alternatives are counted as different resources ({names})')
    return tuple(most.items())


def _bounded(
    name: str, device_class: str, mode: str, count: int, classes: Mapping[str, str]
) -> _Charge | Misconfigured:
    if mode == ALL:
        return Misconfigured(f'request "{name}": allocationMode All has no bound that quota could be charged with')
    if mode not in {"", EXACT_COUNT}:
        return Misconfigured(f'request "{name}": allocationMode {mode} is not known')
    resource = classes.get(device_class)
    if resource is None:
        return Misconfigured(f'request "{name}": device class "{device_class}" is mapped to no resource ({_SETTING})')
    return ((resource, max(count, 1)),)


# ------------------------------------------------------------------ devices that are asked for as an extended resource


def backed_resources(names: Iterable[str], context: Context) -> dict[str, str]:
    """Of the resources `names` those that devices stand behind, and the resource of quota that each counts as.

    Several classes may give the same extended resource: Kubernetes takes the newest, and of equally old ones the first
    by name. The extended resource of a class that is not mapped counts under its own name. Cost: names times classes.
    """
    settings = context.settings
    classes = resource_of_class(settings)
    if not classes or not settings.gate("KueueDRAIntegrationExtendedResource"):
        return {}
    found = {}
    for name in names:
        if name.startswith(DEVICE_CLASS_RESOURCE):
            device_class = name.removeprefix(DEVICE_CLASS_RESOURCE)
        else:
            chosen = _class_behind(name, context.device_classes())
            if chosen is None:
                continue
            device_class = chosen.metadata.name
        found[name] = classes.get(device_class, name)
    return found


def _class_behind(resource: str, classes: Iterable[DeviceClass]) -> DeviceClass | None:
    giving = [each for each in classes if each.spec.extended_resource_name == resource]
    return min(giving, key=lambda each: (-each.metadata.created_at, each.metadata.name), default=None)
