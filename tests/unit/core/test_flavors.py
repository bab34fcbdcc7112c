"""Which flavor a workload gets, and what it is told when it gets none."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from queues.core import events
from queues.core.fungibility import Grade, Mode, goes_on, is_preferred
from queues.core.model import (
    Expression,
    Fungibility,
    FungibilityPreference,
    Operator,
    Taint,
    Toleration,
    TopologyRequest,
)
from queues.core.plan import Admit
from queues.core.policy import Policy, QuotaCheck
from queues.core.reasons import Code
from tests.builders import (
    CPU,
    GPU,
    LOWER,
    MAY_STOP,
    MEMORY,
    NEVER,
    TRY_NEXT,
    ClusterQueueBuilder,
    WorkloadBuilder,
    admitted,
    cluster_queue,
    cohort,
    flavor,
    held,
    quota,
    workload,
)

BORROW_FIRST = FungibilityPreference.BORROWING_OVER_PREEMPTION
PREEMPT_FIRST = FungibilityPreference.PREEMPTION_OVER_BORROWING


def flavors_of(plan, uid) -> dict[str, dict[str, str]]:
    """Flavor by pod set and resource."""
    return {
        pod_set.name: dict(pod_set.flavors)
        for decision in plan
        if isinstance(decision, Admit) and decision.uid == uid
        for pod_set in decision.admission.pod_sets
    }


@dataclass
class Case:
    queue: ClusterQueueBuilder
    workload: WorkloadBuilder
    want: dict[str, dict[str, str]]


TAINTED = flavor("tainted", taints=[Taint("gpu", "yes")])
X = flavor("rf-a", labels={"instance": "x"})
H100 = flavor("rf-b", labels={"gpu-type": "h100"})

CASES = {
    "the first flavor with room": Case(
        cluster_queue("q").flavor("one", {GPU: 1}).flavor("two", {GPU: 4}),
        workload("w").gpus(1),
        {"main": {GPU: "one"}},
    ),
    "the next flavor when the first has no room": Case(
        cluster_queue("q").flavor("one", {GPU: 1}).flavor("two", {GPU: 4}),
        workload("w").gpus(2),
        {"main": {GPU: "two"}},
    ),
    "one flavor for all resources of a group": Case(
        cluster_queue("q").flavor("one", {GPU: 8, CPU: 1000}).flavor("two", {GPU: 8, CPU: 9000}),
        workload("w").asks({GPU: 1, CPU: 2000}),
        {"main": {GPU: "two", CPU: "two"}},
    ),
    "each resource group its own flavor": Case(
        cluster_queue("q").flavor("one", {GPU: 8}).flavor("two", {CPU: 9000}, group=1),
        workload("w").asks({GPU: 1, CPU: 2000}),
        {"main": {GPU: "one", CPU: "two"}},
    ),
    "a later pod set counts on top of an earlier one": Case(
        cluster_queue("q").flavor("one", {CPU: 3000}).flavor("two", {CPU: 3000}),
        workload("w").pod_set("driver", 1, cpu=2000).pod_set("workers", 2, cpu=1000),
        {"driver": {CPU: "one"}, "workers": {CPU: "two"}},
    ),
    "an untolerated taint leads to the next flavor": Case(
        cluster_queue("q").flavor("tainted", {GPU: 8}).flavor("two", {GPU: 8}), workload("w"), {"main": {GPU: "two"}}
    ),
    "a tolerated taint does not": Case(
        cluster_queue("q").flavor("tainted", {GPU: 8}).flavor("two", {GPU: 8}),
        workload("w").tolerating(Toleration("gpu", "Exists")),
        {"main": {GPU: "tainted"}},
    ),
    "a flavor looks only at the keys that it declares itself": Case(
        cluster_queue("q").flavor("rf-a", {GPU: 4}).flavor("rf-b", {GPU: 0}),
        workload("w").selecting(**{"gpu-type": "h100"}),
        {"main": {GPU: "rf-a"}},
    ),
    "affinity to another value of a declared key leads to the next flavor": Case(
        cluster_queue("q").flavor("rf-a", {GPU: 4}).flavor("two", {GPU: 4}),
        workload("w").affinity((Expression("instance", Operator.NOT_IN, ("x",)),)),
        {"main": {GPU: "two"}},
    ),
    "zero of an uncovered resource is nothing": Case(
        cluster_queue("q").flavor("one", {MEMORY: 100}),
        workload("w").asks({MEMORY: 10, GPU: 0}),
        {"main": {MEMORY: "one"}},
    ),
    "pods are counted where the queue has quota for them": Case(
        cluster_queue("q").flavor("one", {GPU: 8, "pods": 2}).flavor("two", {GPU: 8, "pods": 3}),
        workload("w").gang(3),
        {"main": {GPU: "two", "pods": "two"}},
    ),
    "a request without limits fits an unlimited quota": Case(
        cluster_queue("q").flavor("one", {MEMORY: 2**63 - 1}),
        workload("w").asks({MEMORY: 10**20}),
        {"main": {MEMORY: "one"}},
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_flavor(play, case):
    made = play().flavors(flavor("one"), flavor("two"), TAINTED, X, H100).queues(case.queue)
    made.submit(case.workload.queue("q"))
    assert flavors_of(made.run(), "w") == case.want
    made.finish("w")
    assert made.state.usage("q") == {unit: type(one)(0, 0) for unit, one in made.state.usage("q").items()}


def test_pod_sets_of_a_group_get_the_same_flavor(play):
    made = play().flavors(flavor("one"), flavor("two"))
    made.queues(cluster_queue("q").flavor("one", {CPU: 3000}).flavor("two", {CPU: 5000}))
    together = TopologyRequest(pod_set_group="g")
    made.submit(
        workload("w")
        .queue("q")
        .pod_set("leader", 1, cpu=2000)
        ._pods(topology=together)
        .pod_set("workers", 2, cpu=1000)
        ._pods(topology=together)
    )
    assert flavors_of(made.run(), "w") == {"leader": {CPU: "two"}, "workers": {CPU: "two"}}


@pytest.mark.parametrize(
    ("queue", "builder", "want_code", "want_words"),
    [
        pytest.param(
            cluster_queue("q").flavor("one", {MEMORY: 100}),
            workload("w").asks({MEMORY: 10, GPU: 1}),
            Code.NO_MATCHING_FLAVOR,
            ["resource nvidia.com/gpu unavailable in ClusterQueue q"],
            id="a resource that no group covers",
        ),
        pytest.param(
            cluster_queue("q").flavor("rf-a", {GPU: 4}),
            workload("w").selecting(instance="z"),
            Code.NO_MATCHING_FLAVOR,
            ["couldn't assign flavors to pod set main: flavor rf-a doesn't match node affinity"],
            id="no flavor that the pods may use",
        ),
        pytest.param(
            cluster_queue("q").flavor("tainted", {GPU: 4}),
            workload("w"),
            Code.NO_MATCHING_FLAVOR,
            ["untolerated taint {gpu=yes:NoSchedule} in flavor tainted"],
            id="a taint",
        ),
        pytest.param(
            cluster_queue("q").flavor("one", {CPU: 4000}),
            workload("w").cpu(5000),
            Code.EXCEEDS_MAX_QUOTA,
            ["insufficient quota for cpu in flavor one", "current podset request (5) > maximum capacity (4)"],
            id="more than the queue could ever have",
        ),
        pytest.param(
            cluster_queue("q").flavor("rf-a", {GPU: 4}).flavor("one", {GPU: 2}),
            workload("w").gpus(3).selecting(instance="z"),
            Code.EXCEEDS_MAX_QUOTA,
            ["rf-a", "maximum capacity (2)"],
            id="of several flavors the mildest reason counts",
        ),
        pytest.param(
            cluster_queue("q").flavor("one", {GPU: 2}).flavor("tainted", {CPU: 4000}, group=1),
            workload("w").asks({GPU: 3, CPU: 1000}),
            Code.NO_MATCHING_FLAVOR,
            ["maximum capacity (2)", "untolerated taint"],
            id="of several resource groups the most severe reason counts",
        ),
    ],
)
def test_the_reason(play, queue, builder, want_code, want_words):
    made = play().flavors(flavor("one"), TAINTED, X).queues(queue)
    made.submit(builder.queue("q"))
    reason = held(made.run())["w"].reason
    assert reason.code is want_code
    for words in want_words:
        assert words in reason.message
    assert made.state.reason("w") == reason
    assert made.run() == (), "told once"


def test_waiting_for_quota_says_how_much_is_missing(play):
    made = play().queues(cluster_queue("q").cpu(9000))
    made.submit(workload("old").queue("q").cpu(8000), workload("w").queue("q").cpu(2000))
    reason = held(made.run())["w"].reason
    assert reason.code is Code.WAITING_FOR_QUOTA
    assert "insufficient unused quota for cpu in flavor default, 1 more needed" in reason.message
    (shortage,) = reason.shortages
    assert (shortage.needed, shortage.free, shortage.maximum) == (2000, 1000, 9000)
    assert reason.remedy == "1 more cpu of flavor default free for ClusterQueue q"


def test_quota_lent_to_others_is_named(play):
    made = play().queues(cluster_queue("a").cohort("c").gpus(4), cluster_queue("b").cohort("c").gpus(0))
    made.submit(workload("x").queue("b").gpus(3))
    made.run()
    made.submit(workload("w").queue("a").gpus(4))
    (shortage,) = held(made.run())["w"].reason.shortages
    assert (shortage.needed, shortage.free, shortage.held_by_borrowers) == (4, 1, 3)


def test_undeclared_resources_can_be_ignored(play):
    made = play(Policy(quota_check=QuotaCheck.IGNORE_UNDECLARED)).queues(cluster_queue("q").gpus(4))
    made.submit(workload("w").queue("q").asks({GPU: 1, CPU: 500}))
    assert flavors_of(made.run(), "w") == {"main": {GPU: "default"}}


def test_a_hopeless_flavor_is_not_chosen(play):
    """Where preemption has no possible victim, a flavor that works by borrowing wins, whatever the preference."""
    made = play().flavors(flavor("a"), flavor("b"))
    made.cohorts(cohort("root").flavor("b", {CPU: 10_000}), cohort("mid").parent("root"))
    made.queues(
        cluster_queue("q")
        .cohort("mid")
        .flavor("a", {CPU: quota(2000, borrowing=0)})
        .flavor("b", {CPU: 0})
        .within(LOWER)
        .reclaim(NEVER)
        .fungibility(TRY_NEXT, TRY_NEXT, PREEMPT_FIRST),
        cluster_queue("s").cohort("mid").flavor("a", {CPU: 4000}),
    )
    made.submit(workload("j1").queue("q").cpu(2000))
    assert flavors_of(made.run(), "j1") == {"main": {CPU: "a"}}
    made.submit(workload("j2").queue("q").cpu(2000))
    assert flavors_of(made.run(), "j2") == {"main": {CPU: "b"}}


# ------------------------------------------------------------------ fungibility


@dataclass
class Choice:
    """Flavor `one` is full, by low-priority work (`low`) or by work that may not be evicted; `two` is free."""

    settings: tuple
    low: bool
    borrows_on_two: bool
    want: str


CHOICES = {
    "a flavor that fits without borrowing ends the search": Choice(
        (MAY_STOP, TRY_NEXT, BORROW_FIRST), True, False, "two"
    ),
    "may stop: preemption on the first flavor before borrowing on the second": Choice(
        (MAY_STOP, MAY_STOP, BORROW_FIRST), True, True, "preempt"
    ),
    "may stop goes on all the same where nobody can be evicted": Choice(
        (MAY_STOP, MAY_STOP, BORROW_FIRST), False, True, "two"
    ),
    "borrowing on the second flavor rather than preemption on the first": Choice(
        (TRY_NEXT, TRY_NEXT, BORROW_FIRST), True, True, "two"
    ),
    "preemption on the first flavor rather than borrowing on the second": Choice(
        (TRY_NEXT, TRY_NEXT, PREEMPT_FIRST), True, True, "preempt"
    ),
}


@pytest.mark.parametrize("case", CHOICES.values(), ids=CHOICES)
def test_fungibility(play, case):
    made = play().flavors(flavor("one"), flavor("two"))
    made.queues(
        cluster_queue("q")
        .cohort("c")
        .flavor("one", {GPU: quota(2, borrowing=0)})
        .flavor("two", {GPU: 0 if case.borrows_on_two else 2})
        .within(LOWER)
        .fungibility(*case.settings),
        cluster_queue("s").cohort("c").flavor("two", {GPU: 4}),
    )
    made.submit(workload("old").queue("q").gpus(2).holding("q", "one").priority(0 if case.low else 9))
    made.submit(workload("w").queue("q").gpus(2).priority(5))
    plan = made.run()
    got = flavors_of(plan, "w").get("main", {}).get(GPU, "preempt")
    assert got == case.want


def test_without_fungibility_the_best_mode_counts_and_the_first_that_fits(play):
    """The gate FlavorFungibility: borrowing on the first flavor although the queue would rather try the next one."""
    for policy, want in ((Policy(), "two"), (Policy(flavor_fungibility=False), "one")):
        made = play(policy).flavors(flavor("one"), flavor("two"))
        made.queues(
            cluster_queue("q")
            .cohort("c")
            .flavor("one", {GPU: 0})
            .flavor("two", {GPU: 2})
            .fungibility(TRY_NEXT, TRY_NEXT, PREEMPT_FIRST),
            cluster_queue("s").cohort("c").flavor("one", {GPU: 4}),
        )
        made.submit(workload("w").queue("q").gpus(2))
        assert flavors_of(made.run(), "w") == {"main": {GPU: want}}


def test_the_search_goes_on_where_it_stopped(play):
    """The first flavor was found to fit and lost to another workload: the next round looks at the second one."""
    made = play().flavors(flavor("one"), flavor("two"))
    both = [
        cluster_queue(name).cohort("c").flavor("one", {GPU: 0}).flavor("two", {GPU: 0}).fungibility(MAY_STOP, MAY_STOP)
        for name in "ab"
    ]
    made.cohorts(cohort("c").flavor("one", {GPU: 2}).flavor("two", {GPU: 2})).queues(*both)
    made.submit(workload("w1").queue("a").gpus(2), workload("w2").queue("b").gpus(2))
    plan = made.run()
    assert admitted(plan) == ["w1", "w2"]
    assert flavors_of(plan, "w2") == {"main": {GPU: "two"}}


@pytest.mark.parametrize(
    ("better", "worse", "preference"),
    [
        ((Mode.FIT, 1), (Mode.NO_FIT, 0), PREEMPT_FIRST),
        ((Mode.FIT, 2), (Mode.NO_CANDIDATES, 0), PREEMPT_FIRST),
        ((Mode.PREEMPT, 2), (Mode.NO_CANDIDATES, 0), PREEMPT_FIRST),
        ((Mode.RECLAIM, 0), (Mode.PREEMPT, 0), BORROW_FIRST),
        ((Mode.FIT, 1), (Mode.RECLAIM, 0), BORROW_FIRST),
        ((Mode.RECLAIM, 0), (Mode.FIT, 1), PREEMPT_FIRST),
        ((Mode.FIT, 0), (Mode.FIT, 1), BORROW_FIRST),
        ((Mode.FIT, 1), (Mode.PREEMPT, 1), PREEMPT_FIRST),
    ],
)
def test_preference(better, worse, preference):
    assert is_preferred(Grade(*better), Grade(*worse), preference)
    assert not is_preferred(Grade(*worse), Grade(*better), preference)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("level", [0, 1])
def test_goes_on(mode, level):
    grade = Grade(mode, level)
    assert goes_on(grade, Fungibility(TRY_NEXT, TRY_NEXT)) is not (mode is Mode.FIT and level == 0)
    assert goes_on(grade, Fungibility(MAY_STOP, MAY_STOP)) is (mode in (Mode.NO_FIT, Mode.NO_CANDIDATES))


# ------------------------------------------------------------------ edits


@pytest.mark.parametrize(
    ("before", "after", "builder"),
    [
        pytest.param(flavor("t", taints=[Taint("gpu", "yes")]), flavor("t"), workload("w"), id="a taint is removed"),
        pytest.param(
            flavor("t", taints=[Taint("gpu", "yes")]),
            flavor("t", taints=[Taint("gpu", "yes")], tolerations=[Toleration("gpu", "Exists")]),
            workload("w"),
            id="the flavor gets a toleration",
        ),
        pytest.param(
            flavor("t", labels={"pool": "a"}),
            flavor("t", labels={"pool": "b"}),
            workload("w").selecting(pool="b"),
            id="a label changes",
        ),
    ],
)
def test_editing_a_flavor_tries_waiters_again(play, before, after, builder):
    made = play().flavors(before).queues(cluster_queue("q").flavor("t", {GPU: 4}))
    made.submit(workload("old").queue("q").holding("q", "t"), builder.queue("q"))
    assert admitted(made.run()) == []
    made.apply(events.FlavorChanged(after))
    assert admitted(made.run()) == ["w"]
    assert made.used("q", flavor_name="t") == 2
