"""Kueue's visibility API, field by field."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import text

from queues.journal.database import open_database
from queues.journal.writer import Journal
from tests.unit.inspection.conftest import ON_SQLITE, Client
from tests.unit.journal.rows import workload

ROOT = "/apis/visibility.kueue.x-k8s.io"
CQ = ROOT + "/v1beta2/clusterqueues/cq/pendingworkloads"
LQ = ROOT + "/v1beta2/namespaces/team-a/localqueues/lq/pendingworkloads"


def names(client: Client, path: str) -> list[str]:
    answer = client("admin").get(path)
    assert answer.status_code == 200, answer.text
    return [item["metadata"]["name"] for item in answer.get_json()["items"]]


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1"])
def test_the_summary_is_the_peers_to_the_letter(client: Client, version: str) -> None:
    assert client("admin").get(LQ.replace("v1beta2", version)).get_json() == {
        "kind": "PendingWorkloadsSummary",
        "apiVersion": f"visibility.kueue.x-k8s.io/{version}",
        "metadata": {},
        "items": [
            {
                "metadata": {
                    "name": "job-train",
                    "namespace": "team-a",
                    "creationTimestamp": "1970-01-12T13:38:20Z",
                    "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "j1"}],
                },
                "priority": 5,
                "localQueueName": "lq",
                "positionInClusterQueue": 1,
                "positionInLocalQueue": 0,
            },
            {
                "metadata": {"name": "later", "namespace": "team-a", "creationTimestamp": "1970-01-12T13:45:50Z"},
                "priority": 0,
                "localQueueName": "lq",
                "positionInClusterQueue": 2,
                "positionInLocalQueue": 1,
            },
        ],
    }


PAGES = {
    "no limit is a thousand": ("", ["secret", "job-train", "later"]),
    "a limit": ("?limit=1", ["secret"]),
    "limit 0 is the default": ("?limit=0", ["secret", "job-train", "later"]),
    "a negative limit asks for nothing": ("?limit=-1", []),
    "beyond the cap": ("?limit=9223372036854775807", ["secret", "job-train", "later"]),
    "an offset": ("?offset=1", ["job-train", "later"]),
    "a negative offset is the beginning": ("?offset=-7", ["secret", "job-train", "later"]),
    "both": ("?limit=1&offset=1", ["job-train"]),
    "beyond the end": ("?offset=9223372036854775807", []),
    "other parameters do not matter": ("?timeout=10s&pretty=true&limit=1", ["secret"]),
}


@pytest.mark.parametrize(("query", "want"), PAGES.values(), ids=PAGES.keys())
def test_paging_of_a_cluster_queue(client: Client, query: str, want: list[str]) -> None:
    assert names(client, CQ + query) == want


def test_a_local_queue_is_filtered_before_it_is_paged(client: Client) -> None:
    assert names(client, LQ + "?offset=1") == ["later"]
    assert names(client, LQ + "?limit=1") == ["job-train"]


@pytest.mark.parametrize("value", ["x", "", "1.0", "9223372036854775808", "1 ", "0x1", "9" * 400])
@pytest.mark.parametrize("name", ["limit", "offset"])
@ON_SQLITE
def test_a_number_that_is_none_is_a_bad_request(client: Client, name: str, value: str) -> None:
    answer = client("admin").get(CQ, query_string={name: value})
    status = answer.get_json()
    assert (answer.status_code, status["kind"], status["reason"], status["code"]) == (400, "Status", "BadRequest", 400)
    assert name in status["message"]


def test_the_cap_and_the_default(scratch: None, client: Client, url: str) -> None:
    journal = Journal(url, clock=lambda: 1000.0, batch_size=5000)
    journal.put(*(workload(f"many-{n:05}", cluster_queue="stopped") for n in range(1205)))
    journal.start()
    assert journal.close(30)
    many = CQ.replace("/cq/", "/stopped/")
    assert len(names(client, many)) == 1000
    assert len(names(client, many + "?limit=1100")) == 1100
    assert len(names(client, many + "?limit=2000&offset=1000")) == 205


def test_an_empty_queue_and_a_queue_astray(client: Client) -> None:
    assert names(client, CQ.replace("/cq/", "/stopped/")) == []
    assert names(client, LQ.replace("/lq/", "/astray/")) == [], "its ClusterQueue does not exist"


@pytest.mark.parametrize(
    ("path", "kind", "name"),
    [(CQ.replace("/cq/", "/none/"), "clusterqueue", "none"), (LQ.replace("/lq/", "/none/"), "localqueue", "none")],
)
@ON_SQLITE
def test_an_unknown_queue_is_a_status_404(client: Client, path: str, kind: str, name: str) -> None:
    answer = client("admin").get(path)
    assert answer.status_code == 404
    assert answer.get_json() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": f'{kind}.visibility.kueue.x-k8s.io "{name}" not found',
        "reason": "NotFound",
        "details": {"name": name, "group": "visibility.kueue.x-k8s.io", "kind": kind},
        "code": 404,
    }


@ON_SQLITE
def test_failures_are_status_objects_too(scratch: None, client: Client, url: str) -> None:
    forbidden = client("nobody").get(CQ).get_json()
    assert (forbidden["kind"], forbidden["reason"], forbidden["code"]) == ("Status", "Forbidden", 403)
    for path in (CQ.replace("v1beta2", "v1"), ROOT + "/v1beta2/clusterqueues", ROOT + "/v1beta2/clusterqueues/cq"):
        assert client("admin").get(path).get_json()["reason"] == "NotFound", path
    assert client("admin").post(CQ).get_json()["reason"] == "MethodNotAllowed"
    with open_database(url, write=True).begin() as connection:
        connection.execute(text("DROP TABLE workloads"))
    broken = client("admin").get(CQ)
    assert (broken.status_code, broken.get_json()["reason"]) == (503, "ServiceUnavailable")


@ON_SQLITE
def test_discovery(client: Client) -> None:
    def get(path: str, accept: str = "application/json") -> Any:
        return client("nobody").get(path, headers={"Accept": accept}).get_json()

    group = get(ROOT)
    assert group["preferredVersion"] == {"groupVersion": "visibility.kueue.x-k8s.io/v1beta2", "version": "v1beta2"}
    assert [v["version"] for v in group["versions"]] == ["v1beta2", "v1beta1"]
    assert group["name"] in {g["name"] for g in get("/apis")["groups"]}
    for version in ("v1beta2", "v1beta1"):
        resources = get(f"{ROOT}/{version}")
        assert resources["groupVersion"] == f"visibility.kueue.x-k8s.io/{version}"
        assert {r["name"]: (r["namespaced"], r["verbs"]) for r in resources["resources"]} == {
            "clusterqueues": (False, []),
            "clusterqueues/pendingworkloads": (False, ["get"]),
            "localqueues": (True, []),
            "localqueues/pendingworkloads": (True, ["get"]),
        }
    newer = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    assert get("/apis", newer)["code"] == 406
    assert get("/apis", f"{newer},application/json")["kind"] == "APIGroupList"
    assert get("/apis/inspection.muster.dev/v1")["resources"] == [], "`kubectl get queues` stays Kueue's"


@ON_SQLITE
def test_openapi_refers_to_nothing_that_is_missing(client: Client) -> None:
    get = client("nobody").get
    v2 = get("/openapi/v2").get_json()
    assert set(references(v2)) <= {f"#/definitions/{name}" for name in v2["definitions"]}
    for path, where in get("/openapi/v3").get_json()["paths"].items():
        assert where["serverRelativeURL"] == f"/openapi/v3/{path}"
        v3 = get(where["serverRelativeURL"]).get_json()
        assert len(v3["paths"]) == 2
        assert set(references(v3)) <= {f"#/components/schemas/{name}" for name in v3["components"]["schemas"]}


def references(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [node["$ref"]] if "$ref" in node else [r for v in node.values() for r in references(v)]
    return [r for v in node for r in references(v)] if isinstance(node, list) else []
