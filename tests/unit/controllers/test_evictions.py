"""Evictions are counted by reason and cause, and those who failed together do not come back together."""

from __future__ import annotations

import pytest

from admission.api import kueue, names
from admission.controllers import pods_ready
from admission.controllers.lifecycle import reconcile
from admission.controllers.rules import Facts
from admission.jobs.effects import Patch
from admission.settings import WaitForPodsReady
from admission.settings.configuration import RequeuingStrategy
from tests.unit.controllers.builders import (
    NOW,
    WAITING,
    WorkloadBuilder,
    applied,
    facts,
    workload,
)


@pytest.mark.parametrize(
    ("wl", "settings", "want"),
    [
        pytest.param(
            workload().admitted().spec(active=False).cond(names.DEACTIVATION_TARGET, reason="AdmissionCheck"),
            facts(),
            ("Deactivated", "AdmissionCheck", 1),
            id="a deactivation by the system",
        ),
        pytest.param(
            workload().admitted().spec(active=False), facts(), ("Deactivated", "", 1), id="a deactivation by a person"
        ),
        pytest.param(
            workload().admitted(at=-61),
            facts(waiting=WAITING),
            ("PodsReadyTimeout", "WaitForStart", 1),
            id="pods that never got ready",
        ),
        pytest.param(
            workload()
            .admitted(at=-900)
            .cond(names.PODS_READY, "False", "WaitForRecovery", at=-31)
            .status(
                scheduling_stats=kueue.SchedulingStats(
                    evictions=(kueue.SchedulingStatsEviction("PodsReadyTimeout", "WaitForRecovery", 2),)
                )
            ),
            facts(waiting=WAITING),
            ("PodsReadyTimeout", "WaitForRecovery", 3),
            id="pods that were lost, for the third time",
        ),
    ],
)
def test_evictions_are_counted_by_reason_and_cause(
    wl: WorkloadBuilder, settings: Facts, want: tuple[str, str, int]
) -> None:
    (patch,) = [effect for effect in reconcile(wl.obj, settings, NOW).effects if isinstance(effect, Patch)]
    stats = applied(wl.obj, patch).status.scheduling_stats
    assert stats is not None
    assert [(each.reason, each.underlying_cause, each.count) for each in stats.evictions] == [want]


def test_back_offs_of_workloads_that_failed_together_are_a_trace_apart() -> None:
    """At most one part in ten thousand, and the same each time that it is asked."""
    waiting = WaitForPodsReady(
        requeuing_strategy=RequeuingStrategy(backoff_base_seconds=1000, backoff_max_seconds=9000)
    )
    times = {uid: pods_ready.back_off(waiting, 2, uid) for uid in ("a", "b", "c")}
    assert len(set(times.values())) == 3
    assert all(2000 <= seconds <= 2000.2 for seconds in times.values())
    assert times == {uid: pods_ready.back_off(waiting, 2, uid) for uid in times}
    assert pods_ready.back_off(waiting, 99, "a") <= 9000.9
