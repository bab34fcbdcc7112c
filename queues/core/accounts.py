"""The arithmetic of quota: what one (flavor, resource) of one node has, uses and could still get from those above it.

An account works from its quota, from what its children lend it and from the account of the parent node, which sees of
its usage only what it borrows. It never knows nodes or who uses what, and never decides whether anything may be used.
"""

from __future__ import annotations

from queues.core.model import UNLIMITED, Quota
from queues.core.quantities import beyond, private, total


class Account:
    """One (flavor, resource) of one node.

    `subtree` is the quota of the node and what its children lend it, `private` the part that stays in the node,
    `potential` the most that it could ever use. `usage` of a cohort is what its children use beyond their private
    parts, so an amount is only seen as far up as it has to be borrowed.
    """

    __slots__ = ("ahead", "borrowing_limit", "height", "nominal", "parent", "potential", "private", "subtree", "usage")

    def __init__(self) -> None:
        self.nominal = 0
        self.borrowing_limit: int | None = None
        self.subtree = 0
        self.private = 0
        self.potential = 0
        self.height = 0
        self.usage = 0
        self.parent: Account | None = None
        #: The same account with announced evictions done. Itself in an account that is already ahead.
        self.ahead: Account = self

    def set_quota(self, quota: Quota, lent: int) -> None:
        """Take the node's quota and what its children lend it."""
        self.nominal = min(quota.nominal, UNLIMITED)
        self.borrowing_limit = quota.borrowing_limit
        self.subtree = total(self.nominal, lent)
        self.private = private(self.subtree, quota.lending_limit)

    def set_potential(self) -> None:
        """Take from the parent, which has its own already, the most that could ever be used here."""
        parent = self.parent
        self.potential = self.subtree
        if parent is not None:
            self.potential = total(self.private, parent.potential)
            if self.borrowing_limit is not None:
                self.potential = min(self.potential, total(self.subtree, self.borrowing_limit))

    def charge(self, amount: int) -> None:
        """Use so much more. Cost: the height of the tree."""
        account = self
        while True:
            own, parent = account.private, account.parent
            free = own - account.usage if own else 0
            account.usage += amount
            if parent is None or own >= UNLIMITED:
                return
            if free > 0:
                if amount <= free:
                    return
                amount -= free
            account = parent

    def release(self, amount: int) -> None:
        """Use so much less. Cost: the height of the tree."""
        account = self
        while True:
            own, parent = account.private, account.parent
            borrowed = account.usage - own
            account.usage -= amount
            if parent is None or borrowed <= 0 or own >= UNLIMITED:
                return
            amount = min(amount, borrowed)
            account = parent

    @property
    def free_privately(self) -> int:
        quota = self.private
        if quota >= UNLIMITED:
            return UNLIMITED
        rest = quota - self.usage
        return max(rest, 0)

    @property
    def available(self) -> int:
        """What can be taken now, negative when limits are overdrawn. Cost: the height of the tree.

        available(n) = free privately(n) + min(available(parent), what n may still borrow), written from below: each
        limit on the way up counts together with what is free privately up to there.
        """
        account, free, best = self, 0, UNLIMITED
        while True:
            parent = account.parent
            if parent is None:
                return best if account.subtree >= UNLIMITED else min(best, free + account.subtree - account.usage)
            own = account.private
            if own:
                if own >= UNLIMITED:
                    return best
                if own > account.usage:
                    free += own - account.usage
            limit = account.borrowing_limit
            if limit is not None and limit < UNLIMITED and account.subtree < UNLIMITED:
                best = min(best, free + account.subtree - own - beyond(account.usage, own) + limit)
            account = parent

    def ceilings_for(self, amount: int) -> list[Ceiling]:
        """What usage has to fall to before so much could be available; nothing when it is. Cost: the tree's height.

        Of the limits on the way up, the one that leaves least has to give. What is free privately below it counts for
        it as well, so there any fall may help.
        """
        account, free, least = self, 0, amount
        private: list[Account] = []
        found: list[Ceiling] = []
        while True:
            parent, own, usage = account.parent, account.private, account.usage
            room = UNLIMITED
            if parent is None:
                if account.subtree < UNLIMITED:
                    room = free + account.subtree - usage
            else:
                if own >= UNLIMITED:
                    return found
                free += max(0, own - usage)
                limit = account.borrowing_limit
                if limit is not None and limit < UNLIMITED and account.subtree < UNLIMITED:
                    room = free + account.subtree - own - beyond(usage, own) + limit
            if room < least:
                least = room
                found = [(account, usage - (amount - room)), *((one, one.usage - 1) for one in private)]
            if parent is None:
                return found
            if own:
                private.append(account)
            account = parent

    def borrows_with(self, amount: int) -> bool:
        """Whether using so much more would go beyond the node's own quota."""
        return self.usage + amount > self.subtree and self.subtree < UNLIMITED

    @property
    def is_within_quota(self) -> bool:
        return self.usage <= self.subtree or self.subtree >= UNLIMITED

    def lowest_fit(self, amount: int) -> tuple[int, bool]:
        """How far up the tree quota has to be borrowed, and whether that is less than the whole tree.

        The height of the smallest subtree around this ClusterQueue whose own quota covers the amount; 0 when nothing
        has to be borrowed.
        """
        parent = self.parent
        if parent is None or self.usage + amount <= self.subtree or self.subtree >= UNLIMITED:
            return 0, parent is not None
        rest = amount - self.free_privately
        while True:
            if not parent.borrows_with(rest):
                return parent.height, parent.parent is not None
            if parent.parent is None:
                return parent.height, False
            rest -= parent.free_privately
            parent = parent.parent


#: An account, and what its usage must not exceed for something to be possible.
Ceiling = tuple[Account, int]
