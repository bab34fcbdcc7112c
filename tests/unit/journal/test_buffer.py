"""What waits for the writer, and what goes first when there is too much of it."""

from __future__ import annotations

from queues.journal.buffer import Buffer, Gap
from queues.journal.entries import Reset, UsageEnded, WorkloadRemoved
from queues.journal.ledger import Snapshot
from tests.unit.journal.rows import decision, local_queue, queue, started, workload


def filled(capacity: int, *entries: object) -> Buffer:
    buffer = Buffer(capacity)
    for entry in entries:
        buffer.add(entry)  # type: ignore[arg-type]
    return buffer


def test_only_the_newest_row_of_a_key_waits() -> None:
    batch = filled(9, workload("a"), queue("a"), workload("a", priority=5), local_queue("a")).take(9)
    assert batch.rows == (queue("a"), workload("a", priority=5), local_queue("a"))


def test_a_removed_workload_leaves_only_its_removal() -> None:
    assert filled(9, workload("a"), WorkloadRemoved("a")).take(9).rows == (WorkloadRemoved("a"),)


def test_decisions_go_first_and_oldest_first() -> None:
    buffer = filled(3, started("u", 1), *(decision("d", at) for at in (1, 2, 3, 4)), UsageEnded(5, "u"))
    batch = buffer.take(9)
    assert [d.at for d in batch.decisions] == [4]
    assert batch.usage == (started("u", 1), UsageEnded(5, "u"))
    assert batch.gap == Gap(since=1, until=3, decisions=3, usage=0)
    assert buffer.dropped == 3
    assert buffer.take(9).gap is None


def test_uses_are_dropped_when_nothing_else_is_left() -> None:
    batch = filled(2, *(started(f"u{n}", n) for n in range(5))).take(1)
    assert batch.gap == Gap(since=0, until=2, decisions=0, usage=3)
    assert len(batch.usage) == 2, "after lost uses everything is written at once"


def test_rows_of_what_lives_are_never_dropped() -> None:
    buffer = filled(3, *(workload(f"w{n}") for n in range(50)))
    assert len(buffer.take(100).rows) == 50
    assert not buffer.removals_lost


def test_removals_are_bounded_and_their_loss_is_told() -> None:
    buffer = filled(3, *(WorkloadRemoved(f"w{n}") for n in range(5)))
    assert len(buffer.take(9).rows) == 3
    assert buffer.removals_lost
    buffer.add(Reset(1))
    assert not buffer.removals_lost


def test_a_batch_takes_no_more_than_asked() -> None:
    buffer = filled(99, *(workload(f"w{n}") for n in range(5)), *(decision("d") for _ in range(5)))
    batch = buffer.take(2)
    assert (len(batch.rows), len(batch.decisions), len(buffer)) == (2, 2, 6)
    assert [r.uid for r in batch.rows] == ["w0", "w1"]  # type: ignore[union-attr]


def test_a_reset_stands_for_all_rows() -> None:
    buffer = filled(99, workload("old"), UsageEnded(4, "old"), Reset(5, workloads=(workload("a"), workload("b"))))
    buffer.add(workload("c"))
    buffer.add(WorkloadRemoved("a"))
    batch = buffer.take(1)
    assert batch.replace
    assert batch.rows == (workload("b"), workload("c"))
    assert batch.usage == (UsageEnded(4, "old"),)
    assert buffer.take(1).usage == (Snapshot(5, ()),)
    assert not buffer.take(1).replace
