"""Who held how much, step by step in time: resource-hours by queue or namespace for each hour, day, week or month.

Steps begin where the calendar's do, in UTC, and are clipped to the asked time. The same numbers go into JSON, a page
and CSV. It must never count what is yet to come.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from itertools import pairwise
from typing import Any

from sqlalchemy import Connection
from werkzeug.wrappers import Response

from queues.inspection import answers, parameters
from queues.inspection.parameters import ParameterError
from queues.inspection.source import ALL_QUEUES, Source
from queues.journal.usage import MOST_STEPS, By, usage_by_step

Json = dict[str, Any]

COLUMNS = ("from", "to", "team", "flavor", "resource", "hours", "workloads")

PARAMETERS = frozenset({"from", "to", "by", "namespace", "step"})
DAY = 86_400.0


class Step(Enum):
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


@dataclass(frozen=True, slots=True)
class Question:
    """Times are seconds since the epoch; without `step` the whole time is one."""

    since: float
    until: float
    by: By
    step: Step | None
    namespace: str | None


def question(query: Mapping[str, str], now: float, *, last: float = DAY) -> Question:
    """What the parameters ask for; without times the `last` seconds."""
    until = parameters.moment(query, "to")
    until = now if until is None else max(0.0, until)
    since = parameters.moment(query, "from")
    since = max(0.0, until - last if since is None else since)
    if since > until:
        raise ParameterError("from", "has to be before `to`")
    return Question(
        since,
        until,
        parameters.choice(query, "by", By, By.QUEUE) or By.QUEUE,
        parameters.choice(query, "step", Step, None),
        parameters.text(query, "namespace"),
    )


def asked_for(source: Source, query: Mapping[str, str]) -> Json:
    """For those who may see all queues, or the namespace that they ask for."""
    now = source.clock()
    asked = question(query, now)
    scope = source.scope(ALL_QUEUES, asked.namespace)
    with source.engine.connect() as connection:
        if asked.step is None:
            return answers.usage_between(connection, asked.since, asked.until, now, by=asked.by, scope=scope)
        return over_time(connection, asked.since, asked.until, now, step=asked.step, by=asked.by, scope=scope)


def download(answer: Json) -> Response:
    """A file that is named after its times."""
    response = Response(as_csv(answer), mimetype="text/csv")
    days = f"{answer['from'][:10]}-to-{answer['to'][:10]}"
    response.headers["Content-Disposition"] = f'attachment; filename="usage-{days}.csv"'
    return response


def fitting_step(since: float, until: float) -> Step:
    """One that gives a readable number of steps."""
    days = (until - since) / DAY
    if days <= 3:
        return Step.HOUR
    if days <= 62:
        return Step.DAY
    return Step.WEEK if days <= 366 else Step.MONTH


def edges(since: float, until: float, step: Step) -> list[float]:
    """The two times and all beginnings of a step between them."""
    found = [since]
    moment = _beginning(datetime.fromtimestamp(since, UTC), step)
    while True:
        moment = _next(moment, step)
        at = moment.timestamp()
        if at >= until:
            return [*found, until]
        if at > since:
            found.append(at)
        if len(found) > MOST_STEPS:
            raise ParameterError("step", f"gives more than {MOST_STEPS} steps between these times; take a longer one")


def _beginning(moment: datetime, step: Step) -> datetime:
    midnight = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    match step:
        case Step.HOUR:
            return moment.replace(minute=0, second=0, microsecond=0)
        case Step.DAY:
            return midnight
        case Step.WEEK:
            return midnight - timedelta(days=midnight.weekday())
        case Step.MONTH:
            return midnight.replace(day=1)


def _next(moment: datetime, step: Step) -> datetime:
    match step:
        case Step.HOUR:
            return moment + timedelta(hours=1)
        case Step.DAY:
            return moment + timedelta(days=1)
        case Step.WEEK:
            return moment + timedelta(days=7)
        case Step.MONTH:
            return (moment + timedelta(days=32)).replace(day=1)


def over_time(
    connection: Connection,
    since: float,
    until: float,
    now: float,
    *,
    step: Step,
    by: By,
    scope: answers.Scope = answers.EVERYTHING,
) -> Json:
    """As `answers.usage_between`, each item with the times of its step."""
    until = min(until, now)
    bounds = edges(since, until, step) if since < until else []
    found = usage_by_step(connection, bounds, by=by, now=now, namespace=scope.namespace) if bounds else []
    return {
        "freshness": answers.freshness(connection, now),
        "from": answers.timestamp(since),
        "to": answers.timestamp(until),
        "step": step.value,
        "items": [
            {
                "from": answers.timestamp(bounds[each.step]),
                "to": answers.timestamp(bounds[each.step + 1]),
                **answers.held(each.total, by),
            }
            for each in found
        ],
    }


def steps(answer: Json) -> list[tuple[str, str]]:
    """The times of every step of `over_time`, those without any use too."""
    since, until = (datetime.fromisoformat(answer[name]).timestamp() for name in ("from", "to"))
    bounds = edges(since, until, Step(answer["step"])) if since < until else []
    return [(answers.timestamp(start), answers.timestamp(end)) for start, end in pairwise(bounds)]


def summed(items: Iterable[Json], by: By) -> list[Json]:
    """By team over all steps, with its flavors: the largest first."""
    name = answers.TEAM[by]
    found: dict[str, Json] = {}
    for each in items:
        row = found.setdefault(each[name], {"team": each[name], "hours": 0.0, "flavors": {}})
        row["hours"] += each["hours"]
        row["flavors"][each["flavor"]] = row["flavors"].get(each["flavor"], 0.0) + each["hours"]
    return sorted(found.values(), key=lambda row: (-row["hours"], row["team"]))


def as_csv(answer: Json) -> str:
    """One line for each item; what is not said of every item is said of all."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    writer.writerows(_lines(answer))
    return text.getvalue()


def _lines(answer: Json) -> Iterable[list[Any]]:
    for each in answer["items"]:
        team = each["clusterQueue"] if "clusterQueue" in each else each["namespace"]
        yield [
            each.get("from", answer["from"]),
            each.get("to", answer["to"]),
            _plain(team),
            _plain(each["flavor"]),
            _plain(each["resource"]),
            f"{each['hours']:f}",
            each["workloads"],
        ]


def _plain(name: str) -> str:
    """Spreadsheets run what looks like a formula, wherever it comes from."""
    return f"'{name}" if name[:1] in {"=", "+", "-", "@", "\t", "\r"} else name
