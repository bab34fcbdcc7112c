"""Placement on large clusters, the core alone: one process, no API server.

Four questions: how long one decision for a large gang takes, a cycle of gangs that all do not fit, a search for
victims whose leaving opens a domain, and how much memory a cluster in full use needs. Each is asked again at another
size, so that growth shows. Run as `python -m benchmarks.topology` (`--profile NAME` shows where the time goes).
"""

from __future__ import annotations

import argparse
import cProfile
import gc
import pstats
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import report
from queues.core import events, model
from queues.core.cycle import decide
from queues.core.model import HOSTNAME_LABEL, FlavorName, ResourceName
from queues.core.plan import Admit, Evict
from queues.core.policy import Policy
from queues.core.state import State

GPU, CPU, PODS = ResourceName("nvidia.com/gpu"), ResourceName("cpu"), ResourceName("pods")
BLOCK, RACK = "topology.example.com/block", "topology.example.com/rack"
QUEUE = model.ObjectKey("team", "q")
HOSTS_OF_A_RACK, RACKS_OF_A_BLOCK = 20, 40


def cluster(nodes: int, preemption: model.Preemption | None = None) -> State:
    """So many nodes of 8 GPUs in racks of 20 and blocks of 40 racks, and one queue with quota for all and more."""
    state = State()
    state.apply(events.TopologyChanged(model.Topology(model.TopologyName("t"), (BLOCK, RACK, HOSTNAME_LABEL))))
    state.apply(events.FlavorChanged(model.ResourceFlavor(FlavorName("f"), topology=model.TopologyName("t"))))
    quotas = {name: model.Quota(nodes * 1_000_000) for name in (GPU, CPU)}
    group = model.ResourceGroup((GPU, CPU), (model.FlavorQuotas(FlavorName("f"), quotas),))
    queue = model.ClusterQueueName("q")
    state.apply(
        events.ClusterQueueChanged(model.ClusterQueue(queue, (group,), preemption=preemption or model.Preemption()))
    )
    state.apply(events.LocalQueueChanged(model.LocalQueue(QUEUE, queue)))
    for index in range(nodes):
        state.apply(events.NodeChanged(node(index)))
    return state


def node(index: int) -> model.Node:
    rack = index // HOSTS_OF_A_RACK
    name = f"node-{index:06}"
    labels = {BLOCK: f"block-{rack // RACKS_OF_A_BLOCK:04}", RACK: f"rack-{rack:05}", HOSTNAME_LABEL: name}
    return model.Node(model.NodeName(name), labels, {GPU: 8, CPU: 192_000, PODS: 110})


def gang(name: str, count: int, gpus: int = 8, priority: int = 0, cpu: int = 4000, **request: Any) -> model.Workload:
    requests = {GPU: gpus, CPU: cpu}
    topology = model.TopologyRequest(**request) if request else None
    pods = model.PodSet("main", count, requests, requests, topology=topology)
    key = model.ObjectKey("team", name)
    return model.Workload(model.Uid(name), key, QUEUE, (pods,), priority=priority)


def admitted(state: State, workload: model.Workload, now: float) -> None:
    """Decide, and tell the state what was written."""
    state.apply(events.WorkloadChanged(workload))
    (decision,) = decide(state, now, Policy())
    if not isinstance(decision, Admit):
        raise SystemExit(f"{workload.key} was not admitted: {decision}")
    state.apply(events.WorkloadChanged(replace(workload, admission=replace(decision.admission, admitted=True))))


def holding(workload: model.Workload, host: int, since: float) -> model.Workload:
    """The workload with its one pod on this node."""
    (pods,) = workload.pod_sets
    place = model.TopologyDomain((f"node-{host:06}",), 1)
    assignment = model.PodSetAssignment(
        "main",
        1,
        dict.fromkeys(pods.requests, FlavorName("f")),
        dict(pods.requests),
        model.TopologyAssignment((HOSTNAME_LABEL,), (place,)),
    )
    admission = model.Admission(model.ClusterQueueName("q"), (assignment,), since, admitted=True)
    return replace(workload, admission=admission)


