"""Keeps what is free on every node, per resource, as numpy columns that events change in place.

It works from nodes, from the pods that no assignment accounts for, and from what topology assignments take of hosts.
The truth is kept in exact integers of any size; the columns hold it clamped, so that nothing can ever wrap. It never
decides where anything goes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from queues.core.model import HOSTNAME_LABEL, POD_UNITS, Node, NodeName, ResourceName, Uid
from queues.core.topology.devices import DeviceTables, Held
from queues.core.topology.labels import Labels
from queues.core.topology.states import States
from queues.core.topology.suitability import Condition

Ints = npt.NDArray[np.int64]

#: The columns hold values from -CEILING to CEILING: the difference of two of them still fits into 64 bits.
CEILING: Final = 2**61

#: So many changes are remembered for those who keep results by node; who is further behind computes all nodes anew.
_REMEMBERED_CHANGES: Final = 1 << 16

_FIRST_SLOTS: Final = 64

_FEW: Final = 8

Amounts = dict[ResourceName, int]

Ledger = dict[str, dict[tuple[tuple[ResourceName, int], ...], int]]

_NOTHING: Final[Amounts] = {}

_NO_SLOTS: Final[Ints] = np.zeros(0, np.int64)


def with_pod(requests: Mapping[ResourceName, int]) -> Amounts:
    """What one pod takes of a node: its requests that are not zero, and one of the node's `pods`."""
    taken = {resource: amount for resource, amount in requests.items() if amount > 0}
    taken[POD_UNITS] = 1
    return taken


