"""Runs the migrations of the ledger's schema by Alembic.

The steps are modules of ``versions``; ``schema.HEAD`` names the last one. They run when the
scheduler opens a ledger that is behind, with no ``alembic.ini``, also from an installed wheel.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection


def upgrade(connection: Connection, revision: str) -> None:
    """Run the steps up to ``revision`` in the caller's transaction."""
    command.upgrade(config(connection), revision)


def config(connection: Connection) -> Config:
    """Alembic's settings for migrations on ``connection``."""
    settings = Config()
    # Percent signs are doubled because Alembic's settings interpolate.
    folder = str(Path(__file__).parent).replace("%", "%%")
    settings.set_main_option("script_location", folder)
    settings.set_main_option("path_separator", "os")
    settings.attributes["connection"] = connection
    return settings
