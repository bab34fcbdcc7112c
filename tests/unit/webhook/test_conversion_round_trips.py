"""There and back between the versions, for all that the schemas allow: the same but for what is known to be lost."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from admission.api import crds, kueue, v1beta1_crds
from admission.api.kueue import TopologyAssignment
from admission.api.topology_assignment import decode
from tests.unit.webhook.test_conversion_rules import POD_REF, QUEUE_REF, V1BETA1, V1BETA2, Object, down, up

KINDS = [kind.__name__ for kind in kueue.KINDS]


TOPOLOGY = "Workload.status.admission.podSetAssignments[].topologyAssignment"
WORDS = st.text("abz-", min_size=1, max_size=6)
ANYTHING = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=5),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(WORDS, inner, max_size=2)),
    max_leaves=5,
)


NEW = {kind.__name__: crds.schema_of(kind) for kind in kueue.KINDS}
OLD = {kind.__name__: v1beta1_crds.version(kind.DEFINITION.plural)["schema"]["openAPIV3Schema"] for kind in kueue.KINDS}


def schema_of(kind: str, version: str) -> Object:
    return (OLD if version == V1BETA1 else NEW)[kind]


def values(path: str, version: str, node: Object) -> st.SearchStrategy[Any]:
    special = SPECIAL.get(path, {}).get(version)
    if special is not None:
        return special
    if node.get("x-kubernetes-int-or-string"):
        return st.one_of(st.integers(0, 9), st.sampled_from(["1", "500m", "2Gi"]))
    match node["type"]:
        case "string":
            found = st.sampled_from(node["enum"]) if "enum" in node else WORDS
        case "integer":
            least = node.get("minimum", -5)
            found = st.integers(least, least + 9)
        case "boolean":
            found = st.booleans()
        case "array":
            is_scalar = node["items"]["type"] != "object"
            items = values(f"{path}[]", version, node["items"])
            found = st.lists(items, min_size=node.get("minItems", 0), max_size=2, unique=is_scalar)
        case "object" if "properties" in node:
            fields = {name: values(f"{path}.{name}", version, each) for name, each in node["properties"].items()}
            needed = {name: fields.pop(name) for name in node.get("required", ())}
            found = st.fixed_dictionaries(needed, optional=fields)
        case "object" if "additionalProperties" in node:
            found = st.dictionaries(WORDS, values(f"{path}{{}}", version, node["additionalProperties"]), max_size=2)
        case _:
            found = st.dictionaries(WORDS, ANYTHING, max_size=2)
    return found


@st.composite
def domains(draw: st.DrawFn) -> tuple[list[str], list[tuple[list[str], int]]]:
    levels = draw(st.lists(WORDS, min_size=1, max_size=3))
    one = st.tuples(st.lists(WORDS, min_size=len(levels), max_size=len(levels)), st.integers(1, 3))
    return levels, draw(st.lists(one, min_size=1, max_size=5))


@st.composite
def slices(draw: st.DrawFn) -> Object:
    """A placement as anybody may write it, not only as it would be encoded here."""
    levels = draw(st.lists(WORDS, min_size=1, max_size=3))
    found = []
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(1, 3))
        roots = st.lists(st.text("ab", max_size=2), min_size=count, max_size=count)
        individual = st.fixed_dictionaries({"roots": roots}, optional={"prefix": WORDS, "suffix": WORDS})
        counts = st.lists(st.integers(1, 4), min_size=count, max_size=count)
        level = st.one_of(
            st.fixed_dictionaries({"universal": WORDS}), st.fixed_dictionaries({"individual": individual})
        )
        found.append(
            {
                "domainCount": count,
                "valuesPerLevel": [draw(level) for _ in levels],
                "podCounts": draw(
                    st.one_of(
                        st.fixed_dictionaries({"universal": st.integers(1, 4)}),
                        st.fixed_dictionaries({"individual": counts}),
                    )
                ),
            }
        )
    return {"levels": levels, "slices": found}


def as_domains(drawn: tuple[list[str], list[tuple[list[str], int]]]) -> Object:
    levels, found = drawn
    return {"levels": levels, "domains": [{"values": values, "count": count} for values, count in found]}


KUBE_CONFIG = st.fixed_dictionaries({"location": WORDS, "locationType": st.sampled_from(["Secret", "Path"])})
SOURCE = st.one_of(
    st.fixed_dictionaries({"kubeConfig": KUBE_CONFIG}),
    st.fixed_dictionaries({"clusterProfileRef": st.fixed_dictionaries({"name": WORDS})}),
)
#: What rules tie together, which a schema does not say.
SPECIAL: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    TOPOLOGY: {
        V1BETA2: slices(),
        V1BETA1: domains().map(as_domains),
    },
    "Workload.spec.priorityClassRef": {
        V1BETA2: st.sampled_from([QUEUE_REF, POD_REF]).flatmap(
            lambda ref: WORDS.map(lambda name: {**ref, "name": name})
        )
    },
    "MultiKueueCluster.spec.clusterSource": {V1BETA2: SOURCE},
    "MultiKueueCluster.spec": {V1BETA1: SOURCE},
}


def whole(path: str, version: str, node: Object) -> Any:
    """A value in which every field stands, and every list has an item."""
    value: Any = WHOLE.get(path, {}).get(version)
    match node.get("type"):
        case _ if value is not None:
            pass
        case "object" if "properties" in node:
            value = {name: whole(f"{path}.{name}", version, each) for name, each in node["properties"].items()}
        case "object" if "additionalProperties" in node:
            value = {"key": whole(f"{path}{{}}", version, node["additionalProperties"])}
        case "object":
            value = {"anything": [1, {"at": None}]}
        case "array":
            value = [whole(f"{path}[]", version, node["items"])]
        case "integer":
            value = 7
        case "boolean":
            value = False
        case _:
            value = node["enum"][0] if "enum" in node else "1"
    return value


ROOTS = {"individual": {"prefix": "p", "suffix": "s", "roots": ["x", "y"]}}
SLICE = {"domainCount": 2, "valuesPerLevel": [{"universal": "u"}, ROOTS], "podCounts": {"individual": [1, 2]}}
DOMAINS = [{"values": ["x"], "count": 2}, {"values": ["y"], "count": 1}]
WHOLE: dict[str, dict[str, Any]] = {
    TOPOLOGY: {
        V1BETA1: {"levels": ["a"], "domains": DOMAINS},
        V1BETA2: {"levels": ["a", "b"], "slices": [SLICE]},
    },
    "Workload.spec.priorityClassRef": {V1BETA2: QUEUE_REF},
}


@cache
def objects(kind: str, version: str) -> st.SearchStrategy[Object]:
    """Any object that the schema of the version allows, as far as rules do not tie its fields together."""
    head = {
        "apiVersion": st.just(version),
        "kind": st.just(kind),
        "metadata": st.fixed_dictionaries({"name": WORDS, "anything": ANYTHING}),
    }
    parts = schema_of(kind, version)["properties"].items()
    optional = {name: values(f"{kind}.{name}", version, node) for name, node in parts if name not in head}
    return st.fixed_dictionaries(head, optional=optional)


def without(obj: Any, *paths: str) -> Any:
    """A copy without the fields at these paths; `[]` goes into each item."""
    obj = copy.deepcopy(obj)

    def drop(at: Any, steps: list[str]) -> None:
        step, *more = steps
        name = step.removesuffix("[]")
        if not isinstance(at, dict) or name not in at:
            return
        if not more:
            del at[name]
            return
        for each in at[name] if step.endswith("[]") else [at[name]]:
            drop(each, more)

    for path in paths:
        drop(obj, path.split("."))
    return obj


def with_domains(obj: Object) -> Object:
    """A copy that says where the pods are without saying in which slices."""
    obj = copy.deepcopy(obj)
    for assignment in obj.get("status", {}).get("admission", {}).get("podSetAssignments", ()):
        if "topologyAssignment" in assignment:
            compact = msgspec.convert(assignment["topologyAssignment"], TopologyAssignment)
            assignment["topologyAssignment"] = (compact.levels, decode(compact))
    return obj


def lost_from_v1beta1(obj: Object) -> Object:
    obj = without(obj, "status.pendingWorkloadsStatus", "status.flavors", "spec.retryDelayMinutes")
    spec = obj.get("spec", {})
    if checks := spec.pop("admissionChecks", None):
        spec["admissionChecksStrategy"] = {"admissionChecks": [{"name": name} for name in checks]}
    for name, value in spec.get("flavorFungibility", {}).items():
        spec["flavorFungibility"][name] = "MayStopSearch" if value in {"Borrow", "Preempt"} else value
    if not (spec.get("priorityClassName") and spec.get("priorityClassSource")):
        spec.pop("priorityClassName", None)
        spec.pop("priorityClassSource", None)
    return obj


LOST_FROM_V1BETA2 = (
    "spec.concurrentAdmissionPolicy",
    "spec.preemptionGates",
    "spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints",
    "status.preemptionGates",
    "spec.quotaManagement",
)


def unknown(obj: Any, schema: Object, path: str = "") -> list[str]:
    """Fields that the API server would prune."""
    if isinstance(obj, list):
        return [each for item in obj for each in unknown(item, schema["items"], f"{path}[]")]
    if not isinstance(obj, dict) or "properties" not in schema:
        return []
    found = [f"{path}.{name}" for name in obj if name not in schema["properties"]]
    known = [(name, value) for name, value in obj.items() if name in schema["properties"] and name != "metadata"]
    return found + [
        each for name, value in known for each in unknown(value, schema["properties"][name], f"{path}.{name}")
    ]


def same_there_and_back(kind: str, obj: Object) -> None:
    """From v1beta2."""
    between = down(obj)
    assert unknown(between, OLD[kind]) == []
    assert with_domains(up(between)) == with_domains(without(obj, *LOST_FROM_V1BETA2))
    # What was read as v1beta1 and written back is read the same again.
    assert down(up(between)) == between


def same_back_and_there(kind: str, obj: Object) -> None:
    """From v1beta1."""
    between = up(obj)
    assert unknown(between, NEW[kind]) == []
    assert down(between) == lost_from_v1beta1(obj)
    # What the controller stored stays the same, whoever writes beside it.
    assert up(down(between)) == between


WAYS = [
    pytest.param(V1BETA2, same_there_and_back, id="v1beta2"),
    pytest.param(V1BETA1, same_back_and_there, id="v1beta1"),
]
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


@pytest.mark.parametrize(("version", "check"), WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind: str, version: str, check: Callable[[str, Object], None]) -> None:
    @given(objects(kind, version))
    @hypothesis_settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
    def checked(obj: Object) -> None:
        check(kind, obj)

    checked()


@pytest.mark.parametrize(("version", "check"), WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_object_with_every_field_there_and_back(
    kind: str, version: str, check: Callable[[str, Object], None]
) -> None:
    check(
        kind,
        {
            **whole(kind, version, schema_of(kind, version)),
            "apiVersion": version,
            "kind": kind,
            "metadata": {"name": "x"},
        },
    )
