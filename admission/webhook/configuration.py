"""What the API server is told: both webhook configurations and the policies, made from the settings.

The manifests in `webhook-config/` are these for the default settings (`python -m admission.webhook.configuration`
writes them, `--check` fails when they are stale); at run time `publishing` keeps the cluster's equal to the settings.
They must never send a pod here that nobody asked to queue.
"""

from __future__ import annotations

import argparse
import base64
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from admission.settings import Integrations, Settings
from admission.webhook import custom_matching, kinds
from admission.webhook.context import Rules
from admission.webhook.matching import (
    JOB_CHANGED,
    SPEC_CHANGED,
    SPEC_OR_ANNOTATIONS_CHANGED,
    SPEC_OR_METADATA_CHANGED,
    Condition,
    Matching,
    selector,
)
from admission.webhook.policies import policies
from admission.webhook.review import GroupVersionKind

MUTATING: Final = "muster-mutating-webhook-configuration"
VALIDATING: Final = "muster-validating-webhook-configuration"
#: On everything that `manifests` makes, so that it can be found and taken away again.
PART_OF: Final = {"app.kubernetes.io/name": "muster", "app.kubernetes.io/component": "webhook"}
INSTALL_NAMESPACE: Final = "muster-system"

_API_VERSION: Final = "admissionregistration.k8s.io/v1"
_TIMEOUT_SECONDS: Final = 10
_JOB: Final = GroupVersionKind("batch", "v1", "Job")
_POD: Final = GroupVersionKind("", "v1", "Pod")
_DEPLOYMENT: Final = GroupVersionKind("apps", "v1", "Deployment")
_STATEFUL_SET: Final = GroupVersionKind("apps", "v1", "StatefulSet")
_LEADER_WORKER_SET: Final = GroupVersionKind("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet")
_TEMPLATE: Final = "object.spec.template.spec"
_LEADER_AND_WORKER: Final = tuple(
    f"object.spec.leaderWorkerTemplate.{each}.spec" for each in ("leaderTemplate", "workerTemplate")
)


@dataclass(frozen=True, slots=True)
class ByService:
    """The webhook is reached through a Service of the cluster. No CA: whoever keeps the certificates puts it in."""

    namespace: str
    name: str
    ca_bundle: bytes = b""
    port: int = 443

    def client_config(self, path: str) -> dict[str, Any]:
        service = {"namespace": self.namespace, "name": self.name, "path": path, "port": self.port}
        return {"service": service, **_ca(self.ca_bundle)}


@dataclass(frozen=True, slots=True)
class ByUrl:
    """The webhook is reached at an address, such as https://127.0.0.1:9443."""

    address: str
    ca_bundle: bytes

    def client_config(self, path: str) -> dict[str, Any]:
        return {"url": self.address.rstrip("/") + path, **_ca(self.ca_bundle)}


Reached = ByService | ByUrl


def _ca(bundle: bytes) -> dict[str, str]:
    return {"caBundle": base64.b64encode(bundle).decode()} if bundle else {}


def manifests(settings: Settings, reached: Reached) -> list[dict[str, Any]]:
    """Everything, in an order in which it can be applied."""
    return [*webhooks(settings, reached), *labelled(policies(Rules.of(settings)))]


def webhooks(settings: Settings, reached: Reached) -> list[dict[str, Any]]:
    """The mutating and the validating configuration."""
    rules = Rules.of(settings)
    found: list[dict[str, Any]] = [
        {
            "apiVersion": _API_VERSION,
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": [entry.manifest(reached) for entry in entries],
        }
        for kind, name, entries in (
            ("MutatingWebhookConfiguration", MUTATING, _mutating(rules)),
            ("ValidatingWebhookConfiguration", VALIDATING, _validating(rules)),
        )
    ]
    return labelled(found)


def labelled(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**each, "metadata": {**each["metadata"], "labels": dict(PART_OF)}} for each in found]


