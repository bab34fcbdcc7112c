"""Tells the journal and the metrics what happened; both may be missing, slow or full without anything else noticing.

It remembers what was told of each Workload last, so that only news is told. It must never raise, block or be asked by
anything that decides.
"""

from __future__ import annotations

from typing import Protocol

from admission.api.kueue import Workload
from admission.controllers import chronicle, conditions, observe, queue_rows
from admission.controllers.chronicle import Present, Seen
from admission.controllers.cluster import Cluster
from admission.controllers.metrics import Metrics
from admission.controllers.store import Key
from queues.core import model
from queues.core.reasons import Reason
from queues.journal import entries


class Health(Protocol):
    """How the journal keeps up. `reset_wanted`: it may miss rows until it is told everything again."""

    @property
    def dropped(self) -> int: ...

    @property
    def lag(self) -> float: ...

    @property
    def reset_wanted(self) -> bool: ...


class Sink(Protocol):
    """The journal, as far as the controller knows it; its database's libraries are not needed to begin."""

    def put(self, *entries: entries.Entry) -> None: ...

    def health(self) -> Health: ...


class Reporting:
    """`reset` tells everything at once; afterwards each change is told as it is taken in."""

    def __init__(self, cluster: Cluster, metrics: Metrics, journal: Sink | None) -> None:
        self._cluster = cluster
        self._metrics = metrics
        self._journal = journal
        self._seen: dict[Key, Seen] = {}
        self._tells = False

    def workload(self, key: Key, workload: Workload | None, now: float, reason: Reason | None = None) -> None:
        """A Workload as it is now; None when it is gone."""
        before = self._seen.get(key)
        if before is not None and (workload is None or workload.metadata.uid != before.workload.metadata.uid):
            self._end(key, before, None, now)
            before = None
        if workload is None:
            return
        if conditions.is_finished(workload):
            if before is not None:
                self._end(key, before, workload, now)
            return
        present = self.present(workload, reason)
        if present is None:
            return
        seen = Seen(workload, present.charges, reason)
        if before is not None and before.is_same(seen):
            return
        self._seen[key] = seen
        if not self._tells:
            return
        news = tuple(chronicle.news(before, present, now))
        for decision in news:
            self._metrics.step(decision, workload)
        if self._journal is not None:
            self._journal.put(*news, chronicle.row(present), *chronicle.use(before, present, now))

    def held(self, workload: Workload, reason: Reason, now: float) -> None:
        """The Workload goes on waiting, for a new reason."""
        present = self.present(workload, reason)
        if present is not None and self._journal is not None:
            self._journal.put(chronicle.held(present, reason, now), chronicle.row(present))

    def present(self, workload: Workload, reason: Reason | None) -> Present | None:
        uid = model.Uid(workload.metadata.uid)
        core = self._cluster.told.get(uid)
        if core is None:
            return None
        record = self._cluster.state.workloads.get(uid)
        charges = {} if record is None or core.admission is None else dict(record.charges)
        if core.admission is not None:
            queue: str = core.admission.cluster_queue
        else:
            local = self._cluster.tables.local_queues.get(core.queue.namespace, core.queue.name)
            queue = "" if local is None else local.spec.cluster_queue
        return Present(workload, core, queue, charges, reason)

    def cluster_queue(self, name: str) -> None:
        queue = self._cluster.tables.cluster_queues.get("", name)
        if queue is None:
            self._metrics.forget_cluster_queue(model.ClusterQueueName(name))
            self._put(entries.QueueRemoved(name))
            return
        value = observe.cluster_queue(queue)
        self._metrics.cluster_queue(value, self._cluster.state)
        if self._journal is not None:
            self._put(queue_rows.cluster_queue(value, self._cluster.state))

    def local_queue(self, key: Key) -> None:
        queue = self._cluster.tables.local_queues.get(*key)
        core_key = model.ObjectKey(*key)
        if queue is None:
            self._metrics.forget_local_queue(core_key)
            self._put(entries.LocalQueueRemoved(*key))
            return
        self._metrics.local_queue(core_key, self._cluster.state)
        if self._journal is not None:
            self._put(queue_rows.local_queue(observe.local_queue(queue), self._cluster.state))

    def reset(self, now: float) -> None:
        """The whole truth: after the start, and when the journal lost something."""
        self._tells = True
        if self._journal is None:
            return
        state, tables = self._cluster.state, self._cluster.tables
        present = [
            found
            for workload in tables.workloads
            if (found := self.present(workload, state.reason(model.Uid(workload.metadata.uid)))) is not None
        ]
        self._put(
            entries.Reset(
                at=now,
                workloads=tuple(chronicle.row(each) for each in present),
                queues=tuple(
                    queue_rows.cluster_queue(observe.cluster_queue(queue), state) for queue in tables.cluster_queues
                ),
                local_queues=tuple(
                    queue_rows.local_queue(observe.local_queue(queue), state) for queue in tables.local_queues
                ),
                usage=tuple(
                    chronicle.started(each, each.core.admission.reserved_at)
                    for each in present
                    if each.charges and each.core.admission is not None
                ),
            )
        )

    def health(self, now: float, events_dropped: int) -> None:
        """Looked at from time to time; a journal that has lost rows is told everything again."""
        dropped, lag = 0, 0.0
        if self._journal is not None:
            health = self._journal.health()
            dropped, lag = health.dropped, health.lag
            if health.reset_wanted:
                self.reset(now)
        self._metrics.health(events_dropped=events_dropped, journal_dropped=dropped, journal_lag=lag)

    def _end(self, key: Key, before: Seen, after: Workload | None, now: float) -> None:
        del self._seen[key]
        told = tuple(chronicle.ended(before, after, now))
        for entry in told:
            if isinstance(entry, entries.Decision):
                self._metrics.step(entry, before.workload)
        self._put(*told)

    def _put(self, *told: entries.Entry) -> None:
        if self._journal is not None:
            self._journal.put(*told)
