"""A domain that is kept for somebody: the hosts that others may not use meanwhile.

It works from names of hosts, so that it holds in every tree over the same nodes. It never says for whom or how long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from queues.core.topology.capacity import Ints
from queues.core.topology.tree import Tree


class KeptDomain:
    def __init__(self, hosts: tuple[str, ...]) -> None:
        self.hosts = hosts
        self._known: tuple[Tree, Ints] | None = None

    def is_apart_from(self, hosts: Iterable[str]) -> bool:
        """Whether none of these is kept."""
        return set(self.hosts).isdisjoint(hosts)

    def leaves_of(self, tree: Tree) -> Ints:
        """The lowest domains of a tree that are kept; none where these are not hosts. Cost: once for each tree."""
        if self._known is None or self._known[0] is not tree:
            found = [] if not tree.key.ends_at_host else [tree.leaf_of.get((host,)) for host in self.hosts]
            self._known = tree, np.array([leaf for leaf in found if leaf is not None], np.int64)
        return self._known[1]


def leaves_kept(tree: Tree, kept: Sequence[KeptDomain]) -> Ints:
    """The lowest domains of the tree that any of these keeps."""
    return np.concatenate([each.leaves_of(tree) for each in kept]) if kept else np.zeros(0, np.int64)
