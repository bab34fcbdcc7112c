"""A Workload's status as rules see and change it, and the one patch that carries the changes.

Rules take a Workload and give one with a changed status, or the very same; `status_patch` compares first and last. It
must never write what did not change, and always writes against the version that the rules looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from admission.api import meta, names
from admission.api.decoding import plain
from admission.api.kueue import Workload
from admission.api.meta import FALSE, Condition
from admission.jobs.effects import Effect, Patch, PatchKind, Ref

_LONGEST_MESSAGE = 32_000


# ------------------------------------------------------------------ questions


def holds_quota(workload: Workload) -> bool:
    return meta.is_true(workload.status.conditions, names.QUOTA_RESERVED)


def is_admitted(workload: Workload) -> bool:
    """Whether its pods may run: admitted, with the admission that says where, and not on the way out again."""
    return (
        meta.is_true(workload.status.conditions, names.ADMITTED)
        and workload.status.admission is not None
        and not is_evicted(workload)
    )


def is_evicted(workload: Workload) -> bool:
    return meta.is_true(workload.status.conditions, names.EVICTED)


def is_finished(workload: Workload) -> bool:
    return meta.is_true(workload.status.conditions, names.FINISHED)


def is_on_hold(workload: Workload) -> bool:
    """Whether it does not wait for quota, as nothing of its job could run."""
    found = condition(workload, names.QUOTA_RESERVED)
    return found is not None and found.status == FALSE and found.reason == names.REASON_ON_HOLD


def condition(workload: Workload, type_: str) -> Condition | None:
    return meta.find_condition(workload.status.conditions, type_)


# ------------------------------------------------------------------ changes


def with_status(workload: Workload, **fields: Any) -> Workload:
    return msgspec.structs.replace(workload, status=msgspec.structs.replace(workload.status, **fields))


def with_condition(workload: Workload, new: Condition, now: float) -> Workload:
    """The Workload with this condition; the transition time moves with the status only."""
    old = condition(workload, new.type)
    message = new.message[:_LONGEST_MESSAGE]
    if old is not None and (old.status, old.reason, old.message) == (new.status, new.reason, message):
        return workload
    stamped = msgspec.structs.replace(
        new,
        message=message,
        last_transition_time=meta.rfc3339(now),
        observed_generation=workload.metadata.generation or None,
    )
    return with_status(workload, conditions=meta.set_condition(workload.status.conditions, stamped))


def taken_off_hold(workload: Workload, message: str, now: float) -> Workload:
    """What was on hold waits for quota again."""
    if not is_on_hold(workload):
        return workload
    again = Condition(names.QUOTA_RESERVED, FALSE, names.REASON_PENDING_EVALUATION, message)
    return with_condition(workload, again, now)


# ------------------------------------------------------------------ writes


def workload_ref(workload: Workload) -> Ref:
    return Ref("Workload", workload.metadata.namespace, workload.metadata.name, workload.metadata.uid)


def status_patch(before: Workload, after: Workload) -> tuple[Effect, ...]:
    """The write that leads from one status to the other; none where they are the same."""
    if before.status is after.status:
        return ()
    body = merge_patch(plain(before.status), plain(after.status))
    if not body:
        return ()
    version = before.metadata.resource_version
    return (Patch(workload_ref(before), {"status": body}, subresource="status", resource_version=version),)


def without_finalizer(ref: Ref, finalizers: tuple[str, ...], finalizer: str) -> tuple[Effect, ...]:
    """Takes one finalizer away and touches no other, whoever else changed the object meanwhile."""
    if finalizer not in finalizers:
        return ()
    path = f"/metadata/finalizers/{finalizers.index(finalizer)}"
    body = [{"op": "test", "path": path, "value": finalizer}, {"op": "remove", "path": path}]
    return (Patch(ref, body, kind=PatchKind.JSON),)


def merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON merge patch (RFC 7386) that makes `after` of `before`; lists are replaced whole."""
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := merge_patch(old, new):
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch
