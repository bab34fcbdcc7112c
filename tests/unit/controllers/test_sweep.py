"""The sweep finds what no event brought up, says so, and leaves alone what is on its way."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, cast

import msgspec
import pytest

from admission.api import core, kueue, names
from admission.api.batch import Job
from admission.api.meta import ObjectMeta
from admission.controllers.act import Actor
from admission.controllers.cluster import Cluster
from admission.controllers.errands import Errands
from admission.controllers.inbox import Observed
from admission.controllers.store import key_of
from admission.controllers.sweep import Find, Sweep
from admission.controllers.tokens import OfDecision
from admission.controllers.wakes import Wakes
from admission.jobs.registry import adapters
from admission.kube.informers import Upserted
from queues.core import events, model
from tests.unit.controllers.builders import NAMESPACE, NOW, cluster_queue, local_queue, settings, stamp, workload


class Writes:
    """What of an actor the sweep asks: is anything under way?"""

    def __init__(self) -> None:
        self.busy: set[Hashable] = set()

    def is_busy(self, *keys: Hashable) -> bool:
        return not self.busy.isdisjoint(keys)


class World:
    """A cluster in which everything is as it should be: statuses are written, and the core knows of everything."""

    def __init__(self) -> None:
        self.cluster = Cluster(settings(), adapters(settings()), lambda: NOW)
        self.writes = Writes()
        self.wakes = Wakes()
        self.finds: list[Find] = []
        self.sweep = Sweep(self.cluster, Errands(cast("Actor", self.writes), self.wakes), self.wakes, self.finds.append)
        metadata = ObjectMeta(name="default", uid="f", finalizers=(names.RESOURCE_IN_USE_FINALIZER,))
        self.put(kueue.ResourceFlavor(metadata=metadata))
        self.put(finalized(cluster_queue()))
        self.put(local_queue())
        waiting = workload().cond(names.QUOTA_RESERVED, "False", "PendingEvaluation").obj
        self.put(waiting)
        self.cluster.tell(waiting)
        for queue in (*self.cluster.tables.cluster_queues, *self.cluster.tables.local_queues):
            self.up_to_date(queue)
        self.clean()

    def put(self, obj: Any) -> None:
        self.cluster.take(Observed(obj.kind, Upserted(obj)))

    def up_to_date(self, queue: Any) -> None:
        """Its status says what the core says."""
        from admission.controllers import status

        state, above = self.cluster.state, self.cluster.tables.cluster_queues.get("", "cq")
        if isinstance(queue, kueue.ClusterQueue):
            after: Any = status.cluster_queue_status(queue, state, NOW)
        else:
            after = status.local_queue_status(queue, above, state, NOW)
        metadata = msgspec.structs.replace(queue.metadata, resource_version=f"{queue.metadata.resource_version}0")
        self.put(msgspec.structs.replace(queue, status=after, metadata=metadata))

    def clean(self) -> None:
        dirty = self.cluster.dirty
        for table in (dirty.workloads, dirty.units, dirty.finalizers, dirty.cluster_queues, dirty.local_queues):
            cast("dict[Any, None]", table).clear()

    def found(self) -> list[str]:
        self.sweep.begin(NOW)
        while self.sweep.is_under_way:
            self.sweep.slice(NOW)
            self.sweep.doubts()
        return [find.kind for find in self.finds]


def finalized(queue: kueue.ClusterQueue) -> kueue.ClusterQueue:
    metadata = msgspec.structs.replace(queue.metadata, finalizers=(names.RESOURCE_IN_USE_FINALIZER,))
    return msgspec.structs.replace(queue, metadata=metadata)


@pytest.fixture
def world() -> World:
    return World()


def test_where_nothing_was_forgotten_nothing_is_found(world: World) -> None:
    assert world.found() == []
    assert world.cluster.dirty.workloads, "they are looked at all the same"


def test_a_sweep_that_only_waits_for_its_last_judgement_is_no_reason_to_hurry(world: World) -> None:
    """While the API server cannot be followed nothing is judged, and that may take long."""
    world.sweep.begin(NOW)
    for _ in range(10_000):
        world.sweep.slice(NOW)
        if not world.sweep.is_under_way:
            break
    assert not world.sweep.is_under_way
    assert world.sweep.has_doubts
    assert world.sweep.doubts()
    assert not world.sweep.has_doubts


def forget_queue(world: World) -> None:
    world.cluster.apply(events.ClusterQueueGone(model.ClusterQueueName("cq")))


def forget_local_queue(world: World) -> None:
    world.cluster.apply(events.LocalQueueGone(model.ObjectKey(NAMESPACE, "lq")))


def forget_flavor(world: World) -> None:
    world.cluster.apply(events.FlavorGone(model.FlavorName("default")))


def forget_workload(world: World) -> None:
    world.cluster.told.pop("uid-w")


def keep_workload(world: World) -> None:
    gone = world.cluster.tables.workloads.remove(NAMESPACE, "w", "uid-w")
    assert gone is not None


def forget_pod(world: World) -> None:
    pod = core.Pod(metadata=ObjectMeta(name="p", namespace=NAMESPACE, uid="p"), spec=core.PodSpec(node_name="n"))
    world.cluster.tables.pods.upsert(pod)


def forget_job(world: World) -> None:
    metadata = {
        "name": "j", "namespace": NAMESPACE, "uid": "j", "creationTimestamp": stamp(),
        "labels": {names.QUEUE_LABEL: "lq"},
    }  # fmt: skip
    container = {"name": "c", "resources": {"requests": {"cpu": "1"}}}
    spec = {"suspend": True, "template": {"spec": {"containers": [container]}}}
    world.put(msgspec.convert({"metadata": metadata, "spec": spec}, Job))
    world.clean()


def forget_deactivation(world: World) -> None:
    held = workload().admitted().spec(active=False).obj
    metadata = msgspec.structs.replace(held.metadata, resource_version="99")
    world.put(msgspec.structs.replace(held, metadata=metadata))
    found = world.cluster.tables.workloads.get(NAMESPACE, "w")
    assert found is not None
    world.cluster.tell(found)
    for queue in (*world.cluster.tables.cluster_queues, *world.cluster.tables.local_queues):
        world.up_to_date(queue)
    world.clean()


def hold(world: World) -> model.Uid:
    """The Workload holds quota, and the core knows it."""
    held = workload().admitted().obj
    metadata = msgspec.structs.replace(held.metadata, resource_version="99")
    held = msgspec.structs.replace(held, metadata=metadata)
    world.put(held)
    world.cluster.tell(held)
    for queue in (*world.cluster.tables.cluster_queues, *world.cluster.tables.local_queues):
        world.up_to_date(queue)
    world.clean()
    return model.Uid("uid-w")


def forget_held_quota(world: World) -> None:
    state = world.cluster.state
    state.release(state.workloads[hold(world)])


def count_quota_of_nobody(world: World) -> None:
    state = world.cluster.state
    record = state.workloads[model.Uid("uid-w")]
    state.admit(record, model.Admission(model.ClusterQueueName("cq"), (), NOW, admitted=True))


def miscount_queue(world: World) -> None:
    hold(world)
    queue = world.cluster.state.books.queues[model.ClusterQueueName("cq")]
    for unit, account in queue.node.accounts.items():
        account.usage += 1
        queue.reserved[unit] = queue.reserved.get(unit, 0) + 1


def miscount_cohort(world: World) -> None:
    queue = cluster_queue(cohort="tree")
    metadata = msgspec.structs.replace(queue.metadata, generation=2, resource_version="99")
    world.put(finalized(msgspec.structs.replace(queue, metadata=metadata)))
    hold(world)
    world.cluster.state.settle()
    for account in world.cluster.state.books.forest.cohorts[model.CohortName("tree")].accounts.values():
        account.usage += 1


def forget_status(world: World) -> None:
    queue = world.cluster.tables.cluster_queues.get("", "cq")
    assert queue is not None
    old = msgspec.structs.replace(queue.status, pending_workloads=7)
    metadata = msgspec.structs.replace(queue.metadata, resource_version=f"{queue.metadata.resource_version}0")
    world.put(msgspec.structs.replace(queue, status=old, metadata=metadata))
    world.clean()


def forget_finalizer(world: World) -> None:
    world.put(kueue.ResourceFlavor(metadata=ObjectMeta(name="other", uid="o")))
    world.clean()


@dataclass(frozen=True)
class Case:
    id: str
    spoil: Callable[[World], None]
    want: str


CASES = [
    Case("a ClusterQueue that the core does not know", forget_queue, "ClusterQueue"),
    Case("a LocalQueue that the core does not know", forget_local_queue, "LocalQueue"),
    Case("a flavor that the core does not know", forget_flavor, "ResourceFlavor"),
    Case("a Workload that the core does not know", forget_workload, "Workload"),
    Case("a Workload that is gone and that the core knows", keep_workload, "Workload"),
    Case("a pod that takes room that the core does not know of", forget_pod, "Pod"),
    Case("a job without its Workload", forget_job, "Gang"),
    Case("a Workload with a rule to be applied", forget_deactivation, "WorkloadRules"),
    Case("quota that is held and not counted", forget_held_quota, "HeldQuota"),
    Case("quota that counts though nobody holds it", count_quota_of_nobody, "HeldQuota"),
    Case("a ClusterQueue whose usage does not add up", miscount_queue, "Usage"),
    Case("a cohort whose usage does not add up", miscount_cohort, "Usage"),
    Case("a status that is out of date", forget_status, "ClusterQueueStatus"),
    Case("a finalizer that is missing", forget_finalizer, "Finalizer"),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_was_forgotten_is_found(world: World, case: Case) -> None:
    case.spoil(world)
    assert case.want in world.found()


def test_what_is_held_and_counted_is_in_order(world: World) -> None:
    hold(world)
    assert world.found() == []


@pytest.mark.parametrize("spoil", [forget_held_quota, count_quota_of_nobody])
def test_quota_that_was_counted_wrong_is_put_right(world: World, spoil: Callable[[World], None]) -> None:
    spoil(world)
    world.found()
    state = world.cluster.state
    record = state.workloads[model.Uid("uid-w")]
    assert (record.admission is None) is (record.workload.admission is None)
    assert set(state.books.queues[model.ClusterQueueName("cq")].holding) == {record.uid} - (
        set() if record.workload.admission else {record.uid}
    )


def test_usage_that_does_not_add_up_puts_the_core_in_doubt(world: World) -> None:
    miscount_queue(world)
    world.found()
    assert world.cluster.doubt is not None
    assert "ClusterQueue cq" in str(world.cluster.doubt.cause)


def test_an_admission_on_its_way_is_no_quota_of_nobody(world: World) -> None:
    count_quota_of_nobody(world)
    world.writes.busy |= {OfDecision("uid-w")}
    assert "HeldQuota" not in world.found()


def test_what_was_found_once_is_mended(world: World) -> None:
    forget_queue(world)
    forget_flavor(world)
    world.found()
    world.finds.clear()
    assert not {"ClusterQueue", "ResourceFlavor"} & set(world.found())


@pytest.mark.parametrize("spoil", [forget_job, forget_deactivation, forget_finalizer, forget_status])
def test_what_is_on_its_way_was_not_forgotten(world: World, spoil: Callable[[World], None]) -> None:
    spoil(world)
    tables = world.cluster.tables
    for kind in ("ResourceFlavor", "ClusterQueue", "Job", "Workload"):
        world.writes.busy |= {(kind, *key_of(obj)) for obj in tables.of(kind)}
    world.writes.busy |= {("Workload", NAMESPACE, name) for name in _workload_names(world)}
    assert world.found() == []


def _workload_names(world: World) -> list[str]:
    """Of Workloads that gangs are about to create."""
    found = []
    for key in world.cluster.units.all():
        unit = world.cluster.units.unit(key)
        effects = world.cluster.units.adapter(key).reconcile(unit, world.cluster.look).effects
        found += [effect.ref.name for effect in effects]
    return found
