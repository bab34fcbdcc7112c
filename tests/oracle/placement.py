"""Placement of one pod set, written for obviousness: plain objects, recursion and sorting, no arrays and no memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from queues.core.model import HOSTNAME_LABEL, Node, PodSet, TopologyRequest

HARD = {"NoSchedule", "NoExecute"}


@dataclass
class Place:
    path: tuple[str, ...]
    children: list[Place] = field(default_factory=list)
    pods: int = 0
    slices: int = 0
    chosen: int = 0


def free_pods(node: Node, pod_set: PodSet, used: Mapping[str, int]) -> int:
    requests = {**pod_set.node_requests, "pods": 1}
    fits = [(node.allocatable.get(r, 0) - used.get(r, 0)) // v for r, v in requests.items() if v > 0]
    return max(0, min(fits))


def usable(node: Node, pod_set: PodSet, tolerations: tuple = ()) -> bool:
    def tolerated(taint):
        return any(
            t.effect in ("", taint.effect)
            and ((t.key == "" and t.operator == "Exists") or t.key == taint.key)
            and (t.operator == "Exists" or t.value == taint.value)
            for t in (*pod_set.tolerations, *tolerations)
        )

    return (
        node.ready
        and not node.unschedulable
        and all(taint.effect not in HARD or tolerated(taint) for taint in node.taints)
        and all(node.labels.get(k) == v for k, v in pod_set.node_selector)
    )


def build(levels: tuple[str, ...], nodes: list[Node], pod_set: PodSet, used: Mapping[str, Mapping[str, int]]) -> Place:
    root = Place(())
    for node in nodes:
        if not all(level in node.labels for level in levels):
            continue
        here = root
        for depth in range(len(levels)):
            path = tuple(node.labels[level] for level in levels[: depth + 1])
            found = [child for child in here.children if child.path == path]
            here_next = found[0] if found else Place(path)
            if not found:
                here.children.append(here_next)
            here = here_next
        if usable(node, pod_set):
            here.pods += free_pods(node, pod_set, used.get(node.name, {}))
    return root


def at_depth(place: Place, depth: int) -> list[Place]:
    if depth == 0:
        return [place]
    return [found for child in place.children for found in at_depth(child, depth - 1)]


def count(place: Place, depth: int, slice_depth: int, size: int) -> None:
    for child in place.children:
        count(child, depth + 1, slice_depth, size)
    if place.children:
        place.pods = sum(child.pods for child in place.children)
    if depth > slice_depth:
        place.slices = place.pods
    elif depth == slice_depth:
        place.slices = place.pods // size
    else:
        place.slices = sum(child.slices for child in place.children)


def ordered(places: list[Place], smallest_first: bool) -> list[Place]:
    return sorted(places, key=lambda p: (p.slices if smallest_first else -p.slices, p.pods, p.path))


def tightest(places: list[Place], need: int) -> Place:
    return min((p for p in places if p.slices >= need), key=lambda p: (p.slices, p.pods, p.path))


def fill(places: list[Place], need: int, smallest_first: bool) -> list[Place]:
    rest = [p for p in ordered(places, smallest_first) if p.slices > 0]
    chosen = []
    while need > 0:
        place = rest[0]
        if place.slices >= need:
            place = tightest(rest, need)
        rest.remove(place)
        place.chosen = min(place.slices, need)
        need -= place.chosen
        chosen.append(place)
    return chosen


def place(levels: tuple[str, ...], nodes: list[Node], pod_set: PodSet, pods: int, used=None):
    """Tuples (values, count) in order, or the number of slices (pods) that would have fitted at most."""
    request = pod_set.topology or TopologyRequest(unconstrained=True)
    size = request.slice_size or 1
    slice_depth = 1 + levels.index(request.slice_required) if request.slice_required else len(levels)
    key = request.required or request.preferred
    slices_only = key is None and (request.slice_required or request.slice_size)
    depth = 1 + levels.index(key) if key else 1 if slices_only else len(levels)
    smallest_first = key is None
    root = build(levels, nodes, pod_set, used or {})
    count(root, 0, slice_depth, size)
    need = pods // size

    # Phase 2a: choose the level.
    while True:
        places = at_depth(root, depth)
        if any(p.slices >= need for p in places):
            chosen = [tightest(places, need)]
            chosen[0].chosen = need
            break
        if request.required:
            return max((p.slices for p in places), default=0)
        if request.preferred and depth > 1:
            depth -= 1
            continue
        if sum(p.slices for p in places) < need:
            return sum(p.slices for p in places)
        chosen = fill(places, need, smallest_first)
        break

    # Phase 2b: descend.
    while depth < slice_depth:
        chosen = fill([child for p in chosen for child in p.children], need, smallest_first)
        depth += 1
    for p in chosen:
        p.chosen *= size
    while depth < len(levels):
        chosen = [child for p in chosen for child in fill(p.children, p.chosen, smallest_first)]
        depth += 1
    chosen.sort(key=lambda p: p.path)
    ends_at_host = levels[-1] == HOSTNAME_LABEL
    return tuple((p.path[-1:] if ends_at_host else p.path, p.chosen) for p in chosen)
