"""Asks the webhook's handlers about plain objects, and applies the patch that they answer with."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from admission.settings import GpuPods, Integrations, Muster, Settings
from admission.webhook import kinds, review
from admission.webhook.context import Context, Rules
from admission.webhook.handling import mutated, validated
from admission.webhook.review import GroupVersionKind, Request, Response, UserInfo

QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = "kueue.x-k8s.io/managed"
ADMISSION_GATE = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
GPU = "nvidia.com/gpu"

TENANT = UserInfo("jane", ("system:authenticated",))
JOB_CONTROLLER = UserInfo(
    "system:serviceaccount:kube-system:job-controller", ("system:serviceaccounts", "system:serviceaccounts:kube-system")
)


@dataclass(frozen=True)
class FakeCaches:
    """The two caches as plain data."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    local_queues: frozenset[tuple[str, str]] = frozenset()

    def namespace_labels(self, name: str) -> Mapping[str, str] | None:
        return self.namespaces.get(name)

    def has_local_queue(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self.local_queues


NO_QUEUES = FakeCaches()
DEFAULT_QUEUE = FakeCaches(local_queues=frozenset({("ns", "default")}))


def settings(gpu_pods: GpuPods | None = None, **changes: Any) -> Settings:
    base = Settings(
        namespace="muster-system",
        integrations=Integrations(frameworks=("batch/job", "pod")),
        muster=Muster(gpu_pods=gpu_pods or GpuPods()),
    )
    return msgspec.structs.replace(base, **changes)


def ask(
    verb: str,
    obj: Mapping[str, Any],
    old: Mapping[str, Any] | None = None,
    *,
    with_settings: Settings | None = None,
    caches: FakeCaches = NO_QUEUES,
    user: UserInfo = TENANT,
) -> Response:
    group, _, version = obj["apiVersion"].rpartition("/")
    gvk = GroupVersionKind(group, version, obj["kind"])
    kind = next(each for each in kinds.KINDS if each.gvk == gvk)
    request = Request(
        uid="u",
        kind=gvk,
        operation=review.CREATE if old is None else review.UPDATE,
        namespace=obj.get("metadata", {}).get("namespace", ""),
        user_info=user,
        object=msgspec.Raw(msgspec.json.encode(obj)),
        old_object=msgspec.Raw(msgspec.json.encode(old)),
    )
    context = Context(Rules.of(with_settings or settings()), caches, request)
    return mutated(kind, context) if verb == "mutate" else validated(kind, context)


def patched(obj: Mapping[str, Any], response: Response) -> dict[str, Any]:
    """The object after the patch of an answer."""
    result = copy.deepcopy(dict(obj))
    for operation in response.patch:
        *parents, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target: Any = result
        for part in parents:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if operation["op"] == "remove":
            del target[last]
        elif isinstance(target, list):
            assert last == "-"
            target.append(operation["value"])
        else:
            target[last] = operation["value"]
    return result


# ------------------------------------------------------------------ objects


def container(requests: Mapping[str, Any] | None = None, limits: Mapping[str, Any] | None = None) -> dict[str, Any]:
    resources = {"requests": requests, "limits": limits}
    return {"name": "c", "image": "none", "resources": {name: value for name, value in resources.items() if value}}


def pod(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    *,
    limits: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    namespace: str = "ns",
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": namespace,
            **({"labels": dict(labels)} if labels else {}),
            **({"annotations": dict(annotations)} if annotations else {}),
            **(metadata or {}),
        },
        "spec": {"containers": [container(limits=limits)], **spec},
    }


def job(
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    *,
    limits: Mapping[str, Any] | None = None,
    template_annotations: Mapping[str, str] | None = None,
    namespace: str = "ns",
    pod_spec: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    template = {
        "metadata": {"annotations": dict(template_annotations or {})},
        "spec": {"containers": [container(limits=limits)], **(pod_spec or {})},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "j",
            "namespace": namespace,
            "labels": dict(labels or {}),
            "annotations": dict(annotations or {}),
        },
        "spec": {"parallelism": 1, "completions": 1, "template": template, **spec},
    }


def owned(kind: str, api_version: str) -> dict[str, Any]:
    """Metadata of an object with a controller."""
    owner = {"apiVersion": api_version, "kind": kind, "name": "o", "uid": "1", "controller": True}
    return {"ownerReferences": [owner]}


def kueue(kind: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": kind,
        "metadata": {"name": "x", **metadata},
        "spec": dict(spec),
    }


def gates(obj: Mapping[str, Any]) -> list[str]:
    return [gate["name"] for gate in obj["spec"].get("schedulingGates") or []]
