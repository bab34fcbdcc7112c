"""What one pod of a template takes: of a node (its raw requests) and of its queue's quota (the charge).

It works from the pod spec, its RuntimeClass, the LimitRanges of its namespace and the resource settings, with exact
fractions that are rounded up once at the end. A negative request never earns credit, and no sum ever wraps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction

from admission.api.core import Container, LimitRange, PodSpec, ResourceRequirements, RuntimeClass
from admission.api.quantities import QuantityError
from admission.jobs.amounts import ZERO, Amounts, counted, exact, in_words, largest, total
from admission.jobs.limit_ranges import Needs, violation, with_defaults
from admission.settings import Resources, ResourceTransformation, TransformationStrategy

_SIDECAR = "Always"
_OVERCOMMITTED = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


@dataclass(frozen=True, slots=True)
class PodRequests:
    """One pod's `charge` to quota and what it takes of its `node`, cpu in milli-units, everything else in whole units.

    The node's `pods` are not in it.
    """

    charge: Mapping[str, int]
    node: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """The pods would be refused by the API server or cannot be understood; only an edit helps."""

    message: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What changes the requests of a pod besides its spec.

    `backed` are the extended resources that devices stand behind, with the resource of quota that each counts as. Pods
    that `are_admitted` were let in already: it does not matter what would be refused by now.
    """

    resources: Resources = field(default_factory=Resources)
    runtime_class: RuntimeClass | None = None
    limit_ranges: tuple[LimitRange, ...] = ()
    backed: Mapping[str, str] = field(default_factory=dict)
    are_admitted: bool = False


def pod_requests(spec: PodSpec, around: Surroundings) -> PodRequests | Misconfigured:
    """Requests of one pod, or why there can be no such pod."""
    try:
        own_init = tuple(_needs(container) for container in spec.init_containers)
        own_main = tuple(_needs(container) for container in spec.containers)
        pod_level = _pod_level(spec.resources, _effective(own_init, own_main, {}))
        init = tuple(with_defaults(needs, around.limit_ranges) for needs in own_init)
        main = tuple(with_defaults(needs, around.limit_ranges) for needs in own_main)
        overhead = exact(_overhead(spec, around.runtime_class))
        rules = [_Rule.of(transformation) for transformation in around.resources.transformations]
        problem = None if around.are_admitted else _refusal(init, main, pod_level, around)
    except QuantityError as error:
        return Misconfigured(f"the pod template has a request that is {error}")
    if problem is not None:
        return Misconfigured(problem)
    wanted = _floored(total((_effective(init, main, pod_level.requests), overhead)))
    charge = _transformed(_without_excluded(wanted, around.resources), rules)
    return PodRequests(
        charge=counted(_with_devices(charge, wanted, around.backed)),
        node=counted({name: amount for name, amount in wanted.items() if name not in around.backed}),
    )


def resource_names(spec: PodSpec) -> frozenset[str]:
    """The resources that the containers ask for by name."""
    return frozenset(
        name
        for container in (*spec.init_containers, *spec.containers)
        for amounts in (container.resources.requests, container.resources.limits)
        for name in amounts
    )


# ------------------------------------------------------------------ one container


def _needs(container: Container) -> Needs:
    """Limits become requests before LimitRanges give defaults: the API server's defaulting comes before its admission.

    So a container with limits only never gets a LimitRange's smaller default request.
    """
    limits = exact(container.resources.limits)
    requests = {**limits, **exact(container.resources.requests)}
    return Needs(container.name, requests, limits, sidecar=container.restart_policy == _SIDECAR)


def _refusal(init: tuple[Needs, ...], main: tuple[Needs, ...], pod_level: Needs, around: Surroundings) -> str | None:
    """Why the API server would not take the pods."""
    every = (*init, *main)
    return (
        _above_limit((*every, pod_level))
        or _above_pod_level(_effective(init, main, {}), pod_level)
        or _broken_devices(every, around.backed)
        or violation(every, _whole_pod(init, main, pod_level), around.limit_ranges)
    )


def _above_pod_level(of_containers: Amounts, pod_level: Needs) -> str | None:
    for resource, request in pod_level.requests.items():
        asked = of_containers.get(resource, ZERO)
        if asked > request:
            return f"the containers request more {resource} than the pod: {in_words(asked)}, pod {in_words(request)}"
    return None


def _broken_devices(every: Iterable[Needs], backed: Mapping[str, str]) -> str | None:
    for needs in every:
        for resource in backed:
            amount = needs.requests.get(resource, ZERO)
            if amount.denominator != 1:
                return f'container "{needs.name}" requests {in_words(amount)} of {resource}, which only comes whole'
    return None


