"""A ConversionReview over HTTP: all objects or none, metadata untouched, and an answer that says what is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from admission.webhook import conversion
from admission.webhook.app import create_app
from admission.webhook.conversion_rules import RULES
from tests.unit.webhook.asking import NO_QUEUES, settings
from tests.unit.webhook.test_conversion_rules import V1BETA1, V1BETA2, new, old


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return create_app(settings(), NO_QUEUES).test_client()


def review(*objects: Any, wanted: str = V1BETA2, **request: Any) -> dict[str, Any]:
    asked = {"uid": "u-1", "desiredAPIVersion": wanted, "objects": list(objects), **request}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": asked}


def send(client: FlaskClient, body: Any, content_type: str = "application/json") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    answer = client.post("/convert?timeout=30s", data=data, content_type=content_type)
    return answer.status_code, answer.get_json()


def test_all_objects_come_back_in_their_order(client: FlaskClient) -> None:
    objects = [old("ClusterQueue", spec={"cohort": "a"}), new("Cohort"), old("ClusterQueue", spec={"cohort": "b"})]
    status, answer = send(client, review(*objects))
    assert status == 200
    assert (answer["apiVersion"], answer["kind"]) == ("apiextensions.k8s.io/v1", "ConversionReview")
    assert answer["response"] == {
        "uid": "u-1",
        "result": {"status": "Success"},
        "convertedObjects": [
            new("ClusterQueue", spec={"cohortName": "a"}),
            new("Cohort"),
            new("ClusterQueue", spec={"cohortName": "b"}),
        ],
    }


def test_metadata_goes_back_byte_for_byte() -> None:
    metadata = b'{"name":"x" , "managedFields":[{"v":1e2,"t":"\\u00e9"}],"generation":18446744073709551616}'
    body = msgspec.json.encode(review(msgspec.Raw(b'{"apiVersion":"%s","kind":"Cohort","metadata":%s}' % (
        V1BETA1.encode(), metadata))))  # fmt: skip
    assert metadata in conversion.answer(body)


def test_one_that_fails_fails_all_and_is_named(client: FlaskClient) -> None:
    bad = old("Workload", metadata={"name": "w", "namespace": "ns"}, spec={"priorityClassSource": "?"})
    bad["spec"]["priorityClassName"] = "p"
    status, answer = send(client, review(old("Workload"), bad))
    assert status == 200
    assert answer["response"]["uid"] == "u-1"
    assert answer["response"]["convertedObjects"] == []
    assert answer["response"]["result"]["status"] == "Failure"
    assert answer["response"]["result"]["message"].startswith("Workload ns/w: spec.priorityClassSource: '?' is not one")


@pytest.mark.parametrize(
    ("objects", "want"),
    [
        pytest.param([7], "an object cannot be read: Expected `object`, got `int`", id="a number"),
        pytest.param([None], "an object cannot be read", id="nothing"),
        pytest.param([[]], "an object cannot be read", id="a list"),
        pytest.param([{}], "no version is not one of", id="nothing in it"),
        pytest.param([{"apiVersion": V1BETA1, "kind": 3}], "there is no such kind", id="a number for a kind"),
        pytest.param(
            [{"apiVersion": V1BETA1, "kind": "Pod", "metadata": []}], "there is no such kind", id="no metadata"
        ),
    ],
)
def test_what_is_no_object_is_a_failure(client: FlaskClient, objects: list[Any], want: str) -> None:
    status, answer = send(client, review(*objects))
    assert status == 200
    assert answer["response"]["result"]["status"] == "Failure"
    assert want in answer["response"]["result"]["message"]


def test_a_version_that_is_not_served_is_a_failure(client: FlaskClient) -> None:
    status, answer = send(client, review(old("Cohort"), wanted="kueue.x-k8s.io/v1"))
    assert status == 200
    assert answer["response"]["result"] == {
        "status": "Failure",
        "message": f"Cohort x: kueue.x-k8s.io/v1 is not one of {V1BETA1} and {V1BETA2}",
    }


@pytest.mark.parametrize("more", [{"objects": []}, {"objects": None}])
def test_nothing_to_convert_is_a_success(client: FlaskClient, more: dict[str, Any]) -> None:
    assert send(client, review(**more))[1]["response"]["result"] == {"status": "Success"}


@pytest.mark.parametrize("depth", [300, 100_000])
def test_a_tower_has_an_answer(client: FlaskClient, depth: int) -> None:
    tower = msgspec.Raw(b'{"a":' * depth + b"1" + b"}" * depth)
    status, answer = send(client, review({**old("ClusterQueue"), "spec": tower}))
    if status == 200:
        assert answer["response"]["result"]["status"] == "Success"
    else:
        assert (status, answer) == (400, {"error": "the body is nested too deeply to be read"})


@pytest.mark.parametrize(
    ("body", "content_type", "want"),
    [
        pytest.param(b"", "application/json", "is no ConversionReview", id="nothing"),
        pytest.param(b"{", "application/json", "is no ConversionReview", id="half a review"),
        pytest.param(b"\xff\xfe", "application/json", "is no ConversionReview", id="no text"),
        pytest.param(b"[1]", "application/json", "is no ConversionReview", id="a list"),
        pytest.param(b"{}", "application/json", "of no kind", id="no kind"),
        pytest.param(
            b'{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{"uid":"u"}}',
            "application/json",
            "apiextensions.k8s.io/v1beta1",
            id="an old version",
        ),
        pytest.param(
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u"}}',
            "application/json",
            "AdmissionReview",
            id="another review",
        ),
        pytest.param(msgspec.json.encode(review(uid="")), "application/json", "no request with a uid", id="no uid"),
        pytest.param(msgspec.json.encode(review(objects={})), "application/json", "$.request.objects", id="no list"),
        pytest.param(b"{}", "text/plain", "content type", id="another content type"),
    ],
)
def test_what_is_no_review_is_said_to_be_none(client: FlaskClient, body: bytes, content_type: str, want: str) -> None:
    status, answer = send(client, body, content_type)
    assert status == 400
    assert want in answer["error"]


def test_a_fault_of_our_own_is_a_failure(client: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "RULES", {"Cohort": None})
    status, answer = send(client, review({**old("Cohort"), "spec": {}}))
    assert status == 200
    assert answer["response"]["result"]["status"] == "Failure"
    assert "Muster failed to convert" in answer["response"]["result"]["message"]


WORDS = st.sampled_from(
    [
        *("cohort", "admissionChecks", "flavorFungibility", "priorityClassName", "priorityClassSource", "podSets"),
        *("priorityClassRef", "topologyRequest", "admission", "podSetAssignments", "topologyAssignment", "levels"),
        *("slices", "domains", "values", "count", "domainCount", "valuesPerLevel", "podCounts", "individual", "roots"),
        *("kubeConfig", "clusterSource", "clusterProfileRef", "location", "group", "kind", "name", "flavorUsage"),
    ]
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=5)),
    max_leaves=30,
)


@given(kind=st.sampled_from([*RULES, "Pod"]), versions=st.permutations([V1BETA1, V1BETA2]), spec=JSON, status=JSON)
@hypothesis_settings(max_examples=150, deadline=None)
def test_whatever_is_asked_there_is_an_answer(
    client: FlaskClient, kind: str, versions: list[str], spec: Any, status: Any
) -> None:
    have, wanted = versions
    obj = {"apiVersion": have, "kind": kind, "metadata": {"name": "x"}, "spec": spec, "status": status}
    code, answer = send(client, review(obj, wanted=wanted))
    assert code == 200
    result = answer["response"]["result"]
    assert result["status"] == "Success" or result["message"]
    assert "Muster failed" not in result.get("message", "")
    for converted in answer["response"]["convertedObjects"]:
        assert (converted["apiVersion"], converted["kind"], converted["metadata"]) == (wanted, kind, {"name": "x"})
