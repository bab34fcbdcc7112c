"""What is decided for one waiting workload agrees with the slow reference: admit where, evict whom, or wait."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, note
from hypothesis import strategies as st

from queues.core.model import Admission, PodSetAssignment
from queues.core.plan import Admit, Evict
from tests.oracle.flavors import Outcome, outcome
from tests.oracle.preemption import Preemptor
from tests.properties.cluster import Cluster
from tests.properties.worlds import COHORTS, FLAVORS, QUEUES, cluster_queues, cohorts, flavors, workloads


@st.composite
def clusters(draw, *, holders: int = 6) -> Cluster:
    """Queues in cohorts, with workloads that hold quota there, more than there is of it now and then."""
    cluster = Cluster()
    for name in FLAVORS:
        cluster.put_flavor(draw(flavors(name)))
    for name in draw(st.lists(st.sampled_from(COHORTS), max_size=4, unique=True)):
        cluster.put_cohort(draw(cohorts(name)))
    for name in draw(st.lists(st.sampled_from(QUEUES), min_size=1, max_size=4, unique=True)):
        cluster.put_queue(draw(cluster_queues(name)))
    names = tuple(cluster.queues)
    for index in range(draw(st.integers(0, holders))):
        workload = draw(workloads(f"h{index}", queues=names, created_at=float(draw(st.integers(1, 5)))))
        flavor = draw(st.sampled_from(FLAVORS))
        pod_sets = tuple(
            PodSetAssignment(
                p.name,
                p.count,
                dict.fromkeys((r for r, v in p.requests.items() if v), flavor),
                {r: v * p.count for r, v in p.requests.items() if v},
            )
            for p in workload.pod_sets
        )
        admission = Admission(workload.queue.name, pod_sets, float(draw(st.integers(1, 5))), admitted=True)
        cluster.put(replace(workload, admission=admission, evicted=draw(st.integers(0, 9)) == 0))
    return cluster


@given(st.data(), clusters())
def test_one_waiting_workload(data, cluster):
    workload = data.draw(workloads("new", queues=tuple(cluster.queues), created_at=float(data.draw(st.integers(1, 5)))))
    world = cluster.world()
    cluster.put(workload)
    cluster.now = 10.0
    preemptor = Preemptor(workload.queue.name, workload.priority, workload.queued_at)
    want = outcome(world, preemptor, list(workload.pod_sets))
    plan = cluster.decide()
    note(f"{plan=}")
    evicted = {h.uid for h in world.holders if h.evicted}
    got = Outcome(victims=frozenset(d.uid for d in plan if isinstance(d, Evict)))
    for decision in plan:
        if isinstance(decision, Admit):
            assert decision.uid == "new"
            got = Outcome(admitted={p.name: dict(p.flavors) for p in decision.admission.pod_sets})
    assert got == replace(want, victims=want.victims - evicted)
