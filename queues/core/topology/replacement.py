"""Decides where the pods of failed hosts go, so that all other pods stay where they are.

It works from the assignment, the request and the domains. The result keeps every other domain as it was, stays inside
the domain that the request requires, and rebuilds a slice where the rest of it runs. It never evicts anybody.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

import numpy as np

from queues.core.model import (
    FlavorName,
    PodSet,
    TopologyAssignment,
    TopologyDomain,
    TopologyName,
    TopologyRequest,
)
from queues.core.policy import TopologyRules
from queues.core.topology.capacity import Ints
from queues.core.topology.counts import NodeCounts
from queues.core.topology.domains import Domains
from queues.core.topology.placement import IMPLIED, NoPlacement, no_placement, wished
from queues.core.topology.search import Found, Shortfall, Wish, counted, searched
from queues.core.topology.tree import Path, Tree


@dataclass(frozen=True, slots=True)
class Lost:
    """Of this assignment the domains of some hosts have failed. `mates` is that of the other pod set of its group."""

    pod_set: PodSet
    assignment: TopologyAssignment
    hosts: AbstractSet[str]
    mates: TopologyAssignment | None = None

    @property
    def kept(self) -> tuple[TopologyDomain, ...]:
        return tuple([each for each in self.assignment.domains if each.values[-1] not in self.hosts])

    @property
    def count(self) -> int:
        return sum(each.count for each in self.assignment.domains if each.values[-1] in self.hosts)


def replaced(
    domains: Domains, flavor: FlavorName, topology: TopologyName, lost: Lost, rules: TopologyRules
) -> TopologyAssignment | NoPlacement:
    """The assignment with other hosts for the pods of the failed ones.

    Cost: that of a placement for each level from the nearest common domain of the healthy pods up.
    """
    name = lost.pod_set.name
    tree, room = domains.tree_of(flavor), domains.room_for(flavor, lost.pod_set)
    if tree is None or room is None or lost.assignment.levels != tree.key.assigned_levels:
        return NoPlacement(name, f'topology "{topology}" is another one than at the admission')
    paths: list[tuple[Path, int]] = []
    for each in lost.kept:
        leaf = tree.leaf_of.get(each.values)
        if leaf is None:
            return NoPlacement(name, f"node {each.values[-1]} of the assignment is not part of the topology any more")
        paths.append((tree.paths[-1][leaf], each.count))
    asked = wished(lost.pod_set.topology or IMPLIED, lost.count, tree.key.levels, rules, domains.packing_of(flavor))
    broken = _broken(lost.pod_set.topology or IMPLIED, tree, paths)
    if isinstance(broken, NoPlacement):
        return replace(broken, pod_set=name)
    if broken is not None:
        wish, within = broken
        wish = replace(wish, count=lost.count)
        places = iter((within,))
    elif isinstance(asked, str):
        return NoPlacement(name, asked)
    else:
        wish = asked
        healthy = [path for path, _ in paths] + _mates(tree, lost)
        required = _required(asked, healthy)
        places = iter((required,)) if required is not None else _nearest_first(asked, healthy)
    return _first_fit(tree, topology, lost, room, wish, places)


def _first_fit(
    tree: Tree,
    topology: TopologyName,
    lost: Lost,
    room: tuple[Ints, NodeCounts],
    wish: Wish,
    places: Iterable[Path],
) -> TopologyAssignment | NoPlacement:
    leaves, nodes = room
    usable = leaves.copy()
    for host in lost.hosts:
        dead = tree.leaf_of.get((host,))
        if dead is not None:
            usable[dead] = 0
    failure = Shortfall(0)
    for place in places:
        first, after = tree.leaves_in(place)
        within = np.zeros_like(usable)
        within[first:after] = usable[first:after]
        one = wish if not place else replace(wish, level=max(len(place) - 1, 0), required=True, can_go_up=False)
        one = replace(one, level=min(one.level, one.slice_level))
        result = searched(tree, counted(tree, within, one), one)
        if isinstance(result, Found):
            return _merged(tree, lost, result)
        failure = result
    return no_placement(lost.pod_set.name, topology, wish, failure, nodes)


def _merged(tree: Tree, lost: Lost, found: Found) -> TopologyAssignment:
    counts = {each.values: each.count for each in lost.kept}
    for leaf, pods in found.pods.items():
        values = tree.values(leaf)
        counts[values] = counts.get(values, 0) + pods
    ordered = sorted(counts, key=lambda values: tree.leaf_of[values])
    return replace(lost.assignment, domains=tuple([TopologyDomain(values, counts[values]) for values in ordered]))


def _required(wish: Wish, paths: Sequence[Path]) -> Path | None:
    """The domain that all pods have to stay in; None where there is no such, or nobody is left in it."""
    if not wish.required or not paths:
        return None
    return paths[0][: wish.level + 1]


def _nearest_first(wish: Wish, paths: Sequence[Path]) -> Iterator[Path]:
    """Without a requirement the nearest place is the best: where the healthy pods are, then around them."""
    if not paths or wish.required:
        yield ()
        return
    first, last = min(paths), max(paths)
    shared = 0
    while shared < len(first) and first[shared] == last[shared]:
        shared += 1
    for length in range(min(shared, wish.level + 1, wish.slice_level + 1), -1, -1):
        yield first[:length]


def _mates(tree: Tree, lost: Lost) -> list[Path]:
    if lost.mates is None:
        return []
    healthy = (each.values for each in lost.mates.domains if each.values[-1] not in lost.hosts)
    return [tree.paths[-1][leaf] for values in healthy if (leaf := tree.leaf_of.get(values)) is not None]


def _broken(
    request: TopologyRequest, tree: Tree, paths: Sequence[tuple[Path, int]]
) -> tuple[Wish, Path] | NoPlacement | None:
    """The domain where a slice of the innermost broken layer has to be rebuilt; None where whole slices are gone."""
    levels = tree.key.levels
    named = [(request.slice_required or levels[-1], request.slice_size or 1), *request.inner_slices]
    if any(layer not in levels for layer, _ in named):
        return NoPlacement("", "the topology lacks a level of the request")
    layers = [(levels.index(layer), size) for layer, size in named]
    for position in range(len(layers) - 1, -1, -1):
        level, size = layers[position]
        counts: dict[Path, int] = {}
        for path, count in paths:
            counts[path[: level + 1]] = counts.get(path[: level + 1], 0) + count
        broken = [path for path, count in counts.items() if count % size]
        if len(broken) > 1:
            return NoPlacement("", f"slices in several domains of level {levels[level]} are broken")
        if broken:
            below = layers[position + 1 :]
            slice_level, slice_size = below[0] if below else (len(levels) - 1, 1)
            return Wish(0, level, slice_level, slice_size, tuple(below[1:]), required=True), broken[0]
    return None
