"""The OpenAPI document of the JSON endpoints, written by hand so that it says what the fields mean.

A test compares its paths and parameters with the routes. It must never describe what is not served.
"""

from __future__ import annotations

from typing import Any

from queues.inspection import parameters
from queues.journal.entries import Kind
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
    typed = schema or {"type": "string", "maxLength": parameters.LONGEST}
    return {"name": name, "in": where, "required": where == "path", "description": description, "schema": typed}


def _operation(summary: str, answer: str, *taken: Json) -> Json:
    def failure(description: str) -> Json:
        return {"description": description, "content": {"application/json": {"schema": _ref("Problem")}}}

    return {
        "summary": summary,
        "parameters": list(taken),
        "responses": {
            "200": {"description": "OK", "content": {"application/json": {"schema": _ref(answer)}}},
            "400": failure("a parameter is wrong; the error names it"),
            "401": failure("the caller is not known"),
            "403": failure("the caller may not see this"),
            "404": failure("there is no such thing"),
            "503": failure("the database or the API server is away"),
        },
    }


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(description: str = "", **properties: Any) -> Json:
    return {"type": "object", **({"description": description} if description else {}), "properties": properties}


def _array(of: Json) -> Json:
    return {"type": "array", "items": of}


TEXT: Json = {"type": "string"}
MAYBE_TEXT: Json = {"type": "string", "nullable": True}
NUMBER: Json = {"type": "integer"}
MAYBE_NUMBER: Json = {"type": "integer", "nullable": True}
SECONDS: Json = {"type": "number"}
TIME: Json = {"type": "string", "format": "date-time"}
FREE: Json = {"type": "object", "additionalProperties": True}

NAMESPACE = _in("namespace", "query", "only this namespace; all that a namespace's own people may ask for")
LIMIT = _in("limit", "query", "the longest page", type="integer", minimum=1, maximum=1000, default=100)

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
        _in("offset", "query", "how many to leave out", type="integer", minimum=0, default=0),
        NAMESPACE,
    ),
    "/workloads/{namespace}/{workload}": _operation(
        "why a workload waits, who is ahead of it, and how it came there",
        "Explanation",
        _in("namespace", "path", "its namespace"),
        _in("workload", "path", "its name, or the name of its Job"),
    ),
    "/usage": _operation(
        "resource-hours held between two times",
        "Usage",
        _in("from", "query", "a time or a date; a day before `to` where it is not given", type="string"),
        _in("to", "query", "a time or a date; now where it is not given", type="string"),
        _in("by", "query", "what to add up by", type="string", enum=[by.value for by in By], default="queue"),
        NAMESPACE,
    ),
    "/decisions": _operation(
        "what happened, the newest first",
        "Decisions",
        NAMESPACE,
        _in("name", "query", "name of a Workload"),
        _in("uid", "query", "uid of a Workload"),
        _in("queue", "query", "name of a ClusterQueue"),
        _in("kind", "query", "what happened", type="string", enum=[kind.value for kind in Kind]),
        _in("since", "query", "not before this time", type="string"),
        _in("until", "query", "before this time", type="string"),
        _in("before", "query", "`next` of the page before", type="integer", minimum=1),
        LIMIT,
    ),
    "/openapi.json": _operation("this document", "Document"),
}

REASON = _object(
    "Why, as data: what the words say stands in `shortages` and `facts` as numbers.",
    code=MAYBE_TEXT,
    message=TEXT,
    remedy={**MAYBE_TEXT, "description": "the smallest change that would help, where one is known"},
    shortages=_array(FREE),
    facts=FREE,
)

