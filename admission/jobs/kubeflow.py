"""Kubeflow's training jobs (PyTorch, TensorFlow, XGBoost, Paddle, JAX) and MPIJob: one pod set for each replica type.

Each kind is its field of replica specs and the fixed order of its types; the rest they have in common. An operator of
theirs is believed in what it counts.
"""

from __future__ import annotations

from admission.api import job_kinds
from admission.api.job_kinds import JobKind
from admission.jobs.described import (
    Description,
    Role,
    Seen,
    has_condition,
    mapping,
    number,
    template_of,
    text,
    verdict_of_conditions,
)

REPLICA_INDEX = "training.kubeflow.org/replica-index"


def _active(seen: Seen) -> bool:
    statuses = mapping(seen.status, "replicaStatuses")
    return any(number(each, "active") for each in statuses.values())


def _priority_class(seen: Seen) -> str:
    return text(seen.spec, "runPolicy", "schedulingPolicy", "priorityClass")


def _described(kind: JobKind, *types: str) -> Description:
    field = kind.templates[0][0]
    order = {type_.lower(): index for index, type_ in enumerate(types)}

    def roles(seen: Seen) -> tuple[Role, ...]:
        """Also types in another spelling, which the operator mends, and others, which it may make pods of."""
        replicas = mapping(seen.spec, field)
        return tuple(
            Role(
                name=type_.lower(),
                count=number(replicas, type_, "replicas", default=1),
                template=template_of(mapping(replicas, type_)),
                place=(field, type_, "template"),
                index_label=REPLICA_INDEX,
            )
            for type_ in sorted(replicas, key=lambda type_: (order.get(type_.lower(), len(order)), type_))
            if mapping(replicas, type_)
        )

    return Description(
        kind=kind,
        roles=roles,
        ready=lambda seen: has_condition(seen.status, "Running"),
        active=_active,
        verdict=verdict_of_conditions("Succeeded", "Failed", kind=kind.kind),
        priority_class=_priority_class,
        managed_by=("runPolicy", "managedBy"),
    )


KUBEFLOW = (
    _described(job_kinds.PYTORCH_JOB, "Master", "Worker"),
    _described(job_kinds.TF_JOB, "Chief", "Master", "PS", "Worker", "Evaluator"),
    _described(job_kinds.XGBOOST_JOB, "Master", "Worker"),
    _described(job_kinds.PADDLE_JOB, "Master", "Worker"),
    _described(job_kinds.JAX_JOB, "Worker"),
    _described(job_kinds.MPI_JOB, "Launcher", "Worker"),
)
