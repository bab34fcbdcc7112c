"""The scenarios that the peer publishes for its scheduler: queues, classes of workloads, and when each is created.

Plain values, with the peer's own numbers, and how they look as API objects, as the peer's generator file and as events
of Muster's core. A scenario must be the same thing in all three, or the sides would not be measured on equal work.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from queues.core import events, model
from queues.simulator.replay import Arrival

API = "kueue.x-k8s.io/v1beta2"
RUN_LABEL = "kueue.x-k8s.io/performance-scheduler-running-ms"
CLASS_LABEL = "kueue.x-k8s.io/performance-scheduler-class"
FLAVOR = "rf"
CPU = model.ResourceName("cpu")

TOPOLOGY = "default-topology"
NODE_GROUP = "tas-node-group"
BLOCK, RACK, HOST = "cloud.provider.com/topology-block", "cloud.provider.com/topology-rack", model.HOSTNAME_LABEL
RACKS, NODES_PER_RACK, NODE_CPU = 10, 64, 96


@dataclass(frozen=True, slots=True)
class Class:
    """`count` workloads a queue, one each `interval_ms`, of `pods` pods of `cpu` milli-units.

    `constraint` is the peer's word: required, preferred or balanced (slices of `slice_size` pods).
    """

    name: str
    count: int
    cpu: int
    run_ms: int
    interval_ms: int
    priority: int
    pods: int = 1
    constraint: str = ""
    slice_size: int = 0

    @property
    def size(self) -> str:
        """Small, medium or large: what times to admission are averaged by."""
        return self.name.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Scenario:
    """Every queue of every cohort has the same quota (in cpus) and gets the same workloads."""

    name: str
    cohorts: int
    queues: int
    classes: tuple[Class, ...]
    nominal: int = 20
    borrowing_limit: int = 100
    topology: bool = False
    preemption: bool = True

    @property
    def workloads(self) -> int:
        return self.cohorts * self.queues * sum(each.count for each in self.classes)

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.size for each in self.classes))

    def part(self, divisor: int) -> Scenario:
        """The same queues with fewer workloads, at the same intervals."""
        if divisor == 1:
            return self
        classes = tuple(replace(each, count=max(1, round(each.count / divisor))) for each in self.classes)
        return replace(self, classes=classes)


@dataclass(frozen=True, slots=True)
class Queue:
    """A ClusterQueue; its namespace and its LocalQueue have the same name."""

    name: str
    cohort: str


@dataclass(frozen=True, slots=True)
class Creation:
    """`at` is in seconds from the start."""

    at: float
    queue: str
    name: str
    of: Class


def _balanced(
    name: str, counts: tuple[int, int, int], cpu: int, pods: int, slice_size: int, **rest: int
) -> list[Class]:
    """A class of the baseline, by thirds required, preferred and balanced in a rack."""
    kinds = zip(("required", "preferred", "balanced"), counts, strict=True)
    return [
        Class(
            f"{name}-{kind}-rack", count, cpu, pods=pods, constraint=kind, slice_size=slice_size * (kind == "balanced"),
            **rest,
        )
        for kind, count in kinds
    ]  # fmt: skip


BASELINE = Scenario(
    "baseline",
    cohorts=5,
    queues=6,
    classes=(
        Class("small", 350, 1000, run_ms=200, interval_ms=100, priority=50),
        Class("medium", 100, 5000, run_ms=500, interval_ms=500, priority=100),
        Class("large", 50, 20_000, run_ms=1000, interval_ms=1200, priority=200),
    ),
)

LARGE = Scenario(
    "large",
    cohorts=10,
    queues=100,
    classes=(
        Class("small", 35, 1000, run_ms=150, interval_ms=60, priority=50),
        Class("medium", 11, 5000, run_ms=350, interval_ms=300, priority=100),
        Class("large", 4, 20_000, run_ms=700, interval_ms=700, priority=200),
    ),
)

TAS = Scenario(
    "topology",
    cohorts=5,
    queues=6,
    classes=(
        *_balanced("small", (120, 120, 110), 500, 2, 1, run_ms=200, interval_ms=100, priority=50),
        *_balanced("medium", (34, 33, 33), 1250, 4, 2, run_ms=500, interval_ms=500, priority=100),
        *_balanced("large", (17, 17, 16), 2500, 8, 4, run_ms=1000, interval_ms=1200, priority=200),
    ),
    topology=True,
)

SCENARIOS = {each.name: each for each in (BASELINE, LARGE, TAS)}


def queues(scenario: Scenario) -> list[Queue]:
    return [
        Queue(f"cq-0-{queue}-cohort-{cohort}", f"cohort-{cohort}")
        for cohort in range(scenario.cohorts)
        for queue in range(scenario.queues)
    ]


def creations(scenario: Scenario) -> list[Creation]:
    """In the order in which they fall due; each class of each queue keeps its own interval, as the generator does."""
    found = [
        Creation((turn + 1) * each.interval_ms / 1000, queue.name, f"{each.name}-{index}-{turn}-0", each)
        for queue in queues(scenario)
        for index, each in enumerate(scenario.classes)
        for turn in range(each.count)
    ]
    return sorted(found, key=lambda one: one.at)


# ------------------------------------------------------------------ as API objects


def flavor_name(scenario: Scenario) -> str:
    return "tas-flavor" if scenario.topology else FLAVOR


def node_names() -> Iterator[tuple[str, dict[str, str]]]:
    """Name and topology labels of every node."""
    for rack in range(RACKS):
        for node in range(NODES_PER_RACK):
            yield f"node-b0-r{rack}-n{node}", {BLOCK: "block-0", RACK: f"rack-{rack}", HOST: f"node-b0-r{rack}-n{node}"}


def shared_objects(scenario: Scenario) -> Iterator[dict[str, Any]]:
    """What all queues need: nodes, topology, flavor."""
    if scenario.topology:
        for name, labels in node_names():
            allocatable = {"cpu": str(NODE_CPU), "memory": "256Gi", "pods": "110"}
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {NODE_GROUP: "tas", **labels}},
                "status": {
                    "allocatable": allocatable,
                    "capacity": allocatable,
                    "conditions": [{"type": "Ready", "status": "True", "reason": "StartedByBenchmark"}],
                },
            }
        levels = [{"nodeLabel": label} for label in (BLOCK, RACK, HOST)]
        yield {"apiVersion": API, "kind": "Topology", "metadata": {"name": TOPOLOGY}, "spec": {"levels": levels}}
    spec = {"nodeLabels": {NODE_GROUP: "tas"}, "topologyName": TOPOLOGY} if scenario.topology else {}
    yield {"apiVersion": API, "kind": "ResourceFlavor", "metadata": {"name": flavor_name(scenario)}, "spec": spec}


def queue_objects(scenario: Scenario, queue: Queue) -> Iterator[dict[str, Any]]:
    quota = {
        "name": "cpu",
        "nominalQuota": str(scenario.nominal),
        "borrowingLimit": str(scenario.borrowing_limit),
    }
    flavor = {"name": flavor_name(scenario), "resources": [quota]}
    policy = ("Any", "LowerPriority") if scenario.preemption else ("Never", "Never")
    yield {
        "apiVersion": API,
        "kind": "ClusterQueue",
        "metadata": {"name": queue.name, "labels": {CLASS_LABEL: "cq"}},
        "spec": {
            "cohortName": queue.cohort,
            "namespaceSelector": {},
            "queueingStrategy": "BestEffortFIFO",
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}],
            "preemption": {"reclaimWithinCohort": policy[0], "withinClusterQueue": policy[1]},
        },
    }
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": queue.name}}
    yield {
        "apiVersion": API,
        "kind": "LocalQueue",
        "metadata": {"name": queue.name, "namespace": queue.name},
        "spec": {"clusterQueue": queue.name},
    }


def quantity(milli: int) -> str:
    return f"{milli}m" if milli % 1000 else str(milli // 1000)


def workload_object(creation: Creation) -> dict[str, Any]:
    each = creation.of
    container = {"name": "c", "resources": {"requests": {"cpu": quantity(each.cpu)}}}
    pod_set: dict[str, Any] = {
        "name": "main",
        "count": each.pods,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
    }
    match each.constraint:
        case "required":
            pod_set["topologyRequest"] = {"required": RACK}
        case "preferred":
            pod_set["topologyRequest"] = {"preferred": RACK}
        case "balanced":
            pod_set["topologyRequest"] = {"podSetSliceRequiredTopology": RACK, "podSetSliceSize": each.slice_size}
    return {
        "apiVersion": API,
        "kind": "Workload",
        "metadata": {
            "name": creation.name,
            "namespace": creation.queue,
            "labels": {RUN_LABEL: str(each.run_ms), CLASS_LABEL: each.name},
        },
        "spec": {"queueName": creation.queue, "priority": each.priority, "podSets": [pod_set]},
    }


# ------------------------------------------------------------------ as the peer's generator file


def generator_config(scenario: Scenario) -> dict[str, Any]:
    """For the peer's own runner."""
    sets = []
    for each in scenario.classes:
        template: dict[str, Any] = {
            "className": each.name,
            "runtimeMs": each.run_ms,
            "priority": each.priority,
            "request": quantity(each.cpu),
        }
        if each.constraint:
            template |= {"podCount": each.pods, "tasConstraint": each.constraint, "tasLevel": RACK}
        if each.slice_size:
            template["sliceSize"] = each.slice_size
        sets.append({"count": each.count, "creationIntervalMs": each.interval_ms, "workloads": [template]})
    queue_set = {
        "className": "cq",
        "count": scenario.queues,
        "nominalQuota": str(scenario.nominal),
        "borrowingLimit": str(scenario.borrowing_limit),
        "reclaimWithinCohort": "Any",
        "withinClusterQueue": "LowerPriority",
        "workloadsSets": sets,
    }
    config: dict[str, Any] = {
        "cohorts": [{"className": "cohort", "count": scenario.cohorts, "queuesSets": [queue_set]}]
    }
    if scenario.topology:
        levels: list[dict[str, Any]] = [
            {"name": "block", "count": 1, "nodeLabel": BLOCK},
            {"name": "rack", "count": RACKS, "nodeLabel": RACK},
            {"name": "node", "count": NODES_PER_RACK, "nodeLabel": HOST},
        ]
        levels[-1]["capacity"] = {"cpu": str(NODE_CPU), "memory": "256Gi"}
        config["topology"] = {"name": TOPOLOGY, "levels": levels}
        config["resourceFlavor"] = {
            "name": flavor_name(scenario),
            "nodeLabel": NODE_GROUP,
            "topologyName": TOPOLOGY,
        }
    return config


