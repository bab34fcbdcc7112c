"""batch/v1 Job: suspended while it waits, unsuspended with the admission in its template, and put back as it was.

It decides from the Job and its Workload alone. A Job's template may be changed only while nothing of the Job can run;
`stop` and `restore` say in which order the API server takes that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from admission.api import names
from admission.api.batch import INDEXED, JOB_COMPLETE, JOB_FAILED, Job
from admission.api.decoding import plain
from admission.api.kueue import PodSet, Workload
from admission.api.meta import TRUE, OwnerReference
from admission.jobs import ancestors, composing
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Effect, Patch, Ref, Severity, Tell
from admission.jobs.gang import Verdict
from admission.jobs.injection import CannotStart, Directives, Injection, cleaned, injected
from admission.jobs.interface import Context, Outcome, Unit, UnitKey
from admission.jobs.prebuilt import take
from admission.jobs.priority import ClassMissing, resolve
from admission.jobs.reconcile import abandoned, queue_problem, reconcile
from admission.jobs.shapes import shape
from admission.jobs.statuses import holds_quota, merge_patch, workload_ref
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings

GROUP = "batch"
KIND = "Job"
POD_INDEX = "batch.kubernetes.io/job-completion-index"


class BatchJobs:
    """The adapter. Every Job is a unit: which of them are managed depends on their Workloads too."""

    name = "batch/job"
    framework = names.JOB_INTEGRATION
    kinds = frozenset({KIND})

    def unit_of(self, member: Job, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam's signature
        return UnitKey(self.name, member.metadata.namespace, member.metadata.name)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        owner = workload.metadata.controller
        if owner is None or owner.kind != KIND or not owner.api_version.startswith(f"{GROUP}/"):
            return ()
        return (UnitKey(self.name, workload.metadata.namespace, owner.name),)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        if not unit.members:
            return Outcome(abandoned(KIND, unit.workloads))
        job: Job = unit.members[0]
        own = tuple(workload for workload in unit.workloads if _owner_uid(workload) == job.metadata.uid)
        of_namesakes = tuple(workload for workload in unit.workloads if workload not in own)
        outcome = _reconcile(job, own, context)
        return Outcome((*abandoned(KIND, of_namesakes), *outcome.effects), outcome.requeue_after)


def _reconcile(job: Job, own: tuple[Workload, ...], context: Context) -> Outcome:
    gang = JobGang(job, partial=context.settings.gate("PartialAdmission"))
    if not (gang.queue_name or gang.prebuilt or context.settings.manage_jobs_without_queue_name):
        if not own:
            return Outcome()
        if not gang.runs and not any(holds_quota(workload) for workload in own):
            return Outcome(abandoned(KIND, own))  # it has left its queue
    if gang.prebuilt and not gang.is_over:
        taken = take(gang.prebuilt, gang.ref, gang.owner, context, gang.says_the_same)
        if isinstance(taken, Outcome):
            return taken
        own = (taken,)
    return reconcile(gang, own, context)


def _owner_uid(workload: Workload) -> str:
    owner = workload.metadata.controller
    return "" if owner is None else owner.uid


@dataclass(frozen=True, slots=True)
class JobGang:
    """One Job. `partial`: whether it may start with fewer pods than it asks for."""

    job: Job
    partial: bool = True

    # ------------------------------------------------------------------ who it is

    @property
    def kind(self) -> str:
        return KIND

    @property
    def members(self) -> tuple[Job, ...]:
        return (self.job,)

    @property
    def ref(self) -> Ref:
        meta = self.job.metadata
        return Ref(KIND, meta.namespace, meta.name, meta.uid)

    @property
    def owner(self) -> OwnerReference:
        meta = self.job.metadata
        return OwnerReference(self.job.api_version, KIND, meta.name, meta.uid, True, True)

    @property
    def waiting(self) -> tuple[Ref, ...]:
        return (self.ref,)

    @property
    def namespace(self) -> str:
        return self.job.metadata.namespace

    @property
    def queue_name(self) -> str:
        return self.job.metadata.labels.get(names.QUEUE_LABEL, "")

    @property
    def priority_class(self) -> str:
        return self.job.metadata.labels.get(names.PRIORITY_CLASS_LABEL, "")

    @property
    def prebuilt(self) -> str:
        return composing.prebuilt_name(self.job.metadata.labels, self.job.metadata.annotations)

    def ancestor(self, context: Context) -> Ancestor | None:
        return ancestors.find(self.job, context)

    # ------------------------------------------------------------------ how it is

    @property
    def is_over(self) -> bool:
        """The Job controller leaves a Job alone that is being deleted, so its status says nothing more."""
        return self.job.metadata.is_deleting

    @property
    def runs(self) -> bool:
        return not self.job.spec.suspend

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        return None if self.prebuilt else composing.admission_gates(self._annotations)

    @property
    def is_stopping(self) -> bool:
        return self._annotations.get(names.STOPPING) == "true"

    @property
    def is_active(self) -> bool:
        """Pods that are on their way out do not count as active in a Job's status, yet they occupy their nodes."""
        status = self.job.status
        return status.active > 0 or bool(status.terminating)

    @property
    def verdict(self) -> Verdict | None:
        for condition in self.job.status.conditions:
            if condition.type in {JOB_COMPLETE, JOB_FAILED} and condition.status == TRUE:
                success = condition.type == JOB_COMPLETE
                message = condition.message or ("Job finished successfully" if success else "Job failed")
                return Verdict(success, message)
        return None

    @property
    def parallelism(self) -> int:
        return 1 if self.job.spec.parallelism is None else self.job.spec.parallelism

    @property
    def count(self) -> int:
        """How many pods run at once."""
        completions = self.job.spec.completions
        return self.parallelism if completions is None else min(self.parallelism, completions)

    def is_ready(self, workload: Workload) -> bool:  # noqa: ARG002  # a Job's own count is what was admitted
        status = self.job.status
        uncounted = status.uncounted_terminated_pods
        ended = status.succeeded + (0 if uncounted is None else len(uncounted.succeeded))
        return self.runs and ended + (status.ready or 0) >= self.count

    def reclaimable(self, workload: Workload) -> dict[str, int]:
        """The pods beyond the completions that are still missing will never be started again."""
        status, completions = self.job.status, self.job.spec.completions
        if self.parallelism <= 1 or completions is None:
            return {}
        ended = status.succeeded
        if self.job.spec.completion_mode == INDEXED:
            ended = index_count((status.completed_indexes, status.failed_indexes or ""), completions)
        remaining = max(0, completions - ended)
        if ended == 0 or remaining >= self.parallelism:
            return {}
        return {pod_set.name: pod_set.count - remaining for pod_set in workload.spec.pod_sets}

    # ------------------------------------------------------------------ to a Workload

    def pod_set(self) -> PodSet:
        template = cleaned(self.job.spec.template)
        count = self.count
        annotations = Directives.of(template).annotations
        return PodSet(
            name=names.DEFAULT_POD_SET,
            template=template,
            count=count,
            min_count=self._min_count(count),
            topology_request=topology_request(annotations, POD_INDEX),
        )

    @property
    def _annotations(self) -> dict[str, str]:
        return self.job.metadata.annotations

    def _min_count(self, count: int) -> int | None:
        text = self._annotations.get(names.JOB_MIN_PARALLELISM, "")
        if not (self.partial and text.isascii() and text.isdecimal() and len(text) < 10):
            return None
        least = int(text)
        return least if 1 <= least <= count else None

    def says_the_same(self, workload: Workload) -> bool:
        """Whether the Workload's pod sets are the Job's.

        Once started, the Job's directives are changed and its parallelism may be what was admitted. While it waits,
        all that a user can still edit has to be in the Workload.
        """
        mine = self.pod_set()
        if len(workload.spec.pod_sets) != 1:
            return False
        theirs = workload.spec.pod_sets[0]
        own, other = shape(mine.template), shape(theirs.template)
        if self.runs or self.is_stopping or holds_quota(workload):
            counts = {theirs.count}
            if workload.status.admission is not None:
                counts |= {entry.count for entry in workload.status.admission.pod_set_assignments if entry.count}
            if self.is_stopping and not holds_quota(workload) and names.JOB_MIN_PARALLELISM in self._annotations:
                counts.add(mine.count)  # the parallelism of an admission that is gone already
            same_pods = (own.spec.containers, own.spec.init_containers) == (
                other.spec.containers,
                other.spec.init_containers,
            )
            return same_pods and mine.count in counts
        return own == other and (mine.count, mine.min_count) == (theirs.count, theirs.min_count)

    def matches(self, workload: Workload) -> bool:
        if self.prebuilt:
            return True
        limit = composing.maximum_execution_time(self.job.metadata.labels)
        return workload.spec.maximum_execution_time_seconds == limit and self.says_the_same(workload)

    def update(self, workload: Workload) -> tuple[Effect, ...]:
        body = {
            "spec": {
                "podSets": plain((self.pod_set(),)),
                "maximumExecutionTimeSeconds": composing.maximum_execution_time(self.job.metadata.labels),
            }
        }
        return (Patch(workload_ref(workload), body, resource_version=workload.metadata.resource_version),)

    def compose(self, context: Context) -> Outcome:
        meta = self.job.metadata
        if not self.queue_name:
            return Outcome(queue_problem(self, context))
        pod_set = self.pod_set()
        pods = shape(pod_set.template).spec
        priority = resolve(self.priority_class, (pods.priority_class_name,), context, meta.namespace)
        if isinstance(priority, ClassMissing):
            reason = names.EVENT_PRIORITY_CLASS_NOT_FOUND
            return Outcome((Tell(self.ref, reason, priority.message, Severity.WARNING),))
        parts = composing.Composition(
            namespace=meta.namespace,
            name=composing.workload_name(
                KIND, GROUP, meta.name, meta.uid, short=context.settings.gate("ShortWorkloadNames")
            ),
            queue=self.queue_name,
            pod_sets=(pod_set,),
            priority=priority,
            owners=(self.owner,),
            job_uid=meta.uid,
            maximum_execution_time_seconds=composing.maximum_execution_time(meta.labels),
            labels=composing.copied_labels(meta.labels, context.settings.integrations.label_keys_to_copy),
            annotations=composing.copied_annotations(meta.annotations),
        )
        return Outcome((composing.create(parts), *queue_problem(self, context)))

    # ------------------------------------------------------------------ nothing of its own

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:  # noqa: ARG002
        return Outcome()

    def with_conditions(self, workload: Workload, now: float) -> Workload:  # noqa: ARG002
        return workload

    def finalize(self) -> tuple[Effect, ...]:
        return ()

    # ------------------------------------------------------------------ and back

    def start(self, workload: Workload, injected_sets: tuple[Injection, ...]) -> tuple[Effect, ...] | CannotStart:
        """One patch: the API server judges a change of the template by the old Job, which is still suspended."""
        if self.runs or self.is_active or self.job.spec.managed_by == names.MULTIKUEUE_CONTROLLER:
            return ()
        injection, pod_set = injected_sets[0], workload.spec.pod_sets[0]
        wanted = injected(pod_set.template, injection)
        if isinstance(wanted, CannotStart):
            return wanted
        if clearing := self._without_start_time():
            return clearing
        body = self._change(wanted, injection.count if pod_set.min_count is not None else pod_set.count)
        body.setdefault("spec", {})["suspend"] = False
        started = Patch(self.ref, body, resource_version=self.job.metadata.resource_version)
        queue = workload.status.admission.cluster_queue if workload.status.admission else ""
        return (started, Tell(self.ref, names.EVENT_STARTED, f"Admitted by clusterQueue {queue}"))

    def stop(self, workload: Workload | None, reason: str, message: str) -> tuple[Effect, ...]:  # noqa: ARG002
        """Suspend, and mark that the template is still to be restored.

        The template cannot be restored in the same write: the API server judges it by the old Job, which is not
        suspended. The mark tells a restart between the writes that the template is not what the user wrote.
        """
        if not self.runs or self.verdict is not None:
            return ()
        body: dict[str, Any] = {"spec": {"suspend": True}}
        if workload is not None:
            body["metadata"] = {"annotations": {names.STOPPING: "true"}}
        return (Patch(self.ref, body), Tell(self.ref, names.EVENT_STOPPED, message))

    def restore(self, workload: Workload) -> tuple[Effect, ...]:
        """Put template and parallelism back to what the Workload says.

        The API server takes that from a suspended Job without active pods whose startTime is not set (since 1.36 its
        condition Suspended will do). The Job controller of 1.36 clears startTime when it has suspended the Job; older
        ones, or none, leave it, and clearing it is allowed to anyone while the Job is suspended. So the order is:
        suspend, wait for the pods, startTime, template with the mark.

        A Job that was not started has nothing to restore: what differs there is the user's edit.
        """
        was_started = self.is_stopping or holds_quota(workload)
        if not was_started or self.runs or self.is_active or self.verdict is not None:
            return ()
        pod_set = workload.spec.pod_sets[0]
        change = self._change(Directives.of(pod_set.template), pod_set.count)
        if not change:
            return ()
        return self._without_start_time() or (
            Patch(self.ref, change, resource_version=self.job.metadata.resource_version),
        )

    def _without_start_time(self) -> tuple[Effect, ...]:
        if self.job.status.start_time is None:
            return ()
        return (Patch(self.ref, {"status": {"startTime": None}}, subresource="status"),)

    def _change(self, wanted: Directives, count: int) -> dict[str, Any]:
        """The merge patch to these directives and so many pods at once, the mark of a stop taken away."""
        spec: dict[str, Any] = {}
        template = merge_patch(Directives.of(self.job.spec.template).as_template(), wanted.as_template())
        if template:
            spec["template"] = template
        if count != self.count and names.JOB_MIN_PARALLELISM in self._annotations:
            spec["parallelism"] = count
            if self._annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM) == "true":
                spec["completions"] = count
        body: dict[str, Any] = {"spec": spec} if spec else {}
        if self.is_stopping:
            body["metadata"] = {"annotations": {names.STOPPING: None}}
        return body


def index_count(lists: Iterable[str], below: int) -> int:
    """How many completion indexes are in at least one of the lists (such as "0-3,7"). Cost: their ranges."""
    ranges = []
    for part in ",".join(lists).split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            ranges.append((int(first), min(below - 1, int(last if last.isdecimal() else first))))
    count, reached = 0, -1
    for start, end in sorted(ranges):
        count += max(0, end - max(start - 1, reached))
        reached = max(reached, end)
    return count
