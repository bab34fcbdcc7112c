"""Brings the journal's schema to a revision, up or down, from the migrations of the checkout or of the wheel.

One transaction holds all steps, and a lock keeps two replicas that start together from migrating at the same time.
It must never touch the program's logging or print.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

import queues
from queues.journal.database import database_url, open_database
from queues.journal.schema import locked


def migrations_folder() -> Path:
    """Beside the package in a checkout, inside it in an installed wheel."""
    package = Path(queues.__file__).parent
    for folder in (package / "_migrations", package.parent / "migrations"):
        if (folder / "env.py").is_file():
            return folder
    raise FileNotFoundError(f"no migrations beside {package}: the installation is incomplete")


def upgrade(url: str, revision: str = "head") -> None:
    """Creates or upgrades the schema; does nothing where it is there already."""
    with _locked(url) as config:
        command.upgrade(config, revision)


def downgrade(url: str, revision: str) -> None:
    """Goes back to `revision`; `base` removes every table and all that they remember."""
    with _locked(url) as config:
        command.downgrade(config, revision)


def current(url: str) -> str | None:
    """The revision of the database; None for one without a schema."""
    parsed = database_url(url)
    if parsed.get_backend_name() == "sqlite" and not Path(parsed.database or "").is_file():
        return None
    engine = open_database(url)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    finally:
        engine.dispose()


def revisions() -> tuple[str, ...]:
    """All that there are, the oldest first."""
    return tuple(script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions())[::-1]


def head() -> str | None:
    """The newest revision that there is."""
    return ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    config = Config(stdout=io.StringIO())
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


@contextmanager
def _locked(url: str) -> Iterator[Config]:
    with locked(url) as connection:
        config = _config()
        config.attributes["connection"] = connection
        yield config
