"""What LocalQueues used lately: remembered, and their place by it.

Revision 0002, after 0001.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("local_queues", sa.Column("past_use", sa.Double(), nullable=True))
    op.create_table(
        "past_use",
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("uid", NAME, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("consumed", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_past_use")),
    )


def downgrade() -> None:
    op.drop_table("past_use")
    op.drop_column("local_queues", "past_use")
