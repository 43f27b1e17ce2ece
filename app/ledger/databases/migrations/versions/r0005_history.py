"""Adds the history of tuned system parameters, which all studies share."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import INTEGER, TEXT

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.create_table(
        "history",
        sa.Column("id", TEXT),
        sa.Column("workload", TEXT, nullable=False),
        sa.Column("machine", TEXT, nullable=False),
        sa.Column("source", TEXT, nullable=False),
        sa.Column("profile", TEXT, nullable=False),
        sa.Column("config", TEXT, nullable=False),
        sa.Column("speedup", sa.Float, nullable=False),
        sa.Column("joules", sa.Float),
        sa.Column("windows", INTEGER, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("infeasible", sa.Boolean, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_history"),
    )
    op.create_index("ix_history_machine", "history", ["machine"])
