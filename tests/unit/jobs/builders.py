"""Plain API objects for the tests of the job adapters, and a world that carries effects out on them."""

# ruff: noqa: ARG002  # the world has one namespace only

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from admission.api import core, devices, kueue, meta, names
from admission.api.apps import StatefulSet
from admission.api.batch import Job
from admission.api.core import Pod
from admission.api.decoding import convert
from admission.api.job_kinds import JOB_KINDS, CustomJob
from admission.api.leader_worker_sets import LeaderWorkerSet
from admission.jobs.batch_job import BatchJobs
from admission.jobs.described_jobs import DescribedJobs
from admission.jobs.device_pools import Pools
from admission.jobs.effects import Create, Delete, Effect, Patch, PatchKind, Tell
from admission.jobs.interface import Adapter, Outcome, Unit, UnitKey
from admission.jobs.leader_worker_sets import LeaderWorkerSets
from admission.jobs.pod_groups import PodGroups
from admission.jobs.pods import SinglePods
from admission.jobs.registry import DESCRIPTIONS
from admission.jobs.stateful_sets import StatefulSets
from admission.jobs.topology_ungating import TopologyUngater
from admission.settings import Settings
from tests.merging import merged

NOW = 1_700_000_000.0
NS = "team"
TYPES: dict[str, Any] = {
    "Job": Job,
    "Pod": Pod,
    "Workload": kueue.Workload,
    "StatefulSet": StatefulSet,
    "LeaderWorkerSet": LeaderWorkerSet,
    **{each.kind: CustomJob for each in JOB_KINDS},
}
ADAPTERS: tuple[Adapter, ...] = (
    BatchJobs(),
    StatefulSets(),
    LeaderWorkerSets(),
    *map(DescribedJobs, DESCRIPTIONS),
    PodGroups(),
    SinglePods(),
    TopologyUngater(),
)


def stamp(seconds: float = 0.0) -> str:
    return meta.rfc3339(NOW + seconds)


def pod_template(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"restartPolicy": "Never", "containers": containers, **spec}}


def job(
    name: str = "j",
    queue: str | None = "lq",
    parallelism: int = 2,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    suspend: bool = True,
    template: dict[str, Any] | None = None,
    uid: str = "",
    **spec: Any,
) -> dict[str, Any]:
    own = {names.QUEUE_LABEL: queue} if queue else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": uid or f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": stamp(),
            "labels": {**own, **(labels or {})},
            "annotations": annotations or {},
        },
        "spec": {
            "parallelism": parallelism,
            "completions": parallelism,
            "suspend": suspend,
            "template": template or pod_template(),
            **spec,
        },
        "status": {},
    }


def pod(
    name: str = "p",
    queue: str | None = "lq",
    *,
    group: str = "",
    total: int | str = 0,
    age: float = 0.0,
    gated: bool = True,
    node: str = "",
    phase: str = "Pending",
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    finalizers: Iterable[str] = (names.POD_FINALIZER,),
    role: str = "role0000",
    **spec: Any,
) -> dict[str, Any]:
    """As it is after the webhook. `age` in seconds: the larger, the older."""
    own = {names.MANAGED_LABEL: "true"}
    if queue:
        own[names.QUEUE_LABEL] = queue
    said = {names.ROLE_HASH: role}
    if group:
        own[names.POD_GROUP_NAME] = group
        said[names.POD_GROUP_TOTAL_COUNT] = str(total)
    gates = [{"name": names.ADMISSION_GATE}, {"name": names.TOPOLOGY_GATE}] if gated else []
    body: dict[str, Any] = {**pod_template()["spec"], **spec}
    if gates:
        body["schedulingGates"] = gates
    if node:
        body["nodeName"] = node
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": NS,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": stamp(-age),
            "labels": {**own, **(labels or {})},
            "annotations": {**said, **(annotations or {})},
            "finalizers": list(finalizers),
        },
        "spec": body,
        "status": {"phase": phase},
    }


def condition(type_: str, status: str = "True", reason: str = "", message: str = "", at: float = 0.0) -> dict[str, Any]:
    return {
        "type": type_,
        "status": status,
        "reason": reason or type_,
        "message": message,
        "lastTransitionTime": stamp(at),
    }


