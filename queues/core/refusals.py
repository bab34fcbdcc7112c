"""The single facts that stand in a workload's way, each in words, with numbers, and with what would mend it.

They are made where a flavor is looked at, from what was looked at; `explain` joins them to a reason. Nothing parses
them, and nothing here decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from queues.core.accounts import Account
from queues.core.model import ClusterQueueName, FlavorName, FlavorResource, ResourceName, Taint
from queues.core.quantities import text, total
from queues.core.reasons import Code, Shortage
from queues.core.records import QueueRecord


@dataclass(frozen=True, slots=True)
class Refusal:
    """`misfit`: what of the pods had no place, where that is the cause."""

    code: Code
    message: str
    shortage: Shortage | None = None
    remedy: str | None = None
    misfit: Misfit | None = None


@dataclass(frozen=True, slots=True)
class Misfit:
    """Which pods have no place on the nodes of which flavor."""

    flavor: FlavorName
    pod_set: str


def unavailable(resource: ResourceName, queue: ClusterQueueName) -> Refusal:
    return Refusal(
        Code.NO_MATCHING_FLAVOR,
        f"resource {resource} unavailable in ClusterQueue {queue}",
        remedy=f"add {resource} to a resource group of ClusterQueue {queue}",
    )


def no_flavor(flavor: FlavorName) -> Refusal:
    return Refusal(Code.NO_MATCHING_FLAVOR, f"flavor {flavor} not found", remedy=f"create ResourceFlavor {flavor}")


def taint_refusal(taint: Taint, flavor: FlavorName) -> Refusal:
    written = f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"
    return Refusal(
        Code.NO_MATCHING_FLAVOR,
        f"untolerated taint {{{written}}} in flavor {flavor}",
        remedy=f"tolerate {written}",
    )


def no_affinity(flavor: FlavorName) -> Refusal:
    return Refusal(
        Code.NO_MATCHING_FLAVOR,
        f"flavor {flavor} doesn't match node affinity",
        remedy=f"ask for the node labels of flavor {flavor}",
    )


def topology_mismatch(message: str) -> Refusal:
    return Refusal(Code.NO_MATCHING_FLAVOR, message)


def no_place(message: str, misfit: Misfit | None = None) -> Refusal:
    return Refusal(Code.TOPOLOGY_PLACEMENT_FAILED, message, misfit=misfit)


def exceeds_maximum(queue: QueueRecord, unit: FlavorResource, account: Account, assumed: int, request: int) -> Refusal:
    """More than the queue could have if nobody else used anything."""
    maximum = account.potential
    missing = assumed + request - maximum
    flavor, resource = unit
    limit = account.borrowing_limit
    if account.parent is not None and limit is not None and maximum == total(account.subtree, limit):
        what = f"raise the borrowingLimit of {resource} in flavor {flavor} of ClusterQueue {queue.name}"
    else:
        what = f"raise the nominalQuota of {resource} in flavor {flavor} of ClusterQueue {queue.name}"
    return Refusal(
        Code.EXCEEDS_MAX_QUOTA,
        f"insufficient quota for {resource} in flavor {flavor}, previously considered podsets requests "
        f"({text(resource, assumed)}) + current podset request ({text(resource, request)}) > maximum capacity "
        f"({text(resource, maximum)})",
        _shortage(unit, account, assumed + request, max(0, account.available)),
        f"{what} by {text(resource, missing)}",
    )


def insufficient(queue: QueueRecord, unit: FlavorResource, account: Account, amount: int, room: int) -> Refusal:
    """It could fit, but others use it now."""
    flavor, resource = unit
    missing = text(resource, amount - room)
    return Refusal(
        Code.WAITING_FOR_QUOTA,
        f"insufficient unused quota for {resource} in flavor {flavor}, {missing} more needed",
        _shortage(unit, account, amount, room),
        f"{missing} more {resource} of flavor {flavor} free for ClusterQueue {queue.name}",
    )


def _shortage(unit: FlavorResource, account: Account, needed: int, room: int) -> Shortage:
    own_unused = max(0, account.nominal - account.usage)
    return Shortage(unit.flavor, unit.resource, needed, room, account.potential, max(0, own_unused - room))
