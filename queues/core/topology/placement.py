"""Decides in which domains the pods of a workload go, or says that they fit nowhere and what stands in the way.

It works from `Domains` and the pod sets' topology requests, by Kueue's phases: count up, choose a level, descend
(`search`). It leaves the domains as they were: what it assumes for one pod set while it places the next is undone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise

from queues.core.model import (
    FlavorName,
    Packing,
    PodSet,
    ResourceName,
    TopologyAssignment,
    TopologyDomain,
    TopologyName,
    TopologyRequest,
)
from queues.core.policy import TopologyRules
from queues.core.topology.counts import NodeCounts
from queues.core.topology.domains import Domains
from queues.core.topology.kept import KeptDomain, leaves_kept
from queues.core.topology.search import Algorithm, Found, Shortfall, Wish, counted, searched
from queues.core.topology.tree import Tree

#: A pod set without a topology request in a queue that has only flavors with a topology.
IMPLIED = TopologyRequest(unconstrained=True)

_RULES = TopologyRules()


@dataclass(frozen=True, slots=True)
class NoPlacement:
    """`pod_set` has no place: `fits` of the `wanted` units (pods, or slices of them) would have one.

    `excluded` counts the nodes that take not even one pod, by cause, out of `nodes`.
    """

    pod_set: str
    message: str
    fits: int = 0
    wanted: int = 0
    nodes: int = 0
    excluded: Mapping[str, int] | None = None


Placement = dict[str, TopologyAssignment]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Pods that are placed together, `count` of the shape `like`: one pod set, or those of a pod set group.

    `leader` is the pod of a group that goes into the same domain besides.
    """

    like: PodSet
    counts: tuple[tuple[PodSet, int], ...]
    leader: PodSet | None = None

    @property
    def count(self) -> int:
        return sum(count for pod_set, count in self.counts if pod_set is not self.leader)


def place(
    domains: Domains,
    flavor: FlavorName,
    topology: TopologyName,
    pod_sets: Sequence[PodSet],
    counts: Mapping[str, int],
    *,
    simulate_empty: bool = False,
    rules: TopologyRules = _RULES,
    kept: Sequence[KeptDomain] = (),
) -> Placement | NoPlacement:
    """Find a place for `counts[name]` pods of each pod set on this flavor, all of them or none.

    Later pod sets see what earlier ones take. With `simulate_empty` nothing counts that workloads hold by assignments,
    only what the pod sets themselves take. Nothing goes into domains that are `kept` for others. A count of zero needs
    no place. Cost: a few passes over the flavor's nodes for a shape that is new, else over what changed, and one sort
    of a level's domains.
    """
    found: Placement = {}
    with assuming(domains) as assume:
        units = list(_units(domains, flavor, pod_sets, counts))
        for position, unit in enumerate(units, 1):
            result = _place_unit(domains, flavor, topology, unit, rules, kept, simulate_empty=simulate_empty)
            if isinstance(result, NoPlacement):
                return result
            found.update(result)
            if position < len(units):
                for pod_set, _ in unit.counts:
                    assume(flavor, result[pod_set.name], pod_set.node_requests)
    return found


def still_fits(
    domains: Domains, flavor: FlavorName, pod_sets: Sequence[PodSet], assignments: Mapping[str, TopologyAssignment]
) -> bool:
    """Whether these assignments, found before, could still be taken. Cost: their domains, and what changed since."""
    with assuming(domains) as assume:
        for pod_set in pod_sets:
            assignment = assignments.get(pod_set.name)
            if assignment is None:
                continue
            tree, room = domains.tree_of(flavor), domains.room_for(flavor, pod_set)
            if tree is None or room is None or assignment.levels != tree.key.assigned_levels:
                return False
            for domain in assignment.domains:
                leaf = tree.leaf_of.get(domain.values)
                if leaf is None or room[0][leaf] < domain.count:
                    return False
            assume(flavor, assignment, pod_set.node_requests)
    return True


