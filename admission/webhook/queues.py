"""ClusterQueues, Cohorts and LocalQueues: what their CRDs cannot say.

Judged from the one object (and the one before it on an update): a flavor, check or cohort that does not exist makes a
queue inactive, never invalid, since manifests may come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from admission.api import names
from admission.api.kueue import AdmissionChecksStrategy, ClusterQueue, Cohort, LocalQueue
from admission.webhook import fields, job_rules, quotas, syntax
from admission.webhook.context import Context
from admission.webhook.fields import FieldError
from admission.webhook.review import Operation


def mutate_cluster_queue(_raw: Mapping[str, Any], queue: ClusterQueue, _context: Context) -> list[Operation]:
    """A ClusterQueue in use is kept until its workloads are gone."""
    return job_rules.add_finalizer(queue.metadata, names.RESOURCE_IN_USE_FINALIZER)


def validate_cluster_queue(new: ClusterQueue, old: ClusterQueue | None, _context: Context) -> Iterator[FieldError]:
    spec = new.spec
    yield from quotas.group_errors(
        "spec.resourceGroups",
        spec.resource_groups,
        parent=spec.cohort_name,
        parent_kind="cohort",
        lends_at_most_nominal=True,
    )
    yield from syntax.selector_errors("spec.namespaceSelector", spec.namespace_selector)
    yield from quotas.weight_errors("spec.fairSharing", spec.fair_sharing)
    if spec.preemption.reclaim_within_cohort == "Never" and spec.preemption.borrow_within_cohort.policy != "Never":
        yield fields.invalid(
            "spec.preemption",
            spec.preemption.borrow_within_cohort.policy,
            "borrowWithinCohort.policy must be Never while reclaimWithinCohort is Never",
        )
    fungibility = spec.flavor_fungibility
    if fungibility.preference and (fungibility.when_can_borrow, fungibility.when_can_preempt) != ("TryNextFlavor",) * 2:
        yield fields.invalid(
            "spec.flavorFungibility.preference",
            fungibility.preference,
            "may only be set when whenCanBorrow and whenCanPreempt are TryNextFlavor",
        )
    yield from _check_errors(new, old)
    if old is not None and spec.concurrent_admission_policy != old.spec.concurrent_admission_policy:
        yield fields.forbidden("spec.concurrentAdmissionPolicy", "field is immutable")


def _check_errors(new: ClusterQueue, old: ClusterQueue | None) -> Iterator[FieldError]:
    """Checks may only name the queue's own flavors; what was stored otherwise before may stay."""
    strategy = new.spec.admission_checks_strategy
    if strategy is None:
        return
    flavors = _flavors(new)
    stored: dict[str, frozenset[str]] = {}
    if old is not None and flavors == _flavors(old):
        stored = _flavors_of_checks(old.spec.admission_checks_strategy)
    for position, check in enumerate(strategy.admission_checks):
        if stored.get(check.name) == frozenset(check.on_flavors):
            continue
        at = f"{fields.index('spec.admissionChecksStrategy.admissionChecks', position)}.onFlavors"
        for place, flavor in enumerate(check.on_flavors):
            if flavor not in flavors:
                yield fields.not_found(fields.index(at, place), flavor, "must be a flavor of this ClusterQueue")


def _flavors(queue: ClusterQueue) -> frozenset[str]:
    return frozenset(flavor.name for group in queue.spec.resource_groups for flavor in group.flavors)


def _flavors_of_checks(strategy: AdmissionChecksStrategy | None) -> dict[str, frozenset[str]]:
    return {check.name: frozenset(check.on_flavors) for check in strategy.admission_checks} if strategy else {}


def validate_cohort(new: Cohort, _old: Cohort | None, _context: Context) -> Iterator[FieldError]:
    yield from quotas.group_errors(
        "spec.resourceGroups",
        new.spec.resource_groups,
        parent=new.spec.parent_name,
        parent_kind="parent",
        lends_at_most_nominal=False,
    )
    yield from quotas.weight_errors("spec.fairSharing", new.spec.fair_sharing)


def validate_local_queue(new: LocalQueue, old: LocalQueue | None, _context: Context) -> Iterator[FieldError]:
    yield from quotas.weight_errors("spec.fairSharing", new.spec.fair_sharing)
    if old is not None and new.spec.cluster_queue != old.spec.cluster_queue:
        yield fields.immutable("spec.clusterQueue", new.spec.cluster_queue)
