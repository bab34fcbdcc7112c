"""Parked groups, filed by the accounts whose usage has to fall before they could do better, and by how far.

It works from what each group lacks and from the turn that its head would have. What is given back is looked up here,
so that only those come forward whom it could help, and of many who want the same only the next; it never judges.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from queues.core.accounts import Account
from queues.core.fairness import Measure
from queues.core.lacks import Lacks
from queues.core.order import Group
from queues.core.records import OrderKey, QueueRecord, WorkloadRecord
from queues.core.thresholds import Thresholds
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

    __slots__ = ("_behind", "_tidy_at", "entries", "group", "lacks", "queue", "turn")

    def __init__(self, group: Group, queue: QueueRecord, lacks: Lacks) -> None:
        self.group = group
        self.queue = queue
        self.lacks = lacks
        self.turn = NO_TURN
        #: By shelf, and the usage at most: which of its entries counts. It has been put elsewhere since the others.
        self.entries: dict[tuple[Shelf, int], int] = {}
        #: Who was put back because of this one, on which shelf, and up to which usage it would do.
        self._behind: dict[tuple[Shelf, int, Ticket], None] = {}
        self._tidy_at = _SLACK

    def let_go(self) -> None:
        """Whoever stands behind may come first from now on."""
        behind, self._behind = self._behind, {}
        for shelf, most, ticket in behind:
            if ticket.is_valid:
                shelf.put(most, ticket)

    def keep_back(self, shelf: Shelf, most: int, ticket: Ticket) -> None:
        """Until this one is let go, that one need not be asked there."""
        if len(self._behind) >= self._tidy_at:
            self._behind = {each: None for each in self._behind if each[2].is_valid}
            self._tidy_at = 2 * len(self._behind) + _SLACK
        self._behind[shelf, most, ticket] = None

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


def _stands_behind(ticket: Ticket) -> Ticket | None:
    """Who of its queue may come forward as well and has a place before it. Cost: the queue's groups."""
    groups = ticket.queue.order.groups
    if len(groups) == 1:
        return None
    place: Place | None = None
    for group in groups.values():
        other = group.ticket
        if other is None or other is ticket or not other.may_come:
            continue
        place = place or ticket.place
        if other.place < place:
            return other
    return None


_Entry = tuple[Turn, int, Ticket]
_Heap = list[_Entry]
_Found = tuple[Turn, Ticket] | None
_Key = tuple[int, int]

_ALWAYS: Final = -1


