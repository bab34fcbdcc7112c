"""The slow look at everything: the safety net under the events, in slices that nobody notices.

It compares what the core was told with what the objects say now and marks everything dirty, in turn; what only this
found is counted, since each such find is a bug somewhere. It must never take more than a short slice of a turn.
"""

from __future__ import annotations

from collections import deque

from admission.controllers import conditions
from admission.controllers.cluster import Cluster
from admission.controllers.metrics import Metrics
from admission.controllers.store import Key, key_of
from admission.controllers.tokens import OfSweep
from admission.controllers.wakes import Wakes
from admission.jobs.interface import UnitKey

_SLICE = 100


class Sweep:
    """Every `period` seconds."""

    def __init__(self, cluster: Cluster, wakes: Wakes, metrics: Metrics, period: float = 300.0) -> None:
        self._cluster = cluster
        self._wakes = wakes
        self._metrics = metrics
        self._period = period
        self._workloads: deque[Key] = deque()
        self._units: deque[UnitKey] = deque()

    @property
    def is_under_way(self) -> bool:
        return bool(self._workloads or self._units)

    def plan(self, now: float) -> None:
        self._wakes.at(OfSweep(), now + self._period)

    def begin(self, now: float) -> None:
        self._workloads = deque(key_of(workload) for workload in self._cluster.tables.workloads)
        self._units = deque(self._cluster.units.all())
        dirty = self._cluster.dirty
        for queue in self._cluster.tables.cluster_queues:
            dirty.cluster_queues[queue.metadata.name] = None
            dirty.finalizers["ClusterQueue", queue.metadata.name] = None
        for local_queue in self._cluster.tables.local_queues:
            dirty.local_queues[key_of(local_queue)] = None
        self.plan(now)

    def slice(self, now: float) -> None:
        del now
        for _ in range(min(_SLICE, len(self._workloads))):
            self._look_at(self._workloads.popleft())
        for _ in range(min(_SLICE, len(self._units))):
            self._cluster.dirty.units[self._units.popleft()] = None

    def _look_at(self, key: Key) -> None:
        workload = self._cluster.tables.workloads.get(*key)
        if workload is None or key in self._cluster.dirty.workloads:
            return
        told = self._cluster.told.get(workload.metadata.uid)
        stale = told is not None if conditions.is_finished(workload) else told != self._cluster.value(workload)
        if stale:
            self._metrics.swept("Workload")
        self._cluster.dirty.workloads[key] = None
