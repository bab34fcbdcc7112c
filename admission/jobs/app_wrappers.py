"""workload.codeflare.dev AppWrapper: anything wrapped as one job, with a pod set for each pod template in it.

Where the templates stand is what a component's pod sets say, or its kind where that is known. The wrapped objects are
never changed: what a start injects stands beside them, and the AppWrapper's controller puts it in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from admission.api import job_kinds
from admission.api.decoding import convert
from admission.api.job_kinds import CustomJob
from admission.api.meta import ObjectMeta, whole_number
from admission.jobs.described import (
    Change,
    Description,
    Place,
    Role,
    Seen,
    found,
    has_condition,
    mapping,
    mappings,
    number,
    put,
    text,
)
from admission.jobs.gang import Verdict
from admission.jobs.injection import added
from admission.jobs.job_sets import JOB_SETS, pods_of_job
from admission.jobs.kubeflow import KUBEFLOW
from admission.jobs.ray import RAY

_KNOWN = {(each.kind.group, each.kind.kind): each for each in (JOB_SETS, *KUBEFLOW, *RAY)}
_PART = re.compile(r"([^.\[\]]+)|\[(\d{1,6})\]")
#: Annotations of a component's pod set that say how its pods are numbered.
_PREFIX = "workload.codeflare.dev.appwrapper/tas-"
_INFOS = "podSetInfos"


@dataclass(frozen=True, slots=True)
class _Pods:
    count: int
    template: Mapping[str, Any]
    annotations: Mapping[str, str]


def _roles(seen: Seen) -> tuple[Role, ...]:
    roles: list[Role] = []
    for index, component in enumerate(mappings(seen.spec, "components")):
        for pods in _pods(component, mapping(found(seen.status, ("componentStatus", index)))):
            roles.append(
                Role(
                    name=f"{seen.job.metadata.name}-{len(roles)}",
                    count=pods.count,
                    template=pods.template,
                    place=("components", index),
                    index_label=pods.annotations.get(f"{_PREFIX}pod-index-label", ""),
                    group_label=pods.annotations.get(f"{_PREFIX}sub-group-index-label", ""),
                    groups=whole_number(pods.annotations.get(f"{_PREFIX}sub-group-count", "")),
                )
            )
    return tuple(roles)


def _pods(component: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[_Pods]:
    declared = mappings(component, "podSets") or mappings(status, "podSets")
    if not declared:
        yield from _inferred(mapping(component, "template"))
    for each in declared:
        annotations = {key: value for key, value in mapping(each, "annotations").items() if isinstance(value, str)}
        template = _template(found(component, _place(text(each, "path"))))
        yield _Pods(number(each, "replicas", default=1), template, annotations)


def _place(path: str) -> Place:
    return tuple(int(index) if index else name for name, index in _PART.findall(path))


def _template(value: Any) -> Mapping[str, Any]:
    """A pod, or a pod template, as a pod template."""
    metadata = mapping(value, "metadata")
    kept = {key: metadata[key] for key in ("labels", "annotations") if mapping(metadata, key)}
    return {"metadata": kept, "spec": mapping(value, "spec")}


def _inferred(wrapped: Mapping[str, Any], *, as_it_stands: bool = False) -> Iterator[_Pods]:
    """The pods of what is wrapped. With `as_it_stands`, without what its operator adds to them."""
    group, _, _ = text(wrapped, "apiVersion").rpartition("/")
    kind = text(wrapped, "kind")
    match group, kind:
        case "", "Pod":
            yield _Pods(1, _template(wrapped), {})
        case "batch", "Job":
            yield _Pods(pods_of_job(wrapped), _template(mapping(wrapped, "spec", "template")), {})
        case "apps", "Deployment" | "StatefulSet":
            count = number(wrapped, "spec", "replicas", default=1)
            yield _Pods(count, _template(mapping(wrapped, "spec", "template")), {})
        case _:
            description = _KNOWN.get((group, kind))
            metadata = ObjectMeta(name=text(wrapped, "metadata", "name"))
            inner = CustomJob(kind=kind, metadata=metadata, spec=convert(mapping(wrapped, "spec"), dict[str, Any]))
            for role in () if description is None else description.roles(Seen(inner)) or ():
                if not as_it_stands:
                    yield _Pods(role.count, _template(role.template), {})
                elif role.place is not None:
                    yield _Pods(role.count, _template(found(inner.spec, role.place)), {})


def is_understated(component: Mapping[str, Any]) -> bool:
    """Whether the pod sets that are declared leave out pods of a wrapped object of a kind that is known.

    They are what is charged, and nobody looks at what is made of a wrapped object.
    """
    declared = [(pods.count, pods.template) for pods in _pods(component, {})]
    for pods in _inferred(mapping(component, "template"), as_it_stands=True):
        if (pods.count, pods.template) not in declared:
            return True
        declared.remove((pods.count, pods.template))
    return False


def _inject(spec: dict[str, Any], changes: Sequence[Change]) -> None:
    _take_out(spec, changes)
    for role, before, wanted in changes:
        component = found(spec, role.place or ())
        if role.place is None or not isinstance(component, dict):
            continue
        more, info = added(before, wanted), dict[str, Any]()
        put(
            info,
            {
                "annotations": more.annotations,
                "labels": more.labels,
                "nodeSelector": more.node_selector,
                "tolerations": more.tolerations,
                "schedulingGates": more.gates,
            },
        )
        component.setdefault(_INFOS, []).append(info)


def _take_out(spec: dict[str, Any], changes: Sequence[Change]) -> None:  # noqa: ARG001  # the same for all of them
    components = spec.get("components")
    for component in components if isinstance(components, list) else ():
        if isinstance(component, dict):
            component.pop(_INFOS, None)


def _verdict(seen: Seen) -> Verdict | None:
    """A failed one still has pods until what it wraps is gone."""
    match text(seen.status, "phase"):
        case "Succeeded":
            return Verdict(True, "The AppWrapper has succeeded")
        case "Failed" if not has_condition(seen.status, "ResourcesDeployed"):
            return Verdict(False, "The AppWrapper has failed")
        case _:
            return None


APP_WRAPPERS = Description(
    kind=job_kinds.APP_WRAPPER,
    roles=_roles,
    ready=lambda seen: has_condition(seen.status, "PodsReady"),
    active=lambda seen: has_condition(seen.status, "QuotaReserved"),
    verdict=_verdict,
    write=_inject,
    restore=_take_out,
)
