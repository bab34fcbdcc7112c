"""Replays arrivals through the core in simulated time, and asks it what would happen if.

The state, `decide` and the policy are those of production; only the clock and the ends of the work are played. It never
touches the state that it is given by `what_if`, and reads no clock of its own.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, assert_never

from queues.core.cycle import decide
from queues.core.events import Event, WorkloadChanged, WorkloadGone
from queues.core.model import Timestamp, Uid, Workload
from queues.core.plan import Admit, Evict, GiveUp, Hold, Place, Plan
from queues.core.policy import Policy
from queues.core.state import State

Seconds = float


@dataclass(frozen=True, slots=True)
class Arrival:
    """A workload that arrives at `workload.created_at` and, once it is admitted, runs for that long."""

    workload: Workload
    run_for: Seconds


class Turn(Enum):
    """What became of a workload."""

    STARTED = "started"
    PREEMPTED = "preempted"
    FINISHED = "finished"


class Happening(NamedTuple):
    at: Timestamp
    uid: Uid
    turn: Turn


def replay(state: State, arrivals: Iterable[Arrival], policy: Policy) -> Iterator[Happening]:
    """Everything that happens, in order of time; ends when nothing more can start or end.

    A preempted workload gives its quota back at once, loses what it has done, and waits again at its old place.
    Cost: one decision for each moment at which something arrives or ends.
    """
    known = {a.workload.uid: a for a in arrivals}
    agenda = [(a.workload.created_at, 0, a.workload.uid) for a in known.values()]
    heapq.heapify(agenda)
    run = dict.fromkeys(known, 0)  # counts the starts, so that the end of an interrupted run is told apart
    running: set[Uid] = set()
    while agenda:
        now = agenda[0][0]
        while agenda and agenda[0][0] == now:
            _, started, uid = heapq.heappop(agenda)
            if started == 0:
                state.apply(WorkloadChanged(known[uid].workload))
            elif started == run[uid] and uid in running:
                running.discard(uid)
                state.apply(WorkloadGone(uid))
                yield Happening(now, uid, Turn.FINISHED)
        goes_on = True
        while goes_on:
            goes_on = False
            for decision in decide(state, now, policy):
                goes_on = goes_on or not isinstance(decision, Hold)
                match decision:
                    case Admit(uid, admission):
                        run[uid] += 1
                        running.add(uid)
                        held = admission if admission.admitted else replace(admission, admitted=True)
                        state.apply(WorkloadChanged(replace(known[uid].workload, admission=held)))
                        heapq.heappush(agenda, (now + known[uid].run_for, run[uid], uid))
                        yield Happening(now, uid, Turn.STARTED)
                    case Evict(uid) | GiveUp(uid):
                        running.discard(uid)
                        state.apply(WorkloadChanged(known[uid].workload))
                        yield Happening(now, uid, Turn.PREEMPTED)
                    case Place(uid, admission):
                        state.apply(WorkloadChanged(replace(known[uid].workload, admission=admission)))
                    case Hold():
                        pass
                    case _:
                        assert_never(decision)


def what_if(state: State, now: Timestamp, policy: Policy, events: Iterable[Event]) -> Plan:
    """What would be decided after these events. The given state stays as it is; cost: a copy of it.

    TypeError where the core is compiled: its objects cannot be copied.
    """
    imagined = copy.deepcopy(state)
    for event in events:
        imagined.apply(event)
    return decide(imagined, now, policy)
