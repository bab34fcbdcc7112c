"""The policies of flavors, written for obviousness: pod by pod, place by place, no arrays and no memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from queues.core.model import HOSTNAME_LABEL, Node, PodSet, Size, TopologyRequest
from tests.oracle.placement import at_depth, build, count, free_pods, usable


def spread(levels: tuple[str, ...], nodes: list[Node], pod_set: PodSet, wanted: int):
    """The domains with their pods, or how many slices would have fitted."""
    request = pod_set.topology or TopologyRequest(unconstrained=True)
    size = request.slice_size or 1
    lowest = len(levels) - 1
    slice_level = lowest if request.slice_required is None else levels.index(request.slice_required)
    asked = request.required or request.preferred
    level = 0 if asked is None else levels.index(asked)
    root = build(levels, nodes, pod_set, {})
    count(root, -1, slice_level, size)
    need = wanted // size

    def ordered(places):
        return sorted(places, key=lambda place: place.path)

    while True:
        here = ordered(at_depth(root, level + 1))
        roomiest = max(here, key=lambda place: place.slices, default=None)
        if asked is not None and roomiest is not None and roomiest.slices >= need:
            roomiest.chosen = need
            break
        if request.required is not None:
            return max((place.slices for place in here), default=0)
        if level == 0 or asked is None:
            if sum(place.slices for place in here) < need:
                return sum(place.slices for place in here)
            one_by_one(here, need, lambda place: place.slices)
            break
        level -= 1
    for depth in range(level, lowest):
        below_slices = depth + 1 > slice_level
        for place in at_depth(root, depth + 1):
            share = place.chosen * size if depth == slice_level and below_slices else place.chosen
            if share:
                room = (lambda child: child.pods) if below_slices else (lambda child: child.slices)
                one_by_one(ordered(place.children), share, room)
    factor = size if slice_level == lowest else 1
    hosts = [(place.path, place.chosen * factor) for place in ordered(at_depth(root, lowest + 1)) if place.chosen]
    return tuple((path[-1:] if levels[-1] == HOSTNAME_LABEL else path, pods) for path, pods in hosts)


def one_by_one(places, need, room) -> None:
    for _ in range(need):
        able = [place for place in places if place.chosen < room(place)]
        min(able, key=lambda place: (place.chosen, -room(place))).chosen += 1


def least_harmful(levels: tuple[str, ...], nodes: list[Node], pod_set: PodSet, sizes: Sequence[tuple[Size, int]]):
    """The host for all of these pods, or None where none takes them."""
    inside = [node for node in nodes if all(level in node.labels for level in levels)]
    inside.sort(key=lambda node: tuple(node.labels[level] for level in levels))
    able = [node for node in inside if usable(node, pod_set) and free_pods(node, pod_set, {}) >= pod_set.count]
    if not able:
        return None
    comes = sum(weight for _, weight in sizes)
    taken = {resource: amount * pod_set.count for resource, amount in {**pod_set.node_requests, "pods": 1}.items()}

    def harm(node: Node) -> int:
        total = 0
        for size, weight in sizes:
            before, after = (places(levels, inside, size, used) for used in ({}, {node.name: taken}))
            whole = sum(parts // 64 for parts in before.values())
            price = weight * 2**50 // comes // 64 // max(1, whole)
            total += (sum(before.values()) - sum(after.values())) * price
        return total

    return min(able, key=lambda node: (harm(node), free_pods(node, pod_set, {}))).labels[HOSTNAME_LABEL]


def places(levels: tuple[str, ...], nodes: list[Node], size: Size, used: Mapping[str, Mapping[str, int]]):
    """The places of the size in each domain of its level, or on each node, in parts; less than a whole one is none."""
    like = PodSet(
        "",
        1,
        {},
        {name: amount for name, amount in size.requests if name != "pods"},
        node_selector=size.node_selector,
        tolerations=size.tolerations,
    )
    found: dict[tuple[str, ...], int] = {}
    if size.pods == 1:
        for node in nodes:
            taken = used.get(node.name, {})
            parts = min(
                64 * (node.allocatable.get(name, 0) - taken.get(name, 0)) // amount for name, amount in size.requests
            )
            found[(node.name,)] = parts if parts >= 64 and usable(node, like) else 0
        return found
    depth = levels.index(size.level) + 1
    for node in nodes:
        path = tuple(node.labels[level] for level in levels[:depth])
        fits = free_pods(node, like, used.get(node.name, {})) if usable(node, like) else 0
        found[path] = found.get(path, 0) + fits
    return {path: 64 * fits // size.pods if fits >= size.pods else 0 for path, fits in found.items()}


def fit_on_devices(amounts: Sequence[int], devices: int, part: int) -> bool:
    """Whether all have a place at once: one device each, or several whole ones. By trying everything."""

    def fits(left: list[int], free: tuple[int, ...]) -> bool:
        if not left:
            return True
        amount, *rest = left
        if amount > part:
            whole = [device for device, room in enumerate(free) if room == part]
            wanted = -(-amount // part)
            emptied = tuple(0 if device in whole[:wanted] else room for device, room in enumerate(free))
            return len(whole) >= wanted and fits(rest, emptied)
        return any(
            fits(rest, (*free[:device], room - amount, *free[device + 1 :]))
            for device, room in enumerate(free)
            if room >= amount and room not in free[:device]
        )

    return fits(sorted(amounts, reverse=True), (part,) * devices)
