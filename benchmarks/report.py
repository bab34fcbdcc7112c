"""Figures: one line for each on standard output, and all of them in a JSON file.

A line is `name value unit ratio-to-peer`, with the bound and whether it was kept behind it. Nothing here measures or
leaves out anything: a bound that was missed is shown like one that was kept.
"""

from __future__ import annotations

import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.compiled import IS_COMPILED

RESULTS = Path("build") / "benchmarks"
CORE = "compiled" if IS_COMPILED else "interpreted"


@dataclass(frozen=True, slots=True)
class Bound:
    """Of the ratio to the peer, or of the value itself where there is no peer."""

    at_most: float | None = None
    at_least: float | None = None
    of_value: bool = False

    def holds(self, value: float) -> bool:
        return (self.at_most is None or value <= self.at_most) and (self.at_least is None or value >= self.at_least)

    def __str__(self) -> str:
        parts = [f"<= {self.at_most:g}"] if self.at_most is not None else []
        return " ".join([*parts, *([f">= {self.at_least:g}"] if self.at_least is not None else [])])


@dataclass(frozen=True, slots=True)
class Figure:
    """`ratio` is Muster's value over the peer's in the same run; None where there is no peer to compare with."""

    name: str
    value: float
    unit: str
    ratio: float | None = None
    bound: Bound | None = None

    @property
    def is_kept(self) -> bool | None:
        """Whether it is within its bound; None without one, or without the peer that it is a ratio to."""
        if self.bound is None:
            return None
        if self.ratio is not None and not self.bound.of_value:
            return self.bound.holds(self.ratio)
        return self.bound.holds(self.value)

    def line(self) -> str:
        ratio = "-" if self.ratio is None else f"{self.ratio:.3f}"
        kept = self.is_kept
        verdict = "" if kept is None else f"  # {self.bound}: {'kept' if kept else 'MISSED'}"
        return f"{self.name} {self.value:.6g} {self.unit} {ratio}{verdict}"


def show(figure: Figure) -> Figure:
    print(figure.line(), flush=True)
    return figure


def compared(
    name: str, muster: float | None, peer: float | None, unit: str, bound: Bound | None = None
) -> list[Figure]:
    """One figure of both sides: Muster's with its ratio, and the peer's."""
    found = []
    if muster is not None:
        ratio = muster / peer if peer else None
        needs_peer = bound is not None and not bound.of_value and ratio is None
        found.append(Figure(f"{name}.muster", muster, unit, ratio, None if needs_peer else bound))
    if peer is not None:
        found.append(Figure(f"{name}.peer", peer, unit))
    return [show(each) for each in found]


def quantile(found: list[float], share: float) -> float:
    """The value that this share of them does not exceed; 1 is the largest."""
    ordered = sorted(found)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def machine() -> dict[str, Any]:
    """What the figures depend on; the load says whether anybody else was at work."""
    return {
        "cpus": os.cpu_count(),
        "load": os.getloadavg(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "core": CORE,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def finish(name: str, figures: list[Figure], **more: Any) -> Path:
    """Write the JSON file. Raises SystemExit with status 1 when a bound was missed."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    rows = [{**asdict(each), "kept": each.is_kept} for each in figures]
    path.write_text(json.dumps({"machine": machine(), "figures": rows, **more}, indent=1))
    missed = [each.name for each in figures if each.is_kept is False]
    print(f"# core {CORE}; written to {path}" + (f"; missed: {', '.join(missed)}" if missed else ""), flush=True)
    if missed:
        raise SystemExit(1)
    return path
