"""Which spans a gang's life gives: their order, their parents, and what they say."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from admission.api import core, kueue, names
from admission.api.meta import ObjectMeta
from admission.controllers.act import Gone
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Observed
from admission.controllers.traces import Traces
from admission.jobs.effects import Ref
from admission.jobs.registry import adapters
from admission.kube.informers import Deleted, Upserted
from admission.settings import Integrations
from admission.telemetry import Span
from queues.core import model
from queues.core.plan import Admit, Evict, Hold
from queues.core.reasons import Code, Preempted, Reason
from tests.unit.controllers.builders import (
    NAMESPACE,
    NOW,
    WorkloadBuilder,
    cluster_queue,
    local_queue,
    settings,
    stamp,
    workload,
)


class World:
    """A cluster whose gangs are followed; the clock goes on by a second with each step."""

    def __init__(self, ratio: float = 1.0) -> None:
        chosen = settings(integrations=Integrations(frameworks=("batch/job", "pod")))
        self.now = NOW
        self.spans: list[Span] = []
        self.cluster = Cluster(chosen, adapters(chosen), lambda: self.now)
        self.traces = Traces(self.cluster, self.spans.append, ratio, lambda: self.now)
        self.version = 10
        self.put(cluster_queue())
        self.put(local_queue())

    def put(self, obj: Any) -> None:
        self.version += 1
        self.now += 1
        metadata = msgspec.structs.replace(obj.metadata, resource_version=str(self.version))
        obj = msgspec.structs.replace(obj, metadata=metadata)
        self._take(Observed(obj.kind, Upserted(obj)))

    def _take(self, item: Any) -> None:
        self.cluster.take(item)
        self.traces.take(item)

    def drop(self, name: str = "w") -> None:
        obj = self.cluster.tables.workloads.get(NAMESPACE, name)
        assert obj is not None
        self._take(Observed("Workload", Deleted(obj)))

    def see(self, *builders: WorkloadBuilder) -> None:
        for builder in builders:
            self.put(builder.obj)

    def pod(self, index: int, *, gated: bool = True, node: str = "") -> None:
        """A pod of the group `w`, created long ago, gated by the webhook half a second later."""
        created = NOW - 100 + index
        metadata = ObjectMeta(
            name=f"p-{index}",
            namespace=NAMESPACE,
            uid=f"p-{index}",
            creation_timestamp=stamp(-100 + index),
            labels={names.POD_GROUP_NAME: "w", names.MANAGED_LABEL: "true"},
            annotations={names.REVIEWED: f"{created + 0.5}+0.25", names.POD_GROUP_TOTAL_COUNT: "2"},
        )
        gates = (core.PodSchedulingGate(names.ADMISSION_GATE),) if gated else ()
        self.put(core.Pod(metadata=metadata, spec=core.PodSpec(scheduling_gates=gates, node_name=node)))

    def decide(self, *plan: Any) -> None:
        self.traces.decided(plan, self.now, self.now + 0.125)

    def admit(self) -> None:
        self.decide(
            Admit(uid(), model.Admission(cluster_queue=model.ClusterQueueName("cq"), pod_sets=(), reserved_at=self.now))
        )

    def named(self, name: str) -> Span:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


def uid() -> model.Uid:
    return model.Uid(workload().obj.metadata.uid)


GROUP = workload().annotated(names.IS_GROUP_WORKLOAD, "true")
HELD = Reason(Code.WAITING_FOR_QUOTA, "2 more needed", remedy="wait")


@pytest.fixture
def world() -> World:
    return World()


def through(world: World) -> None:
    """A group of two pods is created, waits, is admitted, released and bound."""
    world.pod(0)
    world.pod(1)
    world.see(GROUP)
    world.decide(Hold(uid(), HELD))
    world.now += 10
    world.admit()
    world.see(GROUP.admitted(at=0))
    for index in range(2):
        world.pod(index, gated=False)
    for index in range(2):
        assert world.spans == []
        world.pod(index, gated=False, node="host")


def test_a_life_has_a_span_for_each_stretch_of_it(world: World) -> None:
    through(world)
    assert world.names == ["create", "gate", "gate", "gather", "wait", "decide", "write", "release", "bind", "gang"]
    root = world.named("gang")
    assert (root.parent, root.attributes["muster.outcome"]) == ("", "bound")
    gates = [span for span in world.spans if span.name == "gate"]
    assert [(span.began - NOW, span.ended - NOW) for span in gates] == [(-99.5, -99.25), (-98.5, -98.25)]
    assert {span.parent for span in gates} == {world.named("create").key}
    others = [span for span in world.spans if span.name not in {"gang", "gate"}]
    assert {span.parent for span in others} == {root.key}
    assert {span.trace for span in world.spans} == {uid()}
    (mark,) = world.named("wait").marks
    assert (mark.name, mark.attributes) == ("WaitingForQuota", {"message": "2 more needed", "remedy": "wait"})
    assert world.named("decide").ended - world.named("decide").began == 0.125


def test_stretches_follow_each_other_without_a_gap(world: World) -> None:
    through(world)
    ends = [world.named(name) for name in ("gather", "wait", "decide", "write")]
    assert all(before.ended == after.began for before, after in itertools.pairwise(ends))
    assert world.named("release").ended == world.named("bind").began
    assert world.named("gang").began == world.named("create").began == NOW - 99.5
    assert world.named("bind").ended == world.named("gang").ended


def test_a_gang_that_is_followed_to_its_end_is_forgotten(world: World) -> None:
    through(world)
    before = len(world.spans)
    world.see(GROUP.admitted(at=0).cond(names.PODS_READY), GROUP.admitted(at=0).cond(names.FINISHED))
    world.drop()
    assert len(world.spans) == before


def test_a_gang_that_comes_back_after_an_eviction_goes_on_in_its_trace(world: World) -> None:
    through(world)
    world.spans.clear()
    counted = kueue.SchedulingStats(evictions=(kueue.SchedulingStatsEviction("Preempted", "", 1),))
    back = GROUP.status(scheduling_stats=counted)
    preemptor = model.Uid("another")
    world.decide(
        Evict(uid(), preemptor, model.ClusterQueueName("other"), Preempted.IN_COHORT_RECLAMATION, "Preempted to …")
    )
    assert world.named("evict").links == ("another",)
    assert world.named("evict").attributes["muster.preemptor.cluster_queue"] == "other"
    world.see(back.evicted("Preempted"))
    world.admit()
    for index in range(2):
        world.pod(index, gated=False, node="host")
    world.see(back.admitted(at=0))
    assert world.names == ["evict", "wait", "decide", "write", "release", "bind", "gang, again"]
    again = world.named("gang, again")
    assert (again.key, again.parent) == ("again 1", "gang")
    assert {span.parent for span in world.spans if span.name not in {"evict", "gang, again"}} == {"again 1"}


@pytest.mark.parametrize("how", ["deleted", "not found", "finished"])
def test_a_gang_that_goes_while_it_waits_has_a_trace_too(world: World, how: str) -> None:
    world.see(workload())
    world.decide(Hold(uid(), HELD))
    match how:
        case "deleted":
            world.drop()
        case "not found":
            world._take(Gone(Ref("Workload", NAMESPACE, "w", uid())))
        case _:
            world.see(workload().cond(names.FINISHED))
    assert world.names[-2:] == ["wait", "gang"]
    assert world.named("gang").attributes["muster.outcome"] == ("finished" if how == "finished" else "removed")


def test_who_is_not_sampled_is_not_followed() -> None:
    world = World(ratio=0.0)
    world.see(workload())
    world.admit()
    world.see(workload().admitted(at=0))
    world.drop()
    assert world.spans == []


def test_a_fault_here_is_nobody_elses(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.see(workload())
    world.traces.decided((None,), 0.0, 0.0)  # type: ignore[arg-type]
    assert "could not be followed" in caplog.text
    world.see(workload("next"))
    world.drop("next")
    assert world.names[-1] == "gang"
