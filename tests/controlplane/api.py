"""A thin synchronous REST client for tests and the demo, and the kinds that it knows.

It is not Muster's own client, so that a fault of that one cannot hide itself. It raises `ApiError` for every refusal
and never asks twice.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import requests

KUEUE = "kueue.x-k8s.io/v1beta2"
#: kind -> (apiVersion, plural, namespaced)
KINDS: dict[str, tuple[str, str, bool]] = {
    "ClusterQueue": (KUEUE, "clusterqueues", False),
    "LocalQueue": (KUEUE, "localqueues", True),
    "ResourceFlavor": (KUEUE, "resourceflavors", False),
    "Workload": (KUEUE, "workloads", True),
    "Cohort": (KUEUE, "cohorts", False),
    "AdmissionCheck": (KUEUE, "admissionchecks", False),
    "WorkloadPriorityClass": (KUEUE, "workloadpriorityclasses", False),
    "Topology": (KUEUE, "topologies", False),
    "ProvisioningRequestConfig": (KUEUE, "provisioningrequestconfigs", False),
    "MultiKueueConfig": (KUEUE, "multikueueconfigs", False),
    "MultiKueueCluster": (KUEUE, "multikueueclusters", False),
    "CustomResourceDefinition": ("apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "APIService": ("apiregistration.k8s.io/v1", "apiservices", False),
    "Job": ("batch/v1", "jobs", True),
    "Deployment": ("apps/v1", "deployments", True),
    "DaemonSet": ("apps/v1", "daemonsets", True),
    "StatefulSet": ("apps/v1", "statefulsets", True),
    "LeaderWorkerSet": ("leaderworkerset.x-k8s.io/v1", "leaderworkersets", True),
    "Pod": ("v1", "pods", True),
    "Node": ("v1", "nodes", False),
    "Namespace": ("v1", "namespaces", False),
    "LimitRange": ("v1", "limitranges", True),
    "Event": ("v1", "events", True),
    "ConfigMap": ("v1", "configmaps", True),
    "Secret": ("v1", "secrets", True),
    "Service": ("v1", "services", True),
    "ServiceAccount": ("v1", "serviceaccounts", True),
    "RuntimeClass": ("node.k8s.io/v1", "runtimeclasses", False),
    "DeviceClass": ("resource.k8s.io/v1", "deviceclasses", False),
    "ResourceClaim": ("resource.k8s.io/v1", "resourceclaims", True),
    "ResourceClaimTemplate": ("resource.k8s.io/v1", "resourceclaimtemplates", True),
    "ResourceSlice": ("resource.k8s.io/v1", "resourceslices", False),
    "PriorityClass": ("scheduling.k8s.io/v1", "priorityclasses", False),
    "Lease": ("coordination.k8s.io/v1", "leases", True),
    "EndpointSlice": ("discovery.k8s.io/v1", "endpointslices", True),
    "Role": ("rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("rbac.authorization.k8s.io/v1", "rolebindings", True),
    "ClusterRole": ("rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "MutatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations", False),
    "ValidatingWebhookConfiguration": ("admissionregistration.k8s.io/v1", "validatingwebhookconfigurations", False),
    "ValidatingAdmissionPolicy": ("admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (
        "admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
}


class ApiError(Exception):
    """The API server refused; `status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Api:
    """Thin REST client for one user of one API server; safe to use from several threads."""

    def __init__(self, server: str, token: str, ca: str) -> None:
        self.server, self.token, self.ca = server, token, ca
        self._local = threading.local()

    def session(self) -> requests.Session:
        session = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.verify, session.trust_env = self.ca, False
            session.headers["Authorization"] = "Bearer " + self.token
        return session

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        timeout: float = 40,
    ) -> Any:
        data = None if body is None else json.dumps(body)
        response = self.session().request(
            method,
            self.server + path,
            data=data,
            params=params,
            timeout=timeout,
            headers={"Content-Type": content_type},
        )
        is_json = response.headers.get("Content-Type", "").startswith("application/json")
        if response.status_code >= 400:
            message = response.text
            with contextlib.suppress(ValueError):
                message = response.json().get("message", message)
            raise ApiError(response.status_code, message)
        return response.json() if is_json else response.text

    @staticmethod
    def path(kind: str, namespace: str | None = None, name: str | None = None, sub: str | None = None) -> str:
        version, plural, namespaced = KINDS[kind]
        parts = ["api" if "/" not in version else "apis", version]
        if namespaced and namespace:
            parts += ["namespaces", namespace]
        return "/" + "/".join([*parts, plural, *([name] if name else []), *([sub] if sub else [])])

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        return self.request("GET", self.path(kind, namespace, name))

    def find(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any] | None:
        """The object, or None where there is none."""
        try:
            return self.get(kind, name, namespace)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str | None = None, selector: str | None = None) -> list[dict[str, Any]]:
        params = {"labelSelector": selector} if selector else None
        found = self.request("GET", self.path(kind, namespace), params=params)["items"]
        return [{"kind": kind, "apiVersion": KINDS[kind][0], **item} for item in found]

    def create(self, obj: dict[str, Any], *, dry_run: bool = False) -> dict[str, Any]:
        params = {"dryRun": "All"} if dry_run else None
        return self.request("POST", self.path(obj["kind"], obj["metadata"].get("namespace")), obj, params=params)

    def apply(self, obj: dict[str, Any], *, manager: str = "tests") -> dict[str, Any]:
        """Server-side apply, forced."""
        path = self.path(obj["kind"], obj["metadata"].get("namespace"), obj["metadata"]["name"])
        params = {"fieldManager": manager, "force": "true"}
        return self.request("PATCH", path, obj, params=params, content_type="application/apply-patch+yaml")

    def patch(
        self, kind: str, name: str, body: Any, namespace: str | None = None, *, sub: str | None = None
    ) -> dict[str, Any]:
        """JSON merge patch, or a JSON patch where the body is a list."""
        content_type = "application/json-patch+json" if isinstance(body, list) else "application/merge-patch+json"
        return self.request("PATCH", self.path(kind, namespace, name, sub), body, content_type=content_type)

    def delete(self, kind: str, name: str, namespace: str | None = None, *, grace: int | None = None) -> None:
        """Background deletion; that there is no such object is no failure."""
        body: dict[str, Any] = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            self.request("DELETE", self.path(kind, namespace, name), body)
        except ApiError as error:
            if error.status != 404:
                raise

    def follow(
        self,
        kind: str,
        deliver: Callable[[str, dict[str, Any]], None],
        running: Callable[[], bool],
        missed: Callable[[int, int], None] = lambda _after, _until: None,
    ) -> None:
        """Every state of every object as the API server tells it: `deliver(event, object)`, while `running`.

        Starts with a list, as ADDED, and lists again where a watch cannot go on: what was stored in between is lost,
        and `missed` is told after which revision and until which.
        """
        revision: str | None = None
        last = 0
        known: dict[str, dict[str, Any]] = {}
        while running():
            try:
                if revision is None:
                    listed = self.request("GET", self.path(kind))
                    revision = listed["metadata"]["resourceVersion"]
                    if last:
                        missed(last, int(revision))
                    there = {obj["metadata"]["uid"] for obj in listed["items"]}
                    for obj in [obj for uid, obj in known.items() if uid not in there]:
                        deliver("DELETED", {**obj, "metadata": {**obj["metadata"], "resourceVersion": revision}})
                    known = {obj["metadata"]["uid"]: obj for obj in listed["items"]}
                    for obj in listed["items"]:
                        deliver("ADDED", obj)
                params = {"watch": "true", "resourceVersion": revision, "timeoutSeconds": "300"}
                with self.session().get(
                    self.server + self.path(kind), stream=True, timeout=(10, 400), params=params
                ) as stream:
                    for line in stream.iter_lines(chunk_size=None):  # as it arrives, and not byte by byte
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            revision = None
                            break
                        obj = event["object"]
                        revision = obj["metadata"]["resourceVersion"]
                        last = int(revision or 0)
                        known[obj["metadata"]["uid"]] = obj
                        if event["type"] == "DELETED":
                            del known[obj["metadata"]["uid"]]
                        deliver(event["type"], obj)
            except (requests.RequestException, ApiError, ValueError, KeyError):
                time.sleep(0.2)


def eventually(question: Callable[[], Any], *, seconds: float = 30, every: float = 0.05, message: str = "") -> Any:
    """Asks until the answer is true and returns it; fails with the last answer. The machine may be busy."""
    deadline, last = time.monotonic() + seconds, None
    while True:
        try:
            answer = question()
            if answer:
                return answer
            last = repr(answer)
        except (ApiError, AssertionError, KeyError, TypeError, IndexError) as error:
            last = repr(error)
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {message or question} (last: {last:.500})")
        time.sleep(every)
