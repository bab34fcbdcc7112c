"""What the aggregation layer and kubectl ask first: which groups, versions and resources are here, and their OpenAPI.

Two groups are served: Kueue's visibility API, and Muster's own endpoints by way of the API server. The latter lists no
resources, so that `kubectl get queues` goes on meaning LocalQueues. It must never need the database.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, abort, g, jsonify, request
from werkzeug.wrappers import Response

from queues.inspection.access import Access
from queues.inspection.problems import ForbiddenError
from queues.inspection.source import Source

VISIBILITY = "visibility.kueue.x-k8s.io"
#: The preferred one first.
VISIBILITY_VERSIONS = ("v1beta2", "v1beta1")
INSPECTION_GROUP = "inspection.muster.dev"
INSPECTION = f"{INSPECTION_GROUP}/v1"

Json = dict[str, Any]


def endpoints(source: Source) -> Blueprint:
    blueprint = Blueprint("discovery", __name__)

    def open_to_reader() -> None:
        """Discovery is for whoever may read these paths: everyone known, by the cluster's default roles."""
        access = Access("get", path=request.path)
        if not source.allows(access):
            raise ForbiddenError(g.user, access)
        if not _takes_plain_json(request.headers.get("Accept", "")):
            abort(406, "only application/json is served here")

    blueprint.before_request(open_to_reader)

    @blueprint.get("/apis")
    @blueprint.get("/apis/")
    def groups() -> Response:
        return jsonify({"kind": "APIGroupList", "apiVersion": "v1", "groups": [_visibility(), _inspection()]})

    @blueprint.get(f"/apis/{VISIBILITY}")
    def visibility() -> Response:
        return jsonify({"kind": "APIGroup", "apiVersion": "v1", **_visibility()})

    @blueprint.get(f"/apis/{INSPECTION_GROUP}")
    def inspection() -> Response:
        return jsonify({"kind": "APIGroup", "apiVersion": "v1", **_inspection()})

    @blueprint.get(f"/apis/{VISIBILITY}/<any(v1beta2, v1beta1):version>")
    def visibility_resources(version: str) -> Response:
        return jsonify(_resources(f"{VISIBILITY}/{version}", VISIBILITY_RESOURCES))

    @blueprint.get(f"/apis/{INSPECTION}")
    def inspection_resources() -> Response:
        return jsonify(_resources(INSPECTION, []))

    @blueprint.get("/openapi/v2")
    def openapi_v2() -> Response:
        return jsonify(
            {**_info(), "swagger": "2.0", "paths": _paths(v2=True), "definitions": _schemas("#/definitions/")}
        )

    @blueprint.get("/openapi/v3")
    def openapi_v3() -> Response:
        urls = {f"apis/{VISIBILITY}/{v}": f"/openapi/v3/apis/{VISIBILITY}/{v}" for v in VISIBILITY_VERSIONS}
        return jsonify({"paths": {path: {"serverRelativeURL": url} for path, url in urls.items()}})

    @blueprint.get(f"/openapi/v3/apis/{VISIBILITY}/<any(v1beta2, v1beta1):version>")
    def openapi_v3_group(version: str) -> Response:
        paths = {path: item for path, item in _paths(v2=False).items() if f"/{version}/" in path}
        schemas = {
            name: schema
            for name, schema in _schemas("#/components/schemas/").items()
            if f".{version}." in name or name.startswith("io.k8s")
        }
        return jsonify({**_info(), "openapi": "3.0.0", "paths": paths, "components": {"schemas": schemas}})

    return blueprint


def _takes_plain_json(accept: str) -> bool:
    """The aggregator first asks for newer forms of discovery alone (`g=` in the media type), then for this one."""
    wanted = [media.strip() for media in accept.split(",") if media.strip()]
    return not wanted or any(";g=" not in media.replace(" ", "") and _is_json(media) for media in wanted)


def _is_json(media: str) -> bool:
    return media.partition(";")[0].strip().lower() in {"application/json", "application/*", "*/*"}


# ------------------------------------------------------------------ groups and resources


def _group(name: str, versions: tuple[str, ...]) -> Json:
    served = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": served, "preferredVersion": served[0]}


def _visibility() -> Json:
    return _group(VISIBILITY, VISIBILITY_VERSIONS)