def _above_limit(every: Iterable[Needs]) -> str | None:
    for needs in every:
        for resource, request in needs.requests.items():
            limit = needs.limits.get(resource)
            if limit is not None and request > limit:
                who = f'container "{needs.name}"' if needs.name else "the pod"
                return f"{who} requests more {resource} than its limit: {in_words(request)}, limit {in_words(limit)}"
    return None


# ------------------------------------------------------------------ the whole pod


def _effective(init: tuple[Needs, ...], main: tuple[Needs, ...], pod_level: Amounts) -> Amounts:
    """Requests of all containers by the order in which they run, each resource by itself.

    Sidecars go on running: an init container runs beside the sidecars that were started before it, the main containers
    beside all of them. Pod-level requests stand for the containers' altogether.
    """
    sidecars: Amounts = {}
    peaks: list[Amounts] = []
    for needs in init:
        requests = _floored(needs.requests)
        peaks.append(total((sidecars, requests)))
        if needs.sidecar:
            sidecars = total((sidecars, requests))
    running = total((sidecars, *(_floored(needs.requests) for needs in main)))
    return {**largest((running, *peaks)), **pod_level}


def _pod_level(resources: ResourceRequirements | None, of_containers: Amounts) -> Needs:
    """Pod-level needs. A limit without request counts as what the containers ask for, or as itself if that is nothing.

    The containers count as they are written, for LimitRanges come after this defaulting. Huge pages cannot be asked for
    below their limit, so there the limit counts in any case.
    """
    if resources is None:
        return Needs()
    limits = {name: amount for name, amount in exact(resources.limits).items() if _is_pod_level(name)}
    requests = {name: amount for name, amount in exact(resources.requests).items() if _is_pod_level(name)}
    for resource, limit in limits.items():
        requests.setdefault(resource, of_containers.get(resource, limit) if resource in _OVERCOMMITTED else limit)
    return Needs(requests=requests, limits=limits)


def _is_pod_level(resource: str) -> bool:
    return resource in _OVERCOMMITTED or resource.startswith(_HUGE_PAGES)


def _whole_pod(init: tuple[Needs, ...], main: tuple[Needs, ...], pod_level: Needs) -> Needs:
    """What LimitRanges of type Pod look at."""
    limits = _effective(
        tuple(replace(needs, requests=needs.limits) for needs in init),
        tuple(replace(needs, requests=needs.limits) for needs in main),
        pod_level.limits,
    )
    return Needs(requests=_effective(init, main, pod_level.requests), limits=limits)


def _overhead(spec: PodSpec, runtime_class: RuntimeClass | None) -> Mapping[str, str | int | float]:
    """The pod's own overhead, which the API server has put in already, else what its RuntimeClass will add."""
    if spec.overhead or runtime_class is None or runtime_class.overhead is None:
        return spec.overhead
    return runtime_class.overhead.pod_fixed


def _floored(amounts: Mapping[str, Fraction]) -> Amounts:
    return {resource: max(ZERO, amount) for resource, amount in amounts.items()}


# ------------------------------------------------------------------ from requests to the charge


def _without_excluded(wanted: Amounts, resources: Resources) -> Amounts:
    prefixes = resources.exclude_resource_prefixes
    return {name: amount for name, amount in wanted.items() if not name.startswith(prefixes)} if prefixes else wanted


@dataclass(frozen=True, slots=True)
class _Rule:
    input: str
    replaces: bool
    outputs: Amounts
    multiply_by: str

    @classmethod
    def of(cls, transformation: ResourceTransformation) -> _Rule:
        return cls(
            transformation.input,
            transformation.strategy is TransformationStrategy.REPLACE,
            exact(transformation.outputs),
            transformation.multiply_by,
        )


def _transformed(wanted: Amounts, rules: Iterable[_Rule]) -> Amounts:
    """Each rule turns its input, as requested, into its outputs; they add up, also with what is requested by name."""
    kept, made = dict(wanted), dict[str, Fraction]()
    for rule in rules:
        amount = wanted.get(rule.input)
        if amount is None:
            continue
        if rule.replaces:
            kept.pop(rule.input, None)
        if rule.multiply_by in wanted:
            amount *= wanted[rule.multiply_by]
        made = total((made, {output: amount * factor for output, factor in rule.outputs.items()}))
    return total((kept, _floored(made)))


def _with_devices(charge: Amounts, wanted: Amounts, backed: Mapping[str, str]) -> Amounts:
    """Extended resources that count as another one go over to it, whatever the rules make of their own name."""
    moved = {name: resource for name, resource in backed.items() if name in wanted and resource != name}
    rest = {name: amount for name, amount in charge.items() if name not in moved}
    return total((rest, *({resource: wanted[name]} for name, resource in moved.items())))
