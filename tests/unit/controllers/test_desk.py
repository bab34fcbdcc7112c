"""Decisions on their way out, and what the core knows while they are: the order in which it is told decides."""

from __future__ import annotations

from collections.abc import Hashable

import msgspec
import pytest

from admission.api import kueue, names
from admission.api.meta import ObjectMeta
from admission.controllers import decisions
from admission.controllers.act import Errand, Fate, Report, Written, touched
from admission.controllers.cluster import Cluster
from admission.controllers.desk import Desk
from admission.controllers.errands import Errands
from admission.controllers.inbox import Observed
from admission.controllers.metrics import Metrics
from admission.controllers.reporting import Reporting
from admission.controllers.rules import Ownership
from admission.controllers.store import key_of
from admission.controllers.tokens import OfDecision, OfWorkload
from admission.controllers.wakes import Wakes
from admission.jobs.registry import adapters
from admission.kube.informers import Upserted
from queues.core import model
from queues.core.cycle import decide
from queues.core.plan import Admit, Evict
from queues.core.policy import Policy
from tests.unit.controllers.builders import NOW, cluster_queue, local_queue, settings, workload

PREEMPTION = kueue.ClusterQueuePreemption(within_cluster_queue="LowerPriority")
CPU = model.FlavorResource(model.FlavorName("default"), model.ResourceName("cpu"))
FLAVOR = kueue.ResourceFlavor(metadata=ObjectMeta(name="default", uid="uid-default", resource_version="1"))


class Outbox:
    """Errands that were started and whose end the test chooses."""

    is_crowded = False

    def __init__(self) -> None:
        self.errands: list[Errand] = []

    def is_busy(self, *keys: Hashable) -> bool:
        return any(key in touched(errand) for errand in self.errands for key in keys)

    def start(self, errand: Errand) -> None:
        self.errands.append(errand)

    def settle(self, errand: Errand) -> None:
        self.errands.remove(errand)


class Office:
    """A desk with its cluster: a queue of 2 cpu in which the higher priority preempts."""

    def __init__(self) -> None:
        self.cluster = Cluster(settings(), adapters(settings()), lambda: NOW)
        self.outbox, self.wakes, metrics = Outbox(), Wakes(), Metrics(settings())
        self.reporting = Reporting(self.cluster, metrics, None)
        self.desk = Desk(
            self.cluster,
            Errands(self.outbox, self.wakes),  # type: ignore[arg-type]  # what it needs of an actor
            self.wakes,
            self.reporting,
            metrics,
            self.outbox,  # type: ignore[arg-type]
        )
        self.see(FLAVOR, cluster_queue(nominal="2", preemption=PREEMPTION), local_queue())

    def see(self, *objects: object) -> None:
        for obj in objects:
            self.cluster.take(Observed(obj.kind, Upserted(obj)))  # type: ignore[attr-defined]

    def turn(self) -> None:
        self.desk.workloads(NOW)
        self.desk.carry_out(decide(self.cluster.state, NOW, Policy()), NOW)

    def written(self, errand: Errand, after: kueue.Workload) -> None:
        """The write has succeeded: first comes the object, then the end."""
        self.cluster.take(Written("Workload", after))
        self.desk.take(Report(errand, Fate.DONE), NOW)

    def told(self) -> None:
        """Reasons that were being written are."""
        for errand in [each for each in self.outbox.errands if each.purpose is None]:
            self.desk.take(Report(errand, Fate.DONE), NOW)

    def errand_of(self, kind: type[Admit | Evict]) -> Errand:
        (found,) = [errand for errand in self.outbox.errands if isinstance(errand.purpose, kind)]
        return found

    def decisions(self) -> list[str]:
        purposes = [each.purpose for each in self.outbox.errands]
        return [f"{type(each).__name__} {each.uid}" for each in purposes if isinstance(each, Admit | Evict)]


def next_version(before: kueue.Workload, after: kueue.Workload) -> kueue.Workload:
    version = str(int(before.metadata.resource_version) + 1)
    return msgspec.structs.replace(after, metadata=msgspec.structs.replace(after.metadata, resource_version=version))


@pytest.fixture
def office() -> Office:
    return Office()


