"""What the controller looks at and comes back to: the owners of errands and the keys of timers.

Plain values, told apart by their type. They must never hold an object: what they name is looked up when it is its turn.
"""

from __future__ import annotations

import msgspec

from admission.controllers.store import Key
from admission.jobs.interface import UnitKey


class OfWorkload(msgspec.Struct, frozen=True):
    """The lifecycle of a Workload."""

    key: Key


class OfUnit(msgspec.Struct, frozen=True):
    """A gang."""

    unit: UnitKey


class OfDecision(msgspec.Struct, frozen=True):
    """A decision about the Workload with this uid that could not be written yet."""

    uid: str


class OfHold(msgspec.Struct, frozen=True):
    """The reason why the Workload with this uid waits."""

    uid: str


class OfHolds(msgspec.Struct, frozen=True):
    """The reasons of all Workloads that wait: those whose turn it is are told."""


class OfStatus(msgspec.Struct, frozen=True):
    """The status of a ClusterQueue or a LocalQueue."""

    kind: str
    key: Key


class OfFinalizer(msgspec.Struct, frozen=True):
    kind: str
    name: str


class OfSweep(msgspec.Struct, frozen=True):
    """The slow look at everything."""


class OfHealth(msgspec.Struct, frozen=True):
    """Metrics of the controller itself, and a journal that has to be told everything again."""
