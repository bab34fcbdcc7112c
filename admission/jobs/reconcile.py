"""The way of every gang, whatever its kind: from its objects to one Workload, and from the Workload back to them.

The numbered steps decide from the observed gang and its Workloads alone, so a run that was cut short is completed by
the next one. Nothing here may start pods without an admission, or give quota back while pods still run.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from admission.api import meta, names
from admission.api.kueue import Workload
from admission.api.meta import TRUE, Condition
from admission.jobs.ancestors import Ancestor
from admission.jobs.composing import admission_gates
from admission.jobs.effects import Create, Delete, Effect, Patch, Ref, Severity, Tell
from admission.jobs.eviction import released
from admission.jobs.gang import Gang
from admission.jobs.injection import CannotStart, injections
from admission.jobs.interface import Context, Outcome
from admission.jobs.priority import ClassMissing, follow_label
from admission.jobs.readiness import with_readiness, with_reclaimable
from admission.jobs.statuses import (
    condition,
    holds_quota,
    is_admitted,
    is_evicted,
    is_finished,
    status_patch,
    with_condition,
    without_finalizer,
    workload_ref,
)

#: Flavors have a finalizer, so one that an admission names is missing only until its informer has caught up.
_LOOK_AGAIN = 5.0


def reconcile(gang: Gang, workloads: tuple[Workload, ...], context: Context) -> Outcome:  # noqa: PLR0911
    """What to do for a gang and the Workloads that are its own.

    The steps keep the order of Kueue's. Each that has something to do first says so and ends the run: its effects are
    reconciled again from what the cluster then says.
    """
    # 1. Gone, or being deleted for good: its Workloads go too.
    if not gang.members or gang.is_over:
        return Outcome((*gang.finalize(), *abandoned(gang.kind, workloads)))

    # 2. Namespaces that are not managed are left alone, but for members that Muster would hold for ever.
    managed = meta.selects(context.settings.managed_namespaces, context.namespace_labels(gang.namespace))
    if not managed:
        return Outcome(gang.finalize() if gang.verdict else ())

    # 3. Part of a larger job: that one is queued, and this one only must not run ahead of it. What holds quota of its
    # own is led on: an owner that somebody gives it later must not keep it from being evicted.
    holds = any(holds_quota(workload) and not is_finished(workload) for workload in workloads)
    if not holds and (ancestor := gang.ancestor(context)) is not None:
        return Outcome(_below(gang, ancestor))

    # 4. Exactly one Workload, and it says what the gang is.
    workload, settling = _settle(gang, workloads)
    if settling is not None:
        return settling

    # 5. Members in order.
    tidied = gang.tidy(workload, context)
    effects = tidied.effects

    # 6. Finished: nothing is held any more.
    if workload is not None and is_finished(workload):
        return Outcome((*effects, *gang.finalize(), *_let_go(workload)))

    # 7. The Workload is being deleted: stop, and let it go once nothing runs. Step 10 makes a new one.
    if workload is not None and workload.metadata.is_deleting:
        stopping = gang.stop(workload, "WorkloadDeleted", "The workload is deleted")
        coming = gang.pods_may_follow(workload, context.now)
        going = () if stopping or gang.is_active or coming else gang.restore(workload) or _let_go(workload)
        again = _sooner(tidied, Outcome(requeue_after=coming or None))
        return Outcome((*effects, *stopping, *going), again)

    # 8. (Jobs that put themselves on hold: none of the kinds here can.)

    # 9. The gang has ended.
    if (verdict := gang.verdict) is not None:
        if workload is not None:
            reason = names.REASON_SUCCEEDED if verdict.success else names.REASON_FAILED
            ending = _finish(workload, reason, verdict.message, context.now)
            told = _told(gang, names.EVENT_FINISHED_WORKLOAD, workload_ref(workload), "is finished") if ending else ()
            effects = (*effects, *ending, *told, *_let_go(workload))
        return Outcome((*effects, *gang.finalize()))

    # 10. No Workload yet.
    if workload is None:
        stopping = gang.stop(None, "NoWorkload", "There is no workload")
        if effects or stopping or gang.is_active or context.namespace_is_ending(gang.namespace):
            return Outcome((*effects, *stopping), tidied.requeue_after)
        composed = gang.compose(context)
        made = [effect.ref for effect in composed.effects if isinstance(effect, Create)]
        told = tuple(tell for ref in made for tell in _told(gang, names.EVENT_CREATED_WORKLOAD, ref, "was created"))
        return Outcome((*composed.effects, *told), composed.requeue_after)

    return _with_workload(gang, workload, tidied, context)


def _with_workload(gang: Gang, workload: Workload, tidied: Outcome, context: Context) -> Outcome:
    """The steps of a gang that has a live Workload. `tidied` came before and is part of the outcome."""
    effects = tidied.effects

    # (4 again.) The priority class may change at any time, and gates be lifted.
    followed = follow_label(workload, gang.priority_class, context)
    if isinstance(followed, ClassMissing):
        effects = (*effects, *_missing_class(gang, followed))
        followed = ()
    if changes := followed or _lift_gates(gang, workload):
        return Outcome((*effects, *changes), tidied.requeue_after)

    # 11, 12. What it reports, with the conditions of the kind's own (5).
    observed = gang.with_conditions(with_reclaimable(workload, gang.reclaimable(workload)), context.now)
    if context.settings.wait_for_pods_ready is not None:
        observed = with_readiness(observed, context.now, ready=gang.is_ready(workload))

    # 13. Evicted: stop first, give the quota back when nothing runs.
    if is_evicted(workload) and holds_quota(workload):
        evicted = condition(workload, names.EVICTED)
        stopping = gang.stop(workload, names.EVICTED, evicted.message if evicted else "")
        coming = gang.pods_may_follow(workload, context.now)
        if not stopping and not gang.is_active and not coming:
            observed = released(observed, context.now)
            stopping = gang.restore(workload)
            return Outcome((*effects, *status_patch(workload, observed), *stopping), tidied.requeue_after)
        again = _sooner(tidied, Outcome(requeue_after=coming or None))
        return Outcome((*effects, *stopping, *status_patch(workload, observed)), again)

    # 14. Admitted: start what is not started.
    reports = status_patch(workload, observed)
    if is_admitted(workload):
        started = _start(gang, workload, context)
        ended = any(effect.ref == workload_ref(workload) for effect in started.effects)
        return Outcome((*effects, *started.effects, *(() if ended else reports)), _sooner(tidied, started))

    # 15. Running without an admission: stop. Else wait, restored to what it was, in the queue that it names.
    stopping = gang.stop(workload, "NotAdmitted", "The workload is not admitted")
    if stopping:
        return Outcome((*effects, *stopping), tidied.requeue_after)
    moving = _follow_queue(gang, workload)
    waiting = moving or (*reports, *queue_problem(gang, context))
    return Outcome((*effects, *gang.restore(workload), *waiting), tidied.requeue_after)


# ------------------------------------------------------------------ one Workload


def abandoned(kind: str, workloads: Iterable[Workload]) -> tuple[Effect, ...]:
    """Delete the Workloads that objects of this kind alone own, without waiting for a garbage collector."""
    effects: list[Effect] = []
    for workload in workloads:
        owners = workload.metadata.owner_references
        if not owners or any(owner.kind != kind for owner in owners):
            continue
        effects += _let_go(workload)
        if not workload.metadata.is_deleting:
            effects.append(Delete(workload_ref(workload)))
    return tuple(effects)


def _let_go(workload: Workload) -> tuple[Effect, ...]:
    return without_finalizer(workload_ref(workload), workload.metadata.finalizers, names.RESOURCE_IN_USE_FINALIZER)


def _settle(gang: Gang, workloads: tuple[Workload, ...]) -> tuple[Workload | None, Outcome | None]:
    """The one that matches. An outcome instead: what leads there; nothing else is done before that."""
    ordered = sorted(workloads, key=_by_claim)
    match = next((workload for workload in ordered if gang.matches(workload)), None)
    stale = [workload for workload in ordered if workload is not match]
    if match is not None or not stale:
        extra = abandoned(gang.kind, stale)
        return match, Outcome((*extra, *_told_of_deleted(gang, extra))) if extra else None
    first = stale[0]
    if gang.verdict is not None or is_finished(first) or first.metadata.is_deleting:
        return first, None  # what it says does not matter any more: steps 6, 7 and 9 let it go
    return None, Outcome(_resettle(gang, first, stale[1:]))


def _resettle(gang: Gang, first: Workload, others: Iterable[Workload]) -> tuple[Effect, ...]:
    """No Workload says what the gang is: stop it, then change one that holds nothing, or have it made anew."""
    stopping = gang.stop(first, "NoMatchingWorkload", "The job does not match its workload any more")
    if stopping or gang.is_active:
        return stopping
    if restoring := gang.restore(first):
        return restoring
    if not holds_quota(first) and (updates := gang.update(first)):
        told = _told(gang, names.EVENT_UPDATED_WORKLOAD, workload_ref(first), "was updated to what the job is now")
        left = abandoned(gang.kind, others)
        return (*updates, *left, *told, *_told_of_deleted(gang, left))
    left = abandoned(gang.kind, (first, *others))
    return (*left, *_told_of_deleted(gang, left))


def _by_claim(workload: Workload) -> tuple[bool, bool, bool, str, str]:
    """Of several, the one that holds quota is kept, then a live one, then the oldest."""
    return (
        not holds_quota(workload),
        is_finished(workload),
        workload.metadata.is_deleting,
        workload.metadata.creation_timestamp or "",
        workload.metadata.name,
    )


def _told(gang: Gang, reason: str, workload: Ref, what: str) -> tuple[Tell, ...]:
    """What happened to its Workload, told to one object of the gang."""
    return tuple(Tell(ref, reason, f"Workload {workload.namespace}/{workload.name} {what}") for ref in gang.waiting[:1])


def _told_of_deleted(gang: Gang, effects: Iterable[Effect]) -> tuple[Tell, ...]:
    deleted = (effect.ref for effect in effects if isinstance(effect, Delete))
    what = "was deleted: it is not what the job is"
    return tuple(tell for ref in deleted for tell in _told(gang, names.EVENT_DELETED_WORKLOAD, ref, what))


def _below(gang: Gang, ancestor: Ancestor) -> tuple[Effect, ...]:
    """Part of a larger job: it must not run ahead of that one."""
    if ancestor.is_too_deep:
        message = f'There are more than ten owners up to {ancestor.kind} "{ancestor.name}"; it is left alone'
        reason = names.EVENT_NESTING_TOO_DEEP
        return tuple(Tell(ref, reason, message, Severity.WARNING) for ref in gang.waiting)
    if not gang.runs or ancestor.is_admitted:
        return ()
    return tuple(
        msgspec.structs.replace(effect, reason=names.EVENT_SUSPENDED)
        if isinstance(effect, Tell) and effect.reason == names.EVENT_STOPPED
        else effect
        for effect in gang.stop(None, "AncestorNotAdmitted", ancestor.message)
    )


def _finish(workload: Workload, reason: str, message: str, now: float) -> tuple[Effect, ...]:
    done = Condition(type=names.FINISHED, status=TRUE, reason=reason, message=message)
    return status_patch(workload, with_condition(workload, done, now))


# ------------------------------------------------------------------ starting and waiting


def _start(gang: Gang, workload: Workload, context: Context) -> Outcome:
    found = injections(workload, context)
    started = found if isinstance(found, CannotStart) else gang.start(workload, found)
    if not isinstance(started, CannotStart):
        return Outcome(started)
    tells = tuple(Tell(ref, names.REASON_FAILED_TO_START, started.message, Severity.WARNING) for ref in gang.waiting)
    if not started.permanent:
        return Outcome(tells, _LOOK_AGAIN)
    return Outcome((*_finish(workload, names.REASON_FAILED_TO_START, started.message, context.now), *tells))


def _follow_queue(gang: Gang, workload: Workload) -> tuple[Effect, ...]:
    """A waiting Workload follows its job's queue. While it holds quota the API server refuses that."""
    queue = gang.queue_name
    if not queue or queue == workload.spec.queue_name or holds_quota(workload):
        return ()
    body = {"spec": {"queueName": queue}}
    return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)


