"""Adds the system configuration of a trial."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    op.add_column("trial", sa.Column("system", TEXT, nullable=False, server_default="[]"))
