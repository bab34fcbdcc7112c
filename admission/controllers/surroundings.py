"""What lies around the queues, as the journal's read model has it: cohorts, flavors and nodes with what is free.

It remembers what was told last and tells what is different since, at the cost of the nodes that changed, and not more
often than once in a while. It must never be read back by anything that decides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from queues.core import model
from queues.core.readings import Readings
from queues.core.topology.hosts import Host
from queues.journal import entries
from queues.journal.entries import NodeState

#: Seconds between two looks: a map of the nodes need not be younger.
_EVERY: Final = 1.0

Told = entries.CohortRow | entries.FlavorRow | entries.NodeRow


class Surroundings:
    """`news` since the last call of it or of `everything`."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._next = 0.0
        self._owes = False
        self._keys: frozenset[str] = frozenset()
        self._cohorts: dict[str, entries.CohortRow] = {}
        self._flavors: dict[str, entries.FlavorRow] = {}
        self._nodes: dict[int, entries.NodeRow] = {}

    def everything(self, readings: Readings, now: float) -> tuple[Told, ...]:
        self._version, self._nodes = None, {}
        self._cohorts, self._flavors = {}, {}
        return tuple(row for row in self._changes(readings, now) if isinstance(row, Told))

    def news(self, readings: Readings, now: float) -> Iterator[entries.Row]:
        """Nothing, where it was asked just now: then `owed` says when to ask again."""
        self._owes = now < self._next
        if self._owes:
            return
        yield from self._changes(readings, now)

    def owed(self) -> float | None:
        """When to ask for what was not told the last time; None where it was."""
        return self._next if self._owes else None

    def _changes(self, readings: Readings, now: float) -> Iterator[entries.Row]:
        self._next = now + _EVERY
        cohorts = {str(name): _cohort(cohort) for name, cohort in readings.cohort_specs().items()}
        flavors = {str(name): _flavor(*found) for name, found in readings.flavor_levels().items()}
        for name in self._cohorts.keys() - cohorts.keys():
            yield entries.CohortRemoved(name)
        for name in self._flavors.keys() - flavors.keys():
            yield entries.FlavorRemoved(name)
        for cohort in cohorts.values():
            if self._cohorts.get(cohort.name) != cohort:
                yield cohort
        for flavor in flavors.values():
            if self._flavors.get(flavor.name) != flavor:
                yield flavor
        if flavors != self._flavors:
            keys = {key for flavor in flavors.values() for key in (*flavor.levels, *flavor.node_labels)}
            if keys != self._keys:
                self._keys, self._version = frozenset(keys), None
        self._cohorts, self._flavors = cohorts, flavors
        yield from self._node_changes(readings)

    def _node_changes(self, readings: Readings) -> Iterator[entries.Row]:
        changes = readings.host_changes(self._version)
        self._version = changes.version
        removed: list[str] = []
        told: dict[str, entries.NodeRow] = {}
        for slot, host in changes.hosts.items():
            before = self._nodes.pop(slot, None)
            row = None if host is None else _node(host, self._keys)
            if row is not None:
                self._nodes[slot] = row
                if row != before:
                    told[row.name] = row
            if before is not None and (row is None or row.name != before.name):
                removed.append(before.name)
        # A node may have moved to another slot.
        there = {row.name for row in self._nodes.values()} if removed else set()
        yield from (entries.NodeRemoved(name) for name in removed if name not in there)
        yield from told.values()


def _cohort(cohort: model.Cohort) -> entries.CohortRow:
    return entries.CohortRow(
        name=cohort.name,
        parent=cohort.parent or "",
        quotas=tuple(
            entries.QuotaRow(flavor.flavor, resource, quota.nominal, quota.borrowing_limit, quota.lending_limit)
            for group in cohort.groups
            for flavor in group.flavors
            for resource, quota in flavor.quotas.items()
        ),
    )


def _flavor(flavor: model.ResourceFlavor, levels: tuple[str, ...]) -> entries.FlavorRow:
    return entries.FlavorRow(flavor.name, dict(flavor.node_labels), flavor.topology or "", levels)


def _node(host: Host, keys: frozenset[str]) -> entries.NodeRow:
    node = host.node
    state = NodeState.READY
    if not node.ready:
        state = NodeState.NOT_READY
    elif node.unschedulable:
        state = NodeState.CORDONED
    return entries.NodeRow(
        name=node.name,
        state=state,
        labels={key: value for key, value in node.labels.items() if key in keys},
        capacity=_shown(node.allocatable),
        free=_shown(host.free),
    )


def _shown(amounts: Mapping[model.ResourceName, int]) -> dict[str, int]:
    """What people look for on a map: processors, memory, and devices of every sort."""
    return {
        str(resource): amount
        for resource, amount in amounts.items()
        if resource in {"cpu", "memory"} or "/" in resource
    }
