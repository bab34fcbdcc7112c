"""Where the journal is kept: the environment, the settings and what is left open by both."""

from __future__ import annotations

import pytest

from admission.commands.surroundings import JOURNAL_URL, journal_url
from admission.settings import Muster, Settings
from admission.settings.configuration import Journal
from tests.unit.api.test_manifests import CONTAINER


@pytest.mark.parametrize(
    ("environment", "setting", "want"),
    [
        pytest.param(None, "", "sqlite:////state/journal.sqlite3", id="a file where neither names a database"),
        pytest.param(None, "postgresql://set", "postgresql://set", id="the setting where nothing else is said"),
        pytest.param("postgresql://told", "", "postgresql://told", id="the environment alone is enough"),
        pytest.param("postgresql://told", "postgresql://set", "postgresql://told", id="the environment wins"),
        pytest.param("", "postgresql://set", "postgresql://set", id="an empty variable says nothing"),
    ],
)
def test_the_journals_database(
    monkeypatch: pytest.MonkeyPatch, environment: str | None, setting: str, want: str
) -> None:
    monkeypatch.delenv(JOURNAL_URL, raising=False)
    if environment is not None:
        monkeypatch.setenv(JOURNAL_URL, environment)
    assert journal_url(Settings(muster=Muster(state_dir="/state", journal=Journal(url=setting)))) == want


def test_the_deployment_takes_it_from_a_secret_that_may_be_missing() -> None:
    (variable,) = [each for each in CONTAINER["env"] if each["name"] == JOURNAL_URL]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "muster-journal", "key": "url", "optional": True}
