"""How pages say amounts, times and reasons: in words and numbers as people write them.

Codes and messages of the queues stay what they are; a plain sentence stands beside them. Nothing here decides or
reads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from queues.inspection import parameters
from queues.inspection.quantities import is_device

BYTES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
BYTE_RESOURCES = ("memory", "ephemeral-storage", "storage", "hugepages-")
#: Of devices, by the end of the resource's name.
DEVICES = {"gpu": "GPUs", "tpu": "TPUs"}


@dataclass(frozen=True, slots=True)
class Why:
    """`title` in two or three words, `sentence` for somebody who never heard of quota."""

    title: str
    sentence: str


REASONS: Mapping[str, Why] = {
    "WaitingForQuota": Why(
        "Waiting for quota", "Its queue has no room for it right now. It starts when others give back what they hold."
    ),
    "ExceedsMaxQuota": Why(
        "Larger than its limit", "It asks for more than its queue may ever hold. Waiting alone does not help."
    ),
    "NoMatchingFlavor": Why(
        "No matching flavor",
        "None of its queue's flavors has nodes that its pods accept. Waiting alone does not help.",
    ),
    "TopologyPlacementFailed": Why(
        "No room close together", "There may be enough in total, but not as close together as its pods have to be."
    ),
    "WaitingForPreemptedWorkloads": Why(
        "Others are making room", "Work was told to end for it. It starts as soon as that has given back its quota."
    ),
    "WaitingForPodsReady": Why(
        "Others are starting", "Its queue admits one after the other, and waits until the pods of the last are ready."
    ),
    "Misconfigured": Why("Has a mistake", "Something in its specification has to be mended before it is looked at."),
    "Suspended": Why("Queue is stopped", "Its queue is stopped by hand and admits nothing until it is resumed."),
    "PendingEvaluation": Why("Not looked at yet", "Its turn to be looked at has not come, or it has just arrived."),
    "OnHold": Why("On hold", "Somebody put it on hold. It stays out of the queue until that is taken back."),
    "Deactivated": Why("Deactivated", "It was taken out of the queue and does not come back by itself."),
    "AdmissionGated": Why("Gated", "It carries a gate that somebody else has to take off first."),
    "WaitingForReplacementPods": Why(
        "Pods are missing", "Some of its pods failed. It waits for those that replace them."
    ),
}

STATES: Mapping[str, str] = {
    "pending": "Waiting",
    "held": "Held back",
    "reserving": "Reserved",
    "admitted": "Running",
    "gone": "Ended",
}

KINDS: Mapping[str, str] = {
    "created": "Created",
    "held": "Goes on waiting",
    "reserved": "Quota reserved",
    "admitted": "Admitted",
    "preempted": "Preempted",
    "evicted": "Evicted",
    "released": "Gave its quota back",
    "requeued": "Queued again",
    "deactivated": "Deactivated",
    "finished": "Finished",
    "removed": "Deleted",
    "gap": "A gap in the history",
}

CLOSENESS: Mapping[str, str] = {
    "required": "all in one",
    "preferred": "preferably in one",
    "slices": "each slice in one",
    "unconstrained": "anywhere on topology nodes",
}


def why(code: str | None) -> Why:
    return REASONS.get(code or "PendingEvaluation", Why(code or "", ""))


def amount(value: int, resource: str) -> str:
    """Cores, bytes with a prefix, plain counts."""
    if value >= parameters.LARGEST:
        return "unlimited"
    if resource == "cpu":
        return f"{value / 1000:g}"
    if not resource.startswith(BYTE_RESOURCES):
        return str(value)
    scaled, step = float(value), 0
    while scaled >= 1024 and step < len(BYTES) - 1:
        scaled, step = scaled / 1024, step + 1
    return f"{scaled:.4g}{BYTES[step]}"


def resource_name(resource: str) -> str:
    """`GPUs` for nvidia.com/gpu; what is not known keeps its name."""
    return DEVICES.get(resource.rpartition("/")[2], resource)


def hours(value: float, resource: str = "") -> str:
    """Resource-hours, with as many digits as matter."""
    if resource.startswith(BYTE_RESOURCES):
        return amount(int(value), resource)
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    whole = int(seconds)
    for size, unit, smaller, smaller_unit in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            rest = whole % size // smaller
            return f"{whole // size} {unit}" + (f" {rest} {smaller_unit}" if rest else "")
    return f"{whole} s"


def percent(part: float | None) -> str:
    """Nothing is 0 % and nothing whole is 100 % that is not so."""
    if part is None:
        return "none"
    if 0 < part < 0.01:
        return "<1 %"
    return f"{min(99, round(100 * part)) if part < 1 else round(100 * part)} %"


def ordinal(position: int) -> str:
    """Of a position from 0."""
    number = position + 1
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def seconds_of(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def moment(timestamp: str, now: float) -> str:
    """The time of day, with the day where that is not today (UTC)."""
    at, today = datetime.fromisoformat(timestamp), datetime.fromtimestamp(now, UTC)
    clock = at.strftime("%H:%M:%S")
    if at.date() == today.date():
        return clock
    return f"{at.day} {at.strftime('%b')}{'' if at.year == today.year else f' {at.year}'} {clock}"


def ago(timestamp: str, now: float) -> str:
    past = now - seconds_of(timestamp)
    return "just now" if past < 1 else f"{duration(past)} ago"


def level_name(label: str | None) -> str:
    """The last part of a node label: `rack` of cloud.example.com/topology-rack."""
    if not label:
        return "place"
    last = label.rpartition("/")[2]
    return "host" if last == "hostname" else last.removeprefix("topology-").removeprefix("gce-topology-")


def plural(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def size(workload: Mapping[str, Any]) -> str:
    """`16 pods · 128 GPUs`: pods, and devices or else cores."""
    parts = [plural(workload["pods"], "pod")]
    devices = [r for r in workload["requests"] if is_device(r["resource"])] or [
        r for r in workload["requests"] if r["resource"] == "cpu"
    ]
    for request in devices:
        name = "cores" if request["resource"] == "cpu" else resource_name(request["resource"])
        parts.append(f"{amount(request['amount'], request['resource'])} {name}")
    return " · ".join(parts)


def display_name(workload: Mapping[str, Any]) -> str:
    """The Job's name, which is what people know, or its own."""
    owner = workload.get("owner")
    return str(owner["name"] if owner else workload["name"])
