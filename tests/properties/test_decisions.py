"""What is decided for one waiting workload agrees with the slow reference: admit where, evict whom, or wait."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given, note
from hypothesis import strategies as st

from queues.core.model import Admission, Cohort, PodSet, PodSetAssignment, ResourceFlavor
from queues.core.plan import Admit, Evict
from tests.oracle.flavors import Outcome, outcome
from tests.oracle.preemption import Preemptor
from tests.properties.cluster import Cluster
from tests.properties.worlds import COHORTS, FLAVORS, PARENTS, QUEUES, cluster_queues, cohorts, flavors, workloads


@st.composite
def clusters(draw, *, scarce: bool) -> Cluster:
    """Queues in cohorts, with workloads that hold quota there, more than there is of it now and then."""
    cluster = Cluster()
    for name in FLAVORS:
        cluster.put_flavor(ResourceFlavor(name) if scarce else draw(flavors(name)))
    for name in draw(st.lists(st.sampled_from(COHORTS), max_size=4, unique=True)):
        cluster.put_cohort(Cohort(name, next(iter(PARENTS[name]), None)) if scarce else draw(cohorts(name)))
    for name in draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4, unique=True)):
        cluster.put_queue(draw(cluster_queues(name, scarce=scarce)))
    names = tuple(cluster.queues)
    for index in range(draw(st.integers(3, 9) if scarce else st.integers(0, 6))):
        created = float(draw(st.integers(1, 5)))
        workload = draw(workloads(f"h{index}", queues=names, created_at=created, scarce=scarce))
        known = [f.flavor for group in cluster.queues[workload.queue.name].groups for f in group.flavors]
        flavor = draw(st.sampled_from(known if scarce else FLAVORS))
        admission = Admission(
            workload.queue.name,
            tuple(_on_flavor(pod_set, flavor) for pod_set in workload.pod_sets),
            reserved_at=float(draw(st.integers(1, 5))),
            admitted=True,
        )
        cluster.put(replace(workload, admission=admission, evicted=draw(st.integers(0, 9)) == 0))
    return cluster


def _on_flavor(pod_set: PodSet, flavor: str) -> PodSetAssignment:
    usage = {resource: each * pod_set.count for resource, each in pod_set.requests.items() if each}
    return PodSetAssignment(pod_set.name, pod_set.count, dict.fromkeys(usage, flavor), usage)


@pytest.mark.parametrize("scarce", [True, False])
@given(data=st.data())
def test_one_waiting_workload(data, scarce):
    cluster = data.draw(clusters(scarce=scarce))
    created = float(data.draw(st.integers(1, 5)))
    workload = data.draw(workloads("new", queues=tuple(cluster.queues), created_at=created, scarce=scarce))
    if scarce:
        workload = replace(workload, priority=data.draw(st.integers(1, 3)))
    world = cluster.world()
    cluster.put(workload)
    cluster.now = 10.0
    preemptor = Preemptor(workload.queue.name, workload.priority, workload.queued_at)
    want = outcome(world, preemptor, list(workload.pod_sets))
    plan = cluster.decide()
    note(f"{plan=}")
    got = Outcome(victims=frozenset(d.uid for d in plan if isinstance(d, Evict)))
    for decision in plan:
        if isinstance(decision, Admit):
            assert decision.uid == "new"
            got = Outcome(admitted={p.name: dict(p.flavors) for p in decision.admission.pod_sets})
    event("admitted" if got.admitted else f"{min(len(got.victims), 3)} victims")
    assert got == want
