"""Decides which nodes a pod may use at all: taints, node selector and required node affinity.

It works from a node's labels and taints and from what the pod (and its flavor) tolerates and asks for. It never looks
at capacity, and a preference (PreferNoSchedule, preferred affinity) never excludes a node.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, assert_never

from queues.core.model import Expression, Operator, Taint, Toleration

NOT_READY = "notReady"
UNSCHEDULABLE = "unschedulable"
NODE_SELECTOR = "nodeSelector"
AFFINITY = "affinity"

HARD_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class NodeDemand:
    """What decides whether a pod may use a node; hashable, so that the verdicts can be remembered."""

    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: tuple[tuple[Expression, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


def is_tolerated(taint: Taint, tolerations: tuple[Toleration, ...]) -> bool:
    """Whether one of the tolerations covers the taint; one without a key has to say `Exists`."""
    return any(
        (not toleration.effect or toleration.effect == taint.effect)
        and (toleration.key == taint.key if toleration.key else toleration.operator == "Exists")
        and (toleration.operator == "Exists" or toleration.value == taint.value)
        for toleration in tolerations
    )


def is_matched(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Whether the labels satisfy one expression, by the rules of node affinity."""
    return is_value_matched(expression, labels.get(expression.key))


def is_value_matched(expression: Expression, value: str | None) -> bool:
    """Whether a label with this value (None: no such label) satisfies one expression of node affinity."""
    match expression.operator:
        case Operator.IN:
            return value is not None and value in expression.values
        case Operator.NOT_IN:
            return value is None or value not in expression.values
        case Operator.EXISTS:
            return value is not None
        case Operator.DOES_NOT_EXIST:
            return value is None
        case Operator.GT | Operator.LT:
            return _is_compared(expression, value)
    assert_never(expression.operator)


def _is_compared(expression: Expression, value: str | None) -> bool:
    """`Gt` and `Lt` compare whole numbers; what is no number satisfies neither."""
    if value is None or len(expression.values) != 1:
        return False
    try:
        label, bound = int(value), int(expression.values[0])
    except ValueError:
        return False
    return label > bound if expression.operator is Operator.GT else label < bound


class Condition(NamedTuple):
    """What of a node keeps pods out whatever its labels are. Few nodes differ in it, so it is judged once for all."""

    ready: bool
    unschedulable: bool
    taints: tuple[Taint, ...]


def why_closed(condition: Condition, tolerations: tuple[Toleration, ...]) -> str | None:
    """Why a node in this condition takes no such pod, in words that are counted in messages; None when it does."""
    if not condition.ready:
        return NOT_READY
    if condition.unschedulable:
        return UNSCHEDULABLE
    for taint in condition.taints:
        if taint.effect in HARD_EFFECTS and not is_tolerated(taint, tolerations):
            return f'taint "{taint.key}={taint.value}:{taint.effect}"'
    return None
