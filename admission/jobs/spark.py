"""sparkoperator.k8s.io SparkApplication: a driver and its executors, charged what Spark will ask for.

The operator hands most of the spec to Spark, which works out the requests of the pods later. They are worked out here
by Spark's rules from the typed fields and `sparkConf`; what does not read as a number counts as Spark's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from admission.api import job_kinds
from admission.jobs.described import (
    Change,
    Description,
    Role,
    Seen,
    found,
    mapping,
    mappings,
    number,
    put,
    text,
    within,
)
from admission.jobs.gang import Verdict

DRIVER: Final = "driver"
EXECUTOR: Final = "executor"
_CONTAINERS: Final = {DRIVER: "spark-kubernetes-driver", EXECUTOR: "spark-kubernetes-executor"}

_MIB: Final = 2**20
_UNITS: Final = {"": _MIB, "b": 1, "k": 2**10, "m": _MIB, "g": 2**30, "t": 2**40, "p": 2**50}
_MEMORY: Final = re.compile(r"([0-9]{1,18})([bkmgtp]?)b?", re.IGNORECASE)
_DEFAULT_MEMORY: Final = 1024 * _MIB
_LEAST_OVERHEAD: Final = 384 * _MIB
_FACTOR: Final = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?")
#: Of the memory, for what runs beside the JVM: more where Python or R do the work.
_OVERHEAD: Final = {"Python": Fraction(4, 10), "R": Fraction(4, 10)}
_OTHER_OVERHEAD: Final = Fraction(1, 10)

_ENDED: Final = frozenset({"COMPLETED", "FAILED", "SUBMISSION_FAILED"})
_WITHOUT_PODS: Final = frozenset({"", "SUSPENDED", *_ENDED})


def _roles(seen: Seen) -> tuple[Role, ...]:
    return (
        Role(DRIVER, 1, _template(seen.spec, DRIVER), (DRIVER,)),
        Role(EXECUTOR, _instances(seen.spec), _template(seen.spec, EXECUTOR), (EXECUTOR,)),
    )


def _instances(spec: Mapping[str, Any]) -> int:
    return number(spec, EXECUTOR, "instances", default=1)


def _template(spec: Mapping[str, Any], role: str) -> dict[str, Any]:
    """The pod template that the operator and Spark will come to."""
    own = mapping(spec, role)
    base = mapping(own, "template")
    pod = dict(mapping(base, "spec"))
    containers = [dict(each) for each in mappings(pod, "containers")] or [{"name": _CONTAINERS[role]}]
    at = next((index for index, each in enumerate(containers) if each.get("name") == _CONTAINERS[role]), 0)
    containers[at] = {**containers[at], "resources": _resources(spec, role, mapping(containers[at], "resources"))}
    if image := text(own, "image") or text(spec, "image"):
        containers[at].setdefault("image", image)
    tolerations = mappings(pod, "tolerations")
    selector = {**mapping(pod, "nodeSelector"), **mapping(spec, "nodeSelector")}
    merged = {
        "initContainers": [*mappings(pod, "initContainers"), *mappings(own, "initContainers")],
        "containers": [*containers, *mappings(own, "sidecars")],
        "nodeSelector": {**selector, **mapping(own, "nodeSelector")},
        "tolerations": [*tolerations, *(each for each in mappings(own, "tolerations") if each not in tolerations)],
        "affinity": mapping(own, "affinity") or mapping(pod, "affinity"),
        "priorityClassName": text(own, "priorityClassName") or text(pod, "priorityClassName"),
    }
    put(pod, merged)
    metadata = {
        key: {**mapping(base, "metadata", key), **mapping(own, key)}
        for key in ("labels", "annotations")
        if mapping(base, "metadata", key) or mapping(own, key)
    }
    return {"metadata": metadata, "spec": pod}


def _resources(spec: Mapping[str, Any], role: str, given: Mapping[str, Any]) -> dict[str, Any]:
    own, conf = mapping(spec, role), mapping(spec, "sparkConf")
    requests, limits = dict(mapping(given, "requests")), dict(mapping(given, "limits"))
    cores = text(own, "coreRequest") or text(conf, f"spark.kubernetes.{role}.request.cores")
    typed = number(own, "cores")
    requests["cpu"] = cores or (str(typed) if typed else "") or text(conf, f"spark.{role}.cores") or "1"
    requests["memory"] = str(_memory(spec, role))
    for name, field in (("cpu", "coreLimit"), ("memory", "memoryLimit")):
        if said := text(own, field):
            limits[name] = said if name == "cpu" else str(_bytes(said, _DEFAULT_MEMORY))
    if (gpus := number(own, "gpu", "quantity")) and (name := text(own, "gpu", "name")):
        limits[name] = gpus
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _memory(spec: Mapping[str, Any], role: str) -> int:
    own, conf = mapping(spec, role), mapping(spec, "sparkConf")
    memory = _bytes(text(own, "memory") or text(conf, f"spark.{role}.memory"), _DEFAULT_MEMORY)
    least = max(int(_factor(spec, role) * memory), _LEAST_OVERHEAD)
    total = memory + _bytes(text(own, "memoryOverhead") or text(conf, f"spark.{role}.memoryOverhead"), least)
    if role == EXECUTOR:
        if text(spec, "type") == "Python":
            total += _bytes(text(conf, "spark.executor.pyspark.memory"), 0)
        if text(conf, "spark.memory.offHeap.enabled").lower() == "true":
            total += _bytes(text(conf, "spark.memory.offHeap.size"), 0, unit=1)
    return total // _MIB * _MIB


def _factor(spec: Mapping[str, Any], role: str) -> Fraction:
    conf = mapping(spec, "sparkConf")
    said = (
        text(conf, f"spark.{role}.memoryOverheadFactor")
        or text(conf, "spark.kubernetes.memoryOverheadFactor")
        or text(spec, "memoryOverheadFactor")
    )
    return Fraction(said) if _FACTOR.fullmatch(said) else _OVERHEAD.get(text(spec, "type"), _OTHER_OVERHEAD)


def _bytes(said: str, default: int, *, unit: int = _MIB) -> int:
    """An amount as Spark writes it, such as 512m; a bare number is in `unit`."""
    match = _MEMORY.fullmatch(said.strip())
    if match is None:
        return default
    return int(match[1]) * (_UNITS[match[2].lower()] if match[2] else unit)


def _write(spec: dict[str, Any], changes: Sequence[Change]) -> None:
    """Into the fields that the operator hands to Spark; only scheduling gates have none but the template's."""
    for role, _, wanted in changes:
        own = found(spec, role.place or ())
        if role.place is None or not isinstance(own, dict):
            continue
        put(
            own,
            {
                "labels": wanted.labels,
                "annotations": wanted.annotations,
                "nodeSelector": wanted.node_selector,
                "tolerations": wanted.tolerations,
            },
        )
        if not wanted.gates and not mappings(own, "template", "spec", "schedulingGates"):
            continue
        pod = within(within(own, "template"), "spec")
        pod.setdefault("containers", [{"name": _CONTAINERS[role.name]}])
        put(pod, {"schedulingGates": wanted.gates})


def _state(seen: Seen) -> str:
    return text(seen.status, "applicationState", "state")


def _ready(seen: Seen) -> bool:
    states = mapping(seen.status, "executorState").values()
    up = sum(state in {"RUNNING", "COMPLETED"} for state in states)
    return _state(seen) == "RUNNING" and up >= _instances(seen.spec)


def _verdict(seen: Seen) -> Verdict | None:
    state = _state(seen)
    if state not in _ENDED:
        return None
    success = state == "COMPLETED"
    message = text(seen.status, "applicationState", "errorMessage")
    return Verdict(success, message or f"The SparkApplication has {'succeeded' if success else 'failed'}")


SPARK_APPLICATIONS = Description(
    kind=job_kinds.SPARK_APPLICATION,
    roles=_roles,
    ready=_ready,
    active=lambda seen: _state(seen) not in _WITHOUT_PODS,
    verdict=_verdict,
    write=_write,
    restore=_write,
)
