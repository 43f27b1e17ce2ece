"""Adds to epochs the trial that trained them, where another one took them over."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    column = sa.Column("taken_from", TEXT, nullable=False, server_default="")
    op.add_column("epoch", column)