@contextmanager
def assuming(
    domains: Domains,
) -> Iterator[Callable[[FlavorName, TopologyAssignment, Mapping[ResourceName, int]], None]]:
    """Gives a function that charges an assignment until the block ends.

    For flavors of one workload that lie over the same nodes: each has to see what the others are about to take.
    """
    assumed: list[tuple[FlavorName, TopologyAssignment, Mapping[ResourceName, int]]] = []

    def assume(flavor: FlavorName, assignment: TopologyAssignment, node_requests: Mapping[ResourceName, int]) -> None:
        domains.assume(flavor, assignment, node_requests)
        assumed.append((flavor, assignment, node_requests))

    try:
        yield assume
    finally:
        for flavor, assignment, node_requests in reversed(assumed):
            domains.retract(flavor, assignment, node_requests)


def _place_unit(
    domains: Domains,
    flavor: FlavorName,
    topology: TopologyName,
    unit: _Unit,
    rules: TopologyRules,
    kept: Sequence[KeptDomain],
    *,
    simulate_empty: bool,
) -> Placement | NoPlacement:
    name = unit.counts[0][0].name
    tree, room = domains.tree_of(flavor), domains.room_for(flavor, unit.like, simulate_empty=simulate_empty)
    if tree is None or room is None:
        return NoPlacement(name, f'topology "{topology}" not found')
    packing = domains.packing_of(flavor)
    wish = wished(unit.like.topology or IMPLIED, unit.count, tree.key.levels, rules, packing)
    if isinstance(wish, str):
        return NoPlacement(name, wish)
    leaves, nodes = room
    led = None
    if unit.leader is not None:
        led = domains.room_beside(flavor, unit.like, unit.leader, simulate_empty=simulate_empty)
    closed = leaves_kept(tree, kept)
    if len(closed):
        leaves = leaves.copy()
        leaves[closed] = 0
        if led is not None:
            led[closed] = -1
    scores = domains.scores_of(flavor, unit.like, nodes) if rules.respects_preferences else None
    if packing is Packing.FRAGMENTATION_AWARE and led is None and scores is None:
        host = domains.least_harmful(flavor, unit.like, unit.count, leaves, simulate_empty=simulate_empty)
        if host is not None:
            return _assignments(tree, unit, Found({host: unit.count}))
    known = nodes.sums if leaves is nodes.pods else None
    found = searched(tree, counted(tree, leaves, wish, led, scores, known=known), wish)
    if isinstance(found, Shortfall):
        failure = no_placement(name, topology, wish, found, nodes)
        if not len(closed):
            return failure
        return replace(failure, message=f"{failure.message}; kept for others: {len(closed)} host(s)")
    return _assignments(tree, unit, found)


def wished(
    request: TopologyRequest,
    count: int,
    levels: tuple[str, ...],
    rules: TopologyRules = _RULES,
    packing: Packing = Packing.PACK,
) -> Wish | str:
    """The request in terms of this topology's levels, or why it cannot be asked of it."""
    asked = request.required or request.preferred
    layers = request.inner_slices
    for key in (asked, request.slice_required, *[layer for layer, _ in layers]):
        if key is not None and key not in levels:
            return f"no requested topology level: {key}"
    lowest = len(levels) - 1
    slice_level = lowest if request.slice_required is None else levels.index(request.slice_required)
    slice_size = request.slice_size or 1
    if count % slice_size:
        return f"{count} pod(s) cannot be divided into slices of {slice_size}"
    inner = tuple([(levels.index(layer), size) for layer, size in layers])
    problem = _misnested(((slice_level, slice_size), *inner), levels)
    if problem is not None:
        return problem
    has_slices = request.slice_required is not None or request.slice_size is not None
    algorithm = Algorithm.SPREAD if packing is Packing.SPREAD else Algorithm.BEST_FIT
    if asked is None:
        if algorithm is Algorithm.BEST_FIT and rules.mixes_profiles:
            algorithm = Algorithm.LEAST_FREE_CAPACITY
        return Wish(count, 0 if has_slices else lowest, slice_level, slice_size, inner, algorithm=algorithm)
    level = levels.index(asked)
    if slice_level < level:
        return f"slices within {levels[slice_level]} cannot be kept inside the lower level {asked}"
    required = request.required is not None
    return Wish(
        count,
        level,
        slice_level,
        slice_size,
        inner,
        required=required,
        can_go_up=not required,
        is_balanced=rules.is_balanced and not required,
        algorithm=algorithm,
    )


