"""How long what has ended is kept, and when it is let go."""

from __future__ import annotations

import pytest

from admission.api import names
from admission.controllers.lifecycle import reconcile
from admission.controllers.rules import Ownership
from admission.jobs.effects import Delete, Patch
from tests.unit.controllers.builders import (
    NOW,
    RETAINED,
    WorkloadBuilder,
    facts,
    workload,
)


@pytest.mark.parametrize(
    ("wl", "ownership", "want"),
    [
        pytest.param(workload().finalized().deleting(), Ownership.NONE, [], id="one without owners is let go"),
        pytest.param(workload().finalized().deleting(), Ownership.JOB, None, id="one with a job is its adapter's"),
        pytest.param(
            workload().cond(names.FINISHED, at=-200).finalized(),
            Ownership.JOB,
            [],
            id="finished for long enough: the finalizer goes before the object",
        ),
    ],
)
def test_finalizer(wl: WorkloadBuilder, ownership: Ownership, want: list[str] | None) -> None:
    verdict = reconcile(wl.obj, facts(ownership=ownership, object_retention_policies=RETAINED), NOW)
    written = [effect.body["metadata"]["finalizers"] for effect in verdict.effects if isinstance(effect, Patch)]
    assert written == ([] if want is None else [want])


@pytest.mark.parametrize(
    ("wl", "want"),
    [
        pytest.param(workload().cond(names.FINISHED, at=-200), [("Workload", "w")], id="finished for long enough"),
        pytest.param(workload().cond(names.FINISHED, at=-99), [], id="not yet"),
        pytest.param(
            workload()
            .spec(active=False)
            .evicted("DeactivatedDueToAdmissionCheck", at=-60)
            .owned()
            .cond(names.REQUEUED, "False", "DeactivatedDueToAdmissionCheck"),
            [("Job", "j")],
            id="deactivated by the system: the job goes",
        ),
        pytest.param(
            workload().spec(active=False).evicted("Deactivated", at=-60).owned(),
            [],
            id="deactivated by a person: the job stays",
        ),
    ],
)
def test_retention(wl: WorkloadBuilder, want: list[tuple[str, str]]) -> None:
    verdict = reconcile(wl.obj, facts(object_retention_policies=RETAINED), NOW)
    deleted = [(effect.ref.kind, effect.ref.name) for effect in verdict.effects if isinstance(effect, Delete)]
    assert deleted == want
