"""What Muster reads of a batch/v1 Job.

The pod template stays the plain dict that the API server sent, because it is copied to the Workload as it is; read it
with `decoding.convert(job.spec.template, core.PodTemplateSpec)`. Jobs are only ever patched, never replaced.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.api.meta import LabelSelector, ObjectMeta
from admission.api.schema import Object, always

INDEXED = "Indexed"
JOB_COMPLETE = "Complete"
JOB_SUSPENDED = "Suspended"
JOB_FAILED = "Failed"


class JobSpec(Object, frozen=True):
    """`parallelism` counts as 1 where it is missing; `completions` missing means that any success finishes the job."""

    parallelism: int | None = None
    completions: int | None = None
    completion_mode: str = ""
    suspend: bool = False
    backoff_limit: int | None = None
    active_deadline_seconds: int | None = None
    managed_by: str | None = None
    selector: LabelSelector | None = None
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class JobCondition(Object, frozen=True):
    type: str = always("")
    status: str = always("")
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class UncountedTerminatedPods(Object, frozen=True):
    """Pods that ended and are not yet in the counters, by uid."""

    succeeded: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()


class JobStatus(Object, frozen=True):
    active: int = 0
    ready: int | None = None
    succeeded: int = 0
    failed: int = 0
    terminating: int | None = None
    start_time: str | None = None
    completion_time: str | None = None
    completed_indexes: str = ""
    failed_indexes: str | None = None
    uncounted_terminated_pods: UncountedTerminatedPods | None = None
    conditions: tuple[JobCondition, ...] = ()


class Job(Object, frozen=True):
    api_version: str = always("batch/v1")
    kind: str = always("Job")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: JobSpec = msgspec.field(default_factory=JobSpec)
    status: JobStatus = JobStatus()
