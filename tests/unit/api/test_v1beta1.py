"""v1beta1 as the overlay serves it: what differs from v1beta2 and nothing else, deprecated, never stored, and cheap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api import crds, kueue, v1beta1, v1beta1_crds
from admission.resources import webhook_config
from admission.webhook.configuration import ByService, installed_settings

PLURALS = {kind.__name__: kind.DEFINITION.plural for kind in kueue.KINDS}
NEW = {kind.__name__: crds.schema_of(kind) for kind in kueue.KINDS}
OLD = {kind: v1beta1_crds.version(plural)["schema"]["openAPIV3Schema"] for kind, plural in PLURALS.items()}


def walk(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from walk(inner, f"{path}.{name}")
    if "items" in schema:
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}{{}}")


def nodes(schemas: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {path: node for kind, schema in schemas.items() for path, node in walk(schema, kind)}


OLD_NODES, NEW_NODES = nodes(OLD), nodes(NEW)


def tops(paths: set[str]) -> set[str]:
    """Without those that lie below another one."""
    return {path for path in paths if not any(path.startswith(f"{other}{end}") for other in paths for end in ".[{")}


def test_every_kind_has_its_v1beta1() -> None:
    assert [kind.__name__ for kind in v1beta1.KINDS] == [kind.__name__ for kind in kueue.KINDS]


def test_the_fields_that_differ_are_those_of_the_contract() -> None:
    assert tops(OLD_NODES.keys() - NEW_NODES.keys()) == {
        "ClusterQueue.spec.cohort",
        "ClusterQueue.spec.admissionChecks",
        "ClusterQueue.status.pendingWorkloadsStatus",
        "LocalQueue.status.flavorUsage",
        "LocalQueue.status.flavors",
        "Workload.spec.priorityClassName",
        "Workload.spec.priorityClassSource",
        "Workload.status.accumulatedPastExexcutionTimeSeconds",
        "Workload.status.admission.podSetAssignments[].topologyAssignment.domains",
        "AdmissionCheck.spec.retryDelayMinutes",
        "MultiKueueCluster.spec.kubeConfig",
        "MultiKueueCluster.spec.clusterProfileRef",
    }
    assert tops(NEW_NODES.keys() - OLD_NODES.keys()) == {
        "ClusterQueue.spec.cohortName",
        "ClusterQueue.spec.concurrentAdmissionPolicy",
        "LocalQueue.status.flavorsUsage",
        "Workload.spec.priorityClassRef",
        "Workload.spec.preemptionGates",
        "Workload.spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints",
        "Workload.status.accumulatedPastExecutionTimeSeconds",
        "Workload.status.admission.podSetAssignments[].topologyAssignment.slices",
        "Workload.status.preemptionGates",
        "MultiKueueConfig.spec.quotaManagement",
        "MultiKueueCluster.spec.clusterSource",
    }


#: What both versions have, but not with the same bounds.
LOOSER = {
    "ClusterQueue.spec.flavorFungibility.whenCanBorrow": "takes Borrow too",
    "ClusterQueue.spec.flavorFungibility.whenCanPreempt": "takes Preempt too",
    "MultiKueueConfig.spec.clusters": "is a set, which is what the rule of v1beta2 asks for",
    "Topology.spec.levels": "never changes",
}


def test_a_field_of_both_versions_is_checked_the_same() -> None:
    """What is written as v1beta1 is stored without another look, so it has to be right for v1beta2."""

    def own(node: dict[str, Any]) -> dict[str, Any]:
        below = ("description", "properties", "items", "additionalProperties", "required")
        return {key: value for key, value in node.items() if key not in below}

    shared = OLD_NODES.keys() & NEW_NODES.keys()
    differ = {path for path in shared if own(OLD_NODES[path]) != own(NEW_NODES[path])}
    with_old_fields_in_rules = {"ClusterQueue.spec", "Workload", "Workload.spec"}
    with_new_fields_in_rules = {
        "MultiKueueCluster.spec",
        "Workload.status.admission.podSetAssignments[].topologyAssignment",
    }
    assert differ == LOOSER.keys() | with_old_fields_in_rules | with_new_fields_in_rules


def test_rules_that_name_no_old_field_are_those_of_v1beta2() -> None:
    def rules(nodes: dict[str, dict[str, Any]], path: str) -> list[str]:
        return [each["rule"] for each in nodes[path].get("x-kubernetes-validations", [])]

    (old,), (new,) = (rules(each, "ClusterQueue.spec") for each in (OLD_NODES, NEW_NODES))
    assert old == new.replace("cohortName", "cohort")
    assert [rule for rule in rules(NEW_NODES, "Workload") if rule not in rules(OLD_NODES, "Workload")] == [
        rule for rule in rules(NEW_NODES, "Workload") if "priorityClassRef" in rule
    ]


def test_only_the_config_of_multikueue_is_not_deprecated() -> None:
    said = {kind: v1beta1_crds.version(plural) for kind, plural in PLURALS.items()}
    assert {kind for kind, version in said.items() if not version.get("deprecated")} == {"MultiKueueConfig"}
    warnings = {version.get("deprecationWarning") for version in said.values()}
    assert warnings == {None, "This version is deprecated. Use v1beta2 instead."}


def test_v1beta1_is_served_and_never_stored() -> None:
    for kind in kueue.KINDS:
        crd = v1beta1_crds.overlaid(crds.crd(kind), {"url": "https://somewhere/convert"})
        versions = {each["name"]: (each["served"], each["storage"]) for each in crd["spec"]["versions"]}
        assert versions == {"v1beta2": (True, True), "v1beta1": (True, False)}
        assert crd["spec"]["versions"][0] == crds.crd(kind)["spec"]["versions"][0]


def test_five_kinds_are_converted_by_the_webhook() -> None:
    converted = {plural for plural in PLURALS.values() if v1beta1_crds.conversion(plural, {})}
    assert converted == {"workloads", "clusterqueues", "localqueues", "cohorts", "multikueueclusters"}
    (said,) = v1beta1_crds.conversion("workloads", {"url": "u"}).values()
    assert said == {
        "strategy": "Webhook",
        "webhook": {"clientConfig": {"url": "u"}, "conversionReviewVersions": ["v1"]},
    }


def test_the_overlay_asks_where_the_other_webhooks_are_asked() -> None:
    settings = installed_settings()
    service = ByService(settings.namespace, settings.internal_cert_management.webhook_service_name)
    assert service.client_config("/convert") == {"service": v1beta1_crds.SERVICE}


def test_columns_are_those_of_v1beta2_on_the_old_fields() -> None:
    columns = v1beta1_crds.version("clusterqueues")["additionalPrinterColumns"]
    assert columns[0] == {"name": "Cohort", "jsonPath": ".spec.cohort", "type": "string"}
    assert "selectableFields" not in v1beta1_crds.version("workloads")
    assert len(v1beta1_crds.version("workloads")["additionalPrinterColumns"]) == 5


# ------------------------------------------------------------------ cost


def test_every_list_says_how_it_merges_and_is_bounded() -> None:
    lists = {path: node for path, node in OLD_NODES.items() if node.get("type") == "array"}
    assert {path for path, node in lists.items() if "x-kubernetes-list-type" not in node} == set()
    assert {path for path, node in lists.items() if "maxItems" not in node and "namespaceSelector" not in path} == set()


def test_no_kind_has_more_rules_than_in_v1beta2() -> None:
    def count(nodes: dict[str, dict[str, Any]], kind: str) -> int:
        found = (node for path, node in nodes.items() if path.split(".")[0] == kind)
        return sum(len(node.get("x-kubernetes-validations", ())) for node in found)

    more = {kind: count(OLD_NODES, kind) - count(NEW_NODES, kind) for kind in PLURALS}
    assert {kind: number for kind, number in more.items() if number > 0} == {}


def test_no_rule_walks_the_domains() -> None:
    at = "Workload.status.admission.podSetAssignments[].topologyAssignment"
    assert {path for path, node in OLD_NODES.items() if path.startswith(at) and "x-kubernetes-validations" in node} == (
        set()
    )


# ------------------------------------------------------------------ files


def test_the_files_are_fresh() -> None:
    folder = webhook_config() / v1beta1_crds.FOLDER
    assert "".join(crds.stale(folder, v1beta1_crds.files())) == "", "run `python -m admission.api.crds --overlay`"


def test_check_is_the_exit_status(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    monkeypatch.setattr(crds, "webhook_config", lambda: tmp_path)
    assert crds.main(["--overlay", "--check"]) == 1
    assert "crds --overlay`" in capsys.readouterr().err
    assert crds.main(["--overlay"]) == 0
    assert crds.main(["--overlay", "--check"]) == 0
    assert not (tmp_path / "crds").exists()


def test_a_patch_adds_the_version_and_the_conversion() -> None:
    text = v1beta1_crds.files()["kueue.x-k8s.io_workloads.yaml"]
    operations = {each["path"]: each["value"] for each in yaml.safe_load(text)}
    assert operations["/spec/versions/-"] == v1beta1_crds.version("workloads")
    assert operations["/spec/conversion"]["webhook"]["clientConfig"] == {"service": v1beta1_crds.SERVICE}
    (only,) = yaml.safe_load(v1beta1_crds.files()["kueue.x-k8s.io_topologies.yaml"])
    assert only["path"] == "/spec/versions/-"


def test_muster_may_put_its_authority_into_those_crds_and_no_others() -> None:
    role, binding = yaml.safe_load_all(v1beta1_crds.files()["rbac.yaml"])
    (rule,) = role["rules"]
    assert rule["verbs"] == ["get", "patch"]
    assert rule["resourceNames"] == [f"{plural}.kueue.x-k8s.io" for plural in v1beta1.CONVERTED]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
