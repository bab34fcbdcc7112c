"""What a changed object means as a write: the smallest patch that leads from the observed object to the wanted one.

Rules make a new object from an observed one; this module compares the two and gives the effect, with the observed
resource version as precondition, or none when nothing changed. It must never carry anything out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from admission.api.decoding import plain
from admission.api.kueue import Workload
from admission.controllers.store import Object
from admission.jobs.effects import Effect, Patch, Ref
from admission.jobs.statuses import merge_patch


def ref(kind: str, obj: Object) -> Ref:
    meta = obj.metadata
    return Ref(kind, meta.namespace or "", meta.name, meta.uid)


def status_patch(kind: str, obj: Object, before: Any, after: Any, *, guarded: bool = True) -> Patch | None:
    """The write that changes the status `before` of `obj` to `after`.

    `guarded` makes the observed resource version a precondition; without it the write overtakes concurrent ones, which
    is right only for values that nobody else writes.
    """
    body = merge_patch(plain(before), plain(after))
    if not body:
        return None
    version = obj.metadata.resource_version if guarded else None
    return Patch(ref(kind, obj), {"status": body}, subresource="status", resource_version=version)


def workload_patches(before: Workload, after: Workload) -> tuple[Effect, ...]:
    """The writes that lead from one Workload to the other: spec and metadata first, and the status only with them done.

    The two go to different endpoints, so a changed spec is written alone: its answer has a new resource version, and
    the status follows in the reconcile that this answer causes.
    """
    body: dict[str, Any] = {}
    if before.spec is not after.spec:
        spec = merge_patch(plain(before.spec), plain(after.spec))
        if spec:
            body["spec"] = spec
    if before.metadata.finalizers != after.metadata.finalizers:
        body["metadata"] = {"finalizers": list(after.metadata.finalizers or ())}
    if body:
        return (Patch(ref("Workload", before), body, resource_version=before.metadata.resource_version),)
    if before.status is after.status:
        return ()
    patch = status_patch("Workload", before, before.status, after.status)
    return () if patch is None else (patch,)


def finalizers_patch(kind: str, obj: Object, finalizers: Iterable[str]) -> Patch:
    """Replaces the finalizers of an object, if it is still the one observed."""
    return Patch(
        ref(kind, obj), {"metadata": {"finalizers": list(finalizers)}}, resource_version=obj.metadata.resource_version
    )
