"""Builders for the objects that the controllers look at, and the time that all of it happens in."""

from __future__ import annotations

from typing import Any

import msgspec

from admission.api import kueue, meta, names
from admission.api.meta import ObjectMeta, OwnerReference
from admission.controllers.rules import Facts, Ownership
from admission.jobs.effects import Patch
from admission.settings import Settings, WaitForPodsReady
from admission.settings.configuration import ObjectRetentionPolicies, RequeuingStrategy, WorkloadRetention
from admission.settings.durations import Seconds
from tests.merging import merged

NOW = 1_800_000_000.0
NAMESPACE = "team"


def stamp(seconds: float = 0.0) -> str:
    return meta.rfc3339(NOW + seconds)


def condition(
    type_: str, status: str = "True", reason: str = "", message: str = "", at: float = -60.0
) -> meta.Condition:
    return meta.Condition(
        type=type_, status=status, reason=reason or type_, message=message, last_transition_time=stamp(at)
    )


def template(cpu: str = "1") -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}


def admission(
    queue: str = "cq", cpu: str = "2", count: int = 2, flavor: str = "default", **more: Any
) -> kueue.Admission:
    assignment = kueue.PodSetAssignment(
        name="main", flavors={"cpu": flavor}, resource_usage={"cpu": cpu}, count=count, **more
    )
    return kueue.Admission(cluster_queue=queue, pod_set_assignments=(assignment,))


class WorkloadBuilder:
    """`workload("a").reserved().admitted().evicted("Preempted").obj`."""

    def __init__(self, obj: kueue.Workload) -> None:
        self.obj = obj

    def _status(self, **fields: Any) -> WorkloadBuilder:
        status = msgspec.structs.replace(self.obj.status, **fields)
        return WorkloadBuilder(msgspec.structs.replace(self.obj, status=status))

    def _metadata(self, **fields: Any) -> WorkloadBuilder:
        metadata = msgspec.structs.replace(self.obj.metadata, **fields)
        return WorkloadBuilder(msgspec.structs.replace(self.obj, metadata=metadata))

    def spec(self, **fields: Any) -> WorkloadBuilder:
        return WorkloadBuilder(msgspec.structs.replace(self.obj, spec=msgspec.structs.replace(self.obj.spec, **fields)))

    def cond(
        self, type_: str, status: str = "True", reason: str = "", message: str = "", at: float = -60
    ) -> WorkloadBuilder:
        new = condition(type_, status, reason, message, at)
        others = tuple(each for each in self.obj.status.conditions if each.type != type_)
        return self._status(conditions=(*others, new))

    def reserved(self, at: float = -60, **more: Any) -> WorkloadBuilder:
        return self._status(admission=admission(**more)).cond(names.QUOTA_RESERVED, at=at)

    def admitted(self, at: float = -60, **more: Any) -> WorkloadBuilder:
        return self.reserved(at, **more).cond(names.ADMITTED, at=at)

    def evicted(self, reason: str, at: float = -30) -> WorkloadBuilder:
        return self.cond(names.EVICTED, reason=reason, message=f"because of {reason}", at=at)

    def check(self, name: str, state: str, at: float = -10, **more: Any) -> WorkloadBuilder:
        new = kueue.AdmissionCheckState(name=name, state=state, last_transition_time=stamp(at), message="", **more)
        return self._status(admission_checks=(*self.obj.status.admission_checks, new))

    def requeue(self, at: float | None = None, count: int | None = None) -> WorkloadBuilder:
        return self._status(requeue_state=kueue.RequeueState(count=count, requeue_at=None if at is None else stamp(at)))

    def status(self, **fields: Any) -> WorkloadBuilder:
        return self._status(**fields)

    def owned(self, kind: str = "Job") -> WorkloadBuilder:
        return self._metadata(owner_references=(OwnerReference("batch/v1", kind, "j", "uid-of-j", controller=True),))

    def labels(self, **labels: str) -> WorkloadBuilder:
        return self._metadata(labels=labels)

    def annotated(self, key: str, value: str) -> WorkloadBuilder:
        return self._metadata(annotations={key: value})

    def finalized(self) -> WorkloadBuilder:
        return self._metadata(finalizers=(names.RESOURCE_IN_USE_FINALIZER,))

    def deleting(self) -> WorkloadBuilder:
        return self._metadata(deletion_timestamp=stamp())


def workload(name: str = "w", queue: str = "lq", count: int = 2, cpu: str = "1") -> WorkloadBuilder:
    return WorkloadBuilder(
        kueue.Workload(
            metadata=ObjectMeta(
                name=name,
                namespace=NAMESPACE,
                uid=f"uid-{name}",
                resource_version="7",
                generation=1,
                creation_timestamp=stamp(-100),
            ),
            spec=kueue.WorkloadSpec(
                queue_name=queue, pod_sets=(kueue.PodSet(name="main", count=count, template=template(cpu)),)
            ),
        )
    )


def cluster_queue(
    name: str = "cq", *, nominal: str = "10", checks: tuple[str, ...] = (), cohort: str | None = None, **spec: Any
) -> kueue.ClusterQueue:
    quota = kueue.ResourceQuota(name="cpu", nominal_quota=nominal)
    return kueue.ClusterQueue(
        metadata=ObjectMeta(name=name, uid=f"uid-{name}", resource_version="3", generation=1),
        spec=kueue.ClusterQueueSpec(
            resource_groups=(
                kueue.ResourceGroup(
                    covered_resources=("cpu",), flavors=(kueue.FlavorQuotas(name="default", resources=(quota,)),)
                ),
            ),
            namespace_selector=meta.LabelSelector(),
            cohort_name=cohort,
            admission_checks_strategy=kueue.AdmissionChecksStrategy(
                admission_checks=tuple(kueue.AdmissionCheckStrategyRule(name=check) for check in checks)
            )
            if checks
            else None,
            **spec,
        ),
    )


def local_queue(name: str = "lq", queue: str = "cq", **spec: Any) -> kueue.LocalQueue:
    return kueue.LocalQueue(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=f"uid-{name}", resource_version="3", generation=1),
        spec=kueue.LocalQueueSpec(cluster_queue=queue, **spec),
    )


def settings(**fields: Any) -> Settings:
    return Settings(namespace="kueue-system", **fields)


def facts(
    *,
    ownership: Ownership = Ownership.JOB,
    queue: kueue.ClusterQueue | None = None,
    local: kueue.LocalQueue | None = None,
    value: int | None = None,
    waiting: WaitForPodsReady | None = None,
    **more: Any,
) -> Facts:
    return Facts(
        settings(wait_for_pods_ready=waiting, **more),
        ownership,
        local if local is not None else local_queue(),
        queue if queue is not None else cluster_queue(),
        value,
    )


WAITING = WaitForPodsReady(
    timeout=Seconds(60),
    recovery_timeout=Seconds(30),
    requeuing_strategy=RequeuingStrategy(backoff_limit_count=2, backoff_base_seconds=10, backoff_max_seconds=15),
)

RETAINED = ObjectRetentionPolicies(
    workloads=WorkloadRetention(after_finished=Seconds(100), after_deactivated_by_kueue=Seconds(50))
)


def applied(before: kueue.Workload, patch: Patch) -> kueue.Workload:
    """The Workload as the API server would have it after the merge patch."""
    assert isinstance(patch.body, dict)
    assert patch.resource_version == before.metadata.resource_version
    return msgspec.convert(merged(msgspec.to_builtins(before), patch.body), kueue.Workload)
