"""The databases that a ledger may be kept in, and what both of them promise.

One writer at a time, noticed at once where there is a second one; a batch is one transaction, and
durable when it is left; readers cannot write and do not hold up the writer; whatever the database
says against a statement becomes one of our own errors. How that is done is said in ``sqlite`` and
``postgres``; the statements are the same for both (``writes``, ``queries``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol

from sqlalchemy import Connection, Engine, event, inspect
from sqlalchemy.exc import DBAPIError

from ..profiling.errors import BackendError, IllegalTransition, UsageError
from .tables import HEAD

#: Seconds that a connection waits for another one's lock.
PATIENCE = 5.0
#: What a ledger's URL may be.
ALLOWED = "sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"

BUSY = "another process holds its lock: is a second scheduler at work?"


class Cursor(Protocol):
    """What a batch is written by: the driver's own connection or cursor."""

    def executemany(self, query: Any, rows: Any, /) -> Any: ...


class Database(ABC):
    """A database by its URL. Nothing is opened before it is asked for."""

    #: How messages call it; it holds no password.
    shown: str
    #: The driver's errors, and those that say that a batch contradicts what is there.
    errors: ClassVar[tuple[type[Exception], ...]]
    contradictions: ClassVar[tuple[type[Exception], ...]]

    @abstractmethod
    def check(self) -> None:
        """See that it can be opened, within seconds. Raises ``BackendError``."""

    @abstractmethod
    def is_absent(self) -> bool:
        """Whether there is nothing yet that could be opened."""

    @abstractmethod
    def writer(self) -> Engine:
        """An engine whose one connection is the only one that writes."""

    @abstractmethod
    def reader(self) -> Engine:
        """An engine that can only read. The database may come and go between two queries."""

    @abstractmethod
    def transaction(self, driver: Any) -> AbstractContextManager[Cursor]:
        """One write transaction: durable when left, without a trace when left by an error."""

    @abstractmethod
    def meaning(self, error: BaseException | None) -> str:
        """What one of the driver's errors means, and what to do."""

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turn the driver's errors into ``BackendError``: which ledger, what is wrong.

        A batch that contradicts what is there is no such error but ours: ``IllegalTransition``.
        """
        known: tuple[type[Exception], ...] = (DBAPIError, *self.errors, *self.contradictions)
        try:
            yield
        except known as error:
            cause = error.orig if isinstance(error, DBAPIError) else error
            if isinstance(cause, self.contradictions):
                raise IllegalTransition(
                    f"the ledger {self.shown} refuses the batch: {cause}"
                ) from error
            raise self.unusable(self.meaning(cause)) from error

    def unusable(self, why: str) -> BackendError:
        """That the ledger cannot be used, and why."""
        return BackendError(f"the ledger {self.shown} cannot be used: {why}")


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


def begin_by(engine: Engine, words: str) -> Engine:
    """``engine``, whose driver commits by itself unless a transaction begins by ``words``."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(words)

    return engine


def revision(connection: Connection) -> str | None:
    """The migration that the ledger is at, None before the first."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def migrate(connection: Connection) -> None:
    """Bring the ledger to ``HEAD`` in one transaction. Alembic is imported only for that."""
    with connection.begin():
        if revision(connection) == HEAD:
            return
        from .migrations import upgrade

        upgrade(connection, HEAD)
