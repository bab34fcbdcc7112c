"""The formulas of the quota tree, number by number."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from queues.core.model import UNLIMITED, FlavorResource, Quota
from queues.core.tree import Account, Forest
from tests.builders import FLAVOR, GPU, cluster_queue, cohort, quota

UNIT = FlavorResource(FLAVOR, GPU)


def forest(queues: dict[str, tuple[str | None, Quota]], cohorts: dict[str, tuple[str | None, Quota | None]]) -> Forest:
    made = Forest()
    for name, (parent, one) in cohorts.items():
        groups = () if one is None else cohort(name).flavor(FLAVOR, {GPU: one}).build().groups
        made.put_cohort(name, parent, groups)
    for name, (parent, one) in queues.items():
        made.put_queue(name, parent, cluster_queue(name).flavor(FLAVOR, {GPU: one}).build().groups)
    made.settle()
    return made


def account(made: Forest, name: str) -> Account:
    node = made.queues.get(name) or made.cohorts[name]
    return node.account(UNIT)


@dataclass
class Case:
    queues: dict[str, tuple[str | None, Quota]]
    cohorts: dict[str, tuple[str | None, Quota | None]] = field(default_factory=dict)
    use: dict[str, int] = field(default_factory=dict)
    want_available: dict[str, int] = field(default_factory=dict)
    want_potential: dict[str, int] = field(default_factory=dict)
    want_quota: dict[str, int] = field(default_factory=dict)
    want_usage: dict[str, int] = field(default_factory=dict)


TWO = {"a": ("c", quota(9)), "b": ("c", quota(12, lending=1))}

CASES = {
    "a queue alone has its nominal quota": Case(
        {"a": (None, quota(5))}, use={"a": 2}, want_available={"a": 3}, want_potential={"a": 5}
    ),
    "a lending limit of 1 leaves 9 + 1 for the other queue": Case(
        TWO, want_available={"a": 10, "b": 21}, want_potential={"a": 10, "b": 21}, want_quota={"c": 10}
    ),
    "the private part is used first and not seen by the cohort": Case(
        TWO, use={"b": 11}, want_available={"a": 10, "b": 10}, want_usage={"b": 11, "c": 0}
    ),
    "what goes beyond the private part is seen by the cohort": Case(
        TWO, use={"b": 13}, want_available={"a": 8}, want_usage={"c": 2}
    ),
    "borrowed quota leaves the lender its private part": Case(TWO, use={"a": 10}, want_available={"a": 0, "b": 11}),
    "no lending limit lends everything": Case(
        {"a": ("c", quota(9)), "b": ("c", quota(12))}, use={"a": 20}, want_available={"a": 1, "b": 1}
    ),
    "a borrowing limit bounds what is available": Case(
        {"a": ("c", quota(3, borrowing=2)), "b": ("c", quota(10))},
        use={"a": 1},
        want_available={"a": 4, "b": 12},
        want_potential={"a": 5},
    ),
    "a borrowing limit of 0 keeps a queue to itself": Case(
        {"a": ("c", quota(3, borrowing=0)), "b": ("c", quota(10))}, want_available={"a": 3, "b": 13}
    ),
    "a cohort's own quota is there for all its queues": Case(
        {"a": ("c", quota(1)), "b": ("c", quota(2))},
        {"c": (None, quota(4))},
        want_available={"a": 7, "b": 7},
        want_quota={"c": 7},
    ),
    "limits of a cohort bind everything below it": Case(
        {"a": ("left", quota(2)), "b": ("right", quota(8))},
        {"left": ("root", quota(0, borrowing=3)), "right": ("root", quota(0, lending=5)), "root": (None, None)},
        use={"b": 1},
        want_available={"a": 5, "b": 9},
        want_quota={"left": 2, "right": 8, "root": 7},
        want_usage={"right": 1, "root": 0},
    ),
    "overdrawn limits give a negative rest": Case(
        {"a": ("c", quota(2)), "b": ("c", quota(2))}, use={"a": 7}, want_available={"a": -3, "b": -3}
    ),
    "an unlimited quota stays unlimited for all who may borrow it": Case(
        {"a": ("c", quota(UNLIMITED)), "b": ("c", quota(1))},
        use={"a": 10**30},
        want_available={"a": UNLIMITED, "b": UNLIMITED},
    ),
    "an unlimited quota that lends little leaves others little": Case(
        {"a": ("c", quota(UNLIMITED, lending=4)), "b": ("c", quota(1))},
        want_available={"a": UNLIMITED, "b": 1},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_formulas(case):
    made = forest(case.queues, case.cohorts)
    for name, amount in case.use.items():
        account(made, name).charge(amount)
    assert {name: account(made, name).available for name in case.want_available} == case.want_available
    assert {name: account(made, name).potential for name in case.want_potential} == case.want_potential
    assert {name: account(made, name).subtree for name in case.want_quota} == case.want_quota
    assert {name: account(made, name).usage for name in case.want_usage} == case.want_usage
    for name, amount in case.use.items():
        account(made, name).release(amount)
    everything = [
        one.usage for node in (*made.queues.values(), *made.cohorts.values()) for one in node.accounts.values()
    ]
    assert everything == [0] * len(everything), "what was taken is given back exactly"


@pytest.mark.parametrize(
    ("use", "amount", "want"),
    [
        pytest.param({}, 4, (0, True), id="within nominal nothing is borrowed"),
        pytest.param({}, 6, (1, True), id="the own cohort has the rest"),
        pytest.param({"near": 3}, 6, (2, False), id="the whole tree is needed when the cohort is in use"),
        pytest.param({"far": 20}, 30, (2, False), id="more than all there is counts as the whole tree"),
    ],
)
def test_lowest_fit(use, amount, want):
    made = forest(
        {"a": ("mid", quota(4)), "near": ("mid", quota(4)), "far": ("root", quota(20))},
        {"mid": ("root", None), "root": (None, None)},
    )
    for name, used in use.items():
        account(made, name).charge(used)
    assert account(made, "a").lowest_fit(amount) == want


def test_a_queue_without_cohort_never_borrows():
    made = forest({"a": (None, quota(4))}, {})
    assert account(made, "a").lowest_fit(9) == (0, False)


def test_heights():
    made = forest(
        {"a": ("mid", quota(1)), "b": ("root", quota(1))},
        {"mid": ("root", None), "root": (None, None), "x": (None, None)},
    )
    assert {name: node.height for name, node in made.cohorts.items()} == {"mid": 1, "root": 2, "x": 0}


def test_usage_moves_with_the_queue():
    made = forest({"a": ("left", quota(2)), "b": ("left", quota(2))}, {})
    account(made, "a").charge(3)
    made.put_queue("a", "right", cluster_queue("a").gpus(2).build().groups)
    made.settle()
    assert account(made, "left").usage == 0
    assert account(made, "right").usage == 3
    assert account(made, "b").available == 2


def test_a_cohort_that_was_only_named_goes_with_the_last_that_named_it():
    made = forest({"a": ("c", quota(2))}, {})
    made.put_queue("a", None, ())
    made.settle()
    assert made.cohorts == {}


@pytest.mark.parametrize("first", ["x", "y"])
def test_a_cycle_is_found_and_goes_away(first):
    made = forest({"a": ("x", quota(2)), "o": ("z", quota(1))}, {})
    account(made, "a").charge(1)
    other = "y" if first == "x" else "x"
    made.put_cohort(first, other, ())
    made.put_cohort(other, first, ())
    made.settle()
    assert made.queues["a"].is_cyclic
    assert not made.queues["o"].is_cyclic
    assert account(made, "a").usage == 1
    made.put_cohort(first, None, ())
    made.settle()
    assert not made.queues["a"].is_cyclic
    assert account(made, "x").usage == 1


def test_a_cohort_can_be_its_own_parent():
    made = forest({"a": ("x", quota(2))}, {})
    made.put_cohort("x", "x", ())
    made.settle()
    assert made.queues["a"].is_cyclic


def test_charges_while_links_lag_behind_are_kept():
    made = forest({"a": ("c", quota(2))}, {})
    made.put_queue("b", "c", cluster_queue("b").gpus(1).build().groups)
    node = made.queue("b")
    made.account(node, UNIT).charge(2)
    made.account(made.queue("later"), UNIT).charge(1)
    made.settle()
    assert account(made, "c").usage == 2
    made.put_queue("later", "c", ())
    made.settle()
    assert account(made, "c").usage == 3
