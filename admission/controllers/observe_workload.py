"""From a Workload object to the core's value: what it asks for, what it holds, and why it is kept out of the queue.

A pure function of the Workload, the pod sets read from its templates and the settings. It must never turn a Workload
that the API server has let in into an error: what cannot be understood waits, with the reason.
"""

from __future__ import annotations

import math
from typing import Final

from admission.alike import Alike
from admission.api import meta, names, topology_assignment
from admission.api.kueue import PodSetAssignment, Workload
from admission.api.quantities import QuantityError, amount
from admission.controllers import checks, conditions
from admission.controllers.activity import admission_gates
from admission.settings import Settings
from admission.settings.configuration import RequeuingTimestamp
from queues.core import model

#: The one key of a LocalQueue for all that are in it.
_QUEUE: Final = Alike[model.ObjectKey]().one


def workload(
    obj: Workload,
    pod_sets: tuple[model.PodSet, ...],
    settings: Settings,
    *,
    misconfigured: str | None = None,
    kept_back: str | None = None,
) -> model.Workload:
    """`kept_back` holds it for a reason of the controller's own (a write that is refused again and again)."""
    metadata, spec = obj.metadata, obj.spec
    return model.Workload(
        uid=model.Uid(metadata.uid),
        key=model.ObjectKey(metadata.namespace, metadata.name),
        queue=_QUEUE(model.ObjectKey(metadata.namespace, spec.queue_name or "")),
        pod_sets=pod_sets,
        priority=(spec.priority or 0) + _boost(obj, settings),
        created_at=metadata.created_at,
        queued_at=queued_at(obj, settings),
        eligible_at=eligible_at(obj),
        held=held(obj) or kept_back,
        misconfigured=misconfigured,
        preemption_gates=closed_preemption_gates(obj),
        admission=admission(obj),
        evicted=conditions.is_evicted(obj) and conditions.holds_quota(obj),
        failed_hosts=tuple(sorted(node.name for node in obj.status.unhealthy_nodes)),
        is_to_be_placed=is_to_be_placed(obj),
        generation=metadata.generation,
        job_uid=job_uid(obj),
    )


def held(obj: Workload) -> str | None:
    """Why it does not wait for quota at all; None for what does, and for what holds quota."""
    if conditions.holds_quota(obj):
        return None
    if obj.metadata.is_deleting:
        return "The workload is being deleted"
    if not conditions.is_active(obj):
        return "The workload is deactivated"
    if conditions.is_true(obj, names.DEACTIVATION_TARGET):
        return "The workload is about to be deactivated"
    if conditions.is_on_hold(obj):
        return "The workload is on hold"
    return _kept_by_others(obj)


def _kept_by_others(obj: Workload) -> str | None:
    if conditions.is_true(obj, names.WAITING_FOR_REPLACEMENT_PODS):
        return "The workload waits for replacement pods"
    if gates := admission_gates(obj):
        return f"The workload is gated by {', '.join(gates)}"
    failed = sorted(
        state.name for state in obj.status.admission_checks if state.state in {names.CHECK_RETRY, names.CHECK_REJECTED}
    )
    return f"The workload has failed admission checks: {', '.join(failed)}" if failed else None


def is_to_be_placed(obj: Workload) -> bool:
    """Whether its checks have all said yes, so that a topology that waits for them can be decided."""
    states = obj.status.admission_checks
    return (
        obj.status.admission is not None
        and conditions.holds_quota(obj)
        and checks.waits_for_topology(obj.status.admission)
        and bool(states)
        and all(state.state == names.CHECK_READY for state in states)
    )


def closed_preemption_gates(obj: Workload) -> tuple[str, ...]:
    """A gate is closed until its owner has said that it is open."""
    if not obj.spec.preemption_gates:
        return ()
    is_open = {state.name for state in obj.status.preemption_gates if state.position == names.GATE_OPEN}
    return tuple(sorted(gate.name for gate in obj.spec.preemption_gates if gate.name not in is_open))


def eligible_at(obj: Workload) -> float:
    """When its back-off ends. What was evicted and not put back has no such time: an event has to come first."""
    if conditions.is_false(obj, names.REQUEUED):
        return math.inf
    return conditions.requeue_at(obj) or 0.0


def queued_at(obj: Workload, settings: Settings) -> float:
    """Its place among equals: from its creation, after some evictions from the eviction."""
    going = conditions.condition(obj, names.EVICTED)
    evicted_at = conditions.since(obj, names.EVICTED)
    if going is None or going.status != meta.TRUE or evicted_at is None:
        return obj.metadata.created_at
    waiting = settings.wait_for_pods_ready
    by_eviction = waiting is None or waiting.requeuing_strategy.timestamp is RequeuingTimestamp.EVICTION
    if going.reason == names.EVICTED_BY_ADMISSION_CHECK:
        return evicted_at
    if going.reason == names.EVICTED_BY_PODS_READY_TIMEOUT and by_eviction:
        return evicted_at
    if not settings.gate("PrioritySortingWithinCohort"):
        preempted = conditions.condition(obj, names.PREEMPTED)
        if (
            preempted is not None
            and preempted.status == meta.TRUE
            and preempted.reason == names.PREEMPTED_IN_COHORT_RECLAIM_WHILE_BORROWING
        ):
            return evicted_at + 0.001
    return obj.metadata.created_at


def admission(obj: Workload) -> model.Admission | None:
    """The quota that it holds. Finished workloads hold none, and never reach this."""
    held_now = obj.status.admission
    if held_now is None or not conditions.is_true(obj, names.QUOTA_RESERVED):
        return None
    return model.Admission(
        cluster_queue=model.ClusterQueueName(held_now.cluster_queue),
        pod_sets=tuple(_assignment(each, obj) for each in held_now.pod_set_assignments),
        reserved_at=conditions.since(obj, names.QUOTA_RESERVED) or 0.0,
        admitted=conditions.is_admitted(obj),
    )


def _assignment(each: PodSetAssignment, obj: Workload) -> model.PodSetAssignment:
    counts = {pod_set.name: pod_set.count for pod_set in obj.spec.pod_sets}
    placement = each.topology_assignment
    return model.PodSetAssignment(
        name=each.name,
        count=counts.get(each.name, 0) if each.count is None else each.count,
        flavors={model.ResourceName(name): model.FlavorName(flavor) for name, flavor in each.flavors.items()},
        is_delayed=placement is None and each.delayed_topology_request == names.DELAYED_TOPOLOGY_PENDING,
        usage={model.ResourceName(name): _charged(name, text) for name, text in each.resource_usage.items()},
        topology=None
        if placement is None
        else model.TopologyAssignment(
            levels=placement.levels,
            domains=tuple(
                model.TopologyDomain(domain.values, domain.count) for domain in topology_assignment.decode(placement)
            ),
        ),
    )


def _charged(resource: str, text: str | float) -> int:
    try:
        return amount(resource, text)
    except QuantityError:
        return 0


def job_uid(obj: Workload) -> str:
    controller = obj.metadata.controller
    label = obj.metadata.labels.get(names.JOB_UID_LABEL, "")
    return label or ("" if controller is None else controller.uid)


def _boost(obj: Workload, settings: Settings) -> int:
    text = obj.metadata.annotations.get(names.PRIORITY_BOOST, "")
    if not text or not settings.gate("PriorityBoost"):
        return 0
    try:
        return int(text)
    except ValueError:
        return 0
