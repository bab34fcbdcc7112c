"""What lies around the queues: cohorts, flavors, nodes; the pod sets of workloads; decisions found by their cause.

Revision 0003, after 0002.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
HAS_CAUSE = sa.text("cause <> ''")


def upgrade() -> None:
    op.add_column("workloads", sa.Column("pod_sets", sa.JSON(), nullable=False, server_default=sa.text("'[]'")))
    op.create_index(
        op.f("ix_decisions_cause_id"),
        "decisions",
        ["cause", "id"],
        sqlite_where=HAS_CAUSE,
        postgresql_where=HAS_CAUSE,
    )
    op.create_table(
        "cohorts",
        sa.Column("name", NAME, nullable=False),
        sa.Column("parent", NAME, nullable=False),
        sa.Column("quotas", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_cohorts")),
    )
    op.create_table(
        "flavors",
        sa.Column("name", NAME, nullable=False),
        sa.Column("node_labels", sa.JSON(), nullable=False),
        sa.Column("topology", NAME, nullable=False),
        sa.Column("levels", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_flavors")),
    )
    op.create_table(
        "nodes",
        sa.Column("name", NAME, nullable=False),
        sa.Column("state", NAME, nullable=False),
        sa.Column("labels", sa.JSON(), nullable=False),
        sa.Column("capacity", sa.JSON(), nullable=False),
        sa.Column("free", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_nodes")),
    )


def downgrade() -> None:
    for table in ("nodes", "flavors", "cohorts"):
        op.drop_table(table)
    op.drop_index(op.f("ix_decisions_cause_id"), "decisions")
    op.drop_column("workloads", "pod_sets")
