"""A gang that is one object: a Job, a job with an operator of its own, a single pod.

It decides from the object and its Workloads what all of these have in common: whose Workloads they are, whether it is
queued at all, and the Workload made of it. What its pods are, and how it starts and stops, each kind says itself; a
Workload that another object owns must never be taken for its own.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from admission.api import names
from admission.api.decoding import plain
from admission.api.kueue import PodSet, Workload
from admission.api.meta import ObjectMeta, OwnerReference
from admission.jobs import ancestors, composing
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Effect, Patch, Ref, Severity, Tell
from admission.jobs.gang import Gang
from admission.jobs.interface import Context, Outcome
from admission.jobs.prebuilt import take
from admission.jobs.priority import ClassMissing, resolve
from admission.jobs.reconcile import abandoned, queue_problem, reconcile
from admission.jobs.shapes import shape
from admission.jobs.statuses import holds_quota, workload_ref
from admission.settings import Settings


class SingleJob(Gang):
    """What such a gang is unless its kind says otherwise."""

    __slots__ = ()

    # ------------------------------------------------------------------ who it is

    @property
    @abstractmethod
    def api_version(self) -> str: ...

    @property
    def metadata(self) -> ObjectMeta:
        return self.members[0].metadata

    @property
    def ref(self) -> Ref:
        return Ref(self.kind, self.metadata.namespace, self.metadata.name, self.metadata.uid)

    @property
    def owner(self) -> OwnerReference:
        return OwnerReference(self.api_version, self.kind, self.metadata.name, self.metadata.uid, True, True)

    @property
    def waiting(self) -> tuple[Ref, ...]:
        return (self.ref,)

    def pods_may_follow(self, workload: Workload, now: float) -> float:  # noqa: ARG002
        return 0.0

    @property
    def namespace(self) -> str:
        return self.metadata.namespace

    @property
    def queue_name(self) -> str:
        return self.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str:
        return self.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")

    @property
    def pod_priority_class(self) -> str:
        """That of its pods, if it is said apart from their templates."""
        return ""

    @property
    def prebuilt(self) -> str:
        return composing.prebuilt_name(self.metadata.labels, self.metadata.annotations)

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        return None if self.prebuilt else composing.admission_gates(self.metadata.annotations)

    @property
    def maximum_execution_time(self) -> int | None:
        return composing.maximum_execution_time(self.metadata.labels)

    def ancestor(self, context: Context) -> Ancestor | None:
        return ancestors.find(self.members[0], context)

    def is_managed(self, settings: Settings) -> bool:
        return bool(self.queue_name or self.prebuilt or settings.manage_jobs_without_queue_name)

    def on_hold(self, own: tuple[Workload, ...], context: Context) -> Outcome | None:  # noqa: ARG002
        """What is to be done while it could not run, with or without quota; None if it could."""
        return None

    # ------------------------------------------------------------------ to a Workload

    @abstractmethod
    def pod_sets(self) -> tuple[PodSet, ...] | None:
        """None while it cannot be told which pods there are."""

    @abstractmethod
    def says_the_same(self, workload: Workload) -> bool:
        """Whether the Workload's pod sets are the job's."""

    def fits(self, context: Context, workload: Workload) -> bool:  # noqa: ARG002
        """Whether a Workload that somebody made beforehand is for such a job."""
        return self.says_the_same(workload)

    def matches(self, workload: Workload) -> bool:
        if self.prebuilt:
            return True
        limit = workload.spec.maximum_execution_time_seconds
        return limit == self.maximum_execution_time and self.says_the_same(workload)

    def update(self, workload: Workload) -> tuple[Effect, ...]:
        pod_sets = self.pod_sets()
        if pod_sets is None:
            return ()
        spec = {"podSets": plain(pod_sets), "maximumExecutionTimeSeconds": self.maximum_execution_time}
        return (Patch(workload_ref(workload), {"spec": spec}, resource_version=workload.metadata.resource_version),)

    def compose(self, context: Context) -> Outcome:
        meta, settings = self.metadata, context.settings
        if not self.queue_name:
            return Outcome(queue_problem(self, context))
        pod_sets = self.pod_sets()
        if not pod_sets:
            return Outcome()
        classes = (self.pod_priority_class, *(shape(each.template).spec.priority_class_name for each in pod_sets))
        priority = resolve(self.priority_class, classes, context, meta.namespace)
        if isinstance(priority, ClassMissing):
            reason = names.EVENT_PRIORITY_CLASS_NOT_FOUND
            return Outcome((Tell(self.ref, reason, priority.message, Severity.WARNING),))
        group, _, _ = self.api_version.rpartition("/")
        short = settings.gate("ShortWorkloadNames")
        parts = composing.Composition(
            namespace=meta.namespace,
            name=composing.workload_name(self.kind, group, meta.name, meta.uid, short=short),
            queue=self.queue_name,
            pod_sets=pod_sets,
            priority=priority,
            owners=(self.owner,),
            job_uid=meta.uid,
            maximum_execution_time_seconds=self.maximum_execution_time,
            labels=composing.copied_labels(meta.labels, settings.integrations.label_keys_to_copy),
            annotations=composing.copied_annotations(meta.annotations),
        )
        return Outcome((composing.create(parts), *queue_problem(self, context)))

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:  # noqa: ARG002
        return Outcome()

    def with_conditions(self, workload: Workload, now: float) -> Workload:  # noqa: ARG002
        return workload

    # ------------------------------------------------------------------ and back

    def started(self, workload: Workload) -> Tell:
        queue = workload.status.admission.cluster_queue if workload.status.admission else ""
        return Tell(self.ref, names.EVENT_STARTED, f"Admitted by clusterQueue {queue}")

    def finalize(self) -> tuple[Effect, ...]:
        return ()


# ------------------------------------------------------------------ leading it


def lead(job: SingleJob, workloads: tuple[Workload, ...], context: Context) -> Outcome:
    """What to do for a job and the Workloads of all objects that ever had its name."""
    own = tuple(each for each in workloads if each.metadata.controller_uid == job.metadata.uid)
    of_namesakes = tuple(each for each in workloads if each not in own)
    outcome = _lead_own(job, own, context)
    return Outcome((*abandoned(job.kind, of_namesakes), *outcome.effects), outcome.requeue_after)


def _lead_own(job: SingleJob, own: tuple[Workload, ...], context: Context) -> Outcome:
    if not job.is_managed(context.settings):
        if not own:
            return Outcome()
        if not job.runs and not any(holds_quota(workload) for workload in own):
            return Outcome(abandoned(job.kind, own))  # it has left its queue
    if job.prebuilt and not job.is_over:
        taken = take(job.prebuilt, job.ref, job.owner, context, partial(job.fits, context))
        if isinstance(taken, Outcome):
            return taken
        own = (taken,)
    held = job.on_hold(own, context)
    return reconcile(job, own, context) if held is None else held
