"""Classical preemption, written for obviousness: who may be evicted, in which order, and who then has to go."""

from __future__ import annotations

from dataclasses import dataclass

from queues.core.model import FlavorResource, PreemptionPolicy
from tests.oracle.quota import Holder, World

Requests = dict[FlavorResource, int]


@dataclass(frozen=True)
class Preemptor:
    queue: str
    priority: int
    queued_at: float


def policy_allows(policy: PreemptionPolicy, preemptor: Preemptor, candidate: Holder) -> bool:
    if policy is PreemptionPolicy.ANY:
        return True
    if policy is PreemptionPolicy.NEVER:
        return False
    if preemptor.priority > candidate.priority:
        return True
    return (
        policy is PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY
        and preemptor.priority == candidate.priority
        and preemptor.queued_at < candidate.queued_at
    )


def candidates(world: World, preemptor: Preemptor, requests: Requests, needing: set[FlavorResource]):
    """(holder, class) in the order in which they are tried."""
    queue = world.queues[preemptor.queue]
    rules = queue.preemption
    node = ("queue", queue.name)

    def may_help(holder: Holder) -> bool:
        return any(dict(holder.usage).get(fr, 0) > 0 for fr in needing)

    found: list[tuple[Holder, str]] = [
        (holder, "same")
        for holder in world.holders
        if holder.queue == queue.name
        and may_help(holder)
        and policy_allows(rules.within_cluster_queue, preemptor, holder)
    ]

    if rules.reclaim_within_cohort is not PreemptionPolicy.NEVER:
        rest = {fr: max(0, v - world.local_available(node, fr)) for fr, v in requests.items()}
        advantage = all(not world.borrows_with(node, fr, v) for fr, v in requests.items())
        previous = node
        for ancestor in world.ancestors(node):
            for name in reclaimable_queues(world, ancestor, previous, needing):
                found += [
                    (holder, "hierarchical" if advantage else way(rules, preemptor, holder))
                    for holder in world.holders
                    if holder.queue == name
                    and may_help(holder)
                    and policy_allows(rules.reclaim_within_cohort, preemptor, holder)
                ]
            fits = all(not world.borrows_with(ancestor, fr, v) for fr, v in rest.items())
            rest = {fr: max(0, v - world.local_available(ancestor, fr)) for fr, v in rest.items()}
            advantage = advantage or fits
            previous = ancestor

    groups = {"hierarchical": 0, "with borrowing": 1, "without borrowing": 1, "same": 2}
    return sorted(
        found,
        key=lambda item: (
            groups[item[1]],
            item[0].priority,
            -item[0].reserved_at,
            item[0].uid,
        ),
    )


def way(rules, preemptor: Preemptor, holder: Holder) -> str:
    if rules.borrow_within_cohort is PreemptionPolicy.NEVER:
        return "without borrowing"
    threshold = rules.max_priority_threshold
    if holder.priority >= preemptor.priority or (threshold is not None and holder.priority > threshold):
        return "without borrowing"
    return "with borrowing"


def reclaimable_queues(world: World, node, excluded, needing: set[FlavorResource]) -> list[str]:
    """ClusterQueues below the node that use more than their own, reached through cohorts that do too."""
    found: list[str] = []
    for child in world.children(node):
        if child == excluded or world.is_within_nominal(child, needing):
            continue
        found += [child[1]] if child[0] == "queue" else reclaimable_queues(world, child, excluded, needing)
    return found


def is_still_borrowing(world: World, preemptor: Preemptor, holder: Holder, needing: set[FlavorResource]) -> bool:
    own = world.ancestors(("queue", preemptor.queue))
    node = ("queue", holder.queue)
    for step in [node, *world.ancestors(node)]:
        if step in own:
            return True
        if world.is_within_nominal(step, needing):
            return False
    return False


def fits(world: World, queue: str, requests: Requests, allow_borrowing: bool) -> bool:
    node = ("queue", queue)
    for fr, amount in requests.items():
        if not allow_borrowing and world.borrows_with(node, fr, amount):
            return False
        if amount > max(0, world.available(node, fr)):
            return False
    return True


def targets(world: World, preemptor: Preemptor, requests: Requests, needing: set[FlavorResource]) -> list[Holder]:
    """Who has to go so that the requests fit; nobody when that cannot be reached."""
    ordered = candidates(world, preemptor, requests, needing)
    if not ordered:
        return []
    queue = world.queues[preemptor.queue]
    node = ("queue", queue.name)
    forbidden = queue.preemption.borrow_within_cohort is PreemptionPolicy.NEVER
    others = [kind for _, kind in ordered if kind != "same"]
    under_nominal = all(world.usage(node, fr) < world.quota(node, fr).nominal for fr in needing)
    if not others or (forbidden and not under_nominal):
        attempts = [True]
    elif forbidden and "hierarchical" not in others:
        attempts = [False, True]
    else:
        attempts = [True, False]

    for allow_borrowing in attempts:
        removed: list[Holder] = []
        for holder, kind in ordered:
            if kind != "same":
                if allow_borrowing and kind == "without borrowing":
                    continue
                if not is_still_borrowing(world.without(removed), preemptor, holder, needing):
                    continue
            removed.append(holder)
            if fits(world.without(removed), queue.name, requests, allow_borrowing):
                for back in reversed(removed[:-1]):
                    fewer = [h for h in removed if h != back]
                    if fits(world.without(fewer), queue.name, requests, allow_borrowing):
                        removed = fewer
                return removed
    return []
