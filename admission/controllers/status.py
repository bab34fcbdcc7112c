"""The statuses of queues as new values of their objects: the Active condition, counts and usage.

Made from what the core counts; comparing with what the object says decides whether anything is written. They must
never invent a number: a queue that the core does not know is left as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

import msgspec

from admission.api import meta, names
from admission.api.kueue import (
    AdmissionFairSharingStatus,
    ClusterQueue,
    ClusterQueueStatus,
    Cohort,
    FairSharingStatus,
    FlavorUsage,
    LocalQueue,
    LocalQueueFairSharingStatus,
    LocalQueueFlavorUsage,
    LocalQueueResourceUsage,
    LocalQueueStatus,
    ResourceUsage,
)
from admission.api.meta import FALSE, TRUE, Condition
from admission.api.quantities import format_amount, format_parts
from admission.controllers.changes import status_patch
from admission.controllers.cluster import Cluster
from admission.jobs.effects import Patch
from queues.core.model import (
    UNLIMITED,
    ClusterQueueName,
    CohortName,
    FlavorName,
    FlavorResource,
    ObjectKey,
    ResourceName,
)
from queues.core.past import Sample
from queues.core.readings import Readings, UnitUsage
from queues.core.records import Activity

Usage = Mapping[FlavorResource, UnitUsage]
_NONE = UnitUsage(0, 0)


def patch(queue: ClusterQueue | LocalQueue | Cohort, cluster: Cluster, now: float) -> Patch | None:
    """The write that brings the status of a queue or cohort up to date, if one is due."""
    readings, shares = cluster.state, cluster.settings.fair_sharing is not None
    match queue:
        case ClusterQueue():
            return _patch("ClusterQueue", queue, cluster_queue_status(queue, readings, now, shares=shares))
        case LocalQueue():
            above = cluster.tables.cluster_queues.get("", queue.spec.cluster_queue)
            return _patch("LocalQueue", queue, local_queue_status(queue, above, readings, now))
        case Cohort():
            share = readings.cohort_share(CohortName(queue.metadata.name)).rounded_up if shares else None
            after = msgspec.structs.replace(queue.status, fair_sharing=_told(share))
            return None if after == queue.status else status_patch("Cohort", queue, queue.status, after, guarded=False)
        case _:
            assert_never(queue)


def _patch(kind: str, queue: ClusterQueue | LocalQueue, after: ClusterQueueStatus | LocalQueueStatus) -> Patch | None:
    if after == queue.status:
        return None
    # A status that was never written lacks the zeros that reading it gives.
    before: object = queue.status if queue.status.conditions else {}
    return status_patch(kind, queue, before, after, guarded=after.conditions is not queue.status.conditions)


def _told(share: int | None) -> FairSharingStatus | None:
    return None if share is None else FairSharingStatus(weighted_share=share)


def cluster_queue_status(
    queue: ClusterQueue, readings: Readings, now: float, *, shares: bool = False
) -> ClusterQueueStatus:
    """`shares`: how much of what could be lent it borrows is told as well."""
    name = ClusterQueueName(queue.metadata.name)
    usage, counts = readings.usage(name), readings.counts(name)
    return msgspec.structs.replace(
        queue.status,
        conditions=with_activity(queue.status.conditions, readings.queue_status(name), queue.metadata.generation, now),
        flavors_reservation=_with_borrowed(queue, usage, admitted=False),
        flavors_usage=_with_borrowed(queue, usage, admitted=True),
        pending_workloads=counts.pending,
        reserving_workloads=counts.reserving,
        admitted_workloads=counts.admitted,
        fair_sharing=_told(readings.share(name).rounded_up if shares else None),
    )


def local_queue_status(
    queue: LocalQueue, above: ClusterQueue | None, readings: Readings, now: float
) -> LocalQueueStatus:
    """`above` is its ClusterQueue, whose flavors it lists."""
    key = ObjectKey(queue.metadata.namespace, queue.metadata.name)
    usage, counts = readings.local_usage(key), readings.local_counts(key)
    return msgspec.structs.replace(
        queue.status,
        conditions=with_activity(
            queue.status.conditions, readings.local_queue_status(key), queue.metadata.generation, now
        ),
        pending_workloads=counts.pending,
        reserving_workloads=counts.reserving,
        admitted_workloads=counts.admitted,
        flavors_reservation=_plain(above, usage, admitted=False),
        flavors_usage=_plain(above, usage, admitted=True),
        fair_sharing=_past_use(readings.past_use(key)),
    )


def _past_use(sample: Sample | None) -> LocalQueueFairSharingStatus | None:
    """As of the last sampling, so that it changes, and is written, only then."""
    if sample is None:
        return None
    level = sample.level
    share = UNLIMITED if level.is_last else min(UNLIMITED, -(-level.value.numerator // level.value.denominator))
    return LocalQueueFairSharingStatus(
        weighted_share=share,
        admission_fair_sharing_status=AdmissionFairSharingStatus(
            consumed_resources={name: format_parts(name, amount) for name, amount in sample.consumed.items()},
            last_update=meta.rfc3339(sample.at),
        ),
    )


def with_activity(
    conditions: tuple[Condition, ...], activity: Activity, generation: int, now: float
) -> tuple[Condition, ...]:
    """The conditions with the Active condition; the very same where it says so already."""
    new = Condition(
        type=names.ACTIVE,
        status=TRUE if activity.active else FALSE,
        reason=activity.reason,
        message=activity.message,
        last_transition_time=meta.rfc3339(now),
        observed_generation=generation or None,
    )
    old = meta.find_condition(conditions, names.ACTIVE)
    if old is not None and (old.status, old.reason, old.message) == (new.status, new.reason, new.message):
        return conditions
    return meta.set_condition(conditions, new)


def _units(queue: ClusterQueue) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Each flavor that the queue declares, with its resources, those that nobody uses too."""
    for group in queue.spec.resource_groups:
        for flavor in group.flavors:
            yield flavor.name, tuple(quota.name for quota in flavor.resources)


def _with_borrowed(queue: ClusterQueue, usage: Usage, *, admitted: bool) -> tuple[FlavorUsage, ...]:
    return tuple(
        FlavorUsage(
            name=flavor, resources=tuple(_resource(usage, flavor, name, admitted=admitted) for name in resources)
        )
        for flavor, resources in _units(queue)
    )


def _resource(usage: Usage, flavor: str, resource: str, *, admitted: bool) -> ResourceUsage:
    unit = _of(usage, flavor, resource)
    total = unit.admitted if admitted else unit.reserved
    borrowed = unit.admitted_borrowed if admitted else unit.reserved_borrowed
    return ResourceUsage(
        name=resource, total=format_amount(resource, total), borrowed=format_amount(resource, borrowed)
    )


def _plain(queue: ClusterQueue | None, usage: Usage, *, admitted: bool) -> tuple[LocalQueueFlavorUsage, ...]:
    if queue is None:
        return ()
    return tuple(
        LocalQueueFlavorUsage(
            name=flavor,
            resources=tuple(
                LocalQueueResourceUsage(
                    name=name,
                    total=format_amount(
                        name,
                        _of(usage, flavor, name).admitted if admitted else _of(usage, flavor, name).reserved,
                    ),
                )
                for name in resources
            ),
        )
        for flavor, resources in _units(queue)
    )


def _of(usage: Usage, flavor: str, resource: str) -> UnitUsage:
    return usage.get(FlavorResource(FlavorName(flavor), ResourceName(resource)), _NONE)
