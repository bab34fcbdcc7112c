"""What a reconcile wants done to the cluster, as values: create, patch, delete, tell.

Effects are made by pure functions and carried out, in order, by `admission.controllers.act`, which stops at the first
that fails and has the object reconciled again from what the cluster then says. So each of them has to be idempotent.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from admission.api.meta import PatchKind

__all__ = ["Create", "Delete", "Effect", "Patch", "PatchKind", "Ref", "Severity", "Tell"]


class Ref(msgspec.Struct, frozen=True):
    """An object in the cluster. `kind` is the plain kind ("Pod", "Job", "Workload"); `uid` empty means any."""

    kind: str
    namespace: str
    name: str
    uid: str = ""


class Create(msgspec.Struct, frozen=True):
    """Create `body` (a whole manifest). That it exists already, with the same controller, is no failure."""

    ref: Ref
    body: dict[str, Any]


class Patch(msgspec.Struct, frozen=True):
    """Change an object. `resource_version` is a precondition; a conflict means "reconcile again"."""

    ref: Ref
    body: dict[str, Any] | list[dict[str, Any]]
    kind: PatchKind = PatchKind.MERGE
    subresource: str | None = None
    resource_version: str | None = None


class Delete(msgspec.Struct, frozen=True):
    """Delete an object. That it is gone already is no failure."""

    ref: Ref
    grace_seconds: int | None = None
    resource_version: str | None = None


class Severity(Enum):
    """Type of a Kubernetes Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Tell(msgspec.Struct, frozen=True):
    """A Kubernetes Event about an object; batched and rate-limited, never a reason to fail.

    Reconciling says the same again for as long as it is true; whoever writes Events leaves repetitions out.
    """

    ref: Ref
    reason: str
    message: str
    severity: Severity = Severity.NORMAL
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


Effect = Create | Patch | Delete | Tell
