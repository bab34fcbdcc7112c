"""What becomes of a gang whose nodes fail: one failed node is replaced alone, a second one ends the gang's admission.

Decided from the hosts of the assignment that have failed for this gang, as `node_health` tells them. It only says which
node is to be replaced (`status.unhealthyNodes`); the core finds the replacement, or says that there is none.
"""

from __future__ import annotations

from admission.api import names
from admission.api.kueue import UnhealthyNode, Workload
from admission.controllers import conditions
from admission.controllers.eviction import evicted
from admission.controllers.rules import Facts, Step, event


def react(workload: Workload, facts: Facts, now: float) -> Step:
    """The first failed node is noted, one that recovered in time is forgotten; another one is one too many."""
    if not conditions.holds_quota(workload) or conditions.is_evicted(workload):
        return Step(workload)
    noted = [node.name for node in workload.status.unhealthy_nodes]
    pending = [name for name in noted if name in facts.failed_hosts]
    new = [name for name in facts.failed_hosts if name not in noted]
    if len(pending) + len(new) > 1 and new:
        message = f"More than one node failed under the workload: {', '.join(sorted((*pending, *new)))}"
        return Step(
            evicted(workload, names.EVICTED_BY_NODE_FAILURES, message, now),
            tells=(event(workload, names.EVENT_EVICTED_PREFIX + names.EVICTED_BY_NODE_FAILURES, message),),
        )
    left = (*pending, *new)
    if list(left) == noted:
        return Step(workload)
    return Step(conditions.with_status(workload, unhealthy_nodes=tuple(UnhealthyNode(name=name) for name in left)))
