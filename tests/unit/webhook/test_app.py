"""What comes in over HTTP, and what goes out: always an answer, never a fault."""

from __future__ import annotations

import base64
import time
from typing import Any

import msgspec
import pytest
from flask.testing import FlaskClient
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from admission.api import names
from admission.settings import Muster, Tracing
from admission.telemetry import read_stamp
from admission.webhook import kinds
from admission.webhook.app import create_app
from tests.unit.webhook.asking import GPU, NO_QUEUES, QUEUE, FakeCaches, job, pod, settings


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    return create_app(settings(), NO_QUEUES).test_client()


def review(obj: Any, old: Any = None, *, gvk: tuple[str, str, str] = ("", "v1", "Pod"), **request: Any) -> dict:
    group, version, kind = gvk
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": group, "version": version, "kind": kind},
            "operation": "CREATE" if old is None else "UPDATE",
            "namespace": "ns",
            "object": obj,
            "oldObject": old,
            **request,
        },
    }


def send(client: FlaskClient, path: str, body: Any, content_type: str = "application/json") -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else msgspec.json.encode(body)
    answer = client.post(path, data=data, content_type=content_type)
    return answer.status_code, answer.get_json()


def test_a_pod_is_answered_with_a_patch(client: FlaskClient) -> None:
    status, answer = send(client, "/mutate--v1-pod?timeout=10s", review(pod({QUEUE: "q"})))
    assert status == 200
    assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    response = answer["response"]
    assert (response["uid"], response["allowed"], response["patchType"]) == ("u-1", True, "JSONPatch")
    paths = {operation["path"] for operation in msgspec.json.decode(base64.b64decode(response["patch"]))}
    assert "/spec/schedulingGates" in paths


def test_a_refusal_says_why(client: FlaskClient) -> None:
    body = review(job({QUEUE: "!"}), gvk=("batch", "v1", "Job"))
    status, answer = send(client, "/validate-batch-v1-job", body)
    assert status == 200
    assert answer["response"]["allowed"] is False
    assert answer["response"]["status"]["code"] == 403
    assert QUEUE in answer["response"]["status"]["message"]
    assert "patch" not in answer["response"]


@pytest.mark.parametrize(
    ("body", "content_type", "want"),
    [
        pytest.param(b"", "application/json", "is no AdmissionReview", id="nothing"),
        pytest.param(b"{", "application/json", "is no AdmissionReview", id="half a review"),
        pytest.param(b"\xff\xfe", "application/json", "is no AdmissionReview", id="no text"),
        pytest.param(b"[1]", "application/json", "is no AdmissionReview", id="a list"),
        pytest.param(b"{}", "application/json", "of no kind", id="no kind"),
        pytest.param(b'{"a":' * 100_000, "application/json", "the body is", id="a tower"),
        pytest.param(b"[" * 200_000 + b"]" * 200_000, "application/json", "the body is", id="a tower of lists"),
        pytest.param(
            b'{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"u"}}',
            "application/json",
            "admission.k8s.io/v1beta1",
            id="an old version",
        ),
        pytest.param(
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}',
            "application/json",
            "no request",
            id="no request",
        ),
        pytest.param(
            b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":7}}',
            "application/json",
            "is no AdmissionReview",
            id="a number for a uid",
        ),
        pytest.param(b"{}", "text/plain", "content type", id="another content type"),
    ],
)
def test_what_is_no_review_is_said_to_be_none(client: FlaskClient, body: bytes, content_type: str, want: str) -> None:
    status, answer = send(client, "/mutate--v1-pod", body, content_type)
    assert status == 400
    assert want in answer["error"]


def test_too_large_a_body_is_not_read(client: FlaskClient) -> None:
    status, answer = send(client, "/mutate--v1-pod", b" " * (17 * 1024 * 1024))
    assert status == 413
    assert answer["error"]


def test_paths_that_do_not_exist(client: FlaskClient) -> None:
    assert send(client, "/mutate-example-com-v1-thing", review(pod()))[0] == 404
    assert client.get("/mutate--v1-pod").status_code == 405


@pytest.mark.parametrize("path", ["/mutate-kubeflow-org-v1-pytorchjob", "/validate-ray-io-v1-raycluster"])
def test_kinds_that_are_not_enabled_are_let_through(client: FlaskClient, path: str) -> None:
    status, answer = send(client, path, review({"anything": 1}, gvk=("x", "y", "Z")))
    assert (status, answer["response"]) == (200, {"uid": "u-1", "allowed": True})


def test_paths_are_those_of_the_peer() -> None:
    paths = {kinds.path("validate", each.gvk) for each in kinds.KINDS}
    assert {"/validate--v1-pod", "/validate-batch-v1-job", "/validate-kueue-x-k8s-io-v1beta2-clusterqueue"} <= paths


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(review(pod(), gvk=("", "v1", "Node")), "not for Node.v1", id="another kind"),
        pytest.param(review(None), "cannot be read", id="no object"),
        pytest.param(review([]), "cannot be read", id="a list"),
        pytest.param(review({"metadata": {"labels": {"a": 1}}}), "metadata.labels", id="a number for a label"),
        pytest.param(review({"spec": {"containers": [7]}}), "spec.containers", id="a number for a container"),
        pytest.param(review({"spec": {"containers": [None]}}), "spec.containers", id="no container"),
    ],
)
def test_what_cannot_be_judged_is_refused(client: FlaskClient, body: dict, want: str) -> None:
    status, answer = send(client, "/mutate--v1-pod", body)
    assert status == 200
    assert answer["response"]["allowed"] is False
    assert want in answer["response"]["status"]["message"]


