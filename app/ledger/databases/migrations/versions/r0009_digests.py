"""Adds a digest to every row, and the version of Penstock that wrote the ledger.

``databases.base.migrate`` computes the digests once the tables have their final form.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import INTEGER, TEXT

revision = "0009"
down_revision = "0008"

TABLES = ["event", "study", "trial", "epoch", "durable", "device", "command", "snapshot", "history"]


def upgrade() -> None:
    for table in TABLES:
        op.add_column(table, sa.Column("digest", INTEGER, nullable=False, server_default="0"))
    op.create_table(
        "writer",
        sa.Column("version", TEXT),
        sa.Column("schema", TEXT, nullable=False),
        sa.Column("digest", INTEGER, nullable=False, server_default="0"),
        sa.PrimaryKeyConstraint("version", name="pk_writer"),
    )
