"""Where the marks of bars, strips and charts go: numbers in percent of the width, for SVG that the pages write.

Each works from an answer alone, and what it draws is said in words beside it. Nothing here chooses a colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from queues.inspection.words import seconds_of

Json = Mapping[str, Any]

#: How many teams a chart tells apart; the rest is drawn as one.
SERIES = 8
#: A label that begins further right would leave the chart.
LAST_LABEL = 93.0
TICKS = (0.1, 0.2, 0.25, 0.5, 1, 2, 2.5, 5)


def bar(quota: Json) -> dict[str, float]:
    """Widths in hundredths of the whole bar: held within nominal, borrowed, and where nominal ends."""
    nominal, reserved = quota["nominal"], quota["reserved"]
    whole = max(nominal, reserved, 1)
    return {
        "own": round(100 * min(reserved, nominal) / whole, 2),
        "borrowed": round(100 * max(reserved - nominal, 0) / whole, 2),
        "nominal": round(100 * nominal / whole, 2),
    }


@dataclass(frozen=True, slots=True)
class Part:
    """`x` and `width` in percent."""

    name: str
    x: float
    width: float
    count: float


def parts(counted: Iterable[tuple[str, float]]) -> list[Part]:
    """Side by side, over the whole width."""
    items = [(name, count) for name, count in counted if count > 0]
    whole = sum(count for _, count in items)
    found, x = [], 0.0
    for name, count in items:
        width = 100 * count / whole
        found.append(Part(name, round(x, 3), round(width, 3), count))
        x += width
    return found


#: What a workload does after each kind of event; the others change nothing.
PHASES = {
    "created": "waits",
    "reserved": "reserved",
    "admitted": "runs",
    "preempted": "ends",
    "evicted": "ends",
    "deactivated": "ends",
    "released": "waits",
    "requeued": "waits",
    "finished": "",
    "removed": "",
}


def life(timeline: Sequence[Json], now: float) -> list[Part]:
    """The phases of a workload's life, as long as they lasted; `count` is seconds."""
    turns: list[tuple[float, str]] = []
    for event in timeline:
        phase = PHASES.get(event["kind"])
        if phase is not None and (not turns or turns[-1][1] != phase):
            turns.append((seconds_of(event["at"]), phase))
    if not turns:
        return []
    if turns[-1][1]:
        turns.append((max(now, turns[-1][0]), ""))
    found: list[tuple[str, float]] = []
    for (start, phase), (end, _) in pairwise(turns):
        if phase:
            found.append((phase, max(0.0, end - start)))
    return parts(found)


# ------------------------------------------------------------------ use over time


@dataclass(frozen=True, slots=True)
class Column:
    """One step of time: its bars from the bottom up, in hundredths of the height."""

    start: str
    end: str
    x: float
    width: float
    total: float
    bars: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """`teams` with their totals, the largest first; bars name them by number, `SERIES` for all the rest.

    `lines` are values with their height for the scale, `labels` every so many columns.
    """

    teams: tuple[tuple[str, float], ...] = ()
    columns: tuple[Column, ...] = ()
    lines: tuple[tuple[float, float], ...] = ()
    labels: tuple[Column, ...] = field(default=())


def chart(steps: Sequence[tuple[str, str]], items: Iterable[Json], team: str) -> Chart:
    """Stacked columns for each step of the items' hours by `team`."""
    totals: dict[str, float] = {}
    held: dict[tuple[str, str], float] = {}
    for item in items:
        totals[item[team]] = totals.get(item[team], 0.0) + item["hours"]
        key = (item["from"], item[team])
        held[key] = held.get(key, 0.0) + item["hours"]
    ranked = sorted(totals, key=lambda name: (-totals[name], name))
    highest = max((sum(held.get((start, name), 0.0) for name in ranked) for start, _ in steps), default=0.0)
    tick = _tick(highest)
    top = tick * max(1, -(-highest // tick)) if tick else 1.0
    width = 100 / max(1, len(steps))
    columns = []
    for number, (start, end) in enumerate(steps):
        bars, base = [], 0.0
        by_series: dict[int, float] = {}
        for rank, name in enumerate(ranked):
            series = min(rank, SERIES)
            by_series[series] = by_series.get(series, 0.0) + held.get((start, name), 0.0)
        for series, value in by_series.items():
            if value > 0:
                height = 100 * value / top
                bars.append((series, round(100 - base - height, 3), round(height, 3)))
                base += height
        total = sum(by_series.values())
        columns.append(
            Column(start, end, round(number * width + width * 0.1, 3), round(width * 0.8, 3), total, tuple(bars))
        )
    every = max(1, -(-len(columns) // 7))
    lines = tuple((value, round(100 - 100 * value / top, 3)) for value in _multiples(tick, top))
    labels = tuple(column for column in columns[::every] if column.x < LAST_LABEL)
    return Chart(tuple((name, totals[name]) for name in ranked), tuple(columns), lines, labels)


def _tick(highest: float) -> float:
    """A round number of which two to five reach the top."""
    if highest <= 0:
        return 0.0
    power = 10.0 ** (len(str(int(highest))) - 1 if highest >= 1 else -2)
    return next((power * step for step in TICKS if highest / (power * step) <= 5), power * 10)


def _multiples(tick: float, top: float) -> list[float]:
    return [tick * number for number in range(round(top / tick) + 1)] if tick else [0.0]


# ------------------------------------------------------------------ hosts


def pips(node: Json, *, most: int = 16) -> list[bool]:
    """One for each device of a host, held ones first; none where there are too many to draw."""
    return [number < node["used"] for number in range(node["capacity"])] if 0 < node["capacity"] <= most else []


def short_names(names: Sequence[str]) -> dict[str, str]:
    """Without what all of them begin with, up to the last sign between words."""
    if len(names) < 2:
        return {name: name for name in names}
    first, last = min(names), max(names)
    shared = 0
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    while shared and first[shared - 1].isalnum():
        shared -= 1
    return {name: name[shared:] or name for name in names}
