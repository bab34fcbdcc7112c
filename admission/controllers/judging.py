"""Asks the core for decisions, and stands between a bug in it and everybody's jobs.

What raises in the core leaves its state in doubt: that state is thrown away and a new one hears of every object and of
the admissions that are being written, while whoever was being judged is kept out for a time. Nothing is ever decided on
a state in doubt; as long as it cannot be mended, the log, a metric and the readiness say so.
"""

from __future__ import annotations

import gc
import logging
import traceback
from collections.abc import Callable
from typing import Final

from admission.controllers.cluster import Cluster, Doubt
from admission.controllers.desk import Desk
from admission.controllers.metrics import Metrics
from queues.core.cycle import Misjudged, decide
from queues.core.plan import Plan
from queues.core.policy import Policy

log = logging.getLogger(__name__)

#: So many faults in a row are mended at once; then it takes longer and longer until the next try.
_AT_ONCE: Final = 3
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
#: Seconds without a fault after which the next one is the first again. Before that, where decisions come to their end
#: all the same, the count stops here: a state is not made anew in every turn, and pauses stay short.
_QUIET: Final = 10.0
_AT_MOST_WHILE_DECIDING: Final = _AT_ONCE + 3
#: Seconds for which a Workload is kept out after the first fault, doubling with each further one.
_KEPT_OUT: Final = 60.0
_LONGEST_KEPT_OUT: Final = 3600.0


class Judge:
    """`says` is told when the state is in doubt for longer than a moment (True), and when no longer (False)."""

    def __init__(
        self, cluster: Cluster, desk: Desk, metrics: Metrics, says: Callable[[bool], None] = lambda _: None
    ) -> None:
        self._cluster = cluster
        self._desk = desk
        self._metrics = metrics
        self._says = says
        #: Faults in a row.
        self._faults = 0
        self._last_fault = 0.0
        #: Whether a decision came to its end since then.
        self._has_decided = False
        self._mends_at: float | None = None
        self._has_said = False
        self._suspects: dict[str, int] = {}

    @property
    def is_in_doubt(self) -> bool:
        """Whether the core's state cannot be relied on now."""
        return self._cluster.doubt is not None

    @property
    def mends_at(self) -> float | None:
        """When the next try is due, which is at once for what was not looked at; None when there is nothing to mend."""
        if not self.is_in_doubt:
            return None
        return 0.0 if self._mends_at is None else self._mends_at

    def plan(self, now: float, policy: Policy) -> Plan | None:
        """What the core decides; None when it could not, and the state is in doubt."""
        while self.mend(now):
            try:
                plan = decide(self._cluster.state, now, policy)
            except Misjudged as error:
                cause = error.__cause__
                self._cluster.doubted("deciding", cause if isinstance(cause, Exception) else error, error.uid)
                continue
            except Exception as error:  # noqa: BLE001  # whatever it is: the state may be half changed now
                self._cluster.doubted("deciding", error, None)
                continue
            self._has_decided = True
            if self._has_said:
                self._has_said = False
                self._says(False)
            return plan
        return None

    def look(self, work: Callable[[float], None], now: float) -> None:
        """Does what reads the core's state, unless that is in doubt, and notices when it proves to be."""
        if self.is_in_doubt:
            return
        try:
            work(now)
        except Exception as error:  # noqa: BLE001  # the same as above
            self._cluster.doubted("reading", error, None)

    def mend(self, now: float) -> bool:
        """Whether the state can be relied on; a state in doubt is replaced, when it is time for that.

        Cost of a replacement: every object.
        """
        doubt = self._cluster.doubt
        if doubt is None:
            return True
        if self._mends_at is None:
            self._noted(doubt, now)
        if self._mends_at is not None and now < self._mends_at:
            return False
        self._mends_at = None
        self._cluster.begin_anew()
        # The old core is all cycles: if the collector was told to leave alone what there was, it would stay for ever.
        gc.unfreeze()
        self._desk.catch_up(now)
        for admission in self._desk.promised():
            self._cluster.promise(admission)
        again = self._cluster.doubt
        if again is not None:
            self._noted(again, now)
            return False
        log.warning("the core was told everything anew", extra={"workloads": len(self._cluster.tables.workloads)})
        return True

    def _noted(self, doubt: Doubt, now: float) -> None:
        """Says what went wrong, keeps out who brought it to light, and plans when to go on."""
        self._faults += 1
        if self._has_decided:
            is_first = abs(now - self._last_fault) >= _QUIET
            self._faults = 1 if is_first else min(self._faults, _AT_MOST_WHILE_DECIDING)
        self._last_fault, self._has_decided = now, False
        log.error(
            "a fault in the core while %s: nothing is decided until it was told everything anew",
            doubt.during,
            extra={
                "cause": repr(doubt.cause),
                "uid": doubt.uid or "",
                "traceback": "".join(traceback.format_exception(doubt.cause)),
            },
        )
        self._metrics.faulted(doubt.during)
        if doubt.uid is not None:
            by_uid = self._cluster.tables.workloads.by_uid
            self._suspects = {uid: times for uid, times in self._suspects.items() if by_uid(uid) is not None}
            times = self._suspects[doubt.uid] = self._suspects.get(doubt.uid, 0) + 1
            until = now + min(_KEPT_OUT * 2 ** min(times - 1, 20), _LONGEST_KEPT_OUT)
            self._desk.keep_out(doubt.uid, f"It brings a fault of Muster to light: {doubt.cause!r}", until)
        if self._faults <= _AT_ONCE:
            self._mends_at = now
            return
        self._mends_at = now + min(_FIRST_PAUSE * 2 ** min(self._faults - _AT_ONCE - 1, 20), _LONGEST_PAUSE)
        if not self._has_said:
            self._has_said = True
            self._says(True)