def test_nulls_are_fields_that_are_not_there(client: FlaskClient) -> None:
    obj = pod({QUEUE: "q"}, metadata={"creationTimestamp": None, "finalizers": None, "annotations": None})
    obj["spec"] |= {"initContainers": None, "nodeSelector": None, "schedulingGates": None}
    status, answer = send(client, "/mutate--v1-pod", review(obj))
    assert status == 200
    assert answer["response"]["allowed"], answer


def test_a_fault_of_our_own_refuses_the_object() -> None:
    class Broken(FakeCaches):
        def namespace_labels(self, name: str) -> Any:
            raise RuntimeError(f"cannot look up {name}")

    client = create_app(settings(), Broken()).test_client()
    status, answer = send(client, "/mutate--v1-pod", review(pod({QUEUE: "q"})))
    assert status == 200
    assert answer["response"]["allowed"] is False
    assert "failed to judge" in answer["response"]["status"]["message"]


# ------------------------------------------------------------------ anything at all

WORDS = st.one_of(
    st.sampled_from(
        [
            *("metadata", "spec", "labels", "annotations", "containers", "initContainers", "resources", "limits"),
            *("requests", "ownerReferences", "schedulingGates", "template", "podSets", "resourceGroups", "flavors"),
            *("count", "name", "parallelism", "suspend", "finalizers", "nominalQuota", "coveredResources", "uid"),
            *("namespaceSelector", "matchExpressions", "fairSharing", "weight", "status", "conditions", "nodeTaints"),
            QUEUE,
            GPU,
            "kueue.x-k8s.io/job-min-parallelism",
            "kueue.x-k8s.io/pod-group-total-count",
            "kueue.x-k8s.io/podset-slice-required-topology-constraints",
            "kueue.x-k8s.io/admission-gated-by",
        ]
    ),
    st.text(max_size=8),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(
        ["1", "-1", "1e999999999", "9" * 400, "٣", "0x9", "1Gi", "[]", '[{"topology":"a","size":0}]', "\x00"]
    ),
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(WORDS, inner, max_size=6)),
    max_leaves=40,
)
OBJECTS = st.fixed_dictionaries(
    {
        "metadata": st.one_of(
            JSON,
            st.fixed_dictionaries(
                {
                    "labels": st.dictionaries(WORDS, st.text(max_size=9)),
                    "annotations": st.dictionaries(WORDS, st.text()),
                }
            ),
        ),
        "spec": st.one_of(JSON, st.fixed_dictionaries({"containers": st.lists(JSON, max_size=3), "template": JSON})),
        "status": JSON,
    }
)


@given(
    kind=st.sampled_from(kinds.KINDS),
    verb=st.sampled_from(["mutate", "validate"]),
    operation=st.sampled_from(["CREATE", "UPDATE", "DELETE", "CONNECT", ""]),
    obj=st.one_of(JSON, OBJECTS),
    old=st.one_of(JSON, OBJECTS),
    user=JSON,
)
@hypothesis_settings(max_examples=150, deadline=None)
def test_whatever_is_asked_there_is_an_answer(
    client: FlaskClient, kind: kinds.Kind[Any], verb: str, operation: str, obj: Any, old: Any, user: Any
) -> None:
    gvk = (kind.gvk.group, kind.gvk.version, kind.gvk.kind)
    body = review(obj, old, gvk=gvk, operation=operation, userInfo=user)
    status, answer = send(client, kinds.path(verb, kind.gvk), body)
    assert status in {200, 400}
    if status == 200:
        message = answer["response"].get("status", {}).get("message", "")
        assert answer["response"]["allowed"] or message
        assert "failed to judge" not in message


@given(st.binary(max_size=200))
@hypothesis_settings(max_examples=100, deadline=None)
def test_whatever_bytes_arrive_there_is_an_answer(client: FlaskClient, body: bytes) -> None:
    assert send(client, "/mutate--v1-pod", body)[0] == 400


TRACED = settings(muster=Muster(tracing=Tracing(endpoint="http://collector:4318")))


@pytest.mark.parametrize("is_traced", [True, False], ids=["with traces", "without"])
@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_what_is_gated_is_stamped_where_gangs_are_traced(kind: str, is_traced: bool) -> None:
    with_or_without = create_app(TRACED if is_traced else settings(), NO_QUEUES).test_client()
    if kind == "Pod":
        _, answer = send(with_or_without, "/mutate--v1-pod", review(pod({QUEUE: "q"})))
    else:
        body = review(job({QUEUE: "q"}), gvk=("batch", "v1", "Job"))
        _, answer = send(with_or_without, "/mutate-batch-v1-job", body)
    patch = msgspec.json.decode(base64.b64decode(answer["response"]["patch"]))
    written = [value for each in patch if each["path"] == "/metadata/annotations" for value in each["value"].items()]
    stamps = [value for name, value in written if name == names.REVIEWED]
    assert len(stamps) == is_traced
    assert all(read_stamp(each, time.time()) for each in stamps)
