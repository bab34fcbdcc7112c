"""The JSON endpoints: what they say, how they page, and what hostile parameters get."""

from __future__ import annotations

import re
from typing import Any

import pytest
from flask import Flask

from queues.inspection.access import Authorizer
from queues.inspection.app import create_app
from queues.journal.database import open_database
from tests.unit.inspection.conftest import NOW, ON_SQLITE, Client, Cluster
from tests.unit.journal.rows import GPU


def got(client: Client, path: str, caller: str = "viewer", code: int = 200) -> Any:
    answer = client(caller).get("/api/v1" + path)
    assert answer.status_code == code, answer.text
    return answer.get_json()


def test_queues(client: Client) -> None:
    answer = got(client, "/queues")
    cq, stopped = answer["items"]
    assert answer["freshness"] == {"asOf": "1970-01-01T00:16:40Z", "ageSeconds": NOW - 1000, "droppedEntries": 0}
    assert (cq["name"], cq["cohort"], cq["active"], stopped["cohort"]) == ("cq", "research", True, None)
    assert cq["counts"] == {"pending": 3, "held": 0, "reserving": 0, "admitted": 1}
    assert cq["pendingByReason"] == {"WaitingForQuota": 2, "ExceedsMaxQuota": 1}
    assert cq["longestWaitSeconds"] == 500
    assert cq["quotas"][0] == {
        "flavor": "h100",
        "resource": GPU,
        "unit": "one",
        "nominal": 16,
        "borrowingLimit": 8,
        "lendingLimit": None,
        "reserved": 20,
        "admitted": 12,
        "borrowed": 4,
        "idleToLend": 0,
    }
    assert cq["quotas"][1]["unit"] == "milli"
    assert "localQueues" not in cq
    assert [q["namespace"] for q in got(client, "/queues/cq")["localQueues"]] == ["team-a", "team-b"]


def test_queues_of_a_namespace(client: Client) -> None:
    (mine,) = got(client, "/queues?namespace=team-a", "team")["items"]
    assert mine["counts"]["pending"] == 2
    assert [q["name"] for q in mine["localQueues"]] == ["lq"]
    assert "quotas" not in mine
    (seen,) = got(client, "/queues?namespace=team-a")["items"]
    assert seen["quotas"]


def test_pending_in_order_with_pages(client: Client) -> None:
    def page(query: str, caller: str = "viewer") -> tuple[list[tuple[str, int, int]], int, int | None]:
        answer = got(client, "/queues/cq/pending" + query, caller)
        items = [(i["name"], i["positionInClusterQueue"], i["positionInLocalQueue"]) for i in answer["items"]]
        return items, answer["total"], answer["next"]

    everything = [("secret", 0, 0), ("job-train", 1, 0), ("later", 2, 1)]
    assert page("") == (everything, 3, None)
    assert page("?limit=2") == (everything[:2], 3, 2)
    assert page("?limit=2&offset=2") == (everything[2:], 3, None)
    assert page("?offset=99999") == ([], 3, None)
    assert page("?namespace=team-a", "team") == (everything[1:], 2, None)


def test_explain_says_why_where_and_how_it_came_there(client: Client) -> None:
    answer = got(client, "/workloads/team-a/job-train")
    assert answer == got(client, "/workloads/team-a/train"), "by the name of its Job"
    assert answer["reason"] == {
        "code": "WaitingForQuota",
        "message": "needs 8 of nvidia.com/gpu, 5 are free",
        "remedy": "free 3",
        "shortages": [{"flavor": "h100", "resource": GPU, "needed": 8, "free": 5, "unit": "one"}],
        "facts": {},
    }
    assert answer["position"] == {"inClusterQueue": 1, "inLocalQueue": 0}
    assert [(a["namespace"], a["name"], a["requests"][0]["amount"]) for a in answer["ahead"]] == [
        ("team-b", "secret", 8)
    ]
    assert [(e["kind"], e["code"]) for e in answer["timeline"]] == [("created", None), ("evicted", "Preempted")]
    assert answer["timeline"][1]["cause"] == {"uid": "w2", "namespace": "team-b", "name": "secret"}
    assert answer["owner"] == {"kind": "Job", "apiVersion": "batch/v1", "name": "train"}
    assert (answer["state"], answer["stateSeconds"]) == ("pending", 500)


def test_explain_hides_the_names_of_others(client: Client) -> None:
    answer = got(client, "/workloads/team-a/job-train", "team")
    (ahead,) = answer["ahead"]
    assert (ahead["namespace"], ahead["name"], ahead["requests"][0]["amount"]) == (None, None, 8)
    assert answer["timeline"][1]["cause"] == {"uid": "w2", "namespace": None, "name": None}


