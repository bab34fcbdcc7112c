"""Flavor assignment and the outcome for one workload that stands alone, written for obviousness."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import IntEnum

from queues.core.model import (
    FlavorResource,
    Fungibility,
    FungibilityPolicy,
    FungibilityPreference,
    PodSet,
    PreemptionPolicy,
)
from tests.oracle.preemption import Preemptor, fits, targets
from tests.oracle.quota import World


class Mode(IntEnum):
    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


@dataclass(frozen=True)
class Verdict:
    mode: Mode
    level: int


@dataclass
class Assignment:
    """Flavor by pod set and resource, the verdict of each, and where the next scan would go on."""

    flavors: dict[str, dict[str, str]] = field(default_factory=dict)
    verdicts: dict[FlavorResource, Verdict] = field(default_factory=dict)
    usage: dict[FlavorResource, int] = field(default_factory=dict)
    progress: dict[tuple[str, int], int] = field(default_factory=dict)
    is_unfit: bool = False

    @property
    def has_pending_flavors(self) -> bool:
        return any(index != -1 for index in self.progress.values())


@dataclass(frozen=True)
class Outcome:
    """Flavors when it is admitted, uids when others have to go first, nothing when it waits."""

    admitted: dict[str, dict[str, str]] | None = None
    victims: frozenset[str] = frozenset()


def is_preferred(a: Verdict, b: Verdict, fungibility: Fungibility) -> bool:
    if a.mode is Mode.NO_FIT:
        return False
    if b.mode is Mode.NO_FIT:
        return True
    if (a.mode is Mode.NO_CANDIDATES) != (b.mode is Mode.NO_CANDIDATES):
        return b.mode is Mode.NO_CANDIDATES
    if fungibility.preference is FungibilityPreference.BORROWING_OVER_PREEMPTION:
        return (-a.mode, a.level) < (-b.mode, b.level)
    return (a.level, -a.mode) < (b.level, -b.mode)


def try_next(verdict: Verdict, fungibility: Fungibility) -> bool:
    if verdict.mode in (Mode.NO_FIT, Mode.NO_CANDIDATES):
        return True
    needs_preemption = verdict.mode in (Mode.PREEMPT, Mode.RECLAIM)
    if needs_preemption and fungibility.when_can_preempt is FungibilityPolicy.TRY_NEXT_FLAVOR:
        return True
    return verdict.level > 0 and fungibility.when_can_borrow is FungibilityPolicy.TRY_NEXT_FLAVOR


def judge(world: World, preemptor: Preemptor, fr: FlavorResource, amount: int) -> Verdict:
    queue = world.queues[preemptor.queue]
    node = ("queue", queue.name)
    if amount > world.potential(node, fr):
        return Verdict(Mode.NO_FIT, 0)
    ahead = world.ahead()
    level, may_reclaim = ahead.lowest_fit(queue.name, fr, amount)
    if amount <= max(0, world.available(node, fr)):
        return Verdict(Mode.FIT, level)
    rules = queue.preemption
    may_borrow_by_preemption = rules.borrow_within_cohort is not PreemptionPolicy.NEVER or (
        world.fair_sharing and rules.reclaim_within_cohort is not PreemptionPolicy.NEVER
    )
    if world.quota(node, fr).nominal >= amount or may_reclaim or may_borrow_by_preemption:
        if can_preempt(world, preemptor) and amount <= max(0, ahead.available(node, fr)):
            return Verdict(Mode.RECLAIM, level)
        victims = targets(ahead, preemptor, {fr: amount}, {fr})
        if not victims:
            return Verdict(Mode.NO_CANDIDATES, level)
        level, _ = ahead.without(victims).lowest_fit(queue.name, fr, amount)
        own = any(victim.queue == queue.name for victim in victims)
        return Verdict(Mode.PREEMPT if own else Mode.RECLAIM, level)
    return Verdict(Mode.NO_FIT, 0)


def can_preempt(world: World, preemptor: Preemptor) -> bool:
    rules = world.queues[preemptor.queue].preemption
    never = PreemptionPolicy.NEVER
    return rules.within_cluster_queue is not never or rules.reclaim_within_cohort is not never


def assign(
    world: World, preemptor: Preemptor, pod_sets: list[PodSet], progress: dict[tuple[str, int], int]
) -> Assignment:
    queue = world.queues[preemptor.queue]
    covered = {r for group in queue.groups for r in group.resources}
    result = Assignment()
    for pod_set in pod_sets:
        count = pod_set.count - pod_set.reclaimable
        requests = {r: each * count for r, each in pod_set.requests.items()}
        if "pods" in covered:
            requests["pods"] = count
        if any(amount > 0 and r not in covered for r, amount in requests.items()):
            result.is_unfit = True
            return result
        result.flavors[pod_set.name] = {}
        for index, group in enumerate(queue.groups):
            wanted = {r: requests[r] for r in sorted(group.resources) if r in requests}
            if not wanted:
                continue
            start = progress.get((pod_set.name, index), -1) + 1
            best, stopped = scan(world, preemptor, pod_set, group, wanted, result.usage, start)
            result.progress[pod_set.name, index] = stopped
            if best is None:
                result.is_unfit = True
                continue
            for fr, verdict in best.items():
                result.flavors[pod_set.name][fr.resource] = fr.flavor
                result.usage[fr] = result.usage.get(fr, 0) + requests[fr.resource]
                old = result.verdicts.get(fr)
                result.verdicts[fr] = verdict if old is None or verdict.mode < old.mode else old
        if result.is_unfit:
            return result
    return result


def scan(world, preemptor, pod_set, group, wanted, assumed, start):
    """The verdicts of the flavor taken (nothing when none will do), and where the scan stopped, -1 for at the end."""
    fungibility = world.queues[preemptor.queue].fungibility
    best, best_worst = None, Verdict(Mode.NO_FIT, 0)
    for position in range(start, len(group.flavors)):
        name = group.flavors[position].flavor
        if not may_use(world, name, pod_set):
            continue
        verdicts: dict[FlavorResource, Verdict] = {}
        worst = Verdict(Mode.FIT, -1)
        for r, amount in wanted.items():
            fr = FlavorResource(name, r)
            verdicts[fr] = judge(world, preemptor, fr, amount + assumed.get(fr, 0))
            if verdicts[fr].mode is Mode.NO_FIT or is_preferred(worst, verdicts[fr], fungibility):
                worst = verdicts[fr]
            if worst.mode is Mode.NO_FIT:
                break
        if not try_next(worst, fungibility):
            return verdicts, position if position < len(group.flavors) - 1 else -1
        if is_preferred(worst, best_worst, fungibility):
            best, best_worst = verdicts, worst
    return best, -1


def may_use(world: World, name: str, pod_set: PodSet) -> bool:
    flavor = world.flavors.get(name)
    if flavor is None:
        return False
    tolerations = (*pod_set.tolerations, *flavor.tolerations)
    for taint in flavor.node_taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not any(
            t.operator == "Exists" and t.key in ("", taint.key) for t in tolerations
        ):
            return False
    labels = dict(flavor.node_labels)
    return all(labels[key] == value for key, value in pod_set.node_selector if key in labels)


def outcome(world: World, preemptor: Preemptor, pod_sets: list[PodSet]) -> Outcome:
    """What has to happen to a single waiting workload while nothing else is going on."""
    progress: dict[tuple[str, int], int] = {}
    seen: list[dict[tuple[str, int], int]] = []
    while progress not in seen:
        seen.append(progress)
        found = assign(world, preemptor, pod_sets, progress)
        decided = decided_by(world, preemptor, found) or reduced(world, preemptor, pod_sets, progress)
        if decided is not None:
            return decided
        if not found.has_pending_flavors:
            break
        progress = found.progress
    return Outcome()


def decided_by(world: World, preemptor: Preemptor, found: Assignment) -> Outcome | None:
    if found.is_unfit:
        return None
    if all(verdict.mode is Mode.FIT for verdict in found.verdicts.values()):
        return Outcome(admitted=found.flavors)
    needing = {fr for fr, verdict in found.verdicts.items() if verdict.mode is not Mode.FIT}
    ahead = world.ahead()
    if can_preempt(world, preemptor) and fits(ahead, preemptor.queue, found.usage, allow_borrowing=True):
        return Outcome()  # those who leave already give back enough
    victims = targets(ahead, preemptor, found.usage, needing)
    return Outcome(victims=frozenset(victim.uid for victim in victims)) if victims else None


def reduced(world: World, preemptor: Preemptor, pod_sets: list[PodSet], progress) -> Outcome | None:
    """Partial admission: with the fewest pods left out, found by halving (whether fewer fit better or not)."""
    deltas = [p.count - p.reclaimable - (p.min_count or p.count) if p.min_count else 0 for p in pod_sets]
    deltas = [max(0, delta) for delta in deltas]
    steps = sum(deltas)
    if not steps:
        return None

    def attempt(i: int) -> Outcome | None:
        fewer = [replace(p, count=p.count - d * i // steps) for p, d in zip(pod_sets, deltas, strict=True)]
        return decided_by(world, preemptor, assign(world, preemptor, fewer, progress))

    low, high, last_good = 0, steps + 1, None
    while low < high:
        middle = (low + high) // 2
        if middle > steps or attempt(middle) is not None:
            last_good = middle
            high = middle
        else:
            low = middle + 1
    return attempt(low) if low == last_good and low <= steps else None
