"""The quota tree that is kept up step by step agrees with one computed from the objects, at every node."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from queues.core.model import FlavorResource
from queues.core.tree import Forest
from tests.oracle.quota import Holder, World
from tests.properties.worlds import COHORTS, CPU, FLAVORS, GPU, QUEUES, cluster_queues, cohorts

UNITS = [FlavorResource(flavor, resource) for flavor in FLAVORS for resource in (GPU, CPU)]


def agree(forest: Forest, world: World, amount: int) -> None:
    forest.settle()
    for name in world.queues:
        node = ("queue", name)
        for unit in UNITS:
            account = forest.queue(name).account(unit)
            want = (
                world.subtree(node, unit),
                world.usage(node, unit),
                world.available(node, unit),
                world.potential(node, unit),
                world.lowest_fit(name, unit, amount),
                world.borrows_with(node, unit, amount),
            )
            got = (
                account.subtree,
                account.usage,
                account.available,
                account.potential,
                account.lowest_fit(amount),
                account.borrows_with(amount),
            )
            assert want == got, (name, unit)
            assert account.ahead.available == account.available
    for name in world.all_cohorts():
        node = ("cohort", name)
        for unit in UNITS:
            account = forest.cohorts[name].account(unit)
            assert (world.subtree(node, unit), world.usage(node, unit)) == (account.subtree, account.usage)
        assert world.height(node) == forest.cohorts[name].height


@given(st.data())
def test_kept_up_equals_computed(data):
    world, forest = World(), Forest()
    for step in range(data.draw(st.integers(1, 12))):
        match data.draw(st.sampled_from(["queue", "queue", "cohort", "charge", "charge", "release", "drop cohort"])):
            case "queue":
                queue = data.draw(st.sampled_from(QUEUES).flatmap(cluster_queues))
                world = replace(world, queues={**world.queues, queue.name: queue})
                forest.put_queue(queue.name, queue.cohort, queue.groups)
            case "cohort":
                cohort = data.draw(st.sampled_from(COHORTS).flatmap(cohorts))
                world = replace(world, cohorts={**world.cohorts, cohort.name: cohort})
                forest.put_cohort(cohort.name, cohort.parent, cohort.groups)
            case "drop cohort" if world.cohorts:
                name = data.draw(st.sampled_from(sorted(world.cohorts)))
                world = replace(world, cohorts={n: c for n, c in world.cohorts.items() if n != name})
                forest.drop_cohort(name)
            case "charge" if world.queues:
                name = data.draw(st.sampled_from(sorted(world.queues)))
                unit, amount = data.draw(st.sampled_from(UNITS)), data.draw(st.integers(1, 9))
                holder = Holder(f"w{step}", name, ((unit, amount),))
                world = replace(world, holders=(*world.holders, holder))
                forest.settle()
                for account in both(forest, name, unit):
                    account.charge(amount)
            case "release" if world.holders:
                holder = data.draw(st.sampled_from(world.holders))
                world = world.without([holder])
                forest.settle()
                ((unit, amount),) = holder.usage
                for account in both(forest, holder.queue, unit):
                    account.release(amount)
            case _:
                pass
        agree(forest, world, data.draw(st.integers(1, 9)))


def both(forest, name, unit):
    account = forest.queue(name).account(unit)
    return account, account.ahead
