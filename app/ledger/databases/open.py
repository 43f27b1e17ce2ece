"""Choose the database for a ledger's URL: SQLite or PostgreSQL. The driver is loaded on demand."""

from __future__ import annotations

from ....base.errors import UsageError
from .base import ALLOWED, Database


def database_at(url: str) -> Database:
    """Return the database for a ledger's URL. Raises UsageError for a URL of another kind."""
    scheme, mark, _ = url.partition(":")
    if scheme == "sqlite":
        from .sqlite import SqliteDatabase

        return SqliteDatabase(url)
    if scheme == "postgresql":
        from .postgres import PostgresDatabase

        return PostgresDatabase(url)
    # Only the scheme is shown: the URL of another database may hold a password.
    raise UsageError.refuse("ledger", scheme + ":…" if mark else url, ALLOWED)
