"""What the controller looks at and comes back to: the owners of errands and the keys of timers.

Plain values, told apart by their type. They must never hold an object: what they name is looked up when it is its turn.
"""

from __future__ import annotations

from dataclasses import dataclass

from admission.controllers.store import Key
from admission.jobs.interface import UnitKey


@dataclass(frozen=True, slots=True)
class OfWorkload:
    """The lifecycle of a Workload."""

    key: Key


@dataclass(frozen=True, slots=True)
class OfUnit:
    """A gang."""

    unit: UnitKey


@dataclass(frozen=True, slots=True)
class OfDecision:
    """A decision about the Workload with this uid that could not be written yet."""

    uid: str


@dataclass(frozen=True, slots=True)
class OfHold:
    """The reason why the Workload with this uid waits."""

    uid: str


@dataclass(frozen=True, slots=True)
class OfHolds:
    """The reasons of all Workloads that wait: those whose turn it is are told."""


@dataclass(frozen=True, slots=True)
class OfStatus:
    """The status of a ClusterQueue or a LocalQueue."""

    kind: str
    key: Key


@dataclass(frozen=True, slots=True)
class OfFinalizer:
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class OfSweep:
    """The slow look at everything."""


@dataclass(frozen=True, slots=True)
class OfHealth:
    """Metrics of the controller itself, and a journal that has to be told everything again."""
