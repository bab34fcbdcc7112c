"""Builders of journal entries: short, with telling defaults."""

from __future__ import annotations

from typing import Any

from queues.journal.entries import (
    Amount,
    Decision,
    Kind,
    LocalQueueRow,
    QueueRow,
    QuotaRow,
    UsageStarted,
    WorkloadRow,
    WorkloadState,
)

GPU = "nvidia.com/gpu"


def workload(uid: str, **more: Any) -> WorkloadRow:
    """Pending in ClusterQueue `cq` through LocalQueue `lq` of `ns`, created and queued at 100."""
    at = more.get("queued_at", 100.0)
    values: dict[str, Any] = {
        "namespace": "ns",
        "name": uid,
        "local_queue": "lq",
        "cluster_queue": "cq",
        "state": WorkloadState.PENDING,
        "created_at": at,
        "queued_at": at,
        "state_since": at,
        "pods": 1,
        "requests": {GPU: 8},
    }
    return WorkloadRow(uid=uid, **{**values, **more})


def queue(name: str = "cq", **more: Any) -> QueueRow:
    quota = QuotaRow(flavor="h100", resource=GPU, nominal=16, borrowing_limit=8, reserved=20, admitted=12, borrowed=4)
    return QueueRow(name=name, **{"cohort": "research", "quotas": (quota,), **more})


def local_queue(name: str = "lq", namespace: str = "ns", cluster_queue: str = "cq") -> LocalQueueRow:
    return LocalQueueRow(namespace=namespace, name=name, cluster_queue=cluster_queue)


def decision(uid: str, at: float = 100.0, kind: Kind = Kind.HELD, **more: Any) -> Decision:
    values = {"namespace": "ns", "name": uid, "cluster_queue": "cq", "local_queue": "lq"}
    return Decision(at=at, workload=uid, kind=kind, **{**values, **more})


def started(uid: str, at: float, amount: int = 8, **more: Any) -> UsageStarted:
    values: dict[str, Any] = {"namespace": "ns", "name": uid, "cluster_queue": "cq", "local_queue": "lq"}
    return UsageStarted(at=at, workload=uid, amounts=(Amount("h100", GPU, amount),), **{**values, **more})
