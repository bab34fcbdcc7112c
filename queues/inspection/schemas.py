"""The fields of every answer of the JSON endpoints, and what they mean, as OpenAPI schemas.

Written by hand; a test compares them with answers. They must never describe what is not served.
"""

from __future__ import annotations

from typing import Any

from queues.journal.entries import Kind, NodeState

Json = dict[str, Any]


def reference(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(description: str = "", /, **properties: Any) -> Json:
    return {"type": "object", **({"description": description} if description else {}), "properties": properties}


def _array(of: Json) -> Json:
    return {"type": "array", "items": of}


TEXT: Json = {"type": "string"}
MAYBE_TEXT: Json = {"type": "string", "nullable": True}
NUMBER: Json = {"type": "integer"}
MAYBE_NUMBER: Json = {"type": "integer", "nullable": True}
SECONDS: Json = {"type": "number"}
MAYBE_SECONDS: Json = {"type": "number", "nullable": True}
TIME: Json = {"type": "string", "format": "date-time"}
UNIT: Json = {"type": "string", "enum": ["one", "milli"]}
FREE: Json = {"type": "object", "additionalProperties": True}

#: What waits and runs below something.
STANDING: Json = {
    "counts": _object(pending=NUMBER, held=NUMBER, reserving=NUMBER, admitted=NUMBER),
    "pendingByReason": {"type": "object", "additionalProperties": NUMBER},
    "longestWaitSeconds": MAYBE_SECONDS,
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
        ageSeconds=MAYBE_SECONDS,
        droppedEntries=NUMBER,
    ),
    "Requests": _array(_object(resource=TEXT, unit=TEXT, amount=NUMBER)),
    "Quota": _object(
        "Limits that are null do not limit. `borrowed` is what of `reserved` lies above `nominal`.",
        flavor=TEXT,
        resource=TEXT,
        unit=UNIT,
        nominal=NUMBER,
        borrowingLimit=MAYBE_NUMBER,
        lendingLimit=MAYBE_NUMBER,
        reserved=NUMBER,
        admitted=NUMBER,
        borrowed=NUMBER,
        idleToLend={**NUMBER, "description": "what of `nominal` is not held and may be lent"},
    ),
    "Total": _object(
        "Over all queues below. `borrowed` is what queues hold above their own `nominal`, `idle` what nobody holds.",
        flavor=TEXT,
        resource=TEXT,
        unit=UNIT,
        nominal=NUMBER,
        reserved=NUMBER,
        admitted=NUMBER,
        borrowed=NUMBER,
        idle=NUMBER,
    ),
    "Cohort": _object(
        name=TEXT,
        quotas=_array(reference("Total")),
        ownQuotas=_array(
            _object(
                "Quota of the Cohort object itself.",
                flavor=TEXT,
                resource=TEXT,
                nominal=NUMBER,
                borrowingLimit=MAYBE_NUMBER,
                lendingLimit=MAYBE_NUMBER,
            )
        ),
        **STANDING,
        cohorts=_array(reference("Cohort")),
        queues=_array(reference("Queue")),
    ),
    "Cohorts": _object(
        freshness=reference("Freshness"), items=_array(reference("Cohort")), queues=_array(reference("Queue"))
    ),
    "Domain": _object(
        "Amounts are of the resource that was asked for. Hosts that take no pods have nothing free.",
        path=_array(TEXT),
        hosts=NUMBER,
        closedHosts={**NUMBER, "description": "not ready, or cordoned"},
        capacity={**NUMBER, "description": "`used`, `free` and `shut` together"},
        used=NUMBER,
        free=NUMBER,
        shut={**NUMBER, "description": "what nobody holds on hosts that take no pods"},
        freeOnEmptyHosts=NUMBER,
        fragmentation={
            "type": "number",
            "nullable": True,
            "description": "the part of `free` on hosts where something is held; null where nothing is free",
        },
        domains=_array(reference("Domain")),
        nodes=_array(
            _object(
                name=TEXT,
                state={"type": "string", "enum": [state.value for state in NodeState]},
                capacity=NUMBER,
                used=NUMBER,
                workloads=_array(_object(namespace=TEXT, name=TEXT, amount=NUMBER)),
            )
        ),
    ),
    "Topology": _object(
        freshness=reference("Freshness"),
        flavors=_array(_object(name=TEXT, topology=MAYBE_TEXT, hosts=NUMBER)),
        flavor=MAYBE_TEXT,
        levels=_array(TEXT),
        resources=_array(TEXT),
        resource=MAYBE_TEXT,
        unit=UNIT,
        at=_array(TEXT),
        domain={"allOf": [reference("Domain")], "nullable": True},
    ),
    "Queue": _object(
        name=TEXT,
        cohort=MAYBE_TEXT,
        strategy=TEXT,
        stopPolicy=TEXT,
        active={"type": "boolean"},
        reason=TEXT,
        message=TEXT,
        **STANDING,
        quotas=_array(reference("Quota")),
        localQueues=_array(_object(namespace=TEXT, name=TEXT, active={"type": "boolean"}, reason=TEXT, message=TEXT)),
        freshness=reference("Freshness"),
    ),
    "Queues": _object(freshness=reference("Freshness"), items=_array(reference("Queue"))),
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
        requests=reference("Requests"),
        flavors={"type": "object", "additionalProperties": TEXT},
        reason=REASON,
    ),
    "Workloads": _object(
        freshness=reference("Freshness"),
        total=NUMBER,
        offset=NUMBER,
        next=MAYBE_NUMBER,
        items=_array(reference("Workload")),
    ),
    "PodSet": _object(
        "Equal pods. `requests` is what one of them takes of a node, `domains` the places that they were given.",
        name=TEXT,
        count=NUMBER,
        requests=reference("Requests"),
        closeness={
            **MAYBE_TEXT,
            "enum": ["required", "preferred", "slices", "unconstrained", None],
            "description": "how near to each other they have to be",
        },
        level={**MAYBE_TEXT, "description": "the node label that this is said of"},
        flavors={"type": "object", "additionalProperties": TEXT},
        levels=_array(TEXT),
        domains=_array(_object(values=_array(TEXT), pods=NUMBER)),
    ),
    "Closest": _object(
        "The domains that come closest to taking all of a pod set now. `free` is null for those who may not see it.",
        podSet=TEXT,
        pods=NUMBER,
        closeness=TEXT,
        level=MAYBE_TEXT,
        resource=MAYBE_TEXT,
        domains=_array(_object(flavor=TEXT, path=_array(TEXT), fits=NUMBER, hosts=NUMBER, free=MAYBE_NUMBER)),
    ),
    "Place": {
        "allOf": [
            reference("Workload"),
            _object(positionInClusterQueue=NUMBER, positionInLocalQueue=NUMBER),
        ]
    },
    "Waiting": _object(
        freshness=reference("Freshness"),
        total=NUMBER,
        offset=NUMBER,
        next=MAYBE_NUMBER,
        items=_array(reference("Place")),
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
            reference("Workload"),
            _object(
                freshness=reference("Freshness"),
                position={**_object(inClusterQueue=NUMBER, inLocalQueue=NUMBER), "nullable": True},
                ahead=_array(
                    _object(
                        "The first of those ahead. Names are null for those that the caller may not see.",
                        positionInClusterQueue=NUMBER,
                        namespace=MAYBE_TEXT,
                        name=MAYBE_TEXT,
                        priority=NUMBER,
                        pods=NUMBER,
                        requests=reference("Requests"),
                        waitingSeconds=SECONDS,
                        code=MAYBE_TEXT,
                    )
                ),
                timeline=_array(reference("Event")),
                podSets=_array(reference("PodSet")),
                closest=_array(reference("Closest")),
                displaced=_array(
                    _object(
                        "Evicted for this one, the latest first. Names are null for those who may not see them.",
                        at=TIME,
                        namespace=MAYBE_TEXT,
                        name=MAYBE_TEXT,
                        clusterQueue=MAYBE_TEXT,
                        code=MAYBE_TEXT,
                    )
                ),
            ),
        ]
    },
    "Usage": _object(
        freshness=reference("Freshness"),
        to=TIME,
        step={"type": "string", "description": "where one was asked for: `from` and `to` of items are its times"},
        items=_array(
            _object(
                "`hours` are resource-hours: GPU-hours for a GPU, core-hours for cpu, byte-hours for memory.",
                clusterQueue=TEXT,
                namespace=TEXT,
                flavor=TEXT,
                resource=TEXT,
                hours={"type": "number"},
                workloads=NUMBER,
                # `from` cannot be an argument's name.
                **{"from": TIME, "to": TIME},
            )
        ),
        **{"from": TIME},
    ),
    "Decisions": _object(
        freshness=reference("Freshness"),
        next={**MAYBE_NUMBER, "description": "give it as `before` for the next page"},
        items=_array({"allOf": [reference("Event"), _object(id=NUMBER, namespace=TEXT, name=TEXT, uid=TEXT)]}),
    ),
}
