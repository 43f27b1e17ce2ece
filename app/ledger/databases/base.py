"""The interface of the databases that can hold a ledger, and the checks that both databases share.

SQLite and PostgreSQL give the same guarantees. There is one writer at a time, and a second writer
is noticed at once. A batch is one transaction, and it is durable when the transaction ends. Readers
cannot write, and they do not block the writer. An error of the driver becomes one of Penstock's
errors. The modules ``sqlite`` and ``postgres`` explain how each database gives these guarantees.
The statements are the same for both (``ledger.writes``, ``ledger.reader``).

SQLAlchemy is imported only on demand, since importing it takes longer than reading a list of
studies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from ....base.errors import BackendError, IllegalTransition, LedgerDamaged, LedgerRefused
from .row_digest import first_fault
from .schema import HEAD

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

#: A function that runs a statement without parameters and returns the rows of the result.
Ask = Callable[[str], Sequence[Sequence[Any]]]

#: The number of seconds for which a connection waits for the lock of another connection.
LOCK_TIMEOUT = 5.0
#: The allowed forms of a ledger's URL, for error messages.
ALLOWED = "sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"

BUSY = "another process holds its lock: is a second scheduler at work?"


class Newest(NamedTuple):
    """The newest event: its sequence number, which is 0 if there is no event, and its digest."""

    seq: int
    digest: int


class Cursor(Protocol):
    """The driver's own connection or cursor, through which a batch is written."""

    def executemany(self, query: Any, rows: Any, /) -> Any: ...


class Database(ABC):
    """Base class of the databases that can hold a ledger. A database is opened only on demand."""

    #: The name of the database in messages, without a password.
    shown: str
    #: ``errors`` contains the errors of the driver. ``contradictions`` contains the errors which
    #: mean that a batch contradicts the ledger.
    errors: ClassVar[tuple[type[Exception], ...]]
    contradictions: ClassVar[tuple[type[Exception], ...]]
    #: The file of the database. It is None if the database is not a single file.
    file: Path | None = None
    #: Instructions to restore a ledger in this kind of database, for error messages.
    restoring: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Check, within seconds, that the database can be opened.

        Raises BackendError if the database cannot be opened.
        """

    @abstractmethod
    def is_absent(self) -> bool:
        """Return True if the database does not exist yet."""

    @abstractmethod
    def writer(self) -> Engine:
        """Return a SQLAlchemy engine with a single connection, the only connection that writes."""

    @abstractmethod
    def reader(self) -> Engine:
        """Return a SQLAlchemy engine that can only read.

        The database may appear or vanish between two queries.
        """

    def direct(self) -> AbstractContextManager[Ask] | None:
        """Open the database for reading without SQLAlchemy.

        The result is None if doing without SQLAlchemy would save no time. Raises the errors of the
        driver.
        """
        return None

    @abstractmethod
    def has_table(self, ask: Ask, name: str) -> bool:
        """Return True if the database has a table with this name."""

    @abstractmethod
    def transaction(self, driver: Any) -> AbstractContextManager[Cursor]:
        """Return a write transaction as a context manager.

        The transaction is durable when the context ends. If the context ends with an error, the
        transaction is rolled back. ``driver`` is the driver's own connection.
        """

    @abstractmethod
    def explain(self, error: BaseException | None) -> str:
        """Return an explanation of the driver's error and of what to do about the error."""

    def structure_fault(self, ask: Ask) -> str | None:
        """Return the damage that the database finds in its own structure, or None.

        The check may read the whole database.
        """
        return None

    def sampled_structure_fault(self, ask: Ask, table: str | None = None) -> str | None:
        """Return the damage that a reader's check before a query finds, or None.

        The structure is checked only as often as is cheap. If ``table`` is not None, the query
        reads only this table, and the other tables are not checked.
        """
        return None

    def note(self, newest: Newest) -> None:  # noqa: B027 - where nothing can be lost unseen
        """Record, outside the ledger, which event is the ledger's newest event."""

    def noted(self) -> Newest | None:
        """Return the event that ``note`` recorded last, or None if no event is recorded.

        The ledger must contain the recorded event.
        """
        return None

    def shrink_log(self, driver: Any) -> None:  # noqa: B027 - where no log stays large
        """Truncate a write-ahead log that has grown large, unless a reader needs the log now."""

    def damaged(self, what: str) -> LedgerDamaged:
        """Return the error which says that the ledger is damaged, and how to restore the ledger.

        ``what`` describes the damage.
        """
        return LedgerDamaged(f"the ledger {self.shown} is damaged: {what}. {self.restoring}")

    def trouble(self, error: BaseException | None) -> BackendError:
        """Convert an error of the driver to a BackendError."""
        return self.unusable(self.explain(error))

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Convert the driver's errors to BackendError, with the name of the ledger and the cause.

        A batch that contradicts the ledger is a bug in Penstock and raises IllegalTransition.
        """
        try:
            yield
        except Exception as error:
            # SQLAlchemy's errors have the driver's error as an attribute.
            cause: Exception = getattr(error, "orig", error)
            if not isinstance(cause, (*self.errors, *self.contradictions)):
                raise
            if isinstance(cause, self.contradictions):
                raise IllegalTransition(
                    f"the ledger {self.shown} refuses the batch: {cause}"
                ) from error
            raise self.trouble(cause) from error

    def unusable(self, why: str) -> BackendError:
        """Return the error which says that the ledger cannot be used, and why."""
        return BackendError(f"the ledger {self.shown} cannot be used: {why}")


def asking(connection: Connection) -> Ask:
    """Return a function that runs a statement over ``connection`` and returns its rows."""
    return lambda statement: connection.exec_driver_sql(statement).all()


def value(ask: Ask, statement: str) -> Any:
    """Return the first value in the first row of ``statement``, or None if there is no row."""
    return next((row[0] for row in ask(statement)), None)


def revision(database: Database, ask: Ask) -> str | None:
    """Return the number of the ledger's schema, or None if the ledger has no schema yet."""
    if not database.has_table(ask, "alembic_version"):
        return None
    version = value(ask, "SELECT version_num FROM alembic_version")
    return None if version is None else str(version)


