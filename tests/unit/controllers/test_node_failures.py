"""Failed nodes under admitted gangs: which count as failed, and what the Workload's status says of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from admission.api import core, kueue, names
from admission.api.decoding import convert
from admission.api.meta import ObjectMeta
from admission.api.topology_assignment import Domain, decode, encode
from admission.controllers import conditions, decisions, node_failures, observe_workload
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Observed
from admission.controllers.lifecycle import reconcile
from admission.controllers.rules import Ownership
from admission.controllers.store import Key
from admission.jobs.registry import adapters
from admission.kube.informers import Deleted, Upserted
from queues.core import model
from queues.core.cycle import decide
from queues.core.plan import GiveUp, Place
from queues.core.policy import Policy
from tests.unit.controllers.builders import (
    NAMESPACE,
    NOW,
    WorkloadBuilder,
    applied,
    cluster_queue,
    facts,
    local_queue,
    settings,
    workload,
)

HOST = names.HOSTNAME_LABEL
TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


def on_hosts(*hosts: str) -> kueue.TopologyAssignment:
    return encode((HOST,), [Domain((host,), 1) for host in hosts])


def gang(*hosts: str, **more: Any) -> WorkloadBuilder:
    return workload(count=len(hosts), **more).admitted(count=len(hosts), topology_assignment=on_hosts(*hosts)).owned()


def unhealthy(builder: WorkloadBuilder, *hosts: str) -> WorkloadBuilder:
    return builder.status(unhealthy_nodes=tuple(kueue.UnhealthyNode(name=host) for host in hosts))


def node(
    name: str, *, ready: str | None = "True", taints: Iterable[dict[str, str]] = (), version: int = 1
) -> core.Node:
    raw = {
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": str(version), "labels": {HOST: name}},
        "spec": {"taints": list(taints)},
        "status": {
            "allocatable": {"cpu": "8", "pods": "110"},
            "conditions": [] if ready is None else [{"type": "Ready", "status": ready}],
        },
    }
    return convert(raw, core.Node)


def pod(name: str, host: str, phase: str = "Running", *, deleting: bool = False, version: int = 1) -> core.Pod:
    meta: dict[str, Any] = {
        "name": name,
        "namespace": NAMESPACE,
        "uid": f"uid-{name}",
        "resourceVersion": str(version),
        "annotations": {names.WORKLOAD_ANNOTATION: "w"},
        "labels": {names.PODSET_LABEL: "main"},
    }
    if deleting:
        meta["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    raw = {"metadata": meta, "spec": {"nodeName": host, "containers": []}, "status": {"phase": phase}}
    return convert(raw, core.Pod)


# ------------------------------------------------------------------ which hosts have failed


GANG = gang("a", "b")


@dataclass(frozen=True)
class Health:
    id: str
    nodes: tuple[core.Node, ...]
    want: tuple[str, ...] = ()
    pods: tuple[core.Pod, ...] = ()
    gates: tuple[tuple[str, bool], ...] = ()
    tolerations: tuple[dict[str, str], ...] = ()
    wl: WorkloadBuilder = GANG


NOT_READY = (node("a", ready="False"), node("b"))
TAINTED = (node("a", taints=(TAINT,)), node("b"))

HEALTH = [
    Health("healthy nodes have not failed", (node("a"), node("b"))),
    Health("a node that is gone has failed at once", (node("b"),), ("a",), (pod("p", "a"),)),
    Health("a node that says nothing has failed at once", (node("a", ready=None), node("b")), ("a",), (pod("p", "a"),)),
    Health("a node that is not ready has not while a pod is at work", NOT_READY, (), (pod("p", "a"),)),
    Health("without a pod at work it has", (node("a", ready="Unknown"), node("b")), ("a",), (pod("p", "b"),)),
    Health("a failed pod is not at work", NOT_READY, ("a",), (pod("p", "a", "Failed"),)),
    Health("nor is a pod that is being deleted", NOT_READY, ("a",), (pod("p", "a", deleting=True),)),
    Health("pods that have done their work need no other node", NOT_READY, (), (pod("p", "a", "Succeeded"),)),
    Health("a taint repels pods that are not there yet", TAINTED, ("a",)),
    Health("not those that are at work", TAINTED, (), (pod("p", "a"),)),
    Health("not those that tolerate it", TAINTED, (), tolerations=({"key": "broken", "operator": "Exists"},)),
    Health("a soft taint repels nobody", (node("a", taints=({**TAINT, "effect": "PreferNoSchedule"},)), node("b"))),
    Health("no taint counts without its gate", TAINTED, gates=(("TASReplaceNodeOnNodeTaints", False),)),
    Health("nothing counts without the feature", (node("b"),), gates=(("TASFailedNodeReplacement", False),)),
    Health("without any node known nothing is concluded", ()),
    Health(
        "the workload of a single pod stays",
        (node("b"),),
        wl=workload().admitted(topology_assignment=on_hosts("a", "b")).owned("Pod"),
    ),
    Health(
        "racks do not fail",
        (node("b"),),
        wl=workload().admitted(topology_assignment=encode(("rack",), [Domain(("a",), 2)])).owned(),
    ),
    Health("two nodes fail", (node("c"),), ("a", "b")),
]


def cluster_with(*objects: Any, gates: tuple[tuple[str, bool], ...] = ()) -> Cluster:
    chosen = settings(feature_gates=dict(gates))
    made = Cluster(chosen, adapters(chosen), lambda: NOW)
    for obj in objects:
        made.take(Observed(obj.kind, Upserted(obj)))
    return made


@pytest.mark.parametrize("case", HEALTH, ids=lambda case: case.id)
def test_failed_hosts(case: Health) -> None:
    wl = case.wl.obj
    if case.tolerations:
        (pod_set,) = wl.spec.pod_sets
        template = {"spec": {**pod_set.template["spec"], "tolerations": list(case.tolerations)}}
        wl = case.wl.spec(pod_sets=(msgspec.structs.replace(pod_set, template=template),)).obj
    made = cluster_with(*case.nodes, wl, *case.pods, gates=case.gates)
    assert made.facts(wl).failed_hosts == case.want


def test_a_change_of_a_node_brings_up_the_gangs_on_it() -> None:
    made = cluster_with(node("a"), node("b"), gang("a").obj)
    made.dirty.workloads.clear()
    made.take(Observed("Node", Upserted(node("b", ready="False", version=2))))
    assert not made.dirty.workloads
    made.take(Observed("Node", Upserted(node("a", ready="False", version=2))))
    assert Key(NAMESPACE, "w") in made.dirty.workloads
    made.dirty.workloads.clear()
    made.take(Observed("Pod", Upserted(pod("p", "a"))))
    assert Key(NAMESPACE, "w") in made.dirty.workloads, "its pods decide whether the node is given up"
    made.dirty.workloads.clear()
    made.take(Observed("Node", Deleted(node("a"))))
    assert Key(NAMESPACE, "w") in made.dirty.workloads


# ------------------------------------------------------------------ what the status says


@dataclass(frozen=True)
class Case:
    id: str
    wl: WorkloadBuilder
    failed: tuple[str, ...] = ()
    want: tuple[str, ...] = ()
    evicted: bool = False


CASES = [
    Case("the first failed node is noted", gang("a", "b"), ("a",), ("a",)),
    Case("it stays noted", unhealthy(gang("a", "b"), "a"), ("a",), ("a",)),
    Case("a node that recovers is forgotten", unhealthy(gang("a", "b"), "a")),
    Case("a second node that fails meanwhile is one too many", unhealthy(gang("a", "b"), "a"), ("a", "b"), (), True),
    Case("two at once are one too many", gang("a", "b"), ("a", "b"), (), True),
    Case("another one after the first recovered is the first", unhealthy(gang("a", "b"), "a"), ("b",), ("b",)),
    Case("without quota there is nothing to replace", workload(), ("a",)),
    Case("who is evicted is not replaced", gang("a", "b").evicted(names.EVICTED_BY_PREEMPTION), ("a",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_what_the_status_says(case: Case) -> None:
    step = node_failures.react(case.wl.obj, with_failed(case.failed), NOW)
    assert tuple(each.name for each in step.workload.status.unhealthy_nodes) == case.want
    evicted = conditions.condition(step.workload, names.EVICTED)
    if case.evicted:
        assert evicted is not None
        assert evicted.reason == names.EVICTED_BY_NODE_FAILURES
        assert "a, b" in evicted.message
        assert [tell.reason for tell in step.tells] == ["EvictedDueToNodeFailures"]
    else:
        assert evicted is conditions.condition(case.wl.obj, names.EVICTED)
    again = node_failures.react(step.workload, with_failed(case.failed), NOW)
    assert again.workload is step.workload


def with_failed(failed: tuple[str, ...]) -> Any:
    return msgspec.structs.replace(facts(), failed_hosts=failed)


def test_nothing_is_written_twice() -> None:
    wl = unhealthy(gang("a", "b"), "a").obj
    assert reconcile(wl, with_failed(("a",)), NOW).effects == ()


# ------------------------------------------------------------------ decisions as writes


def decided(wl: kueue.Workload, *hosts: str) -> Place:
    held = observe_workload.admission(wl)
    assert held is not None
    topology = model.TopologyAssignment((HOST,), tuple(model.TopologyDomain((host,), 1) for host in hosts))
    sets = tuple(model.PodSetAssignment(p.name, p.count, p.flavors, p.usage, topology) for p in held.pod_sets)
    return Place(model.Uid(wl.metadata.uid), model.Admission(held.cluster_queue, sets, held.reserved_at, held.admitted))


def test_a_replacement_is_one_write_that_clears_the_failed_node() -> None:
    before = unhealthy(gang("a", "b"), "a").obj
    decision = decided(before, "b", "c")
    after = decisions.place(before, decision)
    (assignment,) = after.status.admission.pod_set_assignments
    assert [domain.values for domain in decode(assignment.topology_assignment)] == [("b",), ("c",)]
    assert after.status.unhealthy_nodes == ()
    assert assignment.delayed_topology_request is None
    assert assignment.resource_usage == before.status.admission.pod_set_assignments[0].resource_usage
    assert observe_workload.admission(after) == decision.admission


def test_a_delayed_topology_becomes_ready_and_the_workload_is_admitted() -> None:
    before = workload(count=1).reserved(count=1, delayed_topology_request=names.DELAYED_TOPOLOGY_PENDING)
    before = before.check("ac", names.CHECK_READY)
    assert observe_workload.is_to_be_placed(before.obj)
    checked = facts(queue=cluster_queue(checks=("ac",)))
    waiting = conditions.condition(_after(before.obj, checked), names.ADMITTED)
    assert (waiting.status, waiting.reason) == ("False", "PendingDelayedTopologyRequests")
    after = decisions.place(before.obj, decided(before.obj, "a"))
    (assignment,) = after.status.admission.pod_set_assignments
    assert assignment.delayed_topology_request == names.DELAYED_TOPOLOGY_READY
    assert not observe_workload.is_to_be_placed(after)
    assert conditions.is_admitted(_after(after, checked))


def _after(wl: kueue.Workload, around: Any) -> kueue.Workload:
    for effect in reconcile(wl, around, NOW).effects:
        if getattr(effect, "subresource", None) == "status":
            wl = applied(wl, effect)
    return wl


@pytest.mark.parametrize("ownership", [Ownership.JOB, Ownership.NONE])
def test_giving_up_evicts_for_node_failures(ownership: Ownership) -> None:
    before = unhealthy(gang("a", "b"), "a").obj
    decision = GiveUp(model.Uid("uid-w"), ("a",), "No replacement for node(s) a: full")
    after = decisions.give_up(before, decision, ownership, NOW)
    evicted = conditions.condition(after, names.EVICTED)
    assert (evicted.reason, evicted.message) == (names.EVICTED_BY_NODE_FAILURES, decision.message)
    assert after.status.unhealthy_nodes == ()
    assert conditions.holds_quota(after) is (ownership is Ownership.JOB)
    requeued = conditions.condition(after, names.REQUEUED)
    assert (requeued is None) if ownership is Ownership.JOB else (requeued.status == "True")
    assert decisions.give_up_event(before, decision).reason == "EvictedDueToNodeFailures"


def test_the_whole_way_from_a_lost_node_to_another_one() -> None:
    topology = kueue.Topology(
        metadata=_meta("topo"), spec=kueue.TopologySpec(levels=(kueue.TopologyLevel(node_label=HOST),))
    )
    flavor = kueue.ResourceFlavor(metadata=_meta("default"), spec=kueue.ResourceFlavorSpec(topology_name="topo"))
    nodes = [node(name) for name in ("a", "b", "c")]
    wl = gang("a", "b", cpu="5").obj
    made = cluster_with(topology, flavor, cluster_queue(nominal="20"), local_queue(), *nodes, wl)
    made.tell(wl)
    assert decide(made.state, NOW, Policy()) == ()
    made.take(Observed("Node", Deleted(nodes[0])))
    (patch,) = reconcile(wl, made.facts(wl), NOW).effects
    noted = applied(wl, patch)
    noted = msgspec.structs.replace(noted, metadata=msgspec.structs.replace(noted.metadata, resource_version="8"))
    made.take(Observed("Workload", Upserted(noted)))
    assert made.tell(noted)
    (decision,) = decide(made.state, NOW, Policy())
    assert isinstance(decision, Place)
    assert made.stands_by(decision)
    after = decisions.place(noted, decision)
    (assignment,) = after.status.admission.pod_set_assignments
    assert [domain.values for domain in decode(assignment.topology_assignment)] == [("b",), ("c",)]


def _meta(name: str) -> Any:
    return ObjectMeta(name=name, uid=f"uid-{name}", resource_version="1")
