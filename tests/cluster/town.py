"""Muster as real processes beside a whole control plane, and what the API server stored of it, state by state.

`Trails` follows pods, Jobs and Workloads by watches of its own: every stored state has a revision of one global order,
so "bound before admitted" compares two integers. Muster's own word never counts for a judgement.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from admission import lifeline
from tests.cluster.account import NAMESPACE, kubeconfig_of_muster
from tests.controlplane.cluster import KUEUE, Api, ControlPlane, eventually

ROOT = Path(__file__).parents[2]
GPU = "nvidia.com/gpu"
RACK, HOST = "example.com/rack", "kubernetes.io/hostname"
QUEUE = "kueue.x-k8s.io/queue-name"
GROUP = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
PRIORITY = "kueue.x-k8s.io/priority-class"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
GATES = {"kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"}
FINALIZER = "kueue.x-k8s.io/managed"

#: The controllers of Kubernetes that a gang's life needs.
CONTROLLERS = [
    "job-controller",
    "garbage-collector-controller",
    "node-lifecycle-controller",
    "namespace-controller",
    "pod-garbage-collector-controller",
]
SETTINGS = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "namespace": NAMESPACE,
    "integrations": {"frameworks": ["batch/job", "pod"]},
}


# ------------------------------------------------------------------ Muster


class Muster:
    """`muster dev` with its folder."""

    def __init__(self, plane: ControlPlane, folder: Path, more: dict[str, Any] | None = None) -> None:
        self.plane, self.folder = plane, folder
        self.ready, self.log = folder / "ready", folder / "log"
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "configuration.yaml").write_text(yaml.safe_dump({**SETTINGS, **(more or {})}))

    def start(self) -> None:
        self.ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "admission.cli", "dev", "--kubeconfig", self.plane.kubeconfig]
        command += ["--work-as", kubeconfig_of_muster(self.plane), "--dir", str(self.folder)]
        command += ["--config", str(self.folder / "configuration.yaml")]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--ready-file", str(self.ready)], stdout=log, stderr=log, cwd=ROOT
            )
        eventually(self._is_ready, seconds=90, message="muster is ready")

    def _is_ready(self) -> bool:
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(self.log.read_text()[-3000:])
        return self.ready.exists()

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60)

    def child(self, command: str) -> int | None:
        """Process id of the child that runs `muster COMMAND`."""
        assert self.process is not None
        mark = f"{lifeline.PARENT}={self.process.pid}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                if mark not in (entry / "environ").read_bytes().split(b"\0"):
                    continue
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == self.process.pid and command.encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    return int(entry.name)
        return None

    def kill(self, command: str) -> None:
        """kill -9 of a child; its supervisor starts another."""
        pid = self.child(command)
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def complaints(self) -> list[str]:
        """What the log says of bugs."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if "Traceback" in line]


# ------------------------------------------------------------------ what was stored


class Seen(NamedTuple):
    """One state of one object; `obj` is None once it is gone."""

    revision: int
    obj: dict[str, Any] | None


