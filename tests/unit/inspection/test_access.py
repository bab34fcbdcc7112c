"""Who is let in, and on whose word."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask

from queues.inspection.access import (
    BELIEVED,
    HEADERS,
    KEPT,
    PEER,
    Access,
    Aggregation,
    Authorizer,
    Peer,
    User,
    remote_user,
)
from tests.unit.inspection.conftest import ON_SQLITE, TOKENS, Client, Cluster

AGGREGATION = Aggregation(client_ca="CA", allowed_names=("front-proxy",))


def through(peer: str | None, *headers: tuple[str, str]) -> dict[str, Any]:
    """The environment of a request on a connection with this client certificate."""
    joined = {"HTTP_" + name.upper().replace("-", "_"): value for name, value in headers}
    return {**joined, HEADERS: headers, **({PEER: Peer(peer)} if peer else {})}


ADMIN = ("X-Remote-User", "admin"), ("X-Remote-Group", "system:masters")

REFUSED = {
    "nothing at all": {},
    "headers without a certificate": through(None, *ADMIN),
    "a certificate of another name": through("kubelet", *ADMIN),
    "a certificate without headers": through("front-proxy"),
    "an empty user": through("front-proxy", ("X-Remote-User", "")),
    "a certificate that a client wrote into a header": {**through(None, *ADMIN), "HTTP_MUSTER_PEER": "front-proxy"},
    "an unknown token": {"HTTP_AUTHORIZATION": "Bearer wrong"},
    "an empty token": {"HTTP_AUTHORIZATION": "Bearer "},
    "basic authentication": {"HTTP_AUTHORIZATION": "Basic YWRtaW46YWRtaW4="},
    "a token with line breaks": {"HTTP_AUTHORIZATION": "Bearer admin-token\r\nX: y"},
    "a token that is no ASCII": {"HTTP_AUTHORIZATION": "Bearer admin-tokén"},
}


@pytest.mark.parametrize("environ", REFUSED.values(), ids=REFUSED.keys())
@ON_SQLITE
def test_strangers_are_refused(app: Flask, environ: dict[str, Any]) -> None:
    for path in ("/", "/api/v1/queues", "/apis", "/openapi/v2", "/nowhere"):
        answer = app.test_client().get(path, environ_overrides=environ)
        assert answer.status_code == 401, path
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert "cq" not in answer.text


@ON_SQLITE
def test_only_health_is_open(app: Flask) -> None:
    assert app.test_client().get("/healthz").data == b"ok"
    for path in ("/healthz/", "/healthz/../api/v1/queues", "//healthz", "/healthz?x", "/Healthz"):
        assert app.test_client().get(path).status_code in ({200} if path == "/healthz?x" else {401})


@ON_SQLITE
def test_the_api_server_is_believed(app: Flask) -> None:
    answer = app.test_client().get("/api/v1/queues", environ_overrides=through("front-proxy", *ADMIN))
    assert answer.status_code == 200


@ON_SQLITE
def test_when_the_cluster_is_away_no_one_gets_in(app: Flask, cluster: Cluster, client: Client) -> None:
    cluster.is_away = True
    answer = client("viewer").get("/api/v1/queues")
    assert answer.status_code == 503
    assert "Retry-After" in answer.headers
    assert app.test_client().get("/healthz").status_code == 200


def test_what_the_aggregation_layer_says_of_the_user() -> None:
    user = remote_user(
        (
            ("HOST", "x"),
            ("X-REMOTE-USER", "jane"),
            ("X-REMOTE-UID", "u-1"),
            ("X-REMOTE-GROUP", "cn=a,ou=b"),
            ("X-REMOTE-GROUP", "team"),
            ("X-REMOTE-EXTRA-SCOPES", "x,y"),
            ("X-REMOTE-EXTRA-SCOPES", "z"),
            ("X-REMOTE-EXTRA-EXAMPLE.ORG%2FKEY", "v"),
            ("X-REMOTE-EXTRA-", "nameless"),
        ),
        AGGREGATION,
    )
    assert user == User(
        "jane",
        ("cn=a,ou=b", "team", "system:authenticated"),
        "u-1",
        (("example.org/key", ("v",)), ("scopes", ("x,y", "z"))),
    )


def test_a_group_with_a_comma_is_one_group() -> None:
    user = remote_user((("X-Remote-User", "eve"), ("X-Remote-Group", "a,system:masters")), AGGREGATION)
    assert user is not None
    assert user.groups == ("a,system:masters", "system:authenticated")


def test_headers_have_the_names_that_the_cluster_publishes() -> None:
    other = Aggregation("CA", (), ("X-Who", "X-Remote-User"), (), ("X-Team",), ())
    assert remote_user((("X-Remote-User", "b"), ("x-who", "a"), ("x-team", "t")), other) == User(
        "a", ("t", "system:authenticated")
    )


def test_the_anonymous_user_does_not_become_authenticated() -> None:
    anonymous = (("X-Remote-User", "system:anonymous"), ("X-Remote-Group", "system:unauthenticated"))
    assert remote_user(anonymous, AGGREGATION) == User("system:anonymous", ("system:unauthenticated",))


def test_without_allowed_names_any_certificate_of_the_ca_will_do() -> None:
    class Open(Cluster):
        def aggregation(self) -> Aggregation | None:
            return Aggregation("CA")

    authorizer = Authorizer(Open())
    authorizer.refresh()
    assert authorizer.authenticate(through("anyone", *ADMIN)).name == "admin"


def test_answers_are_believed_for_a_short_while(cluster: Cluster) -> None:
    now = [0.0]
    authorizer = Authorizer(cluster, clock=lambda: now[0])
    token, right = {"HTTP_AUTHORIZATION": "bearer viewer-token"}, Access("list", "kueue.x-k8s.io", "clusterqueues")
    for _ in range(3):
        assert authorizer.allows(authorizer.authenticate(token), right)
    assert len(cluster.asked) == 2
    now[0] = BELIEVED + 0.1
    assert authorizer.allows(authorizer.authenticate(token), right)
    assert len(cluster.asked) == 4


def test_what_is_believed_is_bounded(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster)
    for n in range(KEPT + 50):
        authorizer.allows(TOKENS["nobody-token"], Access("get", "g", "r", name=str(n)))
    assert len(authorizer._rights.kept) == KEPT


def test_a_failed_look_keeps_what_was_known(cluster: Cluster) -> None:
    authorizer = Authorizer(cluster)
    authorizer.refresh()
    cluster.is_away = True
    with pytest.raises(Exception, match="refused"):
        authorizer.refresh()
    assert authorizer.aggregation is not None


# ------------------------------------------------------------------ the matrix

CQ_PENDING = "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/cq/pendingworkloads"
LQ_PENDING = "/apis/visibility.kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues/lq/pendingworkloads"

#: path -> what admin, viewer, team and nobody get
MATRIX = {
    "/": (200, 200, 403, 403),
    "/?namespace=team-a": (200, 200, 200, 403),
    "/?namespace=team-b": (200, 200, 403, 403),
    "/api/v1/queues": (200, 200, 403, 403),
    "/api/v1/queues?namespace=team-a": (200, 200, 200, 403),
    "/api/v1/queues?namespace=team-b": (200, 200, 403, 403),
    "/api/v1/queues/cq": (200, 200, 403, 403),
    "/api/v1/queues/none": (404, 404, 403, 403),
    "/api/v1/queues/cq/pending": (200, 200, 403, 403),
    "/api/v1/queues/cq/pending?namespace=team-a": (200, 200, 200, 403),
    "/api/v1/queues/cq/pending?namespace=team-b": (200, 200, 403, 403),
    "/api/v1/workloads/team-a/job-train": (200, 200, 200, 403),
    "/api/v1/workloads/team-b/secret": (200, 200, 403, 403),
    "/api/v1/workloads/team-b/none": (404, 404, 403, 403),
    "/api/v1/usage": (200, 200, 403, 403),
    "/api/v1/usage?namespace=team-a&by=namespace": (200, 200, 200, 403),
    "/api/v1/usage?namespace=team-b": (200, 200, 403, 403),
    "/api/v1/decisions": (200, 200, 403, 403),
    "/api/v1/decisions?namespace=team-a": (200, 200, 200, 403),
    "/api/v1/decisions?namespace=team-b": (200, 200, 403, 403),
    "/api/v1/decisions?uid=w2": (200, 200, 403, 403),
    "/api/v1/openapi.json": (200, 200, 200, 200),
    "/openapi.json": (200, 200, 200, 200),
    "/apis/inspection.muster.dev/v1/queues": (200, 200, 403, 403),
    "/apis/inspection.muster.dev/v1/page": (200, 200, 403, 403),
    CQ_PENDING: (200, 200, 403, 403),
    LQ_PENDING.format("team-a"): (200, 200, 200, 403),
    LQ_PENDING.format("team-b"): (200, 200, 403, 403),
    "/apis": (200, 200, 200, 200),
    "/openapi/v2": (200, 200, 200, 200),
    "/nowhere": (404, 404, 404, 404),
}


@ON_SQLITE
def test_everyone_sees_what_they_may_and_no_more(client: Client) -> None:
    callers = [client(name) for name in ("admin", "viewer", "team", "nobody")]
    got = {path: tuple(caller.get(path).status_code for caller in callers) for path in MATRIX}
    assert got == MATRIX


@ON_SQLITE
def test_nothing_of_another_namespace_shows(client: Client) -> None:
    paths = [path for path, codes in MATRIX.items() if codes[2] == 200]
    assert len(paths) > 8
    for path in paths:
        text = client("team").get(path).text
        assert "secret" not in text, path
        assert "team-b" not in text, path


@ON_SQLITE
def test_a_refusal_names_the_right_that_it_takes(client: Client) -> None:
    said = client("team").get("/api/v1/queues").get_json()["error"]
    assert said["code"] == 403
    assert "list clusterqueues.kueue.x-k8s.io" in said["message"]
