"""Decides of which pods the core is told that they take room on a node which no assignment accounts for.

From pods and Workloads as last observed, and from what was told before, so that it is told once when a pod begins to
take room and once when that is over. It must never count a pod besides the assignment that covers it.
"""

from __future__ import annotations

from collections.abc import Callable

from admission.api import core
from admission.controllers import conditions, observe
from admission.controllers.tables import Tables
from admission.jobs.requests import Misconfigured, Surroundings, pod_requests
from queues.core import events, model


class Occupancy:
    """`apply` tells the core."""

    def __init__(self, tables: Tables, apply: Callable[[events.Event], None]) -> None:
        self._tables = tables
        self._apply = apply
        self._told: set[str] = set()

    def begin_anew(self) -> None:
        """The core knows nothing any more."""
        self._told.clear()

    def tell(self, pod: core.Pod, *, there: bool) -> bool:
        """Tell the core what is news about this pod; whether anything was."""
        uid = pod.metadata.uid
        name = observe.workload_name(pod)
        workload = None if name is None else self._tables.workloads.get(pod.metadata.namespace, name)
        if workload is not None and conditions.is_finished(workload):
            workload = None
        occupies = there and observe.occupies_node(pod, workload)
        if occupies is (uid in self._told):
            return False
        if not occupies:
            self._told.discard(uid)
            self._apply(events.PodGone(model.Uid(uid)))
            return True
        requests = pod_requests(pod.spec, Surroundings())
        taken = {} if isinstance(requests, Misconfigured) else requests.node
        self._told.add(uid)
        self._apply(
            events.PodPlaced(
                model.Uid(uid),
                model.NodeName(pod.spec.node_name),
                {model.ResourceName(name): amount for name, amount in taken.items()},
            )
        )
        return True
