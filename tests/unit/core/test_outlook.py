"""Gangs without a place: which domains come closest, what has to end there, and domains that are kept for them."""

from __future__ import annotations

import pytest

from queues.core import events
from queues.core.model import HOSTNAME_LABEL
from queues.core.policy import DomainReservation, Policy, TopologyRules
from queues.core.reasons import Code, Near
from tests.builders import (
    GPU,
    LOWER,
    Play,
    admitted,
    cluster_queue,
    flavor,
    held,
    local_queue,
    node,
    topology,
    workload,
)

RACK = "example.com/rack"
POOL = {"pool": "gpu"}
GPUS = flavor("gpus", POOL, topology="t")


def racks(play, sizes, total=1000, policy=None) -> Play:
    """Racks r0, r1, ... with nodes r0n0, r0n1, ... of so many GPUs each."""
    made = play(policy) if policy else play()
    made.apply(events.TopologyChanged(topology("t", RACK, HOSTNAME_LABEL))).flavors(GPUS)
    for rack, gpus in enumerate(sizes):
        for index, each in enumerate(gpus):
            name = f"r{rack}n{index}"
            made.apply(events.NodeChanged(node(name, each, {**POOL, RACK: f"r{rack}", HOSTNAME_LABEL: name})))
    return made.queues(
        cluster_queue("q").flavor("gpus", {GPU: total}).within(LOWER),
        cluster_queue("other").flavor("gpus", {GPU: total}),
    )


def on(name, host, gpus, queue="q"):
    return workload(name).queue(queue).gpus(gpus).selecting(**{HOSTNAME_LABEL: host})


def gang(name, pods, gpus, queue="q"):
    return workload(name).queue(queue).gpus(gpus).gang(pods).topology(required=RACK)


def why(made, name):
    return held(made.run())[name].reason


def test_the_closest_domains_are_named_with_what_is_missing_in_each(play):
    made = racks(play, [(8, 8), (8, 8, 8), (8,)])
    made.submit(on("a", "r0n0", 8), on("b", "r1n0", 4))
    assert len(admitted(made.run())) == 2
    made.submit(gang("g", 3, 8))
    reason = why(made, "g")
    assert reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    assert reason.closest == (
        Near(RACK, ("r1",), 2, 3, ((GPU, 8),)),
        Near(RACK, ("r0",), 1, 3, ((GPU, 16),)),
        Near(RACK, ("r2",), 1, 3, ((GPU, 16),)),
    )
    assert f"Closest of {RACK}: r1 takes 2 of 3 pod(s), missing 8 {GPU}; r0 takes 1 of 3" in reason.message


def test_a_domain_without_a_whole_place_is_close_by_what_is_free_in_parts(play):
    made = racks(play, [(8, 8), (8, 8)])
    made.submit(on("a", "r0n0", 6), on("b", "r0n1", 6), on("c", "r1n0", 4), on("d", "r1n1", 4))
    assert len(admitted(made.run())) == 4
    made.submit(gang("g", 2, 8))
    assert [near.path for near in why(made, "g").closest] == [("r1",)]  # r0 has less than one pod's GPUs free


@pytest.mark.parametrize(
    ("holders", "want"),
    [
        (
            [("a", "r0n0", 8), ("b", "r1n0", 4), ("c", "r1n1", 8)],
            f"{RACK} r0 takes the pods once workload (a) has ended",
        ),
        (
            [("a", "r0n0", 8), ("b", "r0n1", 8), ("c", "r1n0", 1)],
            f"{RACK} r1 takes the pods once workload (c) has ended",
        ),
        (
            [("a", "r0n0", 8), ("b", "r0n1", 8), ("c", "r1n0", 1), ("d", "r1n0", 1), ("e", "r1n1", 8)],
            f"{RACK} r0 takes the pods once 2 workloads (a, b) have ended",
        ),
    ],
    ids=["one of a rack", "the closest", "the fewest pods"],
)
def test_what_has_to_end_is_named(play, holders, want):
    made = racks(play, [(8, 8), (8, 8)])
    made.submit(*[on(*each) for each in holders])
    assert len(admitted(made.run())) == len(holders)
    made.submit(gang("g", 2, 8))
    assert why(made, "g").remedy == want


