"""What has to hold after all mutations, as ValidatingAdmissionPolicies that the API server evaluates itself.

They hold while the webhook is down and cost no call: a queued pod or job that is not held back is refused, whoever
took the gate away, and what makes a pod managed cannot be changed later. Gates are taken off, and queued jobs started,
only by those who may write the status of Workloads: that is where admission stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from admission.api import names
from admission.api.leader_worker_sets import GROUP_INDEX_LABEL, NAME_LABEL, WORKER_INDEX_LABEL
from admission.jobs.stateful_sets import POD_NAME_LABEL
from admission.webhook import custom_matching, status_policy
from admission.webhook.context import Rules
from admission.webhook.gpus import cel_list
from admission.webhook.matching import TRUSTED, Condition, Matching, annotation, gated, label, selector

_API_VERSION: Final = "admissionregistration.k8s.io/v1"

_MAY_ADMIT: Final = (
    f"authorizer.group('{names.GROUP}').resource('workloads').subresource('status')"
    ".namespace(request.namespace).check('patch').allowed()"
)

#: What queues its pods together, and the labels by which each is known.
_GANGS: Final = (names.STATEFUL_SET_INTEGRATION, names.LEADER_WORKER_SET_INTEGRATION)
_PLACES: Final = (POD_NAME_LABEL, NAME_LABEL, GROUP_INDEX_LABEL, WORKER_INDEX_LABEL)

Validation = dict[str, str]


def policies(rules: Rules) -> list[dict[str, Any]]:
    """The policies, each with its binding."""
    matching = Matching(rules)
    manifests: list[dict[str, Any]] = []
    if rules.pods:
        manifests += _created_pods(rules, matching)
        manifests += _updated_pods(rules)
    if rules.jobs:
        manifests += _created_jobs(rules, matching)
        manifests += _started_jobs(rules, matching)
    if rules.custom:
        manifests += _created_custom_jobs(rules, matching)
        manifests += _started_custom_jobs(rules, matching)
    return manifests + _workload_statuses(rules)


def _created_pods(rules: Rules, matching: Matching) -> list[dict[str, Any]]:
    validations = [
        Validation(
            expression=gated("object", names.ADMISSION_GATE),
            message=(
                f"a pod that names a queue or asks for a GPU needs the scheduling gate {names.ADMISSION_GATE}, which "
                "Muster's webhook adds: it was not asked, or something took the gate away"
            ),
        ),
        Validation(
            expression=f"{label(names.MANAGED_LABEL)} == 'true'",
            message=f'a queued pod needs the label {names.MANAGED_LABEL} with the value "true"',
        ),
    ]
    manifests: list[dict[str, Any]] = []
    for scope in matching.scopes(matching.named_pod, "object.spec"):
        manifests += _policy(
            "-".join(filter(None, ("muster-queued", scope.suffix, "pods-are-gated"))),
            [("", "v1", "pods")],
            ["CREATE"],
            scope.namespaces,
            [
                Condition(name="is-queued", expression=scope.expression),
                *matching.not_others_pods(),
                *custom_matching.pods_not_a_part(rules),
            ],
            validations,
        )
    return manifests


def _updated_pods(rules: Rules) -> list[dict[str, Any]]:
    gates = (names.ADMISSION_GATE, names.TOPOLOGY_GATE)
    is_managed = " || ".join(
        [f"{label(names.MANAGED_LABEL, of)} != ''" for of in ("object", "oldObject")] + [gated("oldObject", *gates)]
    )
    unchanged = [
        (label(names.MANAGED_LABEL), label(names.MANAGED_LABEL, "oldObject"), f"label {names.MANAGED_LABEL}"),
        (label(names.POD_GROUP_NAME), label(names.POD_GROUP_NAME, "oldObject"), f"label {names.POD_GROUP_NAME}"),
        (
            annotation(names.POD_GROUP_NAME),
            annotation(names.POD_GROUP_NAME, "oldObject"),
            f"annotation {names.POD_GROUP_NAME}",
        ),
    ]
    validations = [
        Validation(expression=f"{now} == {before}", message=f"{what} is immutable") for now, before, what in unchanged
    ]
    validations += [
        Validation(
            expression=(
                f"{annotation(names.RETRIABLE_IN_GROUP, 'oldObject')} != 'false' || "
                f"{annotation(names.RETRIABLE_IN_GROUP)} == 'false'"
            ),
            message=f"annotation {names.RETRIABLE_IN_GROUP} may not be changed back from false",
        ),
        Validation(
            expression=(
                f"{gated('object', names.ADMISSION_GATE)} || "
                f"{label(names.QUEUE_LABEL)} == {label(names.QUEUE_LABEL, 'oldObject')}"
            ),
            message=f"label {names.QUEUE_LABEL} is immutable once the pod was admitted",
        ),
        Validation(
            expression=(
                f"!({annotation(names.POD_SUSPENDING_PARENT, 'oldObject')} in {cel_list(_GANGS)}) || {TRUSTED} || "
                f"({_same_place()})"
            ),
            message="what says which StatefulSet or LeaderWorkerSet a queued pod is a part of is immutable",
        ),
        *(
            Validation(
                expression=f"!{gated('oldObject', gate)} || {gated('object', gate)} || {_MAY_ADMIT}",
                message=(
                    f"scheduling gate {gate} is taken off when the pod is admitted, by who may write "
                    "workloads/status of kueue.x-k8s.io"
                ),
            )
            for gate in gates
        ),
    ]
    return _policy(
        "muster-managed-pods-stay-managed",
        [("", "v1", "pods")],
        ["UPDATE"],
        selector(rules.managed_namespaces),
        [Condition(name="is-managed", expression=is_managed)],
        validations,
    )


def _same_place() -> str:
    """Whether the pod is found where it was: one that is not any more would run on when its quota is given back."""
    return " && ".join(f"{now} == {before}" for now, before in zip(_place("object"), _place("oldObject"), strict=True))


def _place(of: str) -> list[str]:
    owners = f"{of}.metadata.?ownerReferences.orValue([])"
    return [
        f"{owners}.filter(o, o.?controller.orValue(false)).map(o, o.uid)",
        annotation(names.POD_SUSPENDING_PARENT, of),
        *(label(name, of) for name in _PLACES),
    ]


def _created_jobs(rules: Rules, matching: Matching) -> list[dict[str, Any]]:
    manifests: list[dict[str, Any]] = []
    for scope in matching.scopes(matching.named_job, "object.spec.template.spec"):
        manifests += _policy(
            "-".join(filter(None, ("muster-queued", scope.suffix, "jobs-are-suspended"))),
            [("batch", "v1", "jobs")],
            ["CREATE"],
            scope.namespaces,
            [Condition(name="is-queued", expression=scope.expression), *custom_matching.not_a_part(rules)],
            [
                Validation(
                    expression="object.spec.?suspend.orValue(false) == true",
                    message=(
                        "a job that names a queue or asks for GPUs is created suspended, which Muster's webhook sees "
                        "to: it was not asked, or something undid it"
                    ),
                )
            ],
        )
    return manifests


def _started_jobs(rules: Rules, matching: Matching) -> list[dict[str, Any]]:
    queued = " || ".join(
        [
            *(f"{label(names.QUEUE_LABEL, of)} != ''" for of in ("object", "oldObject")),
            matching.asks_for_gpus("object.spec.template.spec"),
        ]
    )
    return _policy(
        "muster-queued-jobs-are-started-when-admitted",
        [("batch", "v1", "jobs")],
        ["UPDATE"],
        selector(rules.managed_namespaces),
        [
            Condition(
                name="is-started",
                expression="oldObject.spec.?suspend.orValue(false) && !object.spec.?suspend.orValue(false)",
            ),
            Condition(name="is-queued", expression="true" if rules.manage_all else queued),
            *custom_matching.not_a_part(rules),
        ],
        [
            Validation(
                expression=_MAY_ADMIT,
                message=(
                    "a queued job is started when it is admitted, by who may write workloads/status of "
                    "kueue.x-k8s.io; set spec.suspend to true and leave it there"
                ),
            )
        ],
    )


def _created_custom_jobs(rules: Rules, matching: Matching) -> list[dict[str, Any]]:
    """GPUs are not looked for a second time: the webhook has given a job that asks for them a queue's name."""
    return _policy(
        "muster-queued-custom-jobs-are-suspended",
        custom_matching.resources(rules),
        ["CREATE"],
        selector(rules.managed_namespaces),
        [
            Condition(name="is-queued", expression="true" if rules.manage_all else matching.named_job),
            custom_matching.ON_ITS_OWN,
            *custom_matching.not_a_part(rules),
        ],
        [
            Validation(
                expression=custom_matching.suspended("object"),
                message=(
                    "a job that names a queue is created suspended, which Muster's webhook sees to: it was not asked, "
                    "or something undid it"
                ),
            )
        ],
    )


