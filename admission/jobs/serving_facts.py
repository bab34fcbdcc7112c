"""The pods of a gang that serves, as observed: each in the pod set that its owner made it for, unless it asks for more.

It decides from the pods, the owner's templates and the Workload. Pods are told apart by what they were made for and not
by their shape, since others may put containers into them; devices, of which quota is dear, are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import msgspec

from admission.api.core import LimitRange, Pod, PodSpec, PodTemplateSpec
from admission.api.decoding import convert
from admission.api.kueue import PodSet, Workload
from admission.jobs import pod_states
from admission.jobs.group_facts import GroupFacts
from admission.jobs.interface import Context
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests

#: An extended resource, or a claim and a claim template of which one is named.
Device = str | tuple[str, str]

_NO_PODS: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ServingFacts(GroupFacts):
    """A group whose pods have their pod sets from what they are, and not from their shape. `unfit`: by uid."""

    pod_set_by_uid: Mapping[str, str] = field(default_factory=dict)
    unfit: frozenset[str] = _NO_PODS

    @cached_property
    def is_serving(self) -> bool:
        return True

    @cached_property
    def is_fast(self) -> bool:
        """Pods may come one after the other, each only when the one before it runs."""
        return True

    @cached_property
    def outsiders(self) -> tuple[Pod, ...]:
        known = set() if self.workload is None else {pod_set.name for pod_set in self.workload.spec.pod_sets}
        return tuple(
            pod
            for pod in self.pods
            if not pod_states.runs(pod)
            and (pod.metadata.uid in self.unfit or (bool(known) and self.pod_set_of(pod) not in known))
        )

    @cached_property
    def needs_replacements(self) -> bool:
        """Its owner makes them."""
        return False

    def pod_set_of(self, pod: Pod) -> str:
        return self.pod_set_by_uid.get(pod.metadata.uid, "")


def facts_of(
    pods: Iterable[Pod],
    pod_sets: tuple[PodSet, ...],
    workload: Workload | None,
    place_of: Mapping[str, str],
    context: Context,
) -> ServingFacts:
    """`pod_sets` are what the owner wants, `place_of` the pod set of each pod, by uid."""
    mine = tuple(sorted(pods, key=pod_states.by_age))
    ranges = tuple(context.limit_ranges(mine[0].metadata.namespace)) if mine else ()
    limits = {pod_set.name: _devices_of(pod_set, ranges) for pod_set in pod_sets}
    only = next(iter(limits.values())) if len(limits) == 1 else None
    unfit = frozenset(
        pod.metadata.uid
        for pod in mine
        if pod_states.is_waiting(pod) and _asks_for_more(pod, limits.get(place_of.get(pod.metadata.uid, ""), only))
    )
    return ServingFacts(mine, workload, context.now, pod_set_by_uid=place_of, unfit=unfit)


def _devices_of(pod_set: PodSet, ranges: tuple[LimitRange, ...]) -> Counter[Device] | None:
    """What a pod of the template takes; None where that cannot be told."""
    try:
        spec = convert(pod_set.template, PodTemplateSpec).spec
    except msgspec.ValidationError:
        return None
    requests = pod_requests(spec, Surroundings(limit_ranges=ranges, are_admitted=True))
    return None if isinstance(requests, Misconfigured) else _devices(requests.node, spec)


def _asks_for_more(pod: Pod, most: Counter[Device] | None) -> bool:
    """Whether it asks for more devices than its template: what others put into a pod are containers without any."""
    if most is None:
        return False
    requests = pod_requests(pod.spec, Surroundings(are_admitted=True))
    if isinstance(requests, Misconfigured):
        return True
    return bool(_devices(requests.node, pod.spec) - most)


def _devices(amounts: Mapping[str, int], spec: PodSpec) -> Counter[Device]:
    """How much of each extended resource, and how often it names each claim or claim template."""
    extended = Counter[Device]({name: amount for name, amount in amounts.items() if "/" in name})
    extended.update((claim.resource_claim_name, claim.resource_claim_template_name) for claim in spec.resource_claims)
    return extended