# ------------------------------------------------------------------ as the core's events


def core_setup(scenario: Scenario, depth: int = 1) -> Iterator[events.Event]:
    """Flavor, queues and, for a `depth` above 1, so many cohorts above each other instead of each one."""
    flavor = model.FlavorName(flavor_name(scenario))
    if scenario.topology:
        yield events.TopologyChanged(model.Topology(model.TopologyName(TOPOLOGY), (BLOCK, RACK, HOST)))
        for name, labels in node_names():
            allocatable = {CPU: NODE_CPU * 1000, model.ResourceName("pods"): 110}
            yield events.NodeChanged(model.Node(model.NodeName(name), {NODE_GROUP: "tas", **labels}, allocatable))
        labels_of_flavor = ((NODE_GROUP, "tas"),)
        topology = model.TopologyName(TOPOLOGY)
        yield events.FlavorChanged(model.ResourceFlavor(flavor, labels_of_flavor, topology=topology))
    else:
        yield events.FlavorChanged(model.ResourceFlavor(flavor))
    quota = model.Quota(scenario.nominal * 1000, scenario.borrowing_limit * 1000)
    group = model.ResourceGroup((CPU,), (model.FlavorQuotas(flavor, {CPU: quota}),))
    preemption = (
        model.Preemption(
            within_cluster_queue=model.PreemptionPolicy.LOWER_PRIORITY,
            reclaim_within_cohort=model.PreemptionPolicy.ANY,
        )
        if scenario.preemption
        else model.Preemption()
    )
    for cohort in dict.fromkeys(queue.cohort for queue in queues(scenario)):
        names = [model.CohortName(cohort if level == 0 else f"{cohort}-{level}") for level in range(depth)]
        for name, parent in zip(names, [*names[1:], None], strict=True):
            if depth > 1:
                yield events.CohortChanged(model.Cohort(name, parent))
    for queue in queues(scenario):
        name = model.ClusterQueueName(queue.name)
        yield events.ClusterQueueChanged(
            model.ClusterQueue(name, (group,), model.CohortName(queue.cohort), preemption=preemption)
        )
        yield events.LocalQueueChanged(model.LocalQueue(model.ObjectKey(queue.name, queue.name), name))


