"""Domains of a topology: what there is of one resource, what is free, and which domains come closest to fit a workload.

Counted from the nodes' rows; a host that takes no pods has nothing free. Taints and affinity are not known here, so the
queues, which know them, may find less. It must never decide who sees the answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection

from queues.inspection.quantities import is_device
from queues.journal import surroundings
from queues.journal.entries import FlavorRow, NodeRow, NodeState, PodSetRow

Json = dict[str, Any]
Path = tuple[str, ...]

HOSTNAME = "kubernetes.io/hostname"
#: How many of the closest domains are named.
CLOSEST = 5
#: Pods of a shape that takes nothing would fit without end.
MOST_PODS = 1_000_000


@dataclass(slots=True)
class Domain:
    """Amounts are of one resource: what there is, is held, is free, and is of no use as its host takes no pods.

    `fits` is what was asked for: pods of some shape.
    """

    path: Path
    capacity: int = 0
    used: int = 0
    free: int = 0
    shut: int = 0
    whole_free: int = 0
    hosts: int = 0
    closed: int = 0
    fits: int = 0
    children: dict[str, Domain] = field(default_factory=dict)
    nodes: list[NodeRow] = field(default_factory=list)

    def hold(self, amount: int) -> None:
        """So much is held here, on hosts that nobody knows: empty ones are the last to be counted on."""
        taken = min(amount, self.free)
        self.used += taken
        self.free -= taken
        self.whole_free = min(self.whole_free, self.free)

    def add(self, node: NodeRow, resource: str, fits: int = 0) -> None:
        capacity = node.capacity.get(resource, 0)
        is_open = node.state is NodeState.READY
        left = free_of(node, resource)
        self.capacity += capacity
        self.used += capacity - left
        if is_open:
            self.free += left
            self.whole_free += left if left == capacity else 0
        else:
            self.shut += left
        self.hosts += 1
        self.closed += not is_open
        self.fits += fits if is_open else 0


def free_of(node: NodeRow, resource: str) -> int:
    """Between nothing and all of it: a row may say less than nothing."""
    return min(node.capacity.get(resource, 0), max(0, node.free.get(resource, 0)))


def is_member(flavor: FlavorRow, node: NodeRow) -> bool:
    """Whether the node has the flavor's labels, and every label of its topology's levels."""
    labels = node.labels
    return all(labels.get(key) == value for key, value in flavor.node_labels.items()) and all(
        level in labels for level in flavor.levels
    )


def fragmentation(domain: Domain) -> float | None:
    """The part of what is free that lies on hosts where something is held; None where nothing is free.

    No pod that wants a whole host can use it.
    """
    return None if not domain.free else round(1 - domain.whole_free / domain.free, 4)


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Numbers in names by their value: rack-2 before rack-10."""
    parts: list[tuple[int, int, str]] = []
    digits = ""
    for character in [*name, ""]:
        if character and character in "0123456789":
            digits += character
            continue
        if digits:
            parts.append((0, int(digits), ""))
            digits = ""
        if character:
            parts.append((1, 0, character))
    return tuple(parts)


# ------------------------------------------------------------------ closest to fit


@dataclass(frozen=True, slots=True)
class _Wanted:
    pod_set: PodSetRow
    resource: str | None


def closest(
    connection: Connection, pod_sets: Iterable[PodSetRow], flavors: Iterable[str], *, unrestricted: bool
) -> list[Json]:
    """For each pod set that has to stay together: the domains that come closest to taking all of it now.

    Without `unrestricted` how many pods fit is said, and not what is free there.
    """
    wanted = [
        _Wanted(pod_set, next((name for name in sorted(pod_set.requests) if is_device(name)), None))
        for pod_set in pod_sets
        if pod_set.closeness
    ]
    if not wanted:
        return []
    considered = set(flavors)
    usable = [flavor for flavor in surroundings.flavors(connection) if flavor.name in considered and flavor.levels]
    nodes = list(surroundings.nodes(connection)) if usable else []
    members = [(flavor, [node for node in nodes if is_member(flavor, node)]) for flavor in usable]
    answer = []
    for each in wanted:
        found = [(flavor.name, domain) for flavor, own in members for domain in _fitting(flavor, own, each)]
        found.sort(key=lambda item: (-item[1].fits, [natural(part) for part in item[1].path], item[0]))
        answer.append(
            {
                "podSet": each.pod_set.name,
                "pods": each.pod_set.count,
                "closeness": each.pod_set.closeness,
                "level": each.pod_set.level or None,
                "resource": each.resource,
                "domains": [
                    {
                        "flavor": flavor,
                        "path": list(domain.path),
                        "fits": min(domain.fits, each.pod_set.count),
                        "hosts": domain.hosts,
                        "free": domain.free if unrestricted else None,
                    }
                    for flavor, domain in found[:CLOSEST]
                ],
            }
        )
    return answer


def _fitting(flavor: FlavorRow, nodes: Iterable[NodeRow], wanted: _Wanted) -> Iterator[Domain]:
    """The domains of the level that is asked for, with the pods that fit into what is free on each of their hosts."""
    pod_set = wanted.pod_set
    if pod_set.level and pod_set.level not in flavor.levels:
        return
    depth = flavor.levels.index(pod_set.level) + 1 if pod_set.level else 0
    found: dict[Path, Domain] = {}
    for node in nodes:
        path = tuple(node.labels[level] for level in flavor.levels[:depth])
        domain = found.setdefault(path, Domain(path))
        domain.add(node, wanted.resource or "", _pods(node, pod_set.requests))
    yield from found.values()


def _pods(node: NodeRow, requests: Mapping[str, int]) -> int:
    """What the row does not know (storage, for instance) is taken to suffice."""
    return min(
        (max(0, node.free[name]) // amount for name, amount in requests.items() if amount > 0 and name in node.free),
        default=0 if any(is_device(name) and name not in node.free for name in requests) else MOST_PODS,
    )
