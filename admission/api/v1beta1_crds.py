"""Makes the overlay that has the CRDs serve v1beta1 too, from the types of v1beta1 and the service that converts them.

`python -m admission.api.crds --overlay` writes it to `webhook-config/overlays/v1beta1/component` as patches for
kustomize; `overlaid` gives the same for one CRD. v1beta1 is never stored, and the CRDs themselves stay as they are.
"""

from __future__ import annotations

from typing import Any, Final

from admission.api import crds, names, v1beta1

FOLDER: Final = "overlays/v1beta1/component"
#: Where the manifests in `webhook-config/` put the webhook; whoever keeps its certificate puts the authority in.
SERVICE: Final = {
    "namespace": "muster-system",
    "name": "kueue-webhook-service",
    "path": v1beta1.CONVERSION_PATH,
    "port": 443,
}

_KINDS: Final = {kind.DEFINITION.plural: kind for kind in v1beta1.KINDS}  # type: ignore[attr-defined]  # each has one


def overlaid(crd: dict[str, Any], client_config: dict[str, Any]) -> dict[str, Any]:
    """The CRD of a kind, serving v1beta1 beside v1beta2; `client_config` says where the webhook is that converts it."""
    plural = crd["spec"]["names"]["plural"]
    versions = [*crd["spec"]["versions"], version(plural)]
    return {**crd, "spec": {**crd["spec"], "versions": versions, **conversion(plural, client_config)}}


def version(plural: str) -> dict[str, Any]:
    """What the CRD says of v1beta1."""
    kind = _KINDS[plural]
    served = crds.version(kind, names.V1BETA1, storage=False)
    if kind.__name__ in v1beta1.NOT_DEPRECATED:
        return served
    return {**served, "deprecated": True, "deprecationWarning": v1beta1.DEPRECATION_WARNING}


def conversion(plural: str, client_config: dict[str, Any]) -> dict[str, Any]:
    """The field `conversion` of the CRD; none where the API server has nothing to do but change the version."""
    if plural not in v1beta1.CONVERTED:
        return {}
    webhook = {"clientConfig": client_config, "conversionReviewVersions": ["v1"]}
    return {"conversion": {"strategy": "Webhook", "webhook": webhook}}


def files() -> dict[str, str]:
    """Name and text of every file of the component: a patch for each CRD, Muster's right to put its authority in."""
    patches = {f"{names.GROUP}_{plural}.yaml": _patch(plural) for plural in _KINDS}
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "resources": ["rbac.yaml"],
        "patches": [
            {
                "path": f"{names.GROUP}_{plural}.yaml",
                "target": {"kind": "CustomResourceDefinition", "name": crd_name(plural)},
            }
            for plural in sorted(_KINDS)
        ],
    }
    texts = {name: crds.to_yaml(patch) for name, patch in patches.items()}
    return {**texts, "rbac.yaml": crds.to_yaml(*_rights()), "kustomization.yaml": crds.to_yaml(kustomization)}


def crd_name(plural: str) -> str:
    return f"{plural}.{names.GROUP}"


def _patch(plural: str) -> list[dict[str, Any]]:
    changed = {"/spec/versions/-": version(plural)}
    if said := conversion(plural, {"service": SERVICE}):
        changed["/spec/conversion"] = said["conversion"]
    return [{"op": "add", "path": path, "value": value} for path, value in changed.items()]


def _rights() -> tuple[dict[str, Any], dict[str, Any]]:
    name = "muster-conversion"
    metadata = {"name": name, "labels": {"app.kubernetes.io/name": "muster"}}
    group = "rbac.authorization.k8s.io"
    rule = {
        "apiGroups": ["apiextensions.k8s.io"],
        "resources": ["customresourcedefinitions"],
        "verbs": ["get", "patch"],
        "resourceNames": [crd_name(plural) for plural in v1beta1.CONVERTED],
    }
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": [rule]}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": "muster", "namespace": SERVICE["namespace"]}],
    }
    return role, binding
