"""How much is looked at for each decision: counted, so that it does not depend on the machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks import core, scenarios
from queues.core.policy import FairSharing, Policy


@pytest.mark.parametrize(
    ("preemption", "most"),
    [pytest.param(True, 1.6, id="with preemption"), pytest.param(False, 1.3, id="without")],
)
def test_judgements_for_each_decision(preemption: bool, most: float) -> None:
    """In a tenth of the peer's baseline. Each event is decided on its own, which is the most expensive way."""
    outcome = core.play(replace(scenarios.BASELINE.part(10), preemption=preemption))
    assert outcome.looks <= most


@pytest.mark.parametrize("policy", [Policy(), Policy(fair_sharing=FairSharing())], ids=["classical", "fair"])
def test_judgements_in_a_crowded_cohort(policy: Policy) -> None:
    """Of fifty queues that want the same, one is judged for what one can have."""
    crowded = replace(scenarios.LARGE.part(2), cohorts=1, queues=50, preemption=False)
    outcome = core.play(crowded, policy)
    assert outcome.looks <= 1.5


def test_judgements_in_a_crowded_cohort_where_those_who_borrow_most_are_evicted() -> None:
    """Whoever could evict nobody is not judged, though something is given back all the time."""
    crowded = replace(scenarios.LARGE, cohorts=1, queues=50)
    outcome = core.play(crowded, Policy(fair_sharing=FairSharing()))
    assert outcome.looks <= 3
