"""Adds to studies what the list shows of one that is over, and an index of the imports.

The summaries are written when the ledger is opened (``SqlLedger.open``).
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from penstock.app.ledger.databases.tables import TEXT

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    op.add_column("study", sa.Column("summary", TEXT, nullable=False, server_default=""))
    imports = sa.text("kind = 'StudyImported'")
    op.create_index(
        "ix_event_imported", "event", ["study"], sqlite_where=imports, postgresql_where=imports
    )
