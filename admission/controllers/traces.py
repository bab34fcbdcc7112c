"""Follows gangs from the first create to bound pods, and tells each as one trace: where the time went, and why.

Read off what the controller observes anyway and the plans of the core; ids follow from the Workload's uid, so nothing
is written for it and a controller that takes over goes on in the same trace. It must never be asked by anything that
decides, nor keep more of a gang than a few numbers; it is not there at all unless traces are switched on.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, ParamSpec

from admission.api import names
from admission.api.batch import Job
from admission.api.job_kinds import CustomJob
from admission.api.kueue import Workload
from admission.controllers import conditions, observe
from admission.controllers.act import Gone, Written
from admission.controllers.cluster import Cluster
from admission.controllers.inbox import Item, Observed
from admission.controllers.store import key_of
from admission.kube.informers import Deleted, Replaced, Upserted
from admission.telemetry import ROOT, Mark, Span, Value, is_sampled, read_stamp
from queues.core.plan import Admit, Evict, Hold, Plan

log = logging.getLogger(__name__)
Arguments = ParamSpec("Arguments")

#: Gangs that are followed at once; more are left out.
_MOST: Final = 20_000
#: Of one gang: members whose gates have a span, reasons for waiting that are marked.
_MOST_GATES: Final = 16
_MOST_REASONS: Final = 32
_KINDS: Final = frozenset({"Workload", "Pod", "Job"})
_OWN_GATES: Final = frozenset({names.ADMISSION_GATE, names.TOPOLOGY_GATE})


@dataclass(slots=True)
class Life:
    """What is remembered of one attempt of a gang. Times are seconds since the epoch, None for what is not there yet.

    `attempt` counts the evictions before it; `gathered_at`: the Workload was there, or back in the queue. `released`
    and `bound` are uids of pods.
    """

    workload: Workload
    attempt: int
    gathered_at: float
    reasons: list[Mark] = field(default_factory=list)
    decided: tuple[float, float] | None = None
    decision: Admit | None = None
    reserved_at: float | None = None
    admitted_at: float | None = None
    released_at: float | None = None
    released: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)

    @property
    def uid(self) -> str:
        return self.workload.metadata.uid


class Traces:
    """`send` gets each span when it has ended; `ratio` is the share of gangs that are followed."""

    def __init__(
        self, cluster: Cluster, send: Callable[[Span], None], ratio: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._cluster = cluster
        self._send = send
        self._ratio = ratio
        self._clock = clock
        self._lives: dict[str, Life] = {}

    # ------------------------------------------------------------------ what happens

    def take(self, item: Item) -> None:
        """After the cluster has taken it in."""
        self._guarded(self._take, item)

    def decided(self, plan: Plan, began: float, ended: float) -> None:
        """What one round of decisions gave, and when that was."""
        self._guarded(self._decided, plan, began, ended)

    def _guarded(self, work: Callable[Arguments, None], *args: Arguments.args, **kwargs: Arguments.kwargs) -> None:
        """A trace that is lost is better than a gang that waits."""
        try:
            work(*args, **kwargs)
        except Exception:  # whatever it is: nobody but the traces may notice
            log.exception("gangs could not be followed; those that come are")
            self._lives.clear()

    def _take(self, item: Item) -> None:
        match item:
            case Observed(kind, Replaced(items)) if kind in _KINDS:
                for obj in items:
                    self._seen(kind, obj)
            case Observed(kind, Upserted(obj)) | Written(kind, obj) if kind in _KINDS:
                self._seen(kind, obj)
            case Observed("Workload", Deleted(obj)):
                self._end(obj.metadata.uid, "removed")
            case Gone(ref) if ref.kind == "Workload" and ref.uid:
                self._end(ref.uid, "removed")
            case _:
                pass

    def _decided(self, plan: Plan, began: float, ended: float) -> None:
        for decision in plan:
            workload = self._cluster.tables.workloads.by_uid(decision.uid)
            if workload is None or not is_sampled(decision.uid, self._ratio):
                continue
            match decision:
                case Admit():
                    life = self._life(workload, began)
                    if life is not None:
                        life.decided, life.decision = (began, ended), decision
                case Hold(_, reason):
                    life = self._life(workload, began)
                    if life is not None and len(life.reasons) < _MOST_REASONS:
                        said: dict[str, Value] = {"message": reason.message}
                        if reason.remedy:
                            said["remedy"] = reason.remedy
                        life.reasons.append(Mark(reason.code.value, ended, said))
                case Evict():
                    self._evicted(workload, decision, began, ended)
                case _:
                    pass

    # ------------------------------------------------------------------ objects

    def _seen(self, kind: str, obj: Any) -> None:
        if kind == "Workload":
            self._workload(obj)
        elif kind == "Pod":
            name = observe.workload_name(obj)
            workload = None if name is None else self._cluster.tables.workloads.get(obj.metadata.namespace, name)
            life = None if workload is None else self._lives.get(workload.metadata.uid)
            if life is not None and life.admitted_at is not None:
                self._pod(life, obj)
                self._progress(life)
        else:
            unit = self._cluster.units.of_member(kind, key_of(obj))
            for workload in () if unit is None else self._cluster.units.unit(unit).workloads:
                life = self._lives.get(workload.metadata.uid)
                if life is not None and life.admitted_at is not None:
                    self._progress(life)

    def _workload(self, seen: Workload) -> None:
        workload = self._cluster.tables.workloads.get(*key_of(seen))
        if workload is None or workload.metadata.uid != seen.metadata.uid:
            return
        uid, now = workload.metadata.uid, self._clock()
        life = self._lives.get(uid)
        if conditions.is_finished(workload):
            self._end(uid, "finished")
        elif life is None:
            # One that holds quota was followed to its end before, or by another controller.
            if not conditions.holds_quota(workload) and is_sampled(uid, self._ratio):
                self._life(workload, now)
        else:
            life.workload = workload
            if life.reserved_at is None and conditions.holds_quota(workload):
                life.reserved_at = now
            if life.admitted_at is None and conditions.is_admitted(workload):
                life.admitted_at = now
                for pod in self._pods(workload):
                    self._pod(life, pod)
                self._progress(life)
            elif life.reserved_at is not None and not conditions.holds_quota(workload):
                self._end(uid, "evicted")
                self._life(workload, now)

    def _life(self, workload: Workload, now: float) -> Life | None:
        uid = workload.metadata.uid
        life = self._lives.get(uid)
        if life is None and len(self._lives) < _MOST:
            # Creation times have whole seconds: what is seen within one of them is as good as seen at once.
            attempt, created_at = _evictions(workload), workload.metadata.created_at
            gathered_at = now if attempt or now - created_at < _FRESH else created_at
            life = self._lives[uid] = Life(workload, attempt, gathered_at)
        return life

    def _pods(self, workload: Workload) -> Iterable[Any]:
        return self._cluster.tables.pods.where("workload", (workload.metadata.namespace, workload.metadata.name))

    def _pod(self, life: Life, pod: Any) -> None:
        if not any(gate.name in _OWN_GATES for gate in pod.spec.scheduling_gates):
            life.released.add(pod.metadata.uid)
        if pod.spec.node_name:
            life.bound.add(pod.metadata.uid)

    def _progress(self, life: Life) -> None:
        """Whether all its pods are on their way, and on a node."""
        expected = _expected(life.workload)
        if life.released_at is None:
            jobs = [member for member in self._members(life.workload) if _is_job(member)]
            has_started = all(not _is_suspended(job) for job in jobs) if jobs else len(life.released) >= expected
            if has_started:
                life.released_at = self._clock()
        if life.released_at is not None and len(life.bound) >= expected:
            self._end(life.uid, "bound")

    def _members(self, workload: Workload) -> list[Any]:
        units = self._cluster.units
        return [member for unit in units.claiming(workload) for member in units.unit(unit).members]

    # ------------------------------------------------------------------ spans

    def _evicted(self, workload: Workload, decision: Evict, began: float, ended: float) -> None:
        said: dict[str, Value] = {
            "muster.reason": decision.reason.value,
            "muster.message": decision.message,
            "muster.preemptor.uid": decision.preemptor,
            "muster.preemptor.cluster_queue": decision.preemptor_queue,
        }
        uid = workload.metadata.uid
        key = f"evict {_evictions(workload)}"
        links = (decision.preemptor,) if decision.preemptor else ()
        self._send(Span(uid, key, "evict", began, ended, ROOT, said, links=links))

    def _end(self, uid: str, outcome: str) -> None:
        life = self._lives.pop(uid, None)
        if life is not None:
            for span in self._spans(life, outcome):
                self._send(span)

    def _spans(self, life: Life, outcome: str) -> Iterator[Span]:
        """The trace of one attempt, the first one with how it came to be."""
        workload, uid, now = life.workload, life.uid, self._clock()
        top = ROOT if not life.attempt else f"again {life.attempt}"
        creation = list(self._creation(life)) if top == ROOT else []
        yield from creation
        began = min((span.began for span in creation), default=life.gathered_at)
        gathered_at = max((span.ended for span in creation), default=life.gathered_at)
        waited_until = now if life.decided is None else life.decided[0]
        yield self._part(life, top, "wait", gathered_at, waited_until, marks=tuple(life.reasons))
        if life.decided is not None and life.reserved_at is not None:
            yield self._part(life, top, "decide", *life.decided, said=_granted(life))
            yield self._part(life, top, "write", life.decided[1], life.reserved_at)
            if life.admitted_at is not None and workload.status.admission_checks:
                yield self._part(life, top, "checks", life.reserved_at, life.admitted_at)
        if life.admitted_at is not None:
            yield self._part(life, top, "release", life.admitted_at, life.released_at or now)
        if life.released_at is not None:
            said: dict[str, Value] = {"muster.pods.bound": len(life.bound)}
            yield self._part(life, top, "bind", life.released_at, now, said)
        yield Span(
            uid, top, "gang" if top == ROOT else "gang, again", began, now, "" if top == ROOT else ROOT,
            _identity(workload) | {"muster.outcome": outcome},
        )  # fmt: skip

    def _part(
        self,
        life: Life,
        top: str,
        name: str,
        began: float,
        ended: float,
        said: dict[str, Value] | None = None,
        marks: tuple[Mark, ...] = (),
    ) -> Span:
        return Span(life.uid, f"{top}/{name}", name, began, ended, top, said or {}, marks)

    def _creation(self, life: Life) -> Iterator[Span]:
        """From the first create to the Workload; with the webhook's own times, where it has noted them."""
        members = sorted(self._members(life.workload), key=lambda member: member.metadata.created_at)
        reviews = []
        for member in members:
            metadata = member.metadata
            noted = read_stamp(metadata.annotations.get(names.REVIEWED, ""), metadata.created_at)
            reviews.append((noted or (metadata.created_at, metadata.created_at), noted is not None, member))
        if not reviews:
            return
        first = min(began for (began, _), _, _ in reviews)
        last = max(ended for (_, ended), _, _ in reviews)
        # The Workload's time may have whole seconds, and seem to be before that of the last pod.
        gathered = max(last, life.gathered_at)
        uid, create = life.uid, f"{ROOT}/create"
        yield Span(uid, create, "create", first, last, ROOT, {"muster.objects": len(reviews)})
        reviewed = [(times, member) for times, is_noted, member in reviews if is_noted]
        for (began, ended), member in reviewed[:_MOST_GATES]:
            said: dict[str, Value] = {"muster.object": member.metadata.name}
            yield Span(uid, f"{create}/gate {member.metadata.uid}", "gate", began, ended, create, said)
        yield Span(uid, f"{ROOT}/gather", "gather", first, gathered, ROOT)


