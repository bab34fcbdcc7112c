"""Objects read with what they have in common kept once are those that a plain decode gives."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from admission.api.core import Pod
from admission.api.decoding import decode
from admission.api.kueue import Workload
from admission.kube.reading import read

WORKLOAD: dict[str, Any] = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "n", "resourceVersion": "7", "labels": {"a": "b"}},
    "spec": {
        "queueName": "q",
        "priority": 5,
        "podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "c"}]}}}],
    },
    "status": {
        "conditions": [{"type": "Admitted", "status": "True", "reason": "r", "message": "m"}],
        "admission": {
            "clusterQueue": "q",
            "podSetAssignments": [{"name": "main", "flavors": {"cpu": "f"}, "resourceUsage": {"cpu": "2"}, "count": 2}],
        },
        "reclaimablePods": [{"name": "main", "count": 1}],
        "schedulingStats": {"evictions": [{"reason": "Preempted", "underlyingCause": "", "count": 3}]},
        "accumulatedPastExecutionTimeSeconds": 7,
    },
}


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(WORKLOAD, id="a whole one"),
        pytest.param({key: WORKLOAD[key] for key in ("apiVersion", "kind", "metadata")}, id="one with a name only"),
        pytest.param({**WORKLOAD, "status": None}, id="a status that is null"),
        pytest.param({**WORKLOAD, "spec": None}, id="a spec that is null"),
        pytest.param({**WORKLOAD, "spec": {**WORKLOAD["spec"], "queueName": None}}, id="a null within the spec"),
        pytest.param({**WORKLOAD, "status": {"conditions": [], "admission": None}}, id="an admission that is null"),
        pytest.param({**WORKLOAD, "status": {**WORKLOAD["status"], "conditions": None}}, id="conditions that are null"),
        pytest.param({**WORKLOAD, "more": {"unknown": 1}}, id="a field that nobody knows"),
    ],
)
def test_as_decoded(body: dict[str, Any]) -> None:
    data = json.dumps(body).encode()
    for _ in range(2):
        assert read(data, Workload) == decode(data, Workload)


def test_what_has_the_same_bytes_is_one() -> None:
    other = {**WORKLOAD, "metadata": {"name": "other"}, "status": {**WORKLOAD["status"], "reclaimablePods": []}}
    first, second = (read(json.dumps(body).encode(), Workload) for body in (WORKLOAD, other))
    assert first.spec is second.spec
    assert first.status.admission is second.status.admission
    assert first.status.conditions is second.status.conditions
    assert (first.metadata.name, second.metadata.name) == ("w", "other")


def test_other_specs_stay_apart() -> None:
    other = {**WORKLOAD, "spec": {**WORKLOAD["spec"], "priority": 6}}
    first, second = (read(json.dumps(body).encode(), Workload) for body in (WORKLOAD, other))
    assert (first.spec.priority, second.spec.priority) == (5, 6)


def test_what_cannot_be_read_is_said() -> None:
    with pytest.raises(msgspec.DecodeError):
        read(b'{"spec": {"podSets": 5}}', Workload)
    with pytest.raises(msgspec.DecodeError):
        read(b"{", Workload)


def test_other_kinds_are_decoded() -> None:
    assert read(b'{"metadata": {"name": "p"}}', Pod).metadata.name == "p"
