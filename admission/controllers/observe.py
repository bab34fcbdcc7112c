"""From the cluster's objects to the core's values: flavors, queues, cohorts, checks, topologies, nodes and pods.

Pure functions, one for each kind; what makes no sense in an object is read so that it can do no harm, since an API
server without webhooks lets it in. They must never look at anything but their arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from fractions import Fraction
from typing import TypeVar

from admission.api import core, kueue, names
from admission.api.meta import LabelSelector, epoch, is_true
from admission.api.quantities import QuantityError, amount, parse, parts
from queues.core import events, model

E = TypeVar("E", bound=Enum)

#: Resources that are parts of GPUs, and the one that says how many GPUs the node has them on.
_SHARED_BY = {
    "aliyun.com/gpu-mem": "aliyun.com/gpu-count",
    "alibabacloud.com/gpu-milli": "alibabacloud.com/gpu-count",
}

_UNREACHABLE_TAINTS = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})


def flavor(obj: kueue.ResourceFlavor) -> model.ResourceFlavor:
    spec = obj.spec
    return model.ResourceFlavor(
        name=model.FlavorName(obj.metadata.name),
        node_labels=tuple(sorted(spec.node_labels.items())),
        node_taints=tuple(model.Taint(taint.key, taint.value, taint.effect) for taint in spec.node_taints),
        tolerations=tuple(
            model.Toleration(each.key, each.operator or "Equal", each.value, each.effect) for each in spec.tolerations
        ),
        topology=model.TopologyName(spec.topology_name) if spec.topology_name else None,
        packing=_enum(model.Packing, obj.metadata.annotations.get(names.PACKING, ""), model.Packing.PACK),
    )


def cluster_queue(obj: kueue.ClusterQueue) -> model.ClusterQueue:
    spec = obj.spec
    return model.ClusterQueue(
        name=model.ClusterQueueName(obj.metadata.name),
        groups=groups(spec.resource_groups),
        cohort=model.CohortName(spec.cohort_name) if spec.cohort_name else None,
        strategy=_enum(model.QueueingStrategy, spec.queueing_strategy, model.QueueingStrategy.BEST_EFFORT_FIFO),
        namespace_selector=selector(spec.namespace_selector),
        preemption=_preemption(spec.preemption),
        fungibility=_fungibility(spec.flavor_fungibility),
        checks=tuple(
            model.CheckRule(model.CheckName(rule.name), frozenset(model.FlavorName(name) for name in rule.on_flavors))
            for rule in (spec.admission_checks_strategy.admission_checks if spec.admission_checks_strategy else ())
        ),
        stop_policy=stop_policy(spec.stop_policy),
        fair_weight=fair_weight(spec.fair_sharing),
        usage_based=spec.admission_scope is not None and spec.admission_scope.admission_mode == names.USAGE_BASED,
        terminating=obj.metadata.is_deleting,
    )


def flavor_names(obj: kueue.ClusterQueue) -> Iterable[str]:
    """The flavors that the queue has quota in."""
    return [each.name for group in obj.spec.resource_groups for each in group.flavors]


def check_names(obj: kueue.ClusterQueue) -> Iterable[str]:
    strategy = obj.spec.admission_checks_strategy
    return [] if strategy is None else [rule.name for rule in strategy.admission_checks]


def groups(specs: Iterable[kueue.ResourceGroup]) -> tuple[model.ResourceGroup, ...]:
    return tuple(
        model.ResourceGroup(
            resources=tuple(model.ResourceName(name) for name in group.covered_resources),
            flavors=tuple(
                model.FlavorQuotas(
                    model.FlavorName(each.name),
                    {model.ResourceName(quota.name): _quota(quota) for quota in each.resources},
                )
                for each in group.flavors
            ),
        )
        for group in specs
    )


def _quota(quota: kueue.ResourceQuota) -> model.Quota:
    return model.Quota(
        nominal=quantity(quota.name, quota.nominal_quota),
        borrowing_limit=None if quota.borrowing_limit is None else quantity(quota.name, quota.borrowing_limit),
        lending_limit=None if quota.lending_limit is None else quantity(quota.name, quota.lending_limit),
    )


def quantity(resource: str, text: str | float) -> int:
    """A quota or capacity; what is no quantity, or below nothing, gives nothing."""
    try:
        return max(0, amount(resource, text))
    except QuantityError:
        return 0


def _preemption(spec: kueue.ClusterQueuePreemption) -> model.Preemption:
    never = model.PreemptionPolicy.NEVER
    borrowing = spec.borrow_within_cohort
    return model.Preemption(
        within_cluster_queue=_enum(model.PreemptionPolicy, spec.within_cluster_queue, never),
        reclaim_within_cohort=_enum(model.PreemptionPolicy, spec.reclaim_within_cohort, never),
        borrow_within_cohort=_enum(model.PreemptionPolicy, borrowing.policy, never),
        max_priority_threshold=borrowing.max_priority_threshold,
    )


def _fungibility(spec: kueue.FlavorFungibility) -> model.Fungibility:
    default = model.Fungibility()
    return model.Fungibility(
        when_can_borrow=_enum(model.FungibilityPolicy, spec.when_can_borrow, default.when_can_borrow),
        when_can_preempt=_enum(model.FungibilityPolicy, spec.when_can_preempt, default.when_can_preempt),
        preference=_enum(model.FungibilityPreference, spec.preference, default.preference),
    )


def cohort(obj: kueue.Cohort) -> model.Cohort:
    return model.Cohort(
        name=model.CohortName(obj.metadata.name),
        parent=model.CohortName(obj.spec.parent_name) if obj.spec.parent_name else None,
        groups=groups(obj.spec.resource_groups),
        fair_weight=fair_weight(obj.spec.fair_sharing),
    )


def fair_weight(spec: kueue.FairSharing | None) -> int:
    """In thousandths, rounded up so that a weight above nothing never becomes nothing."""
    if spec is None:
        return 1000
    try:
        weight = parse(spec.weight) * 1000
    except QuantityError:
        return 1000
    return max(0, -(-weight.numerator // weight.denominator))


def local_queue(obj: kueue.LocalQueue) -> model.LocalQueue:
    return model.LocalQueue(
        key=model.ObjectKey(obj.metadata.namespace, obj.metadata.name),
        cluster_queue=model.ClusterQueueName(obj.spec.cluster_queue),
        stop_policy=stop_policy(obj.spec.stop_policy),
        fair_weight=fair_weight(obj.spec.fair_sharing),
    )


def past_use(obj: kueue.LocalQueue) -> events.UsageRestored | None:
    """What its status says that it used lately; None where it says nothing."""
    sharing = obj.status.fair_sharing
    told = None if sharing is None else sharing.admission_fair_sharing_status
    if told is None or not told.last_update:
        return None
    return events.UsageRestored(local_queue(obj).key, consumed(told.consumed_resources), epoch(told.last_update))


def consumed(quantities: Mapping[str, str | float]) -> dict[model.ResourceName, Fraction]:
    """In the core's units and parts of them; what is no quantity counts nothing."""
    found: dict[model.ResourceName, Fraction] = {}
    for name, text in quantities.items():
        try:
            found[model.ResourceName(name)] = max(Fraction(0), parts(name, text))
        except QuantityError:
            continue
    return found