def installed() -> str:
    """Return the version of Penstock that is running."""
    from importlib.metadata import version  # it takes as long to import as a small ledger to read

    return version("penstock")


def check_empty(database: Database, ask: Ask) -> None:
    """Raise LedgerDamaged if a database without a schema has held a ledger before."""
    newest = database.noted()
    if newest is not None and newest.seq:
        wrong = f"{newest.seq} events were written to it, and it is empty"
    elif database.has_table(ask, "event"):
        wrong = "it does not say any more of which version it is"
    else:
        return
    if revision(database, ask) is None:  # otherwise it was created since the caller looked
        raise database.damaged(wrong)


def check_not_newer(database: Database, ask: Ask, at: str) -> None:
    """Raise LedgerRefused if the ledger's schema, number ``at``, is too new for this version.

    The message names a version that can read the ledger. Raises LedgerDamaged if the number is not
    valid, or if it contradicts the table ``writer``.
    """
    writer = None
    if database.has_table(ask, "writer"):
        rows = ask("SELECT version, schema, digest FROM writer")
        writer = rows[0] if rows else None
        if writer is None or first_fault("writer", [writer]) or writer[1] != at:
            raise database.damaged("it does not say any more of which version it is")
    if len(at) != len(HEAD) or not at.isdecimal():
        raise database.damaged(f"there is no revision {at!r}")
    if at > HEAD:
        by = f"Penstock {writer[0]}" if writer else "a newer Penstock"
        raise LedgerRefused(
            f"the ledger {database.shown} was written by {by} (schema {int(at)}), and this is"
            f" Penstock {installed()} (reads up to {int(HEAD)}): upgrade Penstock"
        )


def check_noted(database: Database, ask: Ask, noted: Newest | None) -> None:
    """Check that the ledger contains the event that was ``noted``.

    Raises LedgerDamaged if the event is missing. The write-ahead log of SQLite, a file next to the
    database, may be damaged or gone. The database then opens without the newest batches and reports
    no error.
    """
    if noted is None or not noted.seq:
        return
    query = f"SELECT digest FROM event WHERE seq = {noted.seq:d}"  # noqa: S608 - it is a number
    if value(ask, query) != noted.digest:
        newest = value(ask, "SELECT max(seq) FROM event") or 0
        raise database.damaged(
            f"event {noted.seq} was written to it and is not there (its newest is {newest})"
        )
