"""The OpenAPI document of the JSON endpoints, written by hand so that it says what the fields mean.

A test compares its paths and parameters with the routes, and asks them what they say they answer. It must never
describe what is not served.
"""

from __future__ import annotations

from typing import Any

from queues.inspection import parameters, topology
from queues.inspection.consumption import Step
from queues.inspection.schemas import SCHEMAS, reference
from queues.journal.entries import Kind, WorkloadState
from queues.journal.usage import By

Json = dict[str, Any]


def document(prefix: str) -> Json:
    """`prefix` is the path below which the endpoints are served."""
    return {
        "openapi": "3.0.3",
        "info": {
            "title": "Muster inspection",
            "version": "1",
            "description": "Queues, what waits in them and why, and who used what. Quantities are integers: "
            "thousandths for cpu (unit milli), whole units for everything else (unit one). Times are RFC 3339.",
        },
        "servers": [{"url": prefix}],
        "security": [{"bearer": []}],
        "paths": {path: {"get": operation} for path, operation in PATHS.items()},
        "components": {
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
            "schemas": SCHEMAS,
        },
    }


def _in(name: str, where: str, description: str, **schema: Any) -> Json:
    typed = schema or NAME
    return {"name": name, "in": where, "required": where == "path", "description": description, "schema": typed}


NAME: Json = {"type": "string", "pattern": "^[!-~]+$", "minLength": 1, "maxLength": parameters.LONGEST}
MOMENT: Json = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "string", "format": "date"}]}


def _operation(summary: str, answer: str, *taken: Json) -> Json:
    def failure(description: str) -> Json:
        return {"description": description, "content": {"application/json": {"schema": reference("Problem")}}}

    return {
        "summary": summary,
        "parameters": list(taken),
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": reference(answer)}}},
            "400": failure("a parameter is wrong; the error names it"),
            "401": failure("the caller is not known"),
            "403": failure("the caller may not see this"),
            "404": failure("there is no such thing"),
            "503": failure("the database or the API server is away"),
        },
    }


def _table(summary: str, *taken: Json) -> Json:
    operation = _operation(summary, "Document", *taken)
    operation["responses"]["200"]["content"] = {"text/csv": {"schema": {"type": "string"}}}
    return operation


NAMESPACE = _in("namespace", "query", "only this namespace; all that a namespace's own people may ask for")
LIMIT = _in("limit", "query", "the longest page", type="integer", minimum=1, maximum=1000, default=100)
OFFSET = _in(
    "offset", "query", "how many to leave out", type="integer", minimum=0, maximum=parameters.LARGEST, default=0
)

USAGE = (
    _in("from", "query", "a time or a date; a day before `to` where it is not given", **MOMENT),
    _in("to", "query", "a time or a date; now where it is not given", **MOMENT),
    _in("by", "query", "what to add up by", type="string", enum=[by.value for by in By], default="queue"),
    _in(
        "step",
        "query",
        "adds up for each of these apart, in UTC; at most 400 of them",
        type="string",
        enum=[step.value for step in Step],
    ),
    NAMESPACE,
)

PATHS: dict[str, Json] = {
    "/queues": _operation("every ClusterQueue: quota, use, what waits and why", "Queues", NAMESPACE),
    "/queues/{queue}": _operation(
        "one ClusterQueue with its LocalQueues", "Queue", _in("queue", "path", "name of a ClusterQueue")
    ),
    "/queues/{queue}/pending": _operation(
        "what waits in a ClusterQueue, in order",
        "Waiting",
        _in("queue", "path", "name of a ClusterQueue"),
        LIMIT,
        OFFSET,
        NAMESPACE,
    ),
    "/cohorts": _operation("the tree of cohorts with its queues, added up from below", "Cohorts"),
    "/workloads": _operation(
        "live workloads, the newest first",
        "Workloads",
        NAMESPACE,
        _in("queue", "query", "name of a ClusterQueue"),
        _in("state", "query", "where it stands", type="string", enum=[state.value for state in WorkloadState]),
        _in("name", "query", "the beginning of its name, or of the name of its Job"),
        LIMIT,
        OFFSET,
    ),
    "/workloads/{namespace}/{workload}": _operation(
        "why a workload waits, who is ahead of it, and how it came there",
        "Explanation",
        _in("namespace", "path", "its namespace"),
        _in("workload", "path", "its name, or the name of its Job"),
    ),
    "/topology": _operation(
        "a flavor's nodes as domains in domains, with what is held and free of one resource",
        "Topology",
        _in("flavor", "query", "name of a ResourceFlavor; the first with devices where it is not given"),
        _in("resource", "query", "what to count; the device that there is most of where it is not given"),
        _in(
            "at",
            "query",
            "only below this domain: the values of its levels, with slashes between",
            **{**NAME, "maxLength": topology.LONGEST_PATH},
        ),
    ),
    "/usage": _operation("resource-hours held between two times", "Usage", *USAGE),
    "/usage.csv": _table("the same as a table, one line for each item", *USAGE),
    "/decisions": _operation(
        "what happened, the newest first",
        "Decisions",
        NAMESPACE,
        _in("name", "query", "name of a Workload"),
        _in("uid", "query", "uid of a Workload"),
        _in("queue", "query", "name of a ClusterQueue"),
        _in("kind", "query", "what happened", type="string", enum=[kind.value for kind in Kind]),
        _in("since", "query", "not before this time", **MOMENT),
        _in("until", "query", "before this time", **MOMENT),
        _in("before", "query", "`next` of the page before", type="integer", minimum=1, maximum=parameters.LARGEST),
        LIMIT,
    ),
    "/openapi.json": _operation("this document", "Document"),
}
