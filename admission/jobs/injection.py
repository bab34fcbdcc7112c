"""What the pods of an admitted pod set get when they start: where they may run, and whose they are.

It is read from the admission (flavors, topology), from the pod-set updates of ready admission checks and from the names
of the queues. What contradicts the template is an answer that no retry mends; nothing is ever silently overwritten.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from admission.api import names
from admission.api.decoding import plain
from admission.api.kueue import Admission, PodSet, PodSetAssignment, TopologyAssignment, Workload
from admission.api.topology_assignment import decode
from admission.jobs.interface import Context

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

#: What Muster puts into templates; taken out again where a template is read without a Workload to compare with.
OWN_LABELS = frozenset({names.PODSET_LABEL, names.CLUSTER_QUEUE_LABEL, names.LOCAL_QUEUE_LABEL})
OWN_ANNOTATIONS = frozenset({names.WORKLOAD_ANNOTATION})


@dataclass(frozen=True, slots=True)
class Injection:
    """For one pod set. `count` is how many pods were admitted; `topology` where they go, if that was decided."""

    pod_set: str
    count: int
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    topology: TopologyAssignment | None = None


@dataclass(frozen=True, slots=True)
class CannotStart:
    """`permanent`: the admission and the templates contradict each other; otherwise something is not there yet."""

    message: str
    permanent: bool


def injections(workload: Workload, context: Context) -> tuple[Injection, ...] | CannotStart:
    """One for each pod set of the spec, in its order."""
    admission = workload.status.admission
    if admission is None:
        return CannotStart("the workload has no admission", permanent=False)
    assignments = {assignment.name: assignment for assignment in admission.pod_set_assignments}
    if set(assignments) != {pod_set.name for pod_set in workload.spec.pod_sets}:
        return CannotStart("the admission does not have the pod sets of the workload", permanent=True)
    result = []
    for pod_set in workload.spec.pod_sets:
        injection = _injection(workload, admission, pod_set, assignments[pod_set.name], context)
        if isinstance(injection, CannotStart):
            return injection
        result.append(injection)
    return tuple(result)


def _injection(
    workload: Workload, admission: Admission, pod_set: PodSet, assignment: PodSetAssignment, context: Context
) -> Injection | CannotStart:
    labels: dict[str, str] = {names.PODSET_LABEL: pod_set.name}
    if _DNS_LABEL.fullmatch(admission.cluster_queue):
        labels[names.CLUSTER_QUEUE_LABEL] = admission.cluster_queue
    if workload.spec.queue_name and _DNS_LABEL.fullmatch(workload.spec.queue_name):
        labels[names.LOCAL_QUEUE_LABEL] = workload.spec.queue_name
    annotations: dict[str, str] = {names.WORKLOAD_ANNOTATION: workload.metadata.name}
    if assignment.topology_assignment is not None and pod_set.topology_request is None:
        annotations[names.PODSET_UNCONSTRAINED_TOPOLOGY] = "true"
    node_selector: dict[str, str] = {}
    tolerations: list[Mapping[str, Any]] = []
    clash = ""
    for name in dict.fromkeys(assignment.flavors.values()):
        flavor = context.resource_flavor(name)
        if flavor is None:
            return CannotStart(f'ResourceFlavor "{name}" does not exist', permanent=False)
        clash = clash or _add(node_selector, flavor.spec.node_labels, f'ResourceFlavor "{name}"')
        tolerations += plain(flavor.spec.tolerations)
    for check in workload.status.admission_checks:
        for update in check.pod_set_updates:
            if check.state != names.CHECK_READY or update.name != pod_set.name:
                continue
            source = f'admission check "{check.name}"'
            clash = clash or _add(node_selector, update.node_selector, source)
            clash = clash or _add(labels, update.labels, source)
            clash = clash or _add(annotations, update.annotations, source)
            tolerations += plain(update.tolerations)
    if clash:
        return CannotStart(f'pod set "{pod_set.name}": {clash}', permanent=True)
    return Injection(
        pod_set=pod_set.name,
        count=pod_set.count if assignment.count is None else assignment.count,
        labels=labels,
        annotations=annotations,
        node_selector=node_selector,
        tolerations=tuple(tolerations),
        topology=assignment.topology_assignment,
    )


# ------------------------------------------------------------------ templates


@dataclass(frozen=True, slots=True)
class Directives:
    """The parts of a pod template that a start changes and a stop restores."""

    labels: dict[str, str]
    annotations: dict[str, str]
    node_selector: dict[str, str]
    tolerations: list[Any]
    gates: list[Any]

    @classmethod
    def of(cls, template: Mapping[str, Any]) -> Directives:
        metadata, spec = _dict(template.get("metadata")), _dict(template.get("spec"))
        return cls(
            labels=_dict(metadata.get("labels")),
            annotations=_dict(metadata.get("annotations")),
            node_selector=_dict(spec.get("nodeSelector")),
            tolerations=_list(spec.get("tolerations")),
            gates=[gate for gate in _list(spec.get("schedulingGates")) if isinstance(gate, dict)],
        )

    def as_template(self) -> dict[str, Any]:
        return {
            "metadata": {"labels": self.labels, "annotations": self.annotations},
            "spec": {
                "nodeSelector": self.node_selector,
                "tolerations": self.tolerations,
                "schedulingGates": self.gates,
            },
        }


def injected(template: Mapping[str, Any], injection: Injection) -> Directives | CannotStart:
    """The directives of the template with the injection in them.

    Pods that all go to one topology domain get its node selector here, at once; for several domains each pod gets the
    topology gate, and `topology_ungating` sends it to its own. So it does for a single host: a template cannot change
    while its job runs, and the host may fail and be replaced.
    """
    wanted = Directives.of(template)
    where = dict(injection.node_selector)
    clash = ""
    if injection.topology is not None:
        domains = decode(injection.topology)
        if len(domains) == 1 and injection.topology.levels[-1] != names.HOSTNAME_LABEL:
            levels = dict(zip(injection.topology.levels, domains[0].values, strict=False))
            clash = _add(where, levels, "the topology assignment")
        elif not any(gate.get("name") == names.TOPOLOGY_GATE for gate in wanted.gates):
            wanted.gates.append({"name": names.TOPOLOGY_GATE})
    clash = (
        clash
        or _add(wanted.node_selector, where, "the admission")
        or _add(wanted.labels, injection.labels, "the admission")
        or _add(wanted.annotations, injection.annotations, "the admission")
    )
    if clash:
        return CannotStart(f'pod set "{injection.pod_set}": {clash}', permanent=True)
    wanted.tolerations.extend(_missing(wanted.tolerations, injection.tolerations))
    return wanted


def added(before: Directives, after: Directives) -> Directives:
    """What `after` has besides `before`."""
    return Directives(
        labels=_more(before.labels, after.labels),
        annotations=_more(before.annotations, after.annotations),
        node_selector=_more(before.node_selector, after.node_selector),
        tolerations=[entry for entry in after.tolerations if entry not in before.tolerations],
        gates=[entry for entry in after.gates if entry not in before.gates],
    )


def _more(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in after.items() if before.get(key) != value}


def cleaned(template: Mapping[str, Any]) -> dict[str, Any]:
    """The template without what an earlier start put in under Muster's own keys, and without empty values."""
    result = {key: value for key, value in template.items() if value is not None}
    metadata = {key: value for key, value in _dict(template.get("metadata")).items() if value is not None}
    for key, own in (("labels", OWN_LABELS), ("annotations", OWN_ANNOTATIONS)):
        if key in metadata:
            metadata[key] = {name: value for name, value in _dict(metadata[key]).items() if name not in own}
            if not metadata[key]:
                del metadata[key]
    spec = _dict(template.get("spec"))
    if "schedulingGates" in spec:
        gates = Directives.of(template).gates
        spec["schedulingGates"] = [gate for gate in gates if gate.get("name") != names.TOPOLOGY_GATE]
        if not spec["schedulingGates"]:
            del spec["schedulingGates"]
    return {**result, "metadata": metadata, "spec": spec}


def _dict(value: Any) -> dict[str, Any]:
    """A copy; templates in custom resources may hold anything."""
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else []


def _missing(present: Iterable[Any], wanted: Iterable[Mapping[str, Any]]) -> list[Any]:
    known = list(present)
    result: list[Any] = []
    for entry in wanted:
        if entry not in known:
            known.append(entry)
            result.append(dict(entry))
    return result


def _add(target: dict[str, str], more: Mapping[str, str], source: str) -> str:
    """Adds to `target`; says what is in the way where a key has another value already."""
    for key, value in more.items():
        if target.setdefault(key, value) != value:
            return f'{source} wants {key}="{value}", but it is "{target[key]}" already'
    return ""
