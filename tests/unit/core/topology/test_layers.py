"""Slices in slices, leaders with their workers, balanced and preferred placement: one sentence a case."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from queues.core.model import Expression, Node, Operator, PodSet
from queues.core.policy import TopologyRules
from queues.core.topology.placement import NoPlacement, place
from tests.unit.core.topology.test_placement import BLOCK, FOUR_NODES, HOST, RACK, domains_of, node, pods

DEFAULT = TopologyRules()
BALANCED = TopologyRules(is_balanced=True)
PREFERRING = TopologyRules(respects_preferences=True)


def hosts(*gpus: int, block: str = "b1", rack: str = "r1") -> tuple[Node, ...]:
    """One rack of nodes n<rack><index> with these GPUs."""
    return tuple(node(f"{block}/{rack}/{rack}n{index}", each) for index, each in enumerate(gpus, 1))


def group(count: int, gpus: int, name: str, **kw) -> PodSet:
    return pods(count, gpus, name=name, pod_set_group="g", **kw)


@dataclass(frozen=True)
class Case:
    id: str
    pods: tuple[PodSet, ...]
    want: dict[str, dict[str, int]] | str
    nodes: tuple[Node, ...] = FOUR_NODES
    rules: TopologyRules = DEFAULT


def one(want: dict[str, int]) -> dict[str, dict[str, int]]:
    return {"main": want}


NESTED = {"slice_required": RACK, "slice_size": 4, "inner_slices": ((HOST, 2),)}

CASES = [
    Case(
        "slices of two on one host make slices of four in one rack",
        (pods(8, 1, required=BLOCK, **NESTED),),
        one({"r1n1": 2, "r1n2": 2, "r2n1": 4}),
        nodes=(*hosts(3, 3, 1), *hosts(5, rack="r2")),
    ),
    Case(
        "what a host has beyond whole inner slices is of no use",
        (pods(4, 1, required=RACK, **NESTED),),
        'topology "topo" doesn\'t allow to fit any of 1 slice(s). Total nodes: 4',
        nodes=hosts(1, 1, 1, 3),
    ),
    Case(
        "three layers each keep together",
        (
            pods(
                8,
                1,
                required=BLOCK,
                slice_required=BLOCK,
                slice_size=8,
                inner_slices=((RACK, 4), (HOST, 2)),
            ),
        ),
        one({"r1n1": 2, "r1n2": 2, "r2n1": 4}),
        nodes=(*hosts(3, 3, 1), *hosts(5, rack="r2")),
    ),
    Case(
        "an inner layer that is not lower is refused",
        (pods(4, 1, required=BLOCK, slice_required=RACK, slice_size=4, inner_slices=((RACK, 2),)),),
        "slices within rack cannot be part of slices within rack",
    ),
    Case(
        "an inner size that does not divide the outer one is refused",
        (pods(4, 1, required=BLOCK, slice_required=RACK, slice_size=4, inner_slices=((HOST, 3),)),),
        "slices of 4 pod(s) cannot be divided into slices of 3",
    ),
    Case(
        "an inner layer at a level that is not there is refused",
        (pods(4, 1, required=BLOCK, slice_required=RACK, slice_size=4, inner_slices=(("tray", 2),)),),
        "no requested topology level: tray",
    ),
    Case(
        "slices wider than the pods' level are refused",
        (pods(4, 1, required=RACK, slice_required=BLOCK, slice_size=2),),
        "slices within block cannot be kept inside the lower level rack",
    ),
    # ---------------------------------------------------------------- leaders
    Case(
        "a leader takes what its workers leave over on a host",
        (group(2, 4, "workers", required=RACK), group(1, 1, "leader", required=RACK)),
        {"leader": {"r1n2": 1}, "workers": {"r1n1": 2}},
        nodes=hosts(8, 1),
    ),
    Case(
        "the leader's rack is the workers' rack though another one has more room for it",
        (group(1, 1, "leader", required=RACK), group(2, 4, "workers", required=RACK)),
        {"leader": {"r2n1": 1}, "workers": {"r2n1": 1, "r2n2": 1}},
        nodes=(*hosts(8), *hosts(5, 4, rack="r2")),
    ),
    Case(
        "no rack holds both, so neither is placed",
        (group(2, 4, "workers", required=RACK), group(1, 1, "leader", required=RACK)),
        'topology "topo" allows to fit only 1 out of 2 pod(s). Total nodes: 1',
        nodes=hosts(8),
    ),
    Case(
        "a leader that costs a whole worker goes where the slack is",
        (group(3, 4, "workers", required=RACK), group(1, 3, "leader", required=RACK)),
        {"leader": {"r1n2": 1}, "workers": {"r1n1": 2, "r1n2": 1}},
        nodes=hosts(8, 7),
    ),
    Case(
        "a leader for which no worker's host has a pod to spare runs on one without GPUs",
        (group(2, 8, "workers", required=RACK), group(1, 0, "leader", required=RACK)),
        {"leader": {"r1n3": 1}, "workers": {"r1n1": 1, "r1n2": 1}},
        nodes=(node("b1/r1/r1n1", 8, pods=1), node("b1/r1/r1n2", 8, pods=1), node("b1/r1/r1n3", 0)),
    ),
    Case(
        "the leader goes up with its workers when the preferred rack is too small",
        (group(1, 1, "leader", preferred=RACK), group(3, 8, "workers", preferred=RACK)),
        {"leader": {"r3n1": 1}, "workers": {"r1n1": 1, "r2n1": 1, "r2n2": 1}},
        nodes=(*hosts(8), *hosts(8, 8, rack="r2"), *hosts(1, rack="r3")),
    ),
    Case(
        "of two single pods the first is the leader",
        (group(1, 8, "a", required=RACK), group(1, 8, "b", required=RACK)),
        {"a": {"n1": 1}, "b": {"n2": 1}},
    ),
    # ---------------------------------------------------------------- balanced
    Case(
        "without balance one rack is filled and the rest is put elsewhere",
        (pods(6, 1, preferred=RACK),),
        one({"r1n1": 5, "r2n1": 1}),
        nodes=(*hosts(5), *hosts(4, rack="r2")),
    ),
    Case(
        "balanced pods are shared out evenly between the fewest racks",
        (pods(6, 1, preferred=RACK),),
        one({"r1n1": 3, "r2n1": 3}),
        nodes=(*hosts(5), *hosts(4, rack="r2"), *hosts(1, rack="r3")),
        rules=BALANCED,
    ),
    Case(
        "what cannot be shared evenly goes to the larger rack",
        (pods(7, 1, preferred=RACK),),
        one({"r1n1": 4, "r2n1": 3}),
        nodes=(*hosts(5), *hosts(4, rack="r2")),
        rules=BALANCED,
    ),
    Case(
        "a rack that takes all is balance enough, the tightest of them",
        (pods(4, 1, preferred=RACK),),
        one({"r2n1": 4}),
        nodes=(*hosts(8), *hosts(4, rack="r2")),
        rules=BALANCED,
    ),
    Case(
        "the set of racks with the least to spare is chosen",
        (pods(6, 1, preferred=RACK),),
        one({"r2n1": 3, "r3n1": 3}),
        nodes=(*hosts(5), *hosts(3, rack="r2"), *hosts(3, rack="r3")),
        rules=BALANCED,
    ),
    Case(
        "of sets with as little to spare the most even one is chosen",
        (pods(8, 1, preferred=RACK),),
        one({"r2n1": 4, "r3n1": 4}),
        nodes=(*hosts(5), *hosts(4, rack="r2"), *hosts(4, rack="r3"), *hosts(3, rack="r4")),
        rules=BALANCED,
    ),
    Case(
        "balance is sought below one block",
        (pods(6, 1, preferred=RACK),),
        one({"r3n1": 3, "r4n1": 3}),
        nodes=(
            *hosts(5),
            *hosts(1, rack="r2"),
            *hosts(3, block="b2", rack="r3"),
            *hosts(3, block="b2", rack="r4"),
        ),
        rules=BALANCED,
    ),
    Case(
        "where no block holds all the ordinary search does",
        (pods(7, 1, preferred=RACK),),
        one({"r1n1": 5, "r3n1": 2}),
        nodes=(*hosts(5), *hosts(2, block="b2", rack="r3")),
        rules=BALANCED,
    ),
    Case(
        "a required rack is never shared between racks",
        (pods(6, 1, required=RACK),),
        'topology "topo" allows to fit only 5 out of 6 pod(s). Total nodes: 2',
        nodes=(*hosts(5), *hosts(4, rack="r2")),
        rules=BALANCED,
    ),
    # ---------------------------------------------------------------- preferences
    Case(
        "a preferred node wins over a tighter one",
        (pods(1, 1, preferences=((5, (Expression("fast", Operator.EXISTS),)),), required=RACK),),
        one({"n2": 1}),
        nodes=(node("b1/r1/n1", 1), node("b1/r1/n2", 8, labels={"fast": "yes"})),
        rules=PREFERRING,
    ),
    Case(
        "without the gate preferences decide nothing",
        (pods(1, 1, preferences=((5, (Expression("fast", Operator.EXISTS),)),), required=RACK),),
        one({"n1": 1}),
        nodes=(node("b1/r1/n1", 1), node("b1/r1/n2", 8, labels={"fast": "yes"})),
    ),
    Case(
        "a preferred node without room is no reason to prefer its rack",
        (pods(1, 4, preferences=((5, (Expression("fast", Operator.EXISTS),)),), required=RACK),),
        one({"n1": 1}),
        nodes=(node("b1/r1/n1", 8), node("b1/r2/n2", 1, labels={"fast": "yes"}), node("b1/r2/n3", 8)),
        rules=PREFERRING,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_placement(case: Case):
    domains = domains_of(*case.nodes)
    got = place(domains, "gpu", "topo", case.pods, {}, rules=case.rules)
    if isinstance(got, NoPlacement):
        assert got.message == case.want
        return
    assert {name: {"/".join(d.values): d.count for d in found.domains} for name, found in got.items()} == case.want