class Shelf:
    """Who waits for one account. Whoever comes forward, or is put elsewhere, is out of date here and dropped in time.

    They stand in heaps by their turns, one for each amount that they want. Who stands behind another of the same queue
    is put back: into a heap of those who are not asked as long as the usage is low enough for that one as well.
    """

    __slots__ = ("_account", "_heaps", "_keys", "_serial", "_size", "_tidy_at")

    def __init__(self, account: Account) -> None:
        self._account = account
        #: By the usage at most, and the usage above which they are asked.
        self._heaps: dict[_Key, _Heap] = {}
        self._keys: list[_Key] = []
        self._serial = 0
        self._size = 0
        self._tidy_at = _SLACK

    def put(self, most: int, ticket: Ticket) -> None:
        if self._size >= self._tidy_at:
            self._tidy()
        self._push((most, _ALWAYS), ticket)

    def _push(self, key: _Key, ticket: Ticket) -> None:
        heap = self._heaps.get(key)
        if heap is None:
            heap = self._heaps[key] = []
            insort(self._keys, key)
        self._size += 1
        self._serial += 1
        ticket.entries[self, key[0]] = self._serial
        heappush(heap, (ticket.turn, self._serial, ticket))

    def next(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> _Found:
        """The next of those for whom the usage is low enough, and its turn.

        Whose queue was served already, or who stands behind another of it, is passed over, but not in favour of
        somebody who comes later and wants the same amount. Cost besides: the groups of the queues looked at.
        """
        return self._look(usage, turn_of, served)[0]

    def next_again(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> tuple[_Found, bool]:
        """The same, and when all were served already, they are no more from now on.

        And whether somebody is left here who has to let another of its queue come forward first, from another shelf.
        """
        found, passed = self._look(usage, turn_of, served)
        if found is None and passed:
            for ticket in passed:
                served.pop(ticket.queue, None)
            found, passed = self._look(usage, turn_of, served)
        return found, bool(passed)

    def _look(self, usage: int, turn_of: TurnOf, served: dict[QueueRecord, None]) -> tuple[_Found, list[Ticket]]:
        """And who was passed over. Nobody's turn is earlier than it stands here."""
        found: _Found = None
        wanted = 0
        passed: list[tuple[_Heap, _Entry]] = []
        keys = self._keys
        for index in range(len(keys) - 1, bisect_left(keys, (usage, _ALWAYS)) - 1, -1):
            most, above = keys[index]
            heap = self._heaps[most, above]
            while above < usage and heap and (found is None or heap[0][0] < found[0]):
                if not self._has_fresh_top(heap, most, turn_of):
                    continue
                turn, _, ticket = heap[0]
                if found is not None and turn >= found[0]:
                    continue
                first = None if ticket.queue in served else _stands_behind(ticket)
                if first is None and ticket.queue not in served:
                    found, wanted = (turn, ticket), most
                    break
                entry = heappop(heap)
                if first is None or not self._put_back(usage, most, ticket, first):
                    passed.append((heap, entry))
        for heap, entry in passed:
            heappush(heap, entry)
        if found is not None:
            for key in keys[bisect_left(keys, (wanted, _ALWAYS)) : bisect_left(keys, (wanted + 1, _ALWAYS))]:
                heap = self._heaps[key]
                if self._has_fresh_top(heap, wanted, turn_of) and heap[0][0] < found[0]:
                    found = heap[0][0], heap[0][2]
        return found, [entry[2] for _, entry in passed]

    def _has_fresh_top(self, heap: _Heap, most: int, turn_of: TurnOf) -> bool:
        """Have somebody at the top whose turn is what it says. Turns that come earlier now were filed again."""
        while heap:
            turn, serial, ticket = heap[0]
            if not ticket.is_valid or ticket.entries[self, most] != serial:
                heappop(heap)
                self._size -= 1
                continue
            now = ticket.turn_by(turn_of)
            if now == turn:
                return True
            ticket.turn = max(ticket.turn, now)
            heapreplace(heap, (now, serial, ticket))
        return False

    def _put_back(self, usage: int, most: int, ticket: Ticket, first: Ticket) -> bool:
        """Behind another of its queue, if that one waits for the same account; it goes on from there."""
        above = max([its for account, its in first.lacks.ceilings if account is self._account], default=_ALWAYS)
        if above < usage:
            return False
        self._size -= 1
        self._push((most, above), ticket)  # further on than where is being looked
        first.keep_back(self, most, ticket)
        return True

    def _tidy(self) -> None:
        """Leave out what is out of date. Cost: what was put in since the last time."""
        self._size = 0
        for key in list(self._heaps):
            heap = [
                entry for entry in self._heaps[key] if entry[2].is_valid and entry[2].entries[self, key[0]] == entry[1]
            ]
            if heap:
                heapify(heap)
                self._heaps[key] = heap
                self._size += len(heap)
            else:
                del self._heaps[key]
        self._keys = sorted(self._heaps)
        self._tidy_at = 2 * self._size + _SLACK


class Shelves:
    """The shelves of all accounts, by tree."""

    def __init__(self) -> None:
        self._of_tree: dict[Node, dict[Account, Shelf]] = {}
        self._thresholds: dict[Node, Thresholds] = {}
        #: Whose queue came forward since all others had their turn.
        self._served: dict[QueueRecord, None] = {}
        #: Accounts whose usage has fallen and where somebody may still come forward.
        self._fallen: dict[Node, dict[Account, None]] = {}

    def file(self, group: Group, queue: QueueRecord, lacks: Lacks, turn_of: TurnOf) -> None:
        ticket = Ticket(group, queue, lacks)
        group.take_ticket(ticket)
        ticket.turn = ticket.turn_by(turn_of)
        shelves = self._of_tree.setdefault(queue.node.root, {})
        for account, most in lacks.ceilings:
            shelf = shelves.get(account)
            if shelf is None:
                shelf = shelves[account] = Shelf(account)
            shelf.put(most, ticket)
        if lacks.share is not None:
            self._thresholds.setdefault(queue.node.root, Thresholds()).put(lacks.share, ticket)
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
        self._thresholds.pop(root, None)
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

    def has_thresholds(self, root: Node) -> bool:
        """Whether it is of any matter what share others of the tree would keep."""
        return root in self._thresholds

    def would_evict(self, root: Node, most: Measure) -> Iterator[Ticket]:
        """Who may evict others of the tree, of whom one would keep this share at most."""
        return self._thresholds[root].reached(most)

    @property
    def is_quiet(self) -> bool:
        return not self._fallen

    def trees(self) -> Container[Node]:
        """Where somebody may come forward."""
        return self._fallen

    def has_before(self, turn: Turn, root: Node, turn_of: TurnOf) -> bool:
        """Whether somebody may come forward whose turn is before this."""
        found = self._earliest(root, turn_of)
        return found is not None and found[0] < turn

    def called(self, turn_of: TurnOf) -> Iterator[Ticket]:
        """Who comes forward now: of each tree the next, and before it those whose turn depends on who else comes.

        Read it to its end; it goes on the next time until nobody may come forward any more.
        """
        for root in list(self._fallen):
            while (ticket := self._next(root, turn_of)) is not None:
                yield ticket
                if ticket.turn:
                    break
            else:
                del self._fallen[root]

    def _next(self, root: Node, turn_of: TurnOf) -> Ticket | None:
        """Of all accounts of the tree the next; whose queue was served already comes after all others."""
        found = self._earliest(root, turn_of)
        if found is None:
            accounts, shelves = self._fallen[root], self._of_tree.get(root, {})
            for account in list(accounts):
                found, is_left = shelves[account].next_again(account.usage, turn_of, self._served)
                if found is not None:
                    break
                if not is_left:
                    del accounts[account]
        if found is None:
            return None
        ticket = found[1]
        self._served[ticket.queue] = None
        return ticket

    def _earliest(self, root: Node, turn_of: TurnOf) -> _Found:
        """The next of the tree, where anybody is left who was not served already."""
        found: _Found = None
        accounts, shelves = self._fallen.get(root), self._of_tree.get(root, {})
        for account in accounts or ():
            one = shelves[account].next(account.usage, turn_of, self._served)
            if one is not None and (found is None or one[0] < found[0]):
                found = one
        return found
