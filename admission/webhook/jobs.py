"""batch/v1 Jobs: suspended as they are created when they are queued, and kept consistent while they are.

A Job whose pod template asks for GPUs is queued whole. Reads the Job and the review's context; what it adds is
`suspend: true` and at most the label of the default LocalQueue, never anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from admission.api import names
from admission.api.batch import INDEXED, Job
from admission.api.core import PodTemplateSpec
from admission.api.decoding import convert
from admission.webhook import fields, job_rules, syntax, topology_requests
from admission.webhook.context import Context
from admission.webhook.fields import FieldError, annotation
from admission.webhook.handling import Refusal
from admission.webhook.review import Operation


def mutate(_raw: Mapping[str, Any], job: Job, context: Context) -> list[Operation]:
    if not context.rules.jobs or job.metadata.is_deleting:
        return []
    template = convert(job.spec.template, PodTemplateSpec)
    match job_rules.verdict(job.metadata, template.spec, context):
        case job_rules.LeftAlone():
            return []
        case job_rules.Refused(error):
            raise Refusal(error)
        case job_rules.Queued(default_queue=default_queue):
            label = {names.QUEUE_LABEL: names.DEFAULT_LOCAL_QUEUE} if default_queue else {}
            patch = job_rules.add_to_map("/metadata/labels", job.metadata.labels, label)
            if not job.spec.suspend:
                patch.append({"op": "add", "path": "/spec/suspend", "value": True})
            return patch + job_rules.add_to_map("/metadata/annotations", job.metadata.annotations, context.stamp())


def validate(new: Job, old: Job | None, context: Context) -> Iterator[FieldError]:
    if not context.rules.jobs:
        return
    yield from job_rules.errors(_shared(new), None if old is None else _shared(old), context)
    if old is not None:
        yield from _resize_errors(new, old)
    yield from _partial_admission_errors(new, old)
    yield from _sync_completions_errors(new)
    template = convert(new.spec.template, PodTemplateSpec)
    at = "spec.template.metadata.annotations"
    yield from topology_requests.errors(at, template.metadata.annotations, _pods(new))
    if new.metadata.annotations.get(names.ELASTIC_JOB) == "true":
        for name in (names.PODSET_REQUIRED_TOPOLOGY, names.PODSET_PREFERRED_TOPOLOGY):
            if name in template.metadata.annotations:
                yield fields.forbidden(fields.key(at, name), "may not be set on an elastic job")


def _shared(job: Job) -> job_rules.Job:
    return job_rules.Job(job.metadata, is_suspended=job.spec.suspend, takes_elastic=True)


def _pods(job: Job) -> int:
    """How many pods run at a time."""
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    return parallelism if job.spec.completions is None else min(parallelism, job.spec.completions)


def _partial_admission_errors(job: Job, old: Job | None) -> Iterator[FieldError]:
    """The minimum is below the parallelism when it is written; a job may then be started with no more than that."""
    text = job.metadata.annotations.get(names.JOB_MIN_PARALLELISM)
    if text is None:
        return
    is_new = old is None or old.metadata.annotations.get(names.JOB_MIN_PARALLELISM) != text
    most = _pods(job) - 1 if is_new else _pods(job)
    number = syntax.integer(text) if text.isdecimal() else None
    if number is None or not 1 <= number <= most:
        yield fields.invalid(annotation(names.JOB_MIN_PARALLELISM), text, f"must be an integer from 1 to {most}")


def _sync_completions_errors(job: Job) -> Iterator[FieldError]:
    text = job.metadata.annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM)
    if text is None:
        return
    match syntax.boolean(text):
        case None:
            yield fields.invalid(annotation(names.JOB_COMPLETIONS_EQUAL_PARALLELISM), text, "must be true or false")
        case True:
            why = f"when {names.JOB_COMPLETIONS_EQUAL_PARALLELISM} is true"
            if job.spec.completion_mode != INDEXED:
                yield fields.invalid(
                    "spec.completionMode", job.spec.completion_mode or None, f"must be {INDEXED} {why}"
                )
            if job.spec.completions != job.spec.parallelism:
                yield fields.invalid("spec.completions", job.spec.completions, f"must be equal to parallelism {why}")
        case False:
            pass


def _resize_errors(new: Job, old: Job) -> Iterator[FieldError]:
    if old.spec.suspend:
        return
    if names.JOB_MIN_PARALLELISM in old.metadata.annotations and new.spec.parallelism != old.spec.parallelism:
        yield fields.forbidden("spec.parallelism", "may not change while a job with partial admission is not suspended")
    now, before = (
        syntax.boolean(job.metadata.annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM, "")) for job in (new, old)
    )
    if bool(now) != bool(before):
        at = annotation(names.JOB_COMPLETIONS_EQUAL_PARALLELISM)
        yield fields.forbidden(at, "may not change while the job is not suspended")
