"""Jobs of one real cluster on the switches of two others: how close together gangs of several hosts come.

Two sources are combined, which is not how either cluster ran: two weeks of Philly's jobs (2017), and the trees of
hosts, racks and blocks of Alibaba's Lingjun (2023) and Zhejiang Lab (2024), of 8 GPUs a host. Arrivals come so much
faster than they did that the clusters are filled. Waiting jobs are tried in the order of arrival,
and those behind one that does not fit may pass it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from pathlib import Path

from benchmarks import traces as public
from queues.core.model import (
    HOSTNAME_LABEL,
    FlavorName,
    Node,
    NodeName,
    Packing,
    PodSet,
    ResourceFlavor,
    ResourceName,
    Topology,
    TopologyAssignment,
    TopologyDomain,
    TopologyName,
    TopologyRequest,
    Uid,
)
from queues.core.topology.domains import Domains
from queues.core.topology.placement import NoPlacement, place
from queues.core.topology.sizes import sizes_of

GPU, PODS = ResourceName("nvidia.com/gpu"), ResourceName("pods")
BLOCK, RACK = "block", "rack"
FLAVOR, TOPOLOGY = FlavorName("gpu"), TopologyName("tree")
GPUS_OF_A_HOST = 8

#: What the jobs ask for, all their run times added up, over what all GPUs give in the time in which they arrive. Many
#: run far longer than that, so that it takes more than 1 to fill a cluster.
LOADS = {"lingjun-2023": 4.0, "zhejianglab-2024": 2.0}

SEEDS = range(10)


@dataclass(frozen=True)
class Job:
    index: int
    arrival: float
    pods: int
    gpus: int
    duration: float

    @property
    def is_gang(self) -> bool:
        return self.pods > 1


def jobs(folder: Path) -> list[Job]:
    """From a folder with the published files."""
    return [
        Job(index, float(row.arrival), row.pods, row.gpus, row.duration)
        for index, row in enumerate(public.philly_jobs(folder))
    ]


@dataclass
class Tally:
    """Of the gangs that were started: how many in one rack, in one block, and what a ring over their hosts crosses.

    Of `runs`, all together. `edges` are the links of the rings from one host to the next, in the order of the
    assignment. `allocated` is the share of all GPUs that was in use, in the second half of the time.
    """

    runs: int = 1
    gangs: int = 0
    in_a_rack: int = 0
    in_a_block: int = 0
    edges: int = 0
    between_racks: int = 0
    between_blocks: int = 0
    waited: float = 0.0
    allocated: float = 0.0

    def add(self, places: list[tuple[str, str]], waited: float) -> None:
        """Blocks and racks of a gang's hosts."""
        self.gangs += 1
        self.in_a_rack += len(set(places)) == 1
        self.in_a_block += len({block for block, _ in places}) == 1
        self.edges += len(places)
        for (block, rack), (next_block, next_rack) in zip(places, [*places[1:], places[0]], strict=True):
            self.between_blocks += block != next_block
            self.between_racks += rack != next_rack
        self.waited += waited


def together(tallies: list[Tally]) -> Tally:
    return Tally(*[sum(getattr(tally, each.name) for tally in tallies) for each in fields(Tally)])


#: Places a job or says that it does not fit; gives back what it had.
Place = Callable[[Job], "TopologyAssignment | None"]


