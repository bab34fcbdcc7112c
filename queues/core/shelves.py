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
    """A group that is filed. `turn` is that of its head when it was: each shelf finds out anew when it matters."""

    __slots__ = ("group", "lacks", "queue", "turn")

    def __init__(self, group: Group, queue: QueueRecord, lacks: Lacks) -> None:
        self.group = group
        self.queue = queue
        self.lacks = lacks
        self.turn = NO_TURN

    @property
    def is_valid(self) -> bool:
        """Whether it could come forward at all: an inactive queue wakes everybody once it is active again."""
        group, queue = self.group, self.queue
        return (
            group.ticket is self
            and group.is_parked
            and queue.is_active
            and queue.order.groups.get(group.shape) is group
        )

    @property
    def may_come(self) -> bool:
        return any(account.usage <= most for account, most in self.lacks.ceilings)

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
    tickets = [group.ticket for group in queue.order.groups.values() if group.is_parked]
    return [ticket for ticket in tickets if ticket is not None]


def _first_place(queue: QueueRecord) -> Place:
    """That of the first in the queue who may come forward: nobody of the same queue does before it."""
    return min(ticket.place for ticket in tickets_of(queue) if ticket.may_come)


_Entry = tuple[Turn, int, Ticket]


class Shelf:
    """Who waits for one account. All operations cost the logarithm of those, times the different amounts wanted."""

    __slots__ = ("_by_most", "_mosts", "_serial", "_size", "_tidy_at")

    def __init__(self) -> None:
        self._by_most: dict[int, list[_Entry]] = {}
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

    def take(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> Ticket | None:
        """Out of those for whom the usage is low enough, the next. Whose queue was served already comes last."""
        aside: list[tuple[list[_Entry], _Entry]] = []
        best = self._best(usage, turn_of, served, aside)
        for heap, entry in aside:
            heappush(heap, entry)
        if best is None and aside:
            for _, entry in aside:
                served.pop(entry[2].queue, None)
            aside.clear()
            best = self._best(usage, turn_of, served, aside)
            for heap, entry in aside:
                heappush(heap, entry)
        if best is None:
            return None
        self._size -= 1
        ticket = heappop(best)[2]
        served[ticket.queue] = None
        return ticket

    def next_turn(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> Turn | None:
        """That of the next; None when there is nobody but those who were served already."""
        aside: list[tuple[list[_Entry], _Entry]] = []
        best = self._best(usage, turn_of, served, aside)
        for heap, entry in aside:
            heappush(heap, entry)
        return None if best is None else best[0][0]

    def _best(
        self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None], aside: list[tuple[list[_Entry], _Entry]]
    ) -> list[_Entry] | None:
        """The heap with the next at its top. Cost besides: the groups of the queues of whoever is at a top."""
        best: list[_Entry] | None = None
        first: dict[QueueRecord, Place] = {}
        mosts = self._mosts
        for index in range(len(mosts) - 1, bisect_left(mosts, usage) - 1, -1):
            heap = self._by_most[mosts[index]]
            before = len(heap)
            while _has_fresh_top(heap, turn_of):
                ticket = heap[0][2]
                queue = ticket.queue
                if queue not in first:
                    first[queue] = _first_place(queue)
                if queue not in served and ticket.place <= first[queue]:
                    break
                aside.append((heap, heappop(heap)))
                before -= 1
            self._size -= before - len(heap)
            if heap and (best is None or heap[0][0] < best[0][0]):
                best = heap
        return best

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


def _has_fresh_top(heap: list[_Entry], turn_of: TurnOf) -> bool:
    """Have somebody at the top whose turn is what it says. Turns that come earlier now were filed again."""
    while heap:
        turn, serial, ticket = heap[0]
        if not ticket.is_valid:
            heappop(heap)
            continue
        now = ticket.turn_by(turn_of)
        if now == turn:
            return True
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
            if account.usage <= most:
                self._fallen.setdefault(queue.node.root, {})[account] = None

    def refile(self, ticket: Ticket, turn_of: TurnOf, more: int = 0) -> None:
        """Its turn may come earlier, or its ceilings are higher by so much."""
        lacks = ticket.lacks
        if more:
            lacks = replace(lacks, ceilings=tuple([(account, most + more) for account, most in lacks.ceilings]))
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
        shelves = self._of_tree.get(root, {})
        turns = [
            shelves[account].next_turn(account.usage, turn_of, self._served) for account in self._fallen.get(root, ())
        ]
        return min((turn for turn in turns if turn is not None), default=None)

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
        accounts, shelves = self._fallen[root], self._of_tree.get(root, {})
        first: tuple[Turn, Account] | None = None
        for account in accounts:
            turn = shelves[account].next_turn(account.usage, turn_of, self._served)
            if turn is not None and (first is None or turn < first[0]):
                first = (turn, account)
        for account in list(accounts) if first is None else [first[1]]:
            ticket = shelves[account].take(account.usage, turn_of, self._served)
            if ticket is not None:
                return ticket
            del accounts[account]
        return None
