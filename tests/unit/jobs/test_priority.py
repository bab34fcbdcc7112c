"""Which priority a Workload gets: from the job's label, the class called `default`, the pods, or the global default."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from admission.api.core import PriorityClass
from admission.api.meta import ObjectMeta
from admission.jobs.priority import ClassMissing, Priority, resolve
from admission.settings import LabelSelector, Settings
from tests.unit.jobs.builders import World

NAMESPACE = {"kubernetes.io/metadata.name": "team"}


@dataclass(frozen=True)
class Case:
    id: str
    want: tuple[int, str] | str
    label: str = ""
    pods: tuple[str, ...] = ()
    workload_classes: dict[str, int] = field(default_factory=dict)
    is_global: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    namespace: dict[str, str] = field(default_factory=lambda: NAMESPACE)


OTHERS = LabelSelector(match_labels={"managed": "yes"})
CASES = [
    Case("nothing asked for is 0", (0, "")),
    Case(
        "the label counts first", (5, "high"), label="high", pods=("pods",), workload_classes={"high": 5, "default": 1}
    ),
    Case("a class that is not there is said to be missing", "high", label="high", workload_classes={"default": 1}),
    Case("who names none gets the class called default", (1, "default"), workload_classes={"default": 1}),
    Case("it goes before the class of the pods", (1, "default"), pods=("pods",), workload_classes={"default": 1}),
    Case("without that class the pods' counts", (7, "pods"), pods=("", "pods"), workload_classes={"high": 5}),
    Case("without any the global default counts", (7, "pods"), is_global=True),
    Case(
        "with the gate off there is no default",
        (7, "pods"),
        pods=("pods",),
        workload_classes={"default": 1},
        settings={"feature_gates": {"WorkloadPriorityClassDefaulting": False}},
    ),
    Case(
        "a namespace that is not managed has no default",
        (0, ""),
        workload_classes={"default": 1},
        settings={"managed_jobs_namespace_selector": OTHERS},
    ),
    Case(
        "a managed one has it",
        (1, "default"),
        workload_classes={"default": 1},
        settings={"managed_jobs_namespace_selector": OTHERS},
        namespace={**NAMESPACE, "managed": "yes"},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_priority(case: Case) -> None:
    world = World(settings=msgspec.structs.replace(Settings(namespace="kueue-system"), **case.settings))
    world.workload_classes = case.workload_classes
    world.pod_classes = [PriorityClass(metadata=ObjectMeta(name="pods"), value=7, global_default=case.is_global)]
    world.ns_labels = case.namespace
    found = resolve(case.label, case.pods, world, "team")
    match found:
        case ClassMissing(_, name):
            assert case.want == name
        case Priority(value, ref):
            assert case.want == (value, "" if ref is None else ref.name)
