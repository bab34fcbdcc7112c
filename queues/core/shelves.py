"""Parked groups, filed by the accounts whose usage has to fall before they could do better, and by how far.

It works from what each group lacks and from the turn that its head would have. What is given back is looked up here,
so that only those come forward whom it could help, and of many who want the same only the next; it never judges.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace

from queues.core.accounts import Account
from queues.core.lacks import Lacks
from queues.core.order import Group
from queues.core.records import OrderKey, QueueRecord, WorkloadRecord
from queues.core.tree import Node
from queues.core.usage_history import Level

#: Compares as the line of a cycle does. None where that cannot be told beforehand: then nobody is kept waiting.
Turn = tuple[object, ...]
TurnOf = Callable[[QueueRecord, WorkloadRecord, Sequence[tuple[Account, int]]], "Turn | None"]

Place = tuple[Level, OrderKey]

NO_TURN: Turn = ()
_SLACK = 64


class Ticket:
    """A group that is filed; it has no other, and none once it is awake.

    `turn` is the latest by which it stands on any shelf: each shelf finds out anew when it matters.
    """

    __slots__ = ("group", "lacks", "queue", "turn")

    def __init__(self, group: Group, queue: QueueRecord, lacks: Lacks) -> None:
        self.group = group
        self.queue = queue
        self.lacks = lacks
        self.turn = NO_TURN

    @property
    def is_valid(self) -> bool:
        """Whether it could come forward at all: an inactive queue wakes everybody once it is active again."""
        return self.group.ticket is self and self.queue.is_active

    @property
    def may_come(self) -> bool:
        for account, most in self.lacks.ceilings:  # noqa: SIM110  # asked so often that a generator costs more than it
            if account.usage <= most:
                return True
        return False

    @property
    def place(self) -> Place:
        """In the order of its own queue."""
        head = self.group.head()
        assert head is not None  # noqa: S101
        return (self.group.level, head.key)

    def turn_by(self, turn_of: TurnOf) -> Turn:
        head, asks = self.group.head(), self.lacks.asks
        turn = None if head is None or asks is None else turn_of(self.queue, head, asks)
        return NO_TURN if turn is None else turn


def tickets_of(queue: QueueRecord) -> list[Ticket]:
    """Cost: the queue's groups."""
    return [ticket for group in queue.order.groups.values() if (ticket := group.ticket) is not None]


def _is_first(ticket: Ticket) -> bool:
    """Whether nobody of its queue who may come forward as well has a place before it. Cost: the queue's groups."""
    groups = ticket.queue.order.groups
    if len(groups) == 1:
        return True
    place = ticket.place
    for group in groups.values():
        other = group.ticket
        if other is not None and other is not ticket and other.may_come and other.place < place:
            return False
    return True


_Entry = tuple[Turn, int, Ticket]
_Heap = list[_Entry]


