"""Which pods ask for a GPU, by the resources that they name, and the same question as a CEL expression.

The patterns come from `muster.gpuPods.resources` ("*" stands for anything), classes of devices from `deviceClasses`.
The two forms must agree: what CEL lets pass the webhook never sees, and what only CEL takes for a GPU costs a call.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass

from admission.api.core import PodSpec, ResourceRequirements
from admission.api.devices import DEVICE_CLASS_RESOURCE
from admission.api.quantities import QuantityError, parse
from admission.settings import GpuPods


@dataclass(frozen=True, slots=True)
class GpuResources:
    """Names as they are, prefixes of names, and patterns that are neither."""

    names: frozenset[str]
    prefixes: tuple[str, ...]
    patterns: tuple[re.Pattern[str], ...]
    by_claim: bool

    @classmethod
    def of(cls, settings: GpuPods) -> GpuResources:
        wanted = [*settings.resources, *(DEVICE_CLASS_RESOURCE + name for name in settings.device_classes)]
        prefixes = [text[:-1] for text in wanted if text.endswith("*") and "*" not in text[:-1]]
        patterns = [_pattern(text) for text in wanted if "*" in text[:-1]]
        return cls(
            names=frozenset(text for text in wanted if "*" not in text),
            prefixes=tuple(prefixes),
            patterns=tuple(patterns),
            by_claim=bool(settings.device_classes),
        )

    def names_one(self, resource: str) -> bool:
        return (
            resource in self.names
            or resource.startswith(self.prefixes)
            or any(pattern.fullmatch(resource) for pattern in self.patterns)
        )

    def asked_for(self, spec: PodSpec) -> str | None:
        """The first GPU resource that a pod of this spec asks for, or None.

        A claim on devices counts as one where device classes are configured: which class a claim names stands in
        another object, and this is decided from the pod alone.
        """
        for container in (*spec.init_containers, *spec.containers):
            if found := self._asked_for(container.resources):
                return found
        if spec.resources is not None and (found := self._asked_for(spec.resources)):
            return found
        if self.by_claim and spec.resource_claims:
            return f"resource claim {spec.resource_claims[0].name}"
        return None

    def _asked_for(self, resources: ResourceRequirements) -> str | None:
        for amounts in (resources.limits, resources.requests):
            for name, quantity in amounts.items():
                if self.names_one(name) and not _is_zero(quantity):
                    return name
        return None

    def cel(self, spec: str) -> str:
        """The CEL expression that is true when the pod spec at `spec` asks for a GPU."""
        used = f"has(c.resources) && {self._amounts('c.resources')}"
        parts = [
            f"(has({spec}.{field}) && {spec}.{field}.exists(c, {used}))" for field in ("containers", "initContainers")
        ]
        parts.append(f"(has({spec}.resources) && {self._amounts(f'{spec}.resources')})")
        if self.by_claim:
            parts.append(f"(has({spec}.resourceClaims) && size({spec}.resourceClaims) > 0)")
        return f"({' || '.join(parts)})"

    def _amounts(self, resources: str) -> str:
        return "({})".format(
            " || ".join(
                f"(has({resources}.{field}) && {resources}.{field}.exists(r, {self._name()} && "
                f"string({resources}.{field}[r]) != '0'))"
                for field in ("limits", "requests")
            )
        )

    def _name(self) -> str:
        tests = [f"r in {cel_list(sorted(self.names))}"] if self.names else []
        tests += [f"r.startsWith({cel_string(prefix)})" for prefix in self.prefixes]
        tests += [f"r.matches({cel_string(f'^{pattern.pattern}$')})" for pattern in self.patterns]
        return f"({' || '.join(tests)})" if tests else "false"


def cel_string(text: str) -> str:
    """A CEL string literal; what JSON escapes, CEL escapes the same way."""
    return json.dumps(text)


def cel_list(texts: Iterable[str]) -> str:
    return f"[{', '.join(cel_string(text) for text in texts)}]"


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in text.split("*")))


def _is_zero(quantity: object) -> bool:
    """Zero asks for nothing. What cannot be read is taken for more than zero, so that it is looked at."""
    if not isinstance(quantity, str | int | float):
        return False
    try:
        return parse(quantity) == 0
    except QuantityError:
        return False
