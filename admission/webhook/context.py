"""What a handler may look at besides the review: rules made once from the settings, and two small caches.

`Rules` is plain data and the same for every review; `Caches` is what informers keep up to date in the background.
Nothing reached from here may call the API server or a database: a review waits for no one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from admission.api import job_kinds, names
from admission.api.job_kinds import JobKind
from admission.api.meta import LabelSelector, ObjectMeta, selects
from admission.settings import Settings, WithoutQueue
from admission.webhook.gpus import GpuResources
from admission.webhook.review import Request

#: Who creates pods in the name of their owners. A pod that anyone else creates is not believed to be a DaemonSet's or
#: a Job's, whatever its owner references say: that would be a way around every quota.
TRUSTED_USERS: Final = ("system:kube-controller-manager",)
TRUSTED_GROUPS: Final = ("system:masters", "system:serviceaccounts:kube-system", "system:nodes")

#: The one of Muster's Deployment, in Muster's namespace.
SERVICE_ACCOUNT: Final = "muster"

SYSTEM_PRIORITY_CLASSES: Final = ("system-cluster-critical", "system-node-critical")


class Caches(Protocol):
    """What the webhook knows of the cluster. A miss is None or False, never a call."""

    def namespace_labels(self, name: str) -> Mapping[str, str] | None: ...

    def has_local_queue(self, namespace: str, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings, as the handlers need them.

    `custom` are the enabled kinds of jobs with operators of their own. `controller` is the user as whom Muster itself
    writes.
    """

    jobs: bool
    pods: bool
    custom: tuple[JobKind, ...]
    deployments: bool
    stateful_sets: bool
    leader_worker_sets: bool
    manage_all: bool
    managed_namespaces: LabelSelector
    gpus: GpuResources | None
    gpu_namespaces: LabelSelector
    gpu_exempt_namespaces: frozenset[str]
    without_queue: WithoutQueue
    topology: bool
    partial_admission: bool
    keeps_group_size: bool
    controller: str

    @classmethod
    def of(cls, settings: Settings) -> Rules:
        gpu_pods = settings.muster.gpu_pods
        frameworks = settings.integrations.enabled
        return cls(
            jobs=names.JOB_INTEGRATION in frameworks,
            pods=names.POD_INTEGRATION in frameworks,
            custom=job_kinds.enabled(frameworks),
            deployments=names.DEPLOYMENT_INTEGRATION in frameworks,
            stateful_sets=names.STATEFUL_SET_INTEGRATION in frameworks,
            leader_worker_sets=names.LEADER_WORKER_SET_INTEGRATION in frameworks,
            manage_all=settings.manage_jobs_without_queue_name,
            managed_namespaces=settings.managed_namespaces,
            gpus=GpuResources.of(gpu_pods) if gpu_pods.enabled else None,
            gpu_namespaces=gpu_pods.namespace_selector,
            gpu_exempt_namespaces=settings.gpu_exempt_namespaces,
            without_queue=gpu_pods.without_queue,
            topology=settings.gate("TopologyAwareScheduling"),
            partial_admission=settings.gate("PartialAdmission"),
            keeps_group_size=settings.gate("LWSImmutableGroupSize"),
            controller=f"system:serviceaccount:{settings.namespace}:{SERVICE_ACCOUNT}",
        )


@dataclass(frozen=True, slots=True)
class Context:
    """Of one review. `stamp` gives the annotations that say when it was; none unless gangs are traced."""

    rules: Rules
    caches: Caches
    request: Request
    stamp: Callable[[], dict[str, str]] = dict

    @property
    def namespace(self) -> str:
        return self.request.namespace

    @property
    def is_managed_namespace(self) -> bool:
        return self._selected(self.rules.managed_namespaces)

    @property
    def is_gpu_namespace(self) -> bool:
        """Whether GPUs are looked for in this namespace."""
        return (
            self.rules.gpus is not None
            and self.namespace not in self.rules.gpu_exempt_namespaces
            and self._selected(self.rules.gpu_namespaces)
        )

    @property
    def has_default_queue(self) -> bool:
        return self.caches.has_local_queue(self.namespace, names.DEFAULT_LOCAL_QUEUE)

    @property
    def is_trusted(self) -> bool:
        """Whether the one who asks creates pods in the name of their owners."""
        user = self.request.user_info
        return user.username in TRUSTED_USERS or any(group in TRUSTED_GROUPS for group in user.groups or ())

    def _selected(self, selector: LabelSelector) -> bool:
        """A namespace that the cache has not seen yet counts as selected: the API server asks for no other."""
        labels = self.caches.namespace_labels(self.namespace)
        return labels is None or selects(selector, labels)


def is_controlled_by(metadata: ObjectMeta, group: str, kind: str) -> bool:
    """Whether an object of this kind controls it, as it says itself."""
    owner = metadata.controller
    return owner is not None and owner.is_of(group, kind)
