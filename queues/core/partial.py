"""Finds with how many pods a workload could start when it does not fit with all of them.

It works from the counts and the minimum counts of the pod sets and from a trial that the caller gives. It never tries
more than the logarithm of the pods that may be left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from queues.core.model import PodSet

T = TypeVar("T")

Counts = tuple[int, ...]


def can_be_reduced(pod_sets: Sequence[PodSet], counts: Counts) -> bool:
    return any(
        pod_set.min_count is not None and count > pod_set.min_count
        for pod_set, count in zip(pod_sets, counts, strict=True)
    )


def most_that_fit(pod_sets: Sequence[PodSet], counts: Counts, attempt: Callable[[Counts], T | None]) -> T | None:
    """What `attempt` gives for the largest counts with which it gives anything.

    All pod sets give up pods in proportion. With D the pods that may be left out, step i of D leaves out delta*i/D of
    each; the smallest i that works is found by halving, so the answer is only sure where fewer pods never fit worse.
    """
    deltas = [
        0 if pod_set.min_count is None else max(0, count - pod_set.min_count)
        for pod_set, count in zip(pod_sets, counts, strict=True)
    ]
    steps = sum(deltas)
    if not steps:
        return None
    low, high = 0, steps + 1
    best: tuple[int, T] | None = None
    while low < high:
        middle = (low + high) // 2
        reduced = tuple(count - delta * middle // steps for count, delta in zip(counts, deltas, strict=True))
        result = attempt(reduced) if middle <= steps else None
        if middle > steps or result is not None:
            if result is not None:
                best = (middle, result)
            high = middle
        else:
            low = middle + 1
    return best[1] if best is not None and best[0] == low else None
