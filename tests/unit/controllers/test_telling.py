"""The log line of each decision: which, at what level, and with what cause."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from admission.api import names
from queues.core.reasons import Code, Reason
from tests.unit.controllers.builders import NAMESPACE, WorkloadBuilder, workload
from tests.unit.controllers.test_metrics import World

ADMITTED = workload().admitted(at=-60)


@dataclass(frozen=True)
class Case:
    id: str
    life: tuple[WorkloadBuilder, ...]
    want: list[tuple[str, str]]


CASES = [
    Case("an admission is one line", (workload(), ADMITTED), [("admitted", "INFO")]),
    Case(
        "a reservation that waits for checks is told, and the admission after it",
        (workload(), workload().check("c", "Ready").reserved(at=-70), ADMITTED),
        [("reserved", "INFO"), ("admitted", "INFO")],
    ),
    Case(
        "an eviction is told when it is decided, not again when its quota is back",
        (ADMITTED, ADMITTED.evicted("PodsReadyTimeout", at=-30), workload().evicted("PodsReadyTimeout", at=-30)),
        [("evicted", "INFO")],
    ),
    Case("a preemption", (ADMITTED, ADMITTED.evicted("Preempted", at=-30)), [("preempted", "INFO")]),
    Case("the end", (ADMITTED, ADMITTED.cond(names.FINISHED, reason="Succeeded")), [("finished", "INFO")]),
]


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.getMessage(), record.levelname) for record in caplog.records if record.name.endswith("telling")]


def line(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    (record,) = [record for record in caplog.records if record.name.endswith("telling") and record.levelname == "INFO"]
    return record.__dict__


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_one_line_a_decision(case: Case, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    World().see(*case.life)
    assert told(caplog) == case.want


def test_an_admission_says_where_with_what_and_after_how_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    World().see(workload(), ADMITTED)
    said = line(caplog)
    assert said["workload"] == f"{NAMESPACE}/w"
    assert (said["clusterQueue"], said["localQueue"]) == ("cq", "lq")
    assert said["flavors"] == {"cpu": "default"}
    assert said["waited"] == 40
    assert "by" not in said


def test_an_eviction_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    World().see(ADMITTED, ADMITTED.evicted("PodsReadyTimeout", at=-30))
    assert line(caplog)["reason"] == "PodsReadyTimeout"


def test_a_hold_is_told_when_its_reason_is_another_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    world.see(workload())
    obj = world.cluster.tables.workloads.get(NAMESPACE, "w")
    assert obj is not None
    caplog.clear()
    for code, words in (
        (Code.WAITING_FOR_QUOTA, "3 more needed"),
        (Code.WAITING_FOR_QUOTA, "2 more needed"),
        (Code.TOPOLOGY_PLACEMENT_FAILED, "no rack has 4 free"),
    ):
        world.reporting.held(obj, Reason(code, words, remedy="wait"), 0.0)
    assert told(caplog) == [("held", "INFO"), ("held", "DEBUG"), ("held", "INFO")]
    last = caplog.records[-1].__dict__
    assert (last["reason"], last["cause"]) == ("TopologyPlacementFailed", "no rack has 4 free")
    assert last["remedy"] == "wait"


def test_what_was_before_the_start_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    world = World()
    world.reporting._tells = False
    world.see(ADMITTED)
    assert told(caplog) == []
