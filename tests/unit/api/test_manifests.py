"""The manifests in `webhook-config/` agree with the settings that they carry, with each other and with the code."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from admission.api.job_kinds import JOB_KINDS
from admission.resources import webhook_config
from admission.settings import GpuPods, Integrations, LabelSelector, Muster, Settings, load
from admission.settings.problems import FRAMEWORKS
from admission.webhook.configuration import ByService, installed_settings, manifests

FOLDER = webhook_config()
SETTINGS = load(FOLDER / "configuration.yaml")


def documents(name: str) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all((FOLDER / name).read_text()) if each]


def one(name: str, kind: str, called: str) -> dict[str, Any]:
    (found,) = [each for each in documents(name) if each["kind"] == kind and each["metadata"]["name"] == called]
    return found


DEPLOYMENT = one("deployment.yaml", "Deployment", "muster")
CONTAINER = DEPLOYMENT["spec"]["template"]["spec"]["containers"][0]
PORTS = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}


def test_webhooks_and_policies_are_those_of_the_settings() -> None:
    service = ByService(SETTINGS.namespace, SETTINGS.internal_cert_management.webhook_service_name)
    assert manifests(SETTINGS, service) == manifests(installed_settings(), service)


def test_everything_is_listed_in_the_kustomization() -> None:
    listed = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]
    there = {path.name for path in FOLDER.glob("*.yaml")} | {path.name for path in FOLDER.iterdir() if path.is_dir()}
    assert there - set(listed) == {"kustomization.yaml", "configuration.yaml", "overlays", "monitoring", "helm"}


def test_the_container_listens_where_the_settings_say() -> None:
    assert {
        "webhook": SETTINGS.webhook.port,
        "metrics": int(SETTINGS.metrics.bind_address.removeprefix(":")),
        "visibility": SETTINGS.visibility_server.bind_port,
        "health": int(SETTINGS.health.health_probe_bind_address.removeprefix(":")),
    } == PORTS
    assert CONTAINER["startupProbe"]["httpGet"]["path"] == f"/{SETTINGS.health.liveness_endpoint_name}"
    assert CONTAINER["livenessProbe"]["httpGet"]["path"] == f"/{SETTINGS.health.liveness_endpoint_name}"
    assert CONTAINER["readinessProbe"]["httpGet"]["path"] == f"/{SETTINGS.health.readiness_endpoint_name}/serving"


@pytest.mark.parametrize("kind", ["Service", "Deployment", "Secret"])
def test_what_is_ours_lives_in_our_namespace(kind: str) -> None:
    found = [each for name in ("services.yaml", "deployment.yaml") for each in documents(name) if each["kind"] == kind]
    assert {each["metadata"]["namespace"] for each in found} == {SETTINGS.namespace}


def test_services_reach_the_pods() -> None:
    labels = DEPLOYMENT["spec"]["template"]["metadata"]["labels"]
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == labels
    services = {each["metadata"]["name"]: each["spec"] for each in documents("services.yaml")}
    for spec in services.values():
        assert spec["selector"] == labels
        assert {port["targetPort"] for port in spec["ports"]} <= set(PORTS)
    assert services[SETTINGS.internal_cert_management.webhook_service_name]["ports"][0]["port"] == 443
    for name in ("v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io", "v1.inspection.muster.dev"):
        spec = one("apiservice.yaml", "APIService", name)["spec"]
        assert f"{spec['version']}.{spec['group']}" == name
        assert spec["service"]["name"] in services
        assert spec["service"]["namespace"] == SETTINGS.namespace


def test_everyone_may_ask_the_inspection_api() -> None:
    (rule,) = one("rbac-people.yaml", "ClusterRole", "muster-inspection-caller")["rules"]
    assert (rule["apiGroups"], set(rule["verbs"])) == (["inspection.muster.dev"], {"get", "list"})
    binding = one("rbac-people.yaml", "ClusterRoleBinding", "muster-inspection-caller")
    assert binding["roleRef"]["name"] == "muster-inspection-caller"
    assert [subject["name"] for subject in binding["subjects"]] == ["system:authenticated"]


def test_rights_are_for_what_the_settings_name() -> None:
    rules = one("rbac.yaml", "Role", "muster")["rules"]
    named = {what: rule["resourceNames"] for rule in rules for what in rule["resources"] if "resourceNames" in rule}
    assert named == {
        "secrets": [SETTINGS.internal_cert_management.webhook_secret_name],
        "leases": [SETTINGS.leader_election.resource_name],
    }
    assert one("deployment.yaml", "Secret", SETTINGS.internal_cert_management.webhook_secret_name)["type"] == "Opaque"


def test_the_policies_that_may_be_changed_are_all_that_there_can_be() -> None:
    everywhere, somewhere = LabelSelector(), LabelSelector(match_labels={"gpus": "yes"})
    every = Integrations(frameworks=FRAMEWORKS)
    made = {
        each["metadata"]["name"]
        for selector in (everywhere, somewhere)
        for each in manifests(
            Settings(integrations=every, muster=Muster(gpu_pods=GpuPods(namespace_selector=selector))),
            ByService("muster-system", "kueue-webhook-service"),
        )
        if each["kind"] == "ValidatingAdmissionPolicy"
    }
    rules = one("rbac.yaml", "ClusterRole", "muster")["rules"]
    (named,) = [
        rule for rule in rules if "validatingadmissionpolicies" in rule["resources"] and "delete" in rule["verbs"]
    ]
    assert set(named["resourceNames"]) == made


def test_every_kind_of_job_may_be_followed_and_changed() -> None:
    rules = one("rbac.yaml", "ClusterRole", "muster")["rules"]
    for kind in JOB_KINDS:
        verbs = {
            verb
            for rule in rules
            if kind.group in rule["apiGroups"] and kind.plural in rule["resources"]
            for verb in rule["verbs"]
        }
        assert verbs == {"get", "list", "watch", "patch", "delete"}, kind.kind


def test_nothing_is_granted_wholesale() -> None:
    for role in documents("rbac.yaml"):
        for rule in role.get("rules", []):
            assert "*" not in rule["verbs"] + rule["resources"] + rule["apiGroups"], rule
            if "secrets" in rule["resources"]:
                assert role["kind"] == "Role"


def test_the_container_can_write_where_it_has_to_and_nowhere_else() -> None:
    mounts = {each["mountPath"] for each in CONTAINER["volumeMounts"] if not each.get("readOnly")}
    assert mounts == {SETTINGS.muster.state_dir, "/tmp"}
    assert SETTINGS.webhook.cert_dir.startswith("/tmp/")
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_image_is_the_one_that_the_dockerfile_makes_and_runs_as_nobody() -> None:
    text = (FOLDER / "Dockerfile").read_text()
    assert f"--tag {CONTAINER['image']} ." in text
    pod = DEPLOYMENT["spec"]["template"]["spec"]["securityContext"]
    assert f"USER {pod['runAsUser']}:{pod['runAsGroup']}" in text
    assert [line for line in text.splitlines() if line.startswith("FROM ") and ("/" in line or "." not in line)] == []
    assert "--require-hashes" in text
