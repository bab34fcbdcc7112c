"""The Helm chart installs what the kustomization installs, and its values are what they are said to be."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml

from admission.settings import parse
from publishing import chart
from tests.helm import build

ROOT = Path(__file__).parents[3]
MANIFESTS = ROOT / "webhook-config"
CHART = ROOT / chart.CHART
VALUES = yaml.safe_load((CHART / "values.yaml").read_text())
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
KEEP = "helm.sh/resource-policy"
CHECKSUM = "checksum/configuration"

Objects = dict[tuple[str, str, str], dict[str, Any]]


def documents(text: str) -> Iterator[dict[str, Any]]:
    return (each for each in yaml.load_all(text, Loader=yaml.CSafeLoader) if each)


def by_name(objects: Iterator[dict[str, Any]]) -> Objects:
    found: Objects = {}
    for each in objects:
        key = (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"])
        assert key not in found
        found[key] = each
    return found


def kustomized() -> Objects:
    """What `kubectl apply -k webhook-config` applies, but for the namespace; the ConfigMap without the hash."""
    listed = yaml.safe_load((MANIFESTS / "kustomization.yaml").read_text())
    files = [MANIFESTS / name for name in listed["resources"] if name not in {"namespace.yaml", "crds"}]
    files += sorted((MANIFESTS / "crds").glob("kueue*.yaml"))
    (generator,) = listed["configMapGenerator"]
    configuration = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": generator["name"],
            "namespace": generator["namespace"],
            "labels": generator["options"]["labels"],
        },
        "data": {"config.yaml": (MANIFESTS / "configuration.yaml").read_text()},
    }
    return by_name(iter([*(each for path in files for each in documents(path.read_text())), configuration]))


@pytest.fixture(scope="module")
def helm() -> str:
    found = build.find()
    if found is None:
        pytest.skip("no helm: none on the PATH, none in the cache, and MUSTER_HELM does not ask for one to be built")
    return found


def rendered(helm: str, namespace: str = "muster-system", **values: Any) -> Objects:
    command = [helm, "template", "muster", str(CHART), "--namespace", namespace, "--kube-version", "1.36.0"]
    for name, value in values.items():
        command += ["--set-json", f"{name.replace('__', '.')}={json.dumps(value)}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return by_name(documents(done.stdout))


def plain(objects: Objects) -> Objects:
    """Without what only Helm knows, and with the settings read."""
    objects = copy.deepcopy(objects)
    for (kind, _, _), each in objects.items():
        notes = each["metadata"].get("annotations", {})
        if kind == "CustomResourceDefinition" and notes.pop(KEEP, None) == "keep" and not notes:
            del each["metadata"]["annotations"]
        if kind == "Deployment":
            each["spec"]["template"]["metadata"]["annotations"].pop(CHECKSUM, None)
        if kind == "ConfigMap":
            each["data"]["config.yaml"] = yaml.safe_load(each["data"]["config.yaml"])
    return objects


def test_by_default_it_installs_what_the_kustomization_installs(helm: str) -> None:
    want, found = plain(kustomized()), plain(rendered(helm))
    assert found.keys() == want.keys()
    for key, each in want.items():
        assert found[key] == each, key


def test_in_another_namespace_nothing_is_left_in_the_usual_one(helm: str) -> None:
    objects = rendered(helm, "queues")
    assert {namespace for _, namespace, _ in objects} == {"", "queues", "kube-system"}
    text = yaml.safe_dump_all(objects.values())
    assert "muster-system" not in re.sub(r"(?m)^#.*$", "", text)
    assert parse(objects["ConfigMap", "queues", "muster-configuration"]["data"]["config.yaml"]).namespace == "queues"


def test_a_namespace_that_looks_like_a_number_stays_a_name(helm: str) -> None:
    assert rendered(helm, "42")["Deployment", "42", "muster"]["metadata"]["namespace"] == "42"


def deployment(helm: str, **values: Any) -> dict[str, Any]:
    return rendered(helm, **values)["Deployment", "muster-system", "muster"]["spec"]


def test_changed_settings_are_another_pod_with_other_ports(helm: str) -> None:
    before, after = deployment(helm), deployment(helm, settings__metrics__bindAddress="0.0.0.0:9999")
    assert before["template"]["metadata"] != after["template"]["metadata"]
    ports = {each["name"]: each["containerPort"] for each in after["template"]["spec"]["containers"][0]["ports"]}
    assert ports == {"webhook": 9443, "metrics": 9999, "visibility": 8082, "health": 8081}


def test_values_of_the_pod_and_the_container(helm: str) -> None:
    given = {
        "replicas": 3, "image__digest": "sha256:" + "a" * 64, "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"},
        "tolerations": [{"operator": "Exists"}], "nodeSelector": {"x": "y"}, "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1}], "imagePullSecrets": [{"name": "s"}], "priorityClassName": "",
        "extraEnv": [{"name": "E", "value": "1"}], "extraVolumes": [{"name": "v", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}], "resources": {"limits": {"cpu": "1"}},
        "journal__secretName": "other", "journal__secretKey": "dsn",
    }  # fmt: skip
    spec = deployment(helm, **given)
    pod, (container,) = spec["template"]["spec"], spec["template"]["spec"]["containers"]
    assert spec["replicas"] == 3
    assert container["image"] == "muster@sha256:" + "a" * 64
    assert spec["template"]["metadata"]["labels"]["a"] == "b"
    assert spec["template"]["metadata"]["annotations"]["c"] == "d"
    for name in ("tolerations", "affinity", "topologySpreadConstraints", "imagePullSecrets"):
        assert pod[name] == given[name]
    # Helm merges maps.
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux", "x": "y"}
    assert "priorityClassName" not in pod
    assert container["resources"]["limits"]["cpu"] == "1"
    assert [each["name"] for each in container["env"]] == ["MUSTER_JOURNAL_URL", "E"]
    assert container["env"][0]["valueFrom"]["secretKeyRef"] == {"name": "other", "key": "dsn", "optional": True}
    assert container["volumeMounts"][-1] == {"name": "v", "mountPath": "/v"}
    assert pod["volumes"][-1] == {"name": "v", "emptyDir": {}}


def test_a_volume_of_its_own_is_not_mounted_twice(helm: str) -> None:
    objects = rendered(helm, persistence__enabled=True, persistence__size="5Gi")
    claim = objects["PersistentVolumeClaim", "muster-system", "muster-state"]
    assert claim["spec"]["resources"]["requests"]["storage"] == "5Gi"
    spec = objects["Deployment", "muster-system", "muster"]["spec"]
    (state,) = [each for each in spec["template"]["spec"]["volumes"] if each["name"] == "state"]
    assert state == {"name": "state", "persistentVolumeClaim": {"claimName": "muster-state"}}
    assert spec["strategy"] == {"type": "Recreate"}
    with pytest.raises(RuntimeError, match="for one replica"):
        rendered(helm, persistence__enabled=True, replicas=2)


def test_crds_can_be_left_out_left_behind_and_serve_v1beta1(helm: str) -> None:
    def crds(**values: Any) -> list[dict[str, Any]]:
        return [each for (kind, _, _), each in rendered(helm, **values).items() if kind == "CustomResourceDefinition"]

    assert all(each["metadata"]["annotations"] == {KEEP: "keep"} for each in crds())
    assert all("annotations" not in each["metadata"] for each in crds(crds__keep=False))
    assert crds(crds__install=False) == []
    served = {each["metadata"]["name"]: each for each in crds(settings__muster__serveV1beta1=True)}
    versions = [each["name"] for each in served["workloads.kueue.x-k8s.io"]["spec"]["versions"]]
    assert sorted(versions) == ["v1beta1", "v1beta2"]
    names = {name for kind, _, name in rendered(helm, settings__muster__serveV1beta1=True) if kind == "ClusterRole"}
    assert "muster-conversion" in names


def test_the_network_policy_lets_through_what_it_is_told(helm: str) -> None:
    key = ("NetworkPolicy", "muster-system", "muster")
    assert key not in rendered(helm, networkPolicy__enabled=False)
    given = {"networkPolicy__egressPorts": [4318, 3306], "networkPolicy__metricsNamespaceLabels": {"a": "b"}}
    spec = rendered(helm, **given)[key]["spec"]
    assert {port["port"] for rule in spec["egress"] for port in rule["ports"]} >= {443, 5432, 4318, 3306}
    labels = [each["namespaceSelector"]["matchLabels"] for rule in spec["ingress"] for each in rule.get("from", ())]
    assert [each.get("a") for each in labels] == ["b"]


def test_monitoring_is_what_the_folder_of_that_name_has(helm: str) -> None:
    objects = rendered(
        helm,
        monitoring__rules__enabled=True,
        monitoring__serviceMonitor={"enabled": True, "labels": {"release": "prometheus"}},
        monitoring__dashboard__enabled=True,
        podDisruptionBudget__enabled=True,
    )
    folder = MANIFESTS / "monitoring"
    rules = objects["PrometheusRule", "muster-system", "muster"]["spec"]
    assert rules == yaml.safe_load((folder / "rules.yaml").read_text())
    board = objects["ConfigMap", "muster-system", "muster-dashboard"]["data"]["muster.json"]
    assert json.loads(board) == json.loads((folder / "dashboard.json").read_text())
    monitor = objects["ServiceMonitor", "muster-system", "muster"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert objects["PodDisruptionBudget", "muster-system", "muster"]["spec"]["maxUnavailable"] == 1


def test_helm_lint_has_nothing_to_say_and_refuses_what_the_schema_refuses(helm: str) -> None:
    done = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    with pytest.raises(RuntimeError, match="gpuPod"):
        rendered(helm, settings__muster__gpuPod={})


# ------------------------------------------------------------------ without helm


def test_the_chart_is_of_this_version() -> None:
    about = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert (about["apiVersion"], about["name"]) == ("v2", "muster")
    assert (about["version"], about["appVersion"]) == (version, version)


def test_the_values_fit_their_schema() -> None:
    jsonschema_rs.validate(SCHEMA, VALUES)


@pytest.mark.parametrize(
    "wrong",
    [
        {"replica": 2},
        {"replicas": "two"},
        {"image": {"pullPolicy": "Sometimes"}},
        {"image": {"digest": "latest"}},
        {"settings": {"webhok": {}}},
        {"settings": {"muster": {"gpuPods": {"withoutQueue": "Maybe"}}}},
        {"settings": {"muster": {"journal": {"retention": 30}}}},
        {"settings": {"namespace": "elsewhere"}},
    ],
    ids=str,
)
def test_what_is_written_wrong_is_refused(wrong: dict[str, Any]) -> None:
    assert not jsonschema_rs.is_valid(SCHEMA, wrong)


@pytest.mark.parametrize(
    "right",
    [
        {"waitForPodsReady": {"timeout": "5m", "recoveryTimeout": None}},
        {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}},
        {"managedJobsNamespaceSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}},
        {"featureGates": {"PartialAdmission": False}, "muster": {"tracing": {"endpoint": "http://c:4318"}}},
    ],
    ids=str,
)
def test_settings_that_the_code_reads_are_not_refused(right: dict[str, Any]) -> None:
    jsonschema_rs.validate(SCHEMA, {"settings": right})
    parse(yaml.safe_dump({"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **right}))


def test_the_settings_are_those_of_the_manifests() -> None:
    want = yaml.safe_load((MANIFESTS / "configuration.yaml").read_text())
    for name in ("apiVersion", "kind", "namespace"):
        del want[name]
    assert VALUES["settings"] == want


#: Values that only hold others.
GROUPS = {"image", "journal", "persistence", "crds", "networkPolicy", "podDisruptionBudget", "monitoring"} | {
    f"monitoring.{each}" for each in ("serviceMonitor", "rules", "dashboard")
}


def leaves(values: dict[str, Any], path: str = "") -> Iterator[str]:
    for name, value in values.items():
        place = f"{path}.{name}" if path else name
        if isinstance(value, dict) and place in GROUPS:
            yield from leaves(value, place)
        else:
            yield place


def test_every_value_is_documented_used_and_in_the_schema() -> None:
    lines = (CHART / "values.yaml").read_text().splitlines()
    texts = [path.read_text() for path in CHART.glob("templates/**/*") if path.is_file()]
    used = {name for text in texts for name in re.findall(r"\.Values\.([\w.]+)", text)}
    for leaf in leaves(VALUES):
        name = leaf.rpartition(".")[2]
        indent = "  " * leaf.count(".")
        at = [number for number, line in enumerate(lines) if line.startswith(f"{indent}{name}:")]
        assert any(lines[number - 1].strip().startswith("# -- ") for number in at), f"{leaf} is not documented"
        is_used = leaf in used or any(leaf.startswith(f"{each}.") or each.startswith(f"{leaf}.") for each in used)
        assert is_used, f"{leaf} has no effect"
        properties: dict[str, Any] = SCHEMA
        for step in leaf.split("."):
            properties = properties["properties"][step]
    unknown = {name for name in used if not _is_there(VALUES, name)}
    assert unknown == set()


def _is_there(values: Any, path: str) -> bool:
    for step in path.split("."):
        if not isinstance(values, dict) or step not in values:
            return False
        values = values[step]
    return True


def test_a_manifest_that_the_chart_does_not_know_is_an_error() -> None:
    text = (MANIFESTS / "deployment.yaml").read_text()
    with pytest.raises(chart.UnknownManifestError, match="instead of once"):
        chart.deployment(text.replace("replicas: 1", "replicas: 2"))
    with pytest.raises(chart.UnknownManifestError, match="its own"):
        chart.template("a: '{{ b }}'")
