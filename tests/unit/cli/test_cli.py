"""The command line: what a user's mistake looks like."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from admission import cli


def muster(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "admission.cli", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={"PYTHONPATH": str(Path(__file__).parents[3]), "HOME": str(cwd), "PATH": "/usr/bin:/bin"},
        cwd=cwd,
    )


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["controller", "--kubeconfig", "nowhere"], "there is no kubeconfig nowhere"),
        (["run", "--config", "bad.yaml"], "webhook.prt: unknown field; did you mean port?"),
        (["queues"], "there is no kubeconfig"),
        (["dev", "--listen", "9443", "--dir", "state"], "write HOST:PORT"),
        (["dev", "--listen", "here:there", "--dir", "state"], "write HOST:PORT"),
        (["dev", "--listen", "127.0.0.1:65536", "--dir", "state"], "write HOST:PORT"),
        (["dev", "--rotate", "--dir", "state"], "no muster dev runs with"),
        (["dev", "--rotate", "--dir", "killed"], "no muster dev runs with"),
        (["queues", "--colour"], "No such option"),
    ],
)
def test_a_mistake_is_one_sentence_and_status_2(tmp_path: Path, arguments: list[str], want: str) -> None:
    (tmp_path / "bad.yaml").write_text(
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\nwebhook: {prt: 1}\n"
    )
    (tmp_path / "killed").mkdir()
    (tmp_path / "killed" / "muster.pid").write_text(str(os.getpid()))
    ended = muster(*arguments, cwd=tmp_path)
    assert want in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 2


@pytest.mark.parametrize(
    ("arguments", "want"),
    [
        (["explain", "nothing"], "there is no kubeconfig"),
        (["--context", "c", "queues", "-o", "yaml"], "there is no kubeconfig"),
        (["queues", "--kubeconfig", "nowhere:elsewhere"], "there is no kubeconfig nowhere, elsewhere"),
        (["queues", "--request-timeout", "5x"], "'5x' is not a duration"),
        (["queues", "--as-group", "admins"], "--as-group needs --as USER"),
        (["hold", "vision"], "'vision' is no kind of queue; write clusterqueue (cq) or localqueue (lq)"),
        (["hold", "cq", "vision", "--wait"], "--wait needs --drain"),
        (["resume", "cq"], "name the ClusterQueue too"),
        (["priority", "w", "5", "--class", "high"], "give a number or a --class, not both"),
        (["usage", "--from", "tomorrow"], "'tomorrow' is no time; write 2026-01-31"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["adopt", "--queue-label", "l"], "what says where pods belong needs --import-pods"),
        (["adopt", "--import-pods"], "say where pods belong"),
    ],
)
def test_a_mistake_of_people_is_told_in_the_same_way(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    want: str,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("sys.argv", ["kubectl-muster", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    told = capsys.readouterr().err
    assert want in told
    assert told.startswith(("muster: ", "Usage: kubectl muster "))
    assert end.value.code == 2


def test_help_loads_nothing_of_the_commands(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "admission.cli", "--help"],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3],
    )
    assert "Usage" in ended.stdout
    for heavy in ("kubernetes", "flask", "sqlalchemy", "aiohttp", "numpy", "rich"):
        assert f" {heavy}\n" not in ended.stderr
