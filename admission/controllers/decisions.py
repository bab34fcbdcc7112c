"""From the core's decisions to writes: what admitting, evicting and holding mean for the Workload's status.

Pure functions of the observed Workload and a decision; each gives the whole new Workload, whose difference is one
patch. They must never decide anew: what does not fit the Workload any more is None, and goes back to the core.
"""

from __future__ import annotations

import msgspec

from admission.api import meta, names, topology_assignment
from admission.api.kueue import Admission, PodSetAssignment, PodSetRequest, TopologyAssignment, Workload
from admission.api.quantities import format_amount
from admission.controllers import checks, conditions
from admission.controllers.eviction import evicted
from admission.controllers.rules import Ownership, event
from admission.jobs.effects import Severity, Tell
from admission.jobs.eviction import released
from queues.core import model
from queues.core.demand import count_of
from queues.core.plan import Admit, Evict, GiveUp, Place
from queues.core.reasons import Reason


def is_current(workload: Workload) -> bool:
    """Whether the core may still give quota to this object."""
    return not (
        conditions.is_finished(workload)
        or conditions.holds_quota(workload)
        or not conditions.is_active(workload)
        or workload.metadata.is_deleting
    )


def admit(workload: Workload, decision: Admit, now: float, *, reports_readiness: bool = False) -> Workload:
    """Quota reserved, and admitted in the same write when no check stands in between.

    `reports_readiness`: somebody will say when its pods are ready. That they are not yet is said here, where it costs
    no write of its own.
    """
    admission = decision.admission
    changed = conditions.with_condition(
        workload,
        names.QUOTA_RESERVED,
        true=True,
        reason=names.QUOTA_RESERVED,
        message=f"Quota reserved in ClusterQueue {admission.cluster_queue}",
        now=now,
    )
    for ended in (names.EVICTED, names.PREEMPTED, names.BLOCKED_ON_PREEMPTION_GATES):
        changed = conditions.no_longer(changed, ended, now)
    changed = conditions.with_status(
        changed,
        admission=Admission(
            cluster_queue=admission.cluster_queue,
            pod_set_assignments=tuple(_assignment(each) for each in admission.pod_sets),
        ),
        resource_requests=(),
        admission_checks=checks.synchronised(workload.status.admission_checks, decision.checks, now),
    )
    if reports_readiness:
        changed = _not_ready_yet(changed, now)
    waits = any(each.is_delayed for each in admission.pod_sets)
    if checks.are_ready(changed, decision.checks) and not waits:
        return checks.admitted(changed, now)
    return conditions.with_condition(
        changed,
        names.ADMITTED,
        true=False,
        reason=names.REASON_UNSATISFIED_ADMISSION_CHECKS,
        message="The workload has not passed all admission checks",
        now=now,
    )


def _not_ready_yet(workload: Workload, now: float) -> Workload:
    return conditions.with_condition(
        workload,
        names.PODS_READY,
        true=False,
        reason=names.REASON_WAIT_FOR_START,
        message="Not all pods are ready or succeeded",
        now=now,
    )


def _assignment(each: model.PodSetAssignment) -> PodSetAssignment:
    return PodSetAssignment(
        name=each.name,
        flavors=dict(sorted(each.flavors.items())),
        resource_usage={resource: format_amount(resource, counted) for resource, counted in sorted(each.usage.items())},
        count=each.count,
        topology_assignment=_encoded(each.topology),
        delayed_topology_request=names.DELAYED_TOPOLOGY_PENDING if each.is_delayed else None,
    )


def _encoded(topology: model.TopologyAssignment | None) -> TopologyAssignment | None:
    if topology is None:
        return None
    domains = (topology_assignment.Domain(domain.values, domain.count) for domain in topology.domains)
    return topology_assignment.encode(topology.levels, domains)


def place(workload: Workload, decision: Place) -> Workload:
    """The same quota with other places, or the first ones; the failed node is dealt with."""
    admission = workload.status.admission
    places = {each.name: each.topology for each in decision.admission.pod_sets}
    assert admission is not None  # noqa: S101
    assignments = []
    for each in admission.pod_set_assignments:
        changed = each
        topology = _encoded(places.get(each.name))
        if topology is not None and topology != each.topology_assignment:
            was_delayed = each.delayed_topology_request is not None
            changed = msgspec.structs.replace(
                each,
                topology_assignment=topology,
                delayed_topology_request=names.DELAYED_TOPOLOGY_READY if was_delayed else None,
            )
        assignments.append(changed)
    return conditions.with_status(
        workload,
        admission=msgspec.structs.replace(admission, pod_set_assignments=tuple(assignments)),
        unhealthy_nodes=(),
    )


