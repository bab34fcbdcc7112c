"""Which objects the API server asks about, as CEL expressions and namespace selectors made from the settings.

They are the webhook's rules in a form that the API server evaluates itself, so that what is nobody's business here is
never asked about, webhook up or down. An expression must be true for all that the webhook would change, must not fail
on anything that can be stored, and must cost little: it runs for every pod of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from admission.api import names
from admission.api.meta import LabelSelector, LabelSelectorRequirement
from admission.settings import WithoutQueue
from admission.webhook.context import (
    SYSTEM_PRIORITY_CLASSES,
    TRUSTED_GROUPS,
    TRUSTED_USERS,
    Rules,
)
from admission.webhook.gpus import GpuResources, cel_list, cel_string
from admission.webhook.pods import MIRROR_ANNOTATION

#: A named expression, as matchConditions want it.
Condition = dict[str, str]

TRUSTED: Final = (
    f"(request.userInfo.?username.orValue('') in {cel_list(TRUSTED_USERS)} || "
    f"request.userInfo.?groups.orValue([]).exists(g, g in {cel_list(TRUSTED_GROUPS)}))"
)


def label(name: str, of: str = "object") -> str:
    """The value of a label, empty where there is none."""
    return f"{of}.metadata.?labels[?{cel_string(name)}].orValue('')"


def annotation(name: str, of: str = "object") -> str:
    """The value of an annotation, empty where there is none."""
    return f"{of}.metadata.?annotations[?{cel_string(name)}].orValue('')"


def controlled_by(kind: str, group: str, of: str = "object") -> str:
    return (
        f"{of}.metadata.?ownerReferences.orValue([]).exists(o, o.?controller.orValue(false) && "
        f"o.kind == {cel_string(kind)} && o.apiVersion.startsWith({cel_string(group + '/')}))"
    )


def gated(of: str, *gates: str) -> str:
    """Whether the pod has one of the scheduling gates."""
    return f"{of}.spec.?schedulingGates.orValue([]).exists(g, g.name in {cel_list(gates)})"


@dataclass(frozen=True, slots=True)
class Scope:
    """Objects of some namespaces for which an expression holds; the scopes of a kind do not overlap."""

    suffix: str
    namespaces: dict[str, Any]
    expression: str


class Matching:
    """The expressions for one set of rules."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        #: None where GPUs are not looked for.
        self.gpus: GpuResources | None = None if rules.without_queue is WithoutQueue.ALLOW else rules.gpus

    def scopes(self, named: str, *specs: str) -> list[Scope]:
        """Where a kind is asked about: objects that name a queue (`named`), and those with GPUs in a pod spec.

        They are two scopes where GPUs are looked for in some of the managed namespaces only. Of several specs each may
        be missing.
        """
        found = [self._asks_for_gpus(spec) for spec in specs]
        parts = [asks for asks in found if asks is not None]
        asks = parts[0] if parts else None
        if len(parts) > 1:
            each = (f"({_optional(spec)}.hasValue() && {part})" for spec, part in zip(specs, parts, strict=True))
            asks = f"({' || '.join(each)})"
        return self.split(named, asks)

    def split(self, named: str, asks: str | None) -> list[Scope]:
        """The scopes of objects that name a queue, and of those that ask for GPUs; None: these are not looked for."""
        managed = selector(self._rules.managed_namespaces)
        if self._rules.manage_all:
            return [Scope("", managed, "true")]
        if asks is None:
            return [Scope("", managed, named)]
        if _selects_all(self._rules.gpu_namespaces):
            return [Scope("", managed, f"{named} || {asks}")]
        both = selector(self._rules.managed_namespaces, self._rules.gpu_namespaces)
        return [Scope("", managed, named), Scope("gpu", both, f"!({named}) && {asks}")]

    def asks_for_gpus(self, spec: str) -> str:
        """Whether a pod spec asks for GPUs that have to be queued for; namespace labels are not looked at."""
        return self._asks_for_gpus(spec) or "false"

    def _asks_for_gpus(self, spec: str) -> str | None:
        if self.gpus is None:
            return None
        exempt = sorted(self._rules.gpu_exempt_namespaces)
        return (
            f"(!(request.namespace in {cel_list(exempt)}) && "
            f"!({spec}.?priorityClassName.orValue('') in {cel_list(SYSTEM_PRIORITY_CLASSES)}) && "
            f"{self.gpus.cel(spec)})"
        )

    # ---- pods

    @property
    def named_pod(self) -> str:
        """A pod that says itself that it is queued."""
        return (
            f"({label(names.QUEUE_LABEL)} != '' || {label(names.MANAGED_LABEL)} != '' || "
            f"{annotation(names.POD_SUSPENDING_PARENT)} != '')"
        )

    def not_others_pods(self) -> list[Condition]:
        """Leaves out the pods that are created for an owner which is not queued by its pods."""
        conditions = [
            Condition(
                name="not-of-a-daemonset-or-mirror",
                expression=(
                    f"!({TRUSTED} && ({annotation(MIRROR_ANNOTATION)} != '' || {controlled_by('DaemonSet', 'apps')}))"
                ),
            )
        ]
        if self._rules.jobs:
            by_itself = f"{label(names.QUEUE_LABEL)} != '' && {label(names.PODSET_LABEL)} == ''"
            of_a_job = f"{TRUSTED} && {controlled_by('Job', 'batch')}"
            expression = f"!({of_a_job})" if self._rules.manage_all else f"!({of_a_job}) || ({by_itself})"
            conditions.append(Condition(name="not-of-a-queued-job", expression=expression))
        return conditions

    # ---- jobs, and what is queued by its pods

    @property
    def named_job(self) -> str:
        return f"({label(names.QUEUE_LABEL)} != '')"

    @property
    def named_or_was(self) -> str:
        """An object that names a queue, or did before it was changed; every one where all are managed."""
        if self._rules.manage_all:
            return "true"
        before = label(names.QUEUE_LABEL, "oldObject")
        return f"({label(names.QUEUE_LABEL)} != '' || (oldObject != null && {before} != ''))"