def fill(state: State, nodes: int, size: int = 64) -> None:
    """Gangs of whole nodes until all are in use."""
    for index in range(nodes // size):
        admitted(state, gang(f"full-{index}", size, preferred=RACK), float(index))


def timed(work: Callable[[], object]) -> float:
    """Seconds of processor time; nothing is collected meanwhile."""
    gc.collect()
    gc.disable()
    try:
        began = time.process_time()
        work()
        return time.process_time() - began
    finally:
        gc.enable()


# ------------------------------------------------------------------ the questions


def one_gang(nodes: int, pods: int, times: int = 15, **request: Any) -> float:
    """Milliseconds of one decision, the median: each gang stays, so that every one changes what the next finds."""
    state = cluster(nodes)
    request = request or {"preferred": RACK}
    admitted(state, gang("first", 1, **request), 0.0)
    found = []
    for index in range(times):
        workload = gang(f"g{index}", pods, cpu=4000 + index, **request)  # a shape of its own: nothing is known of it
        state.apply(events.WorkloadChanged(workload))
        found.append(timed(lambda at=float(index): decide(state, at, Policy())))  # type: ignore[misc]
    return statistics.median(found) * 1e3


def none_fits(nodes: int, gangs: int = 1000) -> float:
    """Seconds of one `decide` that judges so many gangs of different shapes, none of which fits into a rack."""
    state = cluster(nodes)
    admitted(state, gang("first", 1, required=RACK), 0.0)
    for index in range(gangs):
        workload = gang(f"g{index}", HOSTS_OF_A_RACK + 1, cpu=4000 + index, required=RACK)
        state.apply(events.WorkloadChanged(workload))
    plan: list[object] = []
    seconds = timed(lambda: plan.extend(decide(state, 0.0, Policy())))
    if len(plan) != gangs or any(isinstance(each, Admit) for each in plan):
        raise SystemExit("something was admitted that does not fit")
    return seconds


def victims(nodes: int, count: int, pods: int = HOSTS_OF_A_RACK) -> float:
    """Milliseconds until it is known who has to go for a gang that needs a rack, among `count` single-node victims.

    They stand in the way in an order that has nothing to do with racks, so that most have to be looked at before any
    rack is free.
    """
    lower = model.Preemption(within_cluster_queue=model.PreemptionPolicy.LOWER_PRIORITY)
    state = cluster(nodes, lower)
    order = list(range(count))
    random.Random(7).shuffle(order)
    for since, index in enumerate(order):
        state.apply(events.WorkloadChanged(holding(gang(f"v{index}", 1), index % nodes, float(since))))
    state.apply(events.WorkloadChanged(gang("preemptor", pods, priority=1, required=RACK)))
    plan: list[object] = []
    seconds = timed(lambda: plan.extend(decide(state, 1e6, Policy())))
    evictions = sum(isinstance(each, Evict) for each in plan)
    if evictions != pods:
        raise SystemExit(f"{evictions} were evicted for {pods} nodes")
    return seconds * 1e3


def tree(nodes: int) -> float:
    """Milliseconds of the first decision after a start or a new node: the domains are sorted anew."""
    state = cluster(nodes)
    state.apply(events.WorkloadChanged(gang("first", 1, required=RACK)))
    return timed(lambda: decide(state, 0.0, Policy())) * 1e3


def memory(nodes: int) -> float:
    """MiB that the process has grown by with all GPUs in use."""
    before = resident()
    state = cluster(nodes)
    fill(state, nodes)
    decide(state, 1e6, Policy())
    return resident() - before


def resident() -> float:
    gc.collect()
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def figures() -> Iterator[report.Figure]:
    def shown(name: str, value: float, unit: str, at_most: float | None = None) -> report.Figure:
        bound = None if at_most is None else report.Bound(at_most=at_most)
        return report.show(report.Figure(f"topology.{name}", value, unit, bound=bound))

    yield shown("memory.40000_nodes_320000_gpus", memory(40_000), "MiB", 300)
    large = one_gang(40_000, 512)
    yield shown("gang_512.40000_nodes", large, "ms", 5)
    yield shown("gang_512.40000_nodes.required_block", one_gang(40_000, 512, required=BLOCK), "ms", 5)
    yield shown("gang_512.40000_nodes.unconstrained", one_gang(40_000, 512, unconstrained=True), "ms", 5)
    yield shown("gang_512.growth_nodes_x10", large / one_gang(4_000, 512, times=7), "x")
    yield shown("gang.growth_pods_x10", large / one_gang(40_000, 51), "x")
    yield shown("first_decision.40000_nodes", tree(40_000), "ms")
    unfit = none_fits(40_000)
    yield shown("unfit_1000.40000_nodes", unfit, "s", 1)
    yield shown("unfit_1000.growth_nodes_x10", unfit / none_fits(4_000), "x")
    search = victims(5_000, 5_000)
    yield shown("victims_5000.5000_nodes", search, "ms", 500)
    yield shown("victims_5000.growth_x10", search / victims(500, 500), "x")


QUESTIONS: dict[str, Callable[[], object]] = {
    "gang": lambda: one_gang(40_000, 512),
    "unconstrained": lambda: one_gang(40_000, 512, unconstrained=True),
    "unfit": lambda: none_fits(40_000),
    "victims": lambda: victims(5_000, 5_000),
    "tree": lambda: tree(40_000),
    "memory": lambda: memory(40_000),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--only", choices=QUESTIONS, help="one answer, in its unit")
    parser.add_argument("--profile", choices=QUESTIONS, help="cProfile of one question instead")
    args = parser.parse_args()
    if args.only:
        print(QUESTIONS[args.only]())
        return
    if args.profile:
        profiler = cProfile.Profile()
        profiler.runcall(QUESTIONS[args.profile])
        pstats.Stats(profiler).sort_stats("tottime").print_stats(25)
        return
    report.finish("placement", list(figures()))


if __name__ == "__main__":
    main()
