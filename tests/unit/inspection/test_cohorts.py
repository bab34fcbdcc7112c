"""The tree of cohorts: totals from below, queues without a cohort, and parents in a circle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import Connection

from queues.inspection.cohorts import tree
from queues.inspection.quantities import by_resource, idle_to_lend
from queues.journal.database import open_database
from queues.journal.entries import CohortRow, Entry, QuotaRow
from tests.unit.inspection.conftest import NOW, Client
from tests.unit.journal.databases import Databases
from tests.unit.journal.rows import GPU, queue, workload
from tests.unit.journal.test_read import remember


def quota(nominal: int, reserved: int, lending: int | None = None) -> QuotaRow:
    return QuotaRow("h100", GPU, nominal, None, lending, reserved, reserved, max(0, reserved - nominal))


@pytest.fixture
def connection(databases: Databases, template: str, entries: tuple[Entry, ...]) -> Iterator[Connection]:
    url = databases.emptied(databases.copy(template))
    remember(url, *entries)
    engine = open_database(url)
    with engine.connect() as opened:
        yield opened
    engine.dispose()


def told(*entries: Entry) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("entries", [entries], ids=["told"])


def shape(cohort: dict[str, Any]) -> Any:
    return cohort["name"], [shape(each) for each in cohort["cohorts"]], [each["name"] for each in cohort["queues"]]


@told(
    CohortRow("company", "", (QuotaRow("h100", GPU, 10),)),
    CohortRow("research", "company"),
    queue("a", cohort="research", quotas=(quota(16, 24),)),
    queue("b", cohort="research", quotas=(quota(16, 4, lending=8),)),
    queue("c", cohort="only-named", quotas=(quota(8, 0),)),
    queue("alone", cohort="", quotas=()),
    workload("w1", cluster_queue="a", code="WaitingForQuota", queued_at=NOW - 60),
    workload("w2", cluster_queue="b", code="WaitingForQuota", queued_at=NOW - 90),
)
def test_totals_from_below(connection: Connection) -> None:
    answer = tree(connection, NOW)
    company, only_named = answer["items"]
    assert shape(company) == ("company", [("research", [], ["a", "b"])], [])
    assert shape(only_named) == ("only-named", [], ["c"])
    assert [each["name"] for each in answer["queues"]] == ["alone"]
    assert company["quotas"] == [
        {"flavor": "h100", "resource": GPU, "unit": "one", "nominal": 42, "reserved": 28, "admitted": 28, "borrowed": 8,
         "idle": 14},
    ]  # fmt: skip
    assert (company["ownQuotas"][0]["nominal"], company["pendingByReason"]) == (10, {"WaitingForQuota": 2})
    assert (company["counts"]["pending"], company["longestWaitSeconds"]) == (2, 90)


@told(
    CohortRow("a", "b"),
    CohortRow("b", "c"),
    CohortRow("c", "a"),
    CohortRow("d", "a"),
    CohortRow("self", "self"),
    CohortRow("child", "named-by-child"),
    queue("q", cohort="d"),
)
def test_parents_in_a_circle_are_shown_once(connection: Connection) -> None:
    items = tree(connection, NOW)["items"]
    assert [shape(item) for item in items] == [
        ("a", [], []), ("b", [], []), ("c", [], []), ("d", [], ["q"]), ("named-by-child", [("child", [], [])], []),
        ("self", [], []),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param(quota(16, 4), 12, id="all that is not held"),
        pytest.param(quota(16, 24), 0, id="nothing of what is more than held"),
        pytest.param(quota(16, 4, lending=8), 8, id="a part is kept back even while idle"),
        pytest.param(quota(16, 12, lending=8), 4, id="what is held comes out of the part that is kept back"),
        pytest.param(quota(16, 0, lending=0), 0, id="nothing is lent"),
    ],
)
def test_what_is_idle_and_may_be_lent(given: QuotaRow, want: int) -> None:
    assert idle_to_lend(given) == want


def test_resources_over_flavors_with_devices_first() -> None:
    rows = [{"resource": name, "nominal": nominal, "reserved": 1, "admitted": 1, "borrowed": 0}
            for name, nominal in (("cpu", 9000), ("b.com/gpu", 4), ("a.com/gpu", 8), ("b.com/gpu", 8))]  # fmt: skip
    assert [(total["resource"], total["nominal"]) for total in by_resource(rows)] == [
        ("b.com/gpu", 12), ("a.com/gpu", 8), ("cpu", 9000),
    ]  # fmt: skip


def test_who_may_ask(client: Client) -> None:
    assert client("viewer").get("/api/v1/cohorts").get_json()["items"][0]["name"] == "research"
    assert client("team").get("/api/v1/cohorts").status_code == 403
