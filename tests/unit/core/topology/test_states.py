"""Judging nodes by their states answers as judging each of them does, whatever has changed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from queues.core.model import Expression, Operator, Toleration
from queues.core.topology import states
from queues.core.topology.domains import Domains
from tests.unit.core.topology.test_placement import BROKEN, GPU, HOST, at, domains_of, node, pods

SHAPES = {
    "plain": pods(1, 3),
    "without gpus": pods(1, 0),
    "a resource that no node has": replace(pods(1, 1), node_requests={"amd.com/gpu": 1}),
    "tolerating": pods(1, 3, tolerations=(Toleration("broken", "Exists"),)),
    "selecting": pods(1, 3, node_selector=(("odd", "1"),)),
    "wanting": pods(
        1, 3, affinity=((Expression("odd", Operator.IN, ("0",)),), (Expression(HOST, Operator.IN, ("n3",)),))
    ),
}


def cluster(chance: random.Random, count: int = 640) -> tuple[Domains, list]:
    nodes = [
        node(
            f"b{index // 160}/r{index // 16}/n{index}",
            chance.choice((0, 4, 8)),
            labels={"odd": str(index % 2)},
            ready=chance.random() > 0.1,
            taints=(BROKEN,) if chance.random() < 0.1 else (),
        )
        for index in range(count)
    ]
    return domains_of(*nodes), nodes


def counted(domains: Domains, shape, *, simulate_empty: bool):
    leaves, counts = domains.room_for("gpu", shape, simulate_empty=simulate_empty)
    return leaves.tolist(), counts.excluded()


@pytest.mark.parametrize("seed", range(4))
def test_by_state_and_by_node(seed, monkeypatch):
    chance = random.Random(seed)
    domains, nodes = cluster(chance)
    taken = []
    for step in range(6):
        for each in chance.sample(nodes, 30):
            index = nodes.index(each)
            nodes[index] = replace(each, ready=not each.ready)
            domains.node_changed(nodes[index])
        for each in chance.sample(nodes, 40):
            taken.append(at(each.name, 1))
            domains.take("gpu", taken[-1], {GPU: 1})
        for _ in range(10):
            domains.give_back("gpu", taken.pop(chance.randrange(len(taken))), {GPU: 1})
        for name, shape in SHAPES.items():
            fresh = replace(shape, node_requests={**shape.node_requests, "cpu": 0, "memory": 0}, name=f"{name}{step}")
            for simulate_empty in (False, True):
                domains._trees.clear()
                got = counted(domains, fresh, simulate_empty=simulate_empty)
                assert domains._capacity.states.count < 100
                with monkeypatch.context() as patch:
                    patch.setattr(states, "_FEWEST", 10**9)
                    domains._trees.clear()
                    assert counted(domains, fresh, simulate_empty=simulate_empty) == got, name


def test_where_every_node_is_in_a_state_of_its_own_each_is_judged():
    nodes = [node(f"b0/r0/n{index}", index) for index in range(600)]
    domains = domains_of(*nodes)
    leaves, _ = domains.room_for("gpu", pods(1, 2))
    assert sorted(leaves.tolist()) == sorted(min(index // 2, 110) for index in range(600))
    assert not domains._capacity.states.catch_up(domains._capacity)