def _differs(field: str, default: str) -> str:
    return f"object.{field}.orValue({default}) != oldObject.{field}.orValue({default})"


#: An update in which something changed that a rule for jobs looks at; starting and stopping a job is none.
JOB_CHANGED: Final = " || ".join(
    [
        "oldObject == null",
        *(_differs(f"metadata.?{field}", "{}") for field in ("labels", "annotations")),
        *(_differs(f"spec.?{field}", "-1") for field in ("parallelism", "completions")),
    ]
)

#: An update of the spec. Finalizers and status are no one's business here.
SPEC_CHANGED: Final = f"oldObject == null || {_differs('metadata.?generation', '0')}"
SPEC_OR_ANNOTATIONS_CHANGED: Final = f"{SPEC_CHANGED} || {_differs('metadata.?annotations', '{}')}"
SPEC_OR_METADATA_CHANGED: Final = f"{SPEC_OR_ANNOTATIONS_CHANGED} || {_differs('metadata.?labels', '{}')}"


def selector(*selectors: LabelSelector) -> dict[str, Any]:
    """The namespaces that all selectors select, as one selector."""
    requirements = [requirement for each in selectors for requirement in _requirements(each)]
    return {
        "matchExpressions": [
            {"key": each.key, "operator": each.operator, **({"values": list(each.values)} if each.values else {})}
            for each in dict.fromkeys(requirements)
        ]
    }


def _requirements(selector_: LabelSelector) -> list[LabelSelectorRequirement]:
    labels = [LabelSelectorRequirement(name, "In", (value,)) for name, value in selector_.match_labels.items()]
    return [
        *labels,
        *(LabelSelectorRequirement(each.key, each.operator, each.values) for each in selector_.match_expressions),
    ]


def _optional(path: str) -> str:
    """The path from the object on, every field of which may be missing."""
    root, *steps = path.split(".")
    return ".".join([root, *(f"?{field}" for field in steps)])


def _selects_all(selector_: LabelSelector) -> bool:
    return not selector_.match_labels and not selector_.match_expressions
