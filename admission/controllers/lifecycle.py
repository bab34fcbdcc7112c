"""What becomes of a Workload between decisions: every rule in its order, and the writes that follow from all of them.

Decided by the rules, each on what the rules before it made of the Workload. It must never take quota: only the core
admits, and this gives quota back and lets what was reserved be admitted.
"""

from __future__ import annotations

import msgspec

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import (
    activity,
    checks,
    conditions,
    execution_time,
    node_failures,
    pods_ready,
    retention,
    stop_policy,
)
from admission.controllers.changes import workload_patches
from admission.controllers.rules import Facts, Ownership, Rule, Step
from admission.jobs.effects import Delete, Effect, Tell
from admission.jobs.eviction import released


class Verdict(msgspec.Struct, frozen=True):
    """Effects to carry out in order, and when to look again though nothing has happened."""

    effects: tuple[Effect, ...] = ()
    wake_at: float | None = None


def release(workload: Workload, facts: Facts, now: float) -> Step:
    """An evicted Workload that has no job has no pods to wait for: its quota is given back with the eviction."""
    if facts.ownership is not Ownership.NONE or not conditions.is_evicted(workload):
        return Step(workload)
    return Step(released(workload, now) if conditions.holds_quota(workload) else workload)


def follow_class(workload: Workload, facts: Facts, now: float) -> Step:
    """The priority is that of its WorkloadPriorityClass, also when the class gets another value."""
    del now
    if facts.class_value is None or facts.class_value == workload.spec.priority:
        return Step(workload)
    spec = msgspec.structs.replace(workload.spec, priority=facts.class_value)
    return Step(msgspec.structs.replace(workload, spec=spec))


def say_that_it_waits(workload: Workload, facts: Facts, now: float) -> Step:
    """With the gate UnadmittedWorkloadsExplicitStatus a new Workload says at once that nobody has looked at it yet."""
    if (
        not facts.settings.gate("UnadmittedWorkloadsExplicitStatus")
        or conditions.condition(workload, names.QUOTA_RESERVED) is not None
        or not conditions.is_active(workload)
    ):
        return Step(workload)
    reason, message = names.REASON_PENDING_EVALUATION, "The workload was not evaluated yet"
    return Step(
        conditions.with_condition(workload, names.QUOTA_RESERVED, true=False, reason=reason, message=message, now=now)
    )


#: Rejection and deactivation come before the stop policies, and the timeouts last, so that one eviction has one reason.
_RULES: tuple[Rule, ...] = (
    checks.put_off,
    activity.deactivate,
    activity.put_back,
    activity.gate,
    say_that_it_waits,
    checks.synchronise,
    checks.admit,
    checks.fail,
    stop_policy.obey,
    node_failures.react,
    pods_ready.time_out,
    execution_time.limit,
    release,
    retention.deactivated,
)
_END_RULES: tuple[Rule, ...] = (retention.orphans, retention.finished)


def reconcile(workload: Workload, facts: Facts, now: float) -> Verdict:
    """Idempotent: once its writes are done and nothing else happened, it wants nothing more."""
    rules: tuple[Rule, ...] = (retention.orphans, follow_class, *_RULES)
    if conditions.is_finished(workload):
        rules = _END_RULES
    changed = workload
    wakes: list[float] = []
    tells: list[Tell] = []
    deletes: list[Delete] = []
    for rule in rules:
        step = rule(changed, facts, now)
        if step.wake_at is not None:
            wakes.append(step.wake_at)
        tells.extend(step.tells)
        deletes.extend(step.deletes)
        if step.workload is not changed:
            changed = step.workload
            if _is_for_now(workload, changed):
                break
    patches = workload_patches(workload, changed)
    return Verdict((*patches, *deletes, *tells), min(wakes, default=None))


def _is_for_now(before: Workload, after: Workload) -> bool:
    """A changed spec, metadata or a first Finished is written before anything else is looked at."""
    return (
        before.spec is not after.spec
        or before.metadata is not after.metadata
        or conditions.is_finished(before) != conditions.is_finished(after)
    )
