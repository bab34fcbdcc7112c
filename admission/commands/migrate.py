"""Brings the journal's schema to a revision, for those who do not let the controller do it at its start.

The database is the one of the settings unless another is named. It never touches the cluster.
"""

from __future__ import annotations

import click

from admission.commands.faults import Fault, told
from admission.commands.surroundings import journal_url
from admission.settings import load


def run(config: str | None, url: str | None, revision: str) -> None:
    """`muster migrate`."""
    from alembic.util import CommandError
    from sqlalchemy.exc import SQLAlchemyError

    from queues.journal import migrate
    from queues.journal.database import UnsupportedDatabaseError

    with told():
        url = url or journal_url(load(config))
    try:
        before = migrate.current(url)
        if revision == "base":
            migrate.downgrade(url, revision)
        else:
            migrate.upgrade(url, revision)
        after = migrate.current(url)
    except (SQLAlchemyError, UnsupportedDatabaseError, CommandError, OSError) as error:
        raise Fault(f"the journal's database cannot be migrated: {error}") from error
    click.echo(f"{before or 'empty'} -> {after or 'empty'}")
