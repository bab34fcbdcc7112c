"""Objects as the core gets them, those that make no sense included."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from admission.api import core, kueue, names, topology_assignment
from admission.api.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from admission.controllers import observe, observe_workload
from admission.settings import WaitForPodsReady
from admission.settings.configuration import RequeuingStrategy, RequeuingTimestamp
from queues.core import model
from tests.unit.controllers.builders import NOW, WorkloadBuilder, admission, cluster_queue, settings, stamp, workload

CPU = model.ResourceName("cpu")


def test_a_cluster_queue_with_everything() -> None:
    obj = cluster_queue(checks=("ac",), cohort="team", stop_policy="Hold", queueing_strategy="StrictFIFO")
    spec = msgspec.structs.replace(
        obj.spec,
        preemption=kueue.ClusterQueuePreemption(
            reclaim_within_cohort="Any",
            within_cluster_queue="LowerPriority",
            borrow_within_cohort=kueue.BorrowWithinCohort(policy="LowerPriority", max_priority_threshold=5),
        ),
        fair_sharing=kueue.FairSharing(weight="500m"),
    )
    assert observe.cluster_queue(msgspec.structs.replace(obj, spec=spec)) == model.ClusterQueue(
        name=model.ClusterQueueName("cq"),
        groups=(
            model.ResourceGroup(
                (CPU,), (model.FlavorQuotas(model.FlavorName("default"), {CPU: model.Quota(nominal=10_000)}),)
            ),
        ),
        cohort=model.CohortName("team"),
        strategy=model.QueueingStrategy.STRICT_FIFO,
        namespace_selector=model.LabelSelector(),
        preemption=model.Preemption(
            within_cluster_queue=model.PreemptionPolicy.LOWER_PRIORITY,
            reclaim_within_cohort=model.PreemptionPolicy.ANY,
            borrow_within_cohort=model.PreemptionPolicy.LOWER_PRIORITY,
            max_priority_threshold=5,
        ),
        checks=(model.CheckRule(model.CheckName("ac")),),
        stop_policy=model.StopPolicy.HOLD,
        fair_weight=500,
    )


@pytest.mark.parametrize(
    ("annotations", "want"),
    [
        pytest.param({}, model.Packing.PACK, id="packed without a word"),
        pytest.param({names.PACKING: "Spread"}, model.Packing.SPREAD, id="spread"),
        pytest.param({names.PACKING: "FragmentationAware"}, model.Packing.FRAGMENTATION_AWARE, id="by expected sizes"),
        pytest.param({names.PACKING: "Tight"}, model.Packing.PACK, id="a packing that does not exist"),
    ],
)
def test_packing_of_a_flavor(annotations: dict[str, str], want: model.Packing) -> None:
    obj = kueue.ResourceFlavor(metadata=ObjectMeta(name="f", annotations=annotations))
    assert observe.flavor(obj).packing is want


@pytest.mark.parametrize(
    ("allocatable", "want"),
    [
        pytest.param({"nvidia.com/gpu": "8", "cpu": "96"}, {}, id="whole GPUs are one pool"),
        pytest.param(
            {"aliyun.com/gpu-mem": "320", "aliyun.com/gpu-count": "4"}, {"aliyun.com/gpu-mem": 4}, id="memory of GPUs"
        ),
        pytest.param({"alibabacloud.com/gpu-milli": "8000"}, {}, id="of how many GPUs is not known"),
        pytest.param({"nvidia.com/gpu.shared": "80"}, {}, id="any replica is as good as another"),
    ],
)
def test_devices_of_a_node(allocatable: dict[str, str], want: dict[str, int]) -> None:
    obj = core.Node(metadata=ObjectMeta(name="n"), status=core.NodeStatus(allocatable=allocatable))
    assert observe.node(obj).devices == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param("2", 2000, id="cpu in milli-units"),
        pytest.param("-2", 0, id="a negative quota gives nothing"),
        pytest.param("many", 0, id="what is no quantity gives nothing"),
        pytest.param("20E", 20 * 10**21, id="no size wraps"),
    ],
)
def test_quantity(text: str, want: int) -> None:
    assert observe.quantity("cpu", text) == want


@pytest.mark.parametrize(
    ("weight", "want"),
    [
        pytest.param("1", 1000, id="weight 1"),
        pytest.param("0", 0, id="weight 0"),
        pytest.param("1n", 1, id="a weight above nothing never becomes nothing"),
        pytest.param("nonsense", 1000, id="nonsense counts as the default"),
    ],
)
def test_fair_weight(weight: str, want: int) -> None:
    assert observe.fair_weight(kueue.FairSharing(weight=weight)) == want


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        pytest.param(None, None, id="none matches nothing"),
        pytest.param(LabelSelector(), model.LabelSelector(), id="empty matches everything"),
        pytest.param(
            LabelSelector({"b": "2", "a": "1"}, (LabelSelectorRequirement("team", "In", ("x",)),)),
            model.LabelSelector((("a", "1"), ("b", "2")), (model.Expression("team", model.Operator.IN, ("x",)),)),
            id="labels and expressions",
        ),
        pytest.param(
            LabelSelector({}, (LabelSelectorRequirement("team", "Resembles", ("x",)),)),
            None,
            id="an operator that does not exist matches nothing",
        ),
    ],
)
def test_selector(selector: LabelSelector | None, want: model.LabelSelector | None) -> None:
    assert observe.selector(selector) == want


def node(*, ready: str = "True", taints: tuple[core.Taint, ...] = (), **spec: Any) -> core.Node:
    return core.Node(
        metadata=ObjectMeta(name="n", labels={"rack": "r"}),
        spec=core.NodeSpec(taints=taints, **spec),
        status=core.NodeStatus(
            allocatable={"cpu": "4", "pods": "110"}, conditions=(core.NodeCondition("Ready", ready),)
        ),
    )


@pytest.mark.parametrize(
    ("obj", "ready", "unschedulable"),
    [
        pytest.param(node(), True, False, id="ready"),
        pytest.param(node(ready="Unknown"), False, False, id="silent"),
        pytest.param(node(unschedulable=True), True, True, id="cordoned"),
        pytest.param(
            node(taints=(core.Taint("node.kubernetes.io/unreachable", effect="NoSchedule"),)), False, False, id="lost"
        ),
    ],
)
def test_node(obj: core.Node, ready: bool, unschedulable: bool) -> None:
    found = observe.node(obj)
    assert (found.ready, found.unschedulable) == (ready, unschedulable)
    assert found.allocatable == {"cpu": 4000, "pods": 110}


PLACED = workload().status(
    admission=admission(
        topology_assignment=topology_assignment.encode(["rack"], [topology_assignment.Domain(("r",), 2)])
    )
)


def pod(phase: str = "Running", node_name: str = "n", **labels: str) -> core.Pod:
    return core.Pod(
        metadata=ObjectMeta(name="p", uid="u", labels=labels),
        spec=core.PodSpec(node_name=node_name),
        status=core.PodStatus(phase=phase),
    )


@pytest.mark.parametrize(
    ("obj", "wl", "want"),
    [
        pytest.param(pod(), None, True, id="a pod of nobody's takes room"),
        pytest.param(pod(node_name=""), None, False, id="one that is not placed yet does not"),
        pytest.param(pod("Succeeded"), None, False, id="one that ended does not"),
        pytest.param(pod(), workload().admitted(), True, id="no assignment accounts for it"),
        pytest.param(pod(), PLACED, False, id="the assignment of the only pod set accounts for it"),
        pytest.param(pod(**{names.PODSET_LABEL: "main"}), PLACED, False, id="that of its pod set does"),
        pytest.param(pod(**{names.PODSET_LABEL: "other"}), PLACED, True, id="that of another one does not"),
        pytest.param(pod(), workload(), True, id="its workload has given its quota back, and it is still there"),
    ],
)
def test_occupies_node(obj: core.Pod, wl: WorkloadBuilder | None, want: bool) -> None:
    assert observe.occupies_node(obj, None if wl is None else wl.obj) is want


# ------------------------------------------------------------------ Workloads


@pytest.mark.parametrize(
    ("wl", "want"),
    [
        pytest.param(workload(), None, id="waits"),
        pytest.param(workload().admitted().spec(active=False), None, id="what holds quota is not held"),
        pytest.param(workload().spec(active=False), "deactivated", id="inactive"),
        pytest.param(workload().deleting(), "deleted", id="being deleted"),
        pytest.param(workload().cond(names.DEACTIVATION_TARGET), "about to be", id="about to be deactivated"),
        pytest.param(workload().cond(names.QUOTA_RESERVED, "False", "OnHold"), "on hold", id="on hold"),
        pytest.param(workload().cond(names.WAITING_FOR_REPLACEMENT_PODS), "replacement", id="incomplete"),
        pytest.param(workload().annotated(names.ADMISSION_GATED_BY, "a,b"), "gated by a, b", id="gated"),
        pytest.param(workload().annotated(names.ADMISSION_GATED_BY, " "), None, id="no gate in an empty list"),
        pytest.param(workload().check("ac", "Retry"), "failed admission checks: ac", id="failed checks"),
    ],
)
def test_held(wl: WorkloadBuilder, want: str | None) -> None:
    found = observe_workload.held(wl.obj)
    assert found is None if want is None else want in str(found)


@pytest.mark.parametrize(
    ("wl", "want"),
    [
        pytest.param(workload(), 0.0, id="now"),
        pytest.param(workload().requeue(at=30), NOW + 30, id="at its requeue time"),
        pytest.param(
            workload().requeue(at=30).cond(names.REQUEUED, "False", "PodsReadyTimeout"),
            math.inf,
            id="not before it is put back",
        ),
    ],
)
def test_eligible_at(wl: WorkloadBuilder, want: float) -> None:
    assert observe_workload.eligible_at(wl.obj) == want


BY_CREATION = WaitForPodsReady(requeuing_strategy=RequeuingStrategy(timestamp=RequeuingTimestamp.CREATION))


@pytest.mark.parametrize(
    ("wl", "waiting", "want"),
    [
        pytest.param(workload(), None, -100, id="from its creation"),
        pytest.param(workload().evicted("Preempted"), None, -100, id="preempted: it keeps its place"),
        pytest.param(workload().evicted("PodsReadyTimeout"), WaitForPodsReady(), -30, id="never ready: from then on"),
        pytest.param(workload().evicted("PodsReadyTimeout"), BY_CREATION, -100, id="never ready, by creation"),
        pytest.param(workload().evicted("AdmissionCheck"), BY_CREATION, -30, id="failed check: from then on"),
        pytest.param(
            workload().cond(names.EVICTED, "False", "QuotaReserved"), None, -100, id="an eviction that is over"
        ),
    ],
)
def test_queued_at(wl: WorkloadBuilder, waiting: WaitForPodsReady | None, want: float) -> None:
    assert observe_workload.queued_at(wl.obj, settings(wait_for_pods_ready=waiting)) == NOW + want


def test_an_admission_with_its_placement() -> None:
    wl = workload().admitted(
        topology_assignment=topology_assignment.encode(["rack"], [topology_assignment.Domain(("r",), 2)])
    )
    assert observe_workload.admission(wl.obj) == model.Admission(
        cluster_queue=model.ClusterQueueName("cq"),
        pod_sets=(
            model.PodSetAssignment(
                name="main",
                count=2,
                flavors={CPU: model.FlavorName("default")},
                usage={CPU: 2000},
                topology=model.TopologyAssignment(("rack",), (model.TopologyDomain(("r",), 2),)),
            ),
        ),
        reserved_at=NOW - 60,
        admitted=True,
    )


def test_an_admission_without_its_condition_holds_nothing() -> None:
    assert observe_workload.admission(workload().status(admission=admission()).obj) is None


@pytest.mark.parametrize(
    ("states", "want"),
    [
        pytest.param((), ("a", "b"), id="closed until somebody says otherwise"),
        pytest.param((("a", "Open"),), ("b",), id="one is open"),
        pytest.param((("a", "Open"), ("b", "Closed")), ("b",), id="closed again"),
        pytest.param((("a", "Open"), ("b", "Open"), ("c", "Closed")), (), id="only those of the spec count"),
    ],
)
def test_closed_preemption_gates(states: tuple[tuple[str, str], ...], want: tuple[str, ...]) -> None:
    obj = (
        workload()
        .spec(preemption_gates=(kueue.PreemptionGate(name="b"), kueue.PreemptionGate(name="a")))
        .status(
            preemption_gates=tuple(
                kueue.PreemptionGateState(name=name, position=position, last_transition_time=stamp())
                for name, position in states
            )
        )
    )
    assert observe_workload.closed_preemption_gates(obj.obj) == want
