"""Tells flavors that keep room for what is to come which sizes wait and which were started lately.

It works from the workloads' stages, from the flavors of their queues and from what is remembered of the time before.
Where no flavor asks for it nothing is counted, and it never decides anything.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from queues.core.activity import flavors_named
from queues.core.books import Books
from queues.core.demand import counts_of, flavors_of
from queues.core.model import Admission, FlavorName, ResourceFlavor, Size, Uid, Workload
from queues.core.records import Stage, WorkloadRecord
from queues.core.topology.sizes import Counted, Sizes, sizes_of

_WAITING = frozenset({Stage.QUEUED, Stage.BACKING_OFF})


class ExpectedSizes:
    def __init__(self, books: Books) -> None:
        self._sizes = books.domains.sizes
        self._remembered: dict[FlavorName, tuple[tuple[Size, int], ...]] = {}

    @property
    def asked(self) -> Collection[FlavorName]:
        """The flavors that are told."""
        return self._sizes.keys()

    def looked_at(self, record: WorkloadRecord) -> None:
        """The workload may have begun or ceased to wait."""
        if self._sizes:
            self.gone(record.uid)
            _count_waiting(record, self._sizes)

    def started(self, record: WorkloadRecord) -> None:
        """The workload holds quota from now on."""
        if self._sizes:
            self.gone(record.uid)
            _count_started(record, self._sizes)

    def gone(self, uid: Uid) -> None:
        for sizes in self._sizes.values():
            sizes.gone(uid)

    def remembered(self, flavor: FlavorName, sizes: tuple[tuple[Size, int], ...]) -> None:
        """What was started before, oldest first; only the first word on a flavor counts."""
        if flavor not in self._remembered:
            self._remembered[flavor] = sizes
            if flavor in self._sizes:
                self._sizes[flavor].remembered(sizes)

    def flavor_changed(
        self, old: ResourceFlavor | None, new: ResourceFlavor, records: Iterable[WorkloadRecord]
    ) -> None:
        """A flavor that begins to ask is told of everybody, in the order of their start. Cost then: all workloads."""
        sizes = self._sizes.get(new.name)
        if sizes is None or (old is not None and old.packing is new.packing):
            return
        for record in sorted(records, key=lambda each: (_since(each), each.uid)):
            _count_waiting(record, {new.name: sizes})
            _count_started(record, {new.name: sizes})
        sizes.remembered(self._remembered.get(new.name, ()))


def _count_waiting(record: WorkloadRecord, asked: Mapping[FlavorName, Sizes]) -> None:
    if record.stage in _WAITING and record.queue is not None:
        counted = sizes_of(record.workload.pod_sets, counts_of(record.workload))
        for flavor in flavors_named(record.queue.spec):
            if flavor in asked:
                asked[flavor].waits(record.uid, counted)


def _count_started(record: WorkloadRecord, asked: Mapping[FlavorName, Sizes]) -> None:
    if record.admission is not None:
        counted = started_sizes(record.workload, record.admission)
        for flavor in flavors_of(record.admission.pod_sets):
            if flavor in asked:
                asked[flavor].started(record.uid, counted)


def started_sizes(workload: Workload, admission: Admission) -> Counted:
    """The sizes that it started with: it may be with fewer pods than it asked for."""
    counts = {one.name: one.count for one in admission.pod_sets}
    return sizes_of(workload.pod_sets, [counts.get(pod_set.name, 0) for pod_set in workload.pod_sets])


def _since(record: WorkloadRecord) -> float:
    return 0.0 if record.admission is None else record.admission.reserved_at
