"""Adds to devices how many trials take turns in one lane."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import INTEGER

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column("device", sa.Column("seats", INTEGER, nullable=False, server_default="1"))
