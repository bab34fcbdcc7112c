"""Chains that build the core's values: `workload("a").queue("q").gpus(8).gang(4)`.

Every step returns a new builder, so that a half-built one can be shared; `.build()` gives the frozen value. Names that
do not matter to a test have defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from queues.core import events
from queues.core.cycle import decide
from queues.core.model import (
    Admission,
    AdmissionCheck,
    CheckName,
    CheckRule,
    ClusterQueue,
    ClusterQueueName,
    Cohort,
    CohortName,
    Expression,
    FlavorName,
    FlavorQuotas,
    Fungibility,
    FungibilityPolicy,
    FungibilityPreference,
    LabelSelector,
    LocalQueue,
    Namespace,
    NamespaceName,
    Node,
    NodeName,
    ObjectKey,
    PodSet,
    PodSetAssignment,
    Preemption,
    PreemptionPolicy,
    QueueingStrategy,
    Quota,
    ResourceFlavor,
    ResourceGroup,
    ResourceName,
    StopPolicy,
    Taint,
    Toleration,
    Topology,
    TopologyName,
    TopologyRequest,
    Uid,
    Workload,
)
from queues.core.plan import Admit, Decision, Evict, GiveUp, Hold, Place, Plan
from queues.core.policy import Policy
from queues.core.state import State

NAMESPACE = "default"
CPU = ResourceName("cpu")
MEMORY = ResourceName("memory")
GPU = ResourceName("nvidia.com/gpu")
FLAVOR = "default"

ANY = PreemptionPolicy.ANY
NEVER = PreemptionPolicy.NEVER
LOWER = PreemptionPolicy.LOWER_PRIORITY
LOWER_OR_NEWER = PreemptionPolicy.LOWER_OR_NEWER_EQUAL_PRIORITY

MAY_STOP = FungibilityPolicy.MAY_STOP_SEARCH
TRY_NEXT = FungibilityPolicy.TRY_NEXT_FLAVOR


# ------------------------------------------------------------------ workloads


@dataclass(frozen=True)
class WorkloadBuilder:
    """One pod of one GPU by default. Steps about pods change the last pod set."""

    value: Workload
    _fresh: bool = True

    def queue(self, name: str, namespace: str = NAMESPACE) -> WorkloadBuilder:
        key = ObjectKey(namespace, self.value.key.name)
        return self._with(queue=ObjectKey(namespace, name), key=key)

    def namespace(self, name: str) -> WorkloadBuilder:
        return self.queue(self.value.queue.name, name)

    def requests(self, **amounts: int) -> WorkloadBuilder:
        """Per pod; `cpu` in milli-units, names with `_` for `/` and `.` are not guessed: use `asks`."""
        return self.asks({ResourceName(name): amount for name, amount in amounts.items()})

    def asks(self, amounts: Mapping[Any, int]) -> WorkloadBuilder:
        requests = {ResourceName(name): amount for name, amount in amounts.items()}
        return self._pods(requests=requests, node_requests=requests)

    def gpus(self, amount: int) -> WorkloadBuilder:
        return self.asks({GPU: amount})

    def cpu(self, milli: int) -> WorkloadBuilder:
        return self.asks({CPU: milli})

    def gang(self, count: int, at_least: int | None = None) -> WorkloadBuilder:
        return self._pods(count=count, min_count=at_least)

    def pod_set(self, name: str, count: int = 1, **amounts: int) -> WorkloadBuilder:
        """A further pod set; the first call replaces the default one."""
        requests = {ResourceName(key): amount for key, amount in amounts.items()}
        pods = PodSet(name, count, requests, requests)
        before = () if self._fresh else self.value.pod_sets
        return WorkloadBuilder(replace(self.value, pod_sets=(*before, pods)), _fresh=False)

    def priority(self, value: int) -> WorkloadBuilder:
        return self._with(priority=value)

    def at(self, time: float) -> WorkloadBuilder:
        """When it was created, and since when it waits."""
        return self._with(created_at=time, queued_at=time)

    def not_before(self, time: float) -> WorkloadBuilder:
        return self._with(eligible_at=time)

    def selecting(self, **labels: str) -> WorkloadBuilder:
        return self._pods(node_selector=tuple(sorted(labels.items())))

    def affinity(self, *terms: tuple[Expression, ...]) -> WorkloadBuilder:
        return self._pods(affinity=terms)

    def tolerating(self, *tolerations: Toleration) -> WorkloadBuilder:
        return self._pods(tolerations=tolerations)

    def topology(self, **request: Any) -> WorkloadBuilder:
        """`required=`, `preferred=` or `unconstrained=`."""
        return self._pods(topology=TopologyRequest(**request))

    def reclaimable(self, count: int) -> WorkloadBuilder:
        return self._pods(reclaimable=count)

    def held(self, why: str | None) -> WorkloadBuilder:
        return self._with(held=why)

    def misconfigured(self, why: str | None) -> WorkloadBuilder:
        return self._with(misconfigured=why)

    def holding(
        self, cluster_queue: str, flavor: str = FLAVOR, *, since: float = 0.0, admitted: bool = True
    ) -> WorkloadBuilder:
        """It holds quota for all its pods, all of it in one flavor."""
        assignments = tuple(
            PodSetAssignment(
                pods.name,
                pods.count,
                dict.fromkeys(pods.requests, FlavorName(flavor)),
                {name: amount * pods.count for name, amount in pods.requests.items()},
            )
            for pods in self.value.pod_sets
        )
        return self._with(admission=Admission(ClusterQueueName(cluster_queue), assignments, since, admitted))

    def evicted(self) -> WorkloadBuilder:
        return self._with(evicted=True)

    def _with(self, **changes: Any) -> WorkloadBuilder:
        return replace(self, value=replace(self.value, **changes))

    def _pods(self, **changes: Any) -> WorkloadBuilder:
        *others, last = self.value.pod_sets
        return self._with(pod_sets=(*others, replace(last, **changes)))

    def build(self) -> Workload:
        return self.value


def workload(name: str) -> WorkloadBuilder:
    """Its uid is its name."""
    return WorkloadBuilder(
        Workload(
            uid=Uid(name),
            key=ObjectKey(NAMESPACE, name),
            queue=ObjectKey(NAMESPACE, "main"),
            pod_sets=(PodSet("main", 1, {GPU: 1}, {GPU: 1}),),
        )
    )


# ------------------------------------------------------------------ queues


def quota(nominal: int, borrowing: int | None = None, lending: int | None = None) -> Quota:
    return Quota(nominal, borrowing, lending)


@dataclass(frozen=True)
class GroupsBuilder:
    """What ClusterQueues and cohorts share: resource groups made of flavors."""

    name: str
    _groups: tuple[ResourceGroup, ...] = ()

    def flavor(self, name: str, quotas: Mapping[Any, int | Quota], *, group: int = 0) -> Any:
        """Add a flavor to a resource group; quotas by resource, a plain number being the nominal quota."""
        made = {
            ResourceName(resource): amount if isinstance(amount, Quota) else Quota(amount)
            for resource, amount in quotas.items()
        }
        groups = list(self._groups)
        while len(groups) <= group:
            groups.append(ResourceGroup(tuple(made), ()))
        old = groups[group]
        groups[group] = replace(old, flavors=(*old.flavors, FlavorQuotas(FlavorName(name), made)))
        return replace(self, _groups=tuple(groups))

    def gpus(self, nominal: int, borrowing: int | None = None, lending: int | None = None) -> Any:
        """GPUs of the default flavor."""
        return self.flavor(FLAVOR, {GPU: Quota(nominal, borrowing, lending)})

    def cpu(self, nominal: int, borrowing: int | None = None, lending: int | None = None) -> Any:
        """Milli-units of the default flavor."""
        return self.flavor(FLAVOR, {CPU: Quota(nominal, borrowing, lending)})


@dataclass(frozen=True)
class ClusterQueueBuilder(GroupsBuilder):
    _fields: Mapping[str, Any] = field(default_factory=dict)
    _preemption: Preemption = field(default_factory=Preemption)

    def _with(self, **fields: Any) -> ClusterQueueBuilder:
        return replace(self, _fields={**self._fields, **fields})

    def cohort(self, name: str | None) -> ClusterQueueBuilder:
        return self._with(cohort=None if name is None else CohortName(name))

    def strict(self) -> ClusterQueueBuilder:
        return self._with(strategy=QueueingStrategy.STRICT_FIFO)

    def within(self, policy: PreemptionPolicy) -> ClusterQueueBuilder:
        return replace(self, _preemption=replace(self._preemption, within_cluster_queue=policy))

    def reclaim(self, policy: PreemptionPolicy) -> ClusterQueueBuilder:
        return replace(self, _preemption=replace(self._preemption, reclaim_within_cohort=policy))

    def borrow(self, policy: PreemptionPolicy, threshold: int | None = None) -> ClusterQueueBuilder:
        return replace(
            self,
            _preemption=replace(self._preemption, borrow_within_cohort=policy, max_priority_threshold=threshold),
        )

    def fungibility(
        self,
        borrow: FungibilityPolicy = MAY_STOP,
        preempt: FungibilityPolicy = TRY_NEXT,
        preference: FungibilityPreference = FungibilityPreference.BORROWING_OVER_PREEMPTION,
    ) -> ClusterQueueBuilder:
        return self._with(fungibility=Fungibility(borrow, preempt, preference))

    def selecting(self, selector: LabelSelector | None) -> ClusterQueueBuilder:
        return self._with(namespace_selector=selector)

    def checks(self, *names: str, on: Iterable[str] = ()) -> ClusterQueueBuilder:
        flavors = frozenset(FlavorName(name) for name in on)
        before = self._fields.get("checks", ())
        return self._with(checks=(*before, *(CheckRule(CheckName(name), flavors) for name in names)))

    def stopped(self, policy: StopPolicy = StopPolicy.HOLD) -> ClusterQueueBuilder:
        return self._with(stop_policy=policy)

    def weight(self, thousandths: int) -> ClusterQueueBuilder:
        return self._with(fair_weight=thousandths)

    def by_past_use(self) -> ClusterQueueBuilder:
        return self._with(usage_based=True)

    def terminating(self) -> ClusterQueueBuilder:
        return self._with(terminating=True)

    def build(self) -> ClusterQueue:
        return ClusterQueue(ClusterQueueName(self.name), self._groups, preemption=self._preemption, **self._fields)


def cluster_queue(name: str) -> ClusterQueueBuilder:
    return ClusterQueueBuilder(name)


@dataclass(frozen=True)
class CohortBuilder(GroupsBuilder):
    _parent: str | None = None
    _weight: int = 1000

    def parent(self, name: str | None) -> CohortBuilder:
        return replace(self, _parent=name)

    def weight(self, thousandths: int) -> CohortBuilder:
        return replace(self, _weight=thousandths)

    def build(self) -> Cohort:
        parent = None if self._parent is None else CohortName(self._parent)
        return Cohort(CohortName(self.name), parent, self._groups, self._weight)


def cohort(name: str) -> CohortBuilder:
    return CohortBuilder(name)


def local_queue(
    name: str, cluster_queue: str, namespace: str = NAMESPACE, stop: StopPolicy = StopPolicy.NONE
) -> LocalQueue:
    return LocalQueue(ObjectKey(namespace, name), ClusterQueueName(cluster_queue), stop)


def flavor(
    name: str = FLAVOR,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Taint] = (),
    tolerations: Iterable[Toleration] = (),
    topology: str | None = None,
) -> ResourceFlavor:
    return ResourceFlavor(
        FlavorName(name),
        tuple(sorted((labels or {}).items())),
        tuple(taints),
        tuple(tolerations),
        None if topology is None else TopologyName(topology),
    )


def check(name: str, *, active: bool = True) -> AdmissionCheck:
    return AdmissionCheck(CheckName(name), "test/controller", active)


def namespace(name: str, **labels: str) -> Namespace:
    return Namespace(NamespaceName(name), labels)


def topology(name: str, *levels: str) -> Topology:
    return Topology(TopologyName(name), levels)


def node(name: str, gpus: int = 8, labels: Mapping[str, str] | None = None, **fields: Any) -> Node:
    """A node with a hostname, enough cpu and 110 pods."""
    allocatable = {GPU: gpus, CPU: 64_000, ResourceName("pods"): 110}
    all_labels = {"kubernetes.io/hostname": name, **(labels or {})}
    return Node(NodeName(name), all_labels, allocatable, **fields)


# ------------------------------------------------------------------ playing


class Play:
    """A state with what most tests need around it: the default flavor, and a LocalQueue for every ClusterQueue.

    It plays the shell: what is decided is written and echoed at once, and evicted workloads give back when told to.
    """

    def __init__(
        self, policy: Policy | None = None, *, after_each: Callable[[Play], None] = lambda _play: None
    ) -> None:
        self.state = State()
        self.after_each = after_each
        #: Set to False by a test that takes quota away from under running work.
        self.is_within_limits = True
        self.policy = policy or Policy()
        self.now = 1000.0
        self.objects: dict[str, Workload] = {}
        self.state.apply(events.FlavorChanged(flavor()))

    def flavors(self, *values: ResourceFlavor) -> Play:
        for value in values:
            self.state.apply(events.FlavorChanged(value))
        return self

    def cohorts(self, *builders: CohortBuilder) -> Play:
        for builder in builders:
            self.state.apply(events.CohortChanged(builder.build()))
        return self

    def queues(self, *builders: ClusterQueueBuilder) -> Play:
        for builder in builders:
            self.state.apply(events.ClusterQueueChanged(builder.build()))
            self.state.apply(events.LocalQueueChanged(local_queue(builder.name, builder.name)))
        return self

    def apply(self, *happened: events.Event) -> Play:
        for event in happened:
            self.state.apply(event)
        return self

    def shrunk(self) -> Play:
        self.is_within_limits = False
        return self

    def submit(self, *builders: WorkloadBuilder) -> Play:
        """Told one after the other, created one second apart unless a time was given."""
        for builder in builders:
            value = builder.build()
            if not value.created_at:
                self.now += 1
                value = replace(value, created_at=self.now, queued_at=self.now)
            self.change(value)
        return self

    def change(self, value: Workload) -> Play:
        self.objects[value.uid] = value
        self.state.apply(events.WorkloadChanged(value))
        return self

    def decide(self) -> Plan:
        """Decide without carrying anything out."""
        self.now += 1
        plan = decide(self.state, self.now, self.policy)
        self.after_each(self)
        return plan

    def run(self) -> Plan:
        """Decide, write what was decided and tell the core the result."""
        plan = self.decide()
        for decision in plan:
            match decision:
                case Admit(uid, admission):
                    self.change(replace(self.objects[uid], admission=admission, evicted=False))
                case Place(uid, admission):
                    changed = replace(self.objects[uid], admission=admission, failed_hosts=(), is_to_be_placed=False)
                    self.change(changed)
                case Evict(uid) | GiveUp(uid):
                    self.change(replace(self.objects[uid], evicted=True, failed_hosts=()))
                case Hold():
                    pass
        return plan

    def release(self, *names: str) -> Play:
        """The pods of evicted workloads have ended; they wait again."""
        for name in names:
            self.change(replace(self.objects[name], admission=None, evicted=False))
        return self

    def finish(self, *names: str) -> Play:
        for name in names:
            del self.objects[name]
            self.state.apply(events.WorkloadGone(Uid(name)))
        return self

    def holding(self) -> set[str]:
        return {name for name, value in self.objects.items() if value.admission is not None}

    def waiting(self) -> set[str]:
        return set(self.objects) - self.holding()

    def used(self, queue: str, resource: ResourceName = GPU, flavor_name: str = FLAVOR) -> int:
        usage = self.state.usage(ClusterQueueName(queue))
        return sum(one.reserved for unit, one in usage.items() if unit == (FlavorName(flavor_name), resource))


def admitted(plan: Iterable[Decision]) -> list[str]:
    return [str(decision.uid) for decision in plan if isinstance(decision, Admit)]


def evicted(plan: Iterable[Decision]) -> list[str]:
    return [str(decision.uid) for decision in plan if isinstance(decision, Evict)]


def held(plan: Iterable[Decision]) -> dict[str, Hold]:
    return {str(decision.uid): decision for decision in plan if isinstance(decision, Hold)}