@dataclass
class Trail:
    """All states of one object, oldest first."""

    kind: str
    first: dict[str, Any]
    states: list[Seen] = field(default_factory=list)

    @property
    def now(self) -> dict[str, Any] | None:
        return self.states[-1].obj

    @property
    def last(self) -> dict[str, Any]:
        """The latest state in which it was there."""
        return next((s.obj for s in reversed(self.states) if s.obj), self.first)

    @property
    def uid(self) -> str:
        return str(self.first["metadata"]["uid"])

    @property
    def name(self) -> str:
        return str(self.first["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.first["metadata"]["namespace"])

    def first_that(self, question: Any) -> int | None:
        """Revision of the first state for which the question is true."""
        return next((s.revision for s in self.states if s.obj and question(s.obj)), None)


def condition(obj: dict[str, Any] | None, kind: str) -> dict[str, Any]:
    conditions = ((obj or {}).get("status") or {}).get("conditions") or []
    return next((c for c in conditions if c["type"] == kind), {})


def is_true(obj: dict[str, Any] | None, kind: str) -> bool:
    return condition(obj, kind).get("status") == "True"


def gates(pod: dict[str, Any]) -> set[str]:
    return {gate["name"] for gate in pod["spec"].get("schedulingGates") or []}


def gpus(pod: dict[str, Any]) -> int:
    return sum(int(c.get("resources", {}).get("requests", {}).get(GPU, 0)) for c in pod["spec"]["containers"])


def is_bound(pod: dict[str, Any]) -> bool:
    return bool(pod["spec"].get("nodeName"))


def is_terminal(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in {"Succeeded", "Failed"}


def is_running(pod: dict[str, Any]) -> bool:
    """Whether it uses its node: without any grace left, only a finalizer keeps the object of a pod that is gone."""
    return is_bound(pod) and not is_terminal(pod) and pod["metadata"].get("deletionGracePeriodSeconds") != 0


def held(workload: dict[str, Any] | None, resource: str = GPU) -> int:
    """Whole units that a Workload holds by its admission, without those of pods that have ended."""
    admission = ((workload or {}).get("status") or {}).get("admission")
    if not admission or is_true(workload, "Finished"):
        return 0
    reclaimable = {p["name"]: p["count"] for p in (workload or {})["status"].get("reclaimablePods") or []}
    total = 0
    for entry in admission["podSetAssignments"]:
        usage, count = int(entry.get("resourceUsage", {}).get(resource, 0)), entry.get("count", 1)
        total += usage if not count else usage * max(0, count - reclaimable.get(entry["name"], 0)) // count
    return total


def owners(obj: dict[str, Any]) -> set[str]:
    return {owner["uid"] for owner in obj["metadata"].get("ownerReferences") or []}


class Trails:
    """Grows as the watches deliver; the judgements are functions of it."""

    KINDS = ("Pod", "Job", "Workload")

    def __init__(self, api: Api) -> None:
        self.api = api
        self._trails: dict[str, dict[str, Trail]] = {kind: {} for kind in self.KINDS}
        #: Spans of revisions in which a watch was interrupted, so that states may be missing.
        self._gaps: list[tuple[int, int]] = []
        self._lock = threading.Lock()
        self._running = True

    def start(self) -> None:
        for kind in self.KINDS:
            told = (kind, partial(self._add, kind), lambda: self._running, self._missed)
            threading.Thread(target=self.api.follow, args=told, daemon=True).start()

    def stop(self) -> None:
        self._running = False

    def _missed(self, after: int, until: int) -> None:
        with self._lock:
            self._gaps.append((after, until))

    def _add(self, kind: str, event: str, obj: dict[str, Any]) -> None:
        obj["metadata"].pop("managedFields", None)  # half of the object, and nobody asks for it
        seen = Seen(int(obj["metadata"]["resourceVersion"]), None if event == "DELETED" else obj)
        with self._lock:
            trail = self._trails[kind].setdefault(obj["metadata"]["uid"], Trail(kind, obj))
            if not trail.states or seen.revision > trail.states[-1].revision:
                trail.states.append(seen)

    def of(self, kind: str, namespace: str | None = None, name: str | None = None) -> list[Trail]:
        self._catch_up(kind)
        with self._lock:
            found = [Trail(t.kind, t.first, list(t.states)) for t in self._trails[kind].values() if t.states]
        return [t for t in found if namespace in {None, t.namespace} and name in {None, t.name}]

    def _catch_up(self, kind: str) -> None:
        """Waits until the watch has told all that is stored now."""
        stored = [obj["metadata"] for obj in self.api.list(kind)]

        def told() -> bool:
            with self._lock:
                known = {uid: trail.states[-1].revision for uid, trail in self._trails[kind].items() if trail.states}
            return all(known.get(meta["uid"], 0) >= int(meta["resourceVersion"]) for meta in stored)

        eventually(told, message=f"the watch of {kind}s catches up")

    # ---- who belongs to whom

    def workloads_of(self, obj: Trail, workloads: Iterable[Trail]) -> list[Trail]:
        """The Workloads of a pod or Job; a Job's pod has those of the Job."""
        of = {obj.uid}
        if obj.kind == "Pod":
            of |= {o["uid"] for o in obj.first["metadata"].get("ownerReferences") or [] if o["kind"] == "Job"}
        return [w for w in workloads if any(s.obj and owners(s.obj) & of for s in w.states)]

    # ---- judgements

    def bound_early(self, namespace: str | None = None) -> list[str]:
        """Pods that got a node while no Workload of theirs was admitted."""
        # The pods first: whatever let one of them go is stored by the time that Workloads are asked for.
        pods, early = self.of("Pod", namespace), []
        workloads = self.of("Workload", namespace)
        for pod in pods:
            bound = pod.first_that(is_bound)
            if bound is None:
                continue
            mine = self.workloads_of(pod, workloads)
            if not any(start < bound for w in mine for start, _ in spans(w)):
                early.append(f"{pod.namespace}/{pod.name} at {bound}")
        return early

    def over_quota(self, limits: dict[str, int], group_of: dict[str, str]) -> list[str]:
        """Where the GPUs that Workloads hold, or that pods run with, exceed a limit. `group_of`: by namespace.

        Where a watch was interrupted nothing is judged: whoever gave quota back there may not have been seen.
        """
        steps: list[tuple[int, str, str, str, int]] = []
        for trail in self.of("Workload"):
            if (group := group_of.get(trail.namespace)) is not None:
                steps += [(s.revision, "held", group, trail.uid, held(s.obj)) for s in trail.states]
        for trail in self.of("Pod"):
            if (group := group_of.get(trail.namespace)) is not None:
                steps += [
                    (
                        s.revision,
                        "running",
                        group,
                        trail.uid,
                        gpus(s.obj) if s.obj and is_running(s.obj) else 0,
                    )
                    for s in trail.states
                ]
        amounts: dict[tuple[str, str], dict[str, int]] = defaultdict(dict)
        found = []
        for revision, what, group, uid, amount in sorted(steps):
            amounts[what, group][uid] = amount
            total = sum(amounts[what, group].values())
            if total > limits[group] and not any(after < revision <= until for after, until in self._gaps):
                found.append(f"{group} {what} {total} of {limits[group]} at {revision}")
        return found

    def admitted_twice(self, namespace: str | None = None) -> list[str]:
        """Gangs of which two Workloads held quota at the same time, and Workloads that moved while admitted."""
        found = []
        by_owner: dict[str, list[tuple[int, int | None, str]]] = defaultdict(list)
        for workload in self.of("Workload", namespace):
            for start, end in spans(workload, "QuotaReserved"):
                for owner in {uid for s in workload.states if s.obj for uid in owners(s.obj)}:
                    by_owner[owner].append((start, end, workload.name))
            assigned: Any = None
            for seen in workload.states:
                admission = (seen.obj or {}).get("status", {}).get("admission")
                if admission and assigned and admission != assigned:
                    found.append(f"{workload.name} was moved at {seen.revision}")
                assigned = admission
        for periods in by_owner.values():
            periods.sort()
            for (_, end, one), (start, _, other) in itertools.pairwise(periods):
                if end is None or start < end:
                    found.append(f"{one} and {other} at {start}")
        return found


def spans(workload: Trail, kind: str = "Admitted") -> list[tuple[int, int | None]]:
    """Revisions between which a condition was true; None where it still is."""
    found: list[tuple[int, int | None]] = []
    opened = None
    for seen in workload.states:
        is_open = is_true(seen.obj, kind)
        if is_open and opened is None:
            opened = seen.revision
        elif opened is not None and not is_open:
            found.append((opened, seen.revision))
            opened = None
    return [*found, *([(opened, None)] if opened is not None else [])]


# ------------------------------------------------------------------ objects


def kueue(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}


def node(name: str, rack: str, gpus_: int = 8) -> dict[str, Any]:
    capacity = {GPU: str(gpus_), "cpu": "96", "memory": "1Ti", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "fake node"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, RACK: rack, "example.com/gpu": "h100"}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def template(
    gpus_: int = 0, *, labels: Any = None, annotations: Any = None, run_for: str = "", cpu: str = "1"
) -> dict[str, Any]:
    amounts = {"cpu": cpu, **({GPU: str(gpus_)} if gpus_ else {})}
    annotations = {**(annotations or {}), **({"example.com/run-for": run_for} if run_for else {})}
    container = {"name": "train", "image": "example.com/train", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"labels": labels or {}, "annotations": annotations},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]},
    }