def _misnested(layers: Iterable[tuple[int, int]], levels: tuple[str, ...]) -> str | None:
    for (outer_level, outer_size), (level, size) in pairwise(layers):
        if level <= outer_level:
            return f"slices within {levels[level]} cannot be part of slices within {levels[outer_level]}"
        if size < 1 or outer_size % size:
            return f"slices of {outer_size} pod(s) cannot be divided into slices of {size}"
    return None


def _assignments(tree: Tree, unit: _Unit, found: Found) -> Placement:
    """Share the chosen domains out, the smallest pod set first; the leader has its own."""
    if len(unit.counts) == 1:
        names = tree.names
        chosen_alone = tuple([TopologyDomain(names[leaf], pods) for leaf, pods in found.pods.items()])
        return {unit.counts[0][0].name: TopologyAssignment(tree.key.assigned_levels, chosen_alone)}
    left = dict(found.pods)
    result: Placement = {}
    for pod_set, count in sorted(unit.counts, key=lambda item: item[1]):
        chosen: list[TopologyDomain] = []
        if pod_set is unit.leader and found.leader is not None:
            chosen.append(TopologyDomain(tree.values(found.leader), count))
            count = 0  # noqa: PLW2901
        for leaf, available in left.items():
            taken = min(count, available)
            if taken:
                chosen.append(TopologyDomain(tree.values(leaf), taken))
                left[leaf] -= taken
                count -= taken  # noqa: PLW2901
        result[pod_set.name] = TopologyAssignment(tree.key.assigned_levels, tuple(chosen))
    return result


def no_placement(name: str, topology: TopologyName, wish: Wish, shortfall: Shortfall, nodes: NodeCounts) -> NoPlacement:
    unit = "pod(s)" if wish.slice_size == 1 else "slice(s)"
    message = f'topology "{topology}" ' + (
        f"allows to fit only {shortfall.slices} out of {wish.slices} {unit}"
        if shortfall.slices
        else f"doesn't allow to fit any of {wish.slices} {unit}"
    )
    excluded = nodes.excluded()
    message += f". Total nodes: {len(nodes.pods)}"
    if excluded:
        message += "; excluded: " + ", ".join(f"{cause}: {count}" for cause, count in sorted(excluded.items()))
    return NoPlacement(name, message, shortfall.slices, wish.slices, len(nodes.pods), excluded)


def _units(
    domains: Domains, flavor: FlavorName, pod_sets: Iterable[PodSet], counts: Mapping[str, int]
) -> Iterator[_Unit]:
    """Pod sets of a group together, in the order of first appearance."""
    grouped: dict[tuple[str, str], list[tuple[PodSet, int]]] = {}
    for pod_set in pod_sets:
        count = counts.get(pod_set.name, pod_set.count)
        if count > 0:
            group = pod_set.topology.pod_set_group if pod_set.topology is not None else None
            key = ("pod set", pod_set.name) if group is None else ("group", group)
            grouped.setdefault(key, []).append((pod_set, count))
    tree = domains.tree_of(flavor)
    for members in grouped.values():
        smallest = min(members, key=lambda member: member[1])
        if len(members) == 2 and smallest[1] == 1 and tree is not None and tree.key.ends_at_host:
            (workers,) = (pod_set for pod_set, _ in members if pod_set is not smallest[0])
            yield _Unit(workers, tuple(members), smallest[0])
        else:
            yield _Unit(_like_all([pod_set for pod_set, _ in members]), tuple(members))


def _like_all(pod_sets: Sequence[PodSet]) -> PodSet:
    """A pod set whose pods take as much as any of these and go only where all of them may.

    A group has to share a domain. Where the lowest one is not a host, nothing says which of its nodes the leader gets;
    placing the group as equal pods of the larger shape never promises too much.
    """
    like, *others = pod_sets
    for other in others:
        like = replace(
            like,
            node_requests={
                resource: max(like.node_requests.get(resource, 0), other.node_requests.get(resource, 0))
                for resource in (*like.node_requests, *other.node_requests)
            },
            node_selector=(*like.node_selector, *other.node_selector),
            affinity=tuple((*one, *two) for one in like.affinity for two in other.affinity)
            or like.affinity
            or other.affinity,
            tolerations=tuple(toleration for toleration in like.tolerations if toleration in other.tolerations),
        )
    return like
