"""When a queue, flavor, check or topology that is being deleted may go: once nothing uses it any more.

Decided from the object and whether it is in use. The finalizer comes from the webhook at creation, and from here where
there is no webhook. It must never come off anything that is in use.
"""

from __future__ import annotations

from typing import Protocol

from admission.api import names
from admission.api.meta import ObjectMeta
from admission.controllers.changes import finalizers_patch
from admission.jobs.effects import Patch


class Finalized(Protocol):
    """An object of a kind that has the finalizer."""

    @property
    def metadata(self) -> ObjectMeta: ...


def reconcile(kind: str, obj: Finalized, *, in_use: bool) -> Patch | None:
    """The write that adds or removes the finalizer, if one is due."""
    finalizers, deleting = obj.metadata.finalizers, obj.metadata.is_deleting
    there = names.RESOURCE_IN_USE_FINALIZER in finalizers
    if deleting:
        if there and not in_use:
            left = [each for each in finalizers if each != names.RESOURCE_IN_USE_FINALIZER]
            return finalizers_patch(kind, obj, left)
        return None
    return None if there else finalizers_patch(kind, obj, [*finalizers, names.RESOURCE_IN_USE_FINALIZER])
