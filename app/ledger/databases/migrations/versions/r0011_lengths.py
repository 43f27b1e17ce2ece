"""Adds to the first epochs of segments how long those were to be, and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.add_column("epoch", sa.Column("length", TEXT, nullable=False, server_default=""))
