"""The alert rules on what a real controller's metrics said, while it worked and while things went wrong.

`tests/recording/metrics.json` was recorded by `python -m tests.recording.record`, which says what was done to the
controller and when. Here stands which alerts have to fire at which minute of it, and no others may.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.recording.record import RULES, TARGET, names

RECORDED: dict[str, Any] = json.loads(TARGET.read_text())

#: By run and minute: all alerts that fire then.
FIRING: dict[str, dict[float, set[str]]] = {
    "writes": {
        **{minute: set() for minute in range(1, 7)},
        17.5: {"ClusterQueueInactive", "MusterJournalBehind", "MusterWritesRefused", "MusterWritesUnanswered"},
    },
    "watches": {
        **{minute: set() for minute in range(1, 4)},
        5: {"MusterMissesChanges"},
        8.5: {"MusterMissesChanges", "MusterDecidesOnOldNews"},
        9.75: set(),
        14: set(),
        15.75: {"MusterDecidesNothing"},
    },
}


def test_both_runs_are_recorded_with_what_the_rules_ask_for() -> None:
    assert RECORDED["runs"].keys() == FIRING.keys()
    for series in RECORDED["runs"].values():
        recorded = {each.partition("{")[0] for each in series}
        assert recorded <= names()
        assert {"muster_turn_duration_seconds_count", "muster_informer_behind_seconds"} <= recorded


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("no promtool on the PATH (Debian: apt-get install prometheus)")
    return found


@pytest.mark.parametrize("run", FIRING)
def test_these_alerts_fire_and_no_others(promtool: str, tmp_path: Path, run: str) -> None:
    said = judged(promtool, tmp_path, run, FIRING[run])
    assert said is None, said


def test_an_alert_that_does_not_fire_would_be_missed(promtool: str, tmp_path: Path) -> None:
    assert judged(promtool, tmp_path, "writes", {3: {"MusterFault"}}) is not None
    assert judged(promtool, tmp_path, "writes", {17.5: set()}) is not None


def judged(promtool: str, folder: Path, run: str, firing: dict[float, set[str]]) -> str | None:
    """What promtool has to say against exactly these firing at these minutes."""
    interval = f"{RECORDED['interval_seconds']}s"
    questions = [
        {
            "expr": 'max by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": f"{round(minute * 60)}s",
            "exp_samples": [{"labels": f'{{alertname="{each}"}}', "value": 1} for each in sorted(alerts)],
        }
        for minute, alerts in firing.items()
    ]
    series = [{"series": name, "values": values} for name, values in RECORDED["runs"][run].items()]
    test = {"interval": interval, "input_series": series, "promql_expr_test": questions}
    body = {"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(body))
    done = subprocess.run(
        [promtool, "test", "rules", str(folder / "test.yaml")], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr if done.returncode else None
