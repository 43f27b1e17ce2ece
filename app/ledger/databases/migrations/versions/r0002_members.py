"""Adds the devices on which a trial runs, since when, and those that trained an epoch."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("trial", sa.Column("members", TEXT, nullable=False, server_default="[]"))
    op.add_column("trial", sa.Column("dispatched_at", sa.Float))
    op.add_column("epoch", sa.Column("members", TEXT, nullable=False, server_default="[]"))
