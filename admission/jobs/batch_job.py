"""batch/v1 Job: suspended while it waits, unsuspended with the admission in its template, and put back as it was.

It decides from the Job and its Workload alone. A Job's template may be changed only while nothing of the Job can run;
`stop` and `restore` say in which order the API server takes that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from admission.api import names
from admission.api.batch import INDEXED, JOB_COMPLETE, JOB_FAILED, JOB_SUSPENDED, Job
from admission.api.kueue import PodSet, Workload
from admission.api.meta import TRUE, epoch, whole_number
from admission.jobs.effects import Effect, Patch, Tell
from admission.jobs.gang import Verdict
from admission.jobs.injection import CannotStart, Directives, Injection, cleaned, injected
from admission.jobs.interface import Context, Outcome, Unit, UnitKey, units_of_controller
from admission.jobs.reconcile import abandoned
from admission.jobs.shapes import shape
from admission.jobs.single_jobs import SingleJob, lead
from admission.jobs.statuses import condition, holds_quota, merge_patch
from admission.jobs.topology_requests import topology_request
from admission.settings import Settings

GROUP = "batch"
KIND = "Job"
#: Seconds that the Job controller may take to see that a Job was started.
_ON_THEIR_WAY: Final = 3.0

POD_INDEX = "batch.kubernetes.io/job-completion-index"


class BatchJobs:
    """The adapter. Every Job is a unit: which of them are managed depends on their Workloads too."""

    name = "batch/job"
    framework = names.JOB_INTEGRATION
    kinds = frozenset({KIND})

    def unit_of(self, member: Job, settings: Settings) -> UnitKey | None:  # noqa: ARG002  # the seam's signature
        return UnitKey(self.name, member.metadata.namespace, member.metadata.name)

    def units_of_workload(self, workload: Workload) -> tuple[UnitKey, ...]:
        return units_of_controller(self.name, workload, GROUP, KIND)

    def reconcile(self, unit: Unit, context: Context) -> Outcome:
        if not unit.members:
            return Outcome(abandoned(KIND, unit.workloads))
        gang = JobGang(unit.members[0], partial=context.settings.gate("PartialAdmission"))
        return lead(gang, unit.workloads, context)


@dataclass(frozen=True, slots=True)
class JobGang(SingleJob):
    """One Job. `partial`: whether it may start with fewer pods than it asks for."""

    job: Job
    partial: bool = True

    # ------------------------------------------------------------------ who it is

    @property
    def kind(self) -> str:
        return KIND

    @property
    def api_version(self) -> str:
        return self.job.api_version

    @property
    def members(self) -> tuple[Job, ...]:
        return (self.job,)

    # ------------------------------------------------------------------ how it is

    @property
    def is_over(self) -> bool:
        """The Job controller leaves a Job alone that is being deleted, so its status says nothing more."""
        return self.job.metadata.is_deleting

    @property
    def runs(self) -> bool:
        return not self.job.spec.suspend

    @property
    def is_stopping(self) -> bool:
        return self.metadata.annotations.get(names.STOPPING) == "true"

    @property
    def is_active(self) -> bool:
        """Pods that are on their way out do not count as active in a Job's status, yet they occupy their nodes."""
        status = self.job.status
        return status.active > 0 or bool(status.terminating)

    def pods_may_follow(self, workload: Workload, now: float) -> float:
        """The Job controller makes pods until it has seen that the Job is suspended again.

        As long as it has not even told that the Job was started, the status does not say whether it is about to.
        """
        admitted = condition(workload, names.ADMITTED)
        if not self.is_stopping or self.runs or self.job.status.start_time is not None or admitted is None:
            return 0.0
        since = epoch(admitted.last_transition_time)
        for each in self.job.status.conditions:
            told = each.last_transition_time if each.type == JOB_SUSPENDED and each.status == TRUE else None
            if told is not None and epoch(told) > since:
                return 0.0
        return min(_ON_THEIR_WAY, max(0.0, since + _ON_THEIR_WAY - now))

    @property
    def verdict(self) -> Verdict | None:
        for each in self.job.status.conditions:
            if each.type in {JOB_COMPLETE, JOB_FAILED} and each.status == TRUE:
                success = each.type == JOB_COMPLETE
                message = each.message or ("Job finished successfully" if success else "Job failed")
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

    def pod_sets(self) -> tuple[PodSet, ...]:
        return (self.pod_set(),)

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

    def _min_count(self, count: int) -> int | None:
        least = whole_number(self.metadata.annotations.get(names.JOB_MIN_PARALLELISM, ""))
        return least if self.partial and least is not None and 1 <= least <= count else None

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
            if (
                self.is_stopping
                and not holds_quota(workload)
                and names.JOB_MIN_PARALLELISM in self.metadata.annotations
            ):
                counts.add(mine.count)  # the parallelism of an admission that is gone already
            same_pods = (own.spec.containers, own.spec.init_containers) == (
                other.spec.containers,
                other.spec.init_containers,
            )
            return same_pods and mine.count in counts
        return own == other and (mine.count, mine.min_count) == (theirs.count, theirs.min_count)

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
        return (started, self.started(workload))

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
        if count != self.count and names.JOB_MIN_PARALLELISM in self.metadata.annotations:
            spec["parallelism"] = count
            if self.metadata.annotations.get(names.JOB_COMPLETIONS_EQUAL_PARALLELISM) == "true":
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
