"""Adds values of several objectives and constraints to trials."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("trial", sa.Column("further", TEXT, nullable=False, server_default="[]"))
    op.add_column("trial", sa.Column("constraints", TEXT, nullable=False, server_default="{}"))
