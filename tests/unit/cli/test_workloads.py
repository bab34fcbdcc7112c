"""`muster workloads`, `usage`, `priority` and `hold`: from objects to what is shown, in 80 columns."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from admission.api.decoding import convert
from admission.api.kueue import LocalQueue, Workload
from admission.commands import holding, priority, queues, usage, workloads
from admission.commands.faults import Fault
from admission.commands.output import Form, age
from tests.unit.cli.test_queues import WAITS, cluster_queue, condition, local_queue, workload

NOW = 1_780_000_000.0
ADMITTED = (condition("QuotaReserved", "True", "QuotaReserved"), condition("Admitted", "True", "Admitted"))


def shown(renderable: Any, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(renderable)
    return out.getvalue()


def admitted(name: str, since: str, *conditions: dict[str, Any], gpus: str = "8") -> Workload:
    assignment = {"name": "main", "flavors": {"gpu": "h100"}, "resourceUsage": {"gpu": gpus}, "count": 4}
    reserved = {**condition("QuotaReserved", "True", "QuotaReserved"), "lastTransitionTime": since}
    return convert(
        {
            "metadata": {"name": name, "namespace": "team"},
            "spec": {"queueName": "lq", "podSets": [{"name": "main", "count": 4, "template": {}}]},
            "status": {
                "conditions": [reserved, *conditions],
                "admission": {"clusterQueue": "cq", "podSetAssignments": [assignment]},
            },
        },
        Workload,
    )


def test_what_waits_comes_first_and_says_why() -> None:
    found = workloads.views(
        [workload("runs", *ADMITTED), workload("waits", WAITS, owner="train"), admitted("has", "2026-01-01T00:00:00Z")],
        [local_queue("lq", "cq")],
        NOW,
    )
    assert [(view.name, view.state) for view in found] == [
        ("waits", "Pending"),
        ("has", "QuotaReserved"),
        ("runs", "Admitted"),
    ]
    first = found[0]
    assert (first.reason, first.owner, first.cluster_queue, first.pods) == ("WaitingForQuota", "Job/train", "cq", 4)
    assert found[1].flavors == ("h100",)
    text = shown(workloads.table(found))
    assert "WaitingForQuota" in text
    assert "Ahead" not in text
    wide = shown(workloads.table(found, Form.WIDE), 300)
    assert "needs 8 nvidia.com/gpu in flavor h100: 5 free" in wide


def test_a_filter_lets_through_what_it_names() -> None:
    found = workloads.views([workload("a", WAITS), workload("b", *ADMITTED)], [local_queue("lq", "cq")], NOW)
    names = lambda **wanted: [view.name for view in found if workloads.Filter(**wanted).lets_through(view)]
    assert names() == ["a", "b"]
    assert names(states=("pending",)) == ["a"]
    assert names(queue="other") == []
    assert names(cluster_queue="cq", states=("admitted", "pending")) == ["a", "b"]


def test_places_are_told_by_namespace_and_name() -> None:
    answer = {"items": [{"namespace": "team", "name": "a", "positionInClusterQueue": 3}], "next": None}
    assert workloads.positions(answer) == {("team", "a"): 3}


USED = {"clusterQueue": "vision", "flavor": "h100", "resource": "nvidia.com/gpu", "hours": 1234.5, "workloads": 31}
LONG = "job-resnet-imagenet-pretraining-large-3f9c1"


@pytest.mark.parametrize("everywhere", [False, True])
def test_tables_are_neat_in_80_columns(everywhere: bool) -> None:
    found = workloads.views([workload(LONG, WAITS), workload("b", *ADMITTED)], [local_queue("lq", "cq")], NOW)
    tables = [
        workloads.table(found, everywhere=everywhere),
        queues.table(queues.views([cluster_queue("vision")], [local_queue("lq", "vision")], [workload("a", WAITS)])),
        queues.local_table(queues.local_views([local_queue("default", "vision")])),
        usage.table([USED], "queue"),
    ]
    for table in tables:
        lines = shown(table).splitlines()
        assert max(len(line.rstrip()) for line in lines) <= 80
        # Titles, words and figures stay whole: only long names may be folded.
        assert all(column.header in lines[0] for column in table.columns), lines[0]
    assert "18 / 16 (+2)" in shown(tables[1])
    assert all(word in shown(tables[1]) for word in ("vision", "h100", "nvidia.com/gpu"))


def test_hours_are_counted_from_the_workloads_that_are_left() -> None:
    finished = {**condition("Finished", "True", "Succeeded"), "lastTransitionTime": "2026-01-01T03:00:00Z"}
    found = [
        admitted("a", "2026-01-01T00:00:00Z"),
        admitted("b", "2026-01-01T00:00:00Z", finished),
        admitted("later", "2026-01-02T00:00:00Z"),
        workload("waits", WAITS),
    ]
    wanted = usage.span("2026-01-01T01:00:00Z", "2026-01-01T05:00:00Z", "queue", NOW)
    (item,) = usage.counted(found, wanted, NOW)
    assert item == {
        "clusterQueue": "cq",
        "flavor": "h100",
        "resource": "gpu",
        "hours": 8 * 4 + 8 * 2,
        "workloads": 2,
    }
    by_namespace = usage.counted(found, usage.Span(wanted.since, wanted.until, "namespace"), NOW)
    assert by_namespace[0]["namespace"] == "team"


@pytest.mark.parametrize(
    ("text", "want"), [("7d", NOW - 7 * 86400), ("12h", NOW - 43200), ("2026-01-31", 1769817600.0)]
)
def test_a_time_is_a_moment_or_how_long_ago(text: str, want: float) -> None:
    assert usage.span(text, None, "queue", NOW).since == want


def test_a_span_ends_after_it_began() -> None:
    with pytest.raises(Fault, match="--from has to be before --to"):
        usage.span("1h", "2h", "queue", NOW)


def test_bytes_are_told_by_the_gib() -> None:
    item = {"namespace": "t", "flavor": "f", "resource": "memory", "hours": 2.0**31, "workloads": 1}
    assert "2.00 GiB" in shown(usage.table([item], "namespace"))


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(-5, "0s"), (119, "119s"), (125, "2m5s"), (3600, "60m"), (7260, "2h1m"), (86400, "24h"), (180000, "2d2h")],
)
def test_ages_are_short(seconds: float, want: str) -> None:
    assert age(seconds) == want


CLASS = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "low"}


@pytest.mark.parametrize(
    ("found", "by_class", "want"),
    [
        (workload("w", WAITS), False, None),
        (workload("w", WAITS), True, None),
        (workload("w", *ADMITTED), True, "give it a number"),
        (workload("w", *ADMITTED, priorityClassRef=CLASS), True, None),
        (workload("w", WAITS, priorityClassRef=CLASS), False, "give it another: --class NAME"),
        (workload("w", condition("Finished", "True", "Succeeded")), True, "has finished"),
    ],
)
def test_a_priority_changes_where_its_user_would(found: Workload, by_class: bool, want: str | None) -> None:
    problem = priority.why_not(found, by_class=by_class)
    assert problem is None if want is None else want in str(problem)
    if found.spec.priority_class_ref is not None:
        assert priority.shown(found).line() == "team/w: priority 0 (WorkloadPriorityClass low)"


def test_what_was_held_is_said_with_what_goes_on() -> None:
    queue = cluster_queue("vision")
    assert holding.said("ClusterQueue", queue, "Hold") == (
        "clusterqueue.kueue.x-k8s.io/vision held; 1 that run go on; 2 wait"
    )
    local: LocalQueue = local_queue("lq", "vision")
    assert holding.said("LocalQueue", local, "None") == "localqueue.kueue.x-k8s.io/team/lq resumed"
