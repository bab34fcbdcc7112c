"""What the devices that pods claim cost in quota: by which resources each device class counts, and how much of them.

It works from the claims and claim templates that a pod spec names, from the device class mappings of the settings and,
where these count by counters or capacity, from the devices that drivers tell of. It must never charge less than the
scheduler may allocate: what cannot be bounded is refused, with the reason.
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
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaimSpec,
)
from admission.jobs.device_pools import NoCharge, Question
from admission.jobs.interface import Context
from admission.jobs.requests import Misconfigured
from admission.settings import Settings
from admission.settings.configuration import DeviceClassMapping, DeviceSource
from admission.settings.device_classes import CAPACITY_GATE, COUNTERS_GATE

_SETTING = "resources.deviceClassMappings"


@dataclass(frozen=True, slots=True)
class Claimed:
    """Amounts by the resources of quota: of each pod, and of claims by name, which all their users share."""

    per_pod: Mapping[str, int] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Measure:
    """A device counts as so much of `resource` as its counter or capacity `source` says."""

    resource: str
    source: DeviceSource
    is_counter: bool


def resource_of_class(settings: Settings) -> dict[str, str]:
    """The resource that each mapped device class counts as; the first of several."""
    found: dict[str, str] = {}
    for mapping in _mappings(settings):
        for name in mapping.device_class_names:
            found.setdefault(name, mapping.name)
    return found


def measures_of_class(settings: Settings) -> dict[str, tuple[Measure, ...]]:
    """For the classes whose devices do not count one by one: what of them counts."""
    found: dict[str, tuple[Measure, ...]] = {}
    for mapping in _mappings(settings):
        if measures := tuple(_measures(mapping, settings)):
            for name in mapping.device_class_names:
                found[name] = (*found.get(name, ()), *measures)
    return found


def _mappings(settings: Settings) -> tuple[DeviceClassMapping, ...]:
    return settings.resources.device_class_mappings if settings.gate("KueueDRAIntegration") else ()


def _measures(mapping: DeviceClassMapping, settings: Settings) -> Iterable[Measure]:
    for source in mapping.sources:
        if source.counter is not None and settings.gate(COUNTERS_GATE):
            yield Measure(mapping.name, source.counter, is_counter=True)
        if source.capacity is not None and settings.gate(CAPACITY_GATE):
            yield Measure(mapping.name, source.capacity, is_counter=False)


def claimed(
    claims: Iterable[PodResourceClaim], namespace: str, context: Context, charged: set[str]
) -> Claimed | Misconfigured:
    """What a pod set claims. `charged` are the claims that another pod set of the Workload pays for; it is added to.

    Cost: the requests of all claims.
    """
    prices = _Prices(context)
    per_pod: dict[str, int] = {}
    shared: dict[str, int] = {}
    for claim in claims:
        if not context.settings.gate("KueueDRAIntegration"):
            return Misconfigured(f'resource claim "{claim.name}": claims are refused, KueueDRAIntegration is off')
        if not prices.resources:
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
        charge = prices.of_claim(spec)
        if isinstance(charge, Misconfigured):
            return Misconfigured(f"{where}: {charge.message}")
        for resource, amount in charge.items():
            into[resource] = into.get(resource, 0) + amount
    return Claimed(per_pod, shared)


_Charge = Mapping[str, int]


class _Prices:
    """What claims cost under these settings, with these devices."""

    def __init__(self, context: Context) -> None:
        self.resources = resource_of_class(context.settings)
        self._measures = measures_of_class(context.settings)
        self._context = context

    def of_claim(self, spec: ResourceClaimSpec) -> _Charge | Misconfigured:
        charge: dict[str, int] = {}
        for request in spec.devices.requests:
            one = self._of_request(request)
            if isinstance(one, Misconfigured):
                return one
            for resource, amount in one.items():
                charge[resource] = charge.get(resource, 0) + amount
        return charge

    def _of_request(self, request: DeviceRequest) -> _Charge | Misconfigured:
        if request.exactly is None:
            return self._first_available(request)
        if request.exactly.admin_access:  # it looks at devices that others hold, and holds none itself
            return {}
        return self._bounded(request.name, request.exactly)

    def _first_available(self, request: DeviceRequest) -> _Charge | Misconfigured:
        """The dearest alternative, since the scheduler may take any; they have to be counted as the same resources."""
        most: dict[str, int] = {}
        kinds = set()
        for alternative in request.first_available:
            one = self._bounded(f"{request.name}/{alternative.name}", alternative)
            if isinstance(one, Misconfigured):
                return one
            kinds.add(frozenset(one))
            for resource, amount in one.items():
                most[resource] = max(amount, most.get(resource, 0))
        if not most:
            return Misconfigured(f'request "{request.name}" asks for nothing')
        if len(kinds) > 1:
            names = ", ".join(sorted(most))
            return Misconfigured(
                f'request "{request.name}": its alternatives are counted as different resources ({names})'
            )
        return most

    def _bounded(self, name: str, wanted: ExactDeviceRequest | DeviceSubRequest) -> _Charge | Misconfigured:
        mode, device_class = wanted.allocation_mode, wanted.device_class_name
        if mode == ALL:
            return Misconfigured(f'request "{name}": allocationMode All has no bound that quota could be charged with')
        if mode not in {"", EXACT_COUNT}:
            return Misconfigured(f'request "{name}": allocationMode {mode} is not known')
        resource = self.resources.get(device_class)
        if resource is None:
            return Misconfigured(
                f'request "{name}": device class "{device_class}" is mapped to no resource ({_SETTING})'
            )
        measures = self._measures.get(device_class)
        if measures is not None:
            return self._measured(name, wanted, measures)
        return {resource: max(wanted.count, 1)}

    def _measured(
        self, name: str, wanted: ExactDeviceRequest | DeviceSubRequest, measures: Iterable[Measure]
    ) -> _Charge | Misconfigured:
        """By the devices that the source, the class and the request all mean: the most that any of them would cost."""
        found = self._context.device_class(wanted.device_class_name)
        if found is None:
            return Misconfigured(f'request "{name}": device class "{wanted.device_class_name}" does not exist')
        selectors = (*_expressions(found.spec.selectors), *_expressions(wanted.selectors))
        charge: dict[str, int] = {}
        for measure in measures:
            source = measure.source
            asked = None if wanted.capacity is None else wanted.capacity.requests.get(source.name)
            question = Question(
                selectors=(source.device_selector.cel.expression, *selectors),
                name=source.name,
                is_counter=measure.is_counter,
                asked=None if measure.is_counter else asked,
            )
            amount = self._context.device_pools(source.driver).charge(question, max(wanted.count, 1))
            if isinstance(amount, NoCharge):
                return Misconfigured(f'request "{name}": {amount.message} (driver {source.driver})')
            charge[measure.resource] = charge.get(measure.resource, 0) + amount
        return charge


def _expressions(selectors: Iterable[DeviceSelector]) -> Iterable[str]:
    return (selector.cel.expression for selector in selectors if selector.cel is not None)


# ------------------------------------------------------------------ devices that are asked for as an extended resource


def backed_resources(names: Iterable[str], context: Context) -> dict[str, str] | Misconfigured:
    """Of the resources `names` those that devices stand behind, and the resource of quota that each counts as.

    Several classes may give the same extended resource: Kubernetes takes the newest, and of equally old ones the first
    by name. The extended resource of a class that is not mapped counts under its own name. One whose class counts by
    counters or capacity is refused, as it says nothing of these. Cost: names times classes.
    """
    settings = context.settings
    classes = resource_of_class(settings)
    if not classes or not settings.gate("KueueDRAIntegrationExtendedResource"):
        return {}
    measures = measures_of_class(settings)
    found = {}
    for name in names:
        if name.startswith(DEVICE_CLASS_RESOURCE):
            device_class = name.removeprefix(DEVICE_CLASS_RESOURCE)
        else:
            chosen = _class_behind(name, context.device_classes())
            if chosen is None:
                continue
            device_class = chosen.metadata.name
        if device_class in measures:
            return Misconfigured(
                f'{name} is of the device class "{device_class}", whose devices are counted by sources ({_SETTING}); '
                "claim them instead"
            )
        found[name] = classes.get(device_class, name)
    return found


def _class_behind(resource: str, classes: Iterable[DeviceClass]) -> DeviceClass | None:
    giving = [each for each in classes if each.spec.extended_resource_name == resource]
    return min(giving, key=lambda each: (-each.metadata.created_at, each.metadata.name), default=None)
