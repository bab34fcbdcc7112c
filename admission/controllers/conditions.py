"""Questions about the conditions of a Workload, and Workloads with one condition changed.

Every function takes an observed Workload and returns a new one, or the very same where nothing changes, so that a
chain of rules ends in one comparison and at most one write. It must never touch more of the status than it names.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.api import meta, names
from admission.api.kueue import Workload
from admission.api.meta import FALSE, TRUE, Condition
from admission.jobs import statuses


def condition(workload: Workload, type_: str) -> Condition | None:
    return meta.find_condition(workload.status.conditions, type_)


def is_true(workload: Workload, type_: str) -> bool:
    """Asked a hundred times in the life of a Workload: `meta.is_true`, without the calls in between."""
    for each in workload.status.conditions:
        if each.type == type_:
            return each.status == TRUE
    return False


def is_false(workload: Workload, type_: str) -> bool:
    return meta.is_false(workload.status.conditions, type_)


def is_active(workload: Workload) -> bool:
    return workload.spec.active is not False


def is_finished(workload: Workload) -> bool:
    return is_true(workload, names.FINISHED)


def holds_quota(workload: Workload) -> bool:
    return is_true(workload, names.QUOTA_RESERVED) and workload.status.admission is not None


def is_admitted(workload: Workload) -> bool:
    return is_true(workload, names.ADMITTED)


def is_evicted(workload: Workload) -> bool:
    return is_true(workload, names.EVICTED)


def is_on_hold(workload: Workload) -> bool:
    found = condition(workload, names.QUOTA_RESERVED)
    return found is not None and found.status == FALSE and found.reason == names.REASON_ON_HOLD


def since(workload: Workload, type_: str) -> float | None:
    """When the condition last changed its status; None where it was never set."""
    found = condition(workload, type_)
    return meta.epoch(found.last_transition_time) if found is not None and found.last_transition_time else None


def requeue_at(workload: Workload) -> float | None:
    state = workload.status.requeue_state
    return meta.epoch(state.requeue_at) if state is not None and state.requeue_at else None


def with_status(workload: Workload, **fields: Any) -> Workload:
    """The Workload with these fields of its status replaced."""
    status = msgspec.structs.replace(workload.status, **fields)
    return workload if status == workload.status else msgspec.structs.replace(workload, status=status)


def with_condition(workload: Workload, type_: str, *, true: bool, reason: str, message: str, now: float) -> Workload:
    """The Workload with this condition; its transition time moves only when its status does."""
    new = Condition(type=type_, status=TRUE if true else FALSE, reason=reason, message=message)
    return statuses.with_condition(workload, new, now)


def without_condition(workload: Workload, type_: str) -> Workload:
    left = meta.without_condition(workload.status.conditions, type_)
    return workload if left is workload.status.conditions else with_status(workload, conditions=left)


def no_longer(workload: Workload, type_: str, now: float) -> Workload:
    """A True condition turned False because quota was reserved anew, keeping what it said in its message."""
    found = condition(workload, type_)
    if found is None or found.status != TRUE:
        return workload
    return with_condition(
        workload,
        type_,
        true=False,
        reason=names.QUOTA_RESERVED,
        message=f"Previously: {found.message}",
        now=now,
    )
