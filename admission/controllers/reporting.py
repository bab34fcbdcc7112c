"""Tells the journal and the metrics what happened; both may be missing, slow or full without anything else noticing.

It remembers what was told of each Workload last, so that only news is told. It must never raise, block or be asked by
anything that decides.
"""

from __future__ import annotations

from typing import Protocol

from admission.api import names
from admission.api.kueue import Workload
from admission.api.meta import ObjectMeta
from admission.controllers import chronicle, conditions, observe, queue_rows
from admission.controllers.chronicle import Present, Seen
from admission.controllers.cluster import Cluster
from admission.controllers.metrics import Metrics
from admission.controllers.queue_metrics import QueueMetrics
from admission.controllers.store import Key
from admission.controllers.surroundings import Surroundings
from admission.controllers.tallies import Line, Tallies, unadmitted
from admission.controllers.telling import Telling
from admission.controllers.workload_metrics import Place
from queues.core import model
from queues.core.reasons import Reason
from queues.journal import entries

#: The gates whose removal is timed.
_GATES = frozenset({names.ADMISSION_GATE, names.TOPOLOGY_GATE})


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
        #: The journal was not told everything yet.
        self.is_behind = False
        self._past_use: dict[Key, entries.PastUseRow] = {}
        self._surroundings = Surroundings()
        self._tallies = Tallies()
        self._counted_cohorts: set[str] = set()
        self._telling = Telling()
        self._queues = QueueMetrics(cluster, self._tallies, cluster.settings, metrics.role)
        metrics.label_from(self._metadata)
        # The numbers of a core in doubt are nobody's; there are new ones in a moment.
        metrics.at_scrape(lambda: () if cluster.doubt is not None else self._queues.read())

    def workload(self, key: Key, workload: Workload | None, now: float, reason: Reason | None = None) -> None:
        """A Workload as it is now; None when it is gone."""
        before = self._seen.get(key)
        if before is not None and (workload is None or workload.metadata.uid != before.workload.metadata.uid):
            self._end(key, before, None, now)
            before = None
        if workload is None:
            self._tallies.forget(key)
            return
        if conditions.is_finished(workload):
            if before is not None:
                self._end(key, before, workload, now)
            self._tallies.finish(key, self._queue_of(workload), (key.namespace, workload.spec.queue_name or ""))
            return
        present = self.present(workload, reason)
        if present is None:
            return
        self._tallies.put(key, _line(present))
        seen = Seen(workload, present.charges, reason)
        if before is not None and before.is_same(seen):
            return
        self._seen[key] = seen
        if not self._tells:
            return
        news = tuple(chronicle.news(before, present, now))
        self._telling.tell(*news, workload=workload)
        self._count(None if before is None else before.workload, workload, news)
        if self._journal is not None:
            self._journal.put(*news, chronicle.row(present), *chronicle.use(before, present, now))

    def held(self, workload: Workload, reason: Reason, now: float) -> None:
        """The Workload goes on waiting, for a new reason."""
        present = self.present(workload, reason)
        if present is None:
            return
        self._tallies.put(Key(workload.metadata.namespace, workload.metadata.name), _line(present))
        decision = chronicle.held(present, reason, now)
        self._telling.tell(decision)
        if self._journal is not None:
            self._journal.put(decision, chronicle.row(present))

    def present(self, workload: Workload, reason: Reason | None) -> Present | None:
        uid = model.Uid(workload.metadata.uid)
        core = self._cluster.told.get(uid)
        if core is None:
            return None
        record = self._cluster.state.workloads.get(uid)
        charges = chronicle.NO_CHARGES if record is None or core.admission is None else dict(record.charges)
        queue = self._queue_of(workload) if core.admission is None else core.admission.cluster_queue
        goes_first = record is not None and record.group is not None and record.key[0] == 0
        asked = self._cluster.state.expected_sizes.asked
        return Present(workload, core, queue, charges, reason, goes_first, asked)

    def ungated(self) -> None:
        """Counts the gates that came off pods since it was asked last."""
        pods, self._cluster.ungated = self._cluster.ungated, []
        for pod, gate in pods:
            name = observe.workload_name(pod)
            workload = None if name is None else self._cluster.tables.workloads.get(pod.metadata.namespace, name)
            if workload is None or workload.status.admission is None or gate not in _GATES:
                continue
            admitted_at = conditions.since(workload, names.ADMITTED)
            if admitted_at is None or not conditions.is_admitted(workload):
                continue
            exact = self._cluster.values.decided_at.get(workload.metadata.uid, 0.0)
            since = exact if int(exact) == int(admitted_at) else admitted_at
            self._metrics.workloads.ungated(
                gate,
                workload.status.admission.cluster_queue,
                self._cluster.look.now - since,
                is_group=names.POD_GROUP_NAME in pod.metadata.labels,
            )

    def cluster_queue(self, name: str) -> None:
        queue = self._cluster.tables.cluster_queues.get("", name)
        if queue is None:
            self._metrics.forget_cluster_queue(model.ClusterQueueName(name))
            self._put(entries.QueueRemoved(name))
            return
        if self._journal is not None:
            self._put(queue_rows.cluster_queue(observe.cluster_queue(queue), self._cluster.state))

    def local_queue(self, key: Key) -> None:
        queue = self._cluster.tables.local_queues.get(*key)
        if queue is None:
            self._metrics.forget_local_queue(model.ObjectKey(*key))
            self._past_use.pop(key, None)
            self._put(entries.LocalQueueRemoved(*key))
            return
        if self._journal is not None:
            self._put(queue_rows.local_queue(observe.local_queue(queue), self._cluster.state))
            past = queue_rows.past_use(queue, self._cluster.state)
            if past is not None and self._past_use.get(key) != past:
                self._past_use[key] = past
                self._put(past)

    def surroundings(self, now: float) -> None:
        """What changed around the queues: cohorts, flavors, nodes."""
        if (
            self._journal is not None
            and self._tells
            and (news := tuple(self._surroundings.news(self._cluster.state, now)))
        ):
            self._put(*news)

    def begin(self) -> None:
        """From now on changes are told. The journal hears of everything else once there is time: see `catch_up`."""
        self._tells = True
        self.is_behind = self._journal is not None

    def catch_up(self, now: float) -> None:
        """After the start, when nothing more urgent is left to be looked at."""
        if self.is_behind and not self._cluster.dirty.workloads:
            self.reset(now)

    def owes(self) -> float | None:
        """When it has something to tell though nothing happens; None: never."""
        return self._surroundings.owed()

    def reset(self, now: float) -> None:
        """The whole truth: after the start, and when the journal lost something."""
        self._tells = True
        self.is_behind = False
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
                past_use=tuple(
                    past for queue in tables.local_queues if (past := queue_rows.past_use(queue, state)) is not None
                ),
                usage=tuple(
                    chronicle.started(each, each.core.admission.reserved_at)
                    for each in present
                    if each.charges and each.core.admission is not None
                ),
                surroundings=self._surroundings.everything(state, now),
            )
        )

    def health(self, now: float) -> None:
        """From time to time: a journal that lost rows is told everything again, and series of cohorts go with them."""
        if self._journal is not None and self._journal.health().reset_wanted:
            self.reset(now)
        self.surroundings(now)
        for cohort in self._counted_cohorts - set(self._cluster.state.cohorts()):
            self._metrics.forget_cohort(cohort)
            self._counted_cohorts.discard(cohort)

    def journal_health(self) -> tuple[int, float]:
        """How many entries the journal dropped, and the age in seconds of the oldest that it has not written."""
        if self._journal is None:
            return 0, 0.0
        health = self._journal.health()
        return health.dropped, health.lag

    # ------------------------------------------------------------------ counting

    def _count(self, before: Workload | None, workload: Workload, news: tuple[entries.Decision, ...]) -> None:
        counted = self._metrics.workloads
        place: Place | None = None
        for decision in news:
            if decision.kind is entries.Kind.CREATED:
                self._count_creation(workload)
                continue
            if place is None or place.cluster_queue != decision.cluster_queue:
                place = self._place(decision.cluster_queue, workload)
            counted.step(decision, before, workload, place)
        if before is not None and workload.status.admission is not None:
            counted.became_ready(before, workload, self._place(workload.status.admission.cluster_queue, workload))

    def _count_creation(self, workload: Workload) -> None:
        """How long it took from the job, or the last pod of a group, to the Workload."""
        metadata = workload.metadata
        owners = metadata.owner_references
        made = [
            found.metadata.created_at
            for owner in owners
            if (found := self._cluster.look.owner(metadata.namespace, owner)) is not None
        ]
        if made:
            self._metrics.workloads.created(owners[0].kind, metadata.created_at - max(made))

    def _place(self, cluster_queue: str, workload: Workload) -> Place:
        namespace, name = workload.metadata.namespace, workload.spec.queue_name or ""
        shown = self._queues.shows(namespace, name)
        above = self._cluster.state.cohorts_above(model.ClusterQueueName(cluster_queue))
        self._counted_cohorts.update(above)
        return Place(cluster_queue, (name, namespace) if shown else None, above)

    def _metadata(self, kind: str, namespace: str, name: str) -> ObjectMeta | None:
        found = self._cluster.tables.of(kind).get(namespace, name)
        return None if found is None else found.metadata

    def _queue_of(self, workload: Workload) -> str:
        """The ClusterQueue that it holds quota in, or held at its end, or else waits in."""
        admission = workload.status.admission
        if admission is not None:
            return admission.cluster_queue
        local = self._cluster.tables.local_queues.get(workload.metadata.namespace, workload.spec.queue_name or "")
        return "" if local is None else local.spec.cluster_queue

    def _end(self, key: Key, before: Seen, after: Workload | None, now: float) -> None:
        del self._seen[key]
        told = tuple(chronicle.ended(before, after, now))
        for entry in told:
            if isinstance(entry, entries.Decision):
                workload = before.workload if after is None else after
                self._telling.tell(entry, workload=workload)
                place = self._place(entry.cluster_queue, workload)
                self._metrics.workloads.step(entry, before.workload, workload, place)
        self._put(*told)

    def _put(self, *told: entries.Entry) -> None:
        if self._journal is not None:
            self._journal.put(*told)


def _line(present: Present) -> Line | None:
    """What it counts as among those that wait; None once it is admitted."""
    workload, core = present.workload, present.core
    why = unadmitted(workload)
    if why is None:
        return None
    waits = core.admission is None and core.held is None
    return Line(
        present.cluster_queue,
        (workload.metadata.namespace, workload.spec.queue_name or ""),
        *why,
        requests=tuple(chronicle.requests(core).items()) if waits else (),
    )