@dataclass(frozen=True, slots=True)
class _Entry:
    """One webhook. Every default of the API is written out, so that what is stored can be compared with it."""

    verb: str
    gvk: GroupVersionKind
    plural: str
    operations: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    namespaces: dict[str, Any] | None = None
    suffix: str = ""
    namespaced: bool = False

    def manifest(self, reached: Reached) -> dict[str, Any]:
        name = f"{self.verb[0]}{self.suffix}{self.gvk.kind.lower()}.kb.io"
        rule = {
            "apiGroups": [self.gvk.group],
            "apiVersions": [self.gvk.version],
            "operations": list(self.operations),
            "resources": [self.plural],
            "scope": "Namespaced" if self.namespaced else "Cluster",
        }
        entry = {
            "name": name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": reached.client_config(kinds.path(self.verb, self.gvk)),
            "failurePolicy": "Fail",
            "matchConditions": list(self.conditions),
            "matchPolicy": "Equivalent",
            "namespaceSelector": self.namespaces or {},
            "objectSelector": {},
            "rules": [rule],
            "sideEffects": "None",
            "timeoutSeconds": _TIMEOUT_SECONDS,
        }
        if self.verb == "mutate":
            entry["reinvocationPolicy"] = "Never"
        return entry


def _kueue(kind: str) -> GroupVersionKind:
    return next(each.gvk for each in kinds.KINDS if each.gvk.kind == kind)


def _mutating(rules: Rules) -> list[_Entry]:
    matching = Matching(rules)
    entries: list[_Entry] = []
    if rules.pods:
        entries += [
            _Entry(
                "mutate",
                _POD,
                "pods",
                ("CREATE",),
                (
                    Condition(name="is-queued", expression=scope.expression),
                    *matching.not_others_pods(),
                    *custom_matching.pods_not_a_part(rules),
                ),
                scope.namespaces,
                scope.suffix,
                namespaced=True,
            )
            for scope in matching.scopes(matching.named_pod, "object.spec")
        ]
    if rules.jobs:
        entries += [
            _Entry(
                "mutate",
                _JOB,
                "jobs",
                ("CREATE",),
                (Condition(name="is-queued", expression=scope.expression), *custom_matching.not_a_part(rules)),
                scope.namespaces,
                scope.suffix,
                namespaced=True,
            )
            for scope in matching.scopes(matching.named_job, "object.spec.template.spec")
        ]
    entries += [
        _Entry(
            "mutate",
            GroupVersionKind(kind.group, kind.version, kind.kind),
            kind.plural,
            ("CREATE",),
            (Condition(name="is-queued", expression=scope.expression), *custom_matching.not_a_part(rules)),
            scope.namespaces,
            scope.suffix,
            namespaced=True,
        )
        for kind in rules.custom
        for scope in custom_matching.scopes(rules, kind)
    ]
    entries += [
        _Entry(
            "mutate",
            gvk,
            plural,
            ("CREATE", "UPDATE"),
            (Condition(name="is-queued", expression=scope.expression), *custom_matching.not_a_part(rules)),
            scope.namespaces,
            scope.suffix,
            namespaced=True,
        )
        for gvk, plural, specs in _queued_by_pods(rules)
        for scope in matching.scopes(matching.named_or_was, *specs)
    ]
    entries += [
        _Entry("mutate", _kueue("ClusterQueue"), "clusterqueues", ("CREATE",)),
        _Entry("mutate", _kueue("ResourceFlavor"), "resourceflavors", ("CREATE",)),
    ]
    if not rules.partial_admission:
        entries.append(_Entry("mutate", _kueue("Workload"), "workloads", ("CREATE",), namespaced=True))
    return entries


def _queued_by_pods(rules: Rules) -> list[tuple[GroupVersionKind, str, tuple[str, ...]]]:
    """The kinds that are, with the name of the resource and the pod specs."""
    kinds_ = [
        (rules.deployments, (_DEPLOYMENT, "deployments", (_TEMPLATE,))),
        (rules.stateful_sets, (_STATEFUL_SET, "statefulsets", (_TEMPLATE,))),
        (rules.leader_worker_sets, (_LEADER_WORKER_SET, "leaderworkersets", _LEADER_AND_WORKER)),
    ]
    return [each for is_enabled, each in kinds_ if is_enabled]