def test_whoever_has_ended_as_named_makes_room(play):
    made = racks(play, [(8, 8), (8, 8)])
    made.submit(on("a", "r0n0", 8), on("b", "r0n1", 2), on("c", "r1n0", 4), on("d", "r1n1", 4), on("e", "r1n0", 4))
    assert len(admitted(made.run())) == 5
    made.submit(gang("g", 2, 8))
    assert why(made, "g").remedy == f"{RACK} r0 takes the pods once 2 workloads (a, b) have ended"
    made.finish("a").finish("b")
    assert admitted(made.run()) == ["g"]


def test_nothing_is_promised_where_even_an_empty_domain_is_too_small(play):
    made = racks(play, [(8, 8), (8, 8)])
    made.submit(gang("g", 3, 8))
    reason = why(made, "g")
    assert reason.remedy is None
    assert "Closest of example.com/rack when empty: r0 takes 2 of 3 pod(s), missing 8 nvidia.com/gpu" in reason.message


def test_pods_outside_of_the_queues_do_not_end_for_anybody(play):
    made = racks(play, [(8, 8)])
    made.apply(events.PodPlaced("foreign", "r0n0", {GPU: 1}))
    made.submit(on("a", "r0n1", 8))
    assert admitted(made.run()) == ["a"]
    made.submit(gang("g", 2, 8))
    assert why(made, "g").remedy is None


def test_slices_count_whole(play):
    made = racks(play, [(8, 8, 8, 8)])
    made.submit(on("a", "r0n0", 8), on("b", "r0n1", 8))
    assert len(admitted(made.run())) == 2
    made.submit(workload("g").queue("q").gpus(8).gang(4).topology(required=RACK, slice_required=RACK, slice_size=4))
    assert why(made, "g").remedy == f"{RACK} r0 takes the pods once 2 workloads (a, b) have ended"


def test_names_of_other_namespaces_are_not_told(play):
    made = racks(play, [(8, 8)])
    made.apply(events.LocalQueueChanged(local_queue("q", "q", "elsewhere")))
    made.submit(on("a", "r0n0", 8).queue("q", "elsewhere"))
    assert admitted(made.run()) == ["a"]
    made.submit(gang("g", 2, 8))
    reason = why(made, "g")
    assert reason.remedy == f"{RACK} r0 takes the pods once workload (UID a) has ended"


# ---------------------------------------------------------------- reservations

KEEPING = Policy(topology=TopologyRules(reservation=DomainReservation(after=60, lasting=600)))


def stream(made, rounds):
    """Small jobs that arrive faster than they end: whenever one ends, another one waits already."""
    running = [f"s{index}" for index in range(4)]
    made.submit(*[workload(name).queue("other").gpus(4) for name in running])
    made.run()
    made.submit(gang("g", 2, 8))
    made.run()
    for index in range(4, 4 + rounds):
        made.submit(workload(f"s{index}").queue("other").gpus(4))
        running.append(f"s{index}")
        made.now += 10
        ended = next(name for name in running if name in made.holding())
        running.remove(ended)
        made.finish(ended)
        if "g" in admitted(made.run()):
            return made.now
    return None


def test_a_stream_of_small_jobs_starves_a_gang_for_ever(play):
    assert stream(racks(play, [(8, 8)]), 60) is None


def test_it_does_not_where_a_domain_is_kept(play):
    made = racks(play, [(8, 8)], policy=KEEPING)
    start = made.now
    at = stream(made, 60)
    assert at is not None
    assert at - start < 60 + 8 * 12
