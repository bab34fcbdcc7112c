"""What comes out of `decide`: a tuple of frozen values for the shell to carry out, in order.

An effect that the shell could not carry out comes back as `events.WriteRefused`. The state already counts an `Admit` as
holding its quota, and a victim of an `Evict` as holding it until the shell says that it was released.
"""

from __future__ import annotations

from dataclasses import dataclass

from queues.core.model import Admission, CheckName, ClusterQueueName, Uid
from queues.core.reasons import Preempted, Reason


@dataclass(frozen=True, slots=True)
class Admit:
    """Give this quota to the workload. With `checks` it is reserved, and admitted when all of them are ready."""

    uid: Uid
    admission: Admission
    checks: tuple[CheckName, ...] = ()
    borrows: bool = False


@dataclass(frozen=True, slots=True)
class Evict:
    """Take the quota of `uid` back for `preemptor`. `message` is Kueue's sentence with both paths."""

    uid: Uid
    preemptor: Uid
    preemptor_queue: ClusterQueueName
    reason: Preempted
    message: str


@dataclass(frozen=True, slots=True)
class Place:
    """The same quota with other places for pods: a failed host is replaced, or a delayed topology is decided now."""

    uid: Uid
    admission: Admission


@dataclass(frozen=True, slots=True)
class GiveUp:
    """There is no other place for the pods of these failed hosts: the workload has to start again somewhere else."""

    uid: Uid
    hosts: tuple[str, ...]
    message: str


@dataclass(frozen=True, slots=True)
class Hold:
    """The workload goes on waiting, for this reason. Emitted when the reason changed, not every cycle."""

    uid: Uid
    reason: Reason


Decision = Admit | Evict | Place | GiveUp | Hold

Plan = tuple[Decision, ...]
