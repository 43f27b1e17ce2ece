"""Adds to epochs the system configuration that they were trained with."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("epoch", sa.Column("system", TEXT, nullable=False, server_default="[]"))
