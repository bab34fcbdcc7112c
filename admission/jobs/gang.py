"""What a kind has to tell of one gang so that `reconcile` can lead it: facts, its Workload, and the ways back.

An implementation decides from the observed members alone. It must never look at the cluster or at other gangs but
through the context that it is handed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from admission.api.kueue import Workload
from admission.jobs.ancestors import Ancestor
from admission.jobs.effects import Effect, Ref
from admission.jobs.injection import CannotStart, Injection
from admission.jobs.interface import Context, Member, Outcome


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a gang has ended."""

    success: bool
    message: str


class Gang(Protocol):
    """One gang as observed. Facts are properties; what returns effects depends on them and changes nothing."""

    __slots__ = ()

    @property
    def kind(self) -> str: ...

    @property
    def members(self) -> tuple[Member, ...]: ...

    @property
    def waiting(self) -> tuple[Ref, ...]:
        """The objects whose users are to be told why the gang does not start."""
        ...

    @property
    def namespace(self) -> str: ...

    @property
    def queue_name(self) -> str: ...

    @property
    def priority_class(self) -> str:
        """The name in the WorkloadPriorityClass label."""
        ...

    @property
    def admission_gates(self) -> tuple[str, ...] | None:
        """The gates that it still names; None: its Workload's own count."""
        ...

    def ancestor(self, context: Context) -> Ancestor | None:
        """The job that this one is a part of, if that is queued itself."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it is being deleted and nothing of it will ever run again."""
        ...

    @property
    def runs(self) -> bool:
        """Whether (part of) it has been let go: unsuspended, ungated."""
        ...

    @property
    def is_active(self) -> bool:
        """Whether pods still hold what they were given; quota is kept until they do not."""
        ...

    def pods_may_follow(self, workload: Workload, now: float) -> float:
        """For how many more seconds pods may still be made of it, though it is stopped and nothing is active."""
        ...

    @property
    def verdict(self) -> Verdict | None: ...

    def is_ready(self, workload: Workload) -> bool: ...

    def reclaimable(self, workload: Workload) -> dict[str, int]: ...

    def matches(self, workload: Workload) -> bool:
        """Whether the Workload says what the gang is."""
        ...

    def update(self, workload: Workload) -> tuple[Effect, ...]:
        """Make a Workload without quota say what the gang is; none where it has to be made anew."""
        ...

    def compose(self, context: Context) -> Outcome:
        """Create its Workload, or tell what is missing."""
        ...

    def tidy(self, workload: Workload | None, context: Context) -> Outcome:
        """Put its members in order: excess and replaced ones, owners, outsiders."""
        ...

    def with_conditions(self, workload: Workload, now: float) -> Workload:
        """The Workload with the conditions that only this kind has."""
        ...

    def start(self, workload: Workload, injected: tuple[Injection, ...]) -> tuple[Effect, ...] | CannotStart: ...

    def stop(self, workload: Workload | None, reason: str, message: str) -> tuple[Effect, ...]:
        """Take back what was let go; empty when that is done."""
        ...

    def restore(self, workload: Workload) -> tuple[Effect, ...]:
        """Undo what the start put into a stopped gang."""
        ...

    def finalize(self) -> tuple[Effect, ...]:
        """Let the members go: nothing of Muster's may hold them any longer."""
        ...
