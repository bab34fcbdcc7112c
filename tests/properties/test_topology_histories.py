"""Whatever happens to gangs and nodes: every gang stands where it may, on nodes that have room for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

from hypothesis import given, note
from hypothesis import strategies as st

from queues.core import events
from queues.core.model import (
    HOSTNAME_LABEL,
    ClusterQueue,
    FlavorQuotas,
    FlavorResource,
    Node,
    ObjectKey,
    PodSet,
    Preemption,
    PreemptionPolicy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Topology,
    TopologyRequest,
    Workload,
)
from queues.core.plan import Admit, Evict, Plan
from queues.core.state import State
from tests.oracle import placement as oracle
from tests.oracle.preemption import fits
from tests.oracle.quota import Holder, World
from tests.properties.cluster import Cluster, holder_of, played
from tests.unit.core.invariants import check_invariants

GPU = "nvidia.com/gpu"
LEVELS = ("rack", HOSTNAME_LABEL)
UNIT = FlavorResource("gpu", GPU)

STEPS = (
    *["arrive"] * 8,
    *["decide"] * 8,
    *["write"] * 3,
    *["release"] * 3,
    *["end"] * 2,
    *["node"] * 2,
    "pod",
    "pod gone",
    "refuse",
    "restart",
)


class History:
    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.cluster = cluster = Cluster()
        self.arrived = 0
        #: Pods that nobody queued: uid -> (node, GPUs).
        self.pods: dict[str, tuple[str, int]] = {}
        cluster.put_topology(Topology("topo", LEVELS))
        cluster.put_flavor(ResourceFlavor("gpu", topology="topo"))
        for rack, hosts in enumerate(self.draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))):
            for host in range(hosts):
                name = f"r{rack}n{host}"
                labels = {"rack": f"r{rack}", HOSTNAME_LABEL: name}
                gpus = self.draw(st.sampled_from([2, 4, 4, 4]))
                cluster.put_node(Node(name, labels, {GPU: gpus, "pods": 9}))
        within = st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY])
        for name in ("q0", "q1")[: self.draw(st.integers(1, 2))]:
            nominal = self.draw(st.integers(2, 16))
            reclaim = self.draw(st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.ANY]))
            group = ResourceGroup((GPU,), (FlavorQuotas("gpu", {GPU: Quota(nominal)}),))
            preemption = Preemption(self.draw(within), reclaim)
            cluster.put_queue(ClusterQueue(name, (group,), "root", preemption=preemption))
        for _ in range(self.draw(st.integers(0, 8))):
            cluster.put(self.draw_workload())
        self.decide()
        for uid in list(cluster.unwritten):
            cluster.write(uid)

    def draw(self, strategy):
        return self.data.draw(strategy)

    def pick(self, uids) -> str | None:
        found = sorted(uids)
        return self.draw(st.sampled_from(found)) if found else None

    def step(self) -> None:
        cluster = self.cluster
        cluster.now += 1
        kind = self.draw(st.sampled_from(STEPS))
        note(f"--- {cluster.now} {kind}")
        match kind:
            case "arrive":
                cluster.put(self.draw_workload())
            case "decide":
                self.decide()
            case "write" if (uid := self.pick(cluster.unwritten)) is not None:
                cluster.write(uid)
            case "refuse" if (uid := self.pick(cluster.unwritten)) is not None:
                cluster.refuse(uid)
            case "release" if (uid := self.pick(u for u, w in cluster.workloads.items() if w.evicted)) is not None:
                cluster.release(uid)
            case "end" if (uid := self.pick(cluster.workloads)) is not None:
                cluster.end(uid)
            case "node":
                node = cluster.nodes[self.draw(st.sampled_from(sorted(cluster.nodes)))]
                gpus = self.draw(st.sampled_from([2, 4]))
                cluster.put_node(
                    self.draw(
                        st.sampled_from(
                            [
                                replace(node, ready=not node.ready),
                                replace(node, unschedulable=not node.unschedulable),
                                replace(node, allocatable={**node.allocatable, GPU: gpus}),
                            ]
                        )
                    )
                )
            case "pod":
                name = self.draw(st.sampled_from(sorted(cluster.nodes)))
                uid = f"p{cluster.now}"
                self.pods[uid] = (name, self.draw(st.integers(1, 2)))
                cluster.tell(events.PodPlaced(uid, name, {GPU: self.pods[uid][1]}))
            case "pod gone" if (uid := self.pick(self.pods)) is not None:
                del self.pods[uid]
                cluster.tell(events.PodGone(uid))
            case "restart":
                self.restart()
            case _:
                pass
        self.check_nodes()
        check_invariants(cluster.state, within_limits=False)

    def check_nodes(self) -> None:
        """What is free on each node is what the objects, the decisions and those who wait for victims leave."""
        cluster = self.cluster
        used = self.used(self.admissions)
        for record in cluster.state.workloads.values():
            if record.claim is not None:
                for _, one in record.claim.placed:
                    for domain in one.assignment.domains:
                        there = used[domain.values[-1]]
                        there[GPU] = there.get(GPU, 0) + one.node_requests[GPU] * domain.count
                        there["pods"] = there.get("pods", 0) + domain.count
        tree = cluster.state.books.domains.tree_of("gpu")
        room = cluster.state.books.domains.room_for("gpu", PodSet("probe", 1, {}, {GPU: 1}))
        assert tree is not None
        assert room is not None
        for name, node in cluster.nodes.items():
            left = min(node.allocatable[r] - used[name].get(r, 0) for r in (GPU, "pods"))
            usable = node.ready and not node.unschedulable
            assert room[0][tree.leaf_of[name,]] == (max(0, left) if usable else 0), name

    def draw_workload(self) -> Workload:
        level = self.draw(st.sampled_from(LEVELS))
        topology = self.draw(
            st.sampled_from(
                [
                    None,
                    TopologyRequest(required=level),
                    TopologyRequest(required=level),
                    TopologyRequest(preferred=level),
                ]
            )
        )
        requests = {GPU: self.draw(st.sampled_from([1, 2, 2, 4]))}
        pod_set = PodSet("main", self.draw(st.integers(1, 4)), requests, requests, topology=topology)
        uid, queue = f"w{self.arrived:03}", self.draw(st.sampled_from(sorted(self.cluster.queues)))
        self.arrived += 1
        now = self.cluster.now
        return Workload(
            uid, ObjectKey("ns", uid), ObjectKey("ns", queue), (pod_set,), self.draw(st.integers(0, 2)), now, now
        )

    # ---- what is true

    def used(self, uids) -> dict[str, dict[str, int]]:
        """What these workloads and the pods that nobody queued take of each node."""
        used: dict[str, dict[str, int]] = {name: {} for name in self.cluster.nodes}

        def add(name: str, gpus: int, pods: int) -> None:
            used[name][GPU] = used[name].get(GPU, 0) + gpus * pods
            used[name]["pods"] = used[name].get("pods", 0) + pods

        for uid in uids:
            (assigned,) = self.admissions[uid].pod_sets
            (pod_set,) = self.cluster.workloads[uid].pod_sets
            for domain in assigned.topology.domains:
                add(domain.values[-1], pod_set.requests[GPU], domain.count)
        for name, gpus in self.pods.values():
            add(name, gpus, 1)
        return used

    @property
    def admissions(self):
        found = {uid: self.cluster.admission(uid) for uid in self.cluster.workloads}
        return {uid: admission for uid, admission in found.items() if admission is not None}

    def has_place(self, workload: Workload, holding) -> bool:
        (pod_set,) = workload.pod_sets
        nodes = list(self.cluster.nodes.values())
        return isinstance(oracle.place(LEVELS, nodes, pod_set, pod_set.count, self.used(holding)), tuple)

    def could_start(self, world: World, workload: Workload, holding, *, borrowing: bool = True) -> bool:
        (pod_set,) = workload.pod_sets
        usage = {UNIT: pod_set.count * pod_set.requests[GPU]}
        left = replace(world, holders=tuple(h for h in world.holders if h.uid in holding))
        return fits(left, workload.queue.name, usage, borrowing) and self.has_place(workload, holding)

    # ---- the promises

    def decide(self) -> None:
        cluster = self.cluster
        before, evicted = set(self.admissions), {u for u in cluster.workloads if cluster.is_evicted(u)}
        claimed = {uid for uid, record in cluster.state.workloads.items() if record.claim is not None}
        plan = cluster.decide()
        for decision in plan:
            note(f"    {decision}")
        self.check_plan(before, evicted, claimed, plan)
        if not any(cluster.is_evicted(uid) for uid in cluster.workloads):
            holding, world = set(self.admissions), cluster.world()
            for workload in cluster.waiting():
                assert not self.could_start(world, workload, holding), f"{workload.uid} fits and waits"

    def check_plan(self, holding: set[str], evicted: set[str], claimed: set[str], plan: Plan) -> None:
        cluster, admissions = self.cluster, self.admissions
        for preemptor, decisions in groupby(plan, lambda d: d.preemptor if isinstance(d, Evict) else None):
            if preemptor is not None:
                victims = {decision.uid for decision in decisions}
                assert victims <= holding - evicted
                if not claimed and not evicted:
                    self.check_victims(cluster.workloads[preemptor], holding, victims)
                evicted |= victims
                claimed = claimed | {preemptor}
                continue
            for decision in decisions:
                if isinstance(decision, Admit):
                    holding = holding | {decision.uid}
                    self.check_place(cluster.workloads[decision.uid], admissions[decision.uid], holding)

    def check_place(self, workload: Workload, admission, holding: set[str]) -> None:
        (assigned,), (pod_set,) = admission.pod_sets, workload.pod_sets
        assert assigned.topology is not None
        assert assigned.topology.levels == LEVELS[-1:]
        assert sum(domain.count for domain in assigned.topology.domains) == pod_set.count
        nodes = [self.cluster.nodes[domain.values[0]] for domain in assigned.topology.domains]
        assert len({node.name for node in nodes}) == len(nodes)
        assert all(node.ready and not node.unschedulable for node in nodes)
        if pod_set.topology is not None and pod_set.topology.required is not None:
            assert len({node.labels[pod_set.topology.required] for node in nodes}) == 1
        used = self.used(holding)
        for node in nodes:
            assert used[node.name][GPU] <= node.allocatable[GPU]
            assert used[node.name]["pods"] <= node.allocatable["pods"]

    def check_victims(self, preemptor: Workload, holding: set[str], victims: set[str]) -> None:
        """With the victims gone quota and nodes suffice; with one of them back they do not."""
        admissions = self.admissions
        holders: tuple[Holder, ...] = tuple(
            holder_of(self.cluster.workloads[uid], admissions[uid]) for uid in sorted(holding)
        )
        world = replace(self.cluster.world(), holders=holders)
        assert self.could_start(world, preemptor, holding - victims), "evicted for nothing"
        assert any(
            self.could_start(world, preemptor, holding - victims, borrowing=borrowing)
            and not any(
                self.could_start(world, preemptor, (holding - victims) | {uid}, borrowing=borrowing) for uid in victims
            )
            for borrowing in (True, False)
        ), f"one of {sorted(victims)} could have stayed"

    def restart(self) -> None:
        cluster = self.cluster
        cluster.unwritten.clear()
        listed = cluster.objects()
        listed += [events.PodPlaced(uid, name, {GPU: gpus}) for uid, (name, gpus) in self.pods.items()]
        cluster.state = State()
        cluster.history.clear()
        cluster.plans.clear()
        for event in self.draw(st.permutations(listed)):
            cluster.tell(event)
        self.decide()


@given(data=st.data())
def test_gangs_stand_where_they_may(data):
    history = History(data)
    for _ in range(data.draw(st.integers(5, 30))):
        history.step()
    history.decide()
    cluster = history.cluster
    assert cluster.plans == played(cluster.history, cluster.policy), "the same events gave another plan"
