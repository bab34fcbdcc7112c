"""Chooses a flavor for every resource of a workload, from its ClusterQueue's resource groups.

It works from the flavors' taints, labels and topologies, from the quota tree as it is and looking ahead, and from what
preemption could free (as told by a probe). It never evicts, never places pods and changes no books.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from queues.core.accounts import Account
from queues.core.activity import World
from queues.core.fungibility import BEST, FIT, NO_FIT, WORST, Grade, Mode, goes_on, is_preferred
from queues.core.model import (
    POD_UNITS,
    FlavorName,
    FlavorResource,
    Fungibility,
    PodSet,
    ResourceName,
    TopologyAssignment,
    TopologyRequest,
)
from queues.core.policy import QuotaCheck
from queues.core.quantities import fits
from queues.core.records import Option, OptionGroup, Options, QueueRecord
from queues.core.refusals import (
    Refusal,
    exceeds_maximum,
    insufficient,
    no_affinity,
    no_flavor,
    taint_refusal,
    topology_mismatch,
    unavailable,
)
from queues.core.selectors import matches_affinity, untolerated
from queues.core.topology.domains import Domains

#: What preemption could do for so much of this unit alone.
Probe = Callable[[FlavorResource, Account, int], Grade]

#: Where the scan of a resource group stopped, by (pod set group, resource group); missing: at the end.
Progress = dict[tuple[int, int], int]


@dataclass(slots=True)
class Terms:
    """What an assignment depends on beside the workload and its queue."""

    world: World
    domains: Domains
    quota_check: QuotaCheck
    probe: Probe
    #: Preemption is possible even where it takes borrowing.
    preempts_while_borrowing: bool
    #: The ClusterQueue's own rules of which flavor to take count; else the best mode, and the first that fits.
    is_fungible: bool
    #: Somebody waits for victims, so that what is free now may be spoken for.
    has_claims: bool


@dataclass(slots=True)
class PodSetPlan:
    """One pod set with the flavors chosen so far."""

    pod_set: PodSet
    count: int
    flavors: dict[ResourceName, FlavorName] = field(default_factory=dict)
    usage: dict[ResourceName, int] = field(default_factory=dict)
    topology: TopologyAssignment | None = None
    is_delayed: bool = False


class Search(NamedTuple):
    """What was looked for in which resource group."""

    group: OptionGroup
    wanted: list[tuple[ResourceName, int]]

    def only_choice(self) -> tuple[tuple[Account, int], ...] | None:
        """What is asked of which account, where there is only one flavor for it."""
        if len(self.group.options) != 1:
            return None
        accounts = self.group.options[0].accounts
        return tuple([(accounts[name], amount) for name, amount in self.wanted])


class Lack(NamedTuple):
    """An account that has less than is asked of it."""

    unit: FlavorResource
    account: Account
    amount: int


@dataclass(slots=True)
class Assignment:
    """`usage` is the total. `short` are the units that need preemption. `refusals`: by pod set, then resource group."""

    plans: list[PodSetPlan]
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    mode: Mode = FIT
    level: int = 0
    short: set[FlavorResource] = field(default_factory=set)
    refusals: list[tuple[str, list[list[Refusal]]]] = field(default_factory=list)
    progress: Progress = field(default_factory=dict)
    #: Every unit that was looked at: more of one of these might change the result.
    watched: set[FlavorResource] = field(default_factory=set)
    watches_nodes: bool = False
    #: What was too low, and the searches that found that.
    lacking: list[Lack] = field(default_factory=list)
    searches: list[Search] = field(default_factory=list)

    def fail(self, names: list[str], refusals: list[list[Refusal]]) -> None:
        self.mode = NO_FIT
        self.refusals.extend((name, refusals) for name in names)


def assign(
    queue: QueueRecord,
    pod_sets: tuple[tuple[PodSet, int], ...],
    progress: Progress,
    terms: Terms,
) -> Assignment:
    """Choose flavors for all pod sets, later ones on top of what earlier ones take.

    Cost: the flavors of the queue times the pod sets, and a probe for each that is short.
    """
    options = queue.options or options_of(queue)
    plans = [PodSetPlan(pod_set, count) for pod_set, count in pod_sets]
    assignment = Assignment(plans)
    for index, members in enumerate([plans] if len(plans) == 1 else _together(plans)):
        requests = _requests_of(members, counts_pods=options.counts_pods)
        covered = 0
        for group_index, group in enumerate(options.groups):
            wanted = [(name, requests[name]) for name in group.resources if name in requests]
            if wanted:
                covered += len(wanted)
                assignment.searches.append(Search(group, wanted))
                key = (index, group_index)
                start = progress.get(key, -1) + 1 if progress else 0
                _Scan(queue, group, members, wanted, assignment, terms).run(start, key)
        uncovered = _uncovered(requests, options) if covered < len(requests) else ()
        if uncovered and terms.quota_check is QuotaCheck.BLOCK_UNDECLARED:
            names = [plan.pod_set.name for plan in members]
            assignment.fail(names, [[unavailable(name, queue.name)] for name in uncovered])
        if assignment.mode is NO_FIT:
            break
    return assignment


def options_of(queue: QueueRecord) -> Options:
    """The queue's resource groups with its accounts, remembered until the tree is settled anew."""
    node, seen = queue.node, set[ResourceName]()
    groups = []
    for group in () if queue.spec is None else queue.spec.groups:
        resources = tuple([name for name in group.resources if name not in seen])
        seen.update(resources)
        flavors = [
            Option(
                flavor.flavor,
                {name: node.account(FlavorResource(flavor.flavor, name)) for name in flavor.quotas},
                {name: FlavorResource(flavor.flavor, name) for name in flavor.quotas},
            )
            for flavor in group.flavors
        ]
        groups.append(OptionGroup(resources, flavors))
    queue.options = Options(groups, counts_pods=POD_UNITS in seen)
    return queue.options


