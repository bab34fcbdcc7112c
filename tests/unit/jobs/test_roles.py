"""Which pods are interchangeable members of a group."""

from typing import Any

import pytest

from admission.api.core import Pod
from admission.api.decoding import convert, plain
from admission.jobs.roles import role_hash, role_of
from tests.unit.jobs.builders import pod


def spec(**more: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}], **more}


SAME = {
    "another name and image": {"containers": [{"name": "x", "image": "y", "resources": {"requests": {"cpu": "1"}}}]},
    "the same quantity in other words": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1000m"}}}]},
    "limits": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}}]},
    "empty and missing": spec(nodeSelector={}, tolerations=[], affinity=None),
    "gates": spec(schedulingGates=[{"name": "g"}]),
}
OTHER = {
    "requests": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
    "ports": {"containers": [{"name": "c", "ports": [{"containerPort": 1}], "resources": {"requests": {"cpu": "1"}}}]},
    "node selector": spec(nodeSelector={"a": "b"}),
    "tolerations": spec(tolerations=[{"key": "a", "operator": "Exists"}]),
    "priority": spec(priority=5),
    "runtime class": spec(runtimeClassName="r"),
    "pod-level requests": spec(resources={"requests": {"cpu": "1"}}),
}


@pytest.mark.parametrize("other", SAME.values(), ids=SAME.keys())
def test_does_not_make_another_role(other: dict[str, Any]) -> None:
    assert role_hash(other) == role_hash(spec())


@pytest.mark.parametrize("other", OTHER.values(), ids=OTHER.keys())
def test_makes_another_role(other: dict[str, Any]) -> None:
    assert role_hash(other) != role_hash(spec())


@pytest.mark.parametrize("raw", OTHER.values(), ids=OTHER.keys())
def test_is_the_same_for_the_typed_pod(raw: dict[str, Any]) -> None:
    assert role_hash(plain(convert({"spec": raw}, Pod).spec)) == role_hash(raw)


def test_what_the_webhook_wrote_counts() -> None:
    assert role_of(convert(pod(role="abc"), Pod)) == "abc"