def test_explain_what_runs_and_what_is_gone(client: Client) -> None:
    runs = got(client, "/workloads/team-a/runs")
    assert (runs["state"], runs["position"], runs["ahead"], runs["flavors"]) == ("admitted", None, [], {GPU: "h100"})
    gone = got(client, "/workloads/team-a/done")
    assert (gone["state"], gone["uid"], gone["reason"]["code"]) == ("gone", "w0", "Succeeded")
    assert [e["kind"] for e in gone["timeline"]] == ["finished"]
    lost = got(client, "/workloads/team-a/lost")
    assert lost["position"]["inClusterQueue"] == 0


def test_usage_between_two_times(client: Client) -> None:
    def hours(query: str, caller: str = "viewer") -> dict[str, float]:
        return {
            i.get("clusterQueue") or i["namespace"]: i["hours"] for i in got(client, "/usage" + query, caller)["items"]
        }

    assert hours("") == {"cq": 8 * 2 + 2 * 1}
    assert hours("?by=namespace") == {"team-a": 16, "team-b": 2}
    assert hours("?by=namespace&namespace=team-a", "team") == {"team-a": 16}
    assert hours("?from=1970-01-12T12:46:40Z&to=1970-01-12T13:16:40Z&by=namespace") == {"team-a": 4}
    assert hours("?from=1970-01-12T14:46:40%2B02:00&to=1970-01-12T13:16:40Z") == {"cq": 4}
    assert hours("?from=1970-01-01&to=1970-01-02") == {}
    assert got(client, "/usage?to=2100-01-01")["to"] == "1970-01-12T13:46:40Z", "not beyond now"


def test_decisions_can_be_filtered_and_paged(client: Client) -> None:
    first = got(client, "/decisions?limit=3")
    assert len(first["items"]) == 3
    rest = got(client, f"/decisions?limit=3&before={first['next']}")
    assert [i["uid"] for i in first["items"] + rest["items"]] == ["w0", "w2", "w1", "w1"]
    assert rest["next"] is None
    assert [i["name"] for i in got(client, "/decisions?kind=evicted&queue=cq")["items"]] == ["job-train"]
    assert {i["namespace"] for i in got(client, "/decisions?namespace=team-a", "team")["items"]} == {"team-a"}


#: path -> the parameter that the error names
HOSTILE = {
    "/queues/cq/pending?limit=x": "limit",
    "/queues/cq/pending?limit=0": "limit",
    "/queues/cq/pending?limit=1001": "limit",
    "/queues/cq/pending?limit=-1": "limit",
    "/queues/cq/pending?limit=1e3": "limit",
    "/queues/cq/pending?limit=": "limit",
    "/queues/cq/pending?limit=%D9%A3": "limit",
    "/queues/cq/pending?limit=1_0": "limit",
    "/queues/cq/pending?offset=-1": "offset",
    "/queues/cq/pending?offset=99999999999999999999": "offset",
    "/queues/cq/pending?offset=" + "9" * 5000: "offset",
    "/queues/cq/pending?namespace=": "namespace",
    "/queues/cq/pending?namespace=%00": "namespace",
    "/queues/cq/pending?Limit=1": "Limit",
    "/queues?namespce=team-a": "namespce",
    "/queues?namespace=" + "n" * 300: "namespace",
    "/queues/cq?x=1": "x",
    "/usage?from=yesterday": "from",
    "/usage?from=2026-01-01T00:00:00": "from",
    "/usage?from=2026-13-01": "from",
    "/usage?to=1": "to",
    "/usage?from=9999-12-31T23:59:59-23:00": "from",
    "/usage?from=0001-01-01T00:00:00%2B23:00": "from",
    "/usage?from=2026-02-01&to=2026-01-01": "from",
    "/usage?by=flavor": "by",
    "/decisions?kind=HELD": "kind",
    "/decisions?before=0": "before",
    "/decisions?since=now": "since",
    "/decisions?limit=9999": "limit",
    "/decisions?queue=%0a": "queue",
    "/topology?at=": "at",
    "/workloads?state=gone": "state",
}  # fmt: skip


@pytest.mark.parametrize("path", HOSTILE, ids=lambda p: p[:60])
@ON_SQLITE
def test_a_wrong_parameter_is_named(client: Client, path: str) -> None:
    answer = client("viewer").get("/api/v1" + path)
    assert answer.status_code == 400, answer.text
    error = answer.get_json()["error"]
    assert error["parameter"] == HOSTILE[path]
    assert error["message"].startswith(f"{HOSTILE[path]}: ")
    assert len(error["message"]) < 500


@pytest.mark.parametrize(
    "name", ["%00", "%F0%9F%92%A5", "a'; DROP TABLE workloads; --", "..%2f..", "%ff%fe", "n" * 5000]
)
def test_hostile_names_are_just_not_found(client: Client, name: str) -> None:
    for path in (f"/queues/{name}", f"/queues/{name}/pending", f"/workloads/{name}/x", f"/workloads/team-a/{name}"):
        assert client("admin").get("/api/v1" + path).status_code == 404, path
    assert client("admin").get("/api/v1/queues").status_code == 200


