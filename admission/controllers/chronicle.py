"""What happened to a Workload between two observations, told to the journal: steps, its present row, its use of quota.

Read off the conditions of the object before and after, so that what was decided elsewhere (by a person, another
controller, the process before this one) is told as well. Only hints are ever read back, past use and sizes that came.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from admission.api import meta, names
from admission.api.kueue import Workload
from admission.controllers import conditions, starts
from admission.controllers.activity import admission_gates
from queues.core import model
from queues.core.reasons import Reason
from queues.journal import entries
from queues.journal.entries import Decision, Kind, WorkloadState

Charges = Mapping[model.FlavorResource, int]
#: Of all who wait, so that none of them needs a mapping of its own.
NO_CHARGES: Charges = MappingProxyType({})
_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


class Seen(msgspec.Struct, frozen=True):
    """A Workload as told before: the object, what it was charged, and why it waited."""

    workload: Workload
    charges: Charges
    reason: Reason | None = None

    def is_same(self, other: Seen) -> bool:
        """Whether nothing happened in between; the very same object, since comparing all of it costs more."""
        return self.workload is other.workload and (self.charges, self.reason) == (other.charges, other.reason)


class Present(msgspec.Struct, frozen=True):
    """A live Workload as the core has it now. `cluster_queue` is where it waits or holds.

    `goes_first`: it stands before everybody else in the queue's order, since others are evicted for it. `asked` are the
    flavors that want to know which sizes come.
    """

    workload: Workload
    core: model.Workload
    cluster_queue: str
    charges: Charges
    reason: Reason | None = None
    goes_first: bool = False
    asked: Collection[model.FlavorName] = ()


def news(before: Seen | None, present: Present, now: float) -> Iterator[Decision]:
    """The steps since it was seen last."""
    if before is None:
        yield step(present.workload, Kind.CREATED, present.workload.metadata.created_at, present)
    else:
        yield from steps(before.workload, present, now)


def ended(before: Seen, after: Workload | None, now: float) -> Iterator[entries.Entry]:
    """It is finished (`after` says how) or was deleted. What began and ended between two looks is told as well."""
    workload = before.workload if after is None else after
    finished = conditions.condition(workload, names.FINISHED)
    held_in = before.workload.status.admission or workload.status.admission
    queue = "" if held_in is None else held_in.cluster_queue
    uid = workload.metadata.uid
    at = now
    yield from _turned(before.workload, workload, queue, now)
    if finished is not None and finished.status == meta.TRUE:
        at = conditions.since(workload, names.FINISHED) or now
        yield _decision(workload, Kind.FINISHED, at, finished.reason, finished.message, queue)
    else:
        yield _decision(workload, Kind.REMOVED, now, "", "", queue)
    if before.charges:
        yield entries.UsageEnded(at, uid)
    yield entries.WorkloadRemoved(uid)


_STEPS = (
    (names.EVICTED, meta.TRUE, Kind.EVICTED),
    (names.QUOTA_RESERVED, meta.TRUE, Kind.RESERVED),
    (names.ADMITTED, meta.TRUE, Kind.ADMITTED),
    (names.REQUEUED, meta.TRUE, Kind.REQUEUED),
)


def steps(before: Workload, present: Present, now: float) -> Iterator[Decision]:
    """Conditions that turned, in the order in which things happen."""
    workload = present.workload
    facts = starts.facts(present.core, present.asked)
    yield from _turned(before, workload, present.cluster_queue, now, facts)
    if conditions.holds_quota(before) and not conditions.holds_quota(workload):
        lost = conditions.condition(workload, names.QUOTA_RESERVED)
        reason, message = ("", "") if lost is None else (lost.reason, lost.message)
        held_in = before.status.admission.cluster_queue if before.status.admission is not None else ""
        yield _decision(workload, Kind.RELEASED, now, reason, message, held_in)


def _turned(
    before: Workload,
    workload: Workload,
    cluster_queue: str,
    now: float,
    facts: Mapping[str, Any] = _NO_FACTS,
) -> Iterator[Decision]:
    """`facts` are those of a reservation."""
    for type_, status, kind in _STEPS:
        new = conditions.condition(workload, type_)
        if new is None or new.status != status:
            continue
        old = conditions.condition(before, type_)
        if old is not None and (old.status, old.last_transition_time) == (status, new.last_transition_time):
            continue
        at = meta.epoch(new.last_transition_time) if new.last_transition_time else now
        happened = _kind(kind, new.reason)
        yield _decision(
            workload,
            happened,
            at,
            new.reason,
            new.message,
            cluster_queue,
            cause=_preemptor(new.message) if happened is Kind.PREEMPTED else "",
            facts=facts if happened is Kind.RESERVED else _NO_FACTS,
        )


def _kind(kind: Kind, reason: str) -> Kind:
    """Evictions have names of their own by why they happen."""
    if kind is not Kind.EVICTED:
        return kind
    if reason == names.EVICTED_BY_PREEMPTION:
        return Kind.PREEMPTED
    return Kind.DEACTIVATED if reason.startswith(names.EVICTED_BY_DEACTIVATION) else kind


#: The peer's own sentence, which is all that a Workload says of who made it go.
_PREEMPTOR = re.compile(r"workload \(UID: ([^,()\s]+),")


def _preemptor(message: str) -> str:
    """The uid of the workload that another was evicted for; empty where the condition does not name it."""
    found = _PREEMPTOR.search(message)
    return "" if found is None or found[1] == "UNKNOWN" else found[1]


def step(workload: Workload, kind: Kind, at: float, present: Present) -> Decision:
    return _decision(workload, kind, at, "", "", present.cluster_queue)


def held(present: Present, reason: Reason, now: float) -> Decision:
    """Why it goes on waiting, with the numbers."""
    workload = present.workload
    meta_ = workload.metadata
    return Decision(
        at=now,
        workload=meta_.uid,
        namespace=meta_.namespace,
        name=meta_.name,
        kind=Kind.HELD,
        cluster_queue=present.cluster_queue,
        local_queue=workload.spec.queue_name or "",
        code=reason.code.value,
        message=reason.message,
        facts={"shortages": entries.shortages(reason)} if reason.shortages else {},
        remedy=reason.remedy,
    )


def row(present: Present) -> entries.WorkloadRow:
    """The Workload's line in the read model."""
    workload, core = present.workload, present.core
    metadata = workload.metadata
    state, since = _state(workload, core)
    flavors: dict[str, str] = {
        resource: flavor
        for assigned in (core.admission.pod_sets if core.admission is not None else ())
        for resource, flavor in assigned.flavors.items()
    }
    reason = present.reason
    return entries.WorkloadRow(
        uid=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        local_queue=workload.spec.queue_name or "",
        cluster_queue=present.cluster_queue,
        state=state,
        created_at=core.created_at,
        queued_at=core.queued_at,
        state_since=since,
        priority=workload.spec.priority or 0,
        effective_priority=core.priority if core.priority != (workload.spec.priority or 0) else None,
        evicted=conditions.is_evicted(workload),
        owners=tuple(
            entries.Owner(owner.api_version, owner.kind, owner.name, owner.uid)
            for owner in sorted(metadata.owner_references, key=lambda owner: not owner.controller)
        ),
        pods=sum(pod_set.count for pod_set in core.pod_sets),
        requests=requests(core),
        flavors=flavors,
        sticky=present.goes_first,
        code=_kept_out(workload, core) if reason is None else reason.code.value,
        message=core.held or "" if reason is None else reason.message,
        remedy=None if reason is None else reason.remedy,
        shortages=() if reason is None else tuple(entries.shortages(reason)),
        pod_sets=tuple(_pod_sets(core)),
    )