def _inspection() -> Json:
    return _group(INSPECTION_GROUP, (INSPECTION.rpartition("/")[2],))


def _resource(name: str, kind: str, *, namespaced: bool, verbs: tuple[str, ...], singular: str = "") -> Json:
    return {"name": name, "singularName": singular, "namespaced": namespaced, "kind": kind, "verbs": list(verbs)}


VISIBILITY_RESOURCES = [
    _resource("clusterqueues", "ClusterQueue", namespaced=False, verbs=(), singular="clusterqueue"),
    _resource("clusterqueues/pendingworkloads", "PendingWorkloadsSummary", namespaced=False, verbs=("get",)),
    _resource("localqueues", "LocalQueue", namespaced=True, verbs=(), singular="localqueue"),
    _resource("localqueues/pendingworkloads", "PendingWorkloadsSummary", namespaced=True, verbs=("get",)),
]


def _resources(group_version: str, resources: list[Json]) -> Json:
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


# ------------------------------------------------------------------ OpenAPI of the visibility API


def _info() -> Json:
    return {"info": {"title": "Kueue visibility API", "version": "0"}}


def _model(version: str, kind: str) -> str:
    return f"io.x-k8s.kueue.visibility.{version}.{kind}"


OBJECT_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def _paths(*, v2: bool) -> Json:
    paths: Json = {}
    for version in VISIBILITY_VERSIONS:
        for path, names in (
            ("clusterqueues/{name}/pendingworkloads", ("name",)),
            ("namespaces/{namespace}/localqueues/{name}/pendingworkloads", ("namespace", "name")),
        ):
            paths[f"/apis/{VISIBILITY}/{version}/{path}"] = {
                "get": _operation(version, "ClusterQueue" if path.startswith("c") else "LocalQueue", names, v2=v2)
            }
    return paths


def _operation(version: str, of: str, names: tuple[str, ...], *, v2: bool) -> Json:
    def parameter(name: str, where: str, kind: str) -> Json:
        typed: Json = {"type": kind} if v2 else {"schema": {"type": kind}}
        return {"name": name, "in": where, "required": where == "path", **typed}

    model = _model(version, "PendingWorkloadsSummary")
    schema = {"$ref": f"#/definitions/{model}" if v2 else f"#/components/schemas/{model}"}
    answer: Json = {"description": "OK"}
    answer |= {"schema": schema} if v2 else {"content": {"application/json": {"schema": schema}}}
    operation: Json = {
        "description": f"what waits in a {of}, in order",
        "operationId": f"readVisibility{version.capitalize()}{of}PendingWorkloads",
        "parameters": [
            *(parameter(name, "path", "string") for name in names),
            parameter("limit", "query", "integer"),
            parameter("offset", "query", "integer"),
        ],
        "responses": {"200": answer},
        "x-kubernetes-action": "get",
        "x-kubernetes-group-version-kind": {
            "group": VISIBILITY,
            "version": version,
            "kind": "PendingWorkloadsSummary",
        },
    }
    return {**operation, "produces": ["application/json"]} if v2 else operation


def _schemas(prefix: str) -> Json:
    schemas: Json = {OBJECT_META: {"type": "object", "description": "Metadata of an object."}}
    meta = {"$ref": prefix + OBJECT_META} if "definitions" in prefix else {"allOf": [{"$ref": prefix + OBJECT_META}]}
    for version in VISIBILITY_VERSIONS:
        schemas[_model(version, "PendingWorkload")] = {
            "type": "object",
            "properties": {
                "metadata": meta,
                "priority": {"type": "integer", "format": "int32"},
                "localQueueName": {"type": "string"},
                "positionInClusterQueue": {"type": "integer", "format": "int32"},
                "positionInLocalQueue": {"type": "integer", "format": "int32"},
            },
        }
        item = {"$ref": prefix + _model(version, "PendingWorkload")}
        schemas[_model(version, "PendingWorkloadsSummary")] = {
            "type": "object",
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": meta,
                "items": {"type": "array", "items": item},
            },
            "x-kubernetes-group-version-kind": [
                {"group": VISIBILITY, "version": version, "kind": "PendingWorkloadsSummary"}
            ],
        }
    return schemas
