"""Makes the Grafana dashboard: rows of panels over the metrics that Muster exposes.

Decided by the table below; sizes and ids follow from the order. It must never name a metric that the code does not
expose, which a test looks after.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

PATH: Final = "webhook-config/monitoring/dashboard.json"

_WIDTH: Final = 24
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_QUEUES: Final = 'cluster_queue=~"$cluster_queue"'
_ADMISSIONS: Final = f"rate(kueue_admitted_workloads_total{{{_QUEUES}}}[5m])"
_UNITS: Final = f'{_QUEUES}, resource=~"$resource"'


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` are expressions by their legends. `kind` is Grafana's; `unit` as well."""

    title: str
    says: str
    queries: Mapping[str, str]
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 8
    height: int = 8
    stacked: bool = False
    #: From this value on it is red; None: never.
    alarming: float | None = None


def _quantile(which: float, name: str, by: str = "le", where: str = "") -> str:
    return f"histogram_quantile({which:g}, sum by ({by}) (rate({name}_bucket{where}[$__rate_interval])))"


def _by_queue(title: str, says: str, which: float, name: str) -> Panel:
    """A quantile of seconds, of each ClusterQueue."""
    query = _quantile(which, name, "le, cluster_queue", f"{{{_QUEUES}}}")
    return Panel(title, says, {"{{cluster_queue}}": query}, unit="s")


def _lasting(title: str, says: str, name: str) -> Panel:
    """How long something of the controller's own takes."""
    return Panel(title, says, {"median": _quantile(0.5, name), "99th percentile": _quantile(0.99, name)}, unit="s")


def _stat(title: str, says: str, query: str, unit: str = "short", alarming: float | None = None) -> Panel:
    return Panel(title, says, {title: query}, "stat", unit, width=4, height=4, alarming=alarming)


