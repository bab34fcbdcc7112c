"""Decisions a second of the core alone: one process, simulated time, no API server.

A decision is a workload that starts or has to go; what only waits is not counted, and the time is all that the core
takes, events included. The replay decides after each single event, which is its most expensive way to be used.
Run as `python -m benchmarks.core` (`--profile` shows where the time goes).
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import report, scenarios
from benchmarks.scenarios import Scenario
from queues.core.model import Uid
from queues.core.policy import FairSharing, Policy
from queues.core.state import State
from queues.simulator.replay import Arrival, Turn, replay

#: The queues of `large` with fewer cohorts: what each queue gets is the same at every size.
AT_1000 = replace(scenarios.LARGE, name="1000 queues")
AT_30 = replace(scenarios.LARGE, name="30 queues", cohorts=5, queues=6)
#: Few large cohorts cost more than many small ones: growth is also shown with cohorts of one size.


@dataclass(frozen=True, slots=True)
class Outcome:
    """`judged`: how often a workload was looked at. `waits`: mean simulated seconds to the (last) start, by size."""

    decisions: int
    judged: int
    seconds: float
    ended: float
    waits: dict[str, float]

    @property
    def rate(self) -> float:
        return self.decisions / self.seconds

    @property
    def looks(self) -> float:
        """For each decision."""
        return self.judged / self.decisions

    @property
    def cost(self) -> float:
        """Microseconds of each decision."""
        return self.seconds / self.decisions * 1e6


def play(
    scenario: Scenario, policy: Policy | None = None, *, depth: int = 1, spread: bool = True, at_once: bool = False
) -> Outcome:
    """`at_once`: everything is there from the start, so that the queues are as long as they can be."""
    state = State()
    for event in scenarios.core_setup(scenario, depth):
        state.apply(event)
    arrivals = scenarios.arrivals(scenario, spread=spread)
    if at_once:
        arrivals = [_at_once(arrival) for arrival in arrivals]
    return _measured(state, arrivals, policy or Policy())


def ideal(scenario: Scenario) -> Outcome:
    """How the scenario's own rules end when deciding and writing take no time."""
    return play(scenario, spread=False)


def _at_once(arrival: Arrival) -> Arrival:
    return Arrival(replace(arrival.workload, created_at=0.0), arrival.run_for)


def _measured(state: State, arrivals: list[Arrival], policy: Policy) -> Outcome:
    created = {a.workload.uid: (a.workload.created_at, a.workload.key.name.partition("-")[0]) for a in arrivals}
    decisions, ended = 0, 0.0
    started_at: dict[Uid, float] = {}
    began = time.process_time()
    for happening in replay(state, arrivals, policy):
        if happening.turn is Turn.FINISHED:
            ended = happening.at
        else:
            decisions += 1
            if happening.turn is Turn.STARTED:
                started_at[happening.uid] = happening.at
    seconds = time.process_time() - began
    if len(started_at) != len(arrivals):
        sys.exit(f"core: {len(arrivals) - len(started_at)} workloads never started")
    sums: dict[str, list[float]] = {}
    for uid, at in started_at.items():
        sums.setdefault(created[uid][1], []).append(at - created[uid][0])
    return Outcome(
        decisions, state.judgements, seconds, ended, {size: sum(waits) / len(waits) for size, waits in sums.items()}
    )


def longer(scenario: Scenario, factor: int) -> Scenario:
    """So many times the workloads of each queue."""
    return replace(scenario, classes=tuple(replace(each, count=each.count * factor) for each in scenario.classes))


def figures(*, quick: bool) -> list[report.Figure]:
    found: list[report.Figure] = []

    def add(name: str, value: float, unit: str, bound: report.Bound | None = None) -> None:
        found.append(report.show(report.Figure(f"core.{name}", value, unit, bound=bound)))

    part = 4 if quick else 1
    fair = Policy(fair_sharing=FairSharing())
    ways = [
        ("preemption", Policy(), True),
        ("no_preemption", Policy(), False),
        ("fair_sharing", fair, True),
        ("fair_sharing_no_preemption", fair, False),
    ]
    for name, policy, preemption in ways:
        few = play(replace(longer(AT_30, 1 if quick else 8), preemption=preemption), policy)
        many = play(replace(AT_1000.part(part), preemption=preemption), policy)
        add(f"{name}.30_queues", few.rate, "decisions/s")
        add(f"{name}.1000_queues", many.rate, "decisions/s", report.Bound(at_least=10_000))
        add(f"{name}.looks_at_1000_queues", many.looks, "judgements/decision")
        add(f"{name}.cost_1000_to_30", many.cost / few.cost, "x", report.Bound(at_most=1.5))
    _growth(add, part)
    return found


def _growth(add: Any, part: int) -> None:
    """Cost of a decision when one thing grows tenfold and nothing else does."""
    base = play(AT_30)
    add("cost.30_queues", base.cost, "us/decision")
    cohorts = play(replace(AT_30.part(part), cohorts=50))
    add("growth.cohorts_x10", cohorts.cost / base.cost, "x")
    wide = play(replace(AT_30.part(part), queues=60))
    add("growth.queues_of_a_cohort_x10", wide.cost / base.cost, "x")
    short, long = play(AT_30, at_once=True), play(longer(AT_30, 10), at_once=True)
    add("growth.pending_x10", long.cost / short.cost, "x")
    shallow, deep = play(AT_30, depth=1), play(AT_30, depth=10)
    add("growth.tree_depth_x10", deep.cost / shallow.cost, "x")


def profile(scenario: Scenario) -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    play(scenario)
    profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--quick", action="store_true", help="a quarter of the work")
    parser.add_argument("--profile", choices=["30", "1000", "topology"], help="cProfile of one replay instead")
    args = parser.parse_args()
    if args.profile:
        profile({"30": AT_30, "1000": AT_1000, "topology": scenarios.TAS.part(10)}[args.profile])
        return
    report.finish("core", figures(quick=args.quick))


if __name__ == "__main__":
    main()
