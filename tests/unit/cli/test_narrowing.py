"""What `--only` and `--without` make of the settings and of the children's options, and what else follows from them."""

from __future__ import annotations

import ssl

import pytest

from admission.commands.faults import Fault
from admission.commands.narrowing import narrowed, passed_on
from admission.commands.surroundings import oldest_tls
from admission.settings import Settings
from admission.settings.configuration import TLSOptions


@pytest.mark.parametrize(
    ("only", "frameworks"),
    [
        ("Job", ("batch/job",)),
        ("pod", ("pod",)),
        ("Job,Pod", ("batch/job", "pod")),
        ("batch/job, Job", ("batch/job",)),
        (None, Settings().integrations.frameworks),
    ],
)
def test_only_these_kinds_run(only: str | None, frameworks: tuple[str, ...]) -> None:
    assert narrowed(Settings(), only).integrations.frameworks == frameworks


@pytest.mark.parametrize("only", ["", "JobSet", "Job,,Pod"])
def test_a_kind_that_is_not_there_is_refused(only: str) -> None:
    with pytest.raises(Fault, match="write Job or Pod"):
        narrowed(Settings(), only)


def test_children_are_told() -> None:
    assert passed_on(None, ()) == {"webhook": [], "controller": []}
    assert passed_on("Job", ("scheduler",)) == {
        "webhook": ["--only", "Job"],
        "controller": ["--only", "Job", "--without", "scheduler"],
    }


@pytest.mark.parametrize(
    ("tls", "oldest"),
    [
        (None, ssl.TLSVersion.TLSv1_2),
        (TLSOptions(), ssl.TLSVersion.TLSv1_2),
        (TLSOptions(min_version="VersionTLS13"), ssl.TLSVersion.TLSv1_3),
    ],
)
def test_the_oldest_version_of_tls_is_that_of_the_settings(tls: TLSOptions | None, oldest: ssl.TLSVersion) -> None:
    assert oldest_tls(Settings(tls=tls)) is oldest