def pod(
    namespace: str, name: str, gpus_: int = 1, *, queue: str = "", group: str = "", total: int = 0, **more: Any
) -> Any:
    """A pod; of a group where one is named."""
    labels = {**more.pop("labels", {}), **({QUEUE: queue} if queue else {}), **({GROUP: group} if group else {})}
    annotations = {**more.pop("annotations", {}), **({TOTAL: str(total)} if total else {})}
    body = template(gpus_, labels=labels, annotations=annotations, **more)
    body["metadata"] |= {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Pod", **body}


def job(
    namespace: str, name: str, pods: int = 1, gpus_: int = 1, *, queue: str = "", priority: str = "", **more: Any
) -> Any:
    labels = {**({QUEUE: queue} if queue else {}), **({PRIORITY: priority} if priority else {})}
    spec = {"parallelism": pods, "completions": pods, "template": template(gpus_, **more)}
    metadata = {"name": name, "namespace": namespace, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


# ------------------------------------------------------------------ the town


class Town:
    """A cluster of 4 racks of 2 nodes with 8 GPUs each, Muster, and the trails of what happens."""

    def __init__(self, plane: ControlPlane, muster: Muster, trails: Trails) -> None:
        self.plane, self.muster, self.trails, self.api = plane, muster, trails, plane.api
        self.razed: set[str] = set()

    def team(self, nominal: int, *, cohort: str = "", local: str = "default", **more: Any) -> str:
        """A namespace with a LocalQueue and a ClusterQueue of its own name. More: fields of the ClusterQueue."""
        name = self.plane.namespace(prefix="team")
        quotas = [{"name": GPU, "nominalQuota": str(nominal)}, {"name": "cpu", "nominalQuota": "10k"}]
        flavor = {"name": "h100", "resources": quotas}
        spec = {
            "namespaceSelector": {},
            "resourceGroups": [{"coveredResources": [GPU, "cpu"], "flavors": [flavor]}],
            "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
            **({"cohortName": cohort} if cohort else {}),
            **more,
        }
        self.api.create(kueue("ClusterQueue", name, spec))
        if local:
            self.api.create(kueue("LocalQueue", local, {"clusterQueue": name}, name))
            # The webhook knows of a queue as soon as its informer does.
            eventually(lambda: self.api.get("LocalQueue", local, name)["status"]["conditions"])
        return name

    def steady(self) -> None:
        """Waits until reviews are answered, as after a kill."""
        probe = kueue("ResourceFlavor", "probe", {})
        eventually(lambda: self.api.create(probe, dry_run=True), seconds=60, message="reviews are answered")

    def workloads(self, namespace: str) -> list[dict[str, Any]]:
        return self.api.list("Workload", namespace)

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        return self.api.list("Pod", namespace)

    def running(self, namespace: str) -> list[dict[str, Any]]:
        return [p for p in self.pods(namespace) if is_running(p) and p["status"].get("phase") == "Running"]

    def raze(self, *names: str) -> None:
        """Deletes teams whole, and waits for none of it."""
        self.razed |= set(names)
        for name in names:
            self.api.delete("Namespace", name)
            self.api.delete("ClusterQueue", name)

    def all_razed(self, seconds: float = 120) -> None:
        """Nothing of a deleted team may stay Terminating."""
        for kind in ("Namespace", "ClusterQueue"):
            eventually(
                lambda kind=kind: not self.razed & {obj["metadata"]["name"] for obj in self.api.list(kind)},
                seconds=seconds,
                message=f"every deleted {kind} goes",
            )


@contextlib.contextmanager
def town(plane: ControlPlane, folder: Path, more: dict[str, Any] | None = None) -> Iterator[Town]:
    """With `more` settings than the usual ones."""
    muster, trails = Muster(plane, folder, more), Trails(plane.api)
    muster.start()
    trails.start()
    try:
        for i in range(8):
            plane.api.create(node(f"host-{i}", f"rack-{i // 2}"))
        plane.api.create(kueue("Topology", "racks", {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOST}]}))
        labels = {"example.com/gpu": "h100"}
        plane.api.create(kueue("ResourceFlavor", "h100", {"nodeLabels": labels, "topologyName": "racks"}))
        for name, value in (("low", 10), ("high", 1000)):
            body = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            plane.api.create(body)
        yield Town(plane, muster, trails)
    finally:
        trails.stop()
        muster.stop()
