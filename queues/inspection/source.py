"""What every endpoint works with: the database, the clock, and the question whether this caller may see something.

Rights are those on Kueue's own objects, so that a cluster's existing roles decide: ClusterQueues for what is
cluster-wide, Workloads of a namespace for what belongs to it. It must never widen one into the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flask import g
from sqlalchemy import Engine

from queues.inspection.access import Access, Authorizer
from queues.inspection.answers import Scope
from queues.inspection.problems import ForbiddenError

KUEUE = "kueue.x-k8s.io"
ALL_QUEUES = Access("list", KUEUE, "clusterqueues")


def one_queue(name: str) -> Access:
    return Access("get", KUEUE, "clusterqueues", name=name)


def workloads_of(namespace: str) -> Access:
    return Access("list", KUEUE, "workloads", namespace=namespace)


@dataclass(frozen=True, slots=True)
class Source:
    engine: Engine
    authorizer: Authorizer
    clock: Callable[[], float]

    def allows(self, access: Access) -> bool:
        return self.authorizer.allows(g.user, access)

    def require(self, access: Access) -> None:
        if not self.allows(access):
            raise ForbiddenError(g.user, access)

    def scope(self, cluster_wide: Access, namespace: str | None) -> Scope:
        """Everything for those with the cluster-wide right; else the one namespace, for those who may see it."""
        if self.allows(cluster_wide):
            return Scope(namespace)
        if namespace is None:
            raise ForbiddenError(g.user, cluster_wide, Access("list", KUEUE, "workloads", namespace="<namespace>"))
        self.require(workloads_of(namespace))
        return Scope(namespace, unrestricted=False)
