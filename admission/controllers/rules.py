"""The shape of a lifecycle rule: a Workload and what is known around it, and out comes the Workload as it should be.

Rules are pure and chained by `lifecycle`; each sees what those before it made. A rule must never write, read a clock
or hurry something along that a later rule decides.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import msgspec

from admission.api import names
from admission.api.kueue import ClusterQueue, LocalQueue, Workload
from admission.controllers import conditions
from admission.controllers.changes import ref
from admission.jobs.effects import Delete, Severity, Tell
from admission.settings import Settings


class Ownership(Enum):
    """Who stops the pods of a Workload.

    `NONE`: created directly, there is nobody to wait for. `JOB`: an adapter of Muster. `FOREIGN`: a controller of
    somebody else, which also gives the quota back.
    """

    NONE = "none"
    JOB = "job"
    FOREIGN = "foreign"


class Facts(msgspec.Struct, frozen=True):
    """What the rules look up.

    `cluster_queue` is the one that holds the quota, or else the LocalQueue's. `class_value` is the present value of the
    WorkloadPriorityClass that the Workload names. `failed_hosts` are those of its assignment that failed for it.
    """

    settings: Settings
    ownership: Ownership = Ownership.NONE
    local_queue: LocalQueue | None = None
    cluster_queue: ClusterQueue | None = None
    class_value: int | None = None
    failed_hosts: tuple[str, ...] = ()


class Step(msgspec.Struct, frozen=True):
    """What a rule came to. `wake_at`: when it wants to look again though nothing has happened."""

    workload: Workload
    wake_at: float | None = None
    tells: tuple[Tell, ...] = ()
    deletes: tuple[Delete, ...] = ()


Rule = Callable[[Workload, Facts, float], Step]


def event(workload: Workload, reason: str, message: str, severity: Severity = Severity.NORMAL) -> Tell:
    return Tell(ref("Workload", workload), reason, message, severity)


def deactivation_wanted(workload: Workload, reason: str, message: str, now: float) -> Workload:
    """Marked to be deactivated, which the next rule round does in the spec."""
    return conditions.with_condition(
        workload, names.DEACTIVATION_TARGET, true=True, reason=reason, message=message, now=now
    )


def is_going_out(workload: Workload) -> bool:
    """Whether it is being evicted or deactivated already."""
    return (
        conditions.is_evicted(workload)
        or conditions.is_true(workload, names.DEACTIVATION_TARGET)
        or not conditions.is_active(workload)
    )


def with_active(workload: Workload, *, active: bool) -> Workload:
    return msgspec.structs.replace(workload, spec=msgspec.structs.replace(workload.spec, active=active))


def without_finalizer(workload: Workload) -> Workload:
    left = tuple(each for each in workload.metadata.finalizers if each != names.RESOURCE_IN_USE_FINALIZER)
    return msgspec.structs.replace(workload, metadata=msgspec.structs.replace(workload.metadata, finalizers=left))
