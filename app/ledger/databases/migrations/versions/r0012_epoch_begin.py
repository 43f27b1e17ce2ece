"""Adds to epochs when they began, where their trials took turns with others."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("epoch", sa.Column("began", sa.Float))
