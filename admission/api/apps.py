"""What Muster reads of apps/v1: Deployments and StatefulSets.

Pod templates stay the plain dicts that the API server sent, because they are copied to Workloads as they are. The
objects are never written to but by the webhook, as they are created or changed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.schema import Object, always

GROUP = "apps"


class DeploymentSpec(Object, frozen=True):
    template: dict[str, Any] = msgspec.field(default_factory=dict)


class DeploymentStatus(Object, frozen=True):
    ready_replicas: int = 0


class Deployment(Object, frozen=True):
    api_version: str = always("apps/v1")
    kind: str = always("Deployment")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: DeploymentSpec = msgspec.field(default_factory=DeploymentSpec)
    status: DeploymentStatus = DeploymentStatus()


class Ordinals(Object, frozen=True):
    """The index of the first pod."""

    start: int = 0


class StatefulSetSpec(Object, frozen=True):
    """`replicas` counts as 1 where it is missing."""

    replicas: int | None = None
    template: dict[str, Any] = msgspec.field(default_factory=dict)
    ordinals: Ordinals | None = None


class StatefulSetStatus(Object, frozen=True):
    replicas: int = 0
    ready_replicas: int = 0


class StatefulSet(Object, frozen=True):
    api_version: str = always("apps/v1")
    kind: str = always("StatefulSet")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: StatefulSetSpec = msgspec.field(default_factory=StatefulSetSpec)
    status: StatefulSetStatus = StatefulSetStatus()

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas
