"""Use over time: steps of the calendar, what each holds, and the table of it."""

from __future__ import annotations

import csv
from datetime import datetime

import pytest

from queues.inspection.consumption import Step, as_csv, edges, fitting_step, summed
from queues.inspection.parameters import ParameterError
from queues.journal.usage import MOST_STEPS, By
from tests.unit.inspection.conftest import Client
from tests.unit.journal.rows import GPU

HOUR = 3600.0


def at(text: str) -> float:
    return datetime.fromisoformat(f"{text}+00:00").timestamp()


@pytest.mark.parametrize(
    ("since", "until", "step", "want"),
    [
        ("2026-01-01T10:30", "2026-01-01T12:10", Step.HOUR, ["2026-01-01T11:00", "2026-01-01T12:00"]),
        ("2026-01-01T10:30", "2026-01-01T10:40", Step.DAY, []),
        ("2026-01-01T00:00", "2026-01-03T00:00", Step.DAY, ["2026-01-02T00:00"]),
        ("2026-01-01T00:00", "2026-01-13T00:00", Step.WEEK, ["2026-01-05T00:00", "2026-01-12T00:00"]),
        ("2026-01-31T00:00", "2026-04-01T00:00", Step.MONTH, ["2026-02-01T00:00", "2026-03-01T00:00"]),
    ],
)
def test_steps_begin_where_those_of_the_calendar_do(since: str, until: str, step: Step, want: list[str]) -> None:
    assert edges(at(since), at(until), step) == [at(since), *map(at, want), at(until)]


def test_too_many_steps_are_refused_by_name() -> None:
    assert len(edges(0, MOST_STEPS * HOUR, Step.HOUR)) == MOST_STEPS + 1
    with pytest.raises(ParameterError, match="step"):
        edges(0, (MOST_STEPS + 1) * HOUR, Step.HOUR)


@pytest.mark.parametrize(("days", "want"), [(1, Step.HOUR), (30, Step.DAY), (200, Step.WEEK), (800, Step.MONTH)])
def test_a_readable_number_of_steps(days: float, want: Step) -> None:
    assert fitting_step(0, days * 86_400) is want


def test_a_table_of_it(client: Client) -> None:
    hours = "from=1970-01-12T10:00:00Z&to=1970-01-12T13:00:00Z"
    answer = client("viewer").get(f"/api/v1/usage.csv?{hours}&step=hour&by=namespace")
    assert answer.content_type == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="usage-1970-01-12-to-1970-01-12.csv"'
    rows = list(csv.DictReader(answer.text.splitlines()))
    assert rows[0].keys() == {"from", "to", "team", "flavor", "resource", "hours", "workloads"}
    assert {row["to"] for row in rows} == {"1970-01-12T12:00:00Z", "1970-01-12T13:00:00Z"}
    json = client("viewer").get(f"/api/v1/usage?{hours}&step=hour&by=namespace").get_json()
    assert [float(row["hours"]) for row in rows] == [item["hours"] for item in json["items"]]
    whole = client("viewer").get(f"/api/v1/usage?{hours}&by=namespace").get_json()
    assert sum(item["hours"] for item in json["items"]) == pytest.approx(sum(item["hours"] for item in whole["items"]))


def test_a_table_for_a_namespace_has_nothing_of_others(client: Client) -> None:
    answer = client("team").get("/api/v1/usage.csv?namespace=team-a&by=namespace")
    assert {row["team"] for row in csv.DictReader(answer.text.splitlines())} == {"team-a"}
    assert client("team").get("/api/v1/usage.csv?namespace=team-b").status_code == 403


def test_formulas_stay_text() -> None:
    item = {"namespace": "=HYPERLINK()", "flavor": "+1", "resource": GPU, "hours": 1.5, "workloads": 1}
    table = as_csv({"from": "a", "to": "b", "items": [item]})
    assert table.splitlines()[1] == "a,b,'=HYPERLINK(),'+1,nvidia.com/gpu,1.500000,1"


def test_teams_by_what_they_held() -> None:
    items = [
        {"clusterQueue": "a", "flavor": "x", "hours": 1.0}, {"clusterQueue": "b", "flavor": "x", "hours": 5.0},
        {"clusterQueue": "a", "flavor": "y", "hours": 2.0},
    ]  # fmt: skip
    assert summed(items, By.QUEUE) == [
        {"team": "b", "hours": 5.0, "flavors": {"x": 5.0}},
        {"team": "a", "hours": 3.0, "flavors": {"x": 1.0, "y": 2.0}},
    ]  # fmt: skip
