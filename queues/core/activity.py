"""Decides whether a queue takes part in admission, and what keeps a workload out of its queue's order.

It works from the specs of queues, the flavors, checks and topologies that exist, and namespaces. It never looks at
quota: what does not fit is not barred, it waits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from queues.core.model import (
    AdmissionCheck,
    CheckName,
    ClusterQueue,
    FlavorName,
    ResourceFlavor,
    StopPolicy,
    Topology,
    TopologyName,
    Workload,
)
from queues.core.reasons import Code, Reason
from queues.core.records import Activity, LocalQueueRecord, QueueRecord, labels_of
from queues.core.selectors import selects

TERMINATING = "Terminating"
STOPPED = "Stopped"
READY = "Ready"

_NOT_STOPPED: Final = StopPolicy.NONE


@dataclass(slots=True)
class World:
    """What queues refer to, as it exists now. `state` keeps it up."""

    flavors: dict[FlavorName, ResourceFlavor] = field(default_factory=dict)
    checks: dict[CheckName, AdmissionCheck] = field(default_factory=dict)
    topologies: dict[TopologyName, Topology] = field(default_factory=dict)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)


def flavors_named(queue: ClusterQueue | None) -> tuple[FlavorName, ...]:
    """Every flavor of the queue's groups once, in their order; without a queue there is none."""
    if queue is None:
        return ()
    return tuple(dict.fromkeys(flavor.flavor for group in queue.groups for flavor in group.flavors))


def activity_of(queue: ClusterQueue, world: World, *, in_cycle: bool) -> Activity:
    """The first reason that applies and what all of them say. Cost: the queue's flavors and checks."""
    if queue.terminating:
        return _inactive([(TERMINATING, "it is being deleted")])
    found: list[tuple[str, str]] = []
    if queue.stop_policy is not StopPolicy.NONE:
        found.append((STOPPED, "it is stopped"))
    flavors = flavors_named(queue)
    checks = dict.fromkeys(rule.name for rule in queue.checks)
    for reason, what, names in (
        ("FlavorNotFound", "missing ResourceFlavors", [name for name in flavors if name not in world.flavors]),
        ("AdmissionCheckNotFound", "missing AdmissionChecks", [name for name in checks if name not in world.checks]),
        (
            "AdmissionCheckInactive",
            "inactive AdmissionChecks",
            [name for name in checks if name in world.checks and not world.checks[name].active],
        ),
    ):
        if names:
            found.append((reason, f"references {what}: {', '.join(sorted(names))}"))
    topologies = {
        topology
        for name in flavors
        if name in world.flavors and (topology := world.flavors[name].topology) is not None
        if topology not in world.topologies
    }
    if topologies:
        found.append(("TopologyNotFound", f"its flavors reference missing Topologies: {', '.join(sorted(topologies))}"))
    if in_cycle:
        found.append(("CohortCycleDetected", "its cohort is its own ancestor, directly or through others"))
    return _inactive(found) if found else Activity(active=True, reason=READY, message="Can admit new workloads")


def _inactive(found: list[tuple[str, str]]) -> Activity:
    said = ", ".join(message for _, message in found)
    return Activity(active=False, reason=found[0][0], message=f"Can't admit new workloads: {said}.")


def local_activity_of(home: LocalQueueRecord, queue: QueueRecord | None) -> Activity:
    """The condition `Active` of a LocalQueue."""
    if home.spec is not None and home.spec.stop_policy is not StopPolicy.NONE:
        return Activity(active=False, reason=STOPPED, message="LocalQueue is stopped")
    if queue is None or queue.spec is None:
        return Activity(
            active=False, reason="ClusterQueueDoesNotExist", message="Can't submit new workloads to clusterQueue"
        )
    if not queue.is_active:
        return Activity(
            active=False, reason="ClusterQueueIsInactive", message="Can't submit new workloads to clusterQueue"
        )
    return Activity(active=True, reason=READY, message="Can submit new workloads to localQueue")


def why_barred(
    workload: Workload, home: LocalQueueRecord, queue: QueueRecord | None, world: World
) -> tuple[Reason, bool] | None:
    """Why the workload cannot stand in the order, and whether its queue counts it all the same; None when it can."""
    if home.spec is None:
        remedy = f"create LocalQueue {home.key.name} in namespace {home.key.namespace}"
        return Reason(Code.MISCONFIGURED, f"LocalQueue {home.key.name} doesn't exist", remedy=remedy), False
    if home.spec.stop_policy is not _NOT_STOPPED:
        return Reason(Code.SUSPENDED, f"LocalQueue {home.key.name} is stopped"), False
    if queue is None or queue.spec is None:
        name = home.spec.cluster_queue
        remedy = f"create ClusterQueue {name}"
        return Reason(Code.MISCONFIGURED, f"ClusterQueue {name} doesn't exist", remedy=remedy), False
    if not selects(queue.spec.namespace_selector, labels_of(world.namespaces, workload.key.namespace)):
        return (
            Reason(
                Code.MISCONFIGURED,
                "Workload namespace doesn't match ClusterQueue selector",
                remedy=f"label namespace {workload.key.namespace} as ClusterQueue {queue.name} selects it",
            ),
            True,
        )
    if workload.misconfigured is not None:
        return Reason(Code.MISCONFIGURED, workload.misconfigured), True
    return None


def inactive_reason(queue: QueueRecord) -> Reason:
    """What every workload of an inactive ClusterQueue is told."""
    return Reason(Code.SUSPENDED, f"ClusterQueue {queue.name} is inactive ({queue.activity.reason})")
