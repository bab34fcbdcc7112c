"""What will differ when Muster takes a cluster over, object by object: what works otherwise, is missing, or in the way.

Judged from a survey alone. Each sentence stands for a row of docs/compatibility.md, which it names; what behaves the
same is not mentioned. It must never call something supported because it does not know it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from admission.api import names
from admission.commands.adopt.settings import converted
from admission.commands.adopt.survey import Object, Survey


class Level(Enum):
    """`BLOCKS`: has to be dealt with first. `LOST`: is not there in Muster. `DIFFERS`: works otherwise."""

    BLOCKS = "blocks"
    LOST = "lost"
    DIFFERS = "differs"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Difference:
    """`row` begins the row of docs/compatibility.md that it stands for; empty for what is of this cluster only."""

    level: Level
    kind: str
    name: str
    says: str
    row: str = ""


MULTIKUEUE: Final = "6.17 MultiKueue"
PROVISIONING: Final = "6.18 ProvisioningRequest"
ELASTIC: Final = "6.19 elastic jobs"
CONCURRENT: Final = "1.1 `concurrentAdmissionPolicy`"
FRAMEWORK: Final = "5.2 external frameworks"
FORCEFUL: Final = "`safe-to-forcefully-delete`"
VERSIONS: Final = "1.0 group, versions, names"
DEFAULT_QUEUE: Final = "Label of the LocalQueue `default`"
DEFAULT_CLASS: Final = "WorkloadPriorityClass `default`"
CYCLE: Final = "A cohort cycle"
LOWEST_LEVEL: Final = "6.14 tree, capacity of non-queued pods"
GPU_PODS: Final = "`muster`"

_CONTROLLERS: Final = {
    "kueue.x-k8s.io/multikueue": MULTIKUEUE,
    "kueue.x-k8s.io/provisioning-request": PROVISIONING,
}
_UNREAD: Final = {
    "MultiKueueConfig": MULTIKUEUE,
    "MultiKueueCluster": MULTIKUEUE,
    "ProvisioningRequestConfig": PROVISIONING,
}
#: Managers of fields that are Kueue itself.
_KUEUES_MANAGERS: Final = ("kueue", "manager")
_NAMED: Final = 3
_FRAMEWORKS: Final = "integrations.frameworks["
_QUOTED: Final = re.compile("'([^']+)'")


def differences(found: Survey) -> list[Difference]:
    """All of them: what blocks first, and within a level in the order of the kinds."""
    every = [*_installation(found), *_versions(found), *_settings(found), *_queues(found), *_workloads(found)]
    every += [*_defaults(found), *_pods(found)]
    order = list(Level)
    return sorted(every, key=lambda each: order.index(each.level))


# ------------------------------------------------------------------ the installation


def _installation(found: Survey) -> Iterator[Difference]:
    if not found.crds:
        says = "there are no queues here to take over; install Muster with `kubectl apply -k webhook-config`"
        yield Difference(Level.NOTE, "Cluster", "", says)
        return
    if found.is_running and found.muster_webhooks:
        says = "Muster is installed while Kueue runs, so that both decide; take it away until Kueue is stopped"
        yield Difference(Level.BLOCKS, "Cluster", "", says)
    for manager in found.managers:
        name = f"{manager.namespace}/{manager.name}"
        says = f"runs Kueue ({manager.image or 'no image'}, replicas: {manager.replicas}); it is scaled to 0 and kept"
        yield Difference(Level.NOTE, "Deployment", name, says)
    if found.webhooks and not found.managers:
        says = "asks for Kueue, but no Deployment behind it was found; stop it wherever it runs"
        yield Difference(Level.NOTE, "Webhooks", ", ".join(_names(found.webhooks)), says)


def _versions(found: Survey) -> Iterator[Difference]:
    for crd in found.crds:
        name, kind = crd["metadata"]["name"], crd["spec"]["names"]["kind"]
        served = {each["name"] for each in crd["spec"]["versions"] if each["served"]}
        if names.VERSION not in served:
            says = f"is served as {', '.join(sorted(served))} only; upgrade Kueue to one with {names.VERSION} first"
            yield Difference(Level.BLOCKS, "CustomResourceDefinition", name, says)
            continue
        stored = [each for each in crd.get("status", {}).get("storedVersions") or () if each != names.VERSION]
        if stored:
            count = len(found.objects.get(kind, ()))
            says = f"{count} objects may be stored as {', '.join(stored)}; they are written again as {names.VERSION}"
            yield Difference(Level.NOTE, "CustomResourceDefinition", name, says)
    writers: Counter[str] = Counter()
    for objects in found.objects.values():
        for each in objects:
            writers.update(_old_writers(each))
    for manager, count in sorted(writers.items()):
        says = (
            f"has written {count} objects as {names.V1BETA1}, which is not served by default; "
            "set muster.serveV1beta1 and apply webhook-config/overlays/v1beta1 for it"
        )
        yield Difference(Level.DIFFERS, "Client", manager, says, VERSIONS)


def _old_writers(obj: Object) -> set[str]:
    return {
        entry.get("manager", "")
        for entry in obj["metadata"].get("managedFields") or ()
        if entry.get("apiVersion") == names.V1BETA1_API_VERSION
        and not str(entry.get("manager", "")).startswith(_KUEUES_MANAGERS)
    }


def _settings(found: Survey) -> Iterator[Difference]:
    for manager in found.managers:
        at = manager.settings_at or f"{manager.namespace}/{manager.name}"
        problems = converted(manager.settings, manager.gates)[1] if manager.settings or manager.gates else ()
        frameworks = [each for each in problems if each.startswith(_FRAMEWORKS)]
        if frameworks:
            yield _frameworks(found, at, frameworks)
        for problem in problems:
            if not problem.startswith(_FRAMEWORKS):
                yield Difference(Level.LOST, "Configuration", at, problem)
    if found.managers:
        says = (
            "Muster can also queue pods and jobs for the GPUs that they ask for, without a queue's name; the settings "
            "of --write-settings leave that off: muster.gpuPods.enabled"
        )
        yield Difference(Level.DIFFERS, "Configuration", "muster.gpuPods", says, GPU_PODS)


def _frameworks(found: Survey, at: str, problems: Iterable[str]) -> Difference:
    """Kueue's own settings enable all there are, so what counts is whether anybody uses them."""
    named = ", ".join(match[1] for each in problems if (match := _QUOTED.search(each)))
    is_used = bool(_foreign(found)) or any(
        _unknown_parent(pod["metadata"].get("annotations") or {}) for pod in found.pods
    )
    says = f"enables integrations that Muster does not take, so that new jobs of these kinds run unqueued: {named}"
    if not is_used:
        says += "; no work of them is here now"
    return Difference(Level.LOST if is_used else Level.NOTE, "Configuration", at, says, FRAMEWORK)


