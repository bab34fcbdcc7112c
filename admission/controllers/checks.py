"""Admission checks of a Workload: which it has to pass, whether it has, and what a failed one leads to.

Decided from the checks of the ClusterQueue, the assigned flavors and the states that the checks' controllers wrote.
It must never answer a check itself: it only asks (Pending) and reads.
"""

from __future__ import annotations

from collections.abc import Iterable

from admission.api import meta, names
from admission.api.kueue import Admission, AdmissionCheckState, ClusterQueue, RequeueState, Workload
from admission.controllers import conditions
from admission.controllers.eviction import asked_again, evicted
from admission.controllers.rules import Facts, Step, deactivation_wanted, event
from admission.jobs.effects import Severity


def required(queue: ClusterQueue, admission: Admission) -> tuple[str, ...]:
    """The checks of the queue that are for all flavors or for one of those assigned, by name."""
    strategy = queue.spec.admission_checks_strategy
    if strategy is None:
        return ()
    assigned = {flavor for pod_set in admission.pod_set_assignments for flavor in pod_set.flavors.values()}
    return tuple(
        sorted(
            rule.name
            for rule in strategy.admission_checks
            if not rule.on_flavors or not assigned.isdisjoint(rule.on_flavors)
        )
    )


def synchronised(
    states: Iterable[AdmissionCheckState], wanted: Iterable[str], now: float
) -> tuple[AdmissionCheckState, ...]:
    """The states of the wanted checks: those known as they are, new ones Pending, others dropped."""
    known = {state.name: state for state in states}
    return tuple(
        known.get(name)
        or AdmissionCheckState(name=name, state=names.CHECK_PENDING, last_transition_time=meta.rfc3339(now), message="")
        for name in sorted(wanted)
    )


def are_ready(workload: Workload, wanted: Iterable[str]) -> bool:
    ready = {state.name for state in workload.status.admission_checks if state.state == names.CHECK_READY}
    return ready.issuperset(wanted)


def admitted(workload: Workload, now: float) -> Workload:
    return conditions.with_condition(
        workload, names.ADMITTED, true=True, reason=names.ADMITTED, message="The workload is admitted", now=now
    )


def waits_for_topology(admission: Admission) -> bool:
    return any(
        each.delayed_topology_request == names.DELAYED_TOPOLOGY_PENDING and each.topology_assignment is None
        for each in admission.pod_set_assignments
    )


# ------------------------------------------------------------------ rules


def put_off(workload: Workload, facts: Facts, now: float) -> Step:
    """Checks that ask to be asked again only after some time push the requeue time forward, never back."""
    del facts, now
    times = [
        meta.epoch(state.last_transition_time) + state.requeue_after_seconds
        for state in workload.status.admission_checks
        if state.state == names.CHECK_RETRY and state.requeue_after_seconds and state.last_transition_time
    ]
    known = conditions.requeue_at(workload)
    if not times or (known is not None and max(times) <= known):
        return Step(workload)
    before = workload.status.requeue_state
    state = RequeueState(count=None if before is None else before.count, requeue_at=meta.rfc3339(max(times)))
    return Step(conditions.with_status(workload, requeue_state=state))


def synchronise(workload: Workload, facts: Facts, now: float) -> Step:
    """With quota reserved, the listed checks are those that the queue asks for with these flavors."""
    admission = workload.status.admission
    if not conditions.holds_quota(workload) or admission is None or facts.cluster_queue is None:
        return Step(workload)
    states = synchronised(workload.status.admission_checks, required(facts.cluster_queue, admission), now)
    if states == workload.status.admission_checks:
        return Step(workload)
    return Step(conditions.with_status(workload, admission_checks=states))


def admit(workload: Workload, facts: Facts, now: float) -> Step:
    """Admitted, once all checks are ready. Afterwards a check that is not ready any more changes nothing."""
    admission = workload.status.admission
    if not conditions.holds_quota(workload) or admission is None:
        return Step(workload)
    if conditions.is_admitted(workload) or conditions.is_evicted(workload) or facts.cluster_queue is None:
        return Step(workload)
    if not are_ready(workload, required(facts.cluster_queue, admission)):
        return Step(workload)
    if waits_for_topology(admission):
        return Step(
            conditions.with_condition(
                workload,
                names.ADMITTED,
                true=False,
                reason=names.REASON_PENDING_DELAYED_TOPOLOGY_REQUESTS,
                message="The checks are ready, the topology is not decided yet",
                now=now,
            )
        )
    reserved = conditions.since(workload, names.QUOTA_RESERVED)
    waited = 0 if reserved is None else max(0, int(now - reserved))
    message = f"Admitted by ClusterQueue {admission.cluster_queue}, wait time since reservation was {waited}s"
    return Step(admitted(workload, now), tells=(event(workload, names.EVENT_ADMITTED, message),))


def fail(workload: Workload, facts: Facts, now: float) -> Step:
    """Rejected ends the Workload, at whatever point it comes; Retry gives the quota back and asks again.

    Retry without quota, or while it is on its way out, has nothing to give back and is only set to Pending, or the
    Workload would wait for ever with a check that nobody answers.
    """
    del facts
    states = workload.status.admission_checks
    rejected = [state.name for state in states if state.state == names.CHECK_REJECTED]
    if rejected:
        if not conditions.is_active(workload) or conditions.is_true(workload, names.DEACTIVATION_TARGET):
            return Step(workload)
        message = f"Admission check(s) {', '.join(rejected)} were rejected"
        return Step(
            deactivation_wanted(workload, names.EVICTED_BY_ADMISSION_CHECK, message, now),
            tells=(event(workload, names.EVENT_CHECK_REJECTED, message, Severity.WARNING),),
        )
    retried = [state.name for state in states if state.state == names.CHECK_RETRY]
    if not retried:
        return Step(workload)
    if conditions.holds_quota(workload) and not conditions.is_evicted(workload):
        message = f"Admission check(s) {', '.join(retried)} ask for a retry"
        return Step(
            evicted(workload, names.EVICTED_BY_ADMISSION_CHECK, message, now),
            tells=(event(workload, names.EVENT_EVICTED_PREFIX + names.EVICTED_BY_ADMISSION_CHECK, message),),
        )
    return Step(conditions.with_status(workload, admission_checks=tuple(asked_again(state, now) for state in states)))
