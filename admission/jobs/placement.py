"""Which pod of a pod set goes to which of the domains that its topology assignment names.

Pods with an index go by rank, so that neighbours in the job are neighbours in the network; without usable indexes each
domain is filled up to its count. It must never send more pods to a domain than the assignment has for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, repeat

from admission.api import names
from admission.api.core import Pod, is_terminal
from admission.api.kueue import PodSet, TopologyAssignment
from admission.api.meta import whole_number
from admission.api.topology_assignment import Domain, decode

Selector = Mapping[str, str]


def place(
    pods: Iterable[Pod],
    placed: Iterable[Pod],
    assignment: TopologyAssignment,
    pod_set: PodSet,
    offset: int | None = None,
) -> dict[str, Selector]:
    """The node selector of the domain for each of `pods`, by uid; a pod for which there is no room gets none.

    `placed` are the pods of the pod set that were sent off before. Those that have ended make room: for the ones that
    replace them or come after them, and after a second start the assignment is for the others alone. `offset` is the
    index of the pod set's first pod, where its group says so (`group_offset`); else each pod may say it. Cost: pods and
    domains.
    """
    domains = decode(assignment)
    waiting, there = list(pods), [pod for pod in placed if not is_terminal(pod)]
    by_rank = _by_rank(waiting, there, domains, assignment.levels, pod_set, offset)
    return by_rank if by_rank is not None else _greedily(waiting, there, domains, assignment.levels)


def _selector(levels: tuple[str, ...], domain: Domain) -> dict[str, str]:
    return dict(zip(levels, domain.values, strict=False))


def _by_rank(
    waiting: list[Pod],
    there: list[Pod],
    domains: tuple[Domain, ...],
    levels: tuple[str, ...],
    pod_set: PodSet,
    offset: int | None,
) -> dict[str, Selector] | None:
    """None where a rank is missing, double or out of range, or a pod is somewhere else than its rank says."""
    request = pod_set.topology_request
    if request is None or not request.pod_index_label:
        return None
    seats = list(chain.from_iterable(repeat(domain, domain.count) for domain in domains))
    taken: set[int] = set()
    result: dict[str, Selector] = {}
    for pod in chain(there, waiting):
        rank = _rank(pod, pod_set, offset)
        if rank is None or not 0 <= rank < len(seats) or rank in taken:
            return None
        taken.add(rank)
        selector = _selector(levels, seats[rank])
        if any(pod.spec.node_selector.get(key, value) != value for key, value in selector.items()):
            return None
        result[pod.metadata.uid] = selector
    return {pod.metadata.uid: result[pod.metadata.uid] for pod in waiting}


def _rank(pod: Pod, pod_set: PodSet, offset: int | None) -> int | None:
    """The place of the pod in its pod set, from its index label, or annotation as older Job controllers have it."""
    request = pod_set.topology_request
    if request is None or request.pod_index_label is None:
        return None
    index = _number(pod, request.pod_index_label)
    if index is None:
        return None
    if request.sub_group_index_label is not None and request.sub_group_count:
        group = _number(pod, request.sub_group_index_label)
        if group is None:
            return None
        index += group * (pod_set.count // request.sub_group_count)
    if offset is not None:
        return index - offset
    own = whole_number(pod.metadata.annotations.get(names.POD_INDEX_OFFSET, "0"))
    return None if own is None else index - own


def group_offset(pod_set: PodSet, pod_sets: Iterable[PodSet]) -> int | None:
    """In a pod set group the larger pod set is numbered after the smaller one; None outside of groups."""
    group = _group(pod_set)
    if group is None:
        return None
    members = [each for each in pod_sets if _group(each) == group]
    smallest = min(members, key=lambda each: each.count)
    return 0 if pod_set.name == smallest.name else smallest.count


def _group(pod_set: PodSet) -> str | None:
    return None if pod_set.topology_request is None else pod_set.topology_request.pod_set_group_name


def _number(pod: Pod, key: str) -> int | None:
    return whole_number(pod.metadata.labels.get(key) or pod.metadata.annotations.get(key, ""))


def _greedily(
    waiting: list[Pod], there: list[Pod], domains: tuple[Domain, ...], levels: tuple[str, ...]
) -> dict[str, Selector]:
    left = {domain.values: domain.count for domain in domains}
    for pod in there:
        values = tuple(pod.spec.node_selector.get(level, "") for level in levels)
        if values in left:
            left[values] -= 1
    seats = chain.from_iterable(repeat(domain, max(0, left[domain.values])) for domain in domains)
    ordered = sorted(waiting, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.name))
    return {pod.metadata.uid: _selector(levels, domain) for pod, domain in zip(ordered, seats, strict=False)}