@ON_SQLITE
def test_times_before_all_history_are_times(client: Client) -> None:
    assert len(got(client, "/decisions?since=0928-08-02")["items"]) == 4
    assert got(client, "/decisions?until=0928-08-02")["items"] == []
    assert got(client, "/usage?from=0687-10-06T20:37:54Z")["from"] == "1970-01-01T00:00:00Z"


@ON_SQLITE
def test_a_refused_method_says_which_are_served(client: Client) -> None:
    refused = client("viewer").post("/api/v1/queues")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD, OPTIONS")


@ON_SQLITE
def test_nothing_can_be_written(app: Flask, client: Client) -> None:
    for rule in app.url_map.iter_rules():
        assert rule.methods == {"GET", "HEAD", "OPTIONS"}, rule
    assert client("admin").post("/api/v1/queues").status_code == 405
    assert client("admin").delete("/api/v1/queues/cq").get_json()["error"]["code"] == 405


@ON_SQLITE
def test_the_openapi_document_says_what_is_served(app: Flask, client: Client) -> None:
    document = got(client, "/openapi.json")
    routes = {
        re.sub(r"<(\w+)>", r"{\1}", rule.rule.removeprefix("/api/v1"))
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/api/v1/")
    }
    assert set(document["paths"]) == routes
    assert client("viewer").get("/openapi.json").get_json() == document
    assert document["servers"] == [{"url": "/api/v1"}]
    for path, item in document["paths"].items():
        described = {p["name"] for p in item["get"]["parameters"] if p["in"] == "query"}
        plain = re.sub(r"{queue}", "cq", path).replace("{namespace}", "team-a").replace("{workload}", "runs")
        refused = client("viewer").get("/api/v1" + plain + "?no-such=1")
        if path != "/openapi.json":
            message = refused.get_json()["error"]["message"]
            known = re.search(r"known: (.*)\)", message)
            assert known
            assert set(known[1].split(", ")) - {"none"} == described, path
        for name in re.findall(r"{(\w+)}", path):
            assert any(p["name"] == name and p["in"] == "path" for p in item["get"]["parameters"])
    assert references(document) <= set(document["components"]["schemas"])


def references(node: Any) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"].rpartition("/")[2]} if "$ref" in node else set()
        return own.union(*(references(v) for v in node.values()))
    return set().union(*(references(v) for v in node)) if isinstance(node, list) else set()


#: endpoint -> schema of its answer
ANSWERS = {
    "/queues": "Queues",
    "/queues/cq": "Queue",
    "/queues/cq/pending": "Waiting",
    "/workloads": "Workloads",
    "/workloads/team-a/job-train": "Explanation",
    "/cohorts": "Cohorts",
    "/topology": "Topology",
    "/usage": "Usage",
    "/usage?step=hour": "Usage",
    "/decisions": "Decisions",
}


@ON_SQLITE
def test_answers_have_the_fields_that_the_document_describes(client: Client) -> None:
    schemas = got(client, "/openapi.json")["components"]["schemas"]
    for path, schema in ANSWERS.items():
        assert undescribed(got(client, path), schemas[schema], schemas) == [], path


def undescribed(value: Any, schema: dict[str, Any], schemas: dict[str, Any], at: str = "") -> list[str]:
    """Fields of the value that the schema does not know."""
    if "$ref" in schema:
        return undescribed(value, schemas[schema["$ref"].rpartition("/")[2]], schemas, at)
    if "allOf" in schema:
        merged: dict[str, Any] = {}
        for part in schema["allOf"]:
            merged |= flattened(part, schemas)
        return undescribed(value, {"type": "object", "properties": merged}, schemas, at)
    if isinstance(value, list):
        return [wrong for item in value for wrong in undescribed(item, schema["items"], schemas, at + "[]")]
    if not isinstance(value, dict) or "additionalProperties" in schema:
        return []
    properties = schema.get("properties", {})
    return [
        wrong
        for key, item in value.items()
        for wrong in (
            undescribed(item, properties[key], schemas, f"{at}.{key}") if key in properties else [f"{at}.{key}"]
        )
    ]


def flattened(schema: dict[str, Any], schemas: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in schema:
        return flattened(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "allOf" in schema:
        return {k: v for part in schema["allOf"] for k, v in flattened(part, schemas).items()}
    return dict(schema["properties"])


def test_a_database_that_was_never_made_is_said_so(tmp_path: Any, cluster: Cluster) -> None:
    app = create_app(open_database(f"sqlite:///{tmp_path}/none.sqlite3"), Authorizer(cluster), clock=lambda: NOW)
    answer = app.test_client().get("/api/v1/queues", headers={"Authorization": "Bearer admin-token"})
    assert answer.status_code == 503
    assert "muster migrate" in answer.get_json()["error"]["message"]


@ON_SQLITE
def test_answers_are_not_kept_by_caches(client: Client) -> None:
    answer = client("admin").get("/api/v1/queues")
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
