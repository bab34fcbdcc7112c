"""Random cohort trees, queues, flavors and workloads: small numbers, so that things collide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from hypothesis import strategies as st

from queues.core.model import (
    UNLIMITED,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    FungibilityPolicy,
    FungibilityPreference,
    ObjectKey,
    PodSet,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    Taint,
    Toleration,
    Workload,
)

GPU, CPU, PODS = "nvidia.com/gpu", "cpu", "pods"
FLAVORS = ("a100", "h100", "spot")
COHORTS = ("root", "left", "right", "deep", "deeper")
#: Possible parents; always nearer to the root, so that there is never a cycle. Depth 4 with the queues.
PARENTS = {"root": (), "left": ("root",), "right": ("root",), "deep": ("root", "left"), "deeper": ("deep", "right")}
QUEUES = ("q0", "q1", "q2", "q3", "q4")

small = st.integers(0, 8)


def rarely(draw: Callable, chance: int = 8) -> bool:
    return draw(st.integers(1, chance)) == chance


@st.composite
def quotas(draw, *, limits: bool) -> Quota:
    nominal = UNLIMITED if rarely(draw, 30) else draw(small)
    if not limits:
        return Quota(nominal)
    return Quota(
        nominal,
        borrowing_limit=draw(st.none() | st.none() | small),
        lending_limit=draw(st.none() | st.none() | st.integers(0, 4)),
    )


@st.composite
def groups(draw, *, limits: bool) -> tuple[ResourceGroup, ...]:
    """GPUs from one to three flavors; cpu with them, on its own, or not at all."""
    flavors = draw(st.lists(st.sampled_from(FLAVORS), min_size=1, max_size=3, unique=True))
    resources = (GPU, CPU) if draw(st.booleans()) else (GPU,)
    found = [
        ResourceGroup(
            resources,
            tuple(FlavorQuotas(f, {r: draw(quotas(limits=limits)) for r in resources}) for f in flavors),
        )
    ]
    rest = [f for f in FLAVORS if f not in flavors]
    if rest and CPU not in resources and draw(st.booleans()):
        found.append(ResourceGroup((CPU,), (FlavorQuotas(rest[0], {CPU: draw(quotas(limits=limits))}),)))
    return tuple(found)


@st.composite
def cohorts(draw, name: str) -> Cohort:
    parent = draw(st.sampled_from((None, *PARENTS[name]))) if rarely(draw, 4) else next(iter(PARENTS[name]), None)
    own = draw(groups(limits=parent is not None)) if rarely(draw, 3) else ()
    return Cohort(name, parent, own)


@st.composite
def scarce_groups(draw) -> tuple[ResourceGroup, ...]:
    """GPUs alone or with cpu, of one or two flavors, so that everybody wants the same."""
    resources = (GPU, CPU) if rarely(draw, 4) else (GPU,)
    names = FLAVORS[: draw(st.sampled_from([1, 1, 2]))]

    def quota() -> Quota:
        limit = st.none() | st.none() | st.none() | st.integers(0, 4)
        return Quota(draw(st.integers(0, 5)), borrowing_limit=draw(limit), lending_limit=draw(limit))

    return (ResourceGroup(resources, tuple(FlavorQuotas(f, {r: quota() for r in resources}) for f in names)),)


preemptions = st.builds(
    Preemption,
    within_cluster_queue=st.sampled_from(
        [
            PreemptionPolicy.NEVER,
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_PRIORITY,
            PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY,
        ]
    ),
    reclaim_within_cohort=st.sampled_from(
        [PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY, PreemptionPolicy.ANY, PreemptionPolicy.ANY]
    ),
    borrow_within_cohort=st.sampled_from([PreemptionPolicy.NEVER, PreemptionPolicy.LOWER_PRIORITY]),
    max_priority_threshold=st.none() | st.integers(0, 2),
)

fungibilities = st.builds(
    Fungibility,
    when_can_borrow=st.sampled_from(FungibilityPolicy),
    when_can_preempt=st.sampled_from(FungibilityPolicy),
    preference=st.sampled_from(FungibilityPreference),
)


@st.composite
def cluster_queues(draw, name: str, *, scarce: bool = False) -> ClusterQueue:
    cohort = draw(st.sampled_from(COHORTS[:4] if scarce else (None, *COHORTS, *COHORTS)))
    preemption = draw(preemptions)
    if cohort is None or preemption.reclaim_within_cohort is PreemptionPolicy.NEVER:
        preemption = Preemption(preemption.within_cluster_queue, preemption.reclaim_within_cohort)
    return ClusterQueue(
        name,
        draw(scarce_groups() if scarce else groups(limits=cohort is not None)),
        cohort,
        strategy=draw(st.sampled_from(QueueingStrategy)),
        preemption=preemption,
        fungibility=draw(fungibilities),
        fair_weight=draw(st.sampled_from([1000, 1000, 1000, 0, 500, 3000])),
    )


@st.composite
def flavors(draw, name: str) -> ResourceFlavor:
    return ResourceFlavor(
        name,
        node_labels=(("kind", name),),
        node_taints=(Taint("dear"),) if rarely(draw) else (),
    )


@st.composite
def pod_sets(draw, name: str = "main") -> PodSet:
    requests = {GPU: draw(st.integers(1, 3))}
    if draw(st.booleans()):
        requests[CPU] = draw(st.integers(0, 2))
    return PodSet(
        name,
        draw(st.integers(1, 4)),
        requests,
        requests,
        node_selector=(("kind", draw(st.sampled_from(FLAVORS))),) if rarely(draw) else (),
        tolerations=(Toleration("dear", "Exists"),) if draw(st.booleans()) else (),
    )


@st.composite
def workloads(
    draw, uid: str, *, queues: tuple[str, ...] = QUEUES, created_at: float = 0.0, scarce: bool = False
) -> Workload:
    first = PodSet("main", draw(st.integers(1, 4)), {GPU: 1}) if scarce else draw(pod_sets())
    if rarely(draw):
        first = replace(first, min_count=draw(st.integers(1, first.count)))
    sets = (first,)
    if rarely(draw, 12 if scarce else 4):
        sets = (*sets, draw(pod_sets("workers")))
    return Workload(
        uid=uid,
        key=ObjectKey("ns", uid),
        queue=ObjectKey("ns", draw(st.sampled_from(queues))),
        pod_sets=sets,
        priority=draw(st.integers(0, 3)),
        created_at=created_at,
        queued_at=created_at,
    )
