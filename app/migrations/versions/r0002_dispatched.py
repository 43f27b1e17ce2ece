"""When a trial's newest segment was sent: since when its device is at work for it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("trial", sa.Column("dispatched_at", sa.Float))
