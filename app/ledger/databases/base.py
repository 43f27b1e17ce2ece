"""The interface of the databases that can hold a ledger, and checks that both share.

SQLite and PostgreSQL give the same guarantees. There is one writer at a time, and a second writer
is noticed at once. A batch is one transaction and is durable when it ends. Readers cannot write and
do not block the writer. A driver's error becomes one of Penstock's errors. ``sqlite`` and
``postgres`` describe how each does this; the statements are the same for both (``ledger.writes``,
``ledger.reader``).

SQLAlchemy is imported only on demand: importing it takes longer than reading a list of studies.
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

#: A function that runs a statement without parameters and returns its rows.
Ask = Callable[[str], Sequence[Sequence[Any]]]

#: Seconds that a connection waits for another connection's lock.
LOCK_TIMEOUT = 5.0
#: The forms that a ledger's URL may have, for messages.
ALLOWED = "sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"

BUSY = "another process holds its lock: is a second scheduler at work?"


class Newest(NamedTuple):
    """The newest event: its sequence number (0: there is none) and its digest."""

    seq: int
    digest: int


class Cursor(Protocol):
    """The driver's own connection or cursor, through which a batch is written."""

    def executemany(self, query: Any, rows: Any, /) -> Any: ...


class Database(ABC):
    """A database, named by its URL. Nothing is opened until it is needed."""

    #: The name in messages, without a password.
    shown: str
    #: The driver's errors, and the errors which mean that a batch contradicts the ledger.
    errors: ClassVar[tuple[type[Exception], ...]]
    contradictions: ClassVar[tuple[type[Exception], ...]]
    #: The database's file; None if it is not a single file.
    file: Path | None = None
    #: Instructions to restore a ledger in this kind of database, for messages.
    restoring: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Check, within seconds, that the database can be opened, or raise ``BackendError``."""

    @abstractmethod
    def is_absent(self) -> bool:
        """Return True if the database does not exist yet."""

    @abstractmethod
    def writer(self) -> Engine:
        """Return an engine with a single connection, the only one that writes."""

    @abstractmethod
    def reader(self) -> Engine:
        """Return an engine that can only read.

        The database may appear or vanish between two queries.
        """

    def direct(self) -> AbstractContextManager[Ask] | None:
        """Open the database for reading without SQLAlchemy; return None if that saves nothing.

        Raises the driver's errors.
        """
        return None

    @abstractmethod
    def has_table(self, ask: Ask, name: str) -> bool:
        """Return True if the database has a table of this name."""

    @abstractmethod
    def transaction(self, driver: Any) -> AbstractContextManager[Cursor]:
        """Return one write transaction: durable at its end, rolled back if it ends by an error."""

    @abstractmethod
    def explain(self, error: BaseException | None) -> str:
        """Explain what an error of the driver means, and what to do about it."""

    def structure_fault(self, ask: Ask) -> str | None:
        """Return the damage that the database finds in its own structure, or None.

        May read the whole database.
        """
        return None

    def sampled_structure_fault(self, ask: Ask, table: str | None = None) -> str | None:
        """Return the damage found by a reader's check before a query, or None.

        The structure is checked only as often as is cheap. If ``table`` is given, the query reads
        only that table, and the other tables are not checked.
        """
        return None

    def note(self, newest: Newest) -> None:  # noqa: B027 - where nothing can be lost unseen
        """Record outside the ledger which event is its newest."""

    def noted(self) -> Newest | None:
        """Return the event recorded by the last ``note``, which the ledger must have, or None."""
        return None

    def shrink_log(self, driver: Any) -> None:  # noqa: B027 - where no log stays large
        """Truncate a write-ahead log that has grown large, unless a reader needs it now."""

    def damaged(self, what: str) -> LedgerDamaged:
        """Return the error that the ledger is damaged, ``what`` is wrong, and how to restore it."""
        return LedgerDamaged(f"the ledger {self.shown} is damaged: {what}. {self.restoring}")

    def trouble(self, error: BaseException | None) -> BackendError:
        """Return an error of the driver as ``BackendError``."""
        return self.unusable(self.explain(error))

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn the driver's errors into ``BackendError``, with the ledger and the cause.

        A batch that contradicts the ledger is a bug in Penstock and raises ``IllegalTransition``.
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
        """Return an error saying that the ledger cannot be used, and why."""
        return BackendError(f"the ledger {self.shown} cannot be used: {why}")


def asking(connection: Connection) -> Ask:
    """Return a function that runs a statement over ``connection`` and returns its rows."""
    return lambda statement: connection.exec_driver_sql(statement).all()


def value(ask: Ask, statement: str) -> Any:
    """Return the first value of the first row of ``statement``; None if there is no row."""
    return next((row[0] for row in ask(statement)), None)


def revision(database: Database, ask: Ask) -> str | None:
    """Return the number of the ledger's schema; None if there is no schema yet."""
    if not database.has_table(ask, "alembic_version"):
        return None
    version = value(ask, "SELECT version_num FROM alembic_version")
    return None if version is None else str(version)


def installed() -> str:
    """Return the version of Penstock that runs."""
    from importlib.metadata import version  # it takes as long to import as a small ledger to read

    return version("penstock")


def check_empty(database: Database, ask: Ask) -> None:
    """Raise LedgerDamaged if a database without a revision has held a ledger before."""
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
    """Raise LedgerRefused, naming a version that can read the ledger, if ``at`` is too new."""
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
    """Check that the ledger has the event that was ``noted``. Raises LedgerDamaged if not.

    SQLite's write-ahead log, a file next to the database, may be damaged or gone. Then the database
    opens without its newest batches and reports no error.
    """
    if noted is None or not noted.seq:
        return
    query = f"SELECT digest FROM event WHERE seq = {noted.seq:d}"  # noqa: S608 - it is a number
    if value(ask, query) != noted.digest:
        newest = value(ask, "SELECT max(seq) FROM event") or 0
        raise database.damaged(
            f"event {noted.seq} was written to it and is not there (its newest is {newest})"
        )
