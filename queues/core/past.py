"""Keeps the past use of every LocalQueue up to date, and its place among the others by it.

It works from what the books count as admitted, from who entered lately, and from `now` as told. Each change is counted
from the moment it is heard of; the rest at every sampling interval. It never judges whether anything fits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from queues.core.books import Books
from queues.core.model import ObjectKey, ResourceName, Timestamp, Uid
from queues.core.policy import AdmissionFairSharing
from queues.core.quantities import CPU
from queues.core.records import LocalQueueRecord, QueueRecord, Stage, WorkloadRecord
from queues.core.usage_history import NO_USE, PARTS, WEIGHT_ONE, History, Level, level_of, micros
from queues.core.waiting import Waiting


@dataclass(frozen=True, slots=True)
class Sample:
    """What is told about a LocalQueue's past use: as of the last sampling, `consumed` in the core's units."""

    consumed: Mapping[ResourceName, Fraction]
    at: Timestamp
    level: Level


class PastUse:
    """Without rules nothing is remembered, and nothing costs anything."""

    def __init__(self, books: Books, waiting: Waiting) -> None:
        self.books = books
        self.waiting = waiting
        self.rules: AdmissionFairSharing | None = None
        #: The latest time told, and the same in microseconds while there are rules.
        self._latest: Timestamp = 0.0
        self.now = 0
        #: When everybody's use is sampled next, in microseconds.
        self.next_sample = 0
        #: Who began to hold quota since the last look.
        self._entered: dict[Uid, WorkloadRecord] = {}
        #: Who has anything to forget.
        self._remembered: dict[LocalQueueRecord, None] = {}
        self._restored: dict[ObjectKey, tuple[dict[ResourceName, int], int]] = {}
        self._factors: dict[ResourceName, Fraction] = {}

    # ------------------------------------------------------------------ what happens

    def entered(self, record: WorkloadRecord) -> None:
        self._entered[record.uid] = record

    def confirmed(self, record: WorkloadRecord) -> None:
        """It is admitted, and that was written."""
        home = record.home
        if home is not None and home.history is not None and home.history.settle(record.uid):
            self.books.recounted[home] = None

    def left(self, record: WorkloadRecord) -> None:
        """It holds nothing any more, or another LocalQueue counts it from now on."""
        self._entered.pop(record.uid, None)
        home = record.home
        if home is not None and home.history is not None and home.history.drop(record.uid):
            self.books.recounted[home] = None

    def restored(self, key: ObjectKey, consumed: Mapping[ResourceName, Fraction], at: Timestamp) -> None:
        """What was known before a restart. The newest counts, and only where nothing newer is remembered."""
        known = self._restored.get(key)
        if known is None or known[1] < micros(at):
            # Rounded up, so that what was rounded down when it was written is written the same again.
            self._restored[key] = ({name: ceil(amount * PARTS) for name, amount in consumed.items()}, micros(at))
            home = self.books.local_queues.get(key)
            if home is not None:
                self.books.recounted[home] = None

    def forget(self, key: ObjectKey) -> None:
        """The LocalQueue was deleted: another one of its name begins anew."""
        self._restored.pop(key, None)
        home = self.books.local_queues.get(key)
        if home is not None:
            self._untrack(home)

    def changed(self, queue: QueueRecord) -> None:
        """Whether past use decides the order in this ClusterQueue may have changed."""
        is_used = self.rules is not None and queue.spec is not None and queue.spec.usage_based
        if queue.order.by_usage is not is_used:
            queue.order.regroup(strict=queue.order.is_strict, by_usage=is_used)
            self.waiting.wake_queue(queue)
        for home in queue.homes.values():
            self.books.recounted[home] = None

    # ------------------------------------------------------------------ keeping up

    def begin(self, now: Timestamp, rules: AdmissionFairSharing | None) -> None:
        """Before deciding."""
        self._latest = max(self._latest, now)
        if rules is not None:
            self.now = micros(self._latest)
        if rules != self.rules:
            self._set_rules(rules)
        if rules is None:
            self._entered.clear()
            self._restored.clear()
            self.books.recounted.clear()
            return
        self.catch_up()
        if self.now >= self.next_sample:
            self.next_sample = self.now + micros(rules.sampling_interval)
            for home in list(self._remembered):
                self._look_at(home, sample=True)

    def catch_up(self) -> None:
        """Count what happened since the last look. Cost: the LocalQueues that anything happened to."""
        if self.rules is None:
            return
        entered, self._entered = self._entered, {}
        for record in entered.values():
            self._enter(record, self.rules)
        recounted, self.books.recounted = self.books.recounted, {}
        for home in recounted:
            self._look_at(home)

    def next_due(self) -> Timestamp | None:
        return self.next_sample / 1e6 if self.rules is not None and self._remembered else None

    def _set_rules(self, rules: AdmissionFairSharing | None) -> None:
        self.rules = rules
        self.next_sample = self.now + (0 if rules is None else micros(rules.sampling_interval))
        self._factors = {CPU: Fraction(1, 1000)}
        for name, weight in () if rules is None else rules.resource_weights:
            self._factors[name] = weight / 1000 if name == CPU else weight
        for queue in self.books.queues.values():
            self.changed(queue)
        for home in self.books.local_queues.values():
            self.books.recounted[home] = None
            if rules is None:
                self._untrack(home)

    def _history_of(self, home: LocalQueueRecord) -> History | None:
        """None where past use makes no difference."""
        rules = self.rules
        queue = None if home.spec is None else self.books.queues.get(home.spec.cluster_queue)
        spec = None if queue is None else queue.spec
        if rules is None or spec is None or not (spec.usage_based or rules.across_cohorts):
            if home.spec is None or spec is not None:
                self._untrack(home)
            return home.history
        if home.history is None:
            home.history = History()
            known = self._restored.pop(home.key, None)
            if known is not None:
                home.history.restore(*known, _held(home))
                home.sample = self._sample(home, home.history)
        return home.history

    def _untrack(self, home: LocalQueueRecord) -> None:
        home.history, home.sample = None, None
        self._remembered.pop(home, None)
        self._put(home, NO_USE, Fraction(0))

    def _enter(self, record: WorkloadRecord, rules: AdmissionFairSharing) -> None:
        home = record.home
        history = None if home is None else self._history_of(home)
        if home is None or history is None or record.stage is not Stage.HOLDING or record.admission is None:
            return
        told = record.workload.admission
        if told is not None and told.admitted and micros(told.reserved_at) <= (history.updated_at or 0):
            return  # it was charged before it was heard of here
        amounts: dict[ResourceName, int] = {}
        for unit, amount in record.charges.items():
            amounts[unit.resource] = amounts.get(unit.resource, 0) + amount
        history.enter(record.uid, amounts, micros(rules.sampling_interval), micros(rules.half_life))
        if told is not None and told.admitted:
            history.settle(record.uid)
        self.books.recounted[home] = None

    def _look_at(self, home: LocalQueueRecord, *, sample: bool = False) -> None:
        rules, history = self.rules, self._history_of(home)
        if rules is None or history is None or self.books.local_queues.get(home.key) is not home:
            self._remembered.pop(home, None)
            return
        history.advance(self.now, _held(home), micros(rules.half_life))
        used = history.used(self._factors)
        self._put(home, _level(home, used), used)
        if sample or (home.sample is None and not history.is_empty):
            home.sample = self._sample(home, history)
            self.books.changed_local_queues[home.key] = None
        if not history.is_empty:
            self._remembered[home] = None
        elif sample:
            self._remembered.pop(home, None)

    def _sample(self, home: LocalQueueRecord, history: History) -> Sample:
        consumed = {name: Fraction(amount, PARTS) for name, amount in sorted(history.consumed.items())}
        return Sample(consumed, (history.updated_at or 0) / 1e6, _level(home, history.used(self._factors)))

    def _put(self, home: LocalQueueRecord, level: Level, used: Fraction) -> None:
        home.used = used
        if home.level == level:
            return
        home.level = level
        queue = None if home.spec is None else self.books.queues.get(home.spec.cluster_queue)
        if queue is not None and queue.order.by_usage:
            queue.order.relevel(home)
            self.books.changed_local_queues[home.key] = None
            if queue.is_active:
                self.waiting.active[queue] = None


def _held(home: LocalQueueRecord) -> dict[ResourceName, int]:
    held: dict[ResourceName, int] = {}
    for unit, amount in home.admitted.items():
        held[unit.resource] = held.get(unit.resource, 0) + amount
    return held


def _level(home: LocalQueueRecord, used: Fraction) -> Level:
    return level_of(used, WEIGHT_ONE if home.spec is None else home.spec.fair_weight)
