"""The CRDs in the repository are those that the types make, and are cheap for the API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api import crds
from admission.api.kueue import KINDS
from admission.resources import webhook_config

SCHEMAS = {kind.__name__: crds.crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for kind in KINDS}


def test_the_files_are_fresh() -> None:
    assert "".join(crds.stale(webhook_config() / "crds")) == "", "run `python -m admission.api.crds`"


def test_a_stale_file_is_shown(tmp_path: Path) -> None:
    for name, text in crds.files().items():
        (tmp_path / name).write_text(text)
    assert list(crds.stale(tmp_path)) == []
    path = tmp_path / "kueue.x-k8s.io_cohorts.yaml"
    path.write_text(path.read_text().replace("parentName", "parent"))
    (tmp_path / "left-over.yaml").write_text("a: b\n")
    difference = "".join(crds.stale(tmp_path))
    assert "+              parentName:" in difference
    assert "-a: b" in difference


def walk(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


NODES = [(f"{kind}{path}", node) for kind, schema in SCHEMAS.items() for path, node in walk(schema)]


def test_every_list_says_how_it_merges_and_lists_that_rules_walk_are_bounded() -> None:
    lists = {path: node for path, node in NODES if node.get("type") == "array"}
    assert {path for path, node in lists.items() if "x-kubernetes-list-type" not in node} == set()
    unbounded = {path for path, node in lists.items() if "maxItems" not in node}
    # The label selector is Kubernetes' own shape, without bounds.
    assert unbounded == {
        "ClusterQueue.spec.namespaceSelector.matchExpressions",
        "ClusterQueue.spec.namespaceSelector.matchExpressions[].values",
    }


def test_conditions_are_a_map_of_at_most_16() -> None:
    for path, node in NODES:
        if path.endswith(".conditions"):
            assert (node["maxItems"], node["x-kubernetes-list-map-keys"]) == (16, ["type"]), path


def test_templates_are_not_looked_into() -> None:
    template = dict(NODES)["Workload.spec.podSets[].template"]
    assert template == {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "x-kubernetes-map-type": "atomic",
    }


def test_status_writes_of_workloads_meet_few_rules() -> None:
    rules = {path: node["x-kubernetes-validations"] for path, node in NODES if "x-kubernetes-validations" in node}
    assert len(rules["Workload"]) == 4
    assert len(rules["Workload.status"]) == 2


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_file_is_plain_yaml_of_one_version(kind: Any) -> None:
    text = crds.files()[f"kueue.x-k8s.io_{kind.DEFINITION.plural}.yaml"]
    assert yaml.safe_load(text) == crds.crd(kind)
    assert "&id" not in text
    (version,) = crds.crd(kind)["spec"]["versions"]
    assert (version["name"], version["served"], version["storage"]) == ("v1beta2", True, True)


def test_check_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(crds, "webhook_config", lambda: tmp_path)
    assert crds.main(["--check"]) == 1
    assert "stale" in capsys.readouterr().err
    assert crds.main([]) == 0
    assert crds.main(["--check"]) == 0
