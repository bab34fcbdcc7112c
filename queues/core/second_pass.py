"""Looks again at workloads that hold quota but lack places: a host failed under them, or checks came first.

It works from what they hold and from what is free on nodes, and takes no quota. For a failed host nobody else is
evicted: without a place the workload has to go itself. One whose topology was delayed may evict others as anybody may
who waits, and keeps the places that these leave.
"""

from __future__ import annotations

from dataclasses import replace

from queues.core.activity import World
from queues.core.books import Books
from queues.core.flavors import PodSetPlan
from queues.core.model import Admission, FlavorName, PodSet, PodSetAssignment, TopologyAssignment, Uid
from queues.core.placing import Places
from queues.core.plan import Decision, GiveUp, Place
from queues.core.policy import Policy, TopologyRules
from queues.core.preemption.wording import eviction
from queues.core.records import Claim, WorkloadRecord
from queues.core.refusals import Refusal
from queues.core.room import Preempting, Room, RoomMaker
from queues.core.topology.placement import NoPlacement, assuming
from queues.core.topology.replacement import Lost, replaced


class SecondPass:
    """`waiting` are all that lack places; of these `fresh` are to be looked at."""

    def __init__(self, books: Books, world: World) -> None:
        self.books = books
        self.world = world
        self.waiting: dict[Uid, WorkloadRecord] = {}
        self.fresh: dict[Uid, None] = {}

    def told(self, record: WorkloadRecord) -> None:
        """The shell said what the workload is now."""
        if _lacks_places(record):
            self.waiting[record.uid] = record
            self.fresh[record.uid] = None
        else:
            self.forget(record.uid)

    def forget(self, uid: Uid) -> None:
        record = self.waiting.pop(uid, None)
        self.fresh.pop(uid, None)
        if record is not None:
            self.books.unclaim(record)

    def look_again(self) -> None:
        """At all of them, as if they were new."""
        self.fresh.update(dict.fromkeys(self.waiting))

    def decide(self, policy: Policy, strategy: Preempting) -> list[Decision]:
        """Cost: a placement for each workload that lacks places, when it is new or nodes have more room.

        For a delayed topology without one, also that of a search for victims.
        """
        if not self.waiting:
            return []
        if self.books.nodes_stirred or self.books.roomier or self.books.stirred:
            self.look_again()
        room = RoomMaker(self.world, self.books, policy.topology, strategy)
        found: list[Decision] = []
        fresh, self.fresh = self.fresh, {}
        for record in sorted((self.waiting[uid] for uid in fresh), key=_turn):
            admission = record.admission
            if admission is None or record.evicted:
                self.forget(record.uid)
                continue
            if record.workload.failed_hosts:
                found += self._replace(record, admission, policy.topology)
            else:
                found += self._place(record, admission, room)
        return found

    def _placed(self, record: WorkloadRecord, admission: Admission, places: Places) -> Place:
        """From now on it holds these places."""
        self.forget(record.uid)
        pod_sets = tuple(
            [
                replace(one, topology=places[one.name], is_delayed=False) if one.name in places else one
                for one in admission.pod_sets
            ]
        )
        placed = replace(admission, pod_sets=pod_sets)
        self.books.recharge(record, placed)
        return Place(record.uid, placed)

    # ------------------------------------------------------------------ a failed host

    def _replace(self, record: WorkloadRecord, admission: Admission, rules: TopologyRules) -> list[Decision]:
        failed = frozenset(record.workload.failed_hosts)
        places = self._replaced(record, failed, rules)
        if isinstance(places, NoPlacement):
            return self._give_up(record, failed, places) if rules.fails_fast else []
        return [self._placed(record, admission, places)] if places else []

    def _give_up(self, record: WorkloadRecord, failed: frozenset[str], why: NoPlacement) -> list[Decision]:
        self.forget(record.uid)
        self.books.leave(record)
        hosts = tuple(sorted(failed))
        return [GiveUp(record.uid, hosts, f"No replacement for node(s) {', '.join(hosts)}: {why.message}")]

    def _replaced(
        self, record: WorkloadRecord, failed: frozenset[str], rules: TopologyRules
    ) -> dict[str, TopologyAssignment] | NoPlacement:
        """Where the pods of the failed hosts go, by pod set; later pod sets see what earlier ones take."""
        assert record.admission is not None  # noqa: S101
        pod_sets = {pod_set.name: pod_set for pod_set in record.workload.pod_sets}
        assignments = {one.name: one for one in record.admission.pod_sets}
        found: dict[str, TopologyAssignment] = {}
        with assuming(self.books.domains) as assume:
            for name, one in assignments.items():
                if one.topology is None or all(each.values[-1] not in failed for each in one.topology.domains):
                    continue
                flavor = self._flavor(one)
                topology = None if flavor is None else self.world.flavors[flavor].topology
                if flavor is None or topology is None or name not in pod_sets:
                    return NoPlacement(name, "its flavor has no topology any more")
                pod_set = pod_sets[name]
                lost = Lost(pod_set, one.topology, failed, _mates(pod_set, record, assignments))
                result = replaced(self.books.domains, flavor, topology, lost, rules)
                if isinstance(result, NoPlacement):
                    return result
                found[name] = result
                assume(flavor, _added(lost, result), pod_set.node_requests)
        return found

    def _flavor(self, one: PodSetAssignment) -> FlavorName | None:
        names = sorted(set(one.flavors.values()))
        return next((name for name in names if self.books.domains.levels_of(name) is not None), None)

    # ------------------------------------------------------------------ a delayed topology

    def _place(self, record: WorkloadRecord, admission: Admission, room: RoomMaker) -> list[Decision]:
        """Its places, or those who have to go for them; it waits for these, and keeps what they leave."""
        pod_sets = {pod_set.name: pod_set for pod_set in record.workload.pod_sets}
        plans = [
            PodSetPlan(pod_sets[one.name], one.count, dict(one.flavors), dict(one.usage))
            for one in admission.pod_sets
            if one.is_delayed and one.topology is None and one.name in pod_sets
        ]
        victims = {} if record.claim is None else dict(record.claim.victims)
        self.books.unclaim(record)
        places = room.now(plans)
        if not isinstance(places, Refusal):
            return [self._placed(record, admission, places)] if places else []
        found = room.ahead(plans)
        if found is not None:
            self._claim(record, admission, found, victims)
            return []
        found = room.with_evictions(record, plans)
        if found is None:
            return []
        for target in found.targets:
            self.forget(target.record.uid)
            self.books.leave(target.record)
        self._claim(record, admission, found, {target.record.uid: target.record for target in found.targets})
        assert record.holder is not None  # noqa: S101
        return [eviction(record, record.holder, target) for target in found.targets]

    def _claim(
        self, record: WorkloadRecord, admission: Admission, room: Room, victims: dict[Uid, WorkloadRecord]
    ) -> None:
        assignments = tuple(
            [replace(one, topology=room.places[one.name]) for one in admission.pod_sets if one.name in room.places]
        )
        self.books.claim(Claim(record, assignments, {}, victims))


