"""Replay: the core in simulated time on an hour of a real trace."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import queues.simulator.__main__ as command
from queues.core.events import WorkloadChanged
from queues.core.plan import Admit
from queues.core.policy import Policy
from queues.simulator.replay import Happening, Turn, replay, what_if
from tests.compiled import needs_interpreted_core

TRACE = Path(__file__).parents[3] / "examples" / "philly-hour" / "gangs.csv"
COHORTS = [("research", {"e13805": 32, "6c71a0": 24, "6214e9": 8}), ("platform", {"11cb48": 8, "103959": 8})]


def happenings() -> list[Happening]:
    return list(replay(command.cluster(COHORTS), command.arrivals(TRACE), Policy()))


def test_every_gang_of_the_hour_starts_and_finishes() -> None:
    arrivals = command.arrivals(TRACE)
    finished = {h.uid for h in happenings() if h.turn is Turn.FINISHED}
    assert finished == {a.workload.uid for a in arrivals}


def test_no_cohort_ever_runs_more_than_it_has() -> None:
    gangs = {a.workload.uid: a.workload for a in command.arrivals(TRACE)}
    cohort_of = {queue: cohort for cohort, queues in COHORTS for queue in queues}
    used: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for happening in happenings():
        workload = gangs[happening.uid]
        gpus = workload.pod_sets[0].count * workload.pod_sets[0].requests[command.GPU]
        cohort = cohort_of[workload.queue.name]
        used[cohort] += gpus if happening.turn is Turn.STARTED else -gpus
        most[cohort] = max(most[cohort], used[cohort])
    assert most["research"] <= 64
    assert most["platform"] <= 16
    assert most["research"] > 32, "somebody has to borrow, or the hour is not busy"
    assert used == dict.fromkeys(used, 0)


def test_the_same_arrivals_give_the_same_history() -> None:
    assert happenings() == happenings()


@needs_interpreted_core
def test_what_if_answers_without_touching_the_state() -> None:
    state, first = command.cluster(COHORTS), command.arrivals(TRACE)[0].workload
    plan = what_if(state, 0.0, Policy(), [WorkloadChanged(first)])
    assert [type(d) for d in plan] == [Admit]
    assert state.reason(first.uid) is None
    assert first.uid not in state.workloads
