"""Alert rules and the dashboard name what the code exposes, and the rules do what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from admission.api import kueue, names
from admission.api.batch import Job
from admission.api.meta import ObjectMeta
from admission.controllers.loop import policy
from admission.controllers.metrics import Health
from admission.settings.configuration import AdmissionFairSharing
from admission.settings.durations import Seconds
from publishing.dashboard import ROWS, dashboard
from queues.core.cycle import decide
from tests.unit.controllers.builders import NAMESPACE, NOW, cluster_queue, settings, stamp, workload
from tests.unit.controllers.test_metrics import EVERYTHING, FAIR, World

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "webhook-config" / "monitoring"
RULES = [rule for group in yaml.safe_load((FOLDER / "rules.yaml").read_text())["groups"] for rule in group["rules"]]
#: Of prometheus_client about the process, registered where the metrics are served.
PROCESS = {"process_resident_memory_bytes", "process_cpu_seconds_total"}
NAME = re.compile(r"\b(?:kueue|muster|process)_[a-z_]+[a-z]\b")


@pytest.fixture(scope="module")
def exposed() -> dict[str, set[str]]:
    """The labels of every metric, after a life in which everything happened."""
    past = AdmissionFairSharing(usage_half_life_time=Seconds(3600))
    chosen = settings(metrics=EVERYTHING, fair_sharing=FAIR, admission_fair_sharing=past)
    world = World(chosen)
    world.put(kueue.Cohort(metadata=ObjectMeta(name="team", uid="c"), spec=kueue.CohortSpec(parent_name="org")))
    world.put(cluster_queue(cohort="team", admission_scope=kueue.AdmissionScope(admission_mode=names.USAGE_BASED)))
    job = {"metadata": {"name": "j", "namespace": NAMESPACE, "uid": "uid-of-j", "creationTimestamp": stamp(-102)}}
    world.cluster.tables.of("Job").upsert(msgspec.convert(job, Job))
    check = workload("c").check("c", "Ready")
    world.see(check, check.reserved(at=-70), check.reserved(at=-70).cond(names.ADMITTED, at=-60))
    ready = workload().admitted(at=-60).cond(names.PODS_READY, at=-40)
    counted = kueue.SchedulingStats(evictions=(kueue.SchedulingStatsEviction("Preempted", "", 1),))
    evicted = ready.status(scheduling_stats=counted).evicted("Preempted", at=-30)
    world.see(workload(), workload().admitted(at=-60), ready, evicted, workload().evicted("Preempted", at=-30))
    world.see(workload("o").owned(), workload("f").admitted(), workload("f").admitted().cond(names.FINISHED, at=-10))
    world.metrics.workloads.preemption("cq", "InClusterQueue")
    world.metrics.workloads.ungated(names.ADMISSION_GATE, "cq", 1.0, is_group=True)
    world.metrics.attempt(0.2, success=True)
    world.metrics.decided(0.1)
    world.metrics.turn(0.1)
    world.metrics.faulted("deciding")
    world.metrics.swept("Gang")
    world.metrics.swept_through()
    world.metrics.wrote("patch", "Pod", "done")
    world.metrics.failed("bug")
    world.metrics.health_at_scrape(lambda: Health(2, 3, 1.5, {"Pod": 4.0}))
    decide(world.cluster.state, NOW, policy(chosen))
    found: dict[str, set[str]] = {}
    for family in world.metrics.registry.collect():
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions() -> Iterator[tuple[str, str]]:
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize(("where", "expression"), EXPRESSIONS, ids=[where for where, _ in EXPRESSIONS])
def test_what_is_asked_for_is_exposed(where: str, expression: str, exposed: dict[str, set[str]]) -> None:
    named = set(NAME.findall(expression)) - PROCESS
    assert named - exposed.keys() == set()
    for name, selectors in re.findall(r"((?:kueue|muster)_[a-z_]+)\{([^}]*)\}", expression):
        asked = set(re.findall(r"(\w+)\s*[=!]", selectors))
        assert asked <= exposed[name], name


def test_the_documentation_names_what_is_exposed(exposed: dict[str, set[str]]) -> None:
    rows = [line for line in (ROOT / "docs" / "metrics.md").read_text().splitlines() if line.startswith("| `")]
    families = exposed.keys() | {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exposed}
    named = {name for row in rows for name in re.findall(r"`((?:kueue|muster)_\w*[a-z])`", row.split("|")[1])}
    assert len(named) > 40
    assert named - families == set()


def test_every_alert_says_what_it_means_and_is_tested() -> None:
    tested = [
        case
        for test in yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]
        for case in test["alert_rule_test"]
    ]
    for rule in RULES:
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert {"summary", "description"} <= rule["annotations"].keys()
        cases = [bool(case["exp_alerts"]) for case in tested if case["alertname"] == rule["alert"]]
        assert {True, False} <= set(cases), f"{rule['alert']} has to be seen firing and not firing"


def test_the_documentation_lists_every_alert() -> None:
    text = (ROOT / "docs" / "metrics.md").read_text()
    assert [rule["alert"] for rule in RULES if f"`{rule['alert']}`" not in text] == []


def test_panels_lie_beside_each_other() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        squares = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not squares & taken, panel["title"]
        taken |= squares
    assert len({panel["id"] for panel in dashboard()["panels"]}) == sum(len(row) for row in ROWS.values()) + len(ROWS)


def test_the_dashboard_names_no_host_and_no_data_source_of_ours() -> None:
    text = json.dumps(dashboard())
    assert "http" not in text
    sources: set[Any] = {target["datasource"]["uid"] for p in dashboard()["panels"] for target in p.get("targets", ())}
    assert sources == {"${datasource}"}


@pytest.mark.parametrize("command", [("check", "rules", "rules.yaml"), ("test", "rules", "rules_test.yaml")])
def test_promtool_agrees(command: tuple[str, ...]) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool on the PATH (Debian: apt-get install prometheus)")
    done = subprocess.run([promtool, *command], cwd=FOLDER, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