def _uncovered(requests: dict[ResourceName, int], options: Options) -> list[ResourceName]:
    covered = {name for group in options.groups for name in group.resources}
    return sorted(name for name, amount in requests.items() if amount and name not in covered)


def _together(plans: list[PodSetPlan]) -> list[list[PodSetPlan]]:
    """Pod sets of one pod set group get the same flavors; groups in the order of their first pod set."""
    found: dict[tuple[str, str], list[PodSetPlan]] = {}
    for plan in plans:
        request = plan.pod_set.topology
        name = None if request is None else request.pod_set_group
        found.setdefault(("pod set", plan.pod_set.name) if name is None else ("group", name), []).append(plan)
    return list(found.values())


def _requests_of(members: list[PodSetPlan], *, counts_pods: bool) -> dict[ResourceName, int]:
    """The group's total, with one of `pods` for each pod where the queue counts these."""
    for plan in members:
        count = plan.count
        plan.usage = {name: amount * count for name, amount in plan.pod_set.requests.items()}
        for name, amount in plan.pod_set.shared.items():
            plan.usage[name] = plan.usage.get(name, 0) + amount
        if counts_pods:
            plan.usage[POD_UNITS] = count
    if len(members) == 1:
        return members[0].usage
    total = dict(members[0].usage)
    for plan in members[1:]:
        for name, amount in plan.usage.items():
            total[name] = total.get(name, 0) + amount
    return total


