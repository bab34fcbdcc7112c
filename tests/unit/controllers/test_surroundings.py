"""What the journal is told of cohorts, flavors and nodes: all of it once, then what changed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from admission.controllers.surroundings import Surroundings
from queues.core import events
from queues.core.model import NodeName, Uid
from queues.core.state import State
from queues.journal import entries
from queues.journal.entries import NodeState
from tests.builders import cohort, flavor, node, topology

RACK = "cloud/rack"
HOST = "kubernetes.io/hostname"
GPU = "nvidia.com/gpu"


@dataclass
class World:
    state: State = field(default_factory=State)
    told: Surroundings = field(default_factory=Surroundings)
    now: float = 100.0

    def hear(self, *heard: events.Event) -> list[entries.Row]:
        """What is told a while after this happened."""
        for event in heard:
            self.state.apply(event)
        self.now += 10
        return list(self.told.news(self.state, self.now))


@pytest.fixture
def world() -> World:
    world = World()
    labels = {RACK: "r1", HOST: "h1", "pool": "h100", "unrelated": "x"}
    for event in (
        events.TopologyChanged(topology("t", RACK, HOST)),
        events.FlavorChanged(flavor("h100", {"pool": "h100"}, topology="t")),
        events.CohortChanged(cohort("research").build()),
        events.NodeChanged(node("n1", 8, labels)),
    ):
        world.state.apply(event)
    return world


def test_everything_once(world: World) -> None:
    research, h100, n1 = world.told.everything(world.state, world.now)
    assert research == entries.CohortRow("research")
    assert h100 == entries.FlavorRow("h100", {"pool": "h100"}, "t", (RACK, HOST))
    assert isinstance(n1, entries.NodeRow)
    assert (n1.labels, n1.state) == ({RACK: "r1", HOST: "h1", "pool": "h100"}, NodeState.READY)
    assert (n1.capacity[GPU], n1.free[GPU]) == (8, 8)
    assert world.hear() == [], "nothing happened since"


def test_only_what_changed_is_told_again(world: World) -> None:
    world.told.everything(world.state, world.now)
    world.hear(events.NodeChanged(node("n2", 8, {HOST: "h2"})))
    (row,) = world.hear(events.PodPlaced(Uid("p"), NodeName("n1"), {GPU: 3}))
    assert isinstance(row, entries.NodeRow)
    assert (row.name, row.free[GPU]) == ("n1", 5)
    assert world.hear(events.CohortGone(cohort("research").build().name)) == [entries.CohortRemoved("research")]
    told = world.hear(events.FlavorChanged(flavor("h100", {"pool": "h100"})))
    assert [row.levels for row in told if isinstance(row, entries.FlavorRow)] == [()]


def test_a_label_that_matters_now_is_told_of_every_node(world: World) -> None:
    world.told.everything(world.state, world.now)
    told = world.hear(events.FlavorChanged(flavor("odd", {"unrelated": "x"})))
    assert [row.labels["unrelated"] for row in told if isinstance(row, entries.NodeRow)] == ["x"]


def test_nodes_that_go_and_come_back_in_another_place(world: World) -> None:
    world.told.everything(world.state, world.now)
    assert world.hear(events.NodeGone(NodeName("n1"))) == [entries.NodeRemoved("n1")]
    world.state.apply(events.NodeChanged(node("n2")))
    (n2, n1) = world.hear(events.NodeChanged(node("n1")))
    assert {getattr(n1, "name", ""), getattr(n2, "name", "")} == {"n1", "n2"}
    world.state.apply(events.NodeGone(NodeName("n2")))
    world.state.apply(events.NodeGone(NodeName("n1")))
    told = world.hear(events.NodeChanged(node("n2")))
    assert [row for row in told if isinstance(row, entries.NodeRemoved)] == [entries.NodeRemoved("n1")]


def test_it_is_told_once_in_a_while(world: World) -> None:
    world.told.everything(world.state, world.now)
    world.state.apply(events.NodeGone(NodeName("n1")))
    assert world.told.owed() is None
    assert list(world.told.news(world.state, world.now + 0.5)) == []
    assert world.told.owed() == world.now + 1, "then it has to be asked again"
    assert list(world.told.news(world.state, world.now + 1.5)) == [entries.NodeRemoved("n1")]
    assert world.told.owed() is None


@pytest.mark.parametrize(
    ("fields", "want"), [({"ready": False}, NodeState.NOT_READY), ({"unschedulable": True}, NodeState.CORDONED)]
)
def test_nodes_that_take_nothing(world: World, fields: dict[str, bool], want: NodeState) -> None:
    world.told.everything(world.state, world.now)
    (row,) = world.hear(events.NodeChanged(node("n9", 8, {}, **fields)))
    assert isinstance(row, entries.NodeRow)
    assert row.state is want
