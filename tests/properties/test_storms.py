"""Two hundred thousand steps in every run of the tests, five million in a soak, without a broken promise.

`MUSTER_STORM_STEPS` sets another number of steps, `MUSTER_STORM_SEED` where the seeds of a soak begin.
"""

from __future__ import annotations

import os
import time

import pytest

from queues.core import cycle, nomination
from queues.core.policy import FairSharing, FairStrategy, Policy
from tests.compiled import needs_interpreted_core
from tests.properties.storms import FLAVORS, Climate, Storm

IS_SOAK = os.environ.get("MUSTER_PROPERTIES") == "soak"
STEPS = int(os.environ.get("MUSTER_STORM_STEPS", "5000000" if IS_SOAK else "200000"))
#: The same in every run of the tests, new ones in a soak.
SEED = int(os.environ.get("MUSTER_STORM_SEED", str(int(time.time())) if IS_SOAK else "1"))
STEPS_OF_A_STORM = 1000
#: One of so many storms is played again.
REPLAYED = 10

DEEP = ("root", "left", "right", "deep")
FAIR = Policy(fair_sharing=FairSharing((FairStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,)))
CLIMATES = {
    "flat, no preemption": Climate(preempts=False),
    "flat": Climate(),
    "flat, limits, two flavors": Climate(limits=True, flavors=FLAVORS),
    "deep": Climate(cohorts=DEEP),
    "deep, limits, StrictFIFO": Climate(cohorts=DEEP, limits=True, strict=True),
    "fair, flat": Climate(FAIR),
    "fair, deep, limits": Climate(FAIR, cohorts=DEEP, limits=True),
    "fair, no preemption": Climate(FAIR, preempts=False, limits=True),
}
STORMS = -(-STEPS // (STEPS_OF_A_STORM * len(CLIMATES)))


@pytest.mark.parametrize("climate", CLIMATES.values(), ids=CLIMATES.keys())
def test_promises_hold_in_long_histories(climate):
    steps = 0
    for number in range(STORMS):
        storm = Storm(SEED + number, climate)
        try:
            for _ in range(STEPS_OF_A_STORM):
                storm.step()
            if number % REPLAYED == 0:
                storm.check_replay()
        except BaseException as broken:
            broken.add_note(f"seed {SEED + number}, step {storm.steps}")
            raise
        steps += storm.steps
    assert steps * len(CLIMATES) >= STEPS


@pytest.mark.parametrize(
    ("climate", "seed"),
    [
        pytest.param("deep, limits, StrictFIFO", 1796092682, id="a head that keeps quota in a tree that was changed"),
        pytest.param("deep, limits, StrictFIFO", 900012, id="a head that would wait no more if it was judged"),
        pytest.param("deep, limits, StrictFIFO", 900096, id="and one that would have to borrow from further up"),
        pytest.param("fair, flat", 1796092744, id="hope given up for other victims"),
        pytest.param("flat, limits, two flavors", 1796092843, id="and in another flavor"),
        pytest.param("flat, limits, two flavors", 2000057, id="for the second time"),
        pytest.param("fair, deep, limits", 1796093184, id="and in a deep tree"),
        pytest.param("flat, limits, two flavors", 1796106728, id="behind one that stands on another shelf"),
        pytest.param("deep, limits, StrictFIFO", 1796127135, id="a head whose victims go so that it need not borrow"),
        pytest.param("deep, limits, StrictFIFO", 1796129733, id="one that waits for less use while a head keeps some"),
    ],
)
def test_storms_that_broke_a_promise_once(climate, seed):
    storm = Storm(seed, CLIMATES[climate])
    for _ in range(STEPS_OF_A_STORM):
        storm.step()
    storm.check_replay()


@needs_interpreted_core
def test_rounds_that_decide_nothing_come_to_an_end(monkeypatch):
    """Where a rule goes in circles, the workload that does is named, and can be kept out."""
    monkeypatch.setattr(nomination, "_borrows_ahead", lambda *_: False)
    monkeypatch.setattr(cycle._Cycle, "_is_changed", lambda *_: True)
    monkeypatch.setattr(cycle, "_FRUITLESS", 20)
    storm = Storm(1796127135, CLIMATES["deep, limits, StrictFIFO"])
    for _ in range(177):
        storm.step()
    with pytest.raises(cycle.Misjudged):
        storm.step()
