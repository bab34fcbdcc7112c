"""The policies that `packing_openb` compares: two baselines and FGD as published, and Muster's own.

The first three follow the published artifact (`hkust-adsl/kubernetes-scheduler-simulator`), whole-numbered scores and
ties by the nodes' order included. Muster's is the core's: the same sizes, places and prices that a flavor with the
packing FragmentationAware goes by, with only what they are for each node kept between pods.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from benchmarks.packing_openb import GPU, MOST_GPUS, Choice, Cluster, Ints, Shape, Trace
from queues.core.model import POD_UNITS, ResourceName, Size
from queues.core.topology.fragmentation import PARTS, Rooms, price
from queues.core.topology.sizes import Sizes

Floats = npt.NDArray[np.float64]

CPU, MEMORY, MILLI = ResourceName("cpu"), ResourceName("memory"), ResourceName("example.com/gpu-milli")
COLUMNS = {CPU: 0, MEMORY: 1, MILLI: 2, POD_UNITS: 3}

#: So many pods fit on any node: the trace limits cpu, memory and GPUs only.
PODS = 1000


def random_fit(trace: Trace, random: np.random.Generator) -> Choice:
    """Any node that is able, and any GPU on it."""

    def choose(cluster: Cluster, able: Ints, kind: int) -> tuple[int, int]:
        shape = trace.shapes[kind]
        node = int(able[random.integers(len(able))])
        gpus = np.flatnonzero(cluster.gpus[node] >= shape.milli) if shape.gpus == 1 else [0]
        return node, int(gpus[random.integers(len(gpus))])

    return choose


def best_fit(trace: Trace, _random: np.random.Generator) -> Choice:
    """The node with the least left of the largest node's cores and GPUs, in whole per cents of the scores there are."""

    def choose(cluster: Cluster, able: Ints, kind: int) -> tuple[int, int]:
        shape = trace.shapes[kind]
        left = (cluster.cpu[able] - shape.cpu) / 128_000 / 2 + (cluster.total[able] - shape.total) / 8_000 / 2
        scores = ((1 - left) * 100).astype(np.int64)
        lowest, highest = int(scores.min()), int(scores.max())
        if highest > lowest:
            scores = (scores - lowest) * 100 // (highest - lowest)
        node = int(able[scores.argmax()])
        return node, cluster.tightest(node, shape)

    return choose


# ------------------------------------------------------------------ FGD


class Typical:
    """The commonest pods, 95 % of all, with how often each comes: what FGD measures fragments by."""

    def __init__(self, trace: Trace) -> None:
        counts: dict[tuple[int, int, int], int] = {}
        for shape, count in zip(trace.shapes, trace.counts, strict=True):
            key = (shape.cpu, shape.milli, shape.gpus)
            counts[key] = counts.get(key, 0) + count
        ordered = sorted(((count, *key) for key, count in counts.items()), reverse=True)
        chosen, covered = [], 0
        for each in ordered:
            if covered >= 0.95 * sum(trace.counts):
                break
            chosen.append(each)
            covered += each[0]
        self.weights = np.array([each[0] for each in chosen]) / covered
        self.cpu, self.milli, self.gpus = (np.array([each[index] for each in chosen]) for index in (1, 2, 3))
        self._parts, self._part_of = np.unique(self.milli, return_inverse=True)

    def fragments(self, cpu: Ints, gpus: Ints) -> Floats:
        """Of what is free on the GPUs of each node how much a typical pod cannot use, on average, in thousandths."""
        idle = gpus.sum(axis=1)[:, None]
        able = [gpus >= part for part in self._parts]
        count = np.stack([each.sum(axis=1) for each in able], axis=1)[:, self._part_of]
        usable = np.stack([np.where(each, gpus, 0).sum(axis=1) for each in able], axis=1)[:, self._part_of]
        fits = (cpu[:, None] >= self.cpu) & (self.milli > 0) & (count >= self.gpus)
        found: Floats = (np.where(fits, idle - usable, idle) * self.weights).sum(axis=1)
        return found


@dataclass
class _Known:
    """For one shape: when each node was judged, how many fragments the pod makes there, and on which GPU the fewest."""

    judged: Ints
    growth: Floats
    gpu: Ints


def fgd(trace: Trace, _random: np.random.Generator) -> Choice:
    """Where fragments grow least, by whole scores."""
    typical = Typical(trace)
    known: dict[int, _Known] = {}

    def choose(cluster: Cluster, able: Ints, kind: int) -> tuple[int, int]:
        shape, nodes = trace.shapes[kind], len(cluster.cpu)
        mine = known.setdefault(kind, _Known(np.full(nodes, -1), np.zeros(nodes), np.zeros(nodes, np.int64)))
        changed = able[mine.judged[able] < cluster.changed[able]]
        if len(changed):
            mine.growth[changed], mine.gpu[changed] = _growth(cluster, changed, shape, typical)
            mine.judged[changed] = cluster.changed[changed]
        scores = (100 / (1 + np.exp(mine.growth[able] / 1000))).astype(np.int64)
        node = int(able[scores.argmax()])
        return node, int(mine.gpu[node])

    return choose


