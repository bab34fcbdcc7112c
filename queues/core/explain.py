"""Turns what stood in a workload's way into the reason that it is given.

It works from the refusals of one assignment, by pod set and resource group. It never decides anything; it chooses which
of several facts is the one to name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from queues.core.flavors import Assignment
from queues.core.outlook import Drain, Outlook
from queues.core.quantities import text
from queues.core.reasons import Code, Near, Reason
from queues.core.records import WorkloadRecord
from queues.core.refusals import Refusal

#: How many of the workloads that have to end are named.
_NAMED: Final = 5

#: From what passes by itself to what only an edit mends.
_SEVERITY: Final = {
    Code.TOPOLOGY_PLACEMENT_FAILED: 0,
    Code.WAITING_FOR_QUOTA: 1,
    Code.EXCEEDS_MAX_QUOTA: 2,
    Code.NO_MATCHING_FLAVOR: 3,
}


def why_not(assignment: Assignment, extra: Refusal | None = None) -> Reason:
    """The reason of an assignment that does not start.

    Flavors are alternatives, so within a resource group the mildest refusal counts; pod sets and resource groups are
    all needed, so among these the most severe does.
    """
    worst: Refusal | None = None
    sentences: list[str] = []
    by_pod_set: dict[str, list[Refusal]] = {}
    for name, groups in assignment.refusals:
        for refusals in groups:
            by_pod_set.setdefault(name, []).extend(refusals)
            mildest = min(refusals, key=_severity, default=None)
            if mildest is not None and (worst is None or _severity(mildest) > _severity(worst)):
                worst = mildest
    for name, refusals in by_pod_set.items():
        if refusals:
            said = ", ".join(sorted({refusal.message for refusal in refusals}))
            sentences.append(f"couldn't assign flavors to pod set {name}: {said}")
    if extra is not None:
        sentences.append(extra.message)
        if worst is None or _severity(extra) > _severity(worst):
            worst = extra
    every = [refusal for refusals in by_pod_set.values() for refusal in refusals]
    shortages = tuple(dict.fromkeys(one.shortage for one in every if one.shortage is not None))
    code = Code.WAITING_FOR_QUOTA if worst is None else worst.code
    return Reason(code, "; ".join(sentences), shortages, None if worst is None else worst.remedy)


def with_outlook(reason: Reason, record: WorkloadRecord, outlook: Outlook) -> Reason:
    """The reason, with the domains that come closest and what has to end so that one of them takes the pods."""
    if outlook.closest:
        message = f"{reason.message}. {_nearest(outlook.closest, when_empty=outlook.is_too_small)}"
        reason = replace(reason, message=message, closest=outlook.closest)
    return reason if outlook.drain is None else _with_drain(reason, record, outlook.drain)


def _with_drain(reason: Reason, record: WorkloadRecord, drain: Drain) -> Reason:
    return replace(reason, remedy=f"{_place(drain)} takes the pods once {_named(record, drain.ending)} ended")


def with_reservation(reason: Reason, record: WorkloadRecord, drain: Drain, lasting: float) -> Reason:
    """The reason, with the domain that is kept for the workload from now on."""
    kept = f"{reason.message}. {_place(drain)} is kept for it from now on, for at most {lasting:g} s"
    return _with_drain(replace(reason, message=kept), record, drain)


def _place(drain: Drain) -> str:
    return f"{drain.level} {'/'.join(drain.path)}"


def _named(record: WorkloadRecord, ending: tuple[WorkloadRecord, ...]) -> str:
    """Of other namespaces only uids are said: names may be nobody's business there."""
    names = [
        one.workload.key.name if one.workload.key.namespace == record.workload.key.namespace else f"UID {one.uid}"
        for one in ending
    ]
    said = ", ".join(names[:_NAMED])
    more = len(names) - _NAMED
    what = "workload" if len(names) == 1 else f"{len(names)} workloads"
    verb = "has" if len(names) == 1 else "have"
    return f"{what} ({said}{f' and {more} more' if more > 0 else ''}) {verb}"


def _nearest(closest: tuple[Near, ...], *, when_empty: bool) -> str:
    """Where the pods nearly fit, and what is missing there."""
    named = [
        f"{'/'.join(near.path)} takes {near.fits} of {near.wanted} pod(s), missing "
        + ", ".join(f"{text(name, amount)} {name}" for name, amount in near.missing if amount)
        for near in closest
    ]
    return f"Closest of {closest[0].level}{' when empty' if when_empty else ''}: {'; '.join(named)}"


def waits_for(assignment: Assignment, victims: int) -> Reason:
    """The reason of a workload that starts as soon as others have given back what they were asked for."""
    why = why_not(assignment)
    pending = f"Pending the preemption of {victims} workload(s)" if victims else "Pending preemptions for others"
    message = f"{why.message}. {pending}" if why.message else pending
    return Reason(Code.WAITING_FOR_PREEMPTED_WORKLOADS, message, why.shortages)


def _severity(refusal: Refusal) -> int:
    return _SEVERITY[refusal.code]
