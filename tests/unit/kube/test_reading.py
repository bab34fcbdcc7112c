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


def test_what_many_have_in_common_is_one() -> None:
    """Of a Workload that is finished nothing else is left than its names, its version and what holds the rest."""
    conditions = [
        {
            "type": type_,
            "status": "True",
            "reason": "Reason",
            "message": f"{type_} of all",
            "lastTransitionTime": "2027-01-15T08:00:00Z",
        }
        for type_ in ("QuotaReserved", "Admitted", "Finished")
    ]
    metadata = {
        "namespace": "n",
        "creationTimestamp": "2027-01-15T07:00:00Z",
        "labels": {"of": "all"},
        "finalizers": ["kueue.x-k8s.io/resource-in-use"],
    }
    first, second = (
        read(
            json.dumps(
                {
                    **WORKLOAD,
                    "metadata": {**metadata, "name": name, "uid": name},
                    "status": {"conditions": conditions[:count]},
                }
            ).encode(),
            Workload,
        )
        for name, count in (("first", 2), ("second", 3))
    )
    for field in ("namespace", "creation_timestamp", "labels", "annotations", "finalizers"):
        assert getattr(first.metadata, field) is getattr(second.metadata, field), field
    assert all(one is other for one, other in zip(first.status.conditions, second.status.conditions, strict=False))
    last = second.status.conditions[-1]
    for field in ("status", "reason", "last_transition_time"):
        assert getattr(last, field) is getattr(first.status.conditions[0], field), field


def test_every_field_is_read() -> None:
    """Each is named where it is read, so a new one could be forgotten there."""
    status = {
        "requeueState": {"count": 1},
        "admissionChecks": [{"name": "c", "state": "Ready"}],
        "resourceRequests": [{"name": "main"}],
        "nominatedClusterNames": ["c"],
        "clusterName": "c",
        "unhealthyNodes": [{"name": "n"}],
        "preemptionGates": [{"name": "g"}],
    }
    metadata = {
        "generateName": "w-",
        "uid": "u",
        "generation": 3,
        "creationTimestamp": "2027-01-15T07:00:00Z",
        "deletionTimestamp": "2027-01-15T08:00:00Z",
        "deletionGracePeriodSeconds": 1,
        "annotations": {"a": "b"},
        "ownerReferences": [{"name": "o"}],
        "finalizers": ["f"],
    }
    body = {
        **WORKLOAD,
        "metadata": {**WORKLOAD["metadata"], **metadata},
        "status": {**WORKLOAD["status"], **status},
    }
    data = json.dumps(body).encode()
    found = read(data, Workload)
    assert found == decode(data, Workload)
    for part in (found.metadata, found.status):
        defaults = type(part)()
        unset = [name for name in part.__struct_fields__ if getattr(part, name) == getattr(defaults, name)]
        assert unset == []


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
