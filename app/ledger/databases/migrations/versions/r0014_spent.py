"""Adds to studies what they have spent of devices."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    op.add_column("study", sa.Column("spent", TEXT, nullable=False, server_default=""))
