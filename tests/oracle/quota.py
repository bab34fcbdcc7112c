"""The quota tree, written for obviousness: every value is computed from the objects and the usage, by recursion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from queues.core.model import UNLIMITED, ClusterQueue, Cohort, FlavorResource, Quota, ResourceFlavor


def plus(a: int, b: int) -> int:
    return UNLIMITED if a >= UNLIMITED or b >= UNLIMITED else min(a + b, UNLIMITED)


def minus(a: int, b: int) -> int:
    """Unlimited less anything bounded is unlimited, less unlimited nothing."""
    if b >= UNLIMITED:
        return 0 if a >= UNLIMITED else -UNLIMITED
    return UNLIMITED if a >= UNLIMITED else a - b


@dataclass(frozen=True)
class Holder:
    """A workload that holds quota."""

    uid: str
    queue: str
    usage: tuple[tuple[FlavorResource, int], ...]
    priority: int = 0
    queued_at: float = 0.0
    reserved_at: float = 0.0
    evicted: bool = False


@dataclass(frozen=True)
class World:
    queues: dict[str, ClusterQueue] = field(default_factory=dict)
    cohorts: dict[str, Cohort] = field(default_factory=dict)
    flavors: dict[str, ResourceFlavor] = field(default_factory=dict)
    holders: tuple[Holder, ...] = ()
    #: Preemptors may then always borrow where they may reclaim.
    fair_sharing: bool = False

    def ahead(self) -> World:
        """As it will be once all who were asked to go are gone."""
        return self.without([holder for holder in self.holders if holder.evicted])

    def without(self, gone: Iterable[Holder]) -> World:
        uids = {holder.uid for holder in gone}
        return replace(self, holders=tuple(h for h in self.holders if h.uid not in uids))

    # ---- the tree. A node is ("queue", name) or ("cohort", name).

    def parent(self, node: tuple[str, str]) -> tuple[str, str] | None:
        kind, name = node
        if kind == "queue":
            above = self.queues[name].cohort if name in self.queues else None
        else:
            above = self.cohorts[name].parent if name in self.cohorts else None
        return None if above is None else ("cohort", above)

    def ancestors(self, node: tuple[str, str]) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        above = self.parent(node)
        while above is not None:
            assert above not in found, "a cycle"
            found.append(above)
            above = self.parent(above)
        return found

    def root(self, node: tuple[str, str]) -> tuple[str, str]:
        return (self.ancestors(node) or [node])[-1]

    def children(self, node: tuple[str, str]) -> list[tuple[str, str]]:
        nodes = [("queue", name) for name in self.queues] + [("cohort", name) for name in self.all_cohorts()]
        return [child for child in nodes if self.parent(child) == node]

    def all_cohorts(self) -> set[str]:
        named = {q.cohort for q in self.queues.values()} | {c.parent for c in self.cohorts.values()}
        return {name for name in named | set(self.cohorts) if name is not None}

    def queues_below(self, node: tuple[str, str]) -> list[str]:
        if node[0] == "queue":
            return [node[1]]
        return [name for child in self.children(node) for name in self.queues_below(child)]

    def height(self, node: tuple[str, str]) -> int:
        if node[0] == "queue":
            return 0
        below = self.children(node)
        if not below:
            return 0
        return 1 + max(self.height(child) for child in below)

    # ---- quota

    def quota(self, node: tuple[str, str], fr: FlavorResource) -> Quota:
        owner = self.queues.get(node[1]) if node[0] == "queue" else self.cohorts.get(node[1])
        if owner is not None:
            for group in owner.groups:
                for flavor in group.flavors:
                    if flavor.flavor == fr.flavor and fr.resource in flavor.quotas:
                        return flavor.quotas[fr.resource]
        return Quota()

    def subtree(self, node: tuple[str, str], fr: FlavorResource) -> int:
        total = self.quota(node, fr).nominal
        if node[0] == "cohort":
            for child in self.children(node):
                total = plus(total, max(0, minus(self.subtree(child, fr), self.local_quota(child, fr))))
        return total

    def local_quota(self, node: tuple[str, str], fr: FlavorResource) -> int:
        limit = self.quota(node, fr).lending_limit
        return 0 if limit is None else max(0, minus(self.subtree(node, fr), limit))

    def usage(self, node: tuple[str, str], fr: FlavorResource) -> int:
        if node[0] == "queue":
            return sum(dict(h.usage).get(fr, 0) for h in self.holders if h.queue == node[1])
        return sum(max(0, minus(self.usage(child, fr), self.local_quota(child, fr))) for child in self.children(node))

    def local_available(self, node: tuple[str, str], fr: FlavorResource) -> int:
        return max(0, minus(self.local_quota(node, fr), self.usage(node, fr)))

    def available(self, node: tuple[str, str], fr: FlavorResource) -> int:
        above = self.parent(node)
        if above is None:
            return minus(self.subtree(node, fr), self.usage(node, fr))
        from_above = self.available(above, fr)
        limit = self.quota(node, fr).borrowing_limit
        if limit is not None:
            stored = minus(self.subtree(node, fr), self.local_quota(node, fr))
            used_above = max(0, minus(self.usage(node, fr), self.local_quota(node, fr)))
            from_above = min(from_above, plus(minus(stored, used_above), limit))
        return plus(self.local_available(node, fr), from_above)

    def potential(self, node: tuple[str, str], fr: FlavorResource) -> int:
        above = self.parent(node)
        if above is None:
            return self.subtree(node, fr)
        most = plus(self.local_quota(node, fr), self.potential(above, fr))
        limit = self.quota(node, fr).borrowing_limit
        return most if limit is None else min(most, plus(self.subtree(node, fr), limit))

    def borrows_with(self, node: tuple[str, str], fr: FlavorResource, amount: int) -> bool:
        quota = self.subtree(node, fr)
        return quota < UNLIMITED and quota < self.usage(node, fr) + amount

    def is_within_nominal(self, node: tuple[str, str], frs: Iterable[FlavorResource]) -> bool:
        return all(self.usage(node, fr) <= self.subtree(node, fr) or self.subtree(node, fr) >= UNLIMITED for fr in frs)

    def lowest_fit(self, queue: str, fr: FlavorResource, amount: int) -> tuple[int, bool]:
        node = ("queue", queue)
        if self.parent(node) is None or not self.borrows_with(node, fr, amount):
            return 0, self.parent(node) is not None
        rest = amount - self.local_available(node, fr)
        above = self.ancestors(node)
        for ancestor in above:
            if not self.borrows_with(ancestor, fr, rest):
                return self.height(ancestor), self.parent(ancestor) is not None
            rest -= self.local_available(ancestor, fr)
        return self.height(above[-1]), False

    def overdrawn(self) -> list[str]:
        """Where usage exceeds what quotas and limits allow; empty when everything is in order."""
        frs = {fr for holder in self.holders for fr, amount in holder.usage if amount}
        found = []
        for fr in sorted(frs):
            for node in [("queue", n) for n in self.queues] + [("cohort", n) for n in sorted(self.all_cohorts())]:
                usage, subtree = self.usage(node, fr), self.subtree(node, fr)
                if subtree >= UNLIMITED:
                    continue
                if self.parent(node) is None:
                    if usage > subtree:
                        found.append(f"{node} uses {usage} of {fr}, the tree has {subtree}")
                    continue
                limit = self.quota(node, fr).borrowing_limit
                if limit is not None and usage > plus(subtree, limit):
                    found.append(f"{node} uses {usage} of {fr}, more than {subtree} + {limit}")
        return found
