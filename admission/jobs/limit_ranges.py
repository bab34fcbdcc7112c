"""What the LimitRanges of a namespace make of a pod's containers, and whether they would refuse the pod.

It works on the exact needs of the containers, after requests were taken over from limits, in the order in which the API
server does it. It never changes a pod: the API server does that when the pods are created; here it is foreseen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

from admission.api.core import LimitRange, LimitRangeItem
from admission.jobs.amounts import Amounts, exact, in_words


@dataclass(frozen=True, slots=True)
class Needs:
    """What one container (or a whole pod, with an empty name) requests and is limited to."""

    name: str = ""
    requests: Amounts = field(default_factory=dict)
    limits: Amounts = field(default_factory=dict)
    sidecar: bool = False


def with_defaults(needs: Needs, ranges: Iterable[LimitRange]) -> Needs:
    """The container's needs with the default limits and requests of the LimitRanges where it has none."""
    requests, limits = dict(needs.requests), dict(needs.limits)
    for item in _of_containers(ranges):
        for resource, amount in exact(item.default).items():
            limits.setdefault(resource, amount)
        for resource, amount in exact(item.default_request).items():
            requests.setdefault(resource, amount)
    return replace(needs, requests=requests, limits=limits)


def violation(containers: Iterable[Needs], pod: Needs, ranges: Iterable[LimitRange]) -> str | None:
    """Why a LimitRange would refuse the pod, naming the LimitRange; None when none would."""
    every = tuple(containers)
    for limit_range in ranges:
        name = limit_range.metadata.name
        for item in limit_range.spec.limits:
            match item.type:
                case "Container":
                    bounded = every
                case "Pod":
                    bounded = (pod,)
                case _:
                    continue
            for needs in bounded:
                for problem in _problems(item, needs):
                    return f'LimitRange "{name}" would refuse the pods: {problem}'
    return None


def _problems(item: LimitRangeItem, needs: Needs) -> Iterator[str]:
    who = f'container "{needs.name}"' if needs.name else "the pod"
    for resource, least in exact(item.min).items():
        request, limit = needs.requests.get(resource), needs.limits.get(resource)
        bound = f"the minimum of {resource} for a {item.type} is {in_words(least)}"
        if request is None or request < least:
            yield f"{bound}, but {who} requests {_or_none(request)}"
        elif limit is not None and limit < least:
            yield f"{bound}, but the limit of {who} is {in_words(limit)}"
    for resource, most in exact(item.max).items():
        request, limit = needs.requests.get(resource), needs.limits.get(resource)
        bound = f"the maximum of {resource} for a {item.type} is {in_words(most)}"
        if limit is None:
            yield f"{bound}, but {who} has no limit"
        elif limit > most:
            yield f"{bound}, but the limit of {who} is {in_words(limit)}"
        elif request is not None and request > most:
            yield f"{bound}, but {who} requests {in_words(request)}"
    for resource, ratio in exact(item.max_limit_request_ratio).items():
        yield from _ratio_problem(item.type, resource, ratio, needs, who)


def _ratio_problem(kind: str, resource: str, ratio: Fraction, needs: Needs, who: str) -> Iterator[str]:
    request, limit = needs.requests.get(resource), needs.limits.get(resource)
    bound = f"the limit of {resource} for a {kind} may be at most {in_words(ratio)} times the request"
    if not request or not limit:
        yield f"{bound}, but {who} does not have both"
    elif limit / request > ratio:
        yield f"{bound}, but {who} has {in_words(limit)} to {in_words(request)}"


def _or_none(amount: Fraction | None) -> str:
    return "none" if amount is None else in_words(amount)


def _of_containers(ranges: Iterable[LimitRange]) -> Iterator[LimitRangeItem]:
    for limit_range in ranges:
        for item in limit_range.spec.limits:
            if item.type == "Container":
                yield item
