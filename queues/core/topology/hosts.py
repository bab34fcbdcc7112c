"""Says what nodes there are and what is left on each, for those who look at them from outside.

It reads the capacity columns of the nodes that changed since the reader last asked. It must never change anything, and
nothing that places pods may use it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from queues.core.model import Node, ResourceName
from queues.core.topology.capacity import Capacity


@dataclass(frozen=True, slots=True)
class Host:
    """`free` is what is left of the node's allocatable resources; below 0 where more is held than there is."""

    node: Node
    free: Mapping[ResourceName, int]


@dataclass(frozen=True, slots=True)
class HostChanges:
    """By slot: a number that a node keeps as long as it is there; None: there is no node any more.

    `version` is what to ask from the next time; `is_all` where all nodes are named, not just those that changed.
    """

    version: int
    is_all: bool
    hosts: Mapping[int, Host | None]


def changes(capacity: Capacity, since: int | None) -> HostChanges:
    """Cost: the nodes that changed since then, or all of them where that is None or too long ago to know."""
    changed = None if since is None else capacity.changed_since(since)
    slots: Iterable[int] = range(len(capacity.nodes)) if changed is None else changed.tolist()
    return HostChanges(
        version=capacity.version,
        is_all=changed is None,
        hosts={slot: _host(capacity, slot) for slot in slots},
    )


def _host(capacity: Capacity, slot: int) -> Host | None:
    node = capacity.nodes[slot]
    if node is None:
        return None
    columns = capacity.columns
    free = {resource: capacity.free.item(columns[resource], slot) for resource in node.allocatable}
    return Host(node, free)
