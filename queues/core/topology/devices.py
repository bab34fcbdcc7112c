"""What is free on every single device of a node: a pod's share of a GPU sits on one GPU, however many a node has.

It works from how many devices a resource lies over and from what pods hold of it. On which device a pod really runs is
not known here: the largest go first and each onto the fullest device that still takes it, which proves that all of them
have a place at once. It never looks at any other resource.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from queues.core.model import Node, ResourceName

Ints = npt.NDArray[np.int64]

#: Amounts that pods hold, and how many pods have so much.
Held = Iterable[tuple[int, int]]

#: Devices of one node at most; a resource that lies over more is taken as one pool, and so is one of larger amounts:
#: a pod that asks for so much fits nowhere.
_MOST_DEVICES: Final = 64
_LARGEST: Final = 2**48


class HeldOn(Protocol):
    def __call__(self, node: Node, resource: ResourceName, *, emptied: bool) -> Held: ...


class _Table:
    """By slot: what is free on each device (the columns), and how large one is; 0 where the resource is one pool."""

    def __init__(self) -> None:
        self.part: Ints = np.zeros(0, np.int64)
        self.free: Ints = np.zeros((0, 1), np.int64)
        self.emptied: Ints = np.zeros((0, 1), np.int64)

    def make_room(self, slots: int, devices: int) -> None:
        more = max(0, slots - len(self.part)), max(0, devices - self.free.shape[1])
        if any(more):
            pad = (0, max(more[0], len(self.part)) if more[0] else 0), (0, more[1])
            self.part = np.pad(self.part, pad[0])
            self.free, self.emptied = np.pad(self.free, pad), np.pad(self.emptied, pad)


class DeviceTables:
    """The devices of all nodes by resource, brought up to date for the slots that were touched when somebody asks."""

    def __init__(self, held_on: HeldOn) -> None:
        self._held_on = held_on
        self._nodes: dict[int, Node] = {}
        self._touched: dict[int, None] = {}
        self._tables: dict[ResourceName, _Table] = {}

    @property
    def resources(self) -> Iterable[ResourceName]:
        """Those that lie over devices on some node, now or earlier."""
        return self._tables

    def put(self, slot: int, node: Node) -> list[ResourceName]:
        """Take the node in; the resources that are new here."""
        self.drop(slot)
        if not node.devices:
            return []
        self._nodes[slot] = node
        new = [resource for resource in node.devices if resource not in self._tables]
        self._tables.update((resource, _Table()) for resource in new)
        self.touch(slot)
        return new

    def drop(self, slot: int) -> None:
        if self._nodes.pop(slot, None) is not None:
            for table in self._tables.values():
                if slot < len(table.part):
                    table.part[slot] = 0

    def touch(self, slot: int) -> None:
        """What is held there has changed."""
        if slot in self._nodes:
            self._touched[slot] = None

    def of(self, resource: ResourceName, slots: Ints, *, emptied: bool) -> tuple[Ints, Ints] | None:
        """What is free on the devices of these slots, and how large one is; None where it is a pool everywhere."""
        table = self._tables.get(resource)
        if table is None:
            return None
        self._catch_up()
        table.make_room(int(slots.max(initial=-1)) + 1, 1)
        free = table.emptied if emptied else table.free
        return free[slots], table.part[slots]

    def _catch_up(self) -> None:
        for slot in self._touched:
            node = self._nodes.get(slot)
            if node is not None:
                for resource, devices in node.devices.items():
                    self._write(slot, node, resource, devices)
        self._touched.clear()

    def _write(self, slot: int, node: Node, resource: ResourceName, devices: int) -> None:
        table = self._tables[resource]
        total = node.allocatable.get(resource, 0)
        if not 0 < devices <= _MOST_DEVICES or not 0 < total < _LARGEST:
            return
        table.make_room(slot + 1, devices)
        table.part[slot] = total // devices
        for rows, is_emptied in ((table.free, False), (table.emptied, True)):
            rows[slot] = 0
            rows[slot, :devices] = packed(devices, total, self._held_on(node, resource, emptied=is_emptied))


def packed(devices: int, total: int, held: Held) -> list[int]:
    """What is free on each device when pods hold so much.

    The same pods always lie alike, whatever came first. Where they do not fit in this way, nothing is free.
    """
    part = total // devices
    free = [part] * devices
    for amount, pods in sorted(held, reverse=True):
        for _ in range(pods):
            for device in _chosen(free, part, amount):
                if device is None:
                    return [0] * devices
                free[device] -= min(amount, part)
    return free


def _chosen(free: list[int], part: int, amount: int) -> list[int | None]:
    """The devices for one pod: the fullest that still takes a share, or as many unused ones as it needs."""
    if amount <= part:
        able = [device for device, left in enumerate(free) if left >= amount]
        return [min(able, key=lambda device: (free[device], device), default=None)]
    wanted = -(-amount // part) if part else 0
    unused = [device for device, left in enumerate(free) if part and left == part]
    return [*unused[:wanted], None] if len(unused) < wanted or not wanted else list(unused[:wanted])


def fits(free: Ints, part: Ints, amount: int, parts: int = 1) -> Ints:
    """How many pods of this amount each node takes, by what is free on its devices (columns), in parts of a pod.

    `part` is the size of a node's devices. A pod of more than that takes whole ones; a device that is too small for a
    whole pod counts nothing.
    """
    amount = min(amount, _LARGEST)
    shares: Ints = (free // amount if parts == 1 else np.where(free < amount, 0, free * parts // amount)).sum(axis=1)
    if amount <= int(part.min(initial=amount)):
        return shares
    wanted = -(-amount // np.maximum(part, 1))
    whole: Ints = ((free == part[:, None]) & (part[:, None] > 0)).sum(axis=1) * parts // wanted
    found: Ints = np.where(amount <= part, shares, whole)
    return found


def without(free: Ints, part: Ints, amount: int, pods: int = 1) -> Ints:
    """What is left on the devices of each node (which takes them) once it has got so many pods of this amount."""
    amount, left = min(amount, _LARGEST), free.copy()
    rows = np.arange(len(left))
    for _ in range(pods):
        is_share = amount <= part
        able = np.where(left >= amount, left, np.iinfo(np.int64).max)
        tightest = able.argmin(axis=1)
        takes = is_share & (left[rows, tightest] >= amount)
        left[rows[takes], tightest[takes]] -= amount
        if not is_share.all():
            unused = (left == part[:, None]) & ~is_share[:, None] & (part[:, None] > 0)
            wanted = -(-amount // np.maximum(part, 1))
            left[unused & (np.cumsum(unused, axis=1) <= wanted[:, None])] = 0
    return left
