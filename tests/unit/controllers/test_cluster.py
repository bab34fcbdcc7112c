"""What the core hears and who becomes dirty when an object changes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from admission.api import core, kueue, names
from admission.api.meta import ObjectMeta
from admission.controllers.act import Gone, Written
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Observed
from admission.controllers.rules import Ownership
from admission.controllers.status import cluster_queue_status, local_queue_status
from admission.controllers.store import Key
from admission.jobs.effects import Ref
from admission.jobs.registry import adapters
from admission.kube.informers import Deleted, Replaced, Upserted
from admission.settings import WaitForPodsReady
from queues.core import model
from queues.core.cycle import decide
from queues.core.plan import Admit
from queues.core.policy import Policy
from tests.unit.controllers.builders import (
    NAMESPACE,
    NOW,
    WorkloadBuilder,
    cluster_queue,
    local_queue,
    settings,
    workload,
)

FLAVOR = kueue.ResourceFlavor(metadata=ObjectMeta(name="default", uid="uid-default", resource_version="1"))
W = Key(NAMESPACE, "w")


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster(settings(), adapters(settings()), lambda: NOW)
    take(made, FLAVOR, cluster_queue(), local_queue())
    settle(made)
    return made


def take(cluster: Cluster, *objects: Any) -> None:
    for obj in objects:
        cluster.take(Observed(obj.kind, Upserted(obj)))


def settle(cluster: Cluster) -> None:
    cluster.dirty = type(cluster.dirty)()
    cluster.stirred = False


def newer(builder: WorkloadBuilder, version: str = "8") -> kueue.Workload:
    metadata = msgspec.structs.replace(builder.obj.metadata, resource_version=version)
    return msgspec.structs.replace(builder.obj, metadata=metadata)


def tell(cluster: Cluster, obj: kueue.Workload) -> bool:
    take(cluster, obj)
    return cluster.tell(obj)


def test_a_workload_is_told_once(cluster: Cluster) -> None:
    assert tell(cluster, workload().obj)
    assert not cluster.tell(newer(workload().cond(names.QUOTA_RESERVED, "False", "WaitingForQuota")))
    (decision,) = decide(cluster.state, NOW, Policy())
    assert isinstance(decision, Admit)
    assert decision.admission.pod_sets[0].usage == {"cpu": 2000}


def test_a_finished_workload_gives_everything_back(cluster: Cluster) -> None:
    tell(cluster, workload().admitted().obj)
    assert cluster.state.counts(model.ClusterQueueName("cq")).admitted == 1
    assert tell(cluster, newer(workload().admitted().cond(names.FINISHED)))
    assert cluster.state.counts(model.ClusterQueueName("cq")).admitted == 0
    assert not cluster.is_in_use("ClusterQueue", "cq")


def test_a_workload_made_anew_under_the_same_name_is_another_one(cluster: Cluster) -> None:
    tell(cluster, workload().admitted().obj)
    metadata = msgspec.structs.replace(workload().obj.metadata, uid="second", resource_version="9")
    take(cluster, msgspec.structs.replace(workload().obj, metadata=metadata))
    assert "uid-w" not in cluster.told
    assert cluster.state.counts(model.ClusterQueueName("cq")).admitted == 0


def test_a_listing_without_the_workload_is_its_end(cluster: Cluster) -> None:
    tell(cluster, workload().admitted().obj)
    cluster.take(Observed("Workload", Replaced(())))
    # An empty listing has no version to compare with: what is not in it is gone.
    assert cluster.tables.workloads.get(*W) is None
    assert cluster.told == {}


def test_a_listing_ends_also_what_was_written_last_of_all(cluster: Cluster) -> None:
    """Deleted while nobody could follow, it would hold its quota for ever; what was written since the listing stays."""
    other = workload("other").obj
    tell(cluster, other)
    tell(cluster, newer(workload().admitted()))
    known = cluster.tables.workloads.get(*W)
    assert known is not None
    version = int(known.metadata.resource_version)
    cluster.take(Observed("Workload", Replaced((other,), str(version - 1))))
    assert cluster.tables.workloads.get(*W) is known
    cluster.take(Observed("Workload", Replaced((other,), str(version + 1))))
    assert cluster.tables.workloads.get(*W) is None
    assert cluster.state.counts(model.ClusterQueueName("cq")).admitted == 0


def test_a_write_that_finds_nothing_is_the_end_of_the_object(cluster: Cluster) -> None:
    tell(cluster, workload().admitted().obj)
    cluster.take(Gone(Ref("Workload", NAMESPACE, "w", "uid-w")))
    assert cluster.told == {}


def test_the_answer_of_a_write_counts_as_seen(cluster: Cluster) -> None:
    take(cluster, workload().obj)
    settle(cluster)
    answer = newer(workload().admitted())
    cluster.take(Written("Workload", answer))
    assert cluster.tables.workloads.get(*W) is answer
    assert list(cluster.dirty.workloads) == [W]
    settle(cluster)
    take(cluster, answer)
    assert not cluster.dirty.workloads, "the echo of the watch is no news"


def test_a_status_write_of_a_queue_stirs_nothing(cluster: Cluster) -> None:
    obj = cluster_queue()
    status = msgspec.structs.replace(obj.status, pending_workloads=5)
    metadata = msgspec.structs.replace(obj.metadata, resource_version="4")
    take(cluster, msgspec.structs.replace(obj, status=status, metadata=metadata))
    assert not cluster.stirred
    assert not cluster.dirty.cluster_queues


def changed_queue(**spec: Any) -> kueue.ClusterQueue:
    obj = cluster_queue(**spec)
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version="4"))


def test_a_stopped_queue_makes_its_workloads_dirty_the_waiting_ones_too(cluster: Cluster) -> None:
    take(cluster, workload("runs").admitted().obj, workload("waits").obj)
    settle(cluster)
    take(cluster, changed_queue(stop_policy="HoldAndDrain"))
    assert set(cluster.dirty.workloads) == {Key(NAMESPACE, "runs"), Key(NAMESPACE, "waits")}
    assert cluster.stirred


def test_a_limit_range_has_the_requests_of_its_namespace_read_again(cluster: Cluster) -> None:
    big = workload(cpu="2").obj
    tell(cluster, big)
    limits = core.LimitRangeItem(type="Container", max={"cpu": "1"})
    limit_range = core.LimitRange(
        metadata=ObjectMeta(name="lr", namespace=NAMESPACE, uid="uid-lr", resource_version="1"),
        spec=core.LimitRangeSpec(limits=(limits,)),
    )
    settle(cluster)
    take(cluster, limit_range)
    assert W in cluster.dirty.workloads
    cluster.tell(big)
    assert "LimitRange" in str(cluster.told["uid-w"].misconfigured)
    settle(cluster)
    cluster.take(Observed("LimitRange", Deleted(limit_range)))
    assert W in cluster.dirty.workloads
    cluster.tell(big)
    assert cluster.told["uid-w"].misconfigured is None


def test_the_exact_time_of_a_reservation_is_kept(cluster: Cluster) -> None:
    cluster.values.decided_at["uid-w"] = NOW - 60 + 0.25
    tell(cluster, workload().admitted().obj)
    held = cluster.told["uid-w"].admission
    assert held is not None
    assert held.reserved_at == NOW - 59.75


@pytest.mark.parametrize(
    ("builder", "want"),
    [
        pytest.param(workload(), Ownership.NONE, id="created directly"),
        pytest.param(workload().owned("Job"), Ownership.JOB, id="of a kind with an adapter"),
        pytest.param(workload().owned("SomebodyElsesJob"), Ownership.FOREIGN, id="of a kind without one"),
    ],
)
def test_ownership(cluster: Cluster, builder: WorkloadBuilder, want: Ownership) -> None:
    assert cluster.ownership(builder.obj) is want


@pytest.mark.parametrize(
    ("kind", "name", "want"),
    [
        pytest.param("ResourceFlavor", "default", True, id="a flavor of a queue"),
        pytest.param("ResourceFlavor", "other", False, id="a flavor of none"),
        pytest.param("ClusterQueue", "cq", False, id="a queue where nobody holds anything"),
        pytest.param("AdmissionCheck", "ac", False, id="a check of none"),
        pytest.param("Topology", "t", False, id="a topology of none"),
    ],
)
def test_is_in_use(cluster: Cluster, kind: str, name: str, want: bool) -> None:
    assert cluster.is_in_use(kind, name) is want


def test_statuses_say_what_the_workloads_add_up_to(cluster: Cluster) -> None:
    take(cluster, changed_queue(cohort="c", nominal="1"))
    tell(cluster, workload("runs").admitted().obj)
    tell(cluster, workload("reserves").reserved().obj)
    tell(cluster, workload("waits").obj)
    queue = cluster.tables.cluster_queues.get("", "cq")
    local = cluster.tables.local_queues.get(NAMESPACE, "lq")
    assert queue is not None
    assert local is not None
    found = cluster_queue_status(queue, cluster.state, NOW)
    assert (found.pending_workloads, found.reserving_workloads, found.admitted_workloads) == (1, 2, 1)
    assert found.flavors_reservation[0].resources == (kueue.ResourceUsage(name="cpu", total="4", borrowed="3"),)
    assert found.flavors_usage[0].resources == (kueue.ResourceUsage(name="cpu", total="2", borrowed="1"),)
    assert [(each.type, each.status, each.reason) for each in found.conditions] == [("Active", "True", "Ready")]
    own = local_queue_status(local, queue, cluster.state, NOW)
    assert (own.pending_workloads, own.reserving_workloads, own.admitted_workloads) == (1, 2, 1)
    assert own.flavors_usage[0].resources == (kueue.LocalQueueResourceUsage(name="cpu", total="2"),)


def test_the_active_condition_is_kept_when_it_says_so_already(cluster: Cluster) -> None:
    queue = cluster.tables.cluster_queues.get("", "cq")
    assert queue is not None
    told = cluster_queue_status(queue, cluster.state, NOW)
    queue = msgspec.structs.replace(queue, status=told)
    assert cluster_queue_status(queue, cluster.state, NOW + 60) == told


def test_that_pods_are_ready_is_told_though_nothing_else_changed() -> None:
    """Where admissions wait for ready pods, the next one starts then and not at the next event."""
    waiting = WaitForPodsReady(block_admission=True)
    cluster = Cluster(settings(wait_for_pods_ready=waiting), adapters(settings()), lambda: NOW)
    take(cluster, FLAVOR, cluster_queue(), local_queue())
    tell(cluster, workload("w").admitted().obj)
    tell(cluster, workload("next").obj)
    policy = Policy(block_admission_until_pods_ready=True)
    assert not [each for each in decide(cluster.state, NOW, policy) if isinstance(each, Admit)]
    settle(cluster)
    tell(cluster, newer(workload("w").admitted().cond(names.PODS_READY, reason="Started")))
    assert cluster.stirred
    assert [each.uid for each in decide(cluster.state, NOW, policy) if isinstance(each, Admit)] == ["uid-next"]
    settle(cluster)
    tell(cluster, newer(workload("w").admitted().cond(names.PODS_READY, reason="Started").cond("Other"), "9"))
    assert not cluster.stirred