class Capacity:
    """Nodes have slots: an index into every column. A slot is used again when its node has gone.

    `free` is what is left on a node, `emptied` what would be left if no workload held anything by an assignment; rows
    are resources (`columns`), columns are slots. What a placement under way assumes counts in both. `conditions` holds,
    by slot, the index of the node's condition in `known_conditions`.
    """

    def __init__(self) -> None:
        self.nodes: list[Node | None] = []
        self.labels = Labels()
        self.states = States(emptied=False)
        self.emptied_states = States(emptied=True)
        self.hosts: dict[str, set[int]] = {}
        self.columns: dict[ResourceName, int] = {}
        self.devices = DeviceTables(self._held_on)
        self.free: Ints = np.zeros((0, _FIRST_SLOTS), np.int64)
        self.emptied: Ints = np.zeros((0, _FIRST_SLOTS), np.int64)
        self.conditions: npt.NDArray[np.int32] = np.zeros(_FIRST_SLOTS, np.int32)
        self.known_conditions: list[Condition] = []
        self._condition_index: dict[Condition, int] = {}
        self._slots: dict[NodeName, int] = {}
        self._vacant: list[int] = []
        self._placed: dict[Uid, tuple[NodeName, Amounts]] = {}
        self._foreign: dict[NodeName, Amounts] = {}
        #: What single pods without an assignment hold of resources that lie over devices: pods by amount.
        self._foreign_shares: dict[tuple[NodeName, ResourceName], dict[int, int]] = {}
        #: Pods by host and requests: truth for what assignments hold, and for what a placement under way assumes.
        self._taken: Ledger = {}
        self._assumed: Ledger = {}
        self._changes: list[int] = []
        self._forgotten = 0

    # ------------------------------------------------------------------ nodes

    def node(self, name: NodeName) -> Node | None:
        slot = self._slots.get(name)
        return None if slot is None else self.nodes[slot]

    def put_node(self, node: Node) -> None:
        """Take the node in or replace what was known of it. Cost: its resources."""
        slot = self._slots.get(node.name)
        if slot is None:
            slot = self._new_slot()
            self._slots[node.name] = slot
        else:
            self._leave_host(slot)
        self.nodes[slot] = node
        self.labels.put(slot, node.labels)
        host = node.labels.get(HOSTNAME_LABEL)
        if host is not None:
            self.hosts.setdefault(host, set()).add(slot)
        for resource in self.devices.put(slot, node):
            self._count_foreign_shares(resource)
        self.conditions[slot] = self._condition_of(node)
        for resource in node.allocatable:
            self._column(resource)
        self._write(slot, self.columns)

    def fits_with(self, requests: Amounts, host: str, given_back: Mapping[ResourceName, int]) -> int:
        """How many pods with these requests the host's nodes would take if so much more were free; 0 without nodes."""
        slots = self.hosts.get(host, ())
        if len(slots) != 1:
            return 0
        (slot,) = slots
        found = CEILING
        for name, amount in requests.items():
            column = self.columns.get(name)
            free = 0 if column is None else int(self.free[column, slot])
            found = min(found, (free + given_back.get(name, 0)) // amount)
        return max(0, found)

    def free_of(self, resource: ResourceName, slots: Ints) -> Ints:
        """What is free of a resource on the nodes of these slots."""
        column = self.columns.get(resource)
        return np.zeros(len(slots), np.int64) if column is None else np.maximum(self.free[column].take(slots), 0)

    def drop_node(self, name: NodeName) -> None:
        """Forget the node. What pods and assignments hold there is kept, in case it comes back."""
        slot = self._slots.pop(name, None)
        if slot is None:
            return
        self._leave_host(slot)
        self.nodes[slot] = None
        self.devices.drop(slot)
        self.free[:, slot] = 0
        self.emptied[:, slot] = 0
        self._vacant.append(slot)
        self._note(slot)

    def _leave_host(self, slot: int) -> None:
        node = self.nodes[slot]
        host = None if node is None else node.labels.get(HOSTNAME_LABEL)
        if host is not None:
            self.hosts[host].discard(slot)
            if not self.hosts[host]:
                del self.hosts[host]

    def _new_slot(self) -> int:
        if self._vacant:
            return self._vacant.pop()
        slot = len(self.nodes)
        self.nodes.append(None)
        if slot == self.free.shape[1]:
            more = ((0, 0), (0, slot))
            self.free, self.emptied = np.pad(self.free, more), np.pad(self.emptied, more)
            self.conditions = np.pad(self.conditions, (0, slot))
        return slot

    def _column(self, resource: ResourceName) -> int:
        column = self.columns.get(resource)
        if column is None:
            column = self.columns[resource] = len(self.columns)
            more = ((0, 1), (0, 0))
            self.free, self.emptied = np.pad(self.free, more), np.pad(self.emptied, more)
        return column

    def _condition_of(self, node: Node) -> int:
        condition = Condition(node.ready, node.unschedulable, node.taints)
        index = self._condition_index.get(condition)
        if index is None:
            index = self._condition_index[condition] = len(self.known_conditions)
            self.known_conditions.append(condition)
        return index

    # ------------------------------------------------------------------ what is taken

    def place_pod(self, uid: Uid, node: NodeName, requests: Mapping[ResourceName, int]) -> None:
        """A pod without an assignment occupies a node, known or not yet known."""
        self.remove_pod(uid)
        taken = with_pod(requests)
        self._placed[uid] = (node, taken)
        _add(self._foreign.setdefault(node, {}), taken, 1)
        self._share(node, taken, 1)
        self._rewrite_node(node, taken)

    def remove_pod(self, uid: Uid) -> NodeName | None:
        """The pod occupies nothing any more; the node where it did."""
        placed = self._placed.pop(uid, None)
        if placed is None:
            return None
        node, taken = placed
        _add(self._foreign[node], taken, -1)
        if not self._foreign[node]:
            del self._foreign[node]
        self._share(node, taken, -1)
        self._rewrite_node(node, taken)
        return node

    def take(self, hosts: Sequence[tuple[str, int]], requests: Amounts, *, assumed: bool = False) -> None:
        """Charge so many pods (`requests` each, see `with_pod`) to each of the hosts with these hostname labels.

        Negative numbers give back. Where several nodes share one hostname, each is charged in full: nothing says on
        which of them the pods run. With `assumed` for a placement under way. Cost: the hosts.
        """
        ledger = self._assumed if assumed else self._taken
        shape = tuple(sorted(requests.items()))
        slots: list[int] = []
        pods: list[int] = []
        for host, count in hosts:
            held = ledger.get(host)
            if held is None:
                held = ledger[host] = {}
            total = held.get(shape, 0) + count
            if total > 0:
                held[shape] = total
            elif total == 0:
                held.pop(shape, None)
                if not held:
                    del ledger[host]
            else:
                raise ValueError(f"more pods are given back on {host} than were taken")
            for slot in self.hosts.get(host, ()):
                slots.append(slot)
                pods.append(count)
        if len(slots) <= _FEW:
            for slot, count in zip(slots, pods, strict=True):
                self._charge_one(slot, count, requests, both=assumed)
        else:
            self._charge(slots, pods, requests, both=assumed)

    def _charge_one(self, slot: int, count: int, requests: Amounts, *, both: bool) -> None:
        """As `_charge`, for so few that arrays would cost more than they save."""
        for resource, amount in requests.items():
            column = self.columns.get(resource)
            if column is None:
                continue
            for table in (self.free, self.emptied) if both else (self.free,):
                before = table.item(column, slot)
                after = before - amount * count
                if not (-CEILING < before < CEILING and -CEILING < after < CEILING):
                    self._write(slot, requests)
                    return
                table[column, slot] = after
        self._note(slot)

    def _charge(self, slots: list[int], pods: list[int], requests: Amounts, *, both: bool) -> None:
        """Take from the columns at once; where a column does not show the truth, write it anew from the ledgers."""
        most = max(abs(min(pods)), abs(max(pods)))
        is_exact = most < CEILING and len(set(slots)) == len(slots)
        where = np.array(slots, np.int64)
        counts = np.array(pods if is_exact else [0] * len(pods), np.int64)
        for resource, amount in requests.items():
            column = self.columns.get(resource)
            if column is None:  # no node has any of it, so it cannot run short here
                continue
            if amount * most >= CEILING:
                is_exact = False
                continue
            for table in (self.free, self.emptied) if both else (self.free,):
                before = table[column, where]
                after = before - amount * counts
                is_exact = is_exact and _is_inside(before) and _is_inside(after)
                table[column, where] = after
        if is_exact:
            for slot in slots:
                self._note(slot)
        else:
            for slot in slots:
                self._write(slot, requests)

    def _rewrite_node(self, name: NodeName, resources: Iterable[ResourceName]) -> None:
        slot = self._slots.get(name)
        if slot is not None:
            self._write(slot, resources)

    def _write(self, slot: int, resources: Iterable[ResourceName]) -> None:
        node = self.nodes[slot]
        if node is None:
            return
        foreign = self._foreign.get(node.name, _NOTHING)
        host = node.labels.get(HOSTNAME_LABEL)
        taken = _summed(self._taken, host)
        assumed = _summed(self._assumed, host)
        for resource in resources:
            column = self.columns.get(resource)
            if column is None:  # no node has any of it, so it cannot run short here
                continue
            emptied = node.allocatable.get(resource, 0) - foreign.get(resource, 0) - assumed.get(resource, 0)
            self.emptied[column, slot] = _clamped(emptied)
            self.free[column, slot] = _clamped(emptied - taken.get(resource, 0))
        self._note(slot)

    # ------------------------------------------------------------------ devices

    def _share(self, node: NodeName, taken: Amounts, pods: int) -> None:
        for resource in self.devices.resources:
            amount = taken.get(resource)
            if amount:
                held = self._foreign_shares.setdefault((node, resource), {})
                held[amount] = held.get(amount, 0) + pods
                if not held[amount]:
                    del held[amount]

    def _count_foreign_shares(self, resource: ResourceName) -> None:
        """A resource lies over devices, which was not known before. Cost: all pods without an assignment."""
        for node, taken in self._placed.values():
            amount = taken.get(resource)
            if amount:
                held = self._foreign_shares.setdefault((node, resource), {})
                held[amount] = held.get(amount, 0) + 1

    def _held_on(self, node: Node, resource: ResourceName, *, emptied: bool) -> Held:
        """What single pods hold of the resource there: amounts and how many pods have so much."""
        host = node.labels.get(HOSTNAME_LABEL, "")
        held = list(self._foreign_shares.get((node.name, resource), {}).items())
        for ledger in (self._assumed,) if emptied else (self._assumed, self._taken):
            for shape, pods in ledger.get(host, {}).items():
                held.extend((amount, pods) for name, amount in shape if name == resource)
        return held

    # ------------------------------------------------------------------ what has changed

    @property
    def version(self) -> int:
        """Grows with every change of a slot."""
        return self._forgotten + len(self._changes)

    def changed_since(self, version: int) -> Ints | None:
        """The slots that changed since then; None when that is too long ago to know."""
        if version < self._forgotten:
            return None
        if version == self.version:
            return _NO_SLOTS
        return np.unique(np.asarray(self._changes[version - self._forgotten :], np.int64))

    def _note(self, slot: int) -> None:
        self._changes.append(slot)
        self.devices.touch(slot)
        if len(self._changes) > _REMEMBERED_CHANGES:
            drop = _REMEMBERED_CHANGES // 2
            del self._changes[:drop]
            self._forgotten += drop


def _clamped(value: int) -> int:
    return max(-CEILING, min(CEILING, value))


def _is_inside(values: Ints) -> bool:
    """Whether none of them was, or has to be, clamped."""
    return bool(values.max() < CEILING and values.min() > -CEILING)


def _summed(ledger: Ledger, host: str | None) -> Amounts:
    held = None if host is None else ledger.get(host)
    if held is None:
        return _NOTHING
    amounts: Amounts = {}
    for shape, pods in held.items():
        for resource, amount in shape:
            amounts[resource] = amounts.get(resource, 0) + amount * pods
    return amounts


def _add(amounts: Amounts, each: Amounts, times: int) -> None:
    for resource, amount in each.items():
        total = amounts.get(resource, 0) + amount * times
        if total < 0:
            raise ValueError(f"more {resource} is given back than was taken")
        if total:
            amounts[resource] = total
        else:
            amounts.pop(resource, None)