class _Scan:
    """The search through one resource group's flavors; one flavor serves all resources of the group."""

    def __init__(
        self,
        queue: QueueRecord,
        group: OptionGroup,
        members: list[PodSetPlan],
        wanted: list[tuple[ResourceName, int]],
        assignment: Assignment,
        terms: Terms,
    ) -> None:
        assert queue.spec is not None  # noqa: S101
        self.queue = queue
        self.fungibility = queue.spec.fungibility if terms.is_fungible else Fungibility()
        self.group = group
        self.members = members
        self.wanted = wanted
        self.assignment = assignment
        self.terms = terms
        self.refusals: list[Refusal] = []

    def run(self, start: int, key: tuple[int, int]) -> None:
        best: Option | None = None
        best_grade = WORST
        best_grades: list[Grade] = []
        last = len(self.group.options) - 1
        index = start = start if start <= last else 0
        for index in range(start, last + 1):
            option = self.group.options[index]
            refusal = self._unfit(option)
            if refusal is not None:
                self.refusals.append(refusal)
                continue
            grade, grades = self._grade(option)
            stop = grade is BEST or not goes_on(grade, self.fungibility)
            if stop or is_preferred(grade, best_grade, self.fungibility.preference):
                best, best_grade, best_grades = option, grade, grades
            if stop:
                break
        if best is None:
            self.assignment.fail([plan.pod_set.name for plan in self.members], [self.refusals])
            return
        if index < last:
            self.assignment.progress[key] = index
        self._take(best, best_grades)

    def _take(self, option: Option, grades: list[Grade]) -> None:
        """The flavor was ranked by the worst of its resources as the queue prefers; here each counts for itself."""
        assignment, usage = self.assignment, self.assignment.usage
        is_short = False
        for (name, amount), (mode, level) in zip(self.wanted, grades, strict=True):
            unit = option.units[name]
            if amount:
                usage[unit] = usage.get(unit, 0) + amount
            if mode is not FIT:
                is_short = True
                assignment.short.add(unit)
            assignment.mode = min(assignment.mode, mode)
            assignment.level = max(assignment.level, level)
            for plan in self.members:
                if name in plan.usage:
                    plan.flavors[name] = option.flavor
        if is_short:
            assignment.refusals.extend((plan.pod_set.name, [self.refusals]) for plan in self.members)

    def _grade(self, option: Option) -> tuple[Grade, list[Grade]]:
        """The worst over the resources; what is not looked at after a misfit does not matter."""
        worst = BEST
        grades = []
        for name, amount in self.wanted:
            grade = self._check(option.units[name], option.accounts[name], amount)
            grades.append(grade)
            if grade is BEST:
                continue
            if is_preferred(worst, grade, self.fungibility.preference) or grade.mode is NO_FIT:
                worst = grade
            if worst.mode is NO_FIT:
                break
        return worst, grades

    def _check(self, unit: FlavorResource, account: Account, request: int) -> Grade:
        """One resource against quota: now, for what is free, and ahead, for what is spoken for."""
        assumed = self.assignment.usage.get(unit, 0)
        amount = assumed + request
        ahead = account.ahead
        if not fits(amount, ahead.potential):
            self.refusals.append(exceeds_maximum(self.queue, unit, account, assumed, request))
            return WORST
        self.assignment.watched.add(unit)
        level, may_reclaim = ahead.lowest_fit(amount)
        room = account.available
        if self.terms.has_claims:
            room = min(room, ahead.available)
        if fits(amount, max(room, 0)):
            return Grade(FIT, level) if level else BEST
        self.assignment.lacking.append(Lack(unit, account, amount))
        self.refusals.append(insufficient(self.queue, unit, account, amount, max(room, 0)))
        if fits(amount, account.nominal) or may_reclaim or self.terms.preempts_while_borrowing:
            return self.terms.probe(unit, account, amount)
        return WORST

    def _unfit(self, option: Option) -> Refusal | None:
        """Why the pods cannot use this flavor at all."""
        flavor = self.terms.world.flavors.get(option.flavor)
        if flavor is None:
            return no_flavor(option.flavor)
        levels = self.terms.domains.levels_of(option.flavor)
        for plan in self.members:
            pod_set = plan.pod_set
            if levels is not None or pod_set.topology is not None:
                refusal = self._topology_unfit(option.flavor, levels, pod_set)
                if refusal is not None:
                    return refusal
            taint = untolerated(flavor, pod_set) if flavor.node_taints else None
            if taint is not None:
                return taint_refusal(taint, option.flavor)
            if not matches_affinity(flavor, pod_set):
                return no_affinity(option.flavor)
        return None

    def _topology_unfit(self, flavor: FlavorName, levels: tuple[str, ...] | None, pod_set: PodSet) -> Refusal | None:
        if not asks_for_topology(pod_set.topology):
            if levels is not None and not self.queue.is_topology_only:
                return topology_mismatch(f"flavor {flavor} is only for pod sets that ask for a topology")
            return None
        takes_of_nodes = pod_set.node_requests or pod_set.requests
        if not any(name == POD_UNITS or takes_of_nodes.get(name) for name in self.group.resources):
            return None
        if levels is None:
            return topology_mismatch(f"flavor {flavor} has no topology")
        for level in _levels_asked(pod_set.topology):
            if level not in levels:
                return topology_mismatch(f"flavor {flavor} has no topology level {level}")
        return None


def asks_for_topology(request: TopologyRequest | None) -> bool:
    """Whether the pod set itself asks for topology; a mere group name does not."""
    return request is not None and bool(
        request.required or request.preferred or request.unconstrained or request.slice_required or request.slice_size
    )


def _levels_asked(request: TopologyRequest | None) -> Iterator[str]:
    if request is not None:
        inner = [level for level, _ in request.inner_slices]
        for level in (request.required, request.preferred, request.slice_required, *inner):
            if level is not None:
                yield level
