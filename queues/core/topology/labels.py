"""Keeps node labels as columns of small numbers, so that a selector or an affinity is judged for all nodes at once.

A column is made when a demand first names its label, from the nodes as they are, and kept up in place. It never judges
taints, readiness or capacity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from queues.core.model import Expression, Node
from queues.core.topology.suitability import is_value_matched

Flags = npt.NDArray[np.bool_]

#: Labels whose columns are kept; a column takes four bytes a node.
_KEPT: Final = 256


class _Column:
    """`codes` by slot: 0 where the node lacks the label, else the index of its value in `values`."""

    def __init__(self, key: str, nodes: Sequence[Node | None], room: int) -> None:
        self.values: list[str | None] = [None]
        self.index: dict[str, int] = {}
        self.codes = np.zeros(room, np.int32)
        self.codes[: len(nodes)] = [0 if node is None else self.code(node.labels.get(key)) for node in nodes]

    def code(self, value: str | None) -> int:
        if value is None:
            return 0
        code = self.index.get(value)
        if code is None:
            code = self.index[value] = len(self.values)
            self.values.append(value)
        return code


class Labels:
    """The labels of the nodes by slot, as far as demands have named them."""

    def __init__(self) -> None:
        self._columns: dict[str, _Column] = {}

    def put(self, slot: int, labels: Mapping[str, str]) -> None:
        """Take in the labels of the node in this slot."""
        for key, column in self._columns.items():
            if slot >= len(column.codes):
                column.codes = np.pad(column.codes, (0, max(slot + 1, len(column.codes))))
            column.codes[slot] = column.code(labels.get(key))

    def selected(
        self, selector: Iterable[tuple[str, str]], nodes: Sequence[Node | None], slots: npt.NDArray[np.int64]
    ) -> Flags:
        """Which of these slots have all the labels."""
        found = np.ones(len(slots), np.bool_)
        for key, value in selector:
            column = self._column(key, nodes)
            found &= column.codes.take(slots) == column.index.get(value, -1)
        return found

    def matched(
        self, term: tuple[Expression, ...], nodes: Sequence[Node | None], slots: npt.NDArray[np.int64]
    ) -> Flags:
        """Which of these slots satisfy every expression; a term without any matches none, as the scheduler has it."""
        found = np.full(len(slots), bool(term))
        for expression in term:
            column = self._column(expression.key, nodes)
            verdicts = np.array([is_value_matched(expression, value) for value in column.values], np.bool_)
            found &= verdicts.take(column.codes.take(slots))
        return found

    def _column(self, key: str, nodes: Sequence[Node | None]) -> _Column:
        column = self._columns.pop(key, None)
        if column is None:
            column = _Column(key, nodes, max(64, len(nodes)))
            if len(self._columns) >= _KEPT:
                del self._columns[next(iter(self._columns))]
        self._columns[key] = column  # the one that was used last stands last
        if len(column.codes) < len(nodes):
            column.codes = np.pad(column.codes, (0, len(nodes)))
        return column
