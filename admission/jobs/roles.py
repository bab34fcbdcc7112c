"""The role of a pod in its group: pods of the same scheduling shape are interchangeable members of one pod set.

The hash is made from what decides where a pod can run and what it takes, in the plain form of the API, with quantities
by value. It must never depend on names, images, commands or metadata, nor on how the same shape is spelled.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from admission.api.core import Pod
from admission.api.decoding import plain
from admission.api.names import ROLE_HASH
from admission.api.quantities import QuantityError, parse

_LENGTH = 8


def role_hash(pod_spec: Mapping[str, Any]) -> str:
    """The first eight hex digits of SHA-256 over the scheduling shape of a pod spec in its plain (JSON) form."""
    text = json.dumps(scheduling_shape(pod_spec), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:_LENGTH]


def role_of(pod: Pod) -> str:
    """The pod's role: what the webhook wrote when the pod was created, as later defaults may change the shape."""
    return pod.metadata.annotations.get(ROLE_HASH) or role_hash(plain(pod.spec))


def scheduling_shape(pod_spec: Mapping[str, Any]) -> dict[str, Any]:
    """What the hash is made from; empty values are left out, so that absent and empty are the same."""
    shape: dict[str, Any] = {
        "initContainers": [_container(container) for container in pod_spec.get("initContainers") or ()],
        "containers": [_container(container) for container in pod_spec.get("containers") or ()],
        "requests": _requests(pod_spec.get("resources")),
        "overhead": _amounts(pod_spec.get("overhead")),
    }
    for key in (
        "nodeSelector",
        "affinity",
        "tolerations",
        "runtimeClassName",
        "priority",
        "topologySpreadConstraints",
        "resourceClaims",
    ):
        shape[key] = pod_spec.get(key)
    result = _without_empty({"spec": shape})
    return result if isinstance(result, dict) else {}


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "requests": _requests(container.get("resources")),
        "ports": container.get("ports"),
        "restartPolicy": container.get("restartPolicy"),
    }


def _requests(resources: Mapping[str, Any] | None) -> dict[str, str]:
    """What is limited and not requested is requested as well: pods say both, templates need not."""
    said = resources or {}
    return {**_amounts(said.get("limits")), **_amounts(said.get("requests"))}


def _amounts(resources: Mapping[str, Any] | None) -> dict[str, str]:
    return {name: _by_value(quantity) for name, quantity in (resources or {}).items()}


def _by_value(quantity: Any) -> str:
    try:
        return str(parse(quantity))
    except (QuantityError, TypeError):
        return str(quantity)  # refused elsewhere; here it only has to hash


def _without_empty(value: Any) -> Any:
    match value:
        case dict():
            kept = {key: _without_empty(entry) for key, entry in value.items()}
            return {key: entry for key, entry in kept.items() if entry}
        case list() | tuple():
            return [_without_empty(entry) for entry in value]
        case _:
            return value