ROWS: Final[Mapping[str, tuple[Panel, ...]]] = {
    "At a glance": (
        _stat("Waiting", "Workloads without quota", f"sum(kueue_pending_workloads{{{_QUEUES}}})"),
        _stat("Admitted", "Workloads that run or are starting", f"sum(kueue_admitted_active_workloads{{{_QUEUES}}})"),
        _stat(
            "Admissions a minute",
            "Over the last five minutes",
            f"60 * sum({_ADMISSIONS})",
        ),
        _stat(
            "Queues that admit nothing",
            "ClusterQueues that are not active; their condition Active says why",
            f'count(kueue_cluster_queue_status{{{_QUEUES}, status="active"}} == 0) or vector(0)',
            alarming=1,
        ),
        _stat(
            "Oldest news",
            "Since the API server last said something, for the kind that has been silent longest",
            "max(muster_informer_silence_seconds)",
            "s",
            alarming=300,
        ),
        _stat(
            "Only the sweep found",
            "What no event brought up, in the last day: anything above 0 is a bug",
            "sum(increase(muster_sweep_found_total[1d])) or vector(0)",
            alarming=1,
        ),
    ),
    "Quota": (
        Panel(
            "In use by queue",
            "Quota of admitted Workloads, in the resource that is chosen above",
            {"{{cluster_queue}}": f"sum by (cluster_queue) (kueue_cluster_queue_resource_usage{{{_UNITS}}})"},
            stacked=True,
            width=12,
        ),
        Panel(
            "In use of nominal quota",
            "Above 1 a queue borrows; below, it lends or nobody wants it",
            {
                "{{cluster_queue}}": f"sum by (cluster_queue) (kueue_cluster_queue_resource_usage{{{_UNITS}}}) / "
                f"sum by (cluster_queue) (kueue_cluster_queue_nominal_quota{{{_UNITS}}} > 0)"
            },
            unit="percentunit",
            width=12,
        ),
        Panel(
            "Asked for and not given",
            "What the waiting Workloads ask for",
            {"{{cluster_queue}}": f"sum by (cluster_queue) (kueue_cluster_queue_resource_pending{{{_UNITS}}})"},
            stacked=True,
        ),
        Panel(
            "Cohorts: reserved of quota",
            "Of a cohort and everything below it",
            {
                "{{cohort}}": "sum by (cohort) (kueue_cohort_subtree_resource_reservations"
                '{resource=~"$resource"}) / sum by (cohort) (kueue_cohort_subtree_quota{resource=~"$resource"} > 0)'
            },
            unit="percentunit",
        ),
        Panel(
            "Weighted shares",
            "With fair sharing: who borrows most by its weight is the first to give back",
            {"{{cluster_queue}}": f"max by (cluster_queue) (kueue_cluster_queue_weighted_share{{{_QUEUES}}})"},
        ),
    ),
    "Waiting": (
        Panel(
            "Waiting by queue",
            "active: looked at in the next round; inadmissible: parked until something happens that could help",
            {"{{cluster_queue}} {{status}}": f"sum by (cluster_queue, status) (kueue_pending_workloads{{{_QUEUES}}})"},
            stacked=True,
        ),
        Panel(
            "Why they wait",
            "By the reason that each Workload's condition has",
            {
                "{{reason}} {{underlying_cause}}": "sum by (reason, underlying_cause) "
                f"(kueue_unadmitted_workloads{{{_QUEUES}}})"
            },
            stacked=True,
        ),
        Panel(
            "Admissions a minute",
            "",
            {"{{cluster_queue}}": f"60 * sum by (cluster_queue) ({_ADMISSIONS})"},
        ),
        _by_queue(
            "Wait until admitted, median",
            "Of the Workloads that were admitted in the interval",
            0.5,
            "kueue_admission_wait_time_seconds",
        ),
        _by_queue("Wait until admitted, 95th percentile", "", 0.95, "kueue_admission_wait_time_seconds"),
        _by_queue(
            "From admission to all pods ready, 95th percentile",
            "Images, volumes and the scheduler; with waitForPodsReady",
            0.95,
            "kueue_admitted_until_ready_wait_time_seconds",
        ),
    ),
    "Evictions": (
        Panel(
            "Evictions an hour",
            "",
            {
                "{{reason}} {{underlying_cause}}": "sum by (reason, underlying_cause) "
                f"(increase(kueue_evicted_workloads_total{{{_QUEUES}}}[1h]))"
            },
            stacked=True,
        ),
        Panel(
            "Preemptions an hour, by who needed the quota",
            "",
            {
                "{{preempting_cluster_queue}} {{reason}}": "sum by (preempting_cluster_queue, reason) "
                "(increase(kueue_preempted_workloads_total[1h]))"
            },
            stacked=True,
        ),
        _by_queue(
            "From an eviction until the quota was back, 95th percentile",
            "How long pods take to end",
            0.95,
            "kueue_workload_eviction_latency_seconds",
        ),
    ),
    "The controller itself": (
        _lasting(
            "Deciding", "One round of decisions, without the writes that follow", "muster_decision_duration_seconds"
        ),
        _lasting("One turn of the loop", "Taking in, deciding and sending out", "muster_turn_duration_seconds"),
        _by_queue(
            "Gates off after the admission, 95th percentile", "", 0.95, "kueue_pod_scheduling_gate_removal_seconds"
        ),
        Panel(
            "Writes a second",
            "",
            {"{{verb}} {{kind}}": "sum by (verb, kind) (rate(muster_writes_total[$__rate_interval]))"},
            unit="ops",
            stacked=True,
        ),
        Panel(
            "Writes that were not done, a second",
            "conflict and gone are everyday; refused means that rights are missing, or another webhook refuses",
            {
                "{{result}} {{kind}}": "sum by (result, kind) "
                '(rate(muster_writes_total{result!="done"}[$__rate_interval]))'
            },
            unit="ops",
        ),
        Panel(
            "Silence of the API server",
            "By kind; bookmarks come about once a minute",
            {"{{kind}}": "max by (kind) (muster_informer_silence_seconds)"},
            unit="s",
        ),
        Panel(
            "Journal",
            "How far history is behind, and what it had to leave out",
            {
                "behind, seconds": "max(muster_journal_lag_seconds)",
                "entries left out": "sum(increase(muster_journal_dropped_entries_total[5m]))",
                "Events left out": "sum(increase(muster_events_dropped_total[5m]))",
            },
        ),
        Panel(
            "Memory",
            "Resident, of the process that serves these metrics",
            {"{{instance}}": "process_resident_memory_bytes and on (instance) kueue_build_info"},
            unit="bytes",
        ),
        Panel(
            "CPU",
            "Cores",
            {"{{instance}}": "rate(process_cpu_seconds_total[$__rate_interval]) and on (instance) kueue_build_info"},
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    return {
        "uid": "muster",
        "title": "Muster",
        "description": "Queues, quota, waiting and evictions, and the controller itself. Quota needs the setting "
        "metrics.enableClusterQueueResources.",
        "tags": ["muster", "kueue"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": list(_variables())},
        "panels": list(_panels()),
    }


def files(_root: Path) -> dict[str, str]:
    return {PATH: json.dumps(dashboard(), indent=2) + "\n"}


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    for name, label, metric in (
        ("cluster_queue", "ClusterQueue", "kueue_cluster_queue_status"),
        ("resource", "Resource", "kueue_cluster_queue_nominal_quota"),
    ):
        yield {
            "name": name,
            "label": label,
            "type": "query",
            "datasource": _SOURCE,
            "query": {"query": f"label_values({metric}, {name})", "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "allValue": ".*",
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
        }


def _panels() -> Iterator[dict[str, Any]]:
    number, y = 0, 0
    for title, panels in ROWS.items():
        number += 1
        place = {"x": 0, "y": y, "w": _WIDTH, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        x, y, tallest = 0, y + 1, 0
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y, tallest = 0, y + tallest, 0
            number += 1
            yield _panel(number, panel, {"x": x, "y": y, "w": panel.width, "h": panel.height})
            x, tallest = x + panel.width, max(tallest, panel.height)
        y += tallest


def _panel(number: int, panel: Panel, place: Mapping[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.alarming is not None:
        steps.append({"color": "red", "value": panel.alarming})
    drawn = {"fillOpacity": 15, "showPoints": "never", "stacking": {"mode": "normal" if panel.stacked else "none"}}
    options: dict[str, Any] = (
        {"colorMode": "value", "reduceOptions": {"calcs": ["lastNotNull"]}}
        if panel.kind == "stat"
        else {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}
    )
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": _SOURCE,
        "gridPos": dict(place),
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "thresholds": {"mode": "absolute", "steps": steps},
                **({"custom": drawn} if panel.kind == "timeseries" else {}),
            },
            "overrides": [],
        },
        "options": options,
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for index, (legend, query) in enumerate(panel.queries.items())
        ],
    }
