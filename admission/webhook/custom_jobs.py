"""Jobs with operators of their own: suspended as they are created when they are queued, and kept consistent then.

Every kind is handled alike by what its description says of its pod templates; Ray and Spark have rules of their own
for what cannot be queued as it stands. What it adds is the suspend field, the label of the default LocalQueue, and for
a TrainJob its entry of the runtime patches, never anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from admission.api import job_kinds, names
from admission.api.core import PodSpec
from admission.api.job_kinds import CustomJob, JobKind
from admission.jobs import app_wrappers, train_jobs
from admission.jobs.described import Description, Seen, found, mapping, mappings, text
from admission.jobs.injection import Directives
from admission.jobs.registry import DESCRIPTIONS
from admission.jobs.shapes import shape
from admission.webhook import fields, job_rules, topology_requests
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.handling import Kind, Refusal
from admission.webhook.review import GroupVersionKind, Operation

#: As many pod sets as a Workload has.
MOST_POD_SETS: Final = 18
_DYNAMIC: Final = "spark.dynamicAllocation.enabled"


def mutate(description: Description, _raw: Mapping[str, Any], job: CustomJob, context: Context) -> list[Operation]:
    if not _is_enabled(description.kind, context) or job.metadata.is_deleting or description.ignored(Seen(job)):
        return []
    match _verdict(description, job, context):
        case job_rules.Refused(error):
            raise Refusal(error)
        case job_rules.LeftAlone():
            return []
        case job_rules.Queued(default_queue=default_queue):
            label = {names.QUEUE_LABEL: names.DEFAULT_LOCAL_QUEUE} if default_queue else {}
            return [
                *job_rules.add_to_map("/metadata/labels", job.metadata.labels, label),
                *_suspending(description.kind, job),
                *_for_injection(description.kind, job),
                *job_rules.add_to_map("/metadata/annotations", job.metadata.annotations, context.stamp()),
            ]


def _is_enabled(kind: JobKind, context: Context) -> bool:
    return kind in context.rules.custom


def _verdict(description: Description, job: CustomJob, context: Context) -> job_rules.Verdict:
    """One pod of it that asks for a GPU is enough."""
    specs, assumed = _pods(description, job)
    for spec in specs:
        found_ = job_rules.verdict(job.metadata, spec, context)
        if not isinstance(found_, job_rules.LeftAlone):
            return found_
    return job_rules.verdict(job.metadata, PodSpec(), context, assumed=assumed)


def _pods(description: Description, job: CustomJob) -> tuple[list[PodSpec], str]:
    """The pods, as far as the object says; and what is assumed that they ask for where it does not.

    The runtime of a TrainJob is another object. What its trainer asks for is taken for more than no GPU unless the
    TrainJob itself says how much that is.
    """
    if description.kind == job_kinds.TRAIN_JOB:
        resources = train_jobs.resources_of_trainer(job.spec)
        if resources is None:
            return [], "what its training runtime has"
        return [shape({"spec": {"containers": [{"name": "node", "resources": resources}]}}).spec], ""
    return [shape(role.template).spec for role in description.roles(Seen(job)) or ()], ""


def _suspending(kind: JobKind, job: CustomJob) -> list[Operation]:
    if job.is_suspended:
        return []
    path, value = "/spec", True
    spec: Any = job.spec
    for index, part in enumerate(kind.suspend):
        path += f"/{part}"
        if not isinstance(spec.get(part), dict):
            wanted: Any = value
            for name in reversed(kind.suspend[index + 1 :]):
                wanted = {name: wanted}
            return [{"op": "add", "path": path, "value": wanted}]
        spec = spec[part]
    return []


def _for_injection(kind: JobKind, job: CustomJob) -> list[Operation]:
    if kind != job_kinds.TRAIN_JOB or train_jobs.has_patch(job.spec):
        return []
    return job_rules.add_to_list("/spec/runtimePatches", job.spec.get("runtimePatches"), [train_jobs.empty_patch()])


# ------------------------------------------------------------------ what may be written on it


def validate(description: Description, new: CustomJob, old: CustomJob | None, context: Context) -> Iterator[FieldError]:
    if not _is_enabled(description.kind, context) or description.ignored(Seen(new)):
        return
    kind = description.kind
    yield from job_rules.errors(_shared(kind, new), None if old is None else _shared(kind, old), context)
    if old is not None:
        yield from _gpu_errors(description, new, old, context)
    if not (context.rules.manage_all or new.metadata.labels.get(names.QUEUE_LABEL)):
        return
    yield from _OWN_RULES.get(kind, _no_rules)(new)
    for role in description.roles(Seen(new)) or ():
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in role.place or (role.name,))
        at = f"spec{where}.metadata.annotations"
        yield from topology_requests.errors(at, Directives.of(role.template).annotations, role.count)


def _gpu_errors(description: Description, new: CustomJob, old: CustomJob, context: Context) -> Iterator[FieldError]:
    """GPUs may not get into a job that nobody queues, by its templates, which can be changed here, or by its label.

    Nothing holds back who starts a job without a queue's name.
    """
    at = fields.label(names.QUEUE_LABEL)
    if new.metadata.labels.get(names.QUEUE_LABEL) or context.rules.manage_all:
        return
    if isinstance(_verdict(description, new, context), job_rules.LeftAlone):
        return
    if old.metadata.labels.get(names.QUEUE_LABEL):
        yield fields.required(at, "may be changed, but not removed from a job that asks for GPUs")
    elif description.ignored(Seen(old)) or isinstance(_verdict(description, old, context), job_rules.LeftAlone):
        yield fields.required(at, "GPUs are asked for now: suspend the job and name a LocalQueue, or create it anew")


def _shared(kind: JobKind, job: CustomJob) -> job_rules.Job:
    return job_rules.Job(job.metadata, is_suspended=job.is_suspended, takes_prebuilt=kind.takes_prebuilt)


def _no_rules(_: CustomJob) -> Iterator[FieldError]:
    return iter(())


def _ray_cluster_errors(job: CustomJob, *at: str) -> Iterator[FieldError]:
    path, cluster = ".".join(("spec", *at)), mapping(job.spec, *at)
    if found(cluster, ("enableInTreeAutoscaling",)) is True:
        yield fields.forbidden(
            f"{path}.enableInTreeAutoscaling", "a queued cluster has the workers that it was admitted with"
        )
    groups = mappings(cluster, "workerGroupSpecs")
    if len(groups) >= MOST_POD_SETS:
        yield fields.too_many(f"{path}.workerGroupSpecs", len(groups), MOST_POD_SETS - 1)
    for index, group in enumerate(groups):
        if text(group, "groupName").lower() == "head":
            where = f"{path}.workerGroupSpecs[{index}].groupName"
            yield fields.forbidden(where, '"head" is the name of the head group')


def _ray_job_errors(job: CustomJob) -> Iterator[FieldError]:
    if not mapping(job.spec, "rayClusterSpec"):
        yield fields.required("spec.rayClusterSpec", "a queued job brings a cluster of its own")
    if job.spec.get("shutdownAfterJobFinishes") is not True:
        yield fields.required(
            "spec.shutdownAfterJobFinishes", "must be true: a cluster that stays would hold what the job gave back"
        )
    yield from _ray_cluster_errors(job, "rayClusterSpec")


def _spark_errors(job: CustomJob) -> Iterator[FieldError]:
    why = "a queued application has the executors that it was admitted with"
    if found(job.spec, ("dynamicAllocation", "enabled")) is True:
        yield fields.forbidden("spec.dynamicAllocation.enabled", why)
    if text(job.spec, "sparkConf", _DYNAMIC).strip().lower() == "true":
        yield fields.forbidden(fields.key("spec.sparkConf", _DYNAMIC), why)
    if mapping(job.spec, "nodeSelector"):
        yield fields.forbidden(
            "spec.nodeSelector", "set spec.driver.nodeSelector and spec.executor.nodeSelector, which flavors add to"
        )


def _app_wrapper_errors(job: CustomJob) -> Iterator[FieldError]:
    for index, component in enumerate(mappings(job.spec, "components")):
        if mappings(component, "podSets") and app_wrappers.is_understated(component):
            yield fields.forbidden(
                f"spec.components[{index}].podSets", "must have all pods of the template, or be left out"
            )


_OWN_RULES: Final[Mapping[JobKind, Callable[[CustomJob], Iterator[FieldError]]]] = {
    job_kinds.APP_WRAPPER: _app_wrapper_errors,
    job_kinds.RAY_CLUSTER: _ray_cluster_errors,
    job_kinds.RAY_JOB: _ray_job_errors,
    job_kinds.RAY_SERVICE: lambda job: _ray_cluster_errors(job, "rayClusterConfig"),
    job_kinds.SPARK_APPLICATION: _spark_errors,
}


def _kind(description: Description) -> Kind[CustomJob]:
    kind = description.kind
    return Kind(
        GroupVersionKind(kind.group, kind.version, kind.kind),
        CustomJob,
        mutate=partial(mutate, description),
        validate=partial(validate, description),
    )


KINDS: Final = tuple(map(_kind, DESCRIPTIONS))