def _pod_sets(core: model.Workload) -> Iterator[entries.PodSetRow]:
    assigned = {} if core.admission is None else {each.name: each for each in core.admission.pod_sets}
    for pod_set in core.pod_sets:
        given = assigned.get(pod_set.name)
        places = None if given is None else given.topology
        closeness, level = _closeness(pod_set.topology)
        yield entries.PodSetRow(
            name=pod_set.name,
            count=pod_set.count if given is None else given.count,
            requests={str(resource): amount for resource, amount in pod_set.node_requests.items()},
            closeness=closeness,
            level=level,
            flavors={} if given is None else {str(resource): flavor for resource, flavor in given.flavors.items()},
            levels=() if places is None else places.levels,
            domains=() if places is None else tuple((domain.values, domain.count) for domain in places.domains),
        )


def _closeness(request: model.TopologyRequest | None) -> tuple[str, str]:
    """How close together the pods have to be, and at which level; twice nothing where they may be anywhere."""
    if request is None:
        return "", ""
    if request.required is not None:
        return "required", request.required
    if request.preferred is not None:
        return "preferred", request.preferred
    if request.slice_required is not None:
        return "slices", request.slice_required
    return ("unconstrained", "") if request.unconstrained else ("", "")


def requests(core: model.Workload) -> dict[str, int]:
    """Totals over all pods."""
    totals: dict[str, int] = {}
    for pod_set in core.pod_sets:
        for resource, amount in pod_set.requests.items():
            totals[resource] = totals.get(resource, 0) + amount * pod_set.count
        for resource, amount in pod_set.shared.items():
            totals[resource] = totals.get(resource, 0) + amount
    return totals