# ------------------------------------------------------------------ queues and checks


def _queues(found: Survey) -> Iterator[Difference]:
    checks = {
        each["metadata"]["name"]: _CONTROLLERS[each["spec"]["controllerName"]]
        for each in found.objects.get("AdmissionCheck", ())
        if each["spec"]["controllerName"] in _CONTROLLERS
    }
    for queue in found.objects.get("ClusterQueue", ()):
        name, spec = queue["metadata"]["name"], queue["spec"]
        if spec.get("concurrentAdmissionPolicy") is not None:
            yield Difference(Level.LOST, "ClusterQueue", name, "concurrentAdmissionPolicy has no effect", CONCURRENT)
        for check in sorted(set(_checks_of(spec)) & checks.keys()):
            says = f"its workloads wait for the check {check}, for which Muster has no controller"
            yield Difference(Level.LOST, "ClusterQueue", name, says, checks[check])
        if (reason := _inactive(queue)) is not None:
            yield Difference(Level.NOTE, "ClusterQueue", name, f"is not active, in Kueue already: {reason}")
    for name, row in sorted(checks.items()):
        yield Difference(Level.LOST, "AdmissionCheck", name, "nobody answers it any more once Kueue is stopped", row)
    for kind, row in _UNREAD.items():
        for obj in found.objects.get(kind, ()):
            yield Difference(Level.LOST, kind, obj["metadata"]["name"], "stays, and no controller reads it", row)


def _defaults(found: Survey) -> Iterator[Difference]:
    for queue in found.objects.get("LocalQueue", ()):
        meta = queue["metadata"]
        if meta["name"] == names.DEFAULT_LOCAL_QUEUE:
            says = (
                "jobs that name no queue join it only if they ask for a GPU, or with manageJobsWithoutQueueName; "
                "others are left alone"
            )
            yield Difference(Level.DIFFERS, "LocalQueue", f"{meta['namespace']}/{meta['name']}", says, DEFAULT_QUEUE)
    for each in found.objects.get("WorkloadPriorityClass", ()):
        if each["metadata"]["name"] == names.DEFAULT_WORKLOAD_PRIORITY_CLASS:
            says = "is looked up when a Workload is made, and not written as a label on its job"
            yield Difference(Level.DIFFERS, "WorkloadPriorityClass", each["metadata"]["name"], says, DEFAULT_CLASS)
    for topology in found.objects.get("Topology", ()):
        levels = topology["spec"].get("levels") or ()
        if levels and levels[-1]["nodeLabel"] != names.HOSTNAME_LABEL:
            says = "its lowest level is no host: what fits is judged by each node there, not by their sum"
            yield Difference(Level.DIFFERS, "Topology", topology["metadata"]["name"], says, LOWEST_LEVEL)
    parents = {
        each["metadata"]["name"]: each["spec"].get("parentName") or each["spec"].get("parent") or ""
        for each in found.objects.get("Cohort", ())
    }
    for name in sorted(parents):
        if _is_in_a_cycle(name, parents):
            says = (
                "is in a cycle of cohorts, whose queues are inactive; Muster gives them the reason CohortCycleDetected"
            )
            yield Difference(Level.DIFFERS, "Cohort", name, says, CYCLE)