def flavor(name: str = "df", labels: dict[str, str] | None = None, tolerations: Any = ()) -> kueue.ResourceFlavor:
    raw = {"metadata": {"name": name}, "spec": {"nodeLabels": labels or {}, "tolerations": list(tolerations)}}
    return convert(raw, kueue.ResourceFlavor)


def _prune(raw: dict[str, Any]) -> None:
    """Empty values are left out, as in what the API server answers."""
    for part in ("metadata", "spec"):
        raw[part] = {key: value for key, value in raw.get(part, {}).items() if value not in ({}, [])}


class RefusedError(Exception):
    pass


@dataclass
class World:
    """Objects by kind and name, and every effect that was carried out. It is the context of the adapters as well."""

    settings: Settings = field(default_factory=Settings)
    now: float = NOW
    objects: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    flavors: dict[str, kueue.ResourceFlavor] = field(default_factory=lambda: {"df": flavor()})
    queues: tuple[str, ...] = ("lq", "lq2")
    workload_classes: dict[str, int] = field(default_factory=dict)
    pod_classes: tuple[core.PriorityClass, ...] = ()
    ranges: tuple[core.LimitRange, ...] = ()
    runtime_classes: dict[str, core.RuntimeClass] = field(default_factory=dict)
    classes: tuple[devices.DeviceClass, ...] = ()
    claims: dict[str, devices.ResourceClaim] = field(default_factory=dict)
    claim_templates: dict[str, devices.ResourceClaimTemplate] = field(default_factory=dict)
    slices: tuple[devices.ResourceSlice, ...] = ()
    is_ending: bool = False
    ns_labels: dict[str, str] = field(default_factory=lambda: {"kubernetes.io/metadata.name": NS})
    done: list[Effect] = field(default_factory=list)
    version: int = 10
    last: Outcome = field(default_factory=Outcome)

    # ------------------------------------------------------------------ the context

    def workload_priority_class(self, name: str) -> kueue.WorkloadPriorityClass | None:
        value = self.workload_classes.get(name)
        if value is None:
            return None
        return kueue.WorkloadPriorityClass(metadata=meta.ObjectMeta(name=name), value=value)

    def priority_class(self, name: str) -> core.PriorityClass | None:
        return next((entry for entry in self.pod_classes if entry.metadata.name == name), None)

    def priority_classes(self) -> Iterable[core.PriorityClass]:
        return self.pod_classes

    def limit_ranges(self, namespace: str) -> Iterable[core.LimitRange]:
        return self.ranges

    def runtime_class(self, name: str) -> core.RuntimeClass | None:
        return self.runtime_classes.get(name)

    def device_classes(self) -> Iterable[devices.DeviceClass]:
        return self.classes

    def device_class(self, name: str) -> devices.DeviceClass | None:
        return next((each for each in self.classes if each.metadata.name == name), None)

    def device_pools(self, driver: str) -> Pools:
        return Pools.of(each for each in self.slices if each.spec.driver == driver)

    def resource_claim(self, namespace: str, name: str) -> devices.ResourceClaim | None:
        return self.claims.get(name)

    def resource_claim_template(self, namespace: str, name: str) -> devices.ResourceClaimTemplate | None:
        return self.claim_templates.get(name)

    def resource_flavor(self, name: str) -> kueue.ResourceFlavor | None:
        return self.flavors.get(name)

    def namespace_labels(self, namespace: str) -> dict[str, str]:
        return self.ns_labels

    def namespace_is_ending(self, namespace: str) -> bool:
        return self.is_ending

    def local_queue(self, namespace: str, name: str) -> kueue.LocalQueue | None:
        return kueue.LocalQueue() if name in self.queues else None

    def workload(self, namespace: str, name: str) -> kueue.Workload | None:
        raw = self.objects.get(("Workload", name))
        return None if raw is None else convert(raw, kueue.Workload)

    def owner(self, namespace: str, reference: meta.OwnerReference) -> Any:
        raw = self.objects.get((reference.kind, reference.name))
        return None if raw is None or raw["metadata"]["uid"] != reference.uid else convert(raw, TYPES[reference.kind])

    # ------------------------------------------------------------------ objects

    def put(self, *raws: dict[str, Any]) -> World:
        for raw in raws:
            self.objects[raw["kind"], raw["metadata"]["name"]] = raw
        return self

    def get(self, kind: str, name: str) -> dict[str, Any] | None:
        return self.objects.get((kind, name))

    def change(self, kind: str, name: str, patch: dict[str, Any]) -> None:
        raw = merged(self.objects[kind, name], patch)
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind, name] = raw

    def workloads(self) -> list[dict[str, Any]]:
        return [raw for (kind, _), raw in self.objects.items() if kind == "Workload"]

    @property
    def wl(self) -> dict[str, Any]:
        (only,) = self.workloads()
        return only

    def pods(self) -> dict[str, dict[str, Any]]:
        return {name: raw for (kind, name), raw in self.objects.items() if kind == "Pod"}

    # ------------------------------------------------------------------ what others do

    def admit(self, name: str = "", count: int | None = None, topology: Any = None, flavors: Any = None) -> None:
        """What the core decides and the controllers write."""
        raw = self.objects["Workload", name] if name else self.wl
        assignments = []
        for pod_set in raw["spec"]["podSets"]:
            assignment: dict[str, Any] = {
                "name": pod_set["name"],
                "flavors": flavors or {"cpu": "df"},
                "count": pod_set["count"] if count is None else count,
            }
            if topology is not None:
                assignment["topologyAssignment"] = topology
            assignments.append(assignment)
        kept = [
            entry
            for entry in raw.get("status", {}).get("conditions", [])
            if entry["type"] not in {"QuotaReserved", "Admitted", "Evicted"}
        ]
        status = {
            "conditions": [*kept, condition("QuotaReserved"), condition("Admitted")],
            "admission": {"clusterQueue": "cq", "podSetAssignments": assignments},
        }
        self.change("Workload", raw["metadata"]["name"], {"status": status})

    def evict(self, reason: str = "Preempted", message: str = "make room") -> None:
        raw = self.wl
        conditions = [*raw["status"]["conditions"], condition("Evicted", reason=reason, message=message)]
        self.change("Workload", raw["metadata"]["name"], {"status": {"conditions": conditions}})

    def delete(self, kind: str, name: str, grace: int = 30) -> None:
        """As the API server does it: what is not on a node, or held by nobody, goes at once."""
        raw = self.objects.get((kind, name))
        if raw is None:
            return
        on_node = (
            kind == "Pod" and raw["spec"].get("nodeName") and raw["status"]["phase"] not in {"Succeeded", "Failed"}
        )
        grace = grace if on_node else 0
        if not raw["metadata"].get("finalizers") and not grace:
            del self.objects[kind, name]
            return
        until = meta.rfc3339(self.now + grace)
        self.change(kind, name, {"metadata": {"deletionTimestamp": until, "deletionGracePeriodSeconds": grace}})

    def run_pod(self, name: str) -> None:
        ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        assert not self.objects["Pod", name]["spec"].get("schedulingGates"), f"{name} is gated"
        self.change("Pod", name, {"spec": {"nodeName": "n"}, "status": ready})

    def end_pod(self, name: str, phase: str = "Failed") -> None:
        """Its containers end, and the kubelet says only that; a deleted pod is then deleted for good."""
        self.change("Pod", name, {"status": {"phase": phase, "conditions": []}})
        if self.objects["Pod", name]["metadata"].get("deletionTimestamp"):
            self.delete("Pod", name, grace=0)

    # ------------------------------------------------------------------ reconciling

    def units(self) -> list[Unit]:
        members: dict[UnitKey, list[Any]] = {}
        workloads: dict[UnitKey, list[kueue.Workload]] = {}
        for (kind, _), raw in self.objects.items():
            obj = convert(raw, TYPES[kind])
            for adapter in ADAPTERS:
                if kind == "Workload":
                    for key in adapter.units_of_workload(obj):
                        workloads.setdefault(key, []).append(obj)
                elif kind in adapter.kinds and (key := adapter.unit_of(obj, self.settings)) is not None:
                    members.setdefault(key, []).append(obj)
                    break
        keys = sorted({*members, *workloads})
        return [Unit(key, tuple(members.get(key, ())), tuple(workloads.get(key, ()))) for key in keys]

    def outcomes(self) -> list[Outcome]:
        by_name = {adapter.name: adapter for adapter in ADAPTERS}
        return [by_name[unit.key.adapter].reconcile(unit, self) for unit in self.units()]

    def settle(self, rounds: int = 20, stop_after: int | None = None) -> World:
        """Reconcile until there is nothing to do but tell. `stop_after` so many writes the process dies."""
        writes = 0
        for _ in range(rounds):
            busy = False
            for outcome in self.outcomes():
                self.last = outcome
                for effect in outcome.effects:
                    if not isinstance(effect, Tell):
                        if stop_after is not None and writes >= stop_after:
                            return self
                        writes += 1
                        busy = True
                    try:
                        self.carry_out(effect)
                    except RefusedError:
                        break
            if not busy:
                return self
        raise AssertionError(f"does not settle: {self.done[-6:]}")

    def carry_out(self, effect: Effect) -> None:
        self.done.append(effect)
        key = (effect.ref.kind, effect.ref.name)
        match effect:
            case Create(body=body):
                assert key not in self.objects, f"{key} exists"
                raw = copy.deepcopy(body)
                self.version += 1
                raw["metadata"] |= {
                    "uid": f"uid-of-workload-{self.version}",
                    "resourceVersion": str(self.version),
                    "creationTimestamp": meta.rfc3339(self.now),
                    "generation": 1,
                }
                self.objects[key] = raw
            case Delete():
                self.delete(*key)
            case Patch():
                self._patch(effect)

    def _patch(self, effect: Patch) -> None:
        key = (effect.ref.kind, effect.ref.name)
        raw = self.objects.get(key)
        if raw is None:
            raise RefusedError
        if effect.resource_version not in {None, raw["metadata"]["resourceVersion"]}:
            raise RefusedError
        body = effect.body
        if effect.kind is PatchKind.JSON:
            assert isinstance(body, list)
            index = int(body[0]["path"].rpartition("/")[2])
            assert raw["metadata"]["finalizers"][index] == body[0]["value"]
            del raw["metadata"]["finalizers"][index]
        elif effect.kind is PatchKind.STRATEGIC:
            assert isinstance(body, dict)
            new = body["status"]["conditions"]
            kept = [
                entry
                for entry in raw["status"].get("conditions", [])
                if entry["type"] not in {each["type"] for each in new}
            ]
            raw["status"] = {**raw["status"], **body["status"], "conditions": [*kept, *new]}
        else:
            assert isinstance(body, dict)
            if effect.ref.kind == "Job":
                self._judge_job(raw, body)
            part = {"status": body["status"]} if effect.subresource == "status" else body
            assert effect.subresource == "status" or "status" not in body
            raw = merged(raw, part)
            if effect.ref.kind == "Job":
                _prune(raw["spec"]["template"])
        self.version += 1
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = raw
        if raw["metadata"].get("deletionTimestamp") and not raw["metadata"].get("finalizers"):
            self.delete(*key, grace=0)

    @staticmethod
    def _judge_job(raw: dict[str, Any], body: dict[str, Any]) -> None:
        """The rule of the API server for templates: only of a suspended Job that is not started and has no pods."""
        if "template" in body.get("spec", {}):
            status = raw.get("status", {})
            assert raw["spec"]["suspend"], "template changed while unsuspended"
            assert not status.get("startTime"), "template changed with a startTime"
            assert not status.get("active"), "template changed while pods are active"
        if "startTime" in body.get("status", {}):
            assert raw["spec"]["suspend"], "startTime changed while unsuspended"

    # ------------------------------------------------------------------ reading

    def told(self, name: str) -> list[str]:
        return [f"{e.reason}: {e.message}" for e in self.done if isinstance(e, Tell) and e.ref.name == name]

    def writes(self) -> list[Effect]:
        return [effect for effect in self.done if not isinstance(effect, Tell)]

    def is_true(self, type_: str) -> bool:
        return self.status_of(type_) == "True"

    def status_of(self, type_: str) -> str | None:
        for entry in self.wl.get("status", {}).get("conditions", []):
            if entry["type"] == type_:
                return str(entry["status"])
        return None

    def gates(self, name: str) -> list[str]:
        return [gate["name"] for gate in self.objects["Pod", name]["spec"].get("schedulingGates", [])]