class Cluster:
    """The core's domains, and one of three ways to choose in them."""

    def __init__(self, tree: list[tuple[str, str, str]], packing: Packing, seed: int | None = None) -> None:
        self.where = {host: (block, rack) for block, rack, host in tree}
        self.domains = Domains()
        self.domains.topology_changed(Topology(TOPOLOGY, (BLOCK, RACK, HOSTNAME_LABEL)))
        self.domains.flavor_changed(ResourceFlavor(FLAVOR, topology=TOPOLOGY, packing=packing))
        for block, rack, host in tree:
            labels = {BLOCK: block, RACK: rack, HOSTNAME_LABEL: host}
            self.domains.node_changed(Node(NodeName(host), labels, {GPU: GPUS_OF_A_HOST, PODS: 110}))
        self._random = None if seed is None else random.Random(seed)
        self._free = dict.fromkeys(self.where, GPUS_OF_A_HOST)

    def place(self, job: Job) -> TopologyAssignment | None:
        if self._random is not None:
            return self._as_scheduled(job, self._random)
        pods = pod_set(job)
        found = place(self.domains, FLAVOR, TOPOLOGY, [pods], {})
        return None if isinstance(found, NoPlacement) else found["main"]

    def _as_scheduled(self, job: Job, chance: random.Random) -> TopologyAssignment | None:
        """Pod by pod onto a host with the most free GPUs, any of them: the scheduler's default. All of them or none."""
        free = dict(self._free)
        counts: dict[str, int] = {}
        for _ in range(job.pods):
            most = max(free.values())
            if most < job.gpus:
                return None
            host = chance.choice([name for name, left in free.items() if left == most])
            free[host] -= job.gpus
            counts[host] = counts.get(host, 0) + 1
        chosen = tuple(TopologyDomain((host,), count) for host, count in counts.items())
        return TopologyAssignment((HOSTNAME_LABEL,), chosen)

    def take(self, job: Job, assignment: TopologyAssignment) -> None:
        self.domains.take(FLAVOR, assignment, {GPU: job.gpus})
        self._count(job, assignment, -1)
        sizes = self.domains.sizes.get(FLAVOR)
        if sizes is not None:
            sizes.started(Uid(str(job.index)), sizes_of([pod_set(job)], [job.pods]))

    def give_back(self, job: Job, assignment: TopologyAssignment) -> None:
        self.domains.give_back(FLAVOR, assignment, {GPU: job.gpus})
        self._count(job, assignment, 1)

    def waits(self, job: Job) -> None:
        sizes = self.domains.sizes.get(FLAVOR)
        if sizes is not None:
            sizes.waits(Uid(str(job.index)), sizes_of([pod_set(job)], [job.pods]))

    def _count(self, job: Job, assignment: TopologyAssignment, sign: int) -> None:
        for domain in assignment.domains:
            self._free[domain.values[0]] += sign * domain.count * job.gpus


def pod_set(job: Job) -> PodSet:
    """A gang prefers one rack; a pod alone goes anywhere."""
    request = TopologyRequest(preferred=RACK) if job.is_gang else TopologyRequest(unconstrained=True)
    return PodSet("main", job.pods, {}, {GPU: job.gpus}, topology=request)


def run(cluster: Cluster, work: list[Job], load: float) -> Tally:
    """Everybody in turn, in simulated time."""
    asked = sum(job.pods * job.gpus * job.duration for job in work)
    span = max(job.arrival for job in work)
    faster = load * len(cluster.where) * GPUS_OF_A_HOST * span / asked
    tally = Tally()
    ends: list[tuple[float, int, Job, TopologyAssignment]] = []
    waiting: list[Job] = []
    before, half, in_use = 0.0, span / faster / 2, 0
    for now, arrived in _moments(work, faster, ends):
        tally.allocated += in_use * max(0.0, now - max(before, half)) / (half * len(cluster.where) * GPUS_OF_A_HOST)
        before = now
        while ends and ends[0][0] <= now:
            _, _, ended, held = heappop(ends)
            cluster.give_back(ended, held)
            in_use -= ended.pods * ended.gpus
        if arrived is not None:
            waiting.append(arrived)
            cluster.waits(arrived)
        for job in _startable(waiting):
            found = cluster.place(job)
            if found is None:
                continue
            cluster.take(job, found)
            waiting.remove(job)
            in_use += job.pods * job.gpus
            heappush(ends, (now + job.duration, job.index, job, found))
            if job.is_gang:
                places = [cluster.where[each.values[0]] for each in found.domains for _ in range(each.count)]
                tally.add(places, now - job.arrival / faster)
    return tally


def _moments(
    work: list[Job], faster: float, ends: list[tuple[float, int, Job, TopologyAssignment]]
) -> Iterator[tuple[float, Job | None]]:
    """Arrivals, and before each the ends that come first. What happens after the last arrival is not looked at."""
    for job in sorted(work, key=lambda job: (job.arrival, job.index)):
        while ends and ends[0][0] < job.arrival / faster:
            yield ends[0][0], None
        yield job.arrival / faster, job


def _startable(waiting: list[Job]) -> Iterable[Job]:
    """Those that wait, one of each shape at a time: what does not fit does not fit for the next one like it."""
    failed: set[tuple[int, int]] = set()
    for job in list(waiting):
        if (job.pods, job.gpus) in failed:
            continue
        yield job
        if job in waiting:
            failed.add((job.pods, job.gpus))


#: The way to choose by name; None for the scheduler's own order.
WAYS: dict[str, Packing | None] = {
    "muster": Packing.FRAGMENTATION_AWARE,
    "kueue-order": Packing.PACK,
    "scheduler-order": None,
}


def measured(folder: Path, tree: str, way: str, work: list[Job], load: float | None = None) -> Tally:
    """What leaves things to chance runs once for each seed."""
    packing, hosts = WAYS[way], public.hosts(folder, tree)
    clusters = (Cluster(hosts, Packing.PACK, seed) for seed in SEEDS) if packing is None else (Cluster(hosts, packing),)
    return together([run(cluster, work, LOADS[tree] if load is None else load) for cluster in clusters])
