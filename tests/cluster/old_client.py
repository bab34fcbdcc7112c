"""A client that still speaks v1beta1, beside the administrator who speaks v1beta2."""

from __future__ import annotations

from typing import Any

from admission.resources import webhook_config
from tests.controlplane.cluster import KINDS, Api

Object = dict[str, Any]

V1BETA1 = "kueue.x-k8s.io/v1beta1"
#: The manifests that serve it.
OVERLAY = webhook_config() / "overlays" / "v1beta1"


class Old:
    """The API as a client of v1beta1 uses it."""

    def __init__(self, api: Api) -> None:
        self.api = api

    @staticmethod
    def path(kind: str, name: str = "", namespace: str | None = "default", sub: str = "") -> str:
        _, plural, namespaced = KINDS[kind]
        parts = [
            f"/apis/{V1BETA1}",
            *(["namespaces", namespace] if namespaced and namespace else []),
            plural,
            name,
            sub,
        ]
        return "/".join(part for part in parts if part)

    def create(self, kind: str, name: str, spec: Object | None = None, **more: Any) -> Object:
        metadata = {"name": name, **more.pop("metadata", {})}
        body = {"apiVersion": V1BETA1, "kind": kind, "metadata": metadata, **more}
        if spec is not None:
            body["spec"] = spec
        return self.api.request("POST", self.path(kind), body)

    def get(self, kind: str, name: str) -> Object:
        return self.api.request("GET", self.path(kind, name))

    def put(self, obj: Object, sub: str = "") -> Object:
        return self.api.request("PUT", self.path(obj["kind"], obj["metadata"]["name"], sub=sub), obj)

    def patch(self, kind: str, name: str, body: Object, sub: str = "") -> Object:
        path = self.path(kind, name, sub=sub)
        return self.api.request("PATCH", path, body, content_type="application/merge-patch+json")

    def apply(self, kind: str, name: str, spec: Object) -> Object:
        body = {"apiVersion": V1BETA1, "kind": kind, "metadata": {"name": name}, "spec": spec}
        params = {"fieldManager": "old-client", "force": "true"}
        path = self.path(kind, name)
        return self.api.request("PATCH", path, body, params=params, content_type="application/apply-patch+yaml")


def new(api: Api, kind: str, name: str) -> Object:
    """The same object as v1beta2."""
    return api.get(kind, name, "default" if KINDS[kind][2] else None)


def pod_set(**more: Any) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    return {
        "name": "main",
        "count": 2,
        "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        **more,
    }


def group(**more: Any) -> Object:
    quota = {"name": "cpu", "nominalQuota": "8", **more}
    return {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [quota]}]}
