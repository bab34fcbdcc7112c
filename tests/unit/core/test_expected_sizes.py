"""What a flavor that keeps room for what comes is told of workloads as they wait, start and go."""

from __future__ import annotations

from queues.core import events
from queues.core.cycle import decide
from queues.core.model import (
    HOSTNAME_LABEL,
    ClusterQueue,
    FlavorQuotas,
    LocalQueue,
    Node,
    ObjectKey,
    Packing,
    PodSet,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Size,
    Topology,
    Workload,
)
from queues.core.plan import Admit
from queues.core.policy import Policy
from queues.core.state import State

GPU = "nvidia.com/gpu"
QUEUE = ObjectKey("ns", "q")
FLAVOR = ResourceFlavor("f", topology="t", packing=Packing.FRAGMENTATION_AWARE)


def size(gpus: int) -> Size:
    return Size(((GPU, gpus), ("pods", 1)))


def workload(name: str, gpus: int) -> Workload:
    return Workload(name, ObjectKey("ns", name), QUEUE, (PodSet("main", 1, {GPU: gpus}, {GPU: gpus}),))


def state_of(flavor: ResourceFlavor = FLAVOR, *gpus: int) -> State:
    state = State()
    state.apply(events.TopologyChanged(Topology("t", (HOSTNAME_LABEL,))))
    state.apply(events.FlavorChanged(flavor))
    group = ResourceGroup((GPU,), (FlavorQuotas("f", {GPU: Quota(100)}),))
    state.apply(events.ClusterQueueChanged(ClusterQueue("cq", (group,))))
    state.apply(events.LocalQueueChanged(LocalQueue(QUEUE, "cq")))
    for index, count in enumerate(gpus):
        name = f"n{index}"
        state.apply(events.NodeChanged(Node(name, {HOSTNAME_LABEL: name}, {GPU: count, "pods": 10})))
    return state


def told(state: State) -> dict[Size, int]:
    return dict(state.books.domains.sizes["f"].coming())


def place_of(state: State, uid: str) -> str:
    (admission,) = (
        each.admission for each in decide(state, 0.0, Policy()) if isinstance(each, Admit) and each.uid == uid
    )
    (domain,) = admission.pod_sets[0].topology.domains
    return domain.values[0]


def test_what_waits_is_known_until_it_is_gone() -> None:
    state = state_of()
    state.apply(events.WorkloadChanged(workload("a", 8)))
    assert told(state) == {size(8): 1}
    state.apply(events.WorkloadGone("a"))
    assert told(state) == {}


def test_what_was_started_is_remembered_once_it_is_gone() -> None:
    state = state_of(FLAVOR, 8)
    state.apply(events.WorkloadChanged(workload("a", 8)))
    assert place_of(state, "a") == "n0"
    state.apply(events.WorkloadGone("a"))
    assert told(state) == {size(8): 1}


def test_a_pod_leaves_the_whole_node_to_the_one_that_waits_for_it() -> None:
    state = state_of(FLAVOR, 8, 12)
    state.apply(events.WorkloadChanged(workload("small", 1)))
    state.apply(events.SizesRemembered("f", ((size(8), 5),)))
    assert place_of(state, "small") == "n1"


def test_without_the_policy_it_goes_where_kueue_puts_it() -> None:
    state = state_of(ResourceFlavor("f", topology="t"), 8, 12)
    state.apply(events.WorkloadChanged(workload("small", 1)))
    state.apply(events.SizesRemembered("f", ((size(8), 5),)))
    assert place_of(state, "small") == "n0"


def test_a_flavor_that_begins_to_ask_is_told_of_everybody() -> None:
    state = state_of(ResourceFlavor("f", topology="t"), 4)
    state.apply(events.SizesRemembered("f", ((size(2), 3),)))
    for name, gpus in (("running", 4), ("waiting", 8)):
        state.apply(events.WorkloadChanged(workload(name, gpus)))
        decide(state, 0.0, Policy())
    state.apply(events.FlavorChanged(FLAVOR))
    assert told(state) == {size(2): 3, size(4): 1, size(8): 1}


def test_what_waited_before_its_queue_was_there_is_known_as_soon_as_that_is() -> None:
    state = state_of()
    state.apply(events.LocalQueueGone(QUEUE))
    state.apply(events.WorkloadChanged(workload("a", 8)))
    assert told(state) == {}
    state.apply(events.LocalQueueChanged(LocalQueue(QUEUE, "cq")))
    assert told(state) == {size(8): 1}
    state.apply(events.LocalQueueGone(QUEUE))
    assert told(state) == {}


def test_a_flavor_that_begins_to_ask_makes_no_other_forget() -> None:
    state = state_of(FLAVOR, 8)
    state.apply(events.WorkloadChanged(workload("a", 8)))
    assert place_of(state, "a") == "n0"
    state.apply(events.WorkloadGone("a"))
    state.apply(events.WorkloadChanged(workload("b", 4)))
    assert place_of(state, "b") == "n0"
    state.apply(events.FlavorChanged(ResourceFlavor("other", topology="t", packing=Packing.FRAGMENTATION_AWARE)))
    assert told(state) == {size(8): 1, size(4): 1}
