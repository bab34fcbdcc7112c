"""Kueue's visibility API: what waits in a ClusterQueue or a LocalQueue, in order, as the aggregated API of that name.

Paths, paging, positions and refusals are those of the peer, so that its clients and `kubectl get --raw` work as they
are. Order and positions come from the read model at the time of the call.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from flask import Blueprint, jsonify, make_response, request
from sqlalchemy import Connection
from werkzeug.wrappers import Response

from queues.inspection.access import Access
from queues.inspection.answers import timestamp
from queues.inspection.discovery import VISIBILITY, VISIBILITY_VERSIONS
from queues.inspection.parameters import ParameterError
from queues.inspection.problems import as_status
from queues.inspection.source import Source
from queues.journal import read

DEFAULT_LIMIT = 1_000
HIGHEST_LIMIT = 100_000
INT64 = re.compile(r"[+-]?[0-9]+", re.ASCII)


def endpoints(source: Source) -> Blueprint:
    blueprint = Blueprint("visibility", __name__)

    @blueprint.get(f"/apis/{VISIBILITY}/<version>/clusterqueues/<name>/pendingworkloads")
    def cluster_queue(version: str, name: str) -> Response:
        if version not in VISIBILITY_VERSIONS:
            return _refused(404, "the server could not find the requested resource")
        source.require(Access("get", VISIBILITY, "clusterqueues", "pendingworkloads", name=name))
        limit, offset = _paging()
        with source.engine.connect() as connection:
            if not read.has_queue(connection, name):
                return _missing("clusterqueue", name)
            return _summary(version, read.pending(connection, name, limit=limit, offset=offset))

    @blueprint.get(f"/apis/{VISIBILITY}/<version>/namespaces/<namespace>/localqueues/<name>/pendingworkloads")
    def local_queue(version: str, namespace: str, name: str) -> Response:
        if version not in VISIBILITY_VERSIONS:
            return _refused(404, "the server could not find the requested resource")
        access = Access("get", VISIBILITY, "localqueues", "pendingworkloads", namespace=namespace, name=name)
        source.require(access)
        limit, offset = _paging()
        with source.engine.connect() as connection:
            found = read.local_queues(connection, namespace=namespace, name=name)
            if not found:
                return _missing("localqueue", name)
            return _summary(
                version, _of_local_queue(connection, found[0].cluster_queue, namespace, name, limit, offset)
            )

    return blueprint


def _of_local_queue(
    connection: Connection, cluster_queue: str, namespace: str, name: str, limit: int, offset: int
) -> list[read.Pending]:
    """A LocalQueue may name a ClusterQueue that does not exist: then nothing is in any order."""
    if not read.has_queue(connection, cluster_queue):
        return []
    return read.pending(connection, cluster_queue, namespace=namespace, local_queue=name, limit=limit, offset=offset)


def _paging() -> tuple[int, int]:
    """`limit` and `offset` of the request; 0 is the default, what is negative asks for nothing or from the start."""
    limit = _int64("limit")
    limit = DEFAULT_LIMIT if limit == 0 else min(max(limit, 0), HIGHEST_LIMIT)
    return limit, max(_int64("offset"), 0)


def _int64(name: str) -> int:
    text = request.args.get(name)
    if text is None:
        return 0
    if not INT64.fullmatch(text) or len(text) > 30 or not -(2**63) <= int(text) < 2**63:
        raise ParameterError(name, f"{text[:40]!r} is not a 64-bit integer")
    return int(text)


def _summary(version: str, found: list[read.Pending]) -> Response:
    return jsonify(
        {
            "kind": "PendingWorkloadsSummary",
            "apiVersion": f"{VISIBILITY}/{version}",
            "metadata": {},
            "items": [_item(place) for place in found],
        }
    )


def _item(place: read.Pending) -> dict[str, Any]:
    row = place.workload
    metadata: dict[str, Any] = {
        "name": row.name,
        "namespace": row.namespace,
        "creationTimestamp": timestamp(int(row.created_at)),
    }
    if row.owners:
        metadata["ownerReferences"] = [
            {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
            for owner in row.owners
        ]
    return {
        "metadata": metadata,
        "priority": row.priority,
        "localQueueName": row.local_queue,
        "positionInClusterQueue": place.in_cluster_queue,
        "positionInLocalQueue": place.in_local_queue,
    }


def _missing(resource: str, name: str) -> Response:
    details = {"name": name, "group": VISIBILITY, "kind": resource}
    return _refused(404, f'{resource}.{VISIBILITY} "{name}" not found', details)


def _refused(code: int, message: str, details: dict[str, str] | None = None) -> Response:
    return make_response(jsonify(as_status(code, message, details=details)), HTTPStatus(code))
