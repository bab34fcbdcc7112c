"""Where things are kept that the settings leave open: the state directory and the journal in it.

Decided from the settings and the environment. It creates no file; directories are made by who writes there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from admission.settings import Settings, SettingsError, load

#: The environment variable with the name under which the controller holds the Lease, where it is to be a certain one.
IDENTITY: Final = "MUSTER_IDENTITY"

#: The environment variable with the journal's database: a password in it stays out of the settings' ConfigMap.
JOURNAL_URL: Final = "MUSTER_JOURNAL_URL"

#: The environment variable that is set where somebody else tells the API server whom to ask, as `muster dev` does.
PUBLISHED_ELSEWHERE: Final = "MUSTER_PUBLISHED_ELSEWHERE"

#: What `muster dev` keeps of its certificates, in its folder.
CERTIFICATES: Final = "certificates.json"


def state_folder(settings: Settings) -> Path:
    """`muster.stateDir`, else `muster` below the user's state directory."""
    if settings.muster.state_dir:
        return Path(settings.muster.state_dir)
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "muster"


def dev_inspection() -> str:
    """The address of the inspection of a `muster dev` that was run with its default folder; empty without one."""
    try:
        settings = load(state_folder(Settings()) / "dev" / "settings.yaml")
    except SettingsError:
        return ""
    inspection = settings.muster.inspection
    return f"https://{inspection.bind_address}:{inspection.bind_port}" if inspection.enabled else ""


def journal_url(settings: Settings) -> str:
    """The journal's database: the one of the environment, else of the settings, else a SQLite file."""
    named = os.environ.get(JOURNAL_URL) or settings.muster.journal.url
    return named or f"sqlite:///{state_folder(settings) / 'journal.sqlite3'}"
