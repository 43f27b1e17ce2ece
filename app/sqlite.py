"""The ledger as an SQLite file.

The writer's connection: WAL, so that readers and the writer never wait for each other; synchronous
FULL, so that a commit outlives a power cut; and transactions that begin IMMEDIATE, so that a second
writer is noticed at once. Readers open the file read-only and so cannot take a write lock.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine, NullPool, create_engine

from ..profiling.errors import UsageError
from ..profiling.urls import hide_password
from . import database
from .database import ALLOWED, BUSY, Database, begin_by

_MEANINGS = {
    "FULL": "its disk is full: free some space",
    "READONLY": "it is read-only: check the owner and the mount of its folder",
    "BUSY": BUSY,
    "LOCKED": BUSY,
    "CANTOPEN": "its folder is not there, or may not be written",
    "IOERR": "its disk reports an error, or is full",
    "CORRUPT": "it is damaged: restore it from a backup",
    "NOTADB": "it is not an SQLite file",
}


class SqliteDatabase(Database):
    """The file of a ledger's URL.

    Its path is what follows ``sqlite:///``, letter by letter: folders' names hold all sorts.
    """

    errors = (sqlite3.Error,)
    contradictions = (sqlite3.IntegrityError, OverflowError)

    def __init__(self, url: str) -> None:
        scheme, _, path = url.partition(":///")
        if scheme != "sqlite" or path in ("", ":memory:"):
            raise UsageError.refuse("ledger", hide_password(url), ALLOWED)
        self._path = Path(path)
        self.shown = path

    def check(self) -> None:
        if not self._path.parent.is_dir():
            raise self.unusable(_MEANINGS["CANTOPEN"])

    def is_absent(self) -> bool:
        return not self._path.exists()

    def writer(self) -> Engine:
        def connect() -> sqlite3.Connection:
            connection = self._connect("rwc")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            return connection

        engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)
        return begin_by(engine, "BEGIN IMMEDIATE")

    def reader(self) -> Engine:
        # Each query opens the file anew, so it may come and go.
        return create_engine("sqlite://", creator=lambda: self._connect("ro"), poolclass=NullPool)

    @contextmanager
    def transaction(self, driver: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        driver.execute("BEGIN IMMEDIATE")
        try:
            yield driver
            driver.execute("COMMIT")
        except BaseException:
            # A full disk may have ended the transaction already; then this does nothing.
            driver.rollback()
            raise

    def meaning(self, error: BaseException | None) -> str:
        name = getattr(error, "sqlite_errorname", "")
        known = _MEANINGS.get(name.removeprefix("SQLITE_").partition("_")[0], str(error))
        return f"{known} ({name})"

    def _connect(self, mode: str) -> sqlite3.Connection:
        # isolation_level None: Python opens no transactions behind SQLAlchemy's back.
        return sqlite3.connect(
            f"file:{quote(str(self._path.absolute()))}?mode={mode}",
            uri=True,
            timeout=database.PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