def _validating(rules: Rules) -> list[_Entry]:
    both = ("CREATE", "UPDATE")
    spec_changed = (Condition(name="spec-changed", expression=SPEC_CHANGED),)
    has_changed = (Condition(name="has-changed", expression=SPEC_OR_ANNOTATIONS_CHANGED),)
    entries: list[_Entry] = []
    if rules.jobs:
        entries.append(
            _Entry(
                "validate",
                _JOB,
                "jobs",
                both,
                (
                    Condition(name="is-queued", expression=Matching(rules).named_or_was),
                    Condition(name="has-changed", expression=JOB_CHANGED),
                    Condition(name="is-not-being-deleted", expression="!has(object.metadata.deletionTimestamp)"),
                ),
                selector(rules.managed_namespaces),
                namespaced=True,
            )
        )
    entries += [
        _Entry(
            "validate",
            gvk,
            plural,
            both,
            (
                Condition(name="is-queued", expression=Matching(rules).named_or_was),
                Condition(name="has-changed", expression=SPEC_OR_METADATA_CHANGED),
                Condition(name="is-not-being-deleted", expression="!has(object.metadata.deletionTimestamp)"),
            ),
            selector(rules.managed_namespaces),
            namespaced=True,
        )
        for gvk, plural, _ in _queued_by_pods(rules)
    ]
    entries += [
        _Entry(
            "validate",
            GroupVersionKind(kind.group, kind.version, kind.kind),
            kind.plural,
            both,
            (
                Condition(name="is-queued", expression=custom_matching.to_validate(rules, kind)),
                Condition(name="has-changed", expression=SPEC_OR_METADATA_CHANGED),
                Condition(name="not-by-muster", expression=custom_matching.not_by(rules.controller)),
                Condition(name="is-not-being-deleted", expression="!has(object.metadata.deletionTimestamp)"),
            ),
            selector(rules.managed_namespaces),
            namespaced=True,
        )
        for kind in rules.custom
    ]
    return [
        *entries,
        _Entry("validate", _kueue("ClusterQueue"), "clusterqueues", both, spec_changed),
        _Entry("validate", _kueue("Cohort"), "cohorts", both, spec_changed),
        _Entry("validate", _kueue("LocalQueue"), "localqueues", both, spec_changed, namespaced=True),
        _Entry("validate", _kueue("ResourceFlavor"), "resourceflavors", both, has_changed),
        _Entry("validate", _kueue("Workload"), "workloads", both, has_changed, namespaced=True),
    ]


# ------------------------------------------------------------------ the files in webhook-config/


def installed_settings() -> Settings:
    """What the manifests in `webhook-config/` are made for."""
    return Settings(namespace=INSTALL_NAMESPACE, integrations=Integrations(frameworks=("batch/job", "pod")))


def files() -> dict[str, str]:
    """Name and content of each file."""
    settings = installed_settings()
    service = ByService(INSTALL_NAMESPACE, settings.internal_cert_management.webhook_service_name)
    return {
        "webhooks.yaml": _yaml(webhooks(settings, service)),
        "policies.yaml": _yaml(labelled(policies(Rules.of(settings)))),
    }


def _yaml(documents: list[dict[str, Any]]) -> str:
    head = "# Made by `python -m admission.webhook.configuration`; change that, not this.\n"
    return head + "---\n".join(yaml.safe_dump(each, sort_keys=False, width=120) for each in documents)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m admission.webhook.configuration", description=main.__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, fail when a file is stale")
    parser.add_argument("--folder", type=Path, default=Path("webhook-config"))
    options = parser.parse_args(arguments)
    stale = []
    for name, content in files().items():
        path: Path = options.folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == content:
            continue
        stale.append(path)
        if not options.check:
            path.write_text(content, encoding="utf-8")
    for path in stale:
        sys.stderr.write(f"{path} {'is stale' if options.check else 'written'}\n")
    return 1 if stale and options.check else 0


if __name__ == "__main__":
    sys.exit(main())
