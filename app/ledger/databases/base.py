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
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from sqlalchemy import Connection, Engine, delete, event, func, insert, inspect, select
from sqlalchemy.exc import DBAPIError

from ....profiling.base.errors import BackendError, IllegalTransition, LedgerDamaged, LedgerRefused
from .digests import NONE, fault, faults, seal, seal_all
from .tables import EVENT, HEAD, STUDY, WRITER

#: Seconds that a connection waits for another one's lock.
PATIENCE = 5.0
#: What a ledger's URL may be.
ALLOWED = "sqlite:///<file> or postgresql://<user>:<password>@<host>/<database>"

BUSY = "another process holds its lock: is a second scheduler at work?"


class Newest(NamedTuple):
    """The newest event: its number (0: there is none), and its digest."""

    seq: int
    digest: int


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
    #: Where it is one file: that one.
    file: Path | None = None
    #: How a ledger there is restored.
    restoring: ClassVar[str]

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

    def structure_fault(self, connection: Connection) -> str | None:
        """What is wrong in how the database keeps its rows, as far as it can tell; may read all."""
        return None

    def structure_fault_now_and_then(self, connection: Connection) -> str | None:
        """The same for a reader, who asks before each query: looked for as often as is cheap."""
        return None

    def note(self, newest: Newest) -> None:  # noqa: B027 - where nothing can be lost unseen
        """Keep outside of the ledger which event is its newest."""

    def noted(self) -> Newest | None:
        """What was noted last: this event was written. None where nothing is."""
        return None

    def damaged(self, what: str) -> LedgerDamaged:
        """That the ledger is damaged, in ``what``, and how to go on."""
        return LedgerDamaged(f"the ledger {self.shown} is damaged: {what}. {self.restoring}")

    def trouble(self, error: BaseException | None) -> BackendError:
        """One of the driver's errors as ours."""
        return self.unusable(self.meaning(error))

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
            raise self.trouble(cause) from error

    def unusable(self, why: str) -> BackendError:
        """That the ledger cannot be used, and why."""
        return BackendError(f"the ledger {self.shown} cannot be used: {why}")


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


def migrate(database: Database, connection: Connection) -> None:
    """Bring the ledger to ``HEAD`` in one transaction, and say in it who writes there from now on.

    Alembic is imported only where there is something to do. LedgerDamaged, or LedgerRefused for a
    ledger of a newer version.
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

            upgrade(connection, HEAD)
            seal_all(connection)
        row = {"version": version("penstock"), "schema": HEAD}
        seal(WRITER, [row], NONE)
        rows = connection.execute(select(WRITER)).all()
        if [each._asdict() for each in rows] != [row]:
            if at == HEAD and (wrong := fault(WRITER, rows)):
                raise database.damaged(wrong)
            connection.execute(delete(WRITER))
            connection.execute(insert(WRITER), [row])


def check_empty(database: Database, connection: Connection) -> None:
    """See that what has no revision has nothing else. LedgerDamaged where it has."""
    noted = database.noted()
    if noted is not None and noted.seq:
        wrong = f"{noted.seq} events were written to it, and it is empty"
    elif inspect(connection).has_table("event"):
        wrong = "it does not say any more of which version it is"
    else:
        return
    if revision(connection) is None:  # else it was made since the caller looked
        raise database.damaged(wrong)


def check_not_newer(database: Database, connection: Connection, at: str) -> None:
    """See that revision ``at`` is an older one. LedgerRefused says who can read a newer one."""
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
            f" Penstock {version('penstock')} (reads up to {int(HEAD)}): upgrade Penstock"
        )


def verify(database: Database, connection: Connection) -> Newest:
    """See that all of the ledger is as it was written; its newest event. Reads everything.

    Raises LedgerDamaged with the first that is wrong.
    """
    noted = database.noted()  # first: what is written meanwhile is newer
    with connection.begin():
        for found in faults(connection):
            raise database.damaged(found)
        check_noted(database, connection, noted)
        query = select(EVENT.c.seq, EVENT.c.digest).order_by(EVENT.c.seq.desc()).limit(1)
        row = connection.execute(query).first()
    return Newest(0, NONE) if row is None else Newest(row.seq, row.digest)


class Known(NamedTuple):
    """What was found in a ledger that is whole: its newest event, and how many studies it has."""

    newest: int
    studies: int


def look_through(database: Database) -> Known:
    """See that a ledger is whole, without changing it. LedgerDamaged, or BackendError.

    One of an older version has no digests yet, so only the database's own structure is checked.
    """
    with database.answering(), database.reader().connect() as connection:
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
        newest = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
        studies = connection.execute(select(func.count(STUDY.c.id))).scalar() or 0
    return Known(newest, studies)


def check_noted(database: Database, connection: Connection, noted: Newest | None) -> None:
    """See that the event is there that was ``noted``. LedgerDamaged where it is not.

    What the database keeps beside its file (SQLite's write-ahead log) may be damaged or gone: then
    it opens as if the newest batches had never been.
    """
    if noted is None or not noted.seq:
        return
    query = select(EVENT.c.digest).where(EVENT.c.seq == noted.seq)
    if connection.execute(query).scalar() != noted.digest:
        newest = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
        raise database.damaged(
            f"event {noted.seq} was written to it and is not there (its newest is {newest})"
        )
