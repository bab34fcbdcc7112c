"""One log line for each decision: who was admitted, evicted or goes on waiting, in which queue, and because of what.

Made from what the journal is told, so that log, history and pages say the same. It decides nothing but the level: a
hold whose reason has new numbers is a detail, one with a new reason is not.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from admission.api.kueue import Workload
from admission.controllers.decisions import waited
from queues.journal.entries import Decision, Kind

log = logging.getLogger(__name__)

_GIVEN: Final = frozenset({Kind.RESERVED, Kind.ADMITTED})
#: What follows from a decision, or comes before one: for looking into one matter.
_DETAILS: Final = frozenset({Kind.CREATED, Kind.REQUEUED, Kind.RELEASED, Kind.REMOVED})


class Telling:
    """Remembers of each waiting Workload only the reason that was told last."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}

    def tell(self, *decisions: Decision, workload: Workload | None = None) -> None:
        """What happened to one Workload at once, in that order; `workload` is how it is now."""
        is_admitted = any(decision.kind is Kind.ADMITTED for decision in decisions)
        for decision in decisions:
            level = self._level(decision)
            if decision.kind is Kind.RESERVED and is_admitted:
                level = logging.DEBUG
            if log.isEnabledFor(level):
                log.log(level, decision.kind.value, extra=fields(decision, workload))

    def _level(self, decision: Decision) -> int:
        if decision.kind is Kind.HELD:
            before = self._reasons.get(decision.workload)
            self._reasons[decision.workload] = decision.code
            return logging.DEBUG if before == decision.code else logging.INFO
        self._reasons.pop(decision.workload, None)
        return logging.DEBUG if decision.kind in _DETAILS else logging.INFO


def fields(decision: Decision, workload: Workload | None = None) -> dict[str, Any]:
    """What the line has, under the names that the API has for it; nothing that is empty."""
    said: dict[str, Any] = {
        "workload": f"{decision.namespace}/{decision.name}",
        "uid": decision.workload,
        "clusterQueue": decision.cluster_queue,
        "localQueue": decision.local_queue,
        "reason": decision.code,
        "cause": decision.message,
        "remedy": decision.remedy,
        "by": decision.cause,
        **(decision.facts if decision.kind is Kind.HELD else {}),
    }
    if workload is not None and decision.kind in _GIVEN and workload.status.admission is not None:
        said["flavors"] = {
            resource: flavor
            for assigned in workload.status.admission.pod_set_assignments
            for resource, flavor in assigned.flavors.items()
        }
        said["waited"] = waited(workload, decision.at)
    return {name: value for name, value in said.items() if value not in ("", None)}