def stop_policy(text: str) -> model.StopPolicy:
    return _enum(model.StopPolicy, text, model.StopPolicy.NONE)


def namespace(obj: core.Namespace) -> model.Namespace:
    return model.Namespace(model.NamespaceName(obj.metadata.name), obj.metadata.labels)


def check(obj: kueue.AdmissionCheck) -> model.AdmissionCheck:
    return model.AdmissionCheck(
        name=model.CheckName(obj.metadata.name),
        controller=obj.spec.controller_name,
        active=is_true(obj.status.conditions, names.ACTIVE),
    )


def topology(obj: kueue.Topology) -> model.Topology:
    return model.Topology(
        name=model.TopologyName(obj.metadata.name), levels=tuple(level.node_label for level in obj.spec.levels)
    )


def node(obj: core.Node) -> model.Node:
    taints = obj.spec.taints
    ready = any(each.type == "Ready" and each.status == "True" for each in obj.status.conditions)
    return model.Node(
        name=model.NodeName(obj.metadata.name),
        labels=obj.metadata.labels,
        allocatable={model.ResourceName(name): quantity(name, text) for name, text in obj.status.allocatable.items()},
        taints=tuple(model.Taint(taint.key, taint.value, taint.effect) for taint in taints),
        ready=ready and not any(taint.key in _UNREACHABLE_TAINTS for taint in taints),
        unschedulable=obj.spec.unschedulable,
        devices=shared_devices(obj),
    )


def shared_devices(obj: core.Node) -> dict[model.ResourceName, int]:
    """Over how many devices each shared resource of the node lies, as far as the node says so.

    What one pod may ask of a single replica (time-slicing, MPS) or profile (MIG) is one unit of a resource, and any
    unit is as good as another: there is nothing to keep apart. Memory and parts of a GPU are: a pod's sits on one GPU.
    """
    amounts = obj.status.allocatable
    found = {}
    for resource, count in _SHARED_BY.items():
        devices = quantity(count, amounts[count]) if resource in amounts and count in amounts else 0
        if devices > 0:
            found[model.ResourceName(resource)] = devices
    return found


def occupies_node(pod: core.Pod, workload: kueue.Workload | None) -> bool:
    """Whether the pod takes room on a node that no topology assignment accounts for.

    `workload` is the one that the pod was started with. While that holds an assignment for the pod's pod set, the core
    counts the room there; afterwards, and for every other pod, the room is counted with the pod itself.
    """
    if not pod.spec.node_name or core.is_terminal(pod):
        return False
    if workload is None or workload.status.admission is None:
        return True
    assignments = workload.status.admission.pod_set_assignments
    name = pod.metadata.labels.get(names.PODSET_LABEL)
    if name is None and len(assignments) == 1:
        name = assignments[0].name
    return not any(each.name == name and each.topology_assignment is not None for each in assignments)


def workload_name(pod: core.Pod) -> str | None:
    """The Workload that the pod says it was started with."""
    meta = pod.metadata
    return (
        meta.annotations.get(names.WORKLOAD_ANNOTATION)
        or meta.annotations.get(names.POD_GROUP_NAME)
        or meta.labels.get(names.POD_GROUP_NAME)
    )


def selector(obj: LabelSelector | None) -> model.LabelSelector | None:
    """An expression with an operator that does not exist matches nothing, so the whole selector does not."""
    if obj is None:
        return None
    expressions = []
    for each in obj.match_expressions:
        try:
            expressions.append(model.Expression(each.key, model.Operator(each.operator), each.values))
        except ValueError:
            return None
    return model.LabelSelector(labels=tuple(sorted(obj.match_labels.items())), expressions=tuple(expressions))


def _enum(kind: type[E], text: str | None, default: E) -> E:
    try:
        return kind(text) if text else default
    except ValueError:
        return default
