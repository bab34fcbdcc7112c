"""Decisions, read model, usage ledger, writers.

Revision 0001, the first.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NAME = sa.String().with_variant(sa.String(collation="C"), "postgresql")
ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "decisions",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("workload", NAME, nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("kind", NAME, nullable=False),
        sa.Column("cluster_queue", NAME, nullable=False),
        sa.Column("local_queue", NAME, nullable=False),
        sa.Column("code", NAME, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=True),
        sa.Column("cause", NAME, nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_decisions")),
    )
    op.create_index(op.f("ix_decisions_at"), "decisions", ["at"])
    op.create_index(op.f("ix_decisions_cluster_queue_id"), "decisions", ["cluster_queue", "id"])
    op.create_index(op.f("ix_decisions_namespace_name_id"), "decisions", ["namespace", "name", "id"])
    op.create_index(op.f("ix_decisions_workload_id"), "decisions", ["workload", "id"])

    op.create_table(
        "workloads",
        sa.Column("uid", NAME, nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("local_queue", NAME, nullable=False),
        sa.Column("cluster_queue", NAME, nullable=False),
        sa.Column("state", NAME, nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("queued_at", sa.Double(), nullable=False),
        sa.Column("state_since", sa.Double(), nullable=False),
        sa.Column("priority", sa.BigInteger(), nullable=False),
        sa.Column("ordinary", sa.Boolean(), nullable=False),
        sa.Column("falling_priority", sa.BigInteger(), nullable=False),
        sa.Column("evicted", sa.Boolean(), nullable=False),
        sa.Column("owner_kind", NAME, nullable=False),
        sa.Column("owner_name", NAME, nullable=False),
        sa.Column("owners", sa.JSON(), nullable=False),
        sa.Column("pods", sa.BigInteger(), nullable=False),
        sa.Column("requests", sa.JSON(), nullable=False),
        sa.Column("flavors", sa.JSON(), nullable=False),
        sa.Column("code", NAME, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("remedy", sa.Text(), nullable=True),
        sa.Column("shortages", sa.JSON(), nullable=False),
        sa.Column("facts", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("uid", name=op.f("pk_workloads")),
    )
    op.create_index(
        op.f("ix_workloads_order"),
        "workloads",
        [
            "cluster_queue",
            "state",
            "ordinary",
            "falling_priority",
            "queued_at",
            "uid",
            "namespace",
            "local_queue",
        ],
    )
    op.create_index(op.f("ix_workloads_namespace_name"), "workloads", ["namespace", "name"])
    op.create_index(op.f("ix_workloads_namespace_owner_name"), "workloads", ["namespace", "owner_name"])

    op.create_table(
        "cluster_queues",
        sa.Column("name", NAME, nullable=False),
        sa.Column("cohort", NAME, nullable=False),
        sa.Column("strategy", NAME, nullable=False),
        sa.Column("stop_policy", NAME, nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("reason", NAME, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.Column("quotas", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_cluster_queues")),
    )

    op.create_table(
        "local_queues",
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("cluster_queue", NAME, nullable=False),
        sa.Column("active", sa.Boolean(), nullable=False),
        sa.Column("reason", NAME, nullable=False),
        sa.Column("message", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "name", name=op.f("pk_local_queues")),
    )
    op.create_index(op.f("ix_local_queues_cluster_queue"), "local_queues", ["cluster_queue"])

    op.create_table(
        "usage",
        sa.Column("id", ROW_ID, nullable=False),
        sa.Column("workload", NAME, nullable=False),
        sa.Column("namespace", NAME, nullable=False),
        sa.Column("name", NAME, nullable=False),
        sa.Column("cluster_queue", NAME, nullable=False),
        sa.Column("local_queue", NAME, nullable=False),
        sa.Column("flavor", NAME, nullable=False),
        sa.Column("resource", NAME, nullable=False),
        sa.Column("amount", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("ended_at", sa.Double(), nullable=True),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_usage")),
    )
    op.create_index(op.f("ix_usage_ended_at_started_at"), "usage", ["ended_at", "started_at"])
    op.create_index(op.f("ix_usage_workload_ended_at"), "usage", ["workload", "ended_at"])

    op.create_table(
        "journal_writers",
        sa.Column("writer", NAME, nullable=False),
        sa.Column("started_at", sa.Double(), nullable=False),
        sa.Column("written_at", sa.Double(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=False),
        sa.Column("dropped", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("writer", name=op.f("pk_journal_writers")),
    )


def downgrade() -> None:
    for table in ("journal_writers", "usage", "local_queues", "cluster_queues", "workloads", "decisions"):
        op.drop_table(table)
