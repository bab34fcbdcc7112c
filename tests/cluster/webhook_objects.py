"""Pods and Jobs as tenants send them to the webhook, and what it makes of them."""

from __future__ import annotations

from typing import Any

QUEUE = "kueue.x-k8s.io/queue-name"
MANAGED = "kueue.x-k8s.io/managed"
GROUP, TOTAL = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
GATES = ["kueue.x-k8s.io/admission", "kueue.x-k8s.io/topology"]
GPU = "nvidia.com/gpu"


def pod(
    ns: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    limits: dict[str, str] | None = None,
    name: str = "p",
    metadata: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": ns,
            "labels": labels or {},
            "annotations": annotations or {},
            **(metadata or {}),
        },
        "spec": {"containers": [{"name": "c", "image": "none", "resources": {"limits": limits or {}}}], **spec},
    }


def job(
    ns: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    *,
    limits: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    containers = [{"name": "c", "image": "none", "resources": {"limits": limits or {}}}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": ns, "labels": labels or {}, "annotations": annotations or {}},
        "spec": {"parallelism": 1, "completions": 1, "template": template, **spec},
    }


def owner(kind: str, version: str) -> dict[str, Any]:
    reference = {"apiVersion": version, "kind": kind, "name": "o", "uid": "6f4b", "controller": True}
    return {"ownerReferences": [reference]}


def gates(obj: dict[str, Any]) -> list[str]:
    return [gate["name"] for gate in obj["spec"].get("schedulingGates") or []]
