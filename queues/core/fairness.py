"""Dominant resource shares over the cohort tree: how much of what could be lent a ClusterQueue or cohort borrows.

It works from usage and quota of the tree, exactly (fractions, never floats). It decides nothing; the strategies of
ordering and preemption compare what it says. Source: dominant resource fairness (Ghodsi et al., NSDI 2011), over what
is borrowed, as Kueue has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, NamedTuple

from queues.core.model import UNLIMITED, FlavorResource, ResourceName
from queues.core.quantities import total
from queues.core.tree import Node

#: Shares are told in thousandths of what could be lent.
PER_MILLE = 1000
#: Weights are whole thousandths.
WEIGHT_ONE = 1000


class Share(NamedTuple):
    """Compares as it should: whoever borrows at weight 0 is above all others, these compare by what they borrow.

    `value` is in thousandths of what could be lent, divided by the weight (unless `is_unbounded`).
    """

    is_unbounded: bool
    value: Fraction

    @property
    def rounded_up(self) -> int:
        """As statuses tell it: the share rounded up, the largest 64-bit number when it is unbounded."""
        return UNLIMITED if self.is_unbounded else -(-self.value.numerator // self.value.denominator)


NO_SHARE = Share(is_unbounded=False, value=Fraction(0))


class Measure(NamedTuple):
    """A share as it is compared, looking ahead: two compare as the shares do, at the cost of comparing whole numbers.

    `parts` are so small that two shares never come to the same number of them unless they are the same.
    """

    is_unbounded: bool
    parts: int


#: What is lendable is below 2^63, and weights are below 2^80: two different shares are further apart than 2^-286.
_PARTS: Final = 288

NOTHING: Final = Measure(is_unbounded=False, parts=0)


def share_of(node: Node, *, ahead: bool = True) -> Share:
    """The node's share, looking ahead or (for statuses) as it is. Cost: its units."""
    amount, lendable = _dominant(node, ahead=ahead)
    if not amount:
        return NO_SHARE
    dominant = Fraction(amount * PER_MILLE, lendable)
    if node.weight == 0:
        return Share(is_unbounded=True, value=dominant)
    return Share(is_unbounded=False, value=dominant * WEIGHT_ONE / node.weight)


def measure_of(node: Node) -> Measure:
    """The node's share, looking ahead, to be compared with others. Cost: its units."""
    amount, lendable = _dominant(node, ahead=True)
    if not amount:
        return NOTHING
    weight = node.weight
    return Measure(weight == 0, (amount * WEIGHT_ONE << _PARTS) // (lendable * (weight or WEIGHT_ONE)))


def least_with(node: Node, resource: ResourceName, share: Measure) -> int:
    """How much of the resource the node has to borrow so that this alone makes up the share; 0 at weight 0."""
    if node.weight == 0 or node.parent is None:
        return 0
    lendable = _lendable(node, node.parent).get(resource, 0)
    return -(-share.parts * lendable * node.weight // (WEIGHT_ONE << _PARTS))


def _dominant(node: Node, *, ahead: bool) -> tuple[int, int]:
    """How much the node borrows of its dominant resource, and how much of that its parent could ever get.

    Amounts beyond the own quota are summed up for each resource over the flavors; what is left unused of one flavor
    does not make up for another. The dominant resource is the one of which the node borrows the largest part of what
    its parent could ever get.
    """
    parent = node.parent
    if parent is None or node.is_cyclic:
        return 0, 1
    borrowed: dict[ResourceName, int] = {}
    for unit, account in node.accounts.items():
        used = account.ahead.usage if ahead else account.usage
        if used > account.subtree and account.subtree < UNLIMITED:
            borrowed[unit.resource] = borrowed.get(unit.resource, 0) + used - account.subtree
    most, out_of = 0, 1
    for resource, amount in borrowed.items():
        lendable = _lendable(node, parent).get(resource, 0)
        if lendable > 0 and amount * out_of > most * lendable:
            most, out_of = amount, lendable
    return most, out_of


def _lendable(node: Node, parent: Node) -> dict[ResourceName, int]:
    """What the parent could ever get, by resource; remembered until the tree is settled anew.

    An account that is opened meanwhile adds nothing to it: its tree has no quota of that unit.
    """
    if parent.lendable is None:
        parent.lendable = {}
        for unit in node.root.accounts:
            known = parent.lendable.get(unit.resource, 0)
            parent.lendable[unit.resource] = total(known, parent.account(unit).potential)
    return parent.lendable


def borrows(node: Node) -> bool:
    """Whether, looking ahead, the node uses more than its own of anything."""
    for account in node.accounts.values():  # noqa: SIM110  # asked so often that a generator costs more than it
        if not account.ahead.is_within_quota:
            return True
    return False


def borrows_any(node: Node, usage: Mapping[FlavorResource, int]) -> bool:
    """Whether, looking ahead, the node uses more than its own of what is asked for here."""
    return any(amount > 0 and not node.account(unit).ahead.is_within_quota for unit, amount in usage.items())