SCHEMAS: dict[str, Json] = {
    "Problem": _object(error=_object(code=NUMBER, message=TEXT, parameter=TEXT)),
    "Document": FREE,
    "Freshness": _object(
        "How old the answer is. Dropped entries mean that the history has gaps.",
        asOf={**TIME, "nullable": True},
        ageSeconds={**SECONDS, "nullable": True},
        droppedEntries=NUMBER,
    ),
    "Requests": _array(_object(resource=TEXT, unit=TEXT, amount=NUMBER)),
    "Quota": _object(
        "Limits that are null do not limit. `borrowed` is what of `reserved` lies above `nominal`.",
        flavor=TEXT,
        resource=TEXT,
        unit={"type": "string", "enum": ["one", "milli"]},
        nominal=NUMBER,
        borrowingLimit=MAYBE_NUMBER,
        lendingLimit=MAYBE_NUMBER,
        reserved=NUMBER,
        admitted=NUMBER,
        borrowed=NUMBER,
    ),
    "Queue": _object(
        name=TEXT,
        cohort=MAYBE_TEXT,
        strategy=TEXT,
        stopPolicy=TEXT,
        active={"type": "boolean"},
        reason=TEXT,
        message=TEXT,
        counts=_object(pending=NUMBER, held=NUMBER, reserving=NUMBER, admitted=NUMBER),
        pendingByReason={"type": "object", "additionalProperties": NUMBER},
        longestWaitSeconds={**SECONDS, "nullable": True},
        quotas=_array(_ref("Quota")),
        localQueues=_array(_object(namespace=TEXT, name=TEXT, active={"type": "boolean"}, reason=TEXT, message=TEXT)),
        freshness=_ref("Freshness"),
    ),
    "Queues": _object(freshness=_ref("Freshness"), items=_array(_ref("Queue"))),
    "Workload": _object(
        namespace=TEXT,
        name=TEXT,
        uid=TEXT,
        owner={**_object(kind=TEXT, apiVersion=TEXT, name=TEXT), "nullable": True},
        localQueue=TEXT,
        clusterQueue=MAYBE_TEXT,
        priority=NUMBER,
        state={"type": "string", "enum": ["pending", "held", "reserving", "admitted", "gone"]},
        evicted={"type": "boolean"},
        createdAt=TIME,
        queuedAt=TIME,
        stateSince=TIME,
        stateSeconds=SECONDS,
        pods=NUMBER,
        requests=_ref("Requests"),
        flavors={"type": "object", "additionalProperties": TEXT},
        reason=REASON,
    ),
    "Place": {
        "allOf": [
            _ref("Workload"),
            _object(positionInClusterQueue=NUMBER, positionInLocalQueue=NUMBER),
        ]
    },
    "Waiting": _object(
        freshness=_ref("Freshness"), total=NUMBER, offset=NUMBER, next=MAYBE_NUMBER, items=_array(_ref("Place"))
    ),
    "Event": _object(
        at=TIME,
        kind={"type": "string", "enum": [kind.value for kind in Kind]},
        clusterQueue=MAYBE_TEXT,
        localQueue=MAYBE_TEXT,
        code=MAYBE_TEXT,
        message=TEXT,
        remedy=MAYBE_TEXT,
        facts=FREE,
        cause={**_object(uid=TEXT, namespace=MAYBE_TEXT, name=MAYBE_TEXT), "nullable": True},
    ),
    "Explanation": {
        "allOf": [
            _ref("Workload"),
            _object(
                freshness=_ref("Freshness"),
                position={**_object(inClusterQueue=NUMBER, inLocalQueue=NUMBER), "nullable": True},
                ahead=_array(
                    _object(
                        "The first of those ahead. Names are null for those that the caller may not see.",
                        positionInClusterQueue=NUMBER,
                        namespace=MAYBE_TEXT,
                        name=MAYBE_TEXT,
                        priority=NUMBER,
                        pods=NUMBER,
                        requests=_ref("Requests"),
                        waitingSeconds=SECONDS,
                        code=MAYBE_TEXT,
                    )
                ),
                timeline=_array(_ref("Event")),
            ),
        ]
    },
    "Usage": {
        **_object(
            freshness=_ref("Freshness"),
            to=TIME,
            items=_array(
                _object(
                    "`hours` are resource-hours: GPU-hours for a GPU, core-hours for cpu, byte-hours for memory.",
                    clusterQueue=TEXT,
                    namespace=TEXT,
                    flavor=TEXT,
                    resource=TEXT,
                    hours={"type": "number"},
                    workloads=NUMBER,
                )
            ),
        )
    },
    "Decisions": _object(
        freshness=_ref("Freshness"),
        next={**MAYBE_NUMBER, "description": "give it as `before` for the next page"},
        items=_array({"allOf": [_ref("Event"), _object(id=NUMBER, namespace=TEXT, name=TEXT, uid=TEXT)]}),
    ),
}
SCHEMAS["Usage"]["properties"]["from"] = TIME