def _kept_out(workload: Workload, core: model.Workload) -> str:
    """Kueue's word for what keeps a Workload out of the order; empty for one that is in it or holds quota."""
    if core.held is None or core.admission is not None:
        return ""
    if not conditions.is_active(workload) or conditions.is_true(workload, names.DEACTIVATION_TARGET):
        return names.REASON_DEACTIVATED
    if conditions.is_on_hold(workload):
        return names.REASON_ON_HOLD
    if admission_gates(workload):
        return names.REASON_ADMISSION_GATED
    if conditions.is_true(workload, names.WAITING_FOR_REPLACEMENT_PODS):
        return names.WAITING_FOR_REPLACEMENT_PODS
    return names.REASON_PENDING_EVALUATION


def _state(workload: Workload, core: model.Workload) -> tuple[WorkloadState, float]:
    if core.admission is not None:
        if core.admission.admitted:
            return WorkloadState.ADMITTED, conditions.since(workload, names.ADMITTED) or core.admission.reserved_at
        return WorkloadState.RESERVING, core.admission.reserved_at
    queued = conditions.since(workload, names.REQUEUED) or core.created_at
    return (WorkloadState.PENDING if core.held is None else WorkloadState.HELD), queued


def use(before: Seen | None, present: Present, now: float) -> Iterator[entries.UsageEntry]:
    """Where its use of quota began, changed or ended."""
    was = {} if before is None else before.charges
    if present.charges == was:
        return
    workload = present.workload
    if not present.charges:
        yield entries.UsageEnded(now, workload.metadata.uid)
        return
    at = now
    if not was and present.core.admission is not None:
        at = present.core.admission.reserved_at
    yield started(present, at)


def started(present: Present, at: float) -> entries.UsageStarted:
    metadata = present.workload.metadata
    return entries.UsageStarted(
        at=at,
        workload=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        cluster_queue=present.cluster_queue,
        local_queue=present.workload.spec.queue_name or "",
        amounts=tuple(
            entries.Amount(unit.flavor, unit.resource, amount) for unit, amount in sorted(present.charges.items())
        ),
    )


def _decision(
    workload: Workload,
    kind: Kind,
    at: float,
    code: str,
    message: str,
    cluster_queue: str = "",
    *,
    cause: str = "",
    facts: Mapping[str, Any] = _NO_FACTS,
) -> Decision:
    metadata = workload.metadata
    return Decision(
        at=at,
        workload=metadata.uid,
        namespace=metadata.namespace,
        name=metadata.name,
        kind=kind,
        cluster_queue=cluster_queue,
        local_queue=workload.spec.queue_name or "",
        code=code,
        message=message,
        cause=cause,
        facts=facts,
    )
