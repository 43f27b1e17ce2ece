"""Trials have values of several objectives, and constraints."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("trial", sa.Column("further", sa.Text, nullable=False, server_default="[]"))
    op.add_column("trial", sa.Column("constraints", sa.Text, nullable=False, server_default="{}"))
