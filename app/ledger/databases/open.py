"""The database of a ledger's URL: an SQLite file, or PostgreSQL, whose driver is loaded then."""

from __future__ import annotations

from ....profiling.base.errors import UsageError
from .base import ALLOWED, Database


def database_at(url: str) -> Database:
    """The database of a ledger's URL. Raises ``UsageError`` for any other URL."""
    scheme, mark, _ = url.partition(":")
    if scheme == "sqlite":
        from .sqlite import SqliteDatabase

        return SqliteDatabase(url)
    if scheme == "postgresql":
        from .postgres import PostgresDatabase

        return PostgresDatabase(url)
    # The value is not shown whole: another database's URL may hold a password.
    raise UsageError.refuse("ledger", scheme + ":…" if mark else url, ALLOWED)
