"""Finds who has to go so that a workload that holds quota already gets places for its pods.

It works from the books looking ahead, by the preemption policies of the workload's own queue, and asks for no quota.
It leaves everything as it was; who calls it carries out what it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from queues.core.activity import World
from queues.core.books import Books
from queues.core.flavors import PodSetPlan
from queues.core.model import FlavorResource
from queues.core.placing import Places, find_places
from queues.core.policy import TopologyRules
from queues.core.preemption.candidates import Need, Target
from queues.core.records import WorkloadRecord
from queues.core.refusals import Refusal


class Preempting(Protocol):
    """The part of a strategy that is needed here."""

    def find_targets(self, need: Need, books: Books) -> list[Target]: ...


@dataclass(frozen=True, slots=True)
class Room:
    """Where the pods go once these targets are gone, and all who leave already."""

    places: Places
    targets: Sequence[Target] = ()


class RoomMaker:
    def __init__(self, world: World, books: Books, rules: TopologyRules, strategy: Preempting) -> None:
        self._world = world
        self._books = books
        self._rules = rules
        self._strategy = strategy

    def now(self, plans: Sequence[PodSetPlan], *, simulate_empty: bool = False) -> Places | Refusal:
        """Cost: that of `find_places`."""
        return find_places(self._world, self._books.domains, plans, self._rules, simulate_empty=simulate_empty)

    def ahead(self, plans: Sequence[PodSetPlan]) -> Room | None:
        """With nobody gone but those who leave already."""
        with self._books.nodes_ahead():
            places = self.now(plans)
        return None if isinstance(places, Refusal) else Room(places)

    def with_evictions(self, record: WorkloadRecord, plans: Sequence[PodSetPlan]) -> Room | None:
        """None where nobody may be evicted, where that would not be enough, or not even empty nodes would be."""
        queue = record.holder
        if queue is None or queue.spec is None or not queue.is_active or record.workload.preemption_gates:
            return None
        if isinstance(self.now(plans, simulate_empty=True), Refusal):
            return None
        short = frozenset(
            FlavorResource(flavor, name)
            for plan in plans
            for name, flavor in plan.flavors.items()
            if plan.usage.get(name)
        )
        with self._books.nodes_ahead():
            # It has its quota: nothing of it is needed, and what it has counts where quota decides about victims.
            need = Need(record, queue, dict.fromkeys(short, 0), short, self._fits(plans))
            targets = self._strategy.find_targets(need, self._books)
            return self._without(targets, plans) if targets else None

    def _fits(self, plans: Sequence[PodSetPlan]) -> Callable[[], bool]:
        return lambda: not isinstance(self.now(plans), Refusal)

    def _without(self, targets: Sequence[Target], plans: Sequence[PodSetPlan]) -> Room | None:
        """The last trial of the search was with others gone too."""
        for target in targets:
            self._books.simulate(target.record, gone=True)
        places = self.now(plans)
        for target in targets:
            self._books.simulate(target.record, gone=False)
        return None if isinstance(places, Refusal) else Room(places, targets)
