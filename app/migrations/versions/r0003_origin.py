"""Trials know which other one's state they go on from (population based training)."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("trial", sa.Column("origin_trial", sa.Text))
    op.add_column("trial", sa.Column("origin_epoch", sa.Integer))
    op.add_column("trial", sa.Column("replaces", sa.Text))
