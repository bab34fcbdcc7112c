"""Makes those parts of the Helm chart that say the same as the manifests: so that they cannot differ from them.

Every resource of the kustomization becomes a template in which the namespace is the release's; in the Deployment what
`values.yaml` names is put in its place. Every substitution has to find what it replaces exactly once, so that a change
of the manifests that the chart does not know of is an error here, and never a chart that installs something else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from admission.api.crds import to_yaml
from publishing import dashboard
from publishing.settings import schema

CHART: Final = "webhook-config/helm"
#: Folders that hold nothing but made files.
MADE: Final = (f"{CHART}/made", f"{CHART}/templates/made")

_NAMESPACE: Final = "muster-system"
_HEADER: Final = "# Made from webhook-config by `python -m publishing`: change that, not this.\n"
#: Not a template of its own: Helm makes the namespace; the CRDs have one template for all.
_APART: Final = frozenset({"namespace.yaml", "crds", "deployment.yaml", "networkpolicy.yaml"})

#: In the Deployment: what stands there, and what the chart says in its place.
_PLACES: Final = (
    ("  replicas: 1\n", "  replicas: {{ .Values.replicas }}\n"),
    (
        "    type: RollingUpdate\n    rollingUpdate:\n      maxSurge: 1\n      maxUnavailable: 0\n",
        (
            "    {{- if .Values.persistence.enabled }}\n    # Two pods may not have the volume at once.\n"
            "    type: Recreate\n    {{- else }}\n"
            "    type: RollingUpdate\n    rollingUpdate:\n      maxSurge: 1\n      maxUnavailable: 0\n"
            "    {{- end }}\n"
        ),
    ),
    (
        "        app.kubernetes.io/component: server\n      annotations:\n",
        (
            "        app.kubernetes.io/component: server\n"
            "        {{- with .Values.podLabels }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"
            "      annotations:\n"
            "        # Changed settings are another pod.\n"
            '        checksum/configuration: {{ include "muster.configuration" . | sha256sum }}\n'
            "        {{- with .Values.podAnnotations }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"
        ),
    ),
    (
        "      serviceAccountName: muster\n",
        (
            "      {{- with .Values.imagePullSecrets }}\n      imagePullSecrets:\n      {{- toYaml . | nindent 6 }}\n"
            "      {{- end }}\n      serviceAccountName: muster\n"
        ),
    ),
    (
        "      priorityClassName: system-cluster-critical\n",
        "      {{- with .Values.priorityClassName }}\n      priorityClassName: {{ . | quote }}\n      {{- end }}\n",
    ),
    (
        "      nodeSelector:\n        kubernetes.io/os: linux\n",
        "".join(
            f"      {{{{- with .Values.{name} }}}}\n      {name}:\n        {{{{- toYaml . | nindent 8 }}}}\n"
            "      {{- end }}\n"
            for name in ("nodeSelector", "tolerations", "affinity", "topologySpreadConstraints")
        ),
    ),
    ("        image: muster:0.1.0\n", '        image: {{ include "muster.image" . | quote }}\n'),
    ("        imagePullPolicy: IfNotPresent\n", "        imagePullPolicy: {{ .Values.image.pullPolicy }}\n"),
    (
        "              name: muster-journal\n              key: url\n              optional: true\n",
        (
            "              name: {{ .Values.journal.secretName | quote }}\n"
            "              key: {{ .Values.journal.secretKey | quote }}\n              optional: true\n"
            "        {{- with .Values.extraEnv }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"
        ),
    ),
    ("          containerPort: 9443\n", "          containerPort: {{ int .Values.settings.webhook.port }}\n"),
    (
        "          containerPort: 8443\n",
        '          containerPort: {{ include "muster.port" .Values.settings.metrics.bindAddress }}\n',
    ),
    (
        "          containerPort: 8082\n",
        "          containerPort: {{ int .Values.settings.visibilityServer.bindPort }}\n",
    ),
    (
        "          containerPort: 8081\n",
        '          containerPort: {{ include "muster.port" .Values.settings.health.healthProbeBindAddress }}\n',
    ),
    (
        (
            "          requests:\n            cpu: 500m\n            memory: 512Mi\n"
            "          limits:\n            memory: 2Gi\n"
        ),
        "          {{- toYaml .Values.resources | nindent 10 }}\n",
    ),
    (
        "        - name: tmp\n          mountPath: /tmp\n",
        (
            "        - name: tmp\n          mountPath: /tmp\n"
            "        {{- with .Values.extraVolumeMounts }}\n        {{- toYaml . | nindent 8 }}\n        {{- end }}\n"
        ),
    ),
    ("          mountPath: /var/lib/muster\n", "          mountPath: {{ .Values.settings.muster.stateDir }}\n"),
    (
        "        emptyDir:\n          sizeLimit: 2Gi\n",
        (
            "        {{- if .Values.persistence.enabled }}\n        persistentVolumeClaim:\n"
            '          claimName: {{ .Values.persistence.existingClaim | default "muster-state" }}\n'
            "        {{- else }}\n        emptyDir:\n          sizeLimit: {{ .Values.persistence.size }}\n"
            "        {{- end }}\n"
        ),
    ),
    (
        "          medium: Memory\n          sizeLimit: 64Mi\n",
        (
            "          medium: Memory\n          sizeLimit: 64Mi\n"
            "      {{- with .Values.extraVolumes }}\n      {{- toYaml . | nindent 6 }}\n      {{- end }}\n"
        ),
    ),
)


#: In the NetworkPolicy.
_POLICY_PLACES: Final = (
    (
        "          metrics: enabled\n",
        "          {{- toYaml .Values.networkPolicy.metricsNamespaceLabels | nindent 10 }}\n",
    ),
    (
        "    - port: 5432\n      protocol: TCP\n",
        (
            "    - port: 5432\n      protocol: TCP\n"
            "    {{- range .Values.networkPolicy.egressPorts }}\n"
            "    - port: {{ . }}\n      protocol: TCP\n    {{- end }}\n"
        ),
    ),
)


class UnknownManifestError(Exception):
    """The manifests have changed in a place that the chart makes something else of."""


def files(root: Path) -> dict[str, str]:
    manifests = root / "webhook-config"
    made = {
        f"{CHART}/templates/made/{name}": _HEADER + template(_read(manifests / name)) for name in _resources(manifests)
    }
    made[f"{CHART}/templates/made/deployment.yaml"] = _HEADER + deployment(_read(manifests / "deployment.yaml"))
    made[f"{CHART}/templates/made/networkpolicy.yaml"] = (
        _HEADER
        + "{{- if .Values.networkPolicy.enabled }}\n"
        + placed(template(_read(manifests / "networkpolicy.yaml")), _POLICY_PLACES, "networkpolicy.yaml")
        + "{{- end }}\n"
    )
    overlay = manifests / "overlays" / "v1beta1" / "component"
    made[f"{CHART}/templates/made/rbac-v1beta1.yaml"] = (
        _HEADER
        + '{{- if dig "muster" "serveV1beta1" false .Values.settings }}\n'
        + template(_read(overlay / "rbac.yaml"))
        + "{{- end }}\n"
    )
    for path in sorted((manifests / "crds").glob("kueue*.yaml")):
        text = _read(path)
        made[f"{CHART}/made/crds/{path.name}"] = text
        patch = overlay / path.name
        served = patched(yaml.safe_load(text), yaml.safe_load(_read(patch))) if patch.is_file() else None
        made[f"{CHART}/made/crds-v1beta1/{path.name}"] = text if served is None else to_yaml(served)
    made[f"{CHART}/made/rules.yaml"] = _read(manifests / "monitoring" / "rules.yaml")
    made[f"{CHART}/made/dashboard.json"] = dashboard.files(root)[dashboard.PATH]
    made[f"{CHART}/values.schema.json"] = json.dumps(values_schema(), indent=2, ensure_ascii=False) + "\n"
    return made


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _resources(manifests: Path) -> Iterator[str]:
    listed: list[str] = yaml.safe_load(_read(manifests / "kustomization.yaml"))["resources"]
    return (name for name in listed if name not in _APART)


def template(text: str) -> str:
    """A manifest for the namespace of the release."""
    if "{{" in text:
        raise UnknownManifestError("a manifest has {{ in it, which Helm would read as its own")
    # A value of its own is quoted, since a namespace may be called 42; within an expression it is in quotes already.
    text = re.sub(rf"(?m)^(\s*(?:- |[\w.-]+: ?)){_NAMESPACE}$", r"\1{{ .Release.Namespace | quote }}", text)
    return text.replace(_NAMESPACE, "{{ .Release.Namespace }}")


def deployment(text: str) -> str:
    """The Deployment, and what stands beside it, with the values in their places."""
    return placed(template(text), _PLACES, "deployment.yaml")


def placed(text: str, places: Iterable[tuple[str, str]], name: str) -> str:
    """The text with other words in these places, each of which is there once."""
    for there, instead in places:
        if text.count(there) != 1:
            raise UnknownManifestError(f"{name} has this {text.count(there)} times instead of once:\n{there}")
        text = text.replace(there, instead)
    return text


def patched(crd: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """A CRD after a JSON patch of additions and replacements, which is all that the overlay has."""
    for operation in operations:
        *steps, last = operation["path"].strip("/").replace("~1", "/").replace("~0", "~").split("/")
        target: Any = crd
        for step in steps:
            target = target[int(step)] if isinstance(target, list) else target[step]
        if operation["op"] not in {"add", "replace"}:
            raise UnknownManifestError(f"the overlay of v1beta1 has a {operation['op']}")
        if not isinstance(target, list):
            target[last] = operation["value"]
        elif last == "-":
            target.append(operation["value"])
        elif operation["op"] == "add":
            target.insert(int(last), operation["value"])
        else:
            target[int(last)] = operation["value"]
    return crd


# ------------------------------------------------------------------ values


def values_schema() -> dict[str, Any]:
    """Of `values.yaml`: the settings as the code knows them, the rest as Kubernetes has it."""
    settings = schema()
    for given in ("apiVersion", "kind", "namespace"):
        del settings["properties"][given]
    text, flag, number = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
    anything, entries = {"type": "object"}, {"type": "array", "items": {"type": "object"}}
    words = {"type": "object", "additionalProperties": {"type": "string"}}
    return {
        "$schema": "https://json-schema.org/draft-07/schema#",
        **_strict(
            image=_strict(
                repository={"type": "string", "minLength": 1},
                tag=text,
                digest={"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"},
                pullPolicy={"enum": ["Always", "IfNotPresent", "Never"]},
            ),
            imagePullSecrets=entries,
            replicas=number,
            settings=settings,
            journal=_strict(
                secretName={"type": "string", "minLength": 1}, secretKey={"type": "string", "minLength": 1}
            ),
            persistence=_strict(enabled=flag, existingClaim=text, storageClassName=text, size=text),
            crds=_strict(install=flag, keep=flag),
            networkPolicy=_strict(
                enabled=flag, metricsNamespaceLabels=words, egressPorts={"type": "array", "items": {"type": "integer"}}
            ),
            resources=anything,
            priorityClassName=text,
            nodeSelector=words,
            tolerations=entries,
            affinity=anything,
            topologySpreadConstraints=entries,
            podAnnotations=words,
            podLabels=words,
            extraEnv=entries,
            extraVolumes=entries,
            extraVolumeMounts=entries,
            podDisruptionBudget=_strict(enabled=flag, maxUnavailable={"type": ["integer", "string"]}),
            monitoring=_strict(
                serviceMonitor=_strict(enabled=flag, labels=words, interval=text),
                rules=_strict(enabled=flag, labels=words),
                dashboard=_strict(enabled=flag, labels=words),
            ),
            # Helm's own.
            **{"global": anything},
        ),
    }


def _strict(**properties: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": properties}
