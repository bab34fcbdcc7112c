"""Groups nodes that are in the same state, so that a new shape is judged once for each state and not for each node.

Most nodes of a cluster are alike: empty, full, or used by the same few shapes. The groups follow the capacity columns
lazily, by what changed since they were last asked for. They never decide anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from queues.core.topology.capacity import Capacity, Ints

#: Below so many nodes nothing is gained.
_FEWEST: Final = 512


class States:
    """`of` is the state of each slot; `rows` has a column for each state: what is free, and last the condition."""

    def __init__(self, *, emptied: bool) -> None:
        self.of: npt.NDArray[np.int32] = np.zeros(0, np.int32)
        self.rows: Ints = np.zeros((0, 0), np.int64)
        self.count = 0
        self._emptied = emptied
        self._index: dict[bytes, int] = {}
        self._version = -1
        self._most = 0
        self._ordered: tuple[Ints, int, npt.NDArray[np.intp]] | None = None

    def catch_up(self, capacity: Capacity) -> bool:
        """Whether the groups are few enough to be of use; then they are as the columns are now.

        Cost: the nodes that changed. Once there are too many groups they are made anew, and if that does not help,
        nothing is done until the cluster has grown.
        """
        nodes = len(capacity.nodes)
        if nodes < _FEWEST or nodes <= self._most:
            return False
        table = capacity.emptied if self._emptied else capacity.free
        width = table.shape[0] + 1
        changed = None if width != self.rows.shape[0] or self._version < 0 else capacity.changed_since(self._version)
        if changed is None or self.count + len(changed) > nodes // 4 + _FEWEST:
            self._index.clear()
            self._ordered = None
            self.count = 0
            self.rows = np.zeros((width, 64), np.int64)
            changed = np.arange(nodes)
        self._version = capacity.version
        if len(changed):
            self._take(table, capacity.conditions, changed, nodes)
        if self.count > nodes // 4:
            self._most = 2 * nodes
            self._version = -1
            return False
        return True

    def of_slots(self, slots: Ints) -> npt.NDArray[np.intp]:
        """The state of each of these slots; remembered for the array that was asked for last, until nodes change.

        In numpy's own type for places, or each use would convert it.
        """
        known = self._ordered
        if known is not None and known[0] is slots and known[1] == self._version:
            return known[2]
        found = self.of.take(slots, mode="clip").astype(np.intp)
        self._ordered = (slots, self._version, found)
        return found

    def _take(self, table: Ints, conditions: npt.NDArray[np.int32], slots: Ints, nodes: int) -> None:
        if len(self.of) < nodes:
            self.of = np.pad(self.of, (0, max(nodes - len(self.of), len(self.of))))
        states = np.empty((len(slots), table.shape[0] + 1), np.int64)
        states[:, :-1] = table[:, slots].T
        states[:, -1] = conditions[slots]
        found, which = np.unique(states, axis=0, return_inverse=True)
        self.of[slots] = np.array([self._code(row) for row in found], np.int32)[which.reshape(-1)]

    def _code(self, row: Ints) -> int:
        key = row.tobytes()
        code = self._index.get(key)
        if code is None:
            code = self._index[key] = self.count
            if code == self.rows.shape[1]:
                self.rows = np.pad(self.rows, ((0, 0), (0, code)))
            self.rows[:, code] = row
            self.count += 1
        return code
