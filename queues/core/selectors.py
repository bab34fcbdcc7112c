"""Decides whether labels match a selector, and whether a pod set may use a flavor's nodes at all.

It works from the labels, taints and tolerations of the flavor and from the pod set's own scheduling constraints. It
never looks at nodes: a key that the flavor does not declare is left to the scheduler that places the pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from queues.core.model import Expression, LabelSelector, PodSet, ResourceFlavor, Taint
from queues.core.topology.suitability import HARD_EFFECTS, is_matched, is_tolerated


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """No selector selects nothing, an empty one everything."""
    if selector is None:
        return False
    if not selector.labels and not selector.expressions:
        return True
    return all(labels.get(key) == value for key, value in selector.labels) and all(
        is_matched(expression, labels) for expression in selector.expressions
    )


def untolerated(flavor: ResourceFlavor, pod_set: PodSet) -> Taint | None:
    """The first taint of the flavor that keeps these pods out; the flavor's own tolerations count as theirs."""
    if not flavor.node_taints:
        return None
    tolerations = pod_set.tolerations + flavor.tolerations
    for taint in flavor.node_taints:
        if taint.effect in HARD_EFFECTS and not is_tolerated(taint, tolerations):
            return taint
    return None


def matches_affinity(flavor: ResourceFlavor, pod_set: PodSet) -> bool:
    """Whether node selector and required affinity agree with the labels that the flavor itself declares."""
    if not pod_set.node_selector and not pod_set.affinity:
        return True
    labels = dict(flavor.node_labels)
    if any(key in labels and labels[key] != value for key, value in pod_set.node_selector):
        return False
    return not pod_set.affinity or any(_term_matches(term, labels) for term in pod_set.affinity)


def _term_matches(term: tuple[Expression, ...], labels: Mapping[str, str]) -> bool:
    """Expressions on other keys are dropped, so that a term about nothing that the flavor declares matches."""
    return all(is_matched(expression, labels) for expression in term if expression.key in labels)
