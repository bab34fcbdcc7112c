"""Shares pods out as evenly as may be, from level to level down to the lowest: one failed domain takes few of them.

It works on how many units (pods, or slices of them) each domain takes. The order is this: the next unit goes to the
domain that has got the fewest so far and still has room, of these to the one with the most room, then to the first.
It never looks at nodes, and never chooses the level to begin at.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from queues.core.topology.capacity import Ints
from queues.core.topology.tree import Tree


def shared_evenly(room: Ints, need: int) -> Ints:
    """The share of each domain when `need` units, which they take together, go out one after the other.

    Cost: one sort of the domains.
    """
    if need == 1:
        shares = np.zeros(len(room), np.int64)
        shares[int(np.argmax(room))] = 1
        return shares
    rising = np.sort(room)
    below = np.cumsum(rising) - rising
    left = np.arange(len(rising), 0, -1)
    # How many units are out when the k-th smallest domain has just become full and all above have got as many.
    full = int(np.searchsorted(below + left * rising, need, side="right"))
    if full == len(rising):
        return room.copy()
    level = (need - int(below[full])) // int(left[full])
    shares = np.minimum(room, level)
    rest = need - int(shares.sum())
    if rest:
        open_ = np.flatnonzero(room > level)
        shares[open_[np.argsort(-room[open_], kind="stable")[:rest]]] += 1
    return shares


def spread(
    tree: Tree, units: Sequence[Ints], sizes: Sequence[int], level: int, domains: Ints, shares: Ints
) -> tuple[Ints, Ints]:
    """The lowest domains and the units for each, from the shares of these domains of a level.

    `units` is what each domain of each level takes, in the units of that level; `sizes` are the pods of such a unit.
    Cost: the children of the domains that get a share.
    """
    while level < len(tree.paths) - 1:
        used = shares > 0
        given = (shares[used] * sizes[level] // sizes[level + 1]).tolist()
        lower: list[Ints] = []
        parts: list[Ints] = []
        for children, share in zip(tree.children(level, domains[used]), given, strict=True):
            part = shared_evenly(units[level + 1][children], share)
            chosen = np.flatnonzero(part)
            lower.append(children[chosen])
            parts.append(part[chosen])
        domains, shares = np.concatenate(lower), np.concatenate(parts)
        level += 1
    return domains, shares
