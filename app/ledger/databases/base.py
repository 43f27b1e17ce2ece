"""The interface of the databases that can hold a ledger, and checks that both share.

Both databases promise the same. There is one writer at a time, and a second one is noticed at once.
A batch is one transaction and is durable when it ends. Readers cannot write and do not block the
writer. A driver's error becomes one of Penstock's errors. ``sqlite`` and ``postgres`` describe how
each does this; the statements are the same for both (``ledger.writes``, ``ledger.reader``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from sqlalchemy import Connection, Engine, Table, delete, event, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from ....profiling.base.errors import BackendError, IllegalTransition, LedgerDamaged, LedgerRefused
from .digests import NONE, fault, faults, seal, seal_all
from .tables import EVENT, HEAD, STUDY, WRITER

#: Seconds that a connection waits for a lock that another one holds.
LOCK_TIMEOUT = 5.0
#: The forms that a ledger's URL may have, for messages.
ALLOWED = "sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"

BUSY = "another process holds its lock: is a second scheduler at work?"


class Newest(NamedTuple):
    """The newest event: its sequence number (0: there is none) and its digest."""

    seq: int
    digest: int


class Cursor(Protocol):
    """What a batch is written through: the driver's own connection or cursor."""

    def executemany(self, query: Any, rows: Any, /) -> Any: ...


class Database(ABC):
    """A database, named by its URL. Nothing is opened until it is needed."""

    #: Its name in messages, without a password.
    shown: str
    #: The driver's errors, and those which mean that a batch contradicts the ledger.
    errors: ClassVar[tuple[type[Exception], ...]]
    contradictions: ClassVar[tuple[type[Exception], ...]]
    #: The file that holds it; None where it is not one file.
    file: Path | None = None
    #: How a user restores a ledger in this kind of database, for messages.
    restoring: ClassVar[str]

    @abstractmethod
    def check(self) -> None:
        """Check, within seconds, that it can be opened. Raises ``BackendError`` if not."""

    @abstractmethod
    def is_absent(self) -> bool:
        """Whether the database does not exist yet."""

    @abstractmethod
    def writer(self) -> Engine:
        """An engine whose one connection is the only one that writes."""

    @abstractmethod
    def reader(self) -> Engine:
        """An engine that can only read. The database may appear or vanish between two queries."""

    @abstractmethod
    def transaction(self, driver: Any) -> AbstractContextManager[Cursor]:
        """One write transaction: durable when it ends, rolled back when it ends by an error."""

    @abstractmethod
    def explain(self, error: BaseException | None) -> str:
        """What an error of the driver means, and what to do about it."""

    def structure_fault(self, connection: Connection) -> str | None:
        """The damage that the database finds in its own structure, or None. May read everything."""
        return None

    def sampled_structure_fault(
        self, connection: Connection, table: Table | None = None
    ) -> str | None:
        """The same for a reader before each query, checked only as often as is cheap.

        ``table`` is the only one that the query reads, where given: the rest is not checked.
        """
        return None

    def note(self, newest: Newest) -> None:  # noqa: B027 - where nothing can be lost unseen
        """Record outside the ledger which event is its newest."""

    def noted(self) -> Newest | None:
        """The event that was recorded last, which the ledger must hold; None where none was."""
        return None

    def shrink_log(self, driver: Any) -> None:  # noqa: B027 - where no log stays large
        """Truncate a write-ahead log that has grown large, unless a reader needs it now."""

    def damaged(self, what: str) -> LedgerDamaged:
        """An error saying that ``what`` in the ledger is damaged, and how to go on."""
        return LedgerDamaged(f"the ledger {self.shown} is damaged: {what}. {self.restoring}")

    def trouble(self, error: BaseException | None) -> BackendError:
        """An error of the driver as ``BackendError``."""
        return self.unusable(self.explain(error))

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Turn the driver's errors into ``BackendError``, with the ledger and the cause.

        A batch that contradicts the ledger is our own bug and raises ``IllegalTransition`` instead.
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
            raise self.trouble(cause) from error

    def unusable(self, why: str) -> BackendError:
        """An error saying that the ledger cannot be used, and why."""
        return BackendError(f"the ledger {self.shown} cannot be used: {why}")


def begin_by(engine: Engine, words: str) -> Engine:
    """``engine``, set to begin its transactions by ``words``: its driver commits by itself."""

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        connection.exec_driver_sql(words)

    return engine


def revision(connection: Connection) -> str | None:
    """The migration that the ledger is at; None before the first."""
    if not _has_versions(connection):
        return None
    version = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return None if version is None else str(version)


def _has_versions(connection: Connection) -> bool:
    if connection.dialect.name == "sqlite":  # asked before each query: a reflection takes as long
        query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
        return connection.exec_driver_sql(query).scalar() is not None
    return inspect(connection).has_table("alembic_version")


