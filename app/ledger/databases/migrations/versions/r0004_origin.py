"""Adds to a forked trial the trial whose state it continues (population based training)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import INTEGER, TEXT

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.add_column("trial", sa.Column("origin_trial", TEXT))
    op.add_column("trial", sa.Column("origin_epoch", INTEGER))
    op.add_column("trial", sa.Column("replaces", TEXT))
