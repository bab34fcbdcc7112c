"""What a workload asks for and what it holds, in the terms of quota.

It works from pod sets and from the admission that the workload holds. It never looks at queues or at what is free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from queues.core.model import (
    HOSTNAME_LABEL,
    Admission,
    FlavorName,
    FlavorResource,
    PodSet,
    PodSetAssignment,
    ResourceName,
    Timestamp,
    TopologyAssignment,
    Workload,
)

#: Equal units are one object wherever they are charged: that makes looking them up cheaper, as well as making them.
_unit: Final = lru_cache(maxsize=4096)(FlavorResource)

#: Everything about a workload that decides whether it fits: workloads of one shape in one queue fit or fail alike.
Shape = tuple[object, ...]


def count_of(pod_set: PodSet) -> int:
    """The pods that still need room: those that have ended successfully gave theirs back."""
    reclaimable = pod_set.reclaimable
    return max(0, pod_set.count - reclaimable) if reclaimable else pod_set.count


def counts_of(workload: Workload) -> tuple[int, ...]:
    return tuple([count_of(pod_set) for pod_set in workload.pod_sets])


def shape_of(workload: Workload) -> Shape:
    return (workload.priority, workload.preemption_gates, *[_pod_set_shape(pod_set) for pod_set in workload.pod_sets])


def _pod_set_shape(pod_set: PodSet) -> Shape:
    return (
        pod_set.name,
        count_of(pod_set),
        pod_set.min_count,
        _in_order(pod_set.requests),
        _in_order(pod_set.node_requests),
        _in_order(pod_set.shared),
        pod_set.node_selector,
        pod_set.affinity,
        pod_set.tolerations,
        pod_set.topology,
    )


def _in_order(amounts: Mapping[ResourceName, int]) -> tuple[tuple[ResourceName, int], ...]:
    return tuple(sorted(amounts.items()) if len(amounts) > 1 else amounts.items())


def rank_of(workload: Workload) -> tuple[int, Timestamp]:
    """What decides who may evict it."""
    return (workload.priority, workload.queued_at)


def keeps_its_place(old: Workload, new: Workload) -> bool:
    """Whether a waiting workload keeps its place, since nothing that decides it changed."""
    return (
        old.queue == new.queue
        and old.priority == new.priority
        and old.queued_at == new.queued_at
        and old.eligible_at == new.eligible_at
        and old.held == new.held
        and old.misconfigured == new.misconfigured
        and old.preemption_gates == new.preemption_gates
        and old.pod_sets == new.pod_sets
    )


def charges_of(workload: Workload, admission: Admission) -> dict[FlavorResource, int]:
    """What an admission is charged, per flavor and resource.

    The usage written at admission is for the pods admitted then; it shrinks once fewer than these are left to run. What
    they share stays until the last of the workload is gone, for another pod set may use it too.
    """
    pod_sets = {pod_set.name: pod_set for pod_set in workload.pod_sets}
    charges: dict[FlavorResource, int] = {}
    for assignment in admission.pod_sets:
        pod_set, flavors = pod_sets.get(assignment.name), assignment.flavors
        count = assignment.count if pod_set is None else count_of(pod_set)
        for resource, amount in assignment.usage.items():
            flavor = flavors.get(resource)
            if flavor is None:
                continue
            charged = amount
            if pod_set is not None and count < assignment.count:
                together = min(amount, pod_set.shared.get(resource, 0))
                charged = (amount - together) // assignment.count * count + together
            if charged:
                unit = _unit(flavor, resource)
                charges[unit] = charges.get(unit, 0) + charged
    return charges


def flavors_of(assignments: tuple[PodSetAssignment, ...]) -> frozenset[FlavorName]:
    return frozenset([flavor for assignment in assignments for flavor in assignment.flavors.values()])


class Placed(NamedTuple):
    """A topology assignment of a pod set, with its flavors and what one of its pods takes of a node."""

    flavors: tuple[FlavorName, ...]
    assignment: TopologyAssignment
    node_requests: Mapping[ResourceName, int]


def on_hosts(placed: Iterable[Placed]) -> Iterator[tuple[str, int, Mapping[ResourceName, int]]]:
    """The hosts on which these assignments have pods, how many, and what one of them takes there."""
    for one in placed:
        if one.assignment.levels[-1:] == (HOSTNAME_LABEL,):
            for domain in one.assignment.domains:
                if domain.count:
                    yield domain.values[-1], domain.count, one.node_requests


def placed_of(pod_sets: tuple[PodSet, ...], assignments: tuple[PodSetAssignment, ...]) -> tuple[Placed, ...]:
    """What pod set assignments take of nodes."""
    placed = [(one, one.topology) for one in assignments if one.topology is not None]
    if not placed:
        return ()
    requests = {pod_set.name: pod_set.node_requests for pod_set in pod_sets}
    return tuple(
        [
            Placed(tuple(sorted(set(one.flavors.values()))), topology, requests.get(one.name, {}))
            for one, topology in placed
        ]
    )
