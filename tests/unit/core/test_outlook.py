"""Gangs without a place: which domains come closest, what has to end there, and domains that are kept for them."""

from __future__ import annotations

from dataclasses import replace

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
    check,
    cluster_queue,
    flavor,
    held,
    local_queue,
    node,
    topology,
    workload,
)

BLOCK = "example.com/block"
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


def test_what_no_node_could_count_is_refused_like_all_that_is_too_large(play):
    made = racks(play, [(8, 8)])
    value = gang("g", 1, 1).at(1.0).build()
    main = replace(value.pod_sets[0], node_requests={GPU: 1, "ephemeral-storage": 2**70})
    made.change(replace(value, pod_sets=(main,)))
    reason = why(made, "g")
    assert reason.code is Code.TOPOLOGY_PLACEMENT_FAILED
    assert reason.closest == ()


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


def full(play, *names, sizes=((8, 8),), policy=KEEPING) -> Play:
    """Every node is taken by a workload of its own, `r0n0` by that name."""
    made = racks(play, sizes, policy=policy)
    made.submit(*[on(name, name, 8, "other") for name in names])
    assert len(admitted(made.run())) == len(names)
    return made


@pytest.mark.parametrize("strict", [False, True], ids=["of its shape", "in a StrictFIFO queue"])
def test_a_domain_is_not_kept_from_whoever_comes_before_in_the_same_queue(play, strict):
    made = full(play, "r0n0", "r0n1")
    if strict:
        made.queues(cluster_queue("q").flavor("gpus", {GPU: 1000}).within(LOWER).strict())
    made.submit(gang("late", 2, 8).at(50.0))
    made.run()
    made.now += 61
    assert "is kept for it" in why(made, "late").message
    made.submit(gang("early", 2, 8).at(40.0))
    made.run()
    made.finish("r0n0", "r0n1")
    assert admitted(made.run()) == ["early"]


def test_a_domain_is_kept_from_whoever_comes_after(play):
    made = full(play, "r0n0", "r0n1")
    made.submit(gang("g", 2, 8))
    made.run()
    made.now += 61
    made.run()
    made.submit(workload("small").queue("q").gpus(1), workload("elsewhere").queue("other").gpus(1))
    made.finish("r0n0")
    assert admitted(made.run()) == []
    made.finish("r0n1")
    assert admitted(made.run()) == ["g"]


def test_nothing_is_kept_for_a_queue_that_is_inactive(play):
    made = full(play, "r0n0", "r0n1")
    made.apply(events.CheckChanged(check("c")))
    made.queues(cluster_queue("q").flavor("gpus", {GPU: 1000}).checks("c"))
    made.submit(gang("g", 2, 8))
    made.run()
    made.now += 61
    made.run()
    made.apply(events.CheckChanged(check("c", active=False)))
    made.submit(workload("small").queue("other").gpus(1))
    made.finish("r0n0")
    assert admitted(made.run()) == ["small"]
    made.now += 61
    made.run()
    assert not made.state.reservations.kept


def test_a_reservation_wakes_the_core_when_it_is_due_whatever_another_queue_waits_for(play):
    made = full(play, "r0n0", "r0n1", "r1n0", "r1n1", sizes=[(8, 8), (8, 8)])
    made.submit(gang("first", 2, 8), gang("behind", 2, 4))
    made.run()
    made.now += 30
    made.submit(gang("second", 2, 8, "other"))
    made.run()
    made.now += 31
    made.run()  # `first` has a domain, and `behind` has to wait for its queue to have another one
    due = made.state.next_wakeup()
    assert due is not None
    assert due <= made.now + 30
    made.now = due
    made.run()
    assert {one.record.uid for one in made.state.reservations.kept.values()} == {"first", "second"}


def test_domains_that_are_kept_do_not_overlap(play):
    """Else each of the two would keep the other from its own."""
    made = play(KEEPING).apply(events.TopologyChanged(topology("t", BLOCK, RACK, HOSTNAME_LABEL))).flavors(GPUS)
    for rack in range(3):
        name = f"n{rack}"
        labels = {**POOL, BLOCK: "b", RACK: f"r{rack}", HOSTNAME_LABEL: name}
        made.apply(events.NodeChanged(node(name, 8, labels)))
    made.queues(*[cluster_queue(name).flavor("gpus", {GPU: 1000}) for name in ("q", "other", "full")])
    made.submit(*[on(f"n{rack}", f"n{rack}", 8, "full") for rack in range(3)])
    made.run()
    made.submit(gang("one", 1, 8))
    made.run()
    made.submit(workload("two").queue("other").gpus(8).gang(2).topology(required=BLOCK))
    made.run()
    made.now += 61
    made.run()
    made.finish("n0")
    assert admitted(made.run()) == ["one"]


def test_whoever_had_a_place_meanwhile_waits_anew_for_a_domain(play):
    made = full(play, "r0n0", "r0n1")
    made.submit(gang("first", 2, 8))
    made.run()
    made.submit(on("g", "r0n1", 8, "full"))
    made.queues(cluster_queue("full").flavor("gpus", {GPU: 1000}))
    made.run()
    made.finish("r0n1")
    assert admitted(made.run()) == ["g"]
    made.now += 45
    made.release("g")
    made.submit(on("r0n1", "r0n1", 8, "other").priority(9))
    made.run()
    made.finish("first")
    made.now += 20
    made.run()
    assert not made.state.reservations.kept
    made.now += 40
    made.run()
    assert {one.record.uid for one in made.state.reservations.kept.values()} == {"g"}


def test_whoever_waits_for_nodes_that_workloads_of_another_tree_leave_is_looked_at_each_time(play):
    made = full(play, "r0n0", "r0n1", policy=Policy())
    for name in ("r0n0", "r0n1"):
        made.change(replace(made.objects[name], evicted=True))
    made.submit(gang("g", 2, 8))
    assert held(made.run())["g"].reason.code is Code.WAITING_FOR_PREEMPTED_WORKLOADS
    made.release("r0n0")
    assert admitted(made.run()) == []
    made.release("r0n1")
    assert admitted(made.run()) == ["g"]
