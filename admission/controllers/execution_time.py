"""How long a Workload may run in all its executions together.

Decided from `maximumExecutionTimeSeconds`, the time of earlier executions and the time since it was admitted. It must
never count time in which the Workload was not admitted.
"""

from __future__ import annotations

from admission.api import names
from admission.api.kueue import Workload
from admission.controllers import conditions
from admission.controllers.rules import Facts, Step, deactivation_wanted, event, is_going_out
from admission.jobs.effects import Severity


def limit(workload: Workload, facts: Facts, now: float) -> Step:
    """Past the limit it is marked for deactivation, with a clean account for when it is activated again."""
    del facts
    seconds = workload.spec.maximum_execution_time_seconds
    began = conditions.since(workload, names.ADMITTED)
    if not seconds or began is None or not conditions.is_admitted(workload) or is_going_out(workload):
        return Step(workload)
    end = began + seconds - (workload.status.accumulated_past_execution_time_seconds or 0)
    if now < end:
        return Step(workload, wake_at=end)
    message = f"The maximum execution time of {seconds}s is over"
    changed = deactivation_wanted(workload, names.REASON_MAXIMUM_EXECUTION_TIME_EXCEEDED, message, now)
    changed = conditions.with_status(changed, accumulated_past_execution_time_seconds=None)
    tell = event(workload, names.EVENT_MAXIMUM_EXECUTION_TIME_EXCEEDED, message, Severity.WARNING)
    return Step(changed, tells=(tell,))