def _started_custom_jobs(rules: Rules, matching: Matching) -> list[dict[str, Any]]:
    return _policy(
        "muster-queued-custom-jobs-are-started-when-admitted",
        custom_matching.resources(rules),
        ["UPDATE"],
        selector(rules.managed_namespaces),
        [
            Condition(
                name="is-started",
                expression=f"{custom_matching.suspended('oldObject')} && !{custom_matching.suspended('object')}",
            ),
            Condition(name="is-queued", expression=matching.named_or_was),
            custom_matching.ON_ITS_OWN,
            *custom_matching.not_a_part(rules),
        ],
        [
            Validation(
                expression=_MAY_ADMIT,
                message=(
                    "a queued job is started when it is admitted, by who may write workloads/status of "
                    "kueue.x-k8s.io; leave it suspended"
                ),
            )
        ],
    )


def _workload_statuses(rules: Rules) -> list[dict[str, Any]]:
    return _policy(
        "muster-workload-statuses-are-sound",
        [(names.GROUP, "v1beta2", "workloads/status")],
        ["UPDATE"],
        {},
        status_policy.conditions(rules.controller),
        status_policy.validations(),
    )


def _policy(
    name: str,
    resources: Sequence[tuple[str, str, str]],
    operations: list[str],
    namespaces: dict[str, Any],
    conditions: list[Condition],
    validations: list[Validation],
) -> list[dict[str, Any]]:
    rules = [
        {
            "apiGroups": [group],
            "apiVersions": [version],
            "operations": operations,
            "resources": [plural],
            "scope": "Namespaced",
        }
        for group, version, plural in resources
    ]
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": namespaces,
            "objectSelector": {},
            "resourceRules": rules,
        },
        "matchConditions": conditions,
        "validations": validations,
    }
    return [
        {
            "apiVersion": _API_VERSION,
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": name},
            "spec": spec,
        },
        {
            "apiVersion": _API_VERSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": name},
            "spec": {"policyName": name, "validationActions": ["Deny"]},
        },
    ]
