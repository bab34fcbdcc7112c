"""How many Workloads wait, for which reason and for how much, and how many are finished: sums kept up as each changes.

Made from the Workloads as they are reported, one after the other; a Workload counts once, as it was reported last. It
must never be asked by anything that decides, nor need a pass over all Workloads.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

import msgspec

from admission.alike import Alike
from admission.api import meta, names
from admission.api.kueue import Workload
from admission.controllers import conditions
from admission.controllers.store import Key

T = TypeVar("T")

#: What is said about those that have their quota and wait for something else.
_UNDERLYING = {names.REASON_PENDING_DELAYED_TOPOLOGY_REQUESTS: "PendingTopology"}
_CHECKS_NOT_READY = "ChecksNotReady"


#: ClusterQueue and LocalQueue.
End = tuple[str, tuple[str, str]]


class Line(msgspec.Struct, frozen=True):
    """A Workload that is not admitted. `local_queue` is (namespace, name); `requests` what it waits for."""

    cluster_queue: str
    local_queue: tuple[str, str]
    reason: str
    cause: str
    requests: tuple[tuple[str, int], ...] = ()


def unadmitted(workload: Workload) -> tuple[str, str] | None:
    """Why it is not admitted, and why that is. Conditions that were not written yet count as those of a new one."""
    if conditions.is_admitted(workload):
        return None
    if not conditions.holds_quota(workload):
        found = conditions.condition(workload, names.QUOTA_RESERVED)
        said = found is not None and found.status == meta.FALSE and found.reason
        return names.REASON_NO_RESERVATION, said or names.REASON_PENDING_EVALUATION
    found = conditions.condition(workload, names.ADMITTED)
    reason = names.REASON_UNSATISFIED_ADMISSION_CHECKS
    if found is not None and found.reason not in {"", names.REASON_NO_RESERVATION}:
        reason = found.reason
    return reason, _UNDERLYING.get(reason, _CHECKS_NOT_READY)


class Tallies:
    """Sums over the lines that were put in."""

    def __init__(self) -> None:
        self.unadmitted: Counter[tuple[str, str, str]] = Counter()
        self.local_unadmitted: Counter[tuple[tuple[str, str], str, str, str]] = Counter()
        self.pending: dict[str, Counter[str]] = {}
        self.finished: Counter[str] = Counter()
        self.local_finished: Counter[tuple[str, str]] = Counter()
        self._lines: dict[Key, Line] = {}
        self._ends: dict[Key, End] = {}
        # Thousands wait alike, and those that ended are to be counted for as long as they are there.
        self._one_line = Alike[Line]().one
        self._one_end = Alike[End]().one

    def put(self, key: Key, line: Line | None) -> None:
        """The Workload waits like this; None: it is admitted."""
        self._drop_end(key)
        before = self._lines.get(key)
        if before == line:
            return
        if before is not None:
            self._add(before, -1)
            del self._lines[key]
        if line is not None:
            self._add(line, 1)
            self._lines[key] = self._one_line(line)

    def finish(self, key: Key, cluster_queue: str, local_queue: tuple[str, str]) -> None:
        """It is finished, and counts as long as the object is there."""
        self.put(key, None)
        self._ends[key] = self._one_end((cluster_queue, local_queue))
        self.finished[cluster_queue] += 1
        self.local_finished[local_queue] += 1

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self.put(key, None)

    def _drop_end(self, key: Key) -> None:
        end = self._ends.pop(key, None)
        if end is not None:
            _add(self.finished, end[0], -1)
            _add(self.local_finished, end[1], -1)

    def _add(self, line: Line, sign: int) -> None:
        _add(self.unadmitted, (line.cluster_queue, line.reason, line.cause), sign)
        _add(self.local_unadmitted, (line.local_queue, line.cluster_queue, line.reason, line.cause), sign)
        for resource, amount in line.requests:
            sums = self.pending.setdefault(line.cluster_queue, Counter())
            _add(sums, resource, sign * amount)
            if not sums:
                del self.pending[line.cluster_queue]


def _add(counter: Counter[T], key: T, amount: int) -> None:
    left = counter[key] + amount
    if left:
        counter[key] = left
    else:
        del counter[key]
