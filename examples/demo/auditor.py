"""Follows pods, Jobs and Workloads by watches of its own, and judges from those objects alone what happened.

Everything an API server stores gets a revision of one global order, so "bound before admitted" is a comparison of two
integers and no matter of clocks. Muster's own word (statuses of queues, metrics, inspection) counts for nothing here.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from examples.demo.manifests import COHORTS, GANG_LABEL, GPU
from examples.demo.trace import Gang
from tests.controlplane.cluster import Api

COHORT_OF = {team: cohort for cohort, teams in COHORTS.items() for team in teams}
NOMINAL = {cohort: sum(teams.values()) for cohort, teams in COHORTS.items()}
#: A release is in part when it is still incomplete after this many seconds.
RELEASE_TIME = 10.0


@dataclass(frozen=True)
class Seen:
    """One state of one object: global revision, local time of arrival, and the object (None: deleted)."""

    revision: int
    at: float
    obj: dict[str, Any] | None


@dataclass
class Trail:
    """All states of one object, oldest first."""

    first: dict[str, Any]
    states: list[Seen] = field(default_factory=list)

    @property
    def now(self) -> dict[str, Any] | None:
        return self.states[-1].obj

    def first_revision(self, holds: Callable[[dict[str, Any]], Any]) -> int | None:
        """Of the first state for which `holds` is true."""
        return next((state.revision for state in self.states if state.obj and holds(state.obj)), None)


def condition(obj: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def is_true(obj: dict[str, Any] | None, kind: str) -> bool:
    return condition(obj, kind).get("status") == "True"


def gpus(pod: dict[str, Any]) -> int:
    return sum(int(c["resources"]["limits"][GPU]) for c in pod["spec"]["containers"])


def is_running(pod: dict[str, Any] | None) -> bool:
    return bool(pod and pod["spec"].get("nodeName") and pod["status"].get("phase") not in {"Succeeded", "Failed"})


def held(workload: dict[str, Any] | None) -> int:
    """GPUs that a Workload holds by its admission, less those of pods that it has given back because they ended."""
    status = (workload or {}).get("status") or {}
    admission = status.get("admission")
    if not admission or is_true(workload, "Finished"):
        return 0
    given_back = {entry["name"]: int(entry["count"]) for entry in status.get("reclaimablePods") or []}
    total = 0
    for assignment in admission["podSetAssignments"]:
        count, usage = int(assignment["count"]), int(assignment.get("resourceUsage", {}).get(GPU, 0))
        total += usage * max(0, count - given_back.get(assignment["name"], 0)) // count if count else 0
    return total


class Auditor:
    """`trails[kind][uid]` grows as the watches deliver; the judgements below are pure functions of it."""

    KINDS = ("Pod", "Job", "Workload")

    def __init__(self, api: Api, gangs: list[Gang]) -> None:
        self.api = api
        self.gangs = {gang.name: gang for gang in gangs}
        self.trails: dict[str, dict[str, Trail]] = {kind: {} for kind in self.KINDS}
        self.submitted: dict[str, float] = {}
        self._lock = threading.Lock()
        self._running = True

    def start(self) -> None:
        for kind in self.KINDS:
            told = (kind, partial(self._add, kind), lambda: self._running)
            threading.Thread(target=self.api.follow, args=told, daemon=True).start()

    def stop(self) -> None:
        self._running = False

    def _add(self, kind: str, event: str, obj: dict[str, Any]) -> None:
        seen = Seen(int(obj["metadata"]["resourceVersion"]), time.monotonic(), None if event == "DELETED" else obj)
        with self._lock:
            self.trails[kind].setdefault(obj["metadata"]["uid"], Trail(obj)).states.append(seen)

    def all(self, kind: str) -> list[Trail]:
        with self._lock:
            return [Trail(t.first, list(t.states)) for t in self.trails[kind].values()]

    # ---- which gang

    def gang_of(self, kind: str, obj: dict[str, Any]) -> str | None:
        """By our label on pods and Jobs; Workloads by the objects that own them."""
        metadata = obj["metadata"]
        if kind != "Workload":
            gang: str | None = metadata.get("labels", {}).get(GANG_LABEL)
            return gang
        for owner in metadata.get("ownerReferences") or []:
            with self._lock:
                trail = self.trails.get(owner["kind"], {}).get(owner["uid"])
            if trail:
                return self.gang_of(owner["kind"], trail.first)
        return None

    def by_gang(self, kind: str) -> dict[str, list[Trail]]:
        found: dict[str, list[Trail]] = defaultdict(list)
        for trail in self.all(kind):
            latest = next((s.obj for s in reversed(trail.states) if s.obj), trail.first)
            gang = self.gang_of(kind, latest)
            if gang:
                found[gang].append(trail)
        return found

    # ---- judgements

    def finished(self) -> set[str]:
        """Gangs with as many succeeded pods as they have members."""
        pods = self.by_gang("Pod")
        done = {
            name: sum(any(s.obj and s.obj["status"].get("phase") == "Succeeded" for s in t.states) for t in trails)
            for name, trails in pods.items()
        }
        return {name for name, gang in self.gangs.items() if done.get(name, 0) >= gang.pods}

    def admissions(self) -> dict[str, list[tuple[Seen, Seen | None]]]:
        """For each gang the spans in which a Workload of it was admitted: first state, and the first after it."""
        spans: dict[str, list[tuple[Seen, Seen | None]]] = defaultdict(list)
        for name, trails in self.by_gang("Workload").items():
            for trail in trails:
                opened: Seen | None = None
                for seen in trail.states:
                    is_open = is_true(seen.obj, "Admitted") and not is_true(seen.obj, "Evicted")
                    if is_open and opened is None:
                        opened = seen
                    elif opened is not None and not is_open:
                        spans[name].append((opened, seen))
                        opened = None
                if opened is not None:
                    spans[name].append((opened, None))
        return spans

    def preempted(self) -> set[str]:
        return {
            name
            for name, trails in self.by_gang("Workload").items()
            if any(is_true(s.obj, "Preempted") for t in trails for s in t.states)
        }

    def bound_early(self) -> int:
        """Pods that had a node though their gang was not admitted at any moment of their life until then.

        What was let go may be bound a moment after its gang was evicted: it is on its way out then.
        """
        spans, early = self.admissions(), 0
        for name, trails in self.by_gang("Pod").items():
            for trail in trails:
                made, bound = trail.states[0].revision, trail.first_revision(lambda pod: pod["spec"].get("nodeName"))
                early += bound is not None and not any(
                    start.revision < bound and (end is None or end.revision > made)
                    for start, end in spans.get(name, [])
                )
        return early

    def partial(self) -> int:
        """Admissions that released some pods of their gang and not all, though there was time for it."""
        pods, count = self.by_gang("Pod"), 0
        for name, spans in self.admissions().items():
            for start, end in spans:
                ended = time.monotonic() if end is None else end.at
                released, done = 0, 0
                for trail in pods.get(name, []):
                    freed = trail.first_revision(lambda pod: not pod["spec"].get("schedulingGates"))
                    succeeded = trail.first_revision(lambda pod: pod["status"].get("phase") == "Succeeded")
                    if succeeded is not None and succeeded < start.revision:
                        done += 1
                    elif freed is not None and freed > start.revision:
                        released += end is None or freed < end.revision
                count += 0 < released < self.gangs[name].pods - done and ended - start.at > RELEASE_TIME
        return count

    def quota(self) -> tuple[int, float]:
        """How often more was held, or more was running, than a cohort has; and the peak share of all GPUs held."""
        steps: list[tuple[int, str, str, str, int]] = []
        for trail in self.all("Workload"):
            uid = trail.first["metadata"]["uid"]
            cohort = COHORT_OF[trail.first["metadata"]["namespace"]]
            steps += [(s.revision, "held", cohort, uid, held(s.obj)) for s in trail.states]
        for trail in self.all("Pod"):
            uid = trail.first["metadata"]["uid"]
            team = trail.first["metadata"]["namespace"]
            if team in COHORT_OF:
                steps += [
                    (s.revision, "run", COHORT_OF[team], uid, gpus(s.obj) if s.obj and is_running(s.obj) else 0)
                    for s in trail.states
                ]
        amounts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        exceeded, peak = 0, 0
        for _, what, cohort, uid, amount in sorted(steps):
            amounts[what, cohort][uid] = amount
            exceeded += sum(amounts[what, cohort].values()) > NOMINAL[cohort]
            peak = max(peak, sum(sum(a.values()) for (w, _), a in amounts.items() if w == "held"))
        return exceeded, peak / sum(NOMINAL.values())

    def gates_left(self) -> int:
        """Pods that are there and still gated."""
        return sum(bool(p["spec"].get("schedulingGates")) for p in self.api.list("Pod"))

    def waits(self) -> list[float]:
        """Seconds from the submission of each gang to its first admission."""
        spans = self.admissions()
        return sorted(
            min(start.at for start, _ in spans[name]) - at for name, at in self.submitted.items() if spans.get(name)
        )
