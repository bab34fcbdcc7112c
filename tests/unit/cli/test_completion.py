"""Completion: scripts for shells, and what kubectl is told. Names of a cluster stay silent where there is none."""

from __future__ import annotations

import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from admission.cli import cli, complete_for_kubectl
from admission.commands import completion

ROOT = Path(__file__).parents[3]


def values(words: list[str], incomplete: str) -> list[str]:
    return [item.value for item in completion.items(cli, words, incomplete)]


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_each_shell_gets_a_script_that_it_understands(shell: str, tmp_path: Path) -> None:
    script = completion.script(cli, shell)
    assert "_MUSTER_COMPLETE" in script
    found = shutil.which(shell)
    if found is not None:
        (tmp_path / "script").write_text(script)
        subprocess.run([found, "-n", tmp_path / "script"], check=True, capture_output=True)


def test_commands_options_and_values_are_completed() -> None:
    assert {"queues", "workloads", "hold"} <= set(values([], ""))
    assert values([], "work") == ["workloads"]
    assert "--namespace" in values(["queues"], "--n")
    assert values(["queues", "-o"], "y") == ["yaml"]
    assert values(["-n", "team", "hold"], "cl") == ["clusterqueue"]


def test_without_a_cluster_names_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    assert values(["queues", "-n"], "") == []
    assert values(["hold", "cq"], "") == []
    assert values(["queues", "--context"], "") == []


def test_contexts_are_those_of_the_kubeconfigs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("blue", "green"):
        (tmp_path / name).write_text(
            f"clusters: [{{name: c, cluster: {{server: https://{name}}}}}]\n"
            f"contexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]\n"
            "users: []\ncurrent-context: blue\n"
        )
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/blue:{tmp_path}/green:{tmp_path}/missing")
    assert values(["queues", "--context"], "") == ["blue", "green"]
    assert values(["queues", "--context"], "g") == ["green"]
    assert values(["queues", "--kubeconfig", f"{tmp_path}/blue", "--context"], "") == ["blue"]


def test_kubectl_is_told_one_a_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["kubectl_complete-muster", "comp"])
    complete_for_kubectl()
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("completion\tPrint the script")
    assert last == ":4"


def test_kubectl_finds_the_plugin_by_its_name() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-muster"] == scripts["muster"]
    assert scripts["kubectl_complete-muster"] == "admission.cli:complete_for_kubectl"
