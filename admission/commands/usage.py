"""Shows who held how much for how long: resource-hours by queue or namespace between two times.

The history is the inspection API's. Where that cannot be reached it is counted from the Workloads that are still there,
and said so: what was deleted since is missing, and so is what was held before an eviction.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

import click

from admission.api import meta, names
from admission.api.kueue import Workload
from admission.api.meta import find_condition
from admission.api.quantities import QuantityError, parse
from admission.commands import inspecting, output
from admission.commands.faults import USAGE, Fault, told
from admission.commands.output import Form
from admission.commands.reach import Reach

if TYPE_CHECKING:
    from rich.table import Table

_DAY: Final = 86_400.0
_KEYS: Final = {"queue": "clusterQueue", "namespace": "namespace"}


@dataclass(frozen=True, slots=True)
class Span:
    """From when to when, in seconds since the epoch, and by what it is summed up (`queue` or `namespace`)."""

    since: float
    until: float
    by: str


def span(since: str | None, until: str | None, by: str, now: float) -> Span:
    """Of the command line; times as RFC 3339 or dates, or as a duration before now such as `7d` or `12h`."""
    end = now if until is None else _moment(until, now)
    start = end - _DAY if since is None else _moment(since, now)
    if start > end:
        raise Fault("--from has to be before --to", USAGE)
    return Span(start, end, by)


def _moment(text: str, now: float) -> float:
    if text[-1:] == "d" and text[:-1].isdecimal():
        return now - int(text[:-1]) * _DAY
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        pass
    try:
        from admission.settings import durations

        return now - durations.parse(text)
    except ValueError:
        message = f"{text!r} is no time; write 2026-01-31, 2026-01-31T12:00:00Z, or how long ago: 7d, 12h"
        raise Fault(message, USAGE) from None


def counted(workloads: Iterable[Workload], wanted: Span, now: float) -> list[dict[str, Any]]:
    """Resource-hours that the Workloads say of themselves, in the inspection API's form."""
    hours: dict[tuple[str, str, str], Fraction] = defaultdict(Fraction)
    holders: dict[tuple[str, str, str], int] = defaultdict(int)
    for workload in workloads:
        admission, held = workload.status.admission, _held(workload, wanted, now)
        if admission is None or held <= 0:
            continue
        key = admission.cluster_queue if wanted.by == "queue" else workload.metadata.namespace
        for assignment in admission.pod_set_assignments:
            for resource, flavor in assignment.flavors.items():
                at = (key, flavor, resource)
                hours[at] += _amount(assignment.resource_usage.get(resource, 0)) * Fraction(held) / 3600
                holders[at] += 1
    title = _KEYS[wanted.by]
    return [
        {
            title: key,
            "flavor": flavor,
            "resource": resource,
            "hours": round(float(total), 6),
            "workloads": holders[key, flavor, resource],
        }
        for (key, flavor, resource), total in sorted(hours.items())
    ]


def _held(workload: Workload, wanted: Span, now: float) -> float:
    """Seconds of the span for which it held the quota that it has, or ended with."""
    reserved = find_condition(workload.status.conditions, names.QUOTA_RESERVED)
    finished = find_condition(workload.status.conditions, names.FINISHED)
    if reserved is None or reserved.status != meta.TRUE or not reserved.last_transition_time:
        return 0.0
    end = now
    if finished is not None and finished.status == meta.TRUE and finished.last_transition_time:
        end = meta.epoch(finished.last_transition_time)
    return min(end, wanted.until) - max(meta.epoch(reserved.last_transition_time), wanted.since)


def _amount(text: str | float) -> Fraction:
    try:
        return parse(text)
    except QuantityError:
        return Fraction(0)


def table(items: list[dict[str, Any]], by: str) -> Table:
    key = _KEYS[by]
    title = "ClusterQueue" if by == "queue" else "Namespace"
    shown = output.table(title, "Flavor", "Resource", "Hours", "Workloads", right=("Hours", "Workloads"))
    for item in items:
        shown.add_row(
            item[key], item["flavor"], item["resource"], _hours(item["resource"], item["hours"]), str(item["workloads"])
        )
    return shown


def _hours(resource: str, hours: float) -> str:
    """Bytes are counted by the GiB, as nobody reads ten digits."""
    is_bytes = resource == "memory" or resource.endswith("storage") or resource.startswith("hugepages-")
    return f"{hours / 2**30:,.2f} GiB" if is_bytes else f"{hours:,.2f}"


async def _read(reach: Reach, wanted: Span, now: float) -> tuple[list[dict[str, Any]], bool]:
    """The items, and whether they are the whole history."""
    from admission.kube.resources import WORKLOADS

    async with reach.client() as client:
        query = {"from": meta.rfc3339(wanted.since), "to": meta.rfc3339(wanted.until), "by": wanted.by}
        if reach.namespace is not None:
            query["namespace"] = reach.namespace
        answer = await inspecting.ask(client, "usage", query)
        if answer is not None:
            return list(answer["items"]), True
        return counted((await client.list(WORKLOADS, reach.namespace)).items, wanted, now), False


def run(reach: Reach, form: Form, since: str | None, until: str | None, by: str) -> None:
    """`muster usage`."""
    from rich.text import Text

    now = time.time()
    wanted = span(since, until, by, now)
    with told():
        items, is_whole = asyncio.run(_read(reach, wanted, now))
    if not is_whole:
        click.echo("muster: the inspection API is not served here: counted from the Workloads still there", err=True)
    data = {
        "from": meta.rfc3339(wanted.since),
        "to": meta.rfc3339(wanted.until),
        "source": "inspection" if is_whole else "workloads",
        "items": items,
    }
    output.show(form, data, lambda: [table(items, by) if items else Text("Nobody held anything in that time")])
