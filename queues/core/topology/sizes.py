"""Keeps count of the sizes that are known to come: those that wait, and those that were started lately.

It is fed by what workloads do and by what was remembered of others before, and counts pods: a gang that stays together
is one size of many pods, pods that go anywhere are a size each. It never looks at nodes and forgets the oldest first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from heapq import nsmallest
from typing import Final

from queues.core.model import POD_UNITS, PodSet, ResourceName, Size, Uid
from queues.core.topology.capacity import with_pod

#: So many started workloads are remembered.
_REMEMBERED: Final = 2048

#: So many sizes are told: those that come most often, and the largest, however seldom they come.
MOST_FREQUENT: Final = 32
LARGEST: Final = 16

#: Precision of what a size is of the largest one.
_FINE: Final = 2**20

Counted = tuple[tuple[Size, int], ...]


def sizes_of(pod_sets: Iterable[PodSet], counts: Iterable[int]) -> Counted:
    """The sizes of one workload, and how many pods come with each: those of a gang are lost or kept together."""
    found: dict[Size, int] = {}
    for pod_set, count in zip(pod_sets, counts, strict=True):
        if count < 1:
            continue
        request = pod_set.topology
        level = None if request is None else request.required or request.preferred
        size = Size(
            tuple(sorted(with_pod(pod_set.node_requests).items())),
            1 if level is None else count,
            level,
            pod_set.node_selector,
            pod_set.affinity,
            pod_set.tolerations,
        )
        found[size] = found.get(size, 0) + count
    return tuple(found.items())


class Sizes:
    """What waits counts as long as it waits, what was started until so many others were started after it."""

    def __init__(self) -> None:
        self._waiting: dict[Uid, Counted] = {}
        self._started: deque[Counted] = deque()
        self._weights: dict[Size, int] = {}
        self._changes = 0
        self._told: Counted = ()
        self._total = 0

    def waits(self, uid: Uid, sizes: Counted) -> None:
        """The workload waits, with these sizes."""
        if self._waiting.get(uid) != sizes:
            self.gone(uid)
            self._waiting[uid] = sizes
            self._add(sizes, 1)

    def started(self, uid: Uid, sizes: Counted) -> None:
        """It waits no more, and one like it may come again."""
        self.gone(uid)
        self._started.append(sizes)
        self._add(sizes, 1)
        while len(self._started) > _REMEMBERED:
            self._add(self._started.popleft(), -1)

    def gone(self, uid: Uid) -> None:
        """It waits no more."""
        sizes = self._waiting.pop(uid, None)
        if sizes is not None:
            self._add(sizes, -1)

    def remembered(self, sizes: Counted) -> None:
        """These were started before everything that is known otherwise."""
        room = _REMEMBERED - len(self._started)
        for size, count in reversed(sizes[-room:] if room > 0 else ()):
            self._started.appendleft(((size, count),))
            self._add(((size, count),), 1)

    def coming(self) -> Counted:
        """The sizes that count, and how much. Made anew once one in sixteen has changed; cost: the sizes."""
        if self._changes * 16 > self._total or not self._told:
            frequent = nsmallest(MOST_FREQUENT, self._weights.items(), key=lambda item: (-item[1], _order(item[0])))
            most = _most(self._weights)
            rest = self._weights.keys() - {size for size, _ in frequent}
            large = nsmallest(LARGEST, rest, key=lambda size: (-_largeness(size, most), _order(size)))
            self._told = (*frequent, *[(size, self._weights[size]) for size in large])
            self._total = sum(count for _, count in self._told)
            self._changes = 0
        return self._told

    def _add(self, sizes: Counted, sign: int) -> None:
        for size, count in sizes:
            total = self._weights.get(size, 0) + sign * count
            if total:
                self._weights[size] = total
            else:
                del self._weights[size]
            self._changes += count


def _order(size: Size) -> tuple[object, ...]:
    """Total, whatever the fields hold."""
    return (size.requests, size.pods, size.level or "", size.node_selector, repr(size.affinity), repr(size.tolerations))


def _most(sizes: Iterable[Size]) -> dict[ResourceName, int]:
    """What the largest asks of each resource, all its pods together."""
    found: dict[ResourceName, int] = {}
    for size in sizes:
        for resource, amount in size.requests:
            found[resource] = max(found.get(resource, 0), amount * size.pods)
    return found


def _largeness(size: Size, most: Mapping[ResourceName, int]) -> int:
    """How near it comes to the largest, in the resource in which it comes nearest; that it is a pod says nothing."""
    near = (amount * size.pods * _FINE // most[name] for name, amount in size.requests if name != POD_UNITS)
    return max(near, default=0)
