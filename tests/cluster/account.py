"""Muster's own ServiceAccount with the rights in `webhook-config/rbac.yaml`: tests start Muster as nobody else.

What the API server refuses it is in the server's audit log; the `control_plane` fixture looks there at the end.
"""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from admission.resources import webhook_config
from tests.controlplane.cluster import Api, ControlPlane, eventually

NAMESPACE = "muster-system"
NAME = f"system:serviceaccount:{NAMESPACE}:muster"
#: An API server that is started with these writes every call of the account to its log.
AUDITED = (
    f"--audit-policy-file={Path(__file__).parents[1] / 'controlplane' / 'audit.yaml'}",
    "--audit-log-path=-",
)
#: Longer than any test runs.
_SECONDS = 24 * 3600


def kubeconfig_of_muster(plane: ControlPlane) -> str:
    """A kubeconfig with a token of the account, which is made with its rights where it is not there yet."""
    path = plane.folder / "muster.kubeconfig"
    if not path.exists():
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        manifests = list(yaml.safe_load_all((webhook_config() / "rbac.yaml").read_text()))
        for each in (namespace, *manifests):
            plane.api.apply(each)
        for each in manifests:
            eventually(lambda each=each: _may_all(plane.api, each), message="the account has its rights")
        path.write_text(with_token(plane.api, plane.kubeconfig, NAMESPACE, "muster"))
    return str(path)


def _may_all(api: Api, role: dict[str, Any]) -> bool:
    """Whether the API server knows of a role and its binding, which it learns a moment after they are stored."""
    group = f"system:serviceaccounts:{NAMESPACE}"
    for rule in role["rules"] if role["kind"] in {"ClusterRole", "Role"} else ():
        asked = {"group": rule["apiGroups"][0], "verb": rule["verbs"][0]}
        asked["resource"], _, asked["subresource"] = rule["resources"][0].partition("/")
        asked["name"] = (rule.get("resourceNames") or [""])[0]
        if role["kind"] == "Role":
            asked["namespace"] = role["metadata"]["namespace"]
        spec = {"user": NAME, "groups": ["system:serviceaccounts", group], "resourceAttributes": asked}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        if not answer["status"]["allowed"]:
            return False
    return True


def with_token(api: Api, kubeconfig: str, namespace: str, account: str) -> str:
    """The content of this kubeconfig with a token of a service account in place of its user's."""
    wanted = {"expirationSeconds": _SECONDS}
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": wanted}
    answer = api.request("POST", api.path("ServiceAccount", namespace, account, "token"), request)
    config = yaml.safe_load(Path(kubeconfig).read_text())
    config["users"][0]["user"] = {"token": answer["status"]["token"]}
    return str(yaml.safe_dump(config))


def calls(plane: ControlPlane) -> list[dict[str, Any]]:
    """The account's calls so far, as audit events; of an API server that is `AUDITED`."""
    log = (plane.folder / "logs" / "kube-apiserver.log").read_text(errors="replace")
    log = log[: log.rfind("\n") + 1]  # the last line may be half written
    return [json.loads(line) for line in log.splitlines() if line.startswith('{"kind":"Event","apiVersion":"audit')]


def refused(plane: ControlPlane) -> list[str]:
    """Those of its calls for which it lacked the right, each once. A server that has just started knows no rights."""
    found = set()
    for each in calls(plane):
        at = datetime.fromisoformat(each["requestReceivedTimestamp"])
        if each.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid" and not any(
            began <= at <= ready for began, ready in plane.restarts
        ):
            found.add(f"{each['verb']} {each['requestURI']}: {each['responseStatus'].get('message')}")
    return sorted(found)