def give_up(workload: Workload, decision: GiveUp, ownership: Ownership, now: float) -> Workload:
    """Evicted since a failed node cannot be replaced."""
    if conditions.is_evicted(workload):
        return workload
    changed = evicted(workload, names.EVICTED_BY_NODE_FAILURES, decision.message, now)
    return released(changed, now) if ownership is Ownership.NONE else changed


def give_up_event(workload: Workload, decision: GiveUp) -> Tell:
    return event(workload, names.EVENT_EVICTED_PREFIX + names.EVICTED_BY_NODE_FAILURES, decision.message)


def preempt(workload: Workload, decision: Evict, ownership: Ownership, now: float) -> Workload:
    """Marked as preempted; without a job there are no pods to wait for, and the quota goes in the same write."""
    if conditions.is_evicted(workload):
        return workload
    changed = evicted(workload, names.EVICTED_BY_PREEMPTION, decision.message, now)
    changed = conditions.with_condition(
        changed, names.PREEMPTED, true=True, reason=decision.reason.value, message=decision.message, now=now
    )
    return released(changed, now) if ownership is Ownership.NONE else changed


def hold(workload: Workload, reason: Reason, now: float, value: model.Workload | None = None) -> Workload:
    """The reason why it waits, in the condition that people look at, and what it would take, as the core knows it."""
    if conditions.is_true(workload, names.QUOTA_RESERVED):
        return workload
    changed = conditions.with_condition(
        workload, names.QUOTA_RESERVED, true=False, reason=reason.code.value, message=_words(reason), now=now
    )
    if reason.is_preemption_gated:
        changed = conditions.with_condition(
            changed,
            names.BLOCKED_ON_PREEMPTION_GATES,
            true=True,
            reason=names.REASON_PREEMPTION_GATED,
            message=reason.message,
            now=now,
        )
    if changed is workload or value is None:
        return changed
    return conditions.with_status(changed, resource_requests=tuple(_request(each) for each in value.pod_sets))


def _request(pod_set: model.PodSet) -> PodSetRequest:
    """What the pods of the set ask of quota together, and what they share."""
    taken = {
        resource: pod_set.requests.get(resource, 0) * count_of(pod_set) + pod_set.shared.get(resource, 0)
        for resource in sorted({*pod_set.requests, *pod_set.shared})
    }
    return PodSetRequest(
        name=pod_set.name, resources={resource: format_amount(resource, counted) for resource, counted in taken.items()}
    )


def _words(reason: Reason) -> str:
    return f"{reason.message}. {reason.remedy}" if reason.remedy else reason.message


# ------------------------------------------------------------------ what is told


def waited(workload: Workload, now: float) -> int:
    """Whole seconds in the queue: since it was requeued, if it ever was, else since it was created."""
    return max(0, int(now - (conditions.since(workload, names.REQUEUED) or workload.metadata.created_at)))


def admission_events(workload: Workload, after: Workload, now: float) -> tuple[Tell, ...]:
    admission = after.status.admission
    if admission is None:
        return ()
    queue, seconds = admission.cluster_queue, waited(workload, now)
    reserved = event(
        workload,
        names.EVENT_QUOTA_RESERVED,
        f"Quota reserved in ClusterQueue {queue}, wait time since queued was {seconds}s",
    )
    if not conditions.is_admitted(after):
        return (reserved,)
    return (
        reserved,
        event(workload, names.EVENT_ADMITTED, f"Admitted by ClusterQueue {queue}, wait time since reservation was 0s"),
    )


def preemption_events(victim: Workload, preemptor: Workload | None, decision: Evict) -> tuple[Tell, ...]:
    told = [event(victim, names.EVENT_PREEMPTED, decision.message)]
    if preemptor is not None:
        name = f"{victim.metadata.namespace}/{victim.metadata.name}"
        told.append(
            event(preemptor, names.EVENT_PREEMPTED_WORKLOAD, f"Preempted the workload {name} ({decision.reason.value})")
        )
    return tuple(told)


def hold_event(workload: Workload, reason: Reason) -> Tell:
    return event(workload, reason.code.value, _words(reason), Severity.WARNING)


def says_the_same(workload: Workload, reason: Reason) -> bool:
    """Whether the condition has this reason already, whatever its words."""
    if reason.is_preemption_gated and not conditions.is_true(workload, names.BLOCKED_ON_PREEMPTION_GATES):
        return False
    found = conditions.condition(workload, names.QUOTA_RESERVED)
    return found is not None and found.status == meta.FALSE and found.reason == reason.code.value
