"""Where the manifests are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from admission import resources


def test_in_a_checkout() -> None:
    assert (resources.webhook_config() / "crds" / "kustomization.yaml").is_file()


def test_in_a_wheel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "admission" / "_webhook_config").mkdir(parents=True)
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "admission")
    monkeypatch.setattr(resources, "_ROOT", tmp_path)
    assert resources.webhook_config() == tmp_path / "admission" / "_webhook_config"


def test_nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(resources, "_PACKAGE", tmp_path / "admission")
    monkeypatch.setattr(resources, "_ROOT", tmp_path)
    with pytest.raises(FileNotFoundError, match="incomplete"):
        resources.webhook_config()
