"""Sizes that start are written into the history where a flavor asks, and told to the core after a restart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from admission.api import kueue
from admission.api.meta import ObjectMeta
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Observed
from admission.controllers.metrics import Metrics
from admission.controllers.reporting import Reporting
from admission.controllers.starts import Starts, facts, remembered
from admission.controllers.store import Key
from admission.jobs.registry import adapters
from admission.kube.informers import Upserted
from queues.core import model
from queues.core.events import SizesRemembered
from queues.core.model import Expression, Operator, Size, Toleration
from queues.journal.entries import Decision, Kind
from tests.unit.controllers.builders import NAMESPACE, NOW, WorkloadBuilder, cluster_queue, local_queue, settings
from tests.unit.controllers.builders import workload as built
from tests.unit.controllers.test_chronicle import Listing

GPU = model.ResourceName("nvidia.com/gpu")
F, G = model.FlavorName("f"), model.FlavorName("g")
HOST, RACK = "kubernetes.io/hostname", "example.com/rack"

#: One of each field that a size has.
LARGE = Size(
    ((GPU, 8), ("pods", 1)),
    4,
    RACK,
    (("pool", "a"),),
    ((Expression("zone", Operator.IN, ("z1", "z2")),),),
    (Toleration("gpu", "Exists", effect="NoSchedule"),),
)


def size(gpus: int) -> Size:
    return Size(((GPU, gpus), ("pods", 1)))


def workload(flavor: model.FlavorName = F, *, count: int = 4, given: int = 4) -> model.Workload:
    pod_set = model.PodSet(
        "main",
        count,
        {GPU: 8},
        {GPU: 8},
        topology=model.TopologyRequest(required=RACK),
        node_selector=LARGE.node_selector,
        affinity=LARGE.affinity,
        tolerations=LARGE.tolerations,
    )
    one = model.PodSetAssignment(pod_set.name, given, {GPU: flavor}, {GPU: 8 * given})
    key = model.ObjectKey("ns", "w")
    admission = model.Admission(model.ClusterQueueName("cq"), (one,), 1.0)
    return model.Workload(model.Uid("w"), key, key, (pod_set,), admission=admission)


def start(uid: str, *sizes: tuple[Size, int], flavor: str = "f") -> Decision:
    return read_back(uid, {"sizes": {flavor: msgspec.to_builtins(sizes)}})


def read_back(uid: str, told: Mapping[str, Any]) -> Decision:
    """As the journal gives it: through JSON."""
    return Decision(1.0, uid, "ns", uid, Kind.RESERVED, facts=json.loads(json.dumps(told)))


def test_a_size_is_read_back_as_it_was_written() -> None:
    decision = read_back("w", facts(workload(), {F}))
    assert list(remembered([decision], ())) == [SizesRemembered(F, ((LARGE, 4),))]


def test_a_gang_that_started_with_fewer_pods_comes_with_these() -> None:
    decision = read_back("w", facts(workload(given=3), {F}))
    assert list(remembered([decision], ())) == [SizesRemembered(F, ((replace(LARGE, pods=3), 3),))]


@pytest.mark.parametrize("asked", [set(), {G}], ids=["nobody asks", "another flavor asks"])
def test_nothing_is_written_where_nobody_asks(asked: set[model.FlavorName]) -> None:
    assert facts(workload(), asked) == {}


def test_each_flavor_is_told_of_its_own_the_oldest_first() -> None:
    starts = [start("a", (size(1), 1)), start("b", (size(4), 2), flavor="g"), start("c", (size(8), 1))]
    assert sorted(remembered(starts, ()), key=lambda event: event.flavor) == [
        SizesRemembered(F, ((size(1), 1), (size(8), 1))),
        SizesRemembered(G, ((size(4), 2),)),
    ]


def test_of_what_holds_quota_only_earlier_starts_are_remembered() -> None:
    starts = [start("a", (size(1), 1)), start("a", (size(2), 1)), start("b", (size(8), 1))]
    assert list(remembered(starts, {"a"})) == [SizesRemembered(F, ((size(1), 1), (size(8), 1)))]


def test_what_another_version_wrote_is_passed_over() -> None:
    odd = read_back("a", {"sizes": {"f": [["large", 1]]}})
    assert list(remembered([odd, start("b", (size(8), 1))], ())) == [SizesRemembered(F, ((size(8), 1),))]


# ------------------------------------------------------------------ asked once, told to every core


def flavor(packing: str | None = "FragmentationAware", version: str = "2") -> kueue.ResourceFlavor:
    annotations = {} if packing is None else {"muster.dev/packing": packing}
    metadata = ObjectMeta(name="default", uid="f", resource_version=version, annotations=annotations)
    return kueue.ResourceFlavor(metadata=metadata, spec=kueue.ResourceFlavorSpec(topology_name="t"))


class World:
    """A queue on a flavor with a topology, and a journal that answers when it is told to."""

    def __init__(self, packing: str | None = "FragmentationAware") -> None:
        self.cluster = Cluster(settings(), adapters(settings()), lambda: NOW)
        levels = (kueue.TopologyLevel(node_label=HOST),)
        topology = kueue.Topology(ObjectMeta(name="t", uid="t", resource_version="1"), kueue.TopologySpec(levels))
        self.see(topology, flavor(packing), cluster_queue(nominal="9"), local_queue())
        self.asked: list[float] = []
        self.answer: Future[list[Decision]] = Future()
        self.starts = Starts(self.cluster, self._recall)

    def _recall(self, until: float) -> Future[list[Decision]]:
        self.asked.append(until)
        return self.answer

    def see(self, *objects: object) -> None:
        for obj in objects:
            self.cluster.take(Observed(type(obj).__name__, Upserted(obj)))

    def known(self) -> dict[Size, int]:
        return dict(self.cluster.state.books.domains.sizes[model.FlavorName("default")].coming())


def test_the_journal_is_asked_once_and_its_answer_waited_for_by_nobody() -> None:
    world = World()
    for now in (NOW, NOW + 1):
        world.starts.look(now)
    assert (world.asked, world.known()) == ([NOW], {})
    world.answer.set_result([start("a", (size(8), 2), flavor="default")])
    for now in (NOW + 2, NOW + 3):
        world.starts.look(now)
    assert (world.asked, world.known()) == ([NOW], {size(8): 2})


def test_the_journal_is_asked_when_a_flavor_begins_to_ask() -> None:
    world = World(packing=None)
    world.starts.look(NOW)
    assert world.asked == []
    world.see(flavor(version="3"))
    world.starts.look(NOW + 5)
    assert world.asked == [NOW + 5]


def test_a_core_that_is_begun_anew_is_told_as_well() -> None:
    world = World()
    world.starts.look(NOW)
    world.answer.set_result([start("a", (size(8), 2), flavor="default")])
    world.starts.look(NOW)
    world.cluster.begin_anew()
    assert world.known() == {size(8): 2}


def reserved(world: World, builder: WorkloadBuilder) -> list[Decision]:
    """What the history says when the Workload is seen first as it waits, and then like this."""
    journal = Listing()
    reporting = Reporting(world.cluster, Metrics(settings()), journal)
    reporting.reset(NOW)
    for version, each in enumerate((built(), builder)):
        metadata = msgspec.structs.replace(each.obj.metadata, resource_version=str(20 + version))
        obj = msgspec.structs.replace(each.obj, metadata=metadata)
        world.see(obj)
        world.cluster.tell(obj)
        reporting.workload(Key(NAMESPACE, "w"), obj, NOW)
    return [each for each in journal.take() if isinstance(each, Decision) and each.kind is Kind.RESERVED]


@pytest.mark.parametrize(
    ("packing", "want"),
    [("FragmentationAware", {"default": 1}), ("Pack", {})],
    ids=["a flavor that asks", "a flavor that does not"],
)
def test_a_reservation_is_told_with_its_sizes_where_its_flavor_asks(packing: str, want: dict[str, int]) -> None:
    (decision,) = reserved(World(packing), built().admitted())
    assert {name: len(sizes) for name, sizes in decision.facts.get("sizes", {}).items()} == want
