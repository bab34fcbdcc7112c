"""`kubectl apply -k webhook-config` on a real API server: accepted as it is, twice, with the rights that are meant."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from admission.api.kueue import KINDS
from admission.resources import webhook_config
from tests.controlplane.cluster import Api, ApiError, Authority, ControlPlane, eventually

pytestmark = pytest.mark.cluster

CONTROL_PLANE = {
    "controllers": ["clusterrole-aggregation-controller"],
    "users": {"ada": ["batch-admins"], "bob": ["batch-users"], "eve": []},
}
NAMESPACE = "muster-system"
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:muster"


@pytest.fixture(scope="module")
def applied(control_plane: ControlPlane) -> str:
    """What kubectl said."""
    return apply(control_plane)


def apply(control_plane: ControlPlane, *flags: str) -> str:
    done = control_plane.kubectl("apply", "--validate=strict", *flags, "-k", str(webhook_config()), check=False)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


def rendered(control_plane: ControlPlane) -> Iterator[dict[str, Any]]:
    yield from yaml.safe_load_all(control_plane.kubectl("kustomize", str(webhook_config())).stdout)


def test_everything_is_applied(control_plane: ControlPlane, applied: str) -> None:
    assert len(applied.splitlines()) == len(list(rendered(control_plane)))
    for kind in KINDS:
        assert f"/{kind.DEFINITION.plural}.kueue.x-k8s.io created" in applied


def test_again_nothing_changes(control_plane: ControlPlane, applied: str) -> None:
    changed = [line for line in apply(control_plane).splitlines() if not line.endswith(" unchanged")]
    # kubectl gives an empty list of match conditions to a webhook that has none when another one has some.
    assert [line for line in changed if not line.startswith("mutatingwebhookconfiguration")] == []


def test_certificates_that_were_made_outlive_an_apply(
    control_plane: ControlPlane, api: Api, applied: str, tmp_path: Path
) -> None:
    Authority("test").write(tmp_path / "ca.crt")
    authority = base64.b64encode((tmp_path / "ca.crt").read_bytes()).decode()
    name = "kueue-webhook-server-cert"
    api.patch("Secret", name, {"data": {"tls.crt": "eA=="}}, NAMESPACE)
    config = "muster-mutating-webhook-configuration"
    webhooks = api.get("MutatingWebhookConfiguration", config)["webhooks"]
    paths = [f"/webhooks/{i}/clientConfig/caBundle" for i in range(len(webhooks))]
    patch = [{"op": "add", "path": path, "value": authority} for path in paths]
    api.patch("MutatingWebhookConfiguration", config, patch)
    apply(control_plane)
    assert api.get("Secret", name, NAMESPACE)["data"] == {"tls.crt": "eA=="}
    stored = api.get("MutatingWebhookConfiguration", config)["webhooks"]
    assert {each["clientConfig"]["caBundle"] for each in stored} == {authority}


def test_the_pod_is_restricted_and_its_namespace_demands_it(api: Api, applied: str) -> None:
    template = api.get("Deployment", "muster", NAMESPACE)["spec"]["template"]
    metadata = {"name": "p", "namespace": NAMESPACE}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    assert api.create(pod, dry_run=True)["spec"]["priority"] == 2_000_000_000
    pod["spec"] = {**template["spec"], "hostNetwork": True}
    with pytest.raises(ApiError, match="restricted"):
        api.create(pod, dry_run=True)


def test_the_pod_finds_its_settings(api: Api, applied: str) -> None:
    spec = api.get("Deployment", "muster", NAMESPACE)["spec"]["template"]["spec"]
    (name,) = [each["configMap"]["name"] for each in spec["volumes"] if "configMap" in each]
    text = (webhook_config() / "configuration.yaml").read_text()
    assert api.get("ConfigMap", name, NAMESPACE)["data"] == {"config.yaml": text}


def test_the_visibility_api_is_aggregated(api: Api, applied: str) -> None:
    names = {each["metadata"]["name"] for each in api.list("APIService")}
    assert {"v1beta1.visibility.kueue.x-k8s.io", "v1beta2.visibility.kueue.x-k8s.io"} <= names


ALLOWED = [
    ("list", "", "pods", "", "a"), ("watch", "batch", "jobs", "", "a"), ("watch", "", "nodes", "", ""),
    ("patch", "", "pods", "", "a"), ("delete", "", "pods", "", "a"), ("patch", "", "pods", "status", "a"),
    ("patch", "batch", "jobs", "", "a"), ("patch", "batch", "jobs", "status", "a"),
    ("create", "kueue.x-k8s.io", "workloads", "", "a"), ("patch", "kueue.x-k8s.io", "workloads", "status", "a"),
    ("patch", "kueue.x-k8s.io", "clusterqueues", "", ""), ("patch", "kueue.x-k8s.io", "clusterqueues", "status", ""),
    ("create", "", "events", "", "a"), ("create", "coordination.k8s.io", "leases", "", NAMESPACE),
    ("create", "authentication.k8s.io", "tokenreviews", "", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", "", ""),
]  # fmt: skip
REFUSED = [
    ("get", "", "secrets", "", "a"), ("list", "", "secrets", "", NAMESPACE), ("create", "", "secrets", "", NAMESPACE),
    ("create", "", "pods", "", "a"), ("create", "", "pods", "exec", "a"), ("create", "", "pods", "binding", "a"),
    ("create", "batch", "jobs", "", "a"), ("patch", "", "nodes", "", ""), ("patch", "", "namespaces", "", ""),
    ("delete", "kueue.x-k8s.io", "clusterqueues", "", ""), ("patch", "kueue.x-k8s.io", "localqueues", "", "a"),
    ("create", "coordination.k8s.io", "leases", "", "kube-system"),
    ("delete", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", ""),
    ("patch", "admissionregistration.k8s.io", "mutatingwebhookconfigurations", "", ""),
    ("patch", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", ""),
    ("delete", "admissionregistration.k8s.io", "validatingadmissionpolicies", "", ""),
    ("create", "rbac.authorization.k8s.io", "clusterrolebindings", "", ""),
]  # fmt: skip


def may(api: Api, user: str, groups: list[str], verb: str, group: str, resource: str, sub: str, namespace: str) -> bool:
    attributes = {"verb": verb, "group": group, "resource": resource, "subresource": sub, "namespace": namespace}
    review = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return answer["status"]["allowed"]


def test_muster_has_the_rights_that_it_uses_and_no_others(api: Api, applied: str) -> None:
    def may_all() -> bool:
        assert [each for each in ALLOWED if not may(api, ACCOUNT, [], *each)] == []
        return True

    eventually(may_all, message="the API server goes by the roles, a moment after they are stored")
    assert [each for each in REFUSED if may(api, ACCOUNT, [], *each)] == []


PEOPLE = [
    # verb, resource, subresource, admin may, user may
    ("create", "kueue.x-k8s.io", "clusterqueues", "", True, False),
    ("get", "kueue.x-k8s.io", "localqueues", "", True, True),
    ("delete", "kueue.x-k8s.io", "workloads", "", True, False),
    ("list", "kueue.x-k8s.io", "workloads", "", True, True),
    ("create", "batch", "jobs", "", True, True),
    ("patch", "kueue.x-k8s.io", "workloads", "status", False, False),
    ("get", "visibility.kueue.x-k8s.io", "clusterqueues", "pendingworkloads", True, False),
    ("get", "visibility.kueue.x-k8s.io", "localqueues", "pendingworkloads", True, True),
]


def test_people_have_the_rights_of_their_role(api: Api, applied: str) -> None:
    for role, group in (("muster-batch-admin-role", "batch-admins"), ("muster-batch-user-role", "batch-users")):
        api.create({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": group},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        })  # fmt: skip
    for user, group, rights in (
        ("ada", "batch-admins", [access for *access, admin, _ in PEOPLE if admin]),
        ("bob", "batch-users", [access for *access, _, user in PEOPLE if user]),
    ):
        # Of one role after the other.
        for each in rights:
            eventually(
                lambda user=user, group=group, each=each: may(api, user, [group], *each, "a"),
                message=f"roles are aggregated: {user} may {each}",
            )
    for *access, admin, user in PEOPLE:
        assert may(api, "ada", ["batch-admins"], *access, "a") is admin, access
        assert may(api, "bob", ["batch-users"], *access, "a") is user, access
        assert not may(api, "eve", [], *access, "a"), access


def test_view_shows_pending_workloads(api: Api, applied: str) -> None:
    def rules() -> list[str]:
        role = api.get("ClusterRole", "view")
        return [name for rule in role["rules"] for name in rule["resources"] if "pendingworkloads" in name]

    eventually(lambda: sorted(rules()) == ["clusterqueues/pendingworkloads", "localqueues/pendingworkloads"])


def test_server_side_apply_agrees(control_plane: ControlPlane, applied: str) -> None:
    lines = apply(control_plane, "--server-side", "--force-conflicts").splitlines()
    assert [line for line in lines if not line.endswith(" serverside-applied")] == []