def migrate(database: Database, connection: Connection) -> None:
    """Bring the ledger to ``HEAD`` in one transaction, and record this version as its writer.

    Alembic is imported only when there is a step to run. Raises LedgerDamaged, and LedgerRefused
    for a ledger of a newer version.
    """
    with connection.begin():
        if found := database.structure_fault(connection):
            raise database.damaged(found)
        at = revision(connection)
        if at is None:
            check_empty(database, connection)
        elif at != HEAD:
            check_not_newer(database, connection, at)
        if at != HEAD:
            from .migrations.run import upgrade

            _check_rows(database, connection)  # else damage would have a right digest from now on
            upgrade(connection, HEAD)
            seal_all(connection)
        row = {"version": _version(), "schema": HEAD}
        seal(WRITER, [row], NONE)
        rows = connection.execute(select(WRITER)).all()
        if [each._asdict() for each in rows] != [row]:
            if at == HEAD and (wrong := fault(WRITER, rows)):
                raise database.damaged(wrong)
            connection.execute(delete(WRITER))
            connection.execute(insert(WRITER), [row])


def _version() -> str:
    from importlib.metadata import version  # it takes as long to import as a small ledger to read

    return version("penstock")


def check_empty(database: Database, connection: Connection) -> None:
    """Check that a database without a revision never held a ledger. Raises LedgerDamaged if so."""
    noted = database.noted()
    if noted is not None and noted.seq:
        wrong = f"{noted.seq} events were written to it, and it is empty"
    elif inspect(connection).has_table("event"):
        wrong = "it does not say any more of which version it is"
    else:
        return
    if revision(connection) is None:  # otherwise it was created since the caller looked
        raise database.damaged(wrong)


def check_not_newer(database: Database, connection: Connection, at: str) -> None:
    """Check that revision ``at`` is not newer than ours. LedgerRefused names what can read it."""
    writer = None
    if inspect(connection).has_table(WRITER.name):
        writer = connection.execute(select(WRITER)).first()
        if writer is None or fault(WRITER, [writer]) or writer.schema != at:
            raise database.damaged("it does not say any more of which version it is")
    if len(at) != len(HEAD) or not at.isdecimal():
        raise database.damaged(f"there is no revision {at!r}")
    if at > HEAD:
        by = f"Penstock {writer.version}" if writer else "a newer Penstock"
        raise LedgerRefused(
            f"the ledger {database.shown} was written by {by} (schema {int(at)}), and this is"
            f" Penstock {_version()} (reads up to {int(HEAD)}): upgrade Penstock"
        )


def verify(database: Database, connection: Connection) -> Newest:
    """Check that all of the ledger is as it was written, and give its newest event.

    It reads everything. Raises LedgerDamaged with the first fault.
    """
    noted = database.noted()  # read first: an event written meanwhile is newer
    with connection.begin():
        _check_rows(database, connection)
        check_noted(database, connection, noted)
        query = select(EVENT.c.seq, EVENT.c.digest).order_by(EVENT.c.seq.desc()).limit(1)
        row = connection.execute(query).first()
    return Newest(0, NONE) if row is None else Newest(row.seq, row.digest)


def _check_rows(database: Database, connection: Connection) -> None:
    for found in faults(connection):
        raise database.damaged(found)


class Known(NamedTuple):
    """What an intact ledger holds: the number of its newest event and of its studies."""

    newest: int
    studies: int


def check_intact(database: Database) -> Known:
    """Check that a ledger is intact, without changing it. Raises LedgerDamaged or BackendError.

    Of an older version that has no digests yet only the database's own structure is checked.
    """
    with database.translate_errors(), database.reader().connect() as connection:
        if found := database.structure_fault(connection):
            raise database.damaged(found)
        at = revision(connection)
        connection.rollback()
        if at is None:
            raise database.damaged("it is empty")
        if at == HEAD:
            verify(database, connection)
        else:
            check_not_newer(database, connection, at)
            _check_rows(database, connection)
        newest = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
        studies = connection.execute(select(func.count(STUDY.c.id))).scalar() or 0
    return Known(newest, studies)


def check_noted(database: Database, connection: Connection, noted: Newest | None) -> None:
    """Check that the ledger holds the event that was ``noted``. Raises LedgerDamaged if not.

    What the database keeps beside its file (SQLite's write-ahead log) may be damaged or gone. Then
    the database opens without its newest batches and reports no error.
    """
    if noted is None or not noted.seq:
        return
    query = select(EVENT.c.digest).where(EVENT.c.seq == noted.seq)
    if connection.execute(query).scalar() != noted.digest:
        newest = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
        raise database.damaged(
            f"event {noted.seq} was written to it and is not there (its newest is {newest})"
        )
