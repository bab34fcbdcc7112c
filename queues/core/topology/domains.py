"""Keeps all that placement needs to know: topologies, flavors, nodes and what is taken of them, by domain.

It is fed by events and by the assignments that workloads hold; everything is kept up in place. It never chooses a
domain (`placement` does), and never forgets what is taken because a node, a flavor or a topology comes and goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np

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
    TopologyName,
    Uid,
)
from queues.core.topology.capacity import CEILING, Capacity, Ints, with_pod
from queues.core.topology.charges import Charges, left
from queues.core.topology.counts import CountsByShape, NodeCounts, Shape, beside, scores, shape_of
from queues.core.topology.fragmentation import harm
from queues.core.topology.hosts import HostChanges, changes
from queues.core.topology.sizes import Sizes
from queues.core.topology.suitability import NodeDemand
from queues.core.topology.tree import Tree, TreeKey

#: Hosts that are compared by the harm that pods do there.
_MOST_HOSTS: Final = 4096


class Domains:
    """The nodes as trees of domains, one for each pair of flavor labels and topology levels.

    What an assignment takes of hosts is charged to the hosts themselves and therefore seen by every flavor over the
    same nodes. What it takes of larger domains is seen by the flavors with the same labels and levels (`Charges`);
    flavors that share nodes otherwise should use a topology that ends at the hostname.
    """

    def __init__(self) -> None:
        self._topologies: dict[TopologyName, Topology] = {}
        self._flavors: dict[FlavorName, ResourceFlavor] = {}
        self._capacity = Capacity()
        self._charges = Charges()
        self._assumed_charges = Charges()
        self._trees: dict[TreeKey, tuple[Tree, CountsByShape]] = {}
        #: What is free of a resource in the domains of a level, as long as nothing changes.
        self._sums: dict[tuple[TreeKey, ResourceName, int], Ints] = {}
        self._summed_at = -1
        #: What is known to come, for the flavors that keep room for it.
        self.sizes: dict[FlavorName, Sizes] = {}

    # ------------------------------------------------------------------ what there is

    def topology_changed(self, topology: Topology) -> None:
        self._topologies[topology.name] = topology
        self._drop_unused_trees()

    def topology_gone(self, name: TopologyName) -> None:
        self._topologies.pop(name, None)
        self._drop_unused_trees()

    def flavor_changed(self, flavor: ResourceFlavor) -> None:
        self._flavors[flavor.name] = flavor
        if flavor.packing is not Packing.FRAGMENTATION_AWARE:
            self.sizes.pop(flavor.name, None)
        elif flavor.name not in self.sizes:
            self.sizes[flavor.name] = Sizes()
        self._drop_unused_trees()

    def flavor_gone(self, name: FlavorName) -> None:
        self._flavors.pop(name, None)
        self.sizes.pop(name, None)
        self._drop_unused_trees()

    def node_changed(self, node: Node) -> tuple[FlavorName, ...]:
        """Take the node in. The flavors that it was or is of; none when nothing changed."""
        old = self._capacity.node(node.name)
        if old == node:
            return ()
        for key in list(self._trees):
            if (None if old is None else key.path_of(old)) != key.path_of(node):
                del self._trees[key]
        self._capacity.put_node(node)
        return self._flavors_of(old, node)

    def node_gone(self, name: NodeName) -> tuple[FlavorName, ...]:
        """Forget the node; the flavors that it was of."""
        old = self._capacity.node(name)
        if old is None:
            return ()
        for key in list(self._trees):
            if key.path_of(old) is not None:
                del self._trees[key]
        self._capacity.drop_node(name)
        return self._flavors_of(old)

    def _flavors_of(self, *nodes: Node | None) -> tuple[FlavorName, ...]:
        """Those with a topology whose labels one of these nodes has. Cost: the flavors."""
        found = []
        for name, flavor in self._flavors.items():
            if flavor.topology is None:
                continue
            for node in nodes:
                if node is not None and (not flavor.node_labels or _has(node, flavor)):
                    found.append(name)
                    break
        return tuple(found)

    def levels_of(self, flavor: FlavorName) -> tuple[str, ...] | None:
        """The levels of the flavor's topology, root first; None when it has none or the topology does not exist."""
        found = self._flavors.get(flavor)
        topology = None if found is None or found.topology is None else self._topologies.get(found.topology)
        return None if topology is None or not topology.levels else topology.levels

    def packing_of(self, flavor: FlavorName) -> Packing:
        """Where on the flavor's nodes pods go."""
        found = self._flavors.get(flavor)
        return Packing.PACK if found is None else found.packing

    # ------------------------------------------------------------------ what is taken

    def pod_placed(self, uid: Uid, node: NodeName, requests: Mapping[ResourceName, int]) -> None:
        """A pod that no assignment accounts for occupies the node."""
        self._capacity.place_pod(uid, node, requests)

    def pod_gone(self, uid: Uid) -> tuple[FlavorName, ...]:
        """That pod is gone; the flavors of its node, none when the pod was not known, so that nothing became free."""
        node = self._capacity.remove_pod(uid)
        return () if node is None else self._flavors_of(self._capacity.node(node))

    def take(
        self, flavor: FlavorName, assignment: TopologyAssignment, node_requests: Mapping[ResourceName, int]
    ) -> None:
        """Charge an assignment; `node_requests` is what one pod takes from a node. Cost: its domains."""
        self._charge(flavor, assignment, node_requests, 1)

    def give_back(
        self, flavor: FlavorName, assignment: TopologyAssignment, node_requests: Mapping[ResourceName, int]
    ) -> None:
        """Undo a `take` of the same arguments exactly."""
        self._charge(flavor, assignment, node_requests, -1)

    def assume(
        self, flavor: FlavorName, assignment: TopologyAssignment, node_requests: Mapping[ResourceName, int]
    ) -> None:
        """Charge what a placement under way has chosen: it counts even where nothing else that is taken does."""
        self._charge(flavor, assignment, node_requests, 1, assumed=True)

    def retract(
        self, flavor: FlavorName, assignment: TopologyAssignment, node_requests: Mapping[ResourceName, int]
    ) -> None:
        """Undo an `assume` of the same arguments exactly."""
        self._charge(flavor, assignment, node_requests, -1, assumed=True)

    def _charge(
        self,
        flavor: FlavorName,
        assignment: TopologyAssignment,
        node_requests: Mapping[ResourceName, int],
        sign: int,
        *,
        assumed: bool = False,
    ) -> None:
        requests = with_pod(node_requests)
        if assignment.levels[-1:] == (HOSTNAME_LABEL,):
            hosts = [(domain.values[-1], sign * domain.count) for domain in assignment.domains if domain.count]
            self._capacity.take(hosts, requests, assumed=assumed)
            return
        charges = self._assumed_charges if assumed else self._charges
        for domain in assignment.domains:
            pods = sign * domain.count
            if pods:
                charges.take(flavor, assignment.levels, domain.values, requests, pods)

    # ------------------------------------------------------------------ what is left

    def host_changes(self, since: int | None) -> HostChanges:
        """What changed on nodes since `version` of the answer before; None: everything."""
        return changes(self._capacity, since)

    def tree_of(self, flavor: FlavorName) -> Tree | None:
        """The flavor's domains; None when it has no topology."""
        kept = self._kept_tree(flavor)
        return None if kept is None else kept[0]

    def room_for(
        self, flavor: FlavorName, pod_set: PodSet, *, simulate_empty: bool = False
    ) -> tuple[Ints, NodeCounts] | None:
        """How many pods of the pod set fit into each lowest domain of the flavor, and the counts by node behind it.

        With `simulate_empty` as if no assignment took anything. None when the flavor has no topology.
        """
        kept = self._kept_tree(flavor)
        if kept is None:
            return None
        tree, counts_by_shape = kept
        counts = counts_by_shape.of(self._shape(flavor, pod_set, simulate_empty=simulate_empty))
        if tree.key.ends_at_host:
            return tree.rolled_up(-1, counts.pods), counts
        sharing = [name for name in self._flavors if self._key_of(name) == tree.key]
        held = () if simulate_empty else self._charges.of(tree, sharing)
        return left(self._capacity, tree, counts, (*held, *self._assumed_charges.of(tree, sharing))), counts

    def fits_with(self, pod_set: PodSet, host: str, given_back: Mapping[ResourceName, int]) -> int:
        """How many pods would fit on a host, by resources alone, if so much more were free there."""
        return self._capacity.fits_with(with_pod(pod_set.node_requests), host, given_back)

    def pods_in_parts(self, flavor: FlavorName, pod_set: PodSet, level: int, closed: Ints) -> Ints:
        """How many pods the free resources of each domain of a level would make if they were not in parts.

        Whatever nodes they are on; `closed` lowest domains have none.
        """
        kept = self._kept_tree(flavor)
        if kept is None:
            return np.zeros(0, np.int64)
        tree = kept[0]
        found = np.full(len(tree.paths[level]), CEILING, np.int64)
        for name, amount in with_pod(pod_set.node_requests).items():
            free = self._free_in(tree, name, level, closed)
            found = np.minimum(found, free // min(amount, CEILING))
        return found

    def _free_in(self, tree: Tree, resource: ResourceName, level: int, closed: Ints) -> Ints:
        """Added up over the domains of a level; remembered where nothing is closed. Cost otherwise: the nodes."""
        if self._summed_at != self._capacity.version:
            self._sums.clear()
            self._summed_at = self._capacity.version
        at = tree.key, resource, level
        known = None if len(closed) else self._sums.get(at)
        if known is not None:
            return known
        free = tree.rolled_up(-1, self._capacity.free_of(resource, tree.slots))
        if len(closed):
            free = free.copy()
            free[closed] = 0
        for upper in range(len(tree.paths) - 2, level - 1, -1):
            free = tree.rolled_up(upper, free)
        if not len(closed):
            self._sums[at] = free
        return free

    def room_beside(
        self, flavor: FlavorName, workers: PodSet, leader: PodSet, *, simulate_empty: bool = False
    ) -> Ints | None:
        """How many workers each lowest domain takes beside the leader, -1 where it cannot take that.

        None where nothing is known by host: whether two pods find room beside one another there is the scheduler's
        choice.
        """
        kept = self._kept_tree(flavor)
        if kept is None or not kept[0].key.ends_at_host:
            return None
        tree, counts_by_shape = kept
        of_workers, of_leader = (
            counts_by_shape.of(self._shape(flavor, each, simulate_empty=simulate_empty)) for each in (workers, leader)
        )
        return tree.least_loss(-1, of_workers.pods, beside(self._capacity, tree, of_workers, of_leader))

    def scores_of(self, flavor: FlavorName, pod_set: PodSet, counts: NodeCounts) -> Ints | None:
        """What the preferred affinity of these pods says for each lowest domain; None where it says nothing."""
        tree = self.tree_of(flavor)
        if tree is None or not pod_set.preferences or not tree.key.ends_at_host:
            return None
        return tree.rolled_up(-1, scores(self._capacity, tree, counts, pod_set.preferences))

    def least_harmful(
        self, flavor: FlavorName, pod_set: PodSet, count: int, room: Ints, *, simulate_empty: bool = False
    ) -> int | None:
        """Of the hosts that take all of these pods the one where they cost the least of what is known to come.

        Of equals the one with the least room, then the first. None where the flavor keeps no room for anything, nothing
        is known to come, or no single host takes them.
        """
        kept, sizes = self._kept_tree(flavor), self.sizes.get(flavor)
        coming = () if sizes is None else sizes.coming()
        if kept is None or not coming or not kept[0].key.ends_at_host:
            return None
        tree, counts_by_shape = kept
        able = _fullest(np.flatnonzero(room >= count), room)
        if not len(able) or len(tree.starts[-1]) != len(tree.slots):  # hosts of one name cannot be told apart
            return None
        more = self._flavors[flavor].tolerations
        if more:
            coming = tuple([(replace(size, tolerations=(*size.tolerations, *more)), count) for size, count in coming])
        requests = with_pod(pod_set.node_requests)
        harms = harm(self._capacity, tree, counts_by_shape, coming, able, requests, count, emptied=simulate_empty)
        able = able[harms == harms.min()]
        return int(able[np.argmin(room[able])])

    def _shape(self, flavor: FlavorName, pod_set: PodSet, *, simulate_empty: bool) -> Shape:
        demand = NodeDemand(
            node_selector=pod_set.node_selector,
            affinity=pod_set.affinity,
            tolerations=(*pod_set.tolerations, *self._flavors[flavor].tolerations),
        )
        return shape_of(with_pod(pod_set.node_requests), demand, emptied=simulate_empty)

    def _kept_tree(self, flavor: FlavorName) -> tuple[Tree, CountsByShape] | None:
        key = self._key_of(flavor)
        if key is None:
            return None
        kept = self._trees.get(key)
        if kept is None:
            nodes = ((slot, node) for slot, node in enumerate(self._capacity.nodes) if node is not None)
            tree = Tree(key, nodes)
            kept = self._trees[key] = (tree, CountsByShape(self._capacity, tree))
        return kept

    def _key_of(self, flavor: FlavorName) -> TreeKey | None:
        levels = self.levels_of(flavor)
        return None if levels is None else TreeKey(tuple(sorted(self._flavors[flavor].node_labels)), levels)

    def _drop_unused_trees(self) -> None:
        used = {self._key_of(name) for name in self._flavors}
        for key in [key for key in self._trees if key not in used]:
            del self._trees[key]


def _has(node: Node, flavor: ResourceFlavor) -> bool:
    labels = node.labels
    return all(labels.get(key) == value for key, value in flavor.node_labels)


def _fullest(leaves: Ints, room: Ints) -> Ints:
    """The fullest of these where there are very many, in their order."""
    if len(leaves) <= _MOST_HOSTS:
        return leaves
    return np.sort(leaves[np.argsort(room[leaves], kind="stable")[:_MOST_HOSTS]])