def _growth(cluster: Cluster, nodes: Ints, shape: Shape, typical: Typical) -> tuple[Floats, Ints]:
    cpu, gpus = cluster.cpu[nodes], cluster.gpus[nodes]
    before = typical.fragments(cpu, gpus)
    best, chosen = np.full(len(nodes), np.inf), np.zeros(len(nodes), np.int64)
    if shape.gpus != 1:
        left = gpus.copy()
        if shape.gpus:
            unused = left == GPU
            left[unused & (np.cumsum(unused, axis=1) <= shape.gpus)] = 0
        return typical.fragments(cpu - shape.cpu, left) - before, chosen
    for gpu in range(MOST_GPUS):
        able = np.flatnonzero(gpus[:, gpu] >= shape.milli)
        if gpu:  # of GPUs that are alike the first stands for all
            able = able[~(gpus[able, :gpu] == gpus[able, gpu : gpu + 1]).any(axis=1)]
        if len(able):
            left = gpus[able].copy()
            left[:, gpu] -= shape.milli
            growth = typical.fragments(cpu[able] - shape.cpu, left) - before[able]
            is_less = growth < best[able]
            best[able[is_less]], chosen[able[is_less]] = growth[is_less], gpu
    return best, chosen


# ------------------------------------------------------------------ Muster


def size_of(shape: Shape) -> Size:
    requests = {CPU: shape.cpu, MEMORY: shape.memory, MILLI: shape.total, POD_UNITS: 1}
    return Size(tuple(sorted((resource, amount) for resource, amount in requests.items() if amount)))


def known_sizes(trace: Trace) -> tuple[tuple[Size, int], ...]:
    """What the core makes of the trace's pods as history."""
    sizes = Sizes()
    sizes.remembered(tuple((size_of(shape), count) for shape, count in zip(trace.shapes, trace.counts, strict=True)))
    return sizes.coming()


@dataclass
class _Places:
    """By node and size the places now; for each shape by node what it would take of them, and when that was judged."""

    parts: Ints
    whole: Ints
    judged: Ints
    lost: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)


def muster(trace: Trace, _random: np.random.Generator) -> Choice:
    """The packing FragmentationAware: where the pod takes least of what the known sizes could still use."""
    sizes = known_sizes(trace)
    weights = [weight for _, weight in sizes]
    shares = [weight * 2**50 // sum(weights) for weight in weights]
    kept: list[_Places] = []

    def places(rooms: Rooms) -> Ints:
        return np.stack([rooms.places(size.requests, PARTS) for size, _ in sizes], axis=1)

    def choose(cluster: Cluster, able: Ints, kind: int) -> tuple[int, int]:
        shape = trace.shapes[kind]
        if not kept:
            now = places(rooms_of(cluster, np.arange(len(cluster.cpu))))
            kept.append(_Places(now, (now // PARTS).sum(axis=0), cluster.changed.copy()))
        (mine,) = kept
        judged, lost = mine.lost.setdefault(kind, (np.full(len(cluster.cpu), -1), np.zeros_like(mine.parts)))
        changed = np.flatnonzero(mine.judged < cluster.changed)
        stale = able[judged[able] < cluster.changed[able]]
        if len(changed) or len(stale):
            after = rooms_of(cluster, stale).without(dict(size_of(shape).requests), 1)
            found = places(together(rooms_of(cluster, changed), after))
            now = found[: len(changed)]
            mine.whole += (now // PARTS - mine.parts[changed] // PARTS).sum(axis=0)
            mine.parts[changed] = now
            mine.judged[changed] = cluster.changed[changed]
            lost[stale] = mine.parts[stale] - found[len(changed) :]
            judged[stale] = cluster.changed[stale]
        prices = np.array([price(share, whole) for share, whole in zip(shares, mine.whole.tolist(), strict=True)])
        harms = lost[able] @ prices
        best = able[harms == harms.min()]
        node = int(best[cluster.total[best].argmin()])
        return node, cluster.tightest(node, shape)

    return choose


def together(one: Rooms, other: Rooms) -> Rooms:
    """Both, the nodes of the first before those of the second: half the calls where the nodes are few."""
    rooms = Rooms(np.concatenate([one.free, other.free], axis=1), one.columns)
    for resource, (free, part) in one.devices.items():
        more, parts = other.devices[resource]
        rooms.devices[resource] = (np.concatenate([free, more]), np.concatenate([part, parts]))
    return rooms


def rooms_of(cluster: Cluster, nodes: Ints) -> Rooms:
    """These nodes as the core sees them."""
    pods = np.full(len(nodes), PODS, np.int64)
    rooms = Rooms(np.stack([cluster.cpu[nodes], cluster.memory[nodes], cluster.total[nodes], pods]), COLUMNS)
    rooms.devices[MILLI] = (cluster.gpus[nodes], np.full(len(nodes), GPU, np.int64))
    return rooms


POLICIES: dict[str, Callable[[Trace, np.random.Generator], Choice]] = {
    "Random": random_fit,
    "BestFit": best_fit,
    "FGD": fgd,
    "Muster": muster,
}