def _is_in_a_cycle(name: str, parents: Mapping[str, str]) -> bool:
    at = parents[name]
    for _ in range(len(parents)):
        if at == name:
            return True
        at = parents.get(at, "")
    return False


def _checks_of(spec: Object) -> Iterator[str]:
    yield from spec.get("admissionChecks") or ()
    strategy = spec.get("admissionChecksStrategy") or {}
    for rule in strategy.get("admissionChecks") or ():
        yield rule["name"]


def _inactive(queue: Object) -> str | None:
    for condition in (queue.get("status") or {}).get("conditions") or ():
        if condition["type"] == names.ACTIVE and condition["status"] == "False":
            return str(condition.get("message") or condition.get("reason"))
    return None


# ------------------------------------------------------------------ what runs and waits


def is_true(obj: Object, kind: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _foreign(found: Survey) -> dict[str, list[Object]]:
    """Workloads that have not finished and that no adapter leads, by the kind of their owner."""
    from admission.jobs.registry import ADAPTERS

    known = frozenset(kind for adapter in ADAPTERS for kind in adapter.kinds)
    foreign: dict[str, list[Object]] = {}
    for workload in found.objects.get("Workload", ()):
        owners = [owner["kind"] for owner in workload["metadata"].get("ownerReferences") or ()]
        if owners and not known.intersection(owners) and not is_true(workload, names.FINISHED):
            foreign.setdefault(owners[0], []).append(workload)
    return foreign


def _workloads(found: Survey) -> Iterator[Difference]:
    for workload in found.objects.get("Workload", ()):
        if is_true(workload, names.FINISHED):
            continue
        meta, status = workload["metadata"], workload.get("status") or {}
        name = f"{meta['namespace']}/{meta['name']}"
        if status.get("clusterName") or status.get("nominatedClusterNames"):
            says = "is dispatched to another cluster, where nobody follows it any more"
            yield Difference(Level.LOST, "Workload", name, says, MULTIKUEUE)
        annotations = meta.get("annotations") or {}
        if annotations.get(names.ELASTIC_JOB) or annotations.get(names.WORKLOAD_SLICE_REPLACEMENT_FOR):
            yield Difference(Level.LOST, "Workload", name, "its job is not scaled any more while it runs", ELASTIC)
        if is_true(workload, names.EVICTED) and is_true(workload, names.QUOTA_RESERVED):
            yield Difference(Level.NOTE, "Workload", name, "is being evicted by Kueue; Muster completes that")
    for kind, workloads in sorted(_foreign(found).items()):
        running = sum(is_true(each, names.QUOTA_RESERVED) for each in workloads)
        waiting = len(workloads) - running
        says = (
            f"{len(workloads)} workloads are of this kind, for which Muster has no adapter: {running} that hold quota "
            f"keep it until they are deleted, {waiting} that wait are never started, and new ones run unqueued"
        )
        yield Difference(Level.LOST, "Workloads of", kind, says, FRAMEWORK)


def _pods(found: Survey) -> Iterator[Difference]:
    parents: dict[str, list[Object]] = {}
    forceful = []
    for pod in found.pods:
        annotations = pod["metadata"].get("annotations") or {}
        if parent := _unknown_parent(annotations):
            parents.setdefault(parent, []).append(pod)
        if annotations.get("kueue.x-k8s.io/safe-to-forcefully-delete"):
            forceful.append(pod)
    for parent, pods in sorted(parents.items()):
        says = f"{len(pods)} pods are queued for their {parent} and stay so, but new ones are not ({_some(pods)}...)"
        yield Difference(Level.LOST, "Pods of", parent, says, FRAMEWORK)
    if forceful:
        says = f"{len(forceful)} pods ask to be deleted by force, which is not done ({_some(forceful)}...)"
        yield Difference(Level.LOST, "Pods", "", says, FORCEFUL)


def _unknown_parent(annotations: Mapping[str, str]) -> str:
    """What the pod is queued for, if Muster queues nothing of that kind by its pods."""
    parent = annotations.get(names.POD_SUSPENDING_PARENT, "")
    return "" if parent in names.SERVING_INTEGRATIONS else parent


def _some(objects: Iterable[Object]) -> str:
    return ", ".join(_names(objects)[:_NAMED])


def _names(objects: Iterable[Object]) -> list[str]:
    metas = [each["metadata"] for each in objects]
    return sorted(f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"] for meta in metas)
