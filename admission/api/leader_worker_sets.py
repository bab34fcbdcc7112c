"""What Muster reads of a leaderworkerset.x-k8s.io/v1 LeaderWorkerSet, and of the pods that its controller makes.

Pod templates stay the plain dicts that the API server sent. The objects are never written to but by the webhook.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from admission.api.meta import ObjectMeta
from admission.api.schema import Object, always

GROUP: Final = "leaderworkerset.x-k8s.io"

# Labels of its pods.
NAME_LABEL: Final = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/group-index"
#: 0 is the leader.
WORKER_INDEX_LABEL: Final = "leaderworkerset.sigs.k8s.io/worker-index"


class LeaderWorkerTemplate(Object, frozen=True):
    """Without a template of its own the leader is made as the workers are. `size` counts the leader."""

    leader_template: dict[str, Any] | None = None
    worker_template: dict[str, Any] = msgspec.field(default_factory=dict)
    size: int | None = None


class RollingUpdate(Object, frozen=True):
    """How many groups may be there beyond `replicas`: a number, or a share such as "25%"."""

    max_surge: int | str = 0


class RolloutStrategy(Object, frozen=True):
    rolling_update_configuration: RollingUpdate | None = None


class LeaderWorkerSetSpec(Object, frozen=True):
    replicas: int | None = None
    rollout_strategy: RolloutStrategy | None = None
    leader_worker_template: LeaderWorkerTemplate = msgspec.field(default_factory=LeaderWorkerTemplate)


class LeaderWorkerSetStatus(Object, frozen=True):
    """`replicas`: how many groups there are, those of a surge included."""

    replicas: int = 0
    ready_replicas: int = 0


class LeaderWorkerSet(Object, frozen=True):
    api_version: str = always(f"{GROUP}/v1")
    kind: str = always("LeaderWorkerSet")
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)
    spec: LeaderWorkerSetSpec = msgspec.field(default_factory=LeaderWorkerSetSpec)
    status: LeaderWorkerSetStatus = LeaderWorkerSetStatus()

    @property
    def replicas(self) -> int:
        return 1 if self.spec.replicas is None else self.spec.replicas

    @property
    def surges(self) -> bool:
        """Whether a rolling update may have more groups than `replicas`."""
        strategy = self.spec.rollout_strategy
        rolling = None if strategy is None else strategy.rolling_update_configuration
        return rolling is not None and rolling.max_surge not in {0, "0", "0%"}

    @property
    def size(self) -> int:
        size = self.spec.leader_worker_template.size
        return 1 if size is None else size
