"""jobset.x-k8s.io JobSet: several Jobs that start together, one pod set for each replicated Job.

It counts from the spec and from what the JobSet's controller says of its Jobs. Jobs of a JobSet are never looked at
one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from admission.api import job_kinds
from admission.api.job_kinds import CustomJob
from admission.jobs.batch_job import POD_INDEX
from admission.jobs.described import Description, Role, Seen, mapping, mappings, number, text, verdict_of_conditions

JOB_INDEX = "jobset.sigs.k8s.io/job-index"


def roles(seen: Seen) -> tuple[Role, ...]:
    return tuple(
        Role(
            name=text(each, "name"),
            count=_replicas(each) * _pods_of_each(each),
            template=mapping(each, "template", "spec", "template"),
            place=("replicatedJobs", index, "template", "spec", "template"),
            index_label=POD_INDEX,
            group_label=JOB_INDEX,
            groups=_replicas(each),
        )
        for index, each in enumerate(mappings(seen.spec, "replicatedJobs"))
    )


def _replicas(replicated: Mapping[str, Any]) -> int:
    return number(replicated, "replicas", default=1)


def _pods_of_each(replicated: Mapping[str, Any]) -> int:
    return pods_of_job(mapping(replicated, "template"))


def pods_of_job(job: Mapping[str, Any]) -> int:
    """How many pods a Job, or one of such a template, runs at once."""
    parallelism = number(job, "spec", "parallelism", default=1)
    return min(parallelism, number(job, "spec", "completions", default=parallelism))


def ready(seen: Seen) -> bool:
    wanted = sum(_replicas(each) for each in mappings(seen.spec, "replicatedJobs"))
    return wanted == _there(seen.status, "replicatedJobsStatus")


def _there(status: Mapping[str, Any], key: str) -> int:
    return sum(number(each, "ready") + number(each, "succeeded") for each in mappings(status, key))


def active(seen: Seen) -> bool:
    return is_active(seen.job)


def is_active(job_set: CustomJob) -> bool:
    return any(number(each, "active") for each in mappings(job_set.status, "replicatedJobsStatus"))


def reclaimable(seen: Seen) -> dict[str, int]:
    """The pods of Jobs that have succeeded: none of them is started again."""
    return ended(seen.spec, mappings(seen.status, "replicatedJobsStatus"))


def ended(spec: Mapping[str, Any], statuses: list[Mapping[str, Any]]) -> dict[str, int]:
    succeeded = {text(each, "name"): number(each, "succeeded") for each in statuses}
    found = {}
    for each in mappings(spec, "replicatedJobs"):
        name = text(each, "name")
        if 0 < succeeded.get(name, 0) <= _replicas(each):
            found[name] = succeeded[name] * _pods_of_each(each)
    return found


JOB_SETS = Description(
    kind=job_kinds.JOB_SET,
    roles=roles,
    ready=ready,
    active=active,
    verdict=verdict_of_conditions("Completed", "Failed", kind="JobSet"),
    reclaimable=reclaimable,
)
