"""What `--only` and `--without` make of the settings and of the children's options."""

from __future__ import annotations

import pytest

from admission.commands.faults import Fault
from admission.commands.narrowing import narrowed, passed_on
from admission.settings import Settings


@pytest.mark.parametrize(
    ("only", "frameworks"),
    [
        ("Job", ("batch/job",)),
        ("pod", ("pod",)),
        ("Job,Pod", ("batch/job", "pod")),
        ("batch/job, Job", ("batch/job",)),
        ("JobSet,ray.io/rayjob", ("jobset.x-k8s.io/jobset", "ray.io/rayjob")),
        (None, Settings().integrations.frameworks),
    ],
)
def test_only_these_kinds_run(only: str | None, frameworks: tuple[str, ...]) -> None:
    assert narrowed(Settings(), only).integrations.frameworks == frameworks


@pytest.mark.parametrize("only", ["", "CronJob", "Job,,Pod"])
def test_a_kind_that_is_not_there_is_refused(only: str) -> None:
    with pytest.raises(Fault, match="write Job, Pod or the like"):
        narrowed(Settings(), only)


def test_children_are_told() -> None:
    assert passed_on(None, ()) == {"webhook": [], "controller": []}
    assert passed_on("Job", ("scheduler",)) == {
        "webhook": ["--only", "Job"],
        "controller": ["--only", "Job", "--without", "scheduler"],
    }
