"""A cluster in small: the objects as the API server has them, and a shell that carries plans out late, early or never.

It feeds a `State` through events alone and keeps the whole history, so that it can be played again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from hypothesis import note

from queues.core import events
from queues.core.cycle import decide
from queues.core.events import Event
from queues.core.model import (
    Admission,
    ClusterQueue,
    Cohort,
    FlavorResource,
    LocalQueue,
    Node,
    ObjectKey,
    ResourceFlavor,
    Topology,
    Workload,
)
from queues.core.plan import Admit, Evict, Hold, Plan
from queues.core.policy import Policy
from queues.core.state import State
from tests.oracle.quota import Holder, World


@dataclass
class Cluster:
    """`workloads` are the objects as last written, `unwritten` the decisions that no write confirmed yet, in order."""

    policy: Policy = field(default_factory=lambda: Policy(max_rounds=300))
    now: float = 1.0
    queues: dict[str, ClusterQueue] = field(default_factory=dict)
    local_queues: list[str] = field(default_factory=list)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    topologies: dict[str, Topology] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    workloads: dict[str, Workload] = field(default_factory=dict)
    unwritten: dict[str, list[Admit | Evict]] = field(default_factory=dict)
    state: State = field(default_factory=State)
    history: list[Event | float] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    #: What the last decision gave and took back again before anybody heard of it.
    withdrawn: list[Holder] = field(default_factory=list)
    #: Hears of every event.
    tell_of: Callable[[str], None] | None = note

    # ---- what happens

    def tell(self, event: Event) -> None:
        if self.tell_of is not None:
            self.tell_of(f"    {event}")
        self.history.append(event)
        self.state.apply(event)

    def put_flavor(self, flavor: ResourceFlavor) -> None:
        self.flavors[flavor.name] = flavor
        self.tell(events.FlavorChanged(flavor))

    def put_queue(self, queue: ClusterQueue) -> None:
        self.queues[queue.name] = queue
        self.tell(events.ClusterQueueChanged(queue))
        if queue.name not in self.local_queues:
            self.local_queues.append(queue.name)
            self.tell(events.LocalQueueChanged(local_queue(queue.name)))

    def drop_queue(self, name: str) -> None:
        del self.queues[name]
        self.tell(events.ClusterQueueGone(name))

    def put_cohort(self, cohort: Cohort) -> None:
        self.cohorts[cohort.name] = cohort
        self.tell(events.CohortChanged(cohort))

    def drop_cohort(self, name: str) -> None:
        del self.cohorts[name]
        self.tell(events.CohortGone(name))

    def put_topology(self, topology: Topology) -> None:
        self.topologies[topology.name] = topology
        self.tell(events.TopologyChanged(topology))

    def put_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.tell(events.NodeChanged(node))

    def drop_node(self, name: str) -> None:
        del self.nodes[name]
        self.tell(events.NodeGone(name))

    def put(self, workload: Workload) -> None:
        """The object was written, by a user or by the shell."""
        self.workloads[workload.uid] = workload
        self.tell(events.WorkloadChanged(workload))

    def end(self, uid: str) -> None:
        self.unwritten.pop(uid, None)
        del self.workloads[uid]
        self.tell(events.WorkloadGone(uid))

    def decide(self) -> Plan:
        self.history.append(self.now)
        plan = decide(self.state, self.now, self.policy)
        self.withdrawn = [holder_of(workload, admission) for workload, admission in self.state.withdrawn]
        assert not self.state.waiting.heads(), "it does not come to an end"
        self.plans.append(plan)
        for decision in plan:
            if not isinstance(decision, Hold):
                self.unwritten.setdefault(decision.uid, []).append(decision)
        return plan

    def write(self, uid: str) -> None:
        """The status writes of all decisions about the workload went through."""
        workload = self.workloads[uid]
        for decision in self.unwritten.pop(uid):
            if isinstance(decision, Admit):
                workload = replace(workload, admission=replace(decision.admission, admitted=True))
            else:
                workload = replace(workload, evicted=True)
        self.put(workload)

    def refuse(self, uid: str) -> None:
        """The write conflicts."""
        del self.unwritten[uid]
        self.tell(events.WriteRefused(uid))

    def release(self, uid: str) -> None:
        """The pods of an evicted workload are gone: it holds nothing and waits again."""
        self.put(replace(self.workloads[uid], admission=None, evicted=False))

    # ---- what is true now

    def admission(self, uid: str) -> Admission | None:
        decided = [d.admission for d in self.unwritten.get(uid, ()) if isinstance(d, Admit)]
        return decided[0] if decided else self.workloads[uid].admission

    def is_evicted(self, uid: str) -> bool:
        return self.workloads[uid].evicted or any(isinstance(d, Evict) for d in self.unwritten.get(uid, ()))

    def world(self) -> World:
        """For the oracle: the objects, and who holds what, decisions under way included."""
        holders = []
        for uid, workload in sorted(self.workloads.items()):
            admission = self.admission(uid)
            if admission is not None:
                holders.append(holder_of(workload, admission, evicted=self.is_evicted(uid)))
        is_fair = self.policy.fair_sharing is not None
        return World(dict(self.queues), dict(self.cohorts), dict(self.flavors), tuple(holders), is_fair)

    def waiting(self) -> list[Workload]:
        """In the order of the queues."""
        found = [w for uid, w in self.workloads.items() if self.admission(uid) is None]
        return sorted(found, key=lambda w: (-w.priority, w.queued_at, w.uid))

    def objects(self) -> list[Event]:
        """Everything that a fresh start would list."""
        return [
            *[events.FlavorChanged(one) for one in self.flavors.values()],
            *[events.TopologyChanged(one) for one in self.topologies.values()],
            *[events.NodeChanged(one) for one in self.nodes.values()],
            *[events.CohortChanged(one) for one in self.cohorts.values()],
            *[events.ClusterQueueChanged(one) for one in self.queues.values()],
            *[events.LocalQueueChanged(local_queue(name)) for name in self.local_queues],
            *[events.WorkloadChanged(one) for one in self.workloads.values()],
        ]


def local_queue(name: str) -> LocalQueue:
    """Each ClusterQueue has a LocalQueue of the same name."""
    return LocalQueue(ObjectKey("ns", name), name)


def holder_of(workload: Workload, admission: Admission, *, evicted: bool = False) -> Holder:
    left = {pod_set.name: pod_set.count - pod_set.reclaimable for pod_set in workload.pod_sets}
    usage: dict[FlavorResource, int] = {}
    for pod_set in admission.pod_sets:
        for resource, amount in pod_set.usage.items():
            fr = FlavorResource(pod_set.flavors[resource], resource)
            still = amount if left[pod_set.name] >= pod_set.count else amount // pod_set.count * left[pod_set.name]
            usage[fr] = usage.get(fr, 0) + still
    return Holder(
        workload.uid,
        admission.cluster_queue,
        tuple(sorted(usage.items())),
        workload.priority,
        workload.queued_at,
        admission.reserved_at,
        evicted,
    )


def played(history: list[Event | float], policy: Policy) -> list[Plan]:
    """The plans of a fresh state that sees the same events and decides at the same times."""
    state = State()
    plans = []
    for entry in history:
        if isinstance(entry, float):
            plans.append(decide(state, entry, policy))
        else:
            state.apply(entry)
    return plans
