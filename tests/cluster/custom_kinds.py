"""The CRDs of jobs with operators of their own, as little of them as an API server needs, and no operators."""

from __future__ import annotations

from typing import Any

from admission.api.job_kinds import JOB_KINDS, JobKind
from tests.controlplane.api import KINDS
from tests.controlplane.cluster import ControlPlane, eventually

#: Anything may be written into spec and status.
_OPEN = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def crd(kind: JobKind) -> dict[str, Any]:
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": _OPEN, "status": _OPEN}}},
    }
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower(), "listKind": f"{kind.kind}List"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{kind.plural}.{kind.group}",
            # Some of these groups are reserved for what the Kubernetes project has looked at.
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {"group": kind.group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


def serve(plane: ControlPlane) -> None:
    """Returns when all of them are served."""
    for kind in JOB_KINDS:
        KINDS[kind.kind] = (kind.api_version, kind.plural, True)
        plane.api.apply(crd(kind))
    for kind in JOB_KINDS:
        eventually(lambda kind=kind: plane.api.list(kind.kind) == [], message=f"{kind.kind} is served")
