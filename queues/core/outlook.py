"""Looks ahead for pods without a place: which domains come closest, which drains soonest, and what has to end there.

It works from what is free on nodes, from what would be free if no workload held anything, and from who has pods on
which host. It never evicts anybody: what it names ends by itself, or is ended by people.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

import numpy as np

from queues.core.books import Books
from queues.core.demand import on_hosts
from queues.core.flavors import PodSetPlan
from queues.core.model import FlavorName, PodSet, ResourceName, Uid
from queues.core.policy import TopologyRules
from queues.core.preemption import sparing
from queues.core.reasons import Near
from queues.core.records import WorkloadRecord
from queues.core.refusals import Misfit
from queues.core.topology.capacity import Ints, with_pod
from queues.core.topology.kept import KeptDomain, leaves_kept
from queues.core.topology.placement import IMPLIED, wished
from queues.core.topology.search import Wish, counted
from queues.core.topology.tree import Path, Tree

#: So many domains are named, and looked at for what has to end there.
_NAMED: Final = 3
#: Of the workloads in a domain no more than these are looked at, those with the most pods there.
_LOOKED_AT: Final = 64
#: And no domain with more hosts: whoever needs that much waits for too many to name them.
_MOST_HOSTS: Final = 4096


@dataclass(frozen=True, slots=True)
class Drain:
    """The domain `path` of `level` takes the pods once `ending` have given back what they hold there.

    `hosts` are all hosts of the domain, in order.
    """

    level: str
    path: Path
    hosts: tuple[str, ...]
    ending: tuple[WorkloadRecord, ...]


@dataclass(frozen=True, slots=True)
class Outlook:
    """`closest`: the domains that come closest, the closest first. `drain`: the one that drains soonest, if any.

    `is_too_small`: not even empty ones would do, and that is what `closest` speaks of.
    """

    closest: tuple[Near, ...] = ()
    drain: Drain | None = None
    is_too_small: bool = False


def outlook_for(
    books: Books, plans: Iterable[PodSetPlan], misfit: Misfit, rules: TopologyRules, kept: Sequence[KeptDomain] = ()
) -> Outlook:
    """What there is to hope for. Domains that are `kept` for others count as full.

    A domain comes closer than another one if it takes more of the pods, then if it would take more were its free
    resources not in parts. Of the three closest that empty ones would do, that one drains soonest which the fewest
    pods have to leave. None does where pods outside of the queues are in the way, nor where domains are not made of
    hosts. Cost: a pass over the flavor's nodes for each trial, and these are few more than the workloads that it names.
    """
    plan = next((each for each in plans if each.pod_set.name == misfit.pod_set), None)
    tree = books.domains.tree_of(misfit.flavor)
    if plan is None or tree is None:
        return Outlook()
    request = plan.pod_set.topology or IMPLIED
    wish = wished(request, plan.count, tree.key.levels, rules)
    if isinstance(wish, str):
        return Outlook()
    search = _Search(books, misfit.flavor, plan.pod_set, tree, wish, kept)
    if not len(search.able):
        return Outlook(search.closest_when_empty(), is_too_small=True)
    closest = search.closest()
    if request.pod_set_group is not None or not tree.key.ends_at_host:
        return Outlook(closest)
    drains = [drain for near in search.hopeful() if (drain := search.drain_of(near)) is not None]
    return Outlook(
        closest, min(drains, key=lambda one: (_pods_on(one.ending, frozenset(one.hosts)), one.path), default=None)
    )


class _Search:
    def __init__(
        self, books: Books, flavor: FlavorName, pod_set: PodSet, tree: Tree, wish: Wish, kept: Sequence[KeptDomain]
    ) -> None:
        now, empty = (
            books.domains.room_for(flavor, pod_set, simulate_empty=simulate_empty) for simulate_empty in (False, True)
        )
        assert now is not None and empty is not None  # noqa: S101, PT018 - the tree was there a moment ago
        self.books = books
        self.pod_set = pod_set
        self.tree = tree
        self.wish = wish
        self.level = wish.level if wish.required else 0
        closed = leaves_kept(tree, kept)
        self.now, self.empty = now[0], empty[0]
        if len(closed):
            self.now, self.empty = self.now.copy(), self.empty.copy()
            self.now[closed] = self.empty[closed] = 0
        self.units_now, self.units_empty = (
            counted(tree, leaves, wish, known=nodes.sums if leaves is nodes.pods else None).alone.units[self.level]
            for leaves, nodes in ((self.now, now[1]), (self.empty, empty[1]))
        )
        self.in_parts = books.domains.pods_in_parts(flavor, pod_set, self.level, closed)

        #: Those that would do were they empty.
        self.able = np.flatnonzero(self.units_empty >= wish.slices)

    def closest(self) -> tuple[Near, ...]:
        some = np.flatnonzero((self.units_now > 0) | (self.in_parts > 0))
        return tuple([self._near(domain, self.units_now) for domain in self._first(some, self.units_now)])

    def closest_when_empty(self) -> tuple[Near, ...]:
        some = np.flatnonzero(self.units_empty > 0)
        return tuple([self._near(domain, self.units_empty) for domain in self._first(some, self.units_empty)])

    def hopeful(self) -> list[int]:
        return self._first(self.able, self.units_now)

    def _first(self, domains: Ints, units: Ints) -> list[int]:
        order = np.lexsort((-self.in_parts[domains], -units[domains]))
        found: list[int] = domains[order[:_NAMED]].tolist()
        return found

    def _near(self, domain: int, units: Ints) -> Near:
        fits = int(units[domain]) * self.wish.slice_size
        missing = [(name, amount * (self.wish.count - fits)) for name, amount in self.pod_set.node_requests.items()]
        path = self.tree.paths[self.level][domain]
        return Near(self.tree.key.levels[self.level], path, fits, self.wish.count, tuple(sorted(missing)))

    # ------------------------------------------------------------------ what has to end

    def drain_of(self, domain: int) -> Drain | None:
        path = self.tree.paths[self.level][domain]
        first, after = self.tree.leaves_in(path)
        if after - first > _MOST_HOSTS:
            return None
        hosts = {name[-1]: leaf for leaf, name in enumerate(self.tree.names[first:after], first)}
        tenants = self._tenants(hosts)
        trial = _Trial(self, domain, hosts)
        for record in tenants:
            trial.end(record)
        if not tenants or not trial.is_enough():
            return None
        # Who has most pods there goes first, until it is enough; whoever turns out not to be needed may stay.
        enough = sparing.shortest(tenants, 0, trial.go_on, trial.end, trial.is_enough)
        ending = sparing.needed(tenants[:enough], trial.go_on, trial.end, trial.is_enough)
        return Drain(self.tree.key.levels[self.level], path, tuple(hosts), tuple(ending))

    def _tenants(self, hosts: Collection[str]) -> list[WorkloadRecord]:
        found: dict[Uid, WorkloadRecord] = {}
        for host in hosts:
            found.update(self.books.tenants.get(host, {}))
        return nlargest(_LOOKED_AT, (found[uid] for uid in sorted(found)), key=lambda one: _pods_on((one,), hosts))


class _Trial:
    """Has workloads end on the hosts of one domain (by name: their place in the tree), and go on as if nothing was."""

    def __init__(self, search: _Search, domain: int, hosts: Mapping[str, int]) -> None:
        self.search = search
        self.domain = domain
        self.hosts = hosts
        self.leaves = search.now.copy()
        self.freed: dict[str, dict[ResourceName, int]] = {}

    def end(self, record: WorkloadRecord) -> None:
        self._shift(record, 1)

    def go_on(self, record: WorkloadRecord) -> None:
        self._shift(record, -1)

    def is_enough(self) -> bool:
        """Whether the domain takes all of the pods now."""
        search = self.search
        counts = counted(search.tree, self.leaves, search.wish).alone
        return int(counts.units[search.level][self.domain]) >= search.wish.slices

    def _shift(self, record: WorkloadRecord, sign: int) -> None:
        search = self.search
        for host, pods, requests in _held(record):
            leaf = self.hosts.get(host)
            if leaf is None:
                continue
            amounts = self.freed.setdefault(host, {})
            for name, amount in with_pod(requests).items():
                amounts[name] = amounts.get(name, 0) + sign * amount * pods
            fits = search.books.domains.fits_with(search.pod_set, host, amounts)
            self.leaves[leaf] = min(fits, int(search.empty[leaf])) if any(amounts.values()) else search.now[leaf]


def _held(record: WorkloadRecord) -> Iterable[tuple[str, int, Mapping[ResourceName, int]]]:
    return on_hosts(one for _, one in record.placed)


def _pods_on(records: Iterable[WorkloadRecord], hosts: Collection[str]) -> int:
    return sum(pods for record in records for host, pods, _ in _held(record) if host in hosts)
