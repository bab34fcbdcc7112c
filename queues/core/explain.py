"""Turns what stood in a workload's way into the reason that it is given.

It works from the refusals of one assignment, by pod set and resource group. It never decides anything; it chooses which
of several facts is the one to name.
"""

from __future__ import annotations

from typing import Final

from queues.core.flavors import Assignment
from queues.core.reasons import Code, Reason
from queues.core.refusals import Refusal

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


def waits_for(assignment: Assignment, victims: int) -> Reason:
    """The reason of a workload that starts as soon as others have given back what they were asked for."""
    why = why_not(assignment)
    pending = f"Pending the preemption of {victims} workload(s)" if victims else "Pending preemptions for others"
    message = f"{why.message}. {pending}" if why.message else pending
    return Reason(Code.WAITING_FOR_PREEMPTED_WORKLOADS, message, why.shortages)


def _severity(refusal: Refusal) -> int:
    return _SEVERITY[refusal.code]