def test_what_is_evicted_as_soon_as_it_is_admitted_waits_again(office: Office) -> None:
    """The eviction is decided while the admission is being written, and carried out right after it."""
    low = workload("low").obj
    office.see(low)
    office.turn()
    admission = office.errand_of(Admit)
    office.see(workload("high").spec(priority=5).obj)
    office.turn()
    office.told()
    assert office.decisions() == ["Admit uid-low"], "one write at a time"

    assert isinstance(admission.purpose, Admit)
    admitted = next_version(low, decisions.admit(low, admission.purpose, NOW))
    office.written(admission, admitted)
    eviction = office.errand_of(Evict)
    assert isinstance(eviction.purpose, Evict)
    released = next_version(admitted, decisions.preempt(admitted, eviction.purpose, Ownership.NONE, NOW))
    office.written(eviction, released)
    office.turn()
    assert office.decisions() == ["Admit uid-high"]


@pytest.mark.parametrize("in_one_decision", [True, False])
def test_an_eviction_is_written_after_the_admissions_that_made_it_needed(
    office: Office, *, in_one_decision: bool
) -> None:
    """The higher one takes what is free, so the other has to evict: in that order it is told."""
    low = workload("low").obj
    office.see(low)
    office.turn()
    first = office.errand_of(Admit)
    assert isinstance(first.purpose, Admit)
    office.written(first, next_version(low, decisions.admit(low, first.purpose, NOW)))
    high, middle = workload("high").spec(priority=5).obj, workload("middle").spec(priority=4).obj
    larger = cluster_queue(nominal="4", preemption=PREEMPTION)
    metadata = msgspec.structs.replace(larger.metadata, resource_version="100")
    office.see(msgspec.structs.replace(larger, metadata=metadata), high)
    if not in_one_decision:
        office.turn()
    office.see(middle)
    office.turn()
    office.told()
    assert office.decisions() == ["Admit uid-high"], "the eviction waits for the admission"

    admission = office.errand_of(Admit)
    assert isinstance(admission.purpose, Admit)
    office.written(admission, next_version(high, decisions.admit(high, admission.purpose, NOW)))
    assert office.decisions() == ["Evict uid-low"]


def test_an_admission_without_an_answer_keeps_its_quota_and_is_written_again(office: Office) -> None:
    """It may have been stored, and it was: the second write runs into the first."""
    low = workload("low").obj
    office.see(low)
    office.turn()
    first = office.errand_of(Admit)
    office.desk.take(Report(first, Fate.UNAVAILABLE, "no answer"), NOW)
    office.see(workload("other").obj)
    office.turn()
    office.told()
    assert office.decisions() == [], "nobody else gets the quota meanwhile"

    office.desk.look_at(OfDecision(model.Uid("uid-low")), NOW + 60)
    again = office.errand_of(Admit)
    assert again.purpose == first.purpose
    assert isinstance(again.purpose, Admit)
    office.cluster.take(Written("Workload", next_version(low, decisions.admit(low, again.purpose, NOW))))
    office.desk.take(Report(again, Fate.CONFLICT, "changed"), NOW + 60)
    office.turn()
    office.told()
    assert office.decisions() == [], "it was admitted by the first write"
    assert office.cluster.state.usage(model.ClusterQueueName("cq"))[CPU].reserved == 2000


def test_of_what_is_finished_nothing_is_kept_but_the_object_and_its_count(office: Office) -> None:
    running = workload("w").spec(maximum_execution_time_seconds=3600).reserved().admitted()
    office.see(running.obj)
    office.turn()
    token = OfWorkload(key_of(running.obj))
    assert office.wakes.has(token), "for the end of its time"
    office.see(next_version(running.obj, running.cond(names.FINISHED).obj))
    office.turn()
    assert not office.wakes.has(token)
    values = office.cluster.values
    assert not any((values.decided_at, values._known, office.cluster.told, office.reporting._seen))
    (key,) = office.cluster.tables.workloads.keys()
    assert [filed is key for filed in office.reporting._tallies._ends] == [True], "one key for all of its indexes"


def test_those_that_wait_or_ended_alike_are_counted_by_one_value(office: Office) -> None:
    office.see(*(workload(name, count=5).obj for name in ("a", "b")))
    office.see(*(workload(name).reserved().admitted().cond(names.FINISHED).obj for name in ("c", "d")))
    office.turn()
    tallies, seen = office.reporting._tallies, office.reporting._seen.values()
    first, second = tallies._lines.values()
    assert first is second
    first_end, second_end = tallies._ends.values()
    assert first_end is second_end
    assert len({id(each.charges) for each in seen}) == 1
