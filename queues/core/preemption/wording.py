"""Says in Kueue's sentence why a workload was evicted for another, with the paths of both queues.

It works from what the search for victims found. It decides nothing.
"""

from __future__ import annotations

from typing import Final

from queues.core.plan import Evict
from queues.core.preemption.candidates import Target
from queues.core.reasons import Preempted
from queues.core.records import QueueRecord, WorkloadRecord

_HUMAN: Final = {
    Preempted.IN_CLUSTER_QUEUE: "prioritization in the ClusterQueue",
    Preempted.IN_COHORT_RECLAMATION: "reclamation within the cohort",
    Preempted.IN_COHORT_FAIR_SHARING: "Fair Sharing within the cohort",
    Preempted.IN_COHORT_RECLAIM_WHILE_BORROWING: "reclamation within the cohort while borrowing",
}


def eviction(record: WorkloadRecord, queue: QueueRecord, target: Target) -> Evict:
    """The decision that the target has to go for this workload of that queue."""
    message = (
        f"Preempted to accommodate a workload (UID: {record.uid}, JobUID: {record.workload.job_uid or 'UNKNOWN'}) "
        f"due to {_HUMAN[target.reason]}; preemptor path: {queue.node.location()}; "
        f"preemptee path: {target.queue.node.location()}"
    )
    return Evict(target.record.uid, record.uid, queue.name, target.reason, message)
