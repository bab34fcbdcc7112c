"""Which gang every observed object and Workload belongs to, and the gang as its adapter wants to see it.

Adapters say what belongs together; this keeps their answers as an index, so that finding a gang costs its size. It must
never judge an object itself.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from admission.api.kueue import Workload
from admission.controllers.store import Key
from admission.controllers.tables import Tables
from admission.jobs.interface import Adapter, Unit, UnitKey
from admission.settings import Settings


class Units:
    """The index of gangs over the tables."""

    def __init__(self, adapters: Iterable[Adapter], tables: Tables, settings: Settings) -> None:
        self._adapters = {adapter.name: adapter for adapter in adapters}
        self._by_kind: dict[str, list[Adapter]] = {}
        for adapter in self._adapters.values():
            for kind in sorted(adapter.kinds):
                self._by_kind.setdefault(kind, []).append(adapter)
        self._tables = tables
        self._settings = settings
        self._members: dict[UnitKey, dict[tuple[str, Key], None]] = {}
        self._workloads: dict[UnitKey, dict[Key, None]] = {}
        self._of_member: dict[tuple[str, Key], UnitKey] = {}
        self._of_workload: dict[Key, tuple[UnitKey, ...]] = {}
        self._in_namespace: dict[str, dict[UnitKey, None]] = {}

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(self._by_kind)

    def adapter(self, key: UnitKey) -> Adapter:
        return self._adapters[key.adapter]

    def member_changed(self, kind: str, key: Key, member: Any | None) -> set[UnitKey]:
        """The units that a member left, joined or is in."""
        place = (kind, key)
        before = self._of_member.pop(place, None)
        touched = set()
        if before is not None:
            touched.add(before)
            _drop(self._members, before, place)
            self._forget(before)
        if member is None:
            return touched
        for adapter in self._by_kind.get(kind, ()):
            unit = adapter.unit_of(member, self._settings)
            if unit is not None:
                self._of_member[place] = unit
                self._members.setdefault(unit, {})[place] = None
                self._in_namespace.setdefault(unit.namespace, {})[unit] = None
                touched.add(unit)
                break
        return touched

    def workload_changed(self, key: Key, workload: Workload | None) -> set[UnitKey]:
        """The units that have to look at this Workload, or had to."""
        before = self._of_workload.pop(key, ())
        for unit in before:
            _drop(self._workloads, unit, key)
            self._forget(unit)
        after = () if workload is None else self.claiming(workload)
        if after:
            self._of_workload[key] = after
        for unit in after:
            self._workloads.setdefault(unit, {})[key] = None
            self._in_namespace.setdefault(unit.namespace, {})[unit] = None
        return {*before, *after}

    def claiming(self, workload: Workload) -> tuple[UnitKey, ...]:
        return tuple(unit for adapter in self._adapters.values() for unit in adapter.units_of_workload(workload))

    def unit(self, key: UnitKey) -> Unit:
        members = (self._tables.of(kind).get(*place) for kind, place in self._members.get(key, ()))
        workloads = (self._tables.workloads.get(*place) for place in self._workloads.get(key, ()))
        return Unit(
            key,
            tuple(member for member in members if member is not None),
            tuple(workload for workload in workloads if workload is not None),
        )

    def of_member(self, kind: str, key: Key) -> UnitKey | None:
        """The unit that an observed object is in."""
        return self._of_member.get((kind, key))

    def in_namespace(self, namespace: str) -> list[UnitKey]:
        return list(self._in_namespace.get(namespace, ()))

    def all(self) -> list[UnitKey]:
        return [unit for units in self._in_namespace.values() for unit in units]

    def _forget(self, unit: UnitKey) -> None:
        if unit not in self._members and unit not in self._workloads:
            _drop(self._in_namespace, unit.namespace, unit)


def _drop(index: dict[Any, dict[Any, None]], key: Hashable, value: Hashable) -> None:
    entry = index.get(key)
    if entry is not None:
        entry.pop(value, None)
        if not entry:
            del index[key]
