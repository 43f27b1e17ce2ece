"""Adds joules to epochs, and to devices the reason why they measure none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.add_column("epoch", sa.Column("joules", sa.Float))
    default = "nobody has looked for meters"
    op.add_column("device", sa.Column("unmetered", TEXT, nullable=False, server_default=default))
