"""Queues as the journal's read model has them: specs from the objects, numbers from the core.

Pure readings; what people see of a queue is what its status says. They must never be read back by anything that
decides.
"""

from __future__ import annotations

from typing import Final

from admission.api import kueue
from admission.api.quantities import format_parts
from queues.core import model
from queues.core.readings import Readings
from queues.journal import entries

#: After all that has a number.
_LAST: Final = 1e300


def cluster_queue(queue: model.ClusterQueue, readings: Readings) -> entries.QueueRow:
    activity = readings.queue_status(queue.name)
    usage = readings.usage(queue.name)
    rows = []
    for group in queue.groups:
        for flavor in group.flavors:
            for resource, quota in flavor.quotas.items():
                unit = usage.get(model.FlavorResource(flavor.flavor, resource))
                rows.append(
                    entries.QuotaRow(
                        flavor=flavor.flavor,
                        resource=resource,
                        nominal=quota.nominal,
                        borrowing_limit=quota.borrowing_limit,
                        lending_limit=quota.lending_limit,
                        reserved=0 if unit is None else unit.reserved,
                        admitted=0 if unit is None else unit.admitted,
                        borrowed=0 if unit is None else unit.reserved_borrowed,
                    )
                )
    return entries.QueueRow(
        name=queue.name,
        cohort=queue.cohort or "",
        strategy=queue.strategy.value,
        stop_policy=queue.stop_policy.value,
        active=activity.active,
        reason=activity.reason,
        message=activity.message,
        quotas=tuple(rows),
    )


def local_queue(queue: model.LocalQueue, readings: Readings) -> entries.LocalQueueRow:
    activity = readings.local_queue_status(queue.key)
    level = readings.past_level(queue.key) if readings.takes_turns(queue.key) else None
    return entries.LocalQueueRow(
        namespace=queue.key.namespace,
        name=queue.key.name,
        cluster_queue=queue.cluster_queue,
        active=activity.active,
        reason=activity.reason,
        message=activity.message,
        past_use=None if level is None else _LAST if level.is_last else float(level.value),
    )


def past_use(queue: kueue.LocalQueue, readings: Readings) -> entries.PastUseRow | None:
    """As of the last sampling; None where it is not remembered."""
    namespace, name = queue.metadata.namespace, queue.metadata.name
    sample = readings.past_use(model.ObjectKey(namespace, name))
    if sample is None:
        return None
    consumed = {str(resource): format_parts(resource, amount) for resource, amount in sample.consumed.items()}
    return entries.PastUseRow(namespace, name, queue.metadata.uid, sample.at, consumed)
