"""How the ledger's file is opened, migrated, and what its errors mean.

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

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect
from sqlalchemy.exc import DBAPIError

from ..profiling.errors import BackendError, IllegalTransition, UsageError
from .tables import HEAD

#: Seconds that a connection waits for another one's lock.
PATIENCE = 5.0

_MEANINGS = {
    "FULL": "its disk is full: free some space",
    "READONLY": "it is read-only: check the owner and the mount of its folder",
    "BUSY": "another process holds its lock: is a second scheduler at work?",
    "LOCKED": "another process holds its lock: is a second scheduler at work?",
    "CANTOPEN": "its folder is not there, or may not be written",
    "IOERR": "its disk reports an error, or is full",
    "CORRUPT": "it is damaged: restore it from a backup",
    "NOTADB": "it is not an SQLite file",
}


def path_of(url: str) -> Path:
    """The file of a ledger's URL. Raises ``UsageError`` for anything but an SQLite file.

    The path is what follows ``sqlite:///``, letter by letter: folders' names hold all sorts.
    """
    scheme, _, path = url.partition(":///")
    if scheme != "sqlite" or path in ("", ":memory:"):
        # The value is not shown whole: another database's URL may hold a password.
        raise UsageError.refuse("ledger", scheme.partition(":")[0] + ":…", "sqlite:///<file>")
    return Path(path)


def writer(url: str) -> Engine:
    """An engine that writes the ledger, with a file made where there is none."""
    path = path_of(url)

    def connect() -> sqlite3.Connection:
        connection = _connect(path, "rwc")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    engine = create_engine("sqlite://", creator=connect, poolclass=NullPool)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    return engine


def reader(url: str) -> Engine:
    """An engine that can only read. Each query opens the file anew, so it may come and go."""
    path = path_of(url)
    return create_engine("sqlite://", creator=lambda: _connect(path, "ro"), poolclass=NullPool)


def revision(connection: Connection) -> str | None:
    """The migration that the file is at, None before the first."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def migrate(connection: Connection) -> None:
    """Bring the file to ``HEAD`` in one transaction. Alembic is imported only if that is work."""
    with connection.begin():
        if revision(connection) == HEAD:
            return
        from .migrations import upgrade

        upgrade(connection, HEAD)


def driver(connection: Connection) -> sqlite3.Connection:
    """The driver's own connection below SQLAlchemy's."""
    below = connection.connection.driver_connection
    assert isinstance(below, sqlite3.Connection)
    return below


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
    """One write transaction: durable when left, without a trace when left by an error."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # A full disk may have ended the transaction already; then this does nothing.
        connection.rollback()
        raise


@contextmanager
def answering(path: Path) -> Iterator[None]:
    """Turn the database's errors into ``BackendError``: which file, what is wrong, what to do.

    A batch that contradicts what is there is no such error but ours: ``IllegalTransition``.
    """
    try:
        yield
    except (DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, DBAPIError) else error
        name = getattr(cause, "sqlite_errorname", "")
        if isinstance(cause, sqlite3.IntegrityError):
            raise IllegalTransition(f"the ledger {path} refuses the batch: {cause}") from error
        meaning = _MEANINGS.get(name.removeprefix("SQLITE_").partition("_")[0], str(cause))
        raise BackendError(f"the ledger {path} cannot be used: {meaning} ({name})") from error


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    # isolation_level None: Python opens no transactions behind SQLAlchemy's back.
    return sqlite3.connect(
        f"file:{quote(str(path.absolute()))}?mode={mode}",
        uri=True,
        timeout=PATIENCE,
        isolation_level=None,
        check_same_thread=False,
    )
