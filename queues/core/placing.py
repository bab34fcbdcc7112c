"""Finds the nodes' domains for the pod sets of an assignment whose flavors have a topology.

It works from the flavors that quota allows and from what is free on nodes. It changes neither; a failure is given back
as a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from queues.core.activity import World
from queues.core.flavors import Assignment, PodSetPlan, asks_for_topology
from queues.core.model import FlavorName, TopologyAssignment, TopologyName
from queues.core.policy import TopologyRules
from queues.core.records import QueueRecord
from queues.core.refusals import Misfit, Refusal, no_place
from queues.core.topology.domains import Domains
from queues.core.topology.kept import KeptDomain
from queues.core.topology.placement import NoPlacement, assuming, place, still_fits

Places = dict[str, TopologyAssignment]

#: Controllers of checks that decide where pods can run.
MULTIKUEUE: Final = "kueue.x-k8s.io/multikueue"
PROVISIONING: Final = "kueue.x-k8s.io/provisioning-request"


def plans_to_place(world: World, queue: QueueRecord, assignment: Assignment) -> list[PodSetPlan]:
    """The pod sets that need a place now: those that ask for topology, or all where every flavor has one.

    Where a check decides on which nodes the pods can run, or in which cluster, the topology is decided after it.
    """
    found = []
    for plan in assignment.plans:
        if plan.count and (queue.is_topology_only or asks_for_topology(plan.pod_set.topology)):
            plan.is_delayed = is_delayed(world, queue, plan.flavors.values())
            if not plan.is_delayed:
                found.append(plan)
    return found


def is_delayed(world: World, queue: QueueRecord, flavors: Iterable[FlavorName]) -> bool:
    """Whether a check of the queue makes the nodes for pods with these flavors, or sends the pods elsewhere."""
    if queue.spec is None:
        return False
    assigned = set(flavors)
    for rule in queue.spec.checks:
        check = world.checks.get(rule.name)
        if check is None:
            continue
        is_covered = not rule.on_flavors or not assigned.isdisjoint(rule.on_flavors)
        if check.controller == MULTIKUEUE or (check.controller == PROVISIONING and is_covered):
            return True
    return False


def find_places(
    world: World,
    domains: Domains,
    plans: Iterable[PodSetPlan],
    rules: TopologyRules,
    *,
    kept: Sequence[KeptDomain] = (),
    simulate_empty: bool = False,
) -> Places | Refusal:
    """A place for all of these pod sets or the first failure, outside of domains that are `kept` for others.

    Cost: that of `placement.place` for each flavor.
    """
    by_flavor: dict[FlavorName, list[PodSetPlan]] = {}
    for plan in plans:
        flavors = sorted({flavor for flavor in plan.flavors.values() if domains.levels_of(flavor) is not None})
        if len(flavors) != 1:
            what = "no flavor with a topology" if not flavors else f"several topology flavors: {', '.join(flavors)}"
            return no_place(f"pod set {plan.pod_set.name} is assigned {what}")
        by_flavor.setdefault(flavors[0], []).append(plan)
    found: Places = {}
    with assuming(domains) as assume:
        for name in sorted(by_flavor):
            members = by_flavor[name]
            result = place(
                domains,
                name,
                _topology_of(world, name),
                [plan.pod_set for plan in members],
                {plan.pod_set.name: plan.count for plan in members},
                simulate_empty=simulate_empty,
                rules=rules,
                kept=kept,
            )
            if isinstance(result, NoPlacement):
                return no_place(result.message, Misfit(name, result.pod_set))
            found.update(result)
            if len(by_flavor) > 1:
                for plan in members:
                    assume(name, result[plan.pod_set.name], plan.pod_set.node_requests)
    return found


def places_still_fit(domains: Domains, plans: Iterable[PodSetPlan]) -> bool:
    """Whether the places found for these plans are still free."""
    by_flavor: dict[FlavorName, list[PodSetPlan]] = {}
    for plan in plans:
        if plan.topology is not None:
            flavor = min(name for name in plan.flavors.values() if domains.levels_of(name) is not None)
            by_flavor.setdefault(flavor, []).append(plan)
    return all(
        still_fits(
            domains,
            flavor,
            [plan.pod_set for plan in members],
            {plan.pod_set.name: plan.topology for plan in members if plan.topology is not None},
        )
        for flavor, members in sorted(by_flavor.items())
    )


def _topology_of(world: World, flavor: FlavorName) -> TopologyName:
    topology = world.flavors[flavor].topology
    assert topology is not None  # noqa: S101
    return topology
