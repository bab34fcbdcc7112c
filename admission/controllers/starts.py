"""Writes the sizes that start into the journal's history, and reads them back after a restart.

Only for flavors that keep room for what is to come; what still runs is not remembered a second time. It waits for no
journal: until one answers, what waits and what runs has to do.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Final

import msgspec

from admission.controllers.cluster import Cluster
from queues.core import model
from queues.core.demand import flavors_of
from queues.core.events import SizesRemembered
from queues.core.expected_sizes import started_sizes
from queues.core.topology.sizes import Counted
from queues.journal.entries import Decision

#: Asks for the starts before a time, the oldest first.
Recall = Callable[[float], Future[Sequence[Decision]]]

_SIZES: Final = "sizes"


def facts(workload: model.Workload, asked: Collection[model.FlavorName]) -> Mapping[str, Any]:
    """What a start adds to the history: its sizes, by those of its flavors that asked for them."""
    admission = workload.admission
    if admission is None or not asked:
        return {}
    flavors = sorted(flavors_of(admission.pod_sets).intersection(asked))
    if not flavors:
        return {}
    sizes = msgspec.to_builtins(started_sizes(workload, admission))
    return {_SIZES: dict.fromkeys(flavors, sizes)}


class Starts:
    """`look` asks once, when a flavor wants to know, and tells the core what the answer is when there is one."""

    def __init__(self, cluster: Cluster, recall: Recall) -> None:
        self._cluster = cluster
        self._recall = recall
        self._asked: Future[Sequence[Decision]] | None = None
        self._is_done = False

    def look(self, now: float) -> None:
        if self._asked is None:
            if self._cluster.state.expected_sizes.asked:
                self._asked = self._recall(now)
        elif self._asked.done() and not self._is_done:
            self._is_done = True
            for event in remembered(self._asked.result(), self._holding()):
                self._cluster.remember(event)

    def _holding(self) -> set[str]:
        return {uid for uid, record in self._cluster.state.workloads.items() if record.admission is not None}


def remembered(starts: Sequence[Decision], holding: Collection[str]) -> Iterator[SizesRemembered]:
    """One event for each flavor. The last start of those that hold quota is left out: the core knows of it."""
    known = set(holding)
    found: dict[model.FlavorName, list[Counted]] = {}
    for start in reversed(starts):
        if start.workload in known:
            known.remove(start.workload)
            continue
        for flavor, sizes in _sizes(start).items():
            found.setdefault(flavor, []).append(sizes)
    for flavor, counted in found.items():
        yield SizesRemembered(flavor, tuple([one for sizes in reversed(counted) for one in sizes]))


def _sizes(start: Decision) -> dict[model.FlavorName, Counted]:
    try:
        return msgspec.convert(start.facts.get(_SIZES, {}), dict[model.FlavorName, Counted])
    except msgspec.ValidationError:
        return {}  # as another version wrote it