def _lift_gates(gang: Gang, workload: Workload) -> tuple[Effect, ...]:
    """A gate that the job does not name any more does not hold its Workload either; none is ever added."""
    there, named = admission_gates(workload.metadata.annotations), gang.admission_gates
    if not there or named is None:
        return ()
    left = [gate for gate in there if gate in named]
    if len(left) == len(there):
        return ()
    body = {"metadata": {"annotations": {names.ADMISSION_GATED_BY: ",".join(left) or None}}}
    return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)


def _missing_class(gang: Gang, missing: ClassMissing) -> tuple[Effect, ...]:
    reason = names.EVENT_PRIORITY_CLASS_NOT_FOUND
    return tuple(Tell(ref, reason, missing.message, Severity.WARNING) for ref in gang.waiting)


def queue_problem(gang: Gang, context: Context) -> tuple[Effect, ...]:
    """Tells the users of a gang that has no queue, or one that does not exist."""
    name = gang.queue_name
    if not name:
        message = (
            f"There is no queue to wait in: neither a label {names.QUEUE_LABEL} nor a LocalQueue "
            f'"{names.DEFAULT_LOCAL_QUEUE}" in the namespace'
        )
    elif context.local_queue(gang.namespace, name) is None:
        message = f"LocalQueue {name} does not exist in namespace {gang.namespace}"
    else:
        return ()
    return tuple(Tell(ref, names.REASON_MISCONFIGURED, message, Severity.WARNING) for ref in gang.waiting)


def _sooner(*outcomes: Outcome) -> float | None:
    times = [outcome.requeue_after for outcome in outcomes if outcome.requeue_after is not None]
    return min(times, default=None)
