"""trainer.kubeflow.org TrainJob: what runs is decided by a training runtime, and stands in the JobSet made from it.

The trainer makes that JobSet while the TrainJob is still suspended, so its pod sets are those of the JobSet as the API
server has it. What a start injects goes into the TrainJob's runtime patches, of which one entry is Muster's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from admission.api import job_kinds, names
from admission.api.job_kinds import CustomJob
from admission.jobs import job_sets
from admission.jobs.described import (
    Change,
    Description,
    Role,
    Seen,
    found,
    mappings,
    number,
    text,
    verdict_of_conditions,
    within,
)
from admission.jobs.injection import Directives, added

#: Whose entry of the runtime patches is Muster's; Kueue's word.
MANAGER: Final = "kueue.x-k8s.io/manager"
_REPLICATED: Final = ("trainingRuntimeSpec", "template", "spec", "replicatedJobs")


def empty_patch() -> dict[str, Any]:
    """The entry as it is while nothing is injected."""
    return {"manager": MANAGER, "trainingRuntimeSpec": {"template": {"spec": {}}}}


def has_patch(spec: Mapping[str, Any]) -> bool:
    return any(text(each, "manager") == MANAGER for each in mappings(spec, "runtimePatches"))


def _job_set(seen: Seen) -> CustomJob | None:
    """The JobSet; none while it still has what was injected before, since the trainer has not followed yet."""
    made = next((each for each in seen.parts if each.metadata.name == seen.job.metadata.name), None)
    if made is None or _is_injected(seen.spec):
        return made
    labels = (Directives.of(role.template).labels for role in job_sets.roles(Seen(made)))
    return None if any(names.PODSET_LABEL in each for each in labels) else made


def _is_injected(spec: Mapping[str, Any]) -> bool:
    return any(
        text(each, "manager") == MANAGER and mappings(each, *_REPLICATED) for each in mappings(spec, "runtimePatches")
    )


def _roles(seen: Seen) -> tuple[Role, ...] | None:
    made = _job_set(seen)
    return None if made is None else job_sets.roles(Seen(made))


def _ready(seen: Seen) -> bool:
    made = next(iter(seen.parts), None)
    return made is not None and job_sets.ready(Seen(made))


def _active(seen: Seen) -> bool:
    said = any(number(each, "active") for each in mappings(seen.status, "jobsStatus"))
    return said or any(job_sets.is_active(each) for each in seen.parts)


def _reclaimable(seen: Seen) -> dict[str, int]:
    made = next(iter(seen.parts), None)
    return {} if made is None else job_sets.reclaimable(Seen(made))


def _inject(spec: dict[str, Any], changes: Sequence[Change]) -> None:
    """Names only what is added to what the runtime has; tolerations replace the runtime's, so these are all of them."""
    replicated = []
    for role, before, wanted in changes:
        more = added(before, wanted)
        pods: dict[str, Any] = {
            "nodeSelector": more.node_selector,
            "tolerations": wanted.tolerations if more.tolerations else [],
            "schedulingGates": more.gates,
        }
        template = {
            "metadata": {"labels": more.labels, "annotations": more.annotations},
            "spec": {key: value for key, value in pods.items() if value},
        }
        replicated.append({"name": role.name, "template": {"spec": {"template": template}}})
    _write(spec, replicated)


def _take_out(spec: dict[str, Any], changes: Sequence[Change]) -> None:  # noqa: ARG001  # the same for all of them
    if _is_injected(spec):
        _write(spec, [])


def _write(spec: dict[str, Any], replicated: list[dict[str, Any]]) -> None:
    if not has_patch(spec):
        spec["runtimePatches"] = [*mappings(spec, "runtimePatches"), empty_patch()]
    for entry in spec["runtimePatches"]:
        if text(entry, "manager") != MANAGER:
            continue
        target = entry
        for part in _REPLICATED[:-1]:
            target = within(target, part)
        if replicated:
            target[_REPLICATED[-1]] = replicated
        else:
            target.pop(_REPLICATED[-1], None)


def resources_of_trainer(spec: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """What each node of the trainer asks for, as far as the TrainJob says it; None leaves it to the runtime."""
    resources = found(spec, ("trainer", "resourcesPerNode"))
    return resources if isinstance(resources, Mapping) and resources else None


TRAIN_JOBS = Description(
    kind=job_kinds.TRAIN_JOB,
    roles=_roles,
    ready=_ready,
    active=_active,
    verdict=verdict_of_conditions("Complete", "Failed", kind="TrainJob"),
    reclaimable=_reclaimable,
    write=_inject,
    restore=_take_out,
    part=job_kinds.JOB_SET,
    injects_first=True,
    restores_last=True,
)