class Shelf:
    """Who waits for one account. All operations cost the logarithm of those, times the different amounts wanted."""

    __slots__ = ("_by_most", "_mosts", "_serial", "_size", "_tidy_at")

    def __init__(self) -> None:
        self._by_most: dict[int, _Heap] = {}
        self._mosts: list[int] = []
        self._serial = 0
        self._size = 0
        self._tidy_at = _SLACK

    def put(self, most: int, ticket: Ticket) -> None:
        self._size += 1
        if self._size > self._tidy_at:
            self._tidy()
        heap = self._by_most.get(most)
        if heap is None:
            heap = self._by_most[most] = []
            insort(self._mosts, most)
        self._serial += 1
        heappush(heap, (ticket.turn, self._serial, ticket))

    def next(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> _Heap | None:
        """The heap with the next of those at its top for whom the usage is low enough.

        None when there is nobody but those whose queue was served already. Cost besides: the groups of the queues of
        whoever is at a top.
        """
        return self._next(usage, turn_of, served)[0]

    def next_again(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> _Heap | None:
        """The same, and when all were served already, they are no more from now on."""
        best, aside = self._next(usage, turn_of, served)
        if best is None and aside:
            for ticket in aside:
                served.pop(ticket.queue, None)
            best = self._next(usage, turn_of, served)[0]
        return best

    def take(self, heap: _Heap) -> Ticket:
        """Who is at the top of it comes forward."""
        self._size -= 1
        return heappop(heap)[2]

    def _next(
        self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]
    ) -> tuple[_Heap | None, Sequence[Ticket]]:
        """And who would come before that, were not somebody else of the same queue to go first."""
        mosts = self._mosts
        if not mosts or mosts[-1] < usage:
            return None, ()
        best: _Heap | None = None
        aside: list[tuple[_Heap, _Entry]] = []
        for index in range(len(mosts) - 1, bisect_left(mosts, usage) - 1, -1):
            heap = self._by_most[mosts[index]]
            before = len(heap)
            while _has_fresh_top(heap, turn_of):
                ticket = heap[0][2]
                if ticket.queue not in served and _is_first(ticket):
                    if best is None or heap[0][0] < best[0][0]:
                        best = heap
                    break
                aside.append((heap, heappop(heap)))
                before -= 1
            self._size -= before - len(heap)
        for heap, entry in aside:
            heappush(heap, entry)
        return best, [entry[2] for _, entry in aside]

    def _tidy(self) -> None:
        """Leave out what is out of date. Cost: what was put in since the last time."""
        self._size = 0
        for most in list(self._by_most):
            heap = [entry for entry in self._by_most[most] if entry[2].is_valid]
            if heap:
                heapify(heap)
                self._by_most[most] = heap
                self._size += len(heap)
            else:
                del self._by_most[most]
        self._mosts = sorted(self._by_most)
        self._tidy_at = 2 * self._size + _SLACK


def _has_fresh_top(heap: _Heap, turn_of: TurnOf) -> bool:
    """Have somebody at the top whose turn is what it says. Turns that come earlier now were filed again."""
    while heap:
        turn, serial, ticket = heap[0]
        if not ticket.is_valid:
            heappop(heap)
            continue
        now = ticket.turn_by(turn_of)
        if now == turn:
            return True
        ticket.turn = max(ticket.turn, now)
        heapreplace(heap, (now, serial, ticket))
    return False


class Shelves:
    """The shelves of all accounts, by tree."""

    def __init__(self) -> None:
        self._of_tree: dict[Node, dict[Account, Shelf]] = {}
        #: Whose queue came forward since all others had their turn.
        self._served: dict[QueueRecord, None] = {}
        #: Accounts whose usage has fallen and where somebody may still come forward.
        self._fallen: dict[Node, dict[Account, None]] = {}

    def file(self, group: Group, queue: QueueRecord, lacks: Lacks, turn_of: TurnOf) -> None:
        ticket = group.ticket = Ticket(group, queue, lacks)
        ticket.turn = ticket.turn_by(turn_of)
        shelves = self._of_tree.setdefault(queue.node.root, {})
        for account, most in lacks.ceilings:
            shelf = shelves.get(account)
            if shelf is None:
                shelf = shelves[account] = Shelf()
            shelf.put(most, ticket)
        self._note_fallen(ticket)

    def _note_fallen(self, ticket: Ticket) -> None:
        for account, most in ticket.lacks.ceilings:
            if account.usage <= most:
                self._fallen.setdefault(ticket.queue.node.root, {})[account] = None

    def hasten(self, ticket: Ticket, turn_of: TurnOf) -> None:
        """Its turn may come earlier than it stands on the shelves."""
        if ticket.turn_by(turn_of) < ticket.turn:
            self.file(ticket.group, ticket.queue, ticket.lacks, turn_of)
        else:
            self._note_fallen(ticket)

    def raise_ceilings(self, ticket: Ticket, turn_of: TurnOf, by: int) -> None:
        lacks = ticket.lacks
        lacks = replace(lacks, ceilings=tuple([(account, most + by) for account, most in lacks.ceilings]))
        ticket.group.lacks = lacks
        self.file(ticket.group, ticket.queue, lacks, turn_of)

    def forget(self, root: Node) -> None:
        self._of_tree.pop(root, None)
        self._fallen.pop(root, None)

    def begin(self) -> None:
        self._served.clear()

    def fell(self, root: Node, account: Account) -> None:
        """So much was given back here and further up. Cost: the height of the tree."""
        shelves = self._of_tree.get(root)
        if not shelves:
            return
        one: Account | None = account
        while one is not None:
            for each in (one, one.ahead):
                if each in shelves:
                    self._fallen.setdefault(root, {})[each] = None
            one = one.parent

    @property
    def is_quiet(self) -> bool:
        return not self._fallen

    def trees(self) -> list[Node]:
        """Where somebody may come forward."""
        return list(self._fallen)

    def next_turn(self, root: Node, turn_of: TurnOf) -> Turn | None:
        found = self._earliest(root, turn_of)
        return None if found is None else found[1][0][0]

    def called(self, turn_of: TurnOf, crowded: Container[Node]) -> Iterator[Ticket]:
        """Who comes forward now: of each tree the next, or, where many others are looked at anyway, all that may.

        Read it to its end; it goes on the next time until nobody may come forward any more.
        """
        for root in list(self._fallen):
            everybody = root in crowded
            while (ticket := self._next(root, turn_of)) is not None:
                yield ticket
                if ticket.turn and not everybody:
                    break
            else:
                del self._fallen[root]

    def _next(self, root: Node, turn_of: TurnOf) -> Ticket | None:
        """Of all accounts of the tree the next; whose queue was served already comes after all others."""
        found = self._earliest(root, turn_of)
        if found is None:
            accounts, shelves = self._fallen[root], self._of_tree.get(root, {})
            for account in list(accounts):
                heap = shelves[account].next_again(account.usage, turn_of, self._served)
                if heap is not None:
                    found = shelves[account], heap
                    break
                del accounts[account]
        if found is None:
            return None
        shelf, heap = found
        ticket = shelf.take(heap)
        self._served[ticket.queue] = None
        return ticket

    def _earliest(self, root: Node, turn_of: TurnOf) -> tuple[Shelf, _Heap] | None:
        """The shelf with the next of the tree, and the heap in it, where anybody is left who was not served already."""
        found: tuple[Shelf, _Heap] | None = None
        accounts, shelves = self._fallen.get(root), self._of_tree.get(root, {})
        for account in accounts or ():
            heap = shelves[account].next(account.usage, turn_of, self._served)
            if heap is not None and (found is None or heap[0][0] < found[1][0][0]):
                found = shelves[account], heap
        return found