#: Seconds; see `_life`.
_FRESH: Final = 2.0


def _is_job(member: Any) -> bool:
    return isinstance(member, Job | CustomJob)


def _is_suspended(job: Job | CustomJob) -> bool:
    return job.is_suspended if isinstance(job, CustomJob) else job.spec.suspend


def _expected(workload: Workload) -> int:
    """How many pods were given quota."""
    admission = workload.status.admission
    assigned = () if admission is None else admission.pod_set_assignments
    counts = {pod_set.name: pod_set.count for pod_set in workload.spec.pod_sets}
    return sum(each.count if each.count is not None else counts.get(each.name, 0) for each in assigned)


def _evictions(workload: Workload) -> int:
    stats = workload.status.scheduling_stats
    return 0 if stats is None else sum(each.count for each in stats.evictions)


def _identity(workload: Workload) -> dict[str, Value]:
    metadata, admission = workload.metadata, workload.status.admission
    said: dict[str, Value] = {
        "k8s.namespace.name": metadata.namespace,
        "muster.workload.name": metadata.name,
        "muster.workload.uid": metadata.uid,
        "muster.local_queue": workload.spec.queue_name or "",
        "muster.cluster_queue": "" if admission is None else admission.cluster_queue,
        "muster.priority": workload.spec.priority or 0,
        "muster.pods": sum(pod_set.count for pod_set in workload.spec.pod_sets),
    }
    if metadata.owner_references:
        said["muster.owner.kind"] = metadata.owner_references[0].kind
        said["muster.owner.name"] = metadata.owner_references[0].name
    return said


def _granted(life: Life) -> dict[str, Value]:
    if life.decision is None:
        return {}
    flavors = {
        f"{resource}={flavor}" for each in life.decision.admission.pod_sets for resource, flavor in each.flavors.items()
    }
    return {
        "muster.cluster_queue": life.decision.admission.cluster_queue,
        "muster.borrows": life.decision.borrows,
        "muster.flavors": ", ".join(sorted(flavors)),
    }