def arrivals(scenario: Scenario, *, spread: bool = False) -> list[Arrival]:
    """`spread` gives each class of each queue a phase of its own, so that hardly two arrive at the same moment."""
    found = []
    for creation in creations(scenario):
        each = creation.of
        at = creation.at + (_phase(creation) * each.interval_ms / 1000 if spread else 0.0)
        found.append(Arrival(_workload(creation, at), each.run_ms / 1000))
    return found


def _workload(creation: Creation, at: float) -> model.Workload:
    each = creation.of
    request = None
    match each.constraint:
        case "required":
            request = model.TopologyRequest(required=RACK)
        case "preferred":
            request = model.TopologyRequest(preferred=RACK)
        case "balanced":
            request = model.TopologyRequest(slice_required=RACK, slice_size=each.slice_size)
    amounts = {CPU: each.cpu}
    return model.Workload(
        uid=model.Uid(f"{creation.queue}/{creation.name}"),
        key=model.ObjectKey(creation.queue, creation.name),
        queue=model.ObjectKey(creation.queue, creation.queue),
        pod_sets=(model.PodSet("main", each.pods, amounts, amounts, topology=request),),
        priority=each.priority,
        created_at=at,
        queued_at=at,
    )


def _phase(creation: Creation) -> float:
    """Between 0 and 1, the same in every run."""
    digest = hashlib.blake2b(f"{creation.queue}/{creation.of.name}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") / 2**32
