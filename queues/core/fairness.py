"""Dominant resource shares over the cohort tree: how much of what could be lent a ClusterQueue or cohort borrows.

It works from usage and quota of the tree, exactly (fractions, never floats). It decides nothing; the strategies of
ordering and preemption compare what it says. Source: dominant resource fairness (Ghodsi et al., NSDI 2011), over what
is borrowed, as Kueue has it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

from queues.core.model import UNLIMITED, FlavorResource, ResourceName
from queues.core.quantities import beyond, total
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


def share_of(node: Node, *, ahead: bool = True) -> Share:
    """The node's share, looking ahead or (for statuses) as it is. Cost: its units, and its parent's for each borrowed.

    Amounts beyond the own quota are summed up for each resource over the flavors; what is left unused of one flavor
    does not make up for another. The dominant resource is the one of which the node borrows the largest part of what
    its parent could ever get.
    """
    parent = node.parent
    if parent is None or node.is_cyclic:
        return NO_SHARE
    borrowed: dict[ResourceName, int] = {}
    for unit, account in node.accounts.items():
        amount = beyond(account.ahead.usage if ahead else account.usage, account.subtree)
        if amount > 0:
            borrowed[unit.resource] = borrowed.get(unit.resource, 0) + amount
    if not borrowed:
        return NO_SHARE
    lendable = dict.fromkeys(borrowed, 0)
    for unit in node.root.accounts:
        if unit.resource in lendable:
            lendable[unit.resource] = total(lendable[unit.resource], parent.account(unit).potential)
    dominant = max(
        (Fraction(amount * PER_MILLE, lendable[name]) for name, amount in borrowed.items() if lendable[name] > 0),
        default=Fraction(0),
    )
    if not dominant:
        return NO_SHARE
    if node.weight == 0:
        return Share(is_unbounded=True, value=dominant)
    return Share(is_unbounded=False, value=dominant * WEIGHT_ONE / node.weight)


def borrows(node: Node) -> bool:
    """Whether, looking ahead, the node uses more than its own of anything."""
    return any(not account.ahead.is_within_quota for account in node.accounts.values())


def borrows_any(node: Node, usage: dict[FlavorResource, int]) -> bool:
    """Whether, looking ahead, the node uses more than its own of what is asked for here."""
    return any(amount > 0 and not node.account(unit).ahead.is_within_quota for unit, amount in usage.items())
