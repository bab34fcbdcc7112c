"""A month of pods of a GPU-sharing cluster, packed one by one as the authors of FGD did it.

The trace as they ran it: its pods in random order, then more of them drawn at random until they ask for 130 % of all
GPUs; nobody leaves, and a pod that does not fit is dropped. What is measured is the share of all GPUs that is allocated
once the pods that have arrived ask for as much as there is. CPU and memory are limits too; part of a GPU sits on one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from benchmarks import traces as public

Ints = npt.NDArray[np.int64]

GPU = 1000
MOST_GPUS = 8
INFLATION = 1.3


class Shape(NamedTuple):
    """What one pod asks for: cores in thousandths, MiB, and of how many GPUs how much each, in thousandths."""

    cpu: int
    memory: int
    gpus: int
    milli: int

    @property
    def total(self) -> int:
        return self.gpus * self.milli


@dataclass(frozen=True)
class Trace:
    """The shapes of pods with how many there are of each; `nodes` are cpu, memory and GPUs of each node."""

    shapes: tuple[Shape, ...]
    counts: tuple[int, ...]
    nodes: tuple[tuple[int, int, int], ...]

    @property
    def gpus(self) -> int:
        return sum(node[2] for node in self.nodes)


def read(folder: Path) -> Trace:
    """From a folder with the published files."""
    pods = public.openb_pods(folder)
    return Trace(
        tuple(Shape(*shape) for shape, _ in pods), tuple(count for _, count in pods), tuple(public.openb_nodes(folder))
    )


def arrivals(trace: Trace, random: np.random.Generator) -> Ints:
    """Indexes of shapes: all pods of the trace in random order, then copies up to the inflation."""
    pods = np.repeat(np.arange(len(trace.shapes)), trace.counts)
    asked = sum(trace.shapes[index].total for index in pods)
    more: list[int] = []
    while True:
        drawn = int(pods[random.integers(len(pods))])
        if asked + trace.shapes[drawn].milli > INFLATION * trace.gpus * GPU:
            break
        asked += trace.shapes[drawn].total
        more.append(drawn)
    random.shuffle(pods)
    return np.concatenate([pods, np.array(more, np.int64)])


class Cluster:
    """What is free: `gpus` has a column for each GPU of a node. `changed` grows with every change of a node."""

    def __init__(self, trace: Trace, random: np.random.Generator) -> None:
        nodes = [trace.nodes[index] for index in random.permutation(len(trace.nodes))]
        self.cpu = np.array([node[0] for node in nodes], np.int64)
        self.memory = np.array([node[1] for node in nodes], np.int64)
        self.count = np.array([node[2] for node in nodes], np.int64)
        self.gpus: Ints = np.where(np.arange(MOST_GPUS) < self.count[:, None], GPU, 0)
        self.largest = self.gpus.max(axis=1)
        self.unused = (self.gpus == GPU).sum(axis=1)
        self.total = self.gpus.sum(axis=1)
        self.changed = np.zeros(len(nodes), np.int64)

    def able(self, shape: Shape) -> Ints:
        """The nodes that take such a pod."""
        found = (self.cpu >= shape.cpu) & (self.memory >= shape.memory)
        if shape.gpus == 1:
            found &= self.largest >= shape.milli
        elif shape.gpus:
            found &= self.unused >= shape.gpus
        return np.flatnonzero(found)

    def put(self, shape: Shape, node: int, gpu: int) -> None:
        """Start the pod there; the number of the GPU says something for a pod with one GPU or less only."""
        self.cpu[node] -= shape.cpu
        self.memory[node] -= shape.memory
        if shape.gpus == 1:
            self.gpus[node, gpu] -= shape.milli
        elif shape.gpus:
            self.gpus[node, np.flatnonzero(self.gpus[node] == GPU)[: shape.gpus]] = 0
        free = self.gpus[node]
        if free.min() < 0 or self.cpu[node] < 0 or self.memory[node] < 0:
            raise SystemExit(f"node {node} was given more than it has")
        self.largest[node], self.unused[node], self.total[node] = free.max(), (free == GPU).sum(), free.sum()
        self.changed[node] = self.changed.max() + 1

    def tightest(self, node: int, shape: Shape) -> int:
        """The GPU with the least left that takes the share."""
        free = self.gpus[node]
        return int(np.where(free >= shape.milli, free, GPU + 1).argmin())


class Choice(Protocol):
    """Chooses a node of those that are able, and a GPU on it."""

    def __call__(self, cluster: Cluster, able: Ints, kind: int) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Outcome:
    """At 100 % arrived: allocated GPUs in per cent, and of the pods with a whole node of 8 how many could start."""

    allocated: float
    large_started: float


def run(trace: Trace, seed: int, policy: Callable[[Trace, np.random.Generator], Choice]) -> Outcome:
    random = np.random.default_rng(seed)
    pods = arrivals(trace, random)
    cluster = Cluster(trace, random)
    choose = policy(trace, random)
    capacity = trace.gpus * GPU
    arrived = used = large = large_started = 0
    samples = []
    for kind in pods.tolist():
        shape = trace.shapes[kind]
        arrived += shape.total
        able = cluster.able(shape)
        large += shape.gpus == MOST_GPUS
        if len(able):
            cluster.put(shape, *choose(cluster, able, kind))
            used += shape.total
            large_started += shape.gpus == MOST_GPUS
        per_cent = round(100 * arrived / capacity)
        if per_cent == 100:
            samples.append(100 * used / capacity)
        elif per_cent > 100:
            break
    return Outcome(float(np.mean(samples)), 100 * large_started / large)


def published() -> Iterator[tuple[str, float, float]]:
    """Mean and deviation that the authors' artifact has for each policy at 100 % arrived, of ten seeds."""
    yield "Random", 86.30, 0.33
    yield "BestFit", 92.86, 0.14
    yield "FGD", 95.23, 0.11