def _lacks_places(record: WorkloadRecord) -> bool:
    admission = record.admission
    if admission is None or record.evicted:
        return False
    workload = record.workload
    if workload.is_to_be_placed and any(one.is_delayed and one.topology is None for one in admission.pod_sets):
        return True
    failed = workload.failed_hosts
    return bool(failed) and any(
        each.values[-1] in failed for one in admission.pod_sets if one.topology for each in one.topology.domains
    )


def _turn(record: WorkloadRecord) -> tuple[int, float, Uid]:
    return (-record.priority, record.workload.queued_at, record.uid)


def _mates(
    pod_set: PodSet, record: WorkloadRecord, assignments: dict[str, PodSetAssignment]
) -> TopologyAssignment | None:
    group = None if pod_set.topology is None else pod_set.topology.pod_set_group
    if group is None:
        return None
    for other in record.workload.pod_sets:
        if other is not pod_set and other.topology is not None and other.topology.pod_set_group == group:
            return assignments[other.name].topology if other.name in assignments else None
    return None


def _added(lost: Lost, result: TopologyAssignment) -> TopologyAssignment:
    """What the replacement takes that the assignment did not have before."""
    before = {each.values: each.count for each in lost.kept}
    return replace(
        result,
        domains=tuple(
            [
                replace(each, count=each.count - before.get(each.values, 0))
                for each in result.domains
                if each.count > before.get(each.values, 0)
            ]
        ),
    )
