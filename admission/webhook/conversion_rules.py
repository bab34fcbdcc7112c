"""What differs between v1beta1 and v1beta2 of each kind, as functions on plain spec and status, up and down.

A rule gets what the API server sends and gives what the other version has: all that is not named here goes through as
it is, pod templates and unknown fields too. It never guesses: what has no counterpart and no rule is `NotConvertible`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from admission.api import decoding, topology_assignment, v1beta1
from admission.api.kueue import TopologyAssignment
from admission.api.topology_assignment import Domain

Fields = dict[str, Any]
Change = Callable[[Fields], Fields]


class NotConvertible(Exception):  # noqa: N818  # an answer to the user
    """The object has no form in the other version; the message says where and why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one part of a kind becomes that of v1beta2 (`up`) and of v1beta1 (`down`); None: it is the same."""

    up: Change | None = None
    down: Change | None = None


@dataclass(frozen=True, slots=True)
class KindRules:
    spec: Rule = Rule()
    status: Rule = Rule()


# ------------------------------------------------------------------ small changes


def _without(fields: Fields, *names: str) -> Fields:
    return {name: value for name, value in fields.items() if name not in names}


def _renamed(fields: Fields, old: str, new: str) -> Fields:
    return {new if name == old else name: value for name, value in fields.items() if name != new}


def _inside(fields: Fields, name: str, change: Change, at: str) -> Fields:
    """With the object in one field changed, where there is one."""
    return fields if fields.get(name) is None else {**fields, name: change(_object(fields[name], f"{at}.{name}"))}


def _in_each(fields: Fields, name: str, change: Callable[[Fields, str], Fields], at: str) -> Fields:
    """With every object of the list in one field changed; `change` is told its path too."""
    if fields.get(name) is None:
        return fields
    paths = [(f"{at}.{name}[{index}]", item) for index, item in enumerate(_list(fields[name], f"{at}.{name}"))]
    return {**fields, name: [change(_object(item, path), path) for path, item in paths]}


def _object(value: Any, at: str) -> Fields:
    if not isinstance(value, dict):
        raise NotConvertible(f"{at}: expected an object, got {_named(value)}")
    return value


def _list(value: Any, at: str) -> list[Any]:
    if not isinstance(value, list):
        raise NotConvertible(f"{at}: expected a list, got {_named(value)}")
    return value


def _named(value: Any) -> str:
    match value:
        case None:
            return "null"
        case dict():
            return "an object"
        case list():
            return "a list"
        case _:
            return repr(value)[:80]


# ------------------------------------------------------------------ ClusterQueue

#: What MayStopSearch was called first, in each field.
_FIRST_NAMES: Final = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}


def _cluster_queue_spec_up(spec: Fields) -> Fields:
    names = _list(spec.get("admissionChecks") or [], "spec.admissionChecks")
    spec = _without(_renamed(spec, "cohort", "cohortName"), "admissionChecks")
    if names:
        if not all(isinstance(name, str) for name in names):
            raise NotConvertible("spec.admissionChecks: expected names only")
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in dict.fromkeys(names)]}
    return _inside(spec, "flavorFungibility", _fungibility_up, "spec")


def _fungibility_up(fungibility: Fields) -> Fields:
    return {
        name: "MayStopSearch" if name in _FIRST_NAMES and value == _FIRST_NAMES[name] else value
        for name, value in fungibility.items()
    }


def _cluster_queue_spec_down(spec: Fields) -> Fields:
    return _without(_renamed(spec, "cohortName", "cohort"), "concurrentAdmissionPolicy")


# ------------------------------------------------------------------ Workload

#: Group and kind of the reference that a source stands for.
_SOURCES: Final = {
    v1beta1.WORKLOAD_PRIORITY_CLASS_SOURCE: ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    v1beta1.POD_PRIORITY_CLASS_SOURCE: ("scheduling.k8s.io", "PriorityClass"),
}
_SOURCE_OF: Final = {reference: source for source, reference in _SOURCES.items()}


def _workload_spec_up(spec: Fields) -> Fields:
    name, source = spec.get("priorityClassName"), spec.get("priorityClassSource")
    spec = _without(spec, "priorityClassName", "priorityClassSource", "priorityClassRef")
    if not source or not name:
        return spec
    if not isinstance(source, str) or source not in _SOURCES:
        raise NotConvertible(f"spec.priorityClassSource: {_named(source)} is not one of {', '.join(_SOURCES)}")
    group, kind = _SOURCES[source]
    return {**spec, "priorityClassRef": {"group": group, "kind": kind, "name": name}}


def _workload_spec_down(spec: Fields) -> Fields:
    reference = spec.get("priorityClassRef")
    spec = _without(spec, "priorityClassName", "priorityClassSource", "priorityClassRef", "preemptionGates")
    spec = _in_each(spec, "podSets", _pod_set_down, "spec")
    if reference is None:
        return spec
    reference = _object(reference, "spec.priorityClassRef")
    group, kind = reference.get("group"), reference.get("kind")
    source = next((source for which, source in _SOURCE_OF.items() if which == (group, kind)), None)
    if source is None:
        raise NotConvertible(f"spec.priorityClassRef: v1beta1 has no word for kind {kind!r:.80} of group {group!r:.80}")
    return {**spec, "priorityClassName": reference.get("name", ""), "priorityClassSource": source}


def _pod_set_down(pod_set: Fields, at: str) -> Fields:
    return _inside(
        pod_set, "topologyRequest", lambda request: _without(request, "podsetSliceRequiredTopologyConstraints"), at
    )


def _workload_status_up(status: Fields) -> Fields:
    status = _renamed(status, "accumulatedPastExexcutionTimeSeconds", "accumulatedPastExecutionTimeSeconds")
    return _with_assignments(status, _topology_up)


def _workload_status_down(status: Fields) -> Fields:
    status = _renamed(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    return _with_assignments(_without(status, "preemptionGates"), _topology_down)


def _with_assignments(status: Fields, change: Callable[[Fields, str], Fields]) -> Fields:
    def in_assignment(assignment: Fields, at: str) -> Fields:
        where = f"{at}.topologyAssignment"
        return _inside(assignment, "topologyAssignment", lambda topology: change(topology, where), at)

    return _inside(
        status,
        "admission",
        lambda admission: _in_each(admission, "podSetAssignments", in_assignment, "status.admission"),
        "status",
    )


def _topology_up(raw: Fields, at: str) -> Fields:
    assignment = _read(raw, v1beta1.TopologyAssignment, at)
    if not assignment.domains:
        return {"levels": list(assignment.levels), "slices": []}
    domains = [Domain(domain.values, domain.count) for domain in assignment.domains]
    try:
        return _plain(topology_assignment.encode(assignment.levels, domains))
    except ValueError as error:
        raise NotConvertible(f"{at}: {error}") from error


def _topology_down(raw: Fields, at: str) -> Fields:
    assignment = _read(raw, TopologyAssignment, at)
    domains = tuple(
        v1beta1.TopologyDomainAssignment(values=domain.values, count=domain.count)
        for domain in topology_assignment.decode(assignment)
    )
    return _plain(v1beta1.TopologyAssignment(levels=assignment.levels, domains=domains))


def _read(raw: Fields, type_: type[Any], at: str) -> Any:
    try:
        return decoding.convert(raw, type_)
    except msgspec.ValidationError as error:
        raise NotConvertible(f"{at}: {error}") from error


def _plain(value: msgspec.Struct) -> Fields:
    plain: Fields = decoding.plain(value)
    return plain


# ------------------------------------------------------------------ MultiKueueCluster


def _cluster_spec_up(spec: Fields) -> Fields:
    kube_config = spec.get("kubeConfig")
    has_location = kube_config is not None and bool(_object(kube_config, "spec.kubeConfig").get("location"))
    source = {
        name: spec[name]
        for name, there in (("kubeConfig", has_location), ("clusterProfileRef", spec.get("clusterProfileRef")))
        if there
    }
    spec = _without(spec, "kubeConfig", "clusterProfileRef", "clusterSource")
    return {**spec, "clusterSource": source} if source else spec


def _cluster_spec_down(spec: Fields) -> Fields:
    source = spec.get("clusterSource")
    spec = _without(spec, "kubeConfig", "clusterProfileRef", "clusterSource")
    return spec if source is None else {**spec, **_object(source, "spec.clusterSource")}


# ------------------------------------------------------------------ all kinds

#: For some kinds the API server needs no webhook; they have their rules for whoever asks about them.
RULES: Final[Mapping[str, KindRules]] = {
    "ClusterQueue": KindRules(
        spec=Rule(_cluster_queue_spec_up, _cluster_queue_spec_down),
        status=Rule(up=lambda status: _without(status, "pendingWorkloadsStatus")),
    ),
    "Cohort": KindRules(),
    "LocalQueue": KindRules(
        status=Rule(
            up=lambda status: _without(_renamed(status, "flavorUsage", "flavorsUsage"), "flavors"),
            down=lambda status: _renamed(status, "flavorsUsage", "flavorUsage"),
        )
    ),
    "ResourceFlavor": KindRules(),
    "Workload": KindRules(
        spec=Rule(_workload_spec_up, _workload_spec_down), status=Rule(_workload_status_up, _workload_status_down)
    ),
    "WorkloadPriorityClass": KindRules(),
    "AdmissionCheck": KindRules(spec=Rule(up=lambda spec: _without(spec, "retryDelayMinutes"))),
    "Topology": KindRules(),
    "ProvisioningRequestConfig": KindRules(),
    "MultiKueueConfig": KindRules(spec=Rule(down=lambda spec: _without(spec, "quotaManagement"))),
    "MultiKueueCluster": KindRules(spec=Rule(_cluster_spec_up, _cluster_spec_down)),
}
