"""ResourceFlavors: labels, taints and tolerations of the syntax that nodes and pods need, and a packing that exists.

Judged from the one object. A flavor that no node has is not wrong, it just has no room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from admission.api import names
from admission.api.kueue import ResourceFlavor
from admission.webhook import fields, job_rules, syntax
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.review import Operation
from queues.core.model import Packing

_PACKINGS: Final = tuple(each.value for each in Packing)


def mutate(_raw: Mapping[str, Any], flavor: ResourceFlavor, _context: Context) -> list[Operation]:
    """A flavor in use is kept until no ClusterQueue names it."""
    return job_rules.add_finalizer(flavor.metadata, names.RESOURCE_IN_USE_FINALIZER)


def validate(new: ResourceFlavor, _old: ResourceFlavor | None, _context: Context) -> Iterator[FieldError]:
    for name, value in new.spec.node_labels.items():
        if problem := syntax.label_key(name):
            yield fields.invalid("spec.nodeLabels", name, problem)
        if problem := syntax.label_value(value):
            yield fields.invalid(fields.key("spec.nodeLabels", name), value, problem)
    seen: set[tuple[str, str]] = set()
    for position, taint in enumerate(new.spec.node_taints):
        at = fields.index("spec.nodeTaints", position)
        if problem := syntax.label_key(taint.key):
            yield fields.invalid(f"{at}.key", taint.key, problem)
        if problem := syntax.label_value(taint.value):
            yield fields.invalid(f"{at}.value", taint.value, problem)
        if (taint.key, taint.effect) in seen:
            yield fields.duplicate(at, f"{taint.key}:{taint.effect}")
        seen.add((taint.key, taint.effect))
    for position, toleration in enumerate(new.spec.tolerations):
        at = fields.index("spec.tolerations", position)
        if toleration.key and (problem := syntax.label_key(toleration.key)):
            yield fields.invalid(f"{at}.key", toleration.key, problem)
        if toleration.operator != "Exists" and (problem := syntax.label_value(toleration.value)):
            yield fields.invalid(f"{at}.value", toleration.value, problem)
    packing = new.metadata.annotations.get(names.PACKING)
    if packing is not None and packing not in _PACKINGS:
        yield fields.not_supported(fields.annotation(names.PACKING), packing, _PACKINGS)
