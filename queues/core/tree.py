"""The quota tree: what every ClusterQueue and Cohort has, uses and could still get, kept up as usage changes.

It works from the quotas of the nodes, the links between them and the usage charged to ClusterQueues; each (flavor,
resource) is an account of its own in every node. It never knows workloads and never decides who gets what.

Every node has each account twice: as it is now, and `ahead`, as it will be when announced evictions have happened and
those who wait for them have started. The arithmetic is the same for both.
"""

from __future__ import annotations

from collections.abc import Iterator

from queues.core.accounts import Account
from queues.core.model import ClusterQueueName, CohortName, FlavorResource, Quota, ResourceGroup, ResourceName
from queues.core.quantities import beyond, lendable, total

_NO_QUOTA = Quota()


class Node:
    """A ClusterQueue or a Cohort. `declared`: there is an object of it; a cohort that is only named has none."""

    __slots__ = (
        "accounts", "children", "declared", "height", "is_cohort", "is_cyclic", "lendable", "name", "parent", "quotas",
        "root", "weight",
    )  # fmt: skip

    def __init__(self, name: str, *, is_cohort: bool) -> None:
        self.name = name
        self.is_cohort = is_cohort
        self.declared = False
        self.parent: Node | None = None
        self.children: dict[tuple[bool, str], Node] = {}
        self.quotas: dict[FlavorResource, Quota] = {}
        self.accounts: dict[FlavorResource, Account] = {}
        #: Of each resource, the most that there could ever be for its children; None until somebody asks (`fairness`).
        self.lendable: dict[ResourceName, int] | None = None
        self.height = 0
        #: In fair sharing, in thousandths.
        self.weight = 1000
        self.is_cyclic = False
        #: The top of the tree. In a cycle there is none, and the node itself stands here.
        self.root: Node = self

    @property
    def key(self) -> tuple[bool, str]:
        return (self.is_cohort, self.name)

    def account(self, unit: FlavorResource) -> Account:
        """This node's account, opened without quota where there is none yet."""
        account = self.accounts.get(unit)
        if account is None:
            missing = []
            node: Node | None = self
            while node is not None and unit not in node.accounts:
                missing.append(node)
                node = None if node.is_cyclic else node.parent
            for node in reversed(missing):
                account = node._open(unit)  # noqa: SLF001
        assert account is not None  # noqa: S101
        return account

    def _open(self, unit: FlavorResource, *, alone: bool = False) -> Account:
        account, ahead = Account(), Account()
        account.ahead = ahead
        parent = None if alone or self.is_cyclic or self.parent is None else self.parent.accounts[unit]
        for one, above in ((account, parent), (ahead, parent and parent.ahead)):
            one.height = self.height
            one.parent = above
            one.set_quota(self.quotas.get(unit, _NO_QUOTA), 0)
            one.set_potential()
        self.accounts[unit] = account
        return account

    def is_within_quota(self, units: frozenset[FlavorResource]) -> bool:
        """Whether, looking ahead, the node uses no more than its own of all of these."""
        for unit in units:
            account = self.accounts.get(unit)
            if account is not None and not account.ahead.is_within_quota:
                return False
        return True

    def path(self) -> Iterator[Node]:
        """The ancestors, nearest first."""
        node = None if self.is_cyclic else self.parent
        while node is not None:
            yield node
            node = node.parent

    def location(self) -> str:
        """`/root/.../name`, for messages."""
        return "/" + "/".join([*reversed([node.name for node in self.path()]), self.name])


def is_flat(node: Node) -> bool:
    """Whether the ClusterQueue stands alone or right below a root."""
    return node.parent is None or (node.parent.parent is None and not node.is_cyclic)


