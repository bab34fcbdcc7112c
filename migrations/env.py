"""Runs the journal's migrations over the connection that `queues.journal.migrate` hands in, in its transaction.

For a developer who calls `alembic` itself, `-x url=...` names the database. It must never set up logging: the loggers
belong to the program that migrates.
"""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection

from queues.journal.database import open_database
from queues.journal.models import Base


def run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=connection.dialect.name == "sqlite",
        transaction_per_migration=False,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    with open_database(context.get_x_argument(as_dictionary=True)["url"], write=True).begin() as opened:
        run(opened)