class Forest:
    """All trees. Links and quotas may change in any order; `settle` brings the accounts of touched trees up to date."""

    def __init__(self) -> None:
        self.queues: dict[ClusterQueueName, Node] = {}
        self.cohorts: dict[CohortName, Node] = {}
        self._touched: dict[Node, None] = {}
        self._gone: list[Node] = []

    # ------------------------------------------------------------------ what there is

    def queue(self, name: ClusterQueueName) -> Node:
        """The node of a ClusterQueue. One that is only charged gets a node without quota that stands alone."""
        node = self.queues.get(name)
        if node is None:
            node = self.queues[name] = Node(name, is_cohort=False)
        return node

    def put_queue(
        self,
        name: ClusterQueueName,
        cohort: CohortName | None,
        groups: tuple[ResourceGroup, ...],
        *,
        weight: int = 1000,
    ) -> Node:
        node = self.queue(name)
        node.declared = True
        node.weight = weight
        node.quotas = quotas_of(groups)
        self._link(node, cohort)
        return node

    def drop_queue(self, name: ClusterQueueName) -> None:
        """Its usage, if it still has any, stays in the node, which then stands alone."""
        node = self.queue(name)
        node.declared = False
        node.quotas = {}
        self._link(node, None)

    def forget_queue(self, name: ClusterQueueName) -> None:
        """Nothing is charged to it any more."""
        node = self.queues.pop(name, None)
        if node is not None:
            self._touched.pop(node, None)
            self._gone.append(node)

    def put_cohort(
        self, name: CohortName, parent: CohortName | None, groups: tuple[ResourceGroup, ...], *, weight: int = 1000
    ) -> Node:
        node = self._cohort(name)
        node.declared = True
        node.weight = weight
        node.quotas = quotas_of(groups)
        self._link(node, parent)
        return node

    def drop_cohort(self, name: CohortName) -> Node | None:
        node = self.cohorts.get(name)
        if node is None:
            return None
        node.declared = False
        node.weight = 1000
        node.quotas = {}
        self._link(node, None)
        self._forget_if_unused(node)
        return node

    def _cohort(self, name: CohortName) -> Node:
        node = self.cohorts.get(name)
        if node is None:
            node = self.cohorts[name] = Node(name, is_cohort=True)
            self._touched[node] = None
        return node

    def _link(self, node: Node, cohort: CohortName | None) -> None:
        self._touched[node] = None
        old = node.parent
        new = None if cohort is None else self._cohort(cohort)
        if old is new:
            return
        if old is not None:
            del old.children[node.key]
            self._touched[old] = None
        node.parent = new
        if new is not None:
            new.children[node.key] = node
        if old is not None:
            self._forget_if_unused(old)

    def _forget_if_unused(self, node: Node) -> None:
        """A cohort that was only named goes with the last that named it."""
        if not node.declared and not node.children and node.parent is None:
            self.cohorts.pop(CohortName(node.name), None)
            self._touched.pop(node, None)
            self._gone.append(node)

    # ------------------------------------------------------------------ keeping up

    @property
    def is_settled(self) -> bool:
        """Whether nothing was touched, and no node forgotten, since these were asked for last."""
        return not self._touched and not self._gone

    def account(self, node: Node, unit: FlavorResource) -> Account:
        """The account of a ClusterQueue, to be charged. Settling derives what cohorts use, so links may lag behind."""
        account = node.accounts.get(unit)
        if account is None:
            account = node._open(unit, alone=True) if self._touched else node.account(unit)  # noqa: SLF001
        return account

    def members(self, node: Node) -> list[Node]:
        """Every node that hangs together with this one, parents before children (in a cycle: in some fixed order)."""
        top, seen = node, {node}
        while top.parent is not None and top.parent not in seen:
            top = top.parent
            seen.add(top)
        found = [top]
        known = {top}
        for member in found:
            for key in sorted(member.children):
                child = member.children[key]
                if child not in known:
                    known.add(child)
                    found.append(child)
        return found

    def gone(self) -> list[Node]:
        """The nodes that have been forgotten since this was asked last."""
        gone, self._gone = self._gone, []
        return gone

    def settle(self) -> list[Node]:
        """Compute the touched trees anew. Returns all their nodes. Cost: the nodes of these trees times their units."""
        done: dict[Node, None] = {}
        touched, self._touched = self._touched, {}
        for node in touched:
            if node not in done:
                members = self.members(node)
                _settle(members)
                done.update(dict.fromkeys(members))
        return list(done)


def quotas_of(groups: tuple[ResourceGroup, ...]) -> dict[FlavorResource, Quota]:
    return {
        FlavorResource(flavor.flavor, resource): quota
        for group in groups
        for flavor in group.flavors
        for resource, quota in flavor.quotas.items()
    }


def _settle(members: list[Node]) -> None:
    top = members[0]
    cyclic = top.parent is not None
    for node in members:
        node.is_cyclic = cyclic
        node.root = node if cyclic else top
        node.lendable = None
        node.height = 0
    for node in reversed(members):
        _renew(node)
        parent = node.parent
        if parent is not None and not cyclic:
            parent.height = max(parent.height, node.height + 1 if node.is_cohort else 1)
    for node in members:
        for unit, account in node.accounts.items():
            above = None if cyclic or node.parent is None else node.parent.accounts[unit]
            account.parent = above
            account.ahead.parent = None if above is None else above.ahead
            for one in (account, account.ahead):
                one.height = node.height
                one.set_potential()


def _renew(node: Node) -> None:
    """Quotas and, for a cohort, usage from those of its children, which were renewed before."""
    old = node.accounts
    lent: dict[FlavorResource, int] = {}
    used: dict[FlavorResource, tuple[int, int]] = {}
    if node.is_cohort and not node.is_cyclic:
        for child in node.children.values():
            for unit, account in child.accounts.items():
                now, ahead = used.get(unit, (0, 0))
                lent[unit] = total(lent.get(unit, 0), lendable(account.subtree, account.private))
                used[unit] = (
                    now + beyond(account.usage, account.private),
                    ahead + beyond(account.ahead.usage, account.private),
                )
    elif not node.is_cohort:
        used = {unit: (one.usage, one.ahead.usage) for unit, one in old.items() if one.usage or one.ahead.usage}
    node.accounts = {}
    for unit in dict.fromkeys((*node.quotas, *used)):
        account = Account()
        account.ahead = Account()
        account.usage, account.ahead.usage = used.get(unit, (0, 0))
        for one in (account, account.ahead):
            one.set_quota(node.quotas.get(unit, _NO_QUOTA), lent.get(unit, 0))
        node.accounts[unit] = account
